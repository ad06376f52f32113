/* mutator.c - finds every place where one small change can be made to C sources, in a seeded order.
 *
 *   mutator SEED FILE...            prints one line a mutant: number, tab, file:line, tab, kind, tab, before, tab, after
 *   mutator SEED FILE... --apply K  rewrites the file of mutant K in place
 *
 * Comments, strings, preprocessor lines and declarations of functions are left alone.  The
 * order is a shuffle of all places by the seed, so the first N are a uniform draw, and the
 * same seed over the same sources gives the same mutants.  Whether one compiles is the
 * caller's to find out.
 */
#include <ctype.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

struct mutant {
  int file;
  size_t from, to; /* bytes of the file that are replaced */
  const char *kind;
  char *after;
};

struct source {
  const char *path;
  char *text, *code; /* code: text with comments, strings and # lines blanked, same length */
  size_t length;
};

static struct source *sources;
static int n_sources;
static struct mutant *mutants;
static size_t n_mutants, room;

static void *must(void *at)
{
  if (at == NULL) {
    fprintf(stderr, "mutator: out of memory\n");
    exit(3);
  }
  return at;
}

static void add(int file, size_t from, size_t to, const char *kind, const char *after, size_t bytes)
{
  if (n_mutants == room) mutants = must(realloc(mutants, (room = room ? 2 * room : 1024) * sizeof *mutants));
  char *copy = must(malloc(bytes + 1));
  memcpy(copy, after, bytes);
  copy[bytes] = '\0';
  mutants[n_mutants++] = (struct mutant){file, from, to, kind, copy};
}

static char *slurp(const char *path, size_t *length)
{
  FILE *in = fopen(path, "rb");
  if (in == NULL) {
    perror(path);
    exit(2);
  }
  fseek(in, 0, SEEK_END);
  const long n = ftell(in);
  rewind(in);
  char *text = must(malloc((size_t)n + 1));
  if (fread(text, 1, (size_t)n, in) != (size_t)n) {
    perror(path);
    exit(2);
  }
  text[n] = '\0';
  fclose(in);
  *length = (size_t)n;
  return text;
}

/* Comments, strings, character constants and preprocessor lines become blanks. */
static char *blank(const char *text, size_t n)
{
  char *code = must(malloc(n + 1));
  memcpy(code, text, n + 1);
  for (size_t i = 0; i < n;) {
    size_t end = i + 1;
    if (text[i] == '/' && i + 1 < n && text[i + 1] == '*') {
      const char *close = strstr(text + i + 2, "*/");
      end = close ? (size_t)(close - text) + 2 : n;
    } else if (text[i] == '/' && i + 1 < n && text[i + 1] == '/') {
      while (end < n && text[end] != '\n') end++;
    } else if (text[i] == '"' || text[i] == '\'') {
      while (end < n && text[end] != text[i]) end += text[end] == '\\' ? 2 : 1;
      end++;
    } else if (text[i] == '#' && (i == 0 || text[i - 1] == '\n')) {
      while (end < n && text[end] != '\n') end += text[end] == '\\' ? 2 : 1;
    } else {
      i++;
      continue;
    }
    for (size_t k = i; k < end && k < n; k++)
      if (code[k] != '\n') code[k] = ' ';
    i = end;
  }
  return code;
}

static bool word(char c) { return isalnum((unsigned char)c) || c == '_'; }

/* --- operators, constants, names ------------------------------------------------ */

static const struct {
  const char *from, *to, *kind;
} tokens[] = {
  {" < ", " <= ", "border"},   {" <= ", " < ", "border"},     {" > ", " >= ", "border"},  {" >= ", " > ", "border"},
  {" == ", " != ", "negate"},  {" != ", " == ", "negate"},    {" && ", " || ", "logic"},  {" || ", " && ", "logic"},
  {" + ", " - ", "operator"},  {" - ", " + ", "operator"},    {" * ", " / ", "operator"}, {" / ", " * ", "operator"},
  {" += ", " = ", "overwrite"}, {" += ", " -= ", "operator"}, {" -= ", " += ", "operator"}, {" % ", " / ", "operator"},
};

