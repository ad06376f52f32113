/* corpus_formats_test.c - JSON Lines, Megatron-LM's indexed data, llm.c's token files: what is read, and what is refused. */
#include "data/data.h"
#include "testing/check.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static char directory[64], path[3][128]; /* x.jsonl, x.bin, x.idx */
enum { JSONL, BIN, IDX };

static void start(void)
{
  static const char *const endings[] = {"jsonl", "bin", "idx"};
  strcpy(directory, "/tmp/corpus_formats.XXXXXX");
  CHECK(mkdtemp(directory) != NULL);
  for (int i = 0; i < 3; i++) snprintf(path[i], sizeof path[i], "%s/x.%s", directory, endings[i]);
}

static void finish(void)
{
  for (int i = 0; i < 3; i++) remove(path[i]);
  CHECK(rmdir(directory) == 0);
}

static void put(const char *file, const void *bytes, size_t n)
{
  FILE *f = fopen(file, "wb");
  if (!CHECK(f != NULL)) return;
  CHECK(fwrite(bytes, 1, n, f) == n);
  fclose(f);
}

static struct run_config config(const char *corpus, int64_t vocab)
{
  struct run_config c = {.vocab = vocab, .sequence = 8, .positions = 8, .documents = 1, .seed = 1};
  snprintf(c.corpus, sizeof c.corpus, "%s", corpus);
  return c;
}

static void refused(const char *corpus, int64_t vocab, const char *words)
{
  struct corpus *x;
  const struct run_config c = config(corpus, vocab);
  CHECK_ERR(corpus_open(&c, &x), ERR_CONFIG);
  CHECK(x == NULL);
  CHECK_TEXT_HAS(err_text(), words);
}

/* Document d is these bytes. */
static void is_text(const struct corpus *x, int64_t d, const char *want, int64_t n)
{
  int32_t got[64], part[2];
  if (!CHECK(corpus_length(x, d) == n)) return;
  CHECK_OK(corpus_tokens(x, d, 0, n, got));
  for (int64_t i = 0; i < n; i++) CHECK(got[i] == (unsigned char)want[i]);
  CHECK_OK(corpus_tokens(x, d, n - 2, 2, part));
  CHECK_SAME_BITS(part, got + n - 2, sizeof part);
}

/* --- JSON Lines -------------------------------------------------------------------------- */

static void a_line_is_the_bytes_of_its_text(void)
{
  static const char lines[] = "{\"text\": \"first\"}\n"
                              "\n"
                              "  {\"id\": 7, \"meta\": {\"text\": \"not this\", \"a\": [1, {\"b\": \"}]\"}]}, "
                              "\"text\":\"a\\n\\\"\\\\\\u00e9\\u20ac\\ud83d\\ude00\", \"z\": null}\r\n"
                              "{\"text\": \"x\", \"left\": \"out\"}\n"
                              "{\"text\": \"bad \xff\xc3( \\ud800!\"}";
  start();
  put(path[JSONL], lines, sizeof lines - 1);
  struct corpus *x;
  const struct run_config c = config(path[JSONL], 256);
  if (CHECK_OK(corpus_open(&c, &x))) {
    CHECK(corpus_documents(x) == 3 && corpus_left_out(x) == 1);
    is_text(x, 0, "first", 5);
    is_text(x, 1, "a\n\"\\\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80", 13);
    is_text(x, 2, "bad \xff\xc3( \xed\xa0\x80!", 12);
    corpus_close(x);
  }
  finish();
}

