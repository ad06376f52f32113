/* sweep.c - combinations of what a sweep varies, and rows of values that meet in pairs. */
#include "harness/sweep.h"
#include "harness/pairwise.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { AXES_MAX = 20 };

/* What one case gives each varied key: those of vary, of zip, then of pairs. */
struct combination {
  int n;
  const struct yaml *keys[AXES_MAX], *values[AXES_MAX];
};

struct sweep {
  struct reader *r;
  const struct yaml *at, *name, *vary, *zip, *pairs, *except, *legal;
  struct suite_case base;
  int64_t most_ranks;          /* 0: any */
  struct combination *leading; /* of vary and zip */
  int n, room;
  struct suite_case *made;     /* [pairs + 1] by how many keys of pairs are set, of the row looked at last */
  int last[PAIRWISE_AXES], set; /* that row; so many of its numbers are in `made` */
  enum err err;                /* of a callback */
};

/* Keys of a sweep that are numbers of its own. */
struct limits {
  int64_t legal, most_ranks;
};
static const struct opt limit_options[] = {
    {"legal", OPT_INT, offsetof(struct limits, legal), sizeof(int64_t), "0", "1..1000000", "",
     "combinations that the options table accepts"},
    {"most_ranks", OPT_INT, offsetof(struct limits, most_ranks), sizeof(int64_t), "0", "1..1048576", "ranks",
     "layouts of more are left out"},
};
enum { LIMITS = sizeof limit_options / sizeof *limit_options };

static const char *value_of(const struct combination *c, const char *key, size_t length)
{
  for (int i = 0; i < c->n; i++)
    if (strlen(c->keys[i]->text) == length && strncmp(c->keys[i]->text, key, length) == 0) return c->values[i]->text;
  return NULL;
}

static enum err name_from(const struct sweep *s, const struct combination *c, int row, char *out, size_t bytes)
{
  size_t used = 0;
  char number[16];
  snprintf(number, sizeof number, "%d", row);
  for (const char *t = s->name->text; *t;) {
    const char *end = *t == '{' ? strchr(t, '}') : NULL;
    if (*t == '{' && end == NULL) return reader_refuse(s->r, s->name, "'{' without '}' in a name");
    const char *value = end ? value_of(c, t + 1, (size_t)(end - t - 1)) : NULL;
    if (end && value == NULL && strncmp(t, "{row}", 5) == 0) value = number;
    if (end && value == NULL)
      FAIL(ERR_CONFIG, "%s:%d:%d: name uses %.*s, which is not in vary, zip or pairs", s->r->path, s->name->line,
           s->name->column, (int)(end - t + 1), t);
    const int wrote =
        value ? snprintf(out + used, bytes - used, "%s", value) : snprintf(out + used, bytes - used, "%c", *t);
    used += (size_t)wrote;
    if (used >= bytes) return reader_refuse(s->r, s->name, "the name becomes too long");
    t = value ? end + 1 : t + 1;
  }
  out[used] = '\0';
  return ERR_OK;
}

/* --- which combinations there are -------------------------------------------------- */

/* A map that names a key of pairs excepts no combination of the others alone. */
static bool is_excepted(const struct sweep *s, const struct combination *c)
{
  for (int i = 0; s->except && i < s->except->n; i++) {
    const struct yaml *map = s->except->values[i];
    bool all = map->n > 0;
    for (int k = 0; all && k < map->n; k++) {
      const char *value = value_of(c, map->keys[k]->text, strlen(map->keys[k]->text));
      all = value != NULL && strcmp(value, map->values[k]->text) == 0;
    }
    if (all) return true;
  }
  return false;
}

static enum err make(const struct sweep *s, const struct combination *c, struct suite_case *out)
{
  *out = s->base;
  for (int i = 0; i < c->n; i++) TRY(reader_set(s->r, c->keys[i], c->values[i], out));
  return ERR_OK;
}

