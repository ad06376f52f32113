/* corpus_jsonl.c - JSON Lines: each line an object, its string `text` a document of bytes.
 *
 * Read by a scanner of our own, which allocates nothing and takes bytes as they are: a library would refuse the invalid
 * UTF-8 that real corpora hold, and build a tree of each line to give one string.  It follows strings, escapes and
 * brackets (RFC 8259); numbers and words it passes over unread.  \u escapes become UTF-8, a lone surrogate its three
 * bytes.  Blank lines are no documents.
 */
#include "data/corpus_source.h"

#include <stdlib.h>
#include <string.h>

struct line {
  int64_t at; /* of the text's first byte after its quote */
  int64_t length; /* tokens */
};

struct jsonl {
  struct corpus_map map;
  struct line *lines;
  int64_t n, room, left_out;
};

/* Where the reader stands in a line, and why it cannot go on. */
struct cursor {
  const unsigned char *at, *end;
  const char *why;
};

static bool stop(struct cursor *c, const char *why)
{
  if (c->why == NULL) c->why = why;
  return false;
}

static void blanks(struct cursor *c)
{
  while (c->at < c->end && (*c->at == ' ' || *c->at == '\t' || *c->at == '\r')) c->at++;
}

static bool take(struct cursor *c, char wanted, const char *why)
{
  blanks(c);
  if (c->at >= c->end || *c->at != (unsigned char)wanted) return stop(c, why);
  c->at++;
  return true;
}

/* Four digits of \uXXXX. */
static bool hex(struct cursor *c, uint32_t *out)
{
  *out = 0;
  if (c->end - c->at < 4) return stop(c, "an escape \\u without four digits");
  for (int i = 0; i < 4; i++) {
    const unsigned char d = *c->at++;
    const int value = d >= '0' && d <= '9' ? d - '0' : d >= 'a' && d <= 'f' ? d - 'a' + 10 : d >= 'A' && d <= 'F' ? d - 'A' + 10 : -1;
    if (value < 0) return stop(c, "an escape \\u without four digits");
    *out = *out * 16 + (uint32_t)value;
  }
  return true;
}

static int utf8(uint32_t code, unsigned char out[4])
{
  const int n = code < 0x80 ? 1 : code < 0x800 ? 2 : code < 0x10000 ? 3 : 4;
  static const unsigned char lead[] = {0, 0x00, 0xc0, 0xe0, 0xf0};
  for (int i = n - 1; i > 0; i--, code >>= 6) out[i] = (unsigned char)(0x80 | (code & 0x3f));
  out[0] = (unsigned char)(lead[n] | code);
  return n;
}

/* After a \u: its bytes, two escapes of a surrogate pair together. */
static int unicode(struct cursor *c, unsigned char out[4])
{
  uint32_t code, low;
  if (!hex(c, &code)) return 0;
  if (code >> 10 == 0x36 && c->end - c->at >= 6 && c->at[0] == '\\' && c->at[1] == 'u') {
    struct cursor second = {c->at + 2, c->end, NULL};
    if (hex(&second, &low) && low >> 10 == 0x37) {
      code = 0x10000 + ((code & 0x3ff) << 10 | (low & 0x3ff));
      c->at = second.at;
    }
  }
  return utf8(code, out);
}

/* After a backslash. */
static int escaped(struct cursor *c, unsigned char out[4])
{
  static const char names[] = "\"\\/bfnrt", values[] = "\"\\/\b\f\n\r\t";
  if (c->at >= c->end) return stop(c, "a string that does not end");
  const unsigned char name = *c->at++;
  if (name == 'u') return unicode(c, out);
  const char *found = name ? strchr(names, name) : NULL;
  if (found == NULL) return stop(c, "an escape that JSON does not have");
  out[0] = (unsigned char)values[found - names];
  return 1;
}

/* A string from after its quote to after its end, or with an `out` until its bytes [first, first + n) are there.  Returns how
 * many it has passed. */
static int64_t string(struct cursor *c, int64_t first, int64_t n, int32_t *out)
{
  int64_t length = 0;
  while (c->at < c->end && *c->at != '"') {
    if (out != NULL && length >= first + n) return length;
    unsigned char bytes[4] = {*c->at++};
    const int got = bytes[0] == '\\' ? escaped(c, bytes) : 1;
    if (c->why) return 0;
    for (int i = 0; i < got; i++, length++)
      if (length >= first && length < first + n) out[length - first] = bytes[i];
  }
  if (c->at >= c->end) return stop(c, "a string that does not end");
  c->at++;
  return length;
}