static const struct {
  const char *from, *to, *kind;
} names[] = {
  {"true", "false", "switch"},           {"false", "true", "switch"},       {"COMM_SUM", "COMM_MAX", "reduction"},
  {"COMM_ORDERED", "COMM_FAST", "reduction"}, {"COMM_FAST", "COMM_ORDERED", "reduction"},
  {"DTYPE_F64", "DTYPE_F32", "type"},    {"DTYPE_F32", "DTYPE_F64", "type"}, {"double", "float", "type"},
  {"MPI_SUM", "MPI_MAX", "reduction"},   {"int64_t", "int32_t", "type"},     {"fmax", "fmin", "reduction"},
  {"fmin", "fmax", "reduction"},         {"rows", "cols", "operand"},        {"cols", "rows", "operand"},
  {"dp", "tp", "group"},                 {"dp_rank", "tp_rank", "group"},    {"beta1", "beta2", "factor"},
  {"beta2", "beta1", "factor"},          {"dev_reads", "dev_writes", "range"}, {"dev_writes", "dev_reads", "range"},
  {"lane", "(lane ^ 1)", "lane"},        {"warp", "(warp ^ 1)", "lane"},
};

/* Inside a function: after a line that is "{" alone in column 0, until "}" in column 0. */
static char *bodies(const char *code, size_t n)
{
  char *in = must(calloc(n + 1, 1));
  bool inside = false;
  for (size_t at = 0; at < n;) {
    const char *line_end = memchr(code + at, '\n', n - at);
    const size_t end = line_end ? (size_t)(line_end - code) : n;
    const bool one_line = code[at] != ' ' && code[at] != '{' && code[at] != '}' && memchr(code + at, '{', end - at) &&
                          end > at && code[end - 1] == '}' && memchr(code + at, '(', end - at) && memchr(code + at, ';', end - at);
    if (code[at] == '}') inside = false;
    if (inside) memset(in + at, 1, end - at);
    if (one_line) {
      const char *brace = memchr(code + at, '{', end - at);
      memset(in + (brace - code), 1, end - (size_t)(brace - code));
    }
    if (code[at] == '{') inside = true;
    at = end + 1;
  }
  return in;
}

/* What only words a message or guards against the impossible is left alone: the arguments of
 * FAIL, FAIL_TO, BUG_IF, snprintf. */
static void leave_messages(const char *code, size_t n, char *in)
{
  static const char *const calls[] = {"FAIL(", "FAIL_TO(", "BUG_IF(", "snprintf("};
  for (size_t i = 1; i < n; i++)
    for (size_t c = 0; c < sizeof calls / sizeof *calls; c++) {
      const size_t length = strlen(calls[c]);
      if (word(code[i - 1]) || i + length >= n || memcmp(code + i, calls[c], length) != 0) continue;
      int depth = 0;
      size_t end = i + length - 1;
      do {
        if (code[end] == '(') depth++;
        if (code[end] == ')') depth--;
        end++;
      } while (depth > 0 && end < n);
      memset(in + i, 0, end - i);
    }
}

/* The type of a loop's own counter shows only past 2^31 turns, which no test takes. */
static bool counts_a_loop(const char *code, size_t at) { return at >= 5 && memcmp(code + at - 5, "for (", 5) == 0; }

static void small_changes(int file, const char *code, size_t n, const char *in)
{
  for (size_t i = 0; i < n; i++) {
    if (!in[i]) continue;
    for (size_t t = 0; t < sizeof tokens / sizeof *tokens; t++) {
      const size_t length = strlen(tokens[t].from);
      if (i + length < n && memcmp(code + i, tokens[t].from, length) == 0)
        add(file, i, i + length, tokens[t].kind, tokens[t].to, strlen(tokens[t].to));
    }
    if (!word(code[i]) || (i > 0 && (word(code[i - 1]) || code[i - 1] == '.'))) continue;
    size_t end = i;
    while (end < n && word(code[end])) end++;
    for (size_t k = 0; k < sizeof names / sizeof *names; k++)
      if (strlen(names[k].from) == end - i && memcmp(code + i, names[k].from, end - i) == 0 && !counts_a_loop(code, i))
        add(file, i, end, names[k].kind, names[k].to, strlen(names[k].to));
    if (isdigit((unsigned char)code[i]) && code[end] != '.' && code[i] != '0') { /* n -> n + 1 and n - 1 */
      char text[64];
      const long value = strtol(code + i, NULL, 10);
      if (end - i > 9) continue;
      add(file, i, end, "plus one", text, (size_t)snprintf(text, sizeof text, "%ld", value + 1));
      add(file, i, end, "minus one", text, (size_t)snprintf(text, sizeof text, "%ld", value - 1));
    } else if (code[i] == '0' && end == i + 1 && code[end] != '.') add(file, i, end, "plus one", "1", 1);
    else if (isdigit((unsigned char)code[i]) && code[end] == '.' && isdigit((unsigned char)code[end + 1])) { /* a real: doubled */
      char *stop, text[64];
      const double value = strtod(code + i, &stop);
      add(file, i, (size_t)(stop - code), "factor", text, (size_t)snprintf(text, sizeof text, "%.17g", value == 0.0 ? 1.0 : 2.0 * value));
    }
  }
}