/* *out: the case is wanted.  What this build cannot run is for the plan to say. */
static enum err is_wanted(const struct sweep *s, const struct suite_case *made, bool *out)
{
  *out = s->most_ranks == 0 || config_ranks(&made->config) <= s->most_ranks;
  if (!*out || s->legal == NULL) return ERR_OK;
  struct run_config config = made->config;
  const enum err err = config_finish(&config);
  if (err == ERR_CONFIG) *out = false;
  else if (err != ERR_OK && err != ERR_UNAVAILABLE) return err_trace(err, __FILE__, __LINE__);
  err_clear();
  return ERR_OK;
}

static enum err add_leading(struct sweep *s, const struct combination *c)
{
  struct suite_case made;
  bool wanted;
  if (is_excepted(s, c)) return ERR_OK;
  TRY(make(s, c, &made));
  TRY(is_wanted(s, &made, &wanted));
  if (!wanted) return ERR_OK;
  if (s->n == s->room) {
    const int room = s->room ? 2 * s->room : 64;
    struct combination *more = realloc(s->leading, (size_t)room * sizeof *more);
    if (more == NULL) FAIL(ERR_MEMORY, "%d combinations of %s", room, s->r->path);
    s->leading = more;
    s->room = room;
  }
  s->leading[s->n++] = *c;
  return ERR_OK;
}

/* An odometer: vary's axes, then the zip; the last turns fastest. */
static enum err list_leading(struct sweep *s)
{
  const int n_vary = s->vary ? s->vary->n : 0, n_zip = s->zip ? s->zip->n : 0;
  int at[AXES_MAX + 1] = {0};
  for (;;) {
    struct combination c = {.n = 0};
    for (int i = 0; i < n_vary; i++, c.n++)
      c.keys[c.n] = s->vary->keys[i], c.values[c.n] = s->vary->values[i]->values[at[i]];
    for (int i = 0; i < n_zip; i++, c.n++)
      c.keys[c.n] = s->zip->keys[i], c.values[c.n] = s->zip->values[i]->values[at[n_vary]];
    TRY(add_leading(s, &c));
    int axis = n_vary + (n_zip > 0) - 1;
    for (; axis >= 0; axis--) {
      const int length = axis < n_vary ? s->vary->values[axis]->n : s->zip->values[0]->n;
      if (++at[axis] < length) break;
      at[axis] = 0;
    }
    if (axis < 0) return ERR_OK;
  }
}

/* --- rows ---------------------------------------------------------------------------- */

static struct combination combination_of(const struct sweep *s, const int *row)
{
  struct combination c = s->leading[row[0]];
  for (int i = 0; s->pairs && i < s->pairs->n; i++, c.n++) {
    c.keys[c.n] = s->pairs->keys[i];
    c.values[c.n] = s->pairs->values[i]->values[row[i + 1]];
  }
  return c;
}

/* The case of a row, made from that of the row before by the keys that differ: there are many rows. */
static enum err make_row(struct sweep *s, const int *row, const struct suite_case **out)
{
  const int axes = 1 + (s->pairs ? s->pairs->n : 0);
  while (s->set > 0 && memcmp(s->last, row, (size_t)s->set * sizeof *row) != 0) s->set--;
  if (s->set == 0) TRY(make(s, &s->leading[row[0]], &s->made[s->set++]));
  for (; s->set < axes; s->set++) {
    s->made[s->set] = s->made[s->set - 1];
    TRY(reader_set(s->r, s->pairs->keys[s->set - 1], s->pairs->values[s->set - 1]->values[row[s->set]],
                   &s->made[s->set]));
  }
  memcpy(s->last, row, (size_t)axes * sizeof *row);
  *out = &s->made[axes - 1];
  return ERR_OK;
}

static enum err judge_row(struct sweep *s, const int *row, bool *wanted)
{
  const struct combination c = combination_of(s, row);
  const struct suite_case *made = NULL;
  *wanted = false;
  if (is_excepted(s, &c)) return ERR_OK;
  TRY(make_row(s, row, &made));
  return is_wanted(s, made, wanted);
}

