/* opt.c - one option's text to its value and back. */
#include "base/opt.h"

#include "base/nearest.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { TEXT_ROOM = 2048 }; /* more than any option's own room */

/* Text of a range's two ends: "0.5..1" is two numbers, not "0.5." and ".1". */
static void range_ends(const struct opt *o, char low[32], char high[32])
{
  const char *dots = strstr(o->allowed, "..");
  BUG_IF(dots == NULL || dots - o->allowed > 31 || strlen(dots + 2) > 31);
  snprintf(low, 32, "%.*s", (int)(dots - o->allowed), o->allowed);
  snprintf(high, 32, "%s", dots + 2);
}

/* Whole numbers only: no blanks, no sign but '-', nothing after the digits. */
static bool parse_int(const char *text, int64_t *out)
{
  const char *digits = text + (*text == '-');
  if (*digits < '0' || *digits > '9') return false;
  char *end;
  errno = 0;
  *out = strtoll(text, &end, 10);
  return *end == '\0' && errno == 0;
}

/* Finite decimal numbers only: strtod alone would take "inf", "nan", "0x1p3" and " 1". */
static bool parse_real(const char *text, double *out)
{
  if (*text == '\0' || text[strspn(text, "0123456789+-.eE")] != '\0' || *text == '+') return false;
  char *end;
  *out = strtod(text, &end);
  return *end == '\0' && isfinite(*out);
}

static bool int_allowed(const struct opt *o, int64_t value)
{
  char low[32], high[32];
  int64_t from, to;
  range_ends(o, low, high);
  BUG_IF(!parse_int(low, &from) || !parse_int(high, &to));
  return from <= value && value <= to;
}

static bool real_allowed(const struct opt *o, double value)
{
  char low[32], high[32];
  double from, to;
  range_ends(o, low, high);
  BUG_IF(!parse_real(low, &from) || !parse_real(high, &to));
  return from <= value && value <= to;
}

/* The length of the name that starts at `at` in "a|b|c". */
static int name_length(const char *at) { return (int)strcspn(at, "|"); }

static bool parse_name(const struct opt *o, const char *text, int64_t *out)
{
  const char *at = o->allowed;
  for (int64_t i = 0;; i++) {
    const int n = name_length(at);
    if ((int)strlen(text) == n && strncmp(at, text, (size_t)n) == 0) {
      *out = i;
      return true;
    }
    if (at[n] == '\0') return false;
    at += n + 1;
  }
}

/* The code point at *at, which moves past it; -1: not UTF-8. */
static int32_t code_point(const unsigned char **at)
{
  static const int32_t smallest[] = {0, 0x80, 0x800, 0x10000}; /* by bytes that follow: fewer would have done below it */
  const unsigned char *p = *at;
  const int more = p[0] < 0x80 ? 0 : p[0] >> 5 == 6 ? 1 : p[0] >> 4 == 14 ? 2 : p[0] >> 3 == 30 ? 3 : -1;
  if (more < 0) return -1;
  int32_t code = more == 0 ? p[0] : p[0] & (0x3f >> more);
  for (int i = 1; i <= more; i++) {
    if (p[i] >> 6 != 2) return -1;
    code = code << 6 | (p[i] & 0x3f);
  }
  if (code < smallest[more] || code > 0x10ffff || (code >= 0xd800 && code <= 0xdfff)) return -1;
  *at = p + more + 1;
  return code;
}

/* What a quoted YAML scalar and JSON both give back as it was: no control characters, no
 * line breaks of Unicode, no byte-order mark. */
static bool printable(const char *text)
{
  for (const unsigned char *at = (const unsigned char *)text; *at;) {
    const int32_t code = code_point(&at);
    if (code < 0x20 || (code >= 0x7f && code < 0xa0)) return false;
    if (code == 0x2028 || code == 0x2029 || code == 0xfeff || code == 0xfffe || code == 0xffff) return false;
  }
  return true;
}

/* "a whole number 1..64 (ranks)" */
static const char *valid_values(const struct opt *o, char *out, size_t bytes)
{
  static const char *const kinds[] = {
    [OPT_INT] = "a whole number ", [OPT_REAL] = "a number ", [OPT_BOOL] = "true|false", [OPT_NAME] = "", [OPT_TEXT] = ""};
  const bool unit = o->unit[0] != '\0' && (o->type == OPT_INT || o->type == OPT_REAL);
  snprintf(out, bytes, "%s%s%s%s%s", kinds[o->type], o->type == OPT_BOOL ? "" : o->allowed, unit ? " (" : "",
           unit ? o->unit : "", unit ? ")" : "");
  return out;
}