/* Refuses or does nothing, so that doubling it changes nothing. */
static bool only_checks(const char *at, size_t n)
{
  const char *const open = memchr(at, '(', n);
  const size_t name = open ? (size_t)(open - at) : n;
  if (name == 3 && memcmp(at, "TRY", 3) == 0) return only_checks(open + 1, n - 4);
  for (size_t i = 0; i + 5 <= name; i++)
    if (memcmp(at + i, "check", 5) == 0 || (i + 6 <= name && strncasecmp(at + i, "expect", 6) == 0)) return true;
  return false;
}

static bool is_one_of(const char *at, size_t n, const char *const *words, size_t count)
{
  for (size_t i = 0; i < count; i++)
    if (strlen(words[i]) == n && memcmp(words[i], at, n) == 0) return true;
  return false;
}
#define IS_ONE_OF(at, n, words) is_one_of(at, n, words, sizeof(words) / sizeof *(words))

/* Both orders of its first two arguments mean the same. */
static bool commutes(const char *at, size_t n)
{
  static const char *const words[] = {"calloc", "memcmp", "strcmp", "OP_EXPECT", "fmin", "fmax"};
  return IS_ONE_OF(at, n, words);
}

/* Writes the same again when it is done twice. */
static bool idempotent(const char *at, size_t n)
{
  static const char *const words[] = {"op_copy", "op_fill", "op_hash", "atomic_store", "memcpy", "memset", "strcpy", "dev_record", "dev_wait",
                                      "dev_sync", "dev_sync_stream", "dev_sync_event", "dev_host_touch", "dev_copy_in", "dev_copy_out",
                                      "__syncthreads", "__syncwarp"};
  const char *const open = memchr(at, '(', n);
  const size_t name = open ? (size_t)(open - at) : n;
  if (name == 3 && memcmp(at, "TRY", 3) == 0) return idempotent(open + 1, n - 4);
  return IS_ONE_OF(at, name, words);
}

/* --- whole calls ---------------------------------------------------------------------- */

/* End of the parenthesis that opens at `open`, or 0. */
static size_t closes(const char *code, size_t n, size_t open)
{
  int depth = 0;
  for (size_t i = open; i < n; i++) {
    if (code[i] == '(' || code[i] == '[' || code[i] == '{') depth++;
    if (code[i] == ')' || code[i] == ']' || code[i] == '}')
      if (--depth == 0) return i;
  }
  return 0;
}

static bool keyword(const char *at, size_t n)
{
  static const char *const words[] = {"if", "for", "while", "switch", "return", "sizeof", "BUG_IF", "FAIL", "FAIL_TO", "free", "else", "do"};
  return IS_ONE_OF(at, n, words);
}