static bool is_legal(void *arg, const int *row)
{
  struct sweep *s = arg;
  bool wanted = false;
  if (s->err == ERR_OK) s->err = judge_row(s, row, &wanted);
  return wanted;
}

static enum err append_rows(struct sweep *s, const struct pairwise *p)
{
  for (int i = 0; i < p->n; i++) {
    const int *row = p->rows + i * p->axes;
    const struct combination c = combination_of(s, row);
    struct suite_case made;
    char text[CONFIG_NAME];
    int number = 1;
    for (int k = 0; k < i; k++) number += p->rows[k * p->axes] == row[0];
    TRY(name_from(s, &c, number, text, sizeof text));
    TRY(make(s, &c, &made));
    TRY(reader_append(s->r, s->name, text, &made));
  }
  return ERR_OK;
}

static enum err make_rows(struct sweep *s)
{
  struct pairwise p = {.axes = 1, .size = {s->n}, .legal = is_legal, .arg = s};
  for (int i = 0; s->pairs && i < s->pairs->n; i++) p.size[p.axes++] = s->pairs->values[i]->n;
  if (s->n == 0) return reader_refuse(s->r, s->at, "no combination is left");
  s->made = malloc((size_t)p.axes * sizeof *s->made);
  if (s->made == NULL) FAIL(ERR_MEMORY, "%d cases of %s", p.axes, s->r->path);
  TRY(pairwise_make(&p));
  const enum err err = s->err ? s->err : append_rows(s, &p);
  free(p.rows);
  return err ? err_trace(err, __FILE__, __LINE__) : ERR_OK;
}

/* --- reading ---------------------------------------------------------------------------- */

/* Every value of a map of axes is a list of scalars that is not empty. */
static enum err check_axes(const struct sweep *s, const struct yaml *map, const char *what, bool same_length)
{
  if (map == NULL) return ERR_OK;
  TRY(reader_expect(s->r, map, YAML_MAP, what));
  if (map->n == 0) return reader_refuse(s->r, map, "an empty map varies nothing");
  for (int i = 0; i < map->n; i++) {
    TRY(reader_expect(s->r, map->values[i], YAML_LIST, map->keys[i]->text));
    if (map->values[i]->n == 0) return reader_refuse(s->r, map->values[i], "an empty list gives no case");
    if (same_length && map->values[i]->n != map->values[0]->n)
      return reader_refuse(s->r, map->values[i], "lists of one zip have equal lengths");
    for (int k = 0; k < map->values[i]->n; k++)
      TRY(reader_expect(s->r, map->values[i]->values[k], YAML_SCALAR, map->keys[i]->text));
  }
  return ERR_OK;
}

static enum err check_except(const struct sweep *s)
{
  if (s->except == NULL) return ERR_OK;
  TRY(reader_expect(s->r, s->except, YAML_LIST, "except"));
  for (int i = 0; i < s->except->n; i++) {
    const struct yaml *map = s->except->values[i];
    TRY(reader_expect(s->r, map, YAML_MAP, "except"));
    for (int k = 0; k < map->n; k++) {
      const char *key = map->keys[k]->text;
      if ((s->vary == NULL || yaml_get(s->vary, key) == NULL) && (s->zip == NULL || yaml_get(s->zip, key) == NULL) &&
          (s->pairs == NULL || yaml_get(s->pairs, key) == NULL))
        return reader_refuse(s->r, map->keys[k], "the key is neither in vary, in zip nor in pairs");
      TRY(reader_expect(s->r, map->values[k], YAML_SCALAR, key));
    }
  }
  return ERR_OK;
}

static enum err read_limits(struct sweep *s, struct limits *out)
{
  for (int i = 0; i < LIMITS; i++) {
    const struct yaml *y = yaml_get(s->at, limit_options[i].key);
    char where[CONFIG_PATH + 32];
    if (y == NULL) continue;
    TRY(reader_expect(s->r, y, YAML_SCALAR, limit_options[i].key));
    snprintf(where, sizeof where, "%s:%d:%d", s->r->path, y->line, y->column);
    TRY(opt_set(&limit_options[i], out, y->text, where));
  }
  return ERR_OK;
}