static enum err refuse(const struct opt *o, const char *text, const char *where)
{
  char valid[TEXT_ROOM];
  FAIL(ERR_CONFIG, "%s%s%s: '%.80s' is not valid; valid: %s", where ? where : "", where ? ": " : "", o->key, text,
       valid_values(o, valid, sizeof valid));
}

enum err opt_set(const struct opt *o, void *base, const char *text, const char *where)
{
  void *at = (char *)base + o->offset;
  int64_t whole;
  double real;
  switch (o->type) {
  case OPT_INT:
    if (!parse_int(text, &whole) || !int_allowed(o, whole)) return refuse(o, text, where);
    *(int64_t *)at = whole;
    break;
  case OPT_REAL:
    if (!parse_real(text, &real) || !real_allowed(o, real)) return refuse(o, text, where);
    *(double *)at = real;
    break;
  case OPT_BOOL:
    if (strcmp(text, "true") != 0 && strcmp(text, "false") != 0) return refuse(o, text, where);
    *(bool *)at = strcmp(text, "true") == 0;
    break;
  case OPT_NAME:
    if (!parse_name(o, text, &whole)) return refuse(o, text, where);
    *(int64_t *)at = whole;
    break;
  case OPT_TEXT:
    if (strlen(text) >= o->room)
      FAIL(ERR_CONFIG, "%s%s%s: %zu bytes beginning '%.40s' are too many; valid: at most %zu", where ? where : "",
           where ? ": " : "", o->key, strlen(text), text, o->room - 1);
    if (!printable(text))
      FAIL(ERR_CONFIG, "%s%s%s: the value is not printable text; valid: UTF-8 without control characters",
           where ? where : "", where ? ": " : "", o->key);
    memmove(at, text, strlen(text) + 1);
    break;
  }
  return ERR_OK;
}

const struct opt *opt_find(const struct opt *table, int n, const char *key)
{
  for (int i = 0; i < n; i++)
    if (strcmp(table[i].key, key) == 0) return &table[i];
  return NULL;
}

enum err opt_set_key(const struct opt *table, int n, void *base, const char *key, const char *text, const char *where)
{
  const struct opt *o = opt_find(table, n, key);
  if (o != NULL) {
    TRY(opt_set(o, base, text, where));
    return ERR_OK;
  }
  struct nearest near = nearest_to(key);
  for (int i = 0; i < n; i++) nearest_offer(&near, table[i].key);
  char names[256];
  FAIL(ERR_CONFIG, "%s%sno option is called '%.80s' (value '%.80s'); nearest: %s", where ? where : "", where ? ": " : "",
       key, text, nearest_text(&near, names, sizeof names));
}

void opt_defaults(const struct opt *table, int n, void *base)
{
  for (int i = 0; i < n; i++) BUG_IF(opt_set(&table[i], base, table[i].initial, NULL) != ERR_OK);
}

/* The fewest digits that read back equal. */
static void real_text(double value, char *out, size_t bytes)
{
  for (int digits = 1; digits <= 17; digits++) {
    snprintf(out, bytes, "%.*g", digits, value);
    if (strtod(out, NULL) == value) return;
  }
}

void opt_text(const struct opt *o, const void *base, char *out, size_t bytes)
{
  const void *at = (const char *)base + o->offset;
  switch (o->type) {
  case OPT_INT: snprintf(out, bytes, "%" PRId64, *(const int64_t *)at); break;
  case OPT_REAL: real_text(*(const double *)at, out, bytes); break;
  case OPT_BOOL: snprintf(out, bytes, "%s", *(const bool *)at ? "true" : "false"); break;
  case OPT_NAME: {
    const char *name = o->allowed;
    for (int64_t i = *(const int64_t *)at; i > 0; i--) {
      BUG_IF(name[name_length(name)] == '\0'); /* an index past the last name */
      name += name_length(name) + 1;
    }
    snprintf(out, bytes, "%.*s", name_length(name), name);
    break;
  }
  case OPT_TEXT: snprintf(out, bytes, "%s", (const char *)at); break;
  }
}