/* Any value: to after it. */
static bool skip(struct cursor *c)
{
  int depth = 0;
  do {
    blanks(c);
    if (c->at >= c->end) return stop(c, "a value that does not end");
    const unsigned char first = *c->at++;
    if (first == '"') string(c, 0, 0, NULL);
    else if (first == '{' || first == '[') depth++;
    else if (first == '}' || first == ']') depth--;
    else if (depth == 0)
      while (c->at < c->end && *c->at != ',' && *c->at != '}' && *c->at != ' ') c->at++;
    if (c->why) return false;
  } while (depth > 0);
  return depth == 0 || stop(c, "a bracket that closes none");
}

/* One member of the object; its value if it is the text. */
static bool member(struct cursor *c, const unsigned char **text, int64_t *length)
{
  if (!take(c, '"', "no member in quotes")) return false;
  const unsigned char *name = c->at;
  const int64_t size = string(c, 0, 0, NULL);
  if (!take(c, ':', "a member without ':'")) return false;
  if (size != 4 || memcmp(name, "text", 4) != 0) return skip(c);
  if (*text != NULL) return stop(c, "two members `text`");
  if (!take(c, '"', "a `text` that is no string")) return false;
  *text = c->at;
  *length = string(c, 0, 0, NULL);
  return c->why == NULL;
}

static bool object(struct cursor *c, const unsigned char **text, int64_t *length)
{
  *text = NULL;
  if (!take(c, '{', "no object")) return false;
  do
    if (!member(c, text, length)) return false;
  while (take(c, ',', "an object that does not end"));
  c->why = NULL;
  if (!take(c, '}', "an object that does not end")) return false;
  blanks(c);
  if (c->at < c->end) return stop(c, "more than one object");
  return *text != NULL || stop(c, "no member `text`");
}

static enum err add(struct jsonl *j, int64_t at, int64_t length)
{
  if (length < 2) {
    j->left_out++;
    return ERR_OK;
  }
  if (j->n == j->room) {
    const int64_t room = j->room ? 2 * j->room : 1024;
    struct line *lines = realloc(j->lines, (size_t)room * sizeof *lines);
    if (lines == NULL) FAIL(ERR_MEMORY, "corpus: list of %lld lines", (long long)room);
    j->lines = lines;
    j->room = room;
  }
  j->lines[j->n++] = (struct line){at, length};
  return ERR_OK;
}

static enum err index_lines(const char *path, struct jsonl *j)
{
  const unsigned char *end = j->map.at + j->map.bytes;
  int64_t number = 0, length = 0;
  for (const unsigned char *at = j->map.at; at < end;) {
    const unsigned char *newline = memchr(at, '\n', (size_t)(end - at)), *text;
    struct cursor c = {at, newline ? newline : end, NULL};
    number++;
    blanks(&c);
    if (c.at < c.end) {
      if (!object(&c, &text, &length))
        FAIL(ERR_CONFIG, "corpus: %s:%lld: %s; valid: {\"text\": \"...\"} in each line", path, (long long)number, c.why);
      TRY(add(j, text - j->map.at, length));
    }
    at = newline ? newline + 1 : end;
  }
  if (j->n == 0) FAIL(ERR_CONFIG, "corpus: %s: no line with a `text` of two bytes or more", path);
  return ERR_OK;
}

static int64_t length(const void *self, int64_t document) { return ((const struct jsonl *)self)->lines[document].length; }

static enum err tokens(const void *self, int64_t document, int64_t first, int64_t n, int32_t *out)
{
  const struct jsonl *j = self;
  struct cursor c = {j->map.at + j->lines[document].at, j->map.at + j->map.bytes, NULL};
  string(&c, first, n, out);
  return ERR_OK;
}

static void close_lines(void *self)
{
  struct jsonl *j = self;
  corpus_map_close(&j->map);
  free(j->lines);
  free(j);
}

enum err corpus_jsonl_open(const struct run_config *c, struct corpus_source *out)
{
  enum err err;
  TRY(corpus_needs_bytes(c));
  struct jsonl *j = calloc(1, sizeof *j);
  if (j == NULL) FAIL(ERR_MEMORY, "corpus: %zu bytes", sizeof *j);
  TRY_TO(close_file, corpus_map_open(c->corpus, &j->map));
  TRY_TO(close_file, index_lines(c->corpus, j));
  *out = (struct corpus_source){j, j->n, j->left_out, length, tokens, close_lines};
  return ERR_OK;

close_file:
  close_lines(j);
  return err;
}