static enum err read_keys(struct sweep *s, struct limits *limits)
{
  static const char *const known[] = {"name", "vary", "zip", "pairs", "set", "except", "legal", "most_ranks"};
  TRY(reader_expect(s->r, s->at, YAML_MAP, "sweep"));
  for (int i = 0; i < s->at->n; i++) {
    bool ok = false;
    for (size_t k = 0; k < sizeof known / sizeof *known; k++) ok = ok || strcmp(s->at->keys[i]->text, known[k]) == 0;
    if (!ok)
      return reader_refuse(s->r, s->at->keys[i],
                           "a sweep has name, vary, zip, pairs, set, except, legal and most_ranks");
  }
  s->name = yaml_get(s->at, "name");
  s->vary = yaml_get(s->at, "vary");
  s->zip = yaml_get(s->at, "zip");
  s->pairs = yaml_get(s->at, "pairs");
  s->except = yaml_get(s->at, "except");
  s->legal = yaml_get(s->at, "legal");
  if (s->name == NULL) return reader_refuse(s->r, s->at, "a sweep needs a name");
  TRY(reader_expect(s->r, s->name, YAML_SCALAR, "name"));
  if (s->vary == NULL && s->zip == NULL) return reader_refuse(s->r, s->at, "a sweep needs vary or zip");
  TRY(check_axes(s, s->vary, "vary", false));
  TRY(check_axes(s, s->zip, "zip", true));
  TRY(check_axes(s, s->pairs, "pairs", false));
  if ((s->vary ? s->vary->n : 0) + (s->zip ? s->zip->n : 0) + (s->pairs ? s->pairs->n : 0) >= AXES_MAX)
    return reader_refuse(s->r, s->at, "too many varied keys");
  TRY(check_except(s));
  TRY(read_limits(s, limits));
  s->most_ranks = limits->most_ranks;
  return reader_set_all(s->r, yaml_get(s->at, "set"), "set", &s->base);
}

static bool has_quick_cases(const struct sweep *s)
{
  static const char quick[] = "quick";
  return s->base.quick || (s->vary && yaml_get(s->vary, quick)) || (s->zip && yaml_get(s->zip, quick)) || (s->pairs && yaml_get(s->pairs, quick));
}

/* Each value by itself, where the combinations are not made. */
static enum err check_values(const struct sweep *s, const struct yaml *map)
{
  for (int i = 0; map && i < map->n; i++)
    for (int k = 0; k < map->values[i]->n; k++) {
      struct suite_case made = s->base;
      TRY(reader_set(s->r, map->keys[i], map->values[i]->values[k], &made));
    }
  return ERR_OK;
}

static enum err leave_out(const struct sweep *s)
{
  s->r->left_out = true;
  TRY(check_values(s, s->vary));
  TRY(check_values(s, s->zip));
  TRY(check_values(s, s->pairs));
  return ERR_OK;
}

enum err sweep_read(struct reader *r, const struct yaml *sweep, const struct suite_case *every)
{
  enum err err;
  struct sweep s = {.r = r, .at = sweep, .base = *every};
  struct limits limits = {0};
  TRY(read_keys(&s, &limits));
  if (r->form == SUITE_QUICK && !has_quick_cases(&s)) return leave_out(&s);
  TRY_TO(release, list_leading(&s));
  if (s.legal && s.n != limits.legal)
    FAIL_TO(release, ERR_CONFIG, "%s:%d:%d: legal: %lld combinations were said to be left, %d are", r->path,
            s.legal->line, s.legal->column, (long long)limits.legal, s.n);
  TRY_TO(release, make_rows(&s));
release:
  free(s.made);
  free(s.leading);
  return err;
}