static void broken_lines_are_named(void)
{
  static const struct { const char *lines, *words; } cases[] = {
    {"{\"text\": \"ok\"}\n{\"text\": \"cut of", "x.jsonl:2: a string that does not end"},
    {"{\"text\": 5}", "x.jsonl:1: a `text` that is no string"},
    {"{\"body\": \"ok\"}", "x.jsonl:1: no member `text`"},
    {"[\"text\"]", "x.jsonl:1: no object"},
    {"{\"text\": \"ok\"} {\"text\": \"ok\"}", "x.jsonl:1: more than one object"},
    {"{\"text\": \"ok\"", "x.jsonl:1: an object that does not end"},
    {"{\"text\": \"a\", \"text\": \"b\"}", "x.jsonl:1: two members `text`"},
    {"{\"text\": \"\\q\"}", "x.jsonl:1: an escape that JSON does not have"},
    {"{\"text\": \"\\u12\"}", "x.jsonl:1: an escape \\u without four digits"},
    {"{\"a\": [1, \"text\": \"\"}", "x.jsonl:1: "},
    {"{}", "x.jsonl:1: no member in quotes"},
    {"\n \n", "no line with a `text`"},
    {"", "x.jsonl is empty"},
  };
  start();
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    put(path[JSONL], cases[i].lines, strlen(cases[i].lines));
    refused(path[JSONL], 256, cases[i].words);
  }
  refused(path[JSONL], 255, "vocab: 255");
  finish();
  refused("/nowhere/x.jsonl", 256, "corpus: '/nowhere/x.jsonl': No such file or directory; valid: synthetic, a directory");
}

/* --- Megatron-LM ---------------------------------------------------------------------------- */

struct index {
  unsigned char bytes[256];
  size_t n;
};

static void append(struct index *i, const void *at, size_t bytes)
{
  memcpy(i->bytes + i->n, at, bytes);
  i->n += bytes;
}

/* As indexed_dataset.py writes it: sequences of these lengths, documents beginning at these sequences. */
static struct index make_index(int type, int width, int64_t S, const int32_t *lengths, int64_t D, const int64_t *documents)
{
  struct index i = {.n = 0};
  const int64_t version = 1;
  const unsigned char code = (unsigned char)type;
  int64_t at = 0;
  append(&i, "MMIDIDX\0", 9);
  append(&i, &version, 8);
  append(&i, &code, 1);
  append(&i, &S, 8);
  append(&i, &D, 8);
  append(&i, lengths, (size_t)S * 4);
  for (int64_t s = 0; s < S; at += lengths[s] * width, s++) append(&i, &at, 8);
  append(&i, documents, (size_t)D * 8);
  return i;
}

static const int32_t lengths[] = {3, 2, 1, 4};
static const int64_t begins[] = {0, 2, 3, 4}; /* documents of 5, 1 and 4 tokens */

static void an_index_says_where_documents_are(void)
{
  const uint16_t tokens[10] = {10, 11, 12, 13, 14, 15, 50256, 17, 65535, 19};
  const struct index i = make_index(8, 2, 4, lengths, 4, begins);
  start();
  put(path[BIN], tokens, sizeof tokens);
  put(path[IDX], i.bytes, i.n);
  char prefix[128];
  snprintf(prefix, sizeof prefix, "%s/x", directory);
  const char *const names[] = {prefix, path[BIN], path[IDX]};
  for (int n = 0; n < 3; n++) {
    struct corpus *x;
    int32_t got[5];
    const struct run_config c = config(names[n], 65536);
    if (!CHECK_OK(corpus_open(&c, &x))) continue;
    CHECK(corpus_documents(x) == 2 && corpus_left_out(x) == 1);
    CHECK(corpus_length(x, 0) == 5 && corpus_length(x, 1) == 4);
    CHECK_OK(corpus_tokens(x, 0, 1, 4, got)); /* across two sequences */
    CHECK(got[0] == 11 && got[1] == 12 && got[2] == 13 && got[3] == 14);
    CHECK_OK(corpus_tokens(x, 1, 0, 4, got));
    CHECK(got[0] == 50256 && got[2] == 65535);
    corpus_close(x);
  }
  struct corpus *x;
  int32_t got[4];
  const struct run_config c = config(prefix, 50257);
  if (CHECK_OK(corpus_open(&c, &x))) {
    CHECK_ERR(corpus_tokens(x, 1, 0, 4, got), ERR_CONFIG);
    CHECK_TEXT_HAS(err_text(), "vocab: 50257; token 2 of document 2 of corpus");
    corpus_close(x);
  }
  finish();
}