/* Statements that are one call: dropped, doubled, or exchanged with the next such. */
static void call_changes(int file, const struct source *s, const char *in)
{
  const char *code = s->code;
  size_t last_from = 0, last_to = 0;
  for (size_t i = 1; i < s->length; i++) {
    if (!in[i] || (!isalpha((unsigned char)code[i]) && code[i] != '_') || word(code[i - 1])) continue;
    size_t back = i; /* a statement starts after ; { } ) or else */
    while (back > 0 && isspace((unsigned char)code[back - 1])) back--;
    size_t end = i;
    while (word(code[end])) end++;
    if (back > 0 && strchr(";{})", code[back - 1]) && code[end] == '(' && !keyword(code + i, end - i)) {
      const size_t close = closes(code, s->length, end);
      if (close && code[close + 1] == ';') {
        const size_t to = close + 2, length = to - i;
        const bool waits = strstr(code + i, "dev_wait") == code + i || strstr(code + i, "TRY(dev_wait") == code + i ||
                           strstr(code + i, "TRY(dev_record") == code + i || strstr(code + i, "TRY(dev_sync") == code + i;
        add(file, i, to, waits ? "drop wait" : "drop call", ";", 1);
        char *twice = must(malloc(2 * length + 5));
        const int n = snprintf(twice, 2 * length + 5, "{ %.*s %.*s", (int)length, s->text + i, (int)length, s->text + i);
        twice[n] = '}';
        if (!only_checks(code + i, length) && !idempotent(code + i, length)) add(file, i, to, "double call", twice, (size_t)n + 1);
        free(twice);
        size_t between = last_to;
        while (last_to && between < i && isspace((unsigned char)code[between])) between++;
        if (last_to && between == i && !(only_checks(code + last_from, last_to - last_from) && only_checks(code + i, length))) {
          /* adjacent: exchanged */
          const size_t first = last_to - last_from, gap = i - last_to;
          char *swapped = must(malloc(first + gap + length));
          memcpy(swapped, s->text + i, length);
          memcpy(swapped + length, s->text + last_to, gap);
          memcpy(swapped + length + gap, s->text + last_from, first);
          add(file, last_from, to, "move call", swapped, first + gap + length);
          free(swapped);
        }
        last_from = i;
        last_to = to;
      }
    }
    /* Any call: its first two arguments exchanged. */
    if (code[end] == '(' && !keyword(code + i, end - i) && !commutes(code + i, end - i)) {
      const size_t close = closes(code, s->length, end);
      size_t commas[2] = {0, 0};
      int n = 0, depth = 0;
      for (size_t k = end + 1; close && k < close && n < 2; k++) {
        if (strchr("([{", code[k])) depth++;
        if (strchr(")]}", code[k])) depth--;
        if (code[k] == ',' && depth == 0) commas[n++] = k;
      }
      if (n >= 1) {
        const size_t second_end = n == 2 ? commas[1] : close, a = end + 1, b = commas[0] + 1;
        size_t start = b;
        while (start < second_end && isspace((unsigned char)code[start])) start++;
        char *swapped = must(malloc(second_end - a + 1));
        const int used = snprintf(swapped, second_end - a + 1, "%.*s, %.*s", (int)(second_end - start), s->text + start,
                                  (int)(commas[0] - a), s->text + a);
        add(file, a, second_end, "swap operands", swapped, (size_t)used < second_end - a ? (size_t)used : second_end - a);
        free(swapped);
      }
    }
  }
}

/* --- order and output -------------------------------------------------------------------- */

static uint64_t mix(uint64_t x)
{
  x += 0x9e3779b97f4a7c15u;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

static int line_of(const struct source *s, size_t at)
{
  int line = 1;
  for (size_t i = 0; i < at; i++) line += s->text[i] == '\n';
  return line;
}

static void show(const char *text, size_t n)
{
  for (size_t i = 0; i < n; i++) putchar(text[i] == '\n' || text[i] == '\t' ? ' ' : text[i]);
}

int main(int argc, char **argv)
{
  long apply = -1;
  if (argc < 3) {
    fprintf(stderr, "usage: mutator SEED FILE... [--apply K]\n");
    return 2;
  }
  uint64_t seed = 0;
  for (const char *c = argv[1]; *c; c++) seed = mix(seed ^ (unsigned char)*c);
  sources = must(calloc((size_t)argc, sizeof *sources));
  for (int i = 2; i < argc; i++) {
    if (strcmp(argv[i], "--apply") == 0 && i + 1 < argc) {
      apply = strtol(argv[++i], NULL, 10);
      continue;
    }
    struct source *s = &sources[n_sources];
    s->path = argv[i];
    s->text = slurp(argv[i], &s->length);
    s->code = blank(s->text, s->length);
    char *in = bodies(s->code, s->length);
    leave_messages(s->code, s->length, in);
    small_changes(n_sources, s->code, s->length, in);
    call_changes(n_sources, s, in);
    free(in);
    n_sources++;
  }
  for (size_t i = n_mutants; i > 1; i--) { /* Fisher-Yates */
    const size_t k = (size_t)(mix(seed ^ mix(i)) % i);
    const struct mutant keep = mutants[i - 1];
    mutants[i - 1] = mutants[k];
    mutants[k] = keep;
  }
  if (apply >= 0) {
    if ((size_t)apply >= n_mutants) {
      fprintf(stderr, "mutator: %ld of %zu\n", apply, n_mutants);
      return 2;
    }
    const struct mutant *m = &mutants[apply];
    const struct source *s = &sources[m->file];
    FILE *out = fopen(s->path, "wb");
    if (out == NULL) {
      perror(s->path);
      return 2;
    }
    fwrite(s->text, 1, m->from, out);
    fputs(m->after, out);
    fwrite(s->text + m->to, 1, s->length - m->to, out);
    return fclose(out) == 0 ? 0 : 3;
  }
  for (size_t i = 0; i < n_mutants; i++) {
    const struct mutant *m = &mutants[i];
    printf("%zu\t%s:%d\t%s\t", i, sources[m->file].path, line_of(&sources[m->file], m->from), m->kind);
    show(sources[m->file].text + m->from, m->to - m->from);
    putchar('\t');
    show(m->after, strlen(m->after));
    putchar('\n');
  }
  return 0;
}