static void every_type_of_token_is_read(void)
{
  static const int32_t one[] = {3};
  static const int64_t all[] = {0, 1};
  static const struct { int type, width; } types[] = {{1, 1}, {2, 1}, {3, 2}, {4, 4}, {5, 8}, {8, 2}};
  start();
  for (size_t t = 0; t < sizeof types / sizeof *types; t++) {
    unsigned char tokens[24] = {0};
    for (int k = 0; k < 3; k++) tokens[k * types[t].width] = (unsigned char)(5 + k);
    if (types[t].width > 1) tokens[1] = 1; /* 261 */
    const struct index i = make_index(types[t].type, types[t].width, 1, one, 2, all);
    put(path[BIN], tokens, (size_t)(3 * types[t].width));
    put(path[IDX], i.bytes, i.n);
    struct corpus *x;
    int32_t got[3];
    const struct run_config c = config(path[IDX], 512);
    if (!CHECK_OK(corpus_open(&c, &x))) continue;
    CHECK_OK(corpus_tokens(x, 0, 0, 3, got));
    CHECK(got[0] == (types[t].width > 1 ? 261 : 5) && got[1] == 6 && got[2] == 7);
    corpus_close(x);
  }
  const signed char negative[3] = {5, -6, 7};
  const struct index i = make_index(2, 1, 1, one, 2, all);
  put(path[BIN], negative, sizeof negative);
  put(path[IDX], i.bytes, i.n);
  struct corpus *x;
  int32_t got[3];
  const struct run_config c = config(path[IDX], 512);
  if (CHECK_OK(corpus_open(&c, &x))) {
    CHECK_ERR(corpus_tokens(x, 0, 0, 3, got), ERR_CONFIG);
    CHECK_TEXT_HAS(err_text(), "is -6");
    corpus_close(x);
  }
  finish();
}

static void an_index_that_does_not_fit_is_named(void)
{
  const uint16_t tokens[10] = {0};
  start();
  put(path[BIN], tokens, sizeof tokens);
  const struct index good = make_index(8, 2, 4, lengths, 4, begins);

  for (size_t n = 0; n < good.n; n++) { /* cut anywhere */
    put(path[IDX], good.bytes, n);
    refused(path[IDX], 512, n == 0 ? "is empty" : n < 34 ? "does not begin as an index of Megatron-LM does" : "(truncated?)");
  }
  put(path[IDX], good.bytes, good.n);
  put(path[BIN], tokens, sizeof tokens - 2);
  refused(path[IDX], 512, "sequence 3, 4 tokens from byte 12 on, is not inside");
  const uint16_t more[11] = {0};
  put(path[BIN], more, sizeof more);
  refused(path[IDX], 512, "x.bin has 22 bytes");
  put(path[BIN], "", 0);
  refused(path[IDX], 512, "x.bin is empty");
  remove(path[BIN]);
  refused(path[IDX], 512, "x.bin: No such file or directory");
  put(path[BIN], tokens, sizeof tokens);

  static const struct { size_t at; unsigned char byte; const char *words; } broken[] = {
    {0, 'X', "does not begin as an index"}, {9, 2, "version 2; valid: 1"}, {17, 7, "type 7 of tokens; valid: 1 uint8"},
    {17, 0, "type 0"}, {17, 200, "type 200"},
    {18, 5, "no index of 5 sequences"}, {26, 3, "(truncated?)"}, {33, 0x80, "(truncated?)"}, {37, 0x80, "sequence 0"}, {57, 0x80, "sequence 0"},
    {34 + 48, 1, "document 0 begins at sequence 1"},
    {34 + 48 + 8, 4, "document 2 begins at sequence 3 of 4, the one before at 4"}, {34 + 48 + 24, 3, "document 3 begins at sequence 3"},
  };
  for (size_t i = 0; i < sizeof broken / sizeof *broken; i++) {
    struct index bad = good;
    bad.bytes[broken[i].at] = broken[i].byte;
    put(path[IDX], bad.bytes, bad.n);
    refused(path[IDX], 512, broken[i].words);
  }
  static const int32_t ones[] = {1, 1};
  static const int64_t each[] = {0, 1, 2};
  const struct index single = make_index(8, 2, 2, ones, 3, each);
  put(path[BIN], tokens, 4);
  put(path[IDX], single.bytes, single.n);
  refused(path[IDX], 512, "none of 2 documents has two tokens");
  finish();
}

/* --- llm.c ------------------------------------------------------------------------------------ */

static void tokens_of_llmc_are_cut_where_a_text_begins(void)
{
  struct { int32_t header[256]; uint16_t tokens[9]; } f = {{20240520, 1, 9}, {50256, 5, 6, 50256, 50256, 7, 8, 9, 50256}};
  start();
  put(path[BIN], &f, 1024 + 18);
  struct corpus *x;
  int32_t got[4];
  struct run_config c = config(path[BIN], 50257);
  if (CHECK_OK(corpus_open(&c, &x))) {
    CHECK(corpus_documents(x) == 2 && corpus_left_out(x) == 2);
    CHECK(corpus_length(x, 0) == 3 && corpus_length(x, 1) == 4);
    CHECK_OK(corpus_tokens(x, 1, 0, 4, got));
    CHECK(got[0] == 50256 && got[1] == 7 && got[3] == 9);
    corpus_close(x);
  }
  refused(path[BIN], 50256, "vocab: 50256; token 0 of corpus");
  put(path[BIN], &f, 1024 + 17);
  refused(path[BIN], 50257, "has 1041 bytes; its header tells of 9 tokens, which make 1042 (truncated?)");
  f.header[1] = 2;
  put(path[BIN], &f, 1024 + 18);
  refused(path[BIN], 50257, "begins with 20240520 2; a token file of llm.c with");
  f.header[1] = 1;
  f.header[2] = -1;
  put(path[BIN], &f, 1024 + 18);
  refused(path[BIN], 50257, "its header tells of -1 tokens");
  f.header[2] = 1;
  put(path[BIN], &f, 1024 + 2);
  refused(path[BIN], 50257, "no document of two tokens in its 1");
  put(path[BIN], "short", 5);
  refused(path[BIN], 50257, "begins with 0 0");

  struct { int32_t header[256]; uint32_t tokens[3]; } wide = {{20240801, 7, 3}, {128000, 70000, 3}};
  put(path[BIN], &wide, 1024 + 12);
  c.vocab = 128256;
  if (CHECK_OK(corpus_open(&c, &x))) {
    CHECK_OK(corpus_tokens(x, 0, 0, 3, got));
    CHECK(corpus_documents(x) == 1 && got[1] == 70000);
    corpus_close(x);
  }
  finish();
  refused("/etc/hostname", 50257, "corpus: '/etc/hostname' is none; valid: ");
}

static void opening_survives_any_failed_allocation(void)
{
  struct { int32_t header[256]; uint16_t tokens[3]; } f = {{20240520, 1, 3}, {1, 2, 3}};
  const uint16_t tokens[10] = {0};
  const struct index i = make_index(8, 2, 4, lengths, 4, begins);
  start();
  for (int kind = 0; kind < 3; kind++) {
    if (kind == 0) put(path[JSONL], "{\"text\": \"ok\"}", 14);
    if (kind == 1) put(path[BIN], &f, 1024 + 6);
    if (kind == 2) put(path[BIN], tokens, sizeof tokens), put(path[IDX], i.bytes, i.n);
    const struct run_config c = config(path[kind == 0 ? JSONL : BIN], 512);
    struct corpus *x = NULL;
    long n = 0;
    do {
      check_fail_allocation(++n);
      const enum err e = corpus_open(&c, &x);
      if (check_allocation_failed()) CHECK(e == ERR_MEMORY && x == NULL);
      else CHECK_OK(e);
    } while (x == NULL && n < 20);
    check_fail_allocation(0);
    CHECK(n >= 3);
    corpus_close(x);
  }
  finish();
}

int main(void)
{
  static const struct test tests[] = {
    TEST(a_line_is_the_bytes_of_its_text),
    TEST(broken_lines_are_named),
    TEST(an_index_says_where_documents_are),
    TEST(every_type_of_token_is_read),
    TEST(an_index_that_does_not_fit_is_named),
    TEST(tokens_of_llmc_are_cut_where_a_text_begins),
    TEST(opening_survives_any_failed_allocation),
  };
  return test_main("corpus_formats", tests, sizeof tests / sizeof *tests);
}
