/* corpus_test.c - documents: lengths, tokens, directories, and what is refused. */
#include "data/data.h"
#include "data/lengths.h"
#include "testing/check.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static struct run_config config(const char *corpus)
{
  struct run_config c = {.documents = 4000, .positions = 512, .vocab = 257, .seed = 5, .sequence = 512};
  snprintf(c.corpus, sizeof c.corpus, "%s", corpus);
  return c;
}

static void histogram_is_the_published_one(void)
{
  int64_t sequences = 0, tokens = 0;
  for (int i = 0; i < LENGTHS_WIKIPEDIA; i++) {
    sequences += lengths_wikipedia[i];
    tokens += lengths_wikipedia[i] * (i + 1);
  }
  CHECK(sequences == 16279552);
  CHECK_NEAR(1.0 - (double)tokens / (512.0 * (double)sequences), 0.50033, 1e-5); /* published padding fraction */
}

static void lengths_follow_the_histogram(void)
{
  const struct run_config c = config("synthetic");
  struct corpus *x;
  if (!CHECK_OK(corpus_open(&c, &x))) return;
  int64_t tokens = 0, full = 0;
  for (int64_t d = 0; d < c.documents; d++) {
    tokens += corpus_length(x, d);
    full += corpus_length(x, d) == 512;
  }
  /* mean 255.83, deviation 182.69; share at 512 0.23435: four standard errors of 4000 draws */
  CHECK_NEAR((double)tokens / 4000.0, 255.83, 4 * 182.69 / 63.2);
  CHECK_NEAR((double)full / 4000.0, 0.23435, 4 * 0.4236 / 63.2);
  corpus_close(x);
}

static void lengths_scale_to_the_model(void)
{
  struct run_config c = config("synthetic");
  c.positions = 24;
  struct corpus *x;
  if (!CHECK_OK(corpus_open(&c, &x))) return;
  int64_t shortest = 1000, longest = 0;
  for (int64_t d = 0; d < c.documents; d++) {
    const int64_t n = corpus_length(x, d);
    shortest = n < shortest ? n : shortest;
    longest = n > longest ? n : longest;
  }
  CHECK(shortest == 2);
  CHECK(longest == 24);
  corpus_close(x);
}

/* Of 4000 documents: the sum of lengths, and how many have each. */
static int64_t tally(int64_t lengths, int64_t length, int64_t positions, int64_t *count, int64_t most)
{
  struct run_config c = config("synthetic");
  struct corpus *x;
  int64_t sum = 0;
  c.lengths = lengths;
  c.length = length;
  c.positions = positions;
  memset(count, 0, (size_t)(most + 1) * sizeof *count);
  if (!CHECK_OK(corpus_open(&c, &x))) return 0;
  for (int64_t d = 0; d < c.documents; d++) {
    const int64_t n = corpus_length(x, d);
    CHECK(n >= 2);
    count[n < most ? n : most]++;
    sum += n;
  }
  corpus_close(x);
  return sum;
}

static void each_distribution_has_its_lengths(void)
{
  int64_t count[2049];
  /* SQuAD: mean 172.036, deviation 63.92, 1.189 % at 384 */
  CHECK_NEAR((double)tally(LENGTHS_OF_SQUAD, 0, 384, count, 2048) / 4000, 172.036, 4 * 63.92 / 63.2);
  CHECK_NEAR((double)count[384] / 4000, 0.01189, 4 * 0.1084 / 63.2);
  CHECK(tally(LENGTHS_FIXED, 0, 24, count, 2048) == 4000 * 24 && count[24] == 4000);
  CHECK(tally(LENGTHS_FIXED, 100, 24, count, 2048) == 4000 * 100); /* longer than the model's: to be split */
  tally(LENGTHS_BIMODAL, 0, 256, count, 2048);
  CHECK(count[32] + count[256] == 4000);
  CHECK_NEAR((double)count[256] / 4000, 0.125, 4 * 0.331 / 63.2);
  tally(LENGTHS_LOGNORMAL, 0, 400, count, 2048);
  int64_t below = 0, longer = 0;
  for (int n = 2; n < 2048; n++) below += n <= 100 ? count[n] : 0;
  for (int n = 401; n <= 2048; n++) longer += count[n];
  CHECK_NEAR((double)below / 4000, 0.5, 4 * 0.5 / 63.2);            /* the median is a quarter of positions */
  CHECK_NEAR((double)longer / 4000, 0.0828, 4 * 0.2756 / 63.2);     /* a normal number above log 4 */
  tally(LENGTHS_ADVERSARIAL, 0, 64, count, 2048);
  int64_t fits = 0, distinct = 0;
  for (int n = 0; n <= 2048; n++) {
    fits += n <= 32 || n > 64 ? count[n] : 0;
    distinct += count[n] > 0;
  }
  CHECK(fits == 0 && distinct == 32);
}

static void sorted_lengths_are_the_histograms_in_order(void)
{
  struct run_config c = config("synthetic");
  struct corpus *x;
  c.lengths = LENGTHS_SORTED;
  if (!CHECK_OK(corpus_open(&c, &x))) return;
  int64_t tokens = 0, wrong = 0, full = 0;
  for (int64_t d = 0; d < c.documents; d++) {
    const int64_t n = corpus_length(x, d);
    tokens += n;
    full += n == 512;
    wrong += d > 0 && n < corpus_length(x, d - 1);
  }
  CHECK(wrong == 0);
  CHECK_NEAR((double)tokens / 4000, 255.83, 0.2); /* quantiles, no draws: off by rounding alone */
  CHECK(full == 937);                             /* 23.435 % of 4000 */
  corpus_close(x);
}

static void tokens_are_in_the_vocabulary_and_predictable(void)
{
  const struct run_config c = config("synthetic");
  struct corpus *x;
  if (!CHECK_OK(corpus_open(&c, &x))) return;
  int32_t t[512];
  int64_t follows = 0, pairs = 0, outside = 0, small = 0, seen = 0;
  for (int64_t d = 0; d < 50; d++) {
    const int64_t n = corpus_length(x, d);
    CHECK_OK(corpus_tokens(x, d, 0, n, t));
    for (int64_t i = 0; i < n; i++, seen++) {
      outside += t[i] < 0 || t[i] >= c.vocab;
      small += t[i] < c.vocab / 8;
      if (i > 0) follows += t[i] == (t[i - 1] * 5 + 7) % c.vocab;
      pairs += i > 0;
    }
  }
  CHECK(outside == 0);
  CHECK_NEAR((double)follows / (double)pairs, 0.75, 0.03);
  CHECK((double)small / (double)seen > 0.2); /* uniform would be 0.125 */
  corpus_close(x);
}

static void a_part_of_a_document_equals_the_whole(void)
{
  const struct run_config c = config("synthetic");
  struct corpus *x;
  if (!CHECK_OK(corpus_open(&c, &x))) return;
  int64_t d = 0;
  while (corpus_length(x, d) < 100) d++;
  int32_t whole[512], part[40];
  CHECK_OK(corpus_tokens(x, d, 0, 100, whole));
  CHECK_OK(corpus_tokens(x, d, 33, 40, part));
  CHECK_SAME_BITS(part, whole + 33, sizeof part);
  CHECK_ERR(corpus_tokens(x, d, corpus_length(x, d), 1, part), ERR_ARG);
  corpus_close(x);
}

/* --- directories -------------------------------------------------------------- */

static char directory[64];

static void make(const char *name, const char *text)
{
  char path[128];
  snprintf(path, sizeof path, "%s/%s", directory, name);
  FILE *f = fopen(path, "w");
  if (!CHECK(f != NULL)) return;
  fputs(text, f);
  fclose(f);
}

static void drop(const char *name)
{
  char path[128];
  snprintf(path, sizeof path, "%s/%s", directory, name);
  CHECK(remove(path) == 0);
}

static void make_directory(void)
{
  strcpy(directory, "/tmp/corpus_test.XXXXXX");
  char path[128];
  CHECK(mkdtemp(directory) != NULL);
  snprintf(path, sizeof path, "%s/b", directory);
  CHECK(mkdir(path, 0755) == 0);
}

static void drop_directory(void)
{
  drop("b");
  CHECK(rmdir(directory) == 0);
}

static void a_directory_is_its_plain_files_in_order_of_path(void)
{
  make_directory();
  make("c", "third");
  make("b/x", "second \xff");
  make("a", "first");
  make("empty", "");
  make("one", "x"); /* a document of one token has no target */
  make("text.gz", "compressed");
  char path[128];
  snprintf(path, sizeof path, "%s/link", directory);
  CHECK(symlink("a", path) == 0);

  const struct run_config c = config(directory);
  struct corpus *x;
  if (CHECK_OK(corpus_open(&c, &x))) {
    int32_t t[8];
    CHECK(corpus_documents(x) == 3 && corpus_left_out(x) == 3);
    CHECK(corpus_length(x, 0) == 5 && corpus_length(x, 1) == 8 && corpus_length(x, 2) == 5);
    CHECK_OK(corpus_tokens(x, 1, 0, 8, t));
    CHECK(t[0] == 's' && t[7] == 0xff);
    make("c", "3");
    CHECK_ERR(corpus_tokens(x, 2, 0, 5, t), ERR_IO);
    CHECK_TEXT_HAS(err_text(), "5 bytes when listed, now 1");
    corpus_close(x);
  }
  const char *const all[] = {"a", "b/x", "c", "empty", "one", "text.gz", "link"};
  for (size_t i = 0; i < sizeof all / sizeof *all; i++) drop(all[i]);
  drop_directory();
}

static void what_cannot_be_a_corpus_is_refused(void)
{
  struct corpus *x;
  struct run_config c = config("/nowhere/at/all");
  CHECK_ERR(corpus_open(&c, &x), ERR_CONFIG);
  CHECK(x == NULL);
  CHECK_TEXT_HAS(err_text(), "corpus: '/nowhere/at/all'");

  make_directory();
  make("empty", "");
  c = config(directory);
  CHECK_ERR(corpus_open(&c, &x), ERR_CONFIG);
  CHECK_TEXT_HAS(err_text(), "no readable, uncompressed, non-empty file");
  c.vocab = 131;
  CHECK_ERR(corpus_open(&c, &x), ERR_CONFIG);
  CHECK_TEXT_HAS(err_text(), "vocab: 131");
  drop("empty");
  drop_directory();

  c = config("synthetic");
  c.documents = 0;
  CHECK_ERR(corpus_open(&c, &x), ERR_CONFIG);
  CHECK_TEXT_HAS(err_text(), "documents: 0");
}

static void opening_survives_any_failed_allocation(void)
{
  make_directory();
  make("a", "first");
  make("b/x", "second");
  const struct run_config c = config(directory);
  struct corpus *x = NULL;
  long n = 0;
  do {
    check_fail_allocation(++n);
    const enum err e = corpus_open(&c, &x);
    if (!check_allocation_failed()) CHECK_OK(e);
    else if (e) CHECK(e == ERR_MEMORY || e == ERR_CONFIG); /* opendir allocates too */
    if (e) CHECK(x == NULL);
  } while (x == NULL && n < 100);
  check_fail_allocation(0);
  CHECK(n > 3);
  corpus_close(x);
  drop("a");
  drop("b/x");
  drop_directory();
}

int main(void)
{
  static const struct test tests[] = {
    TEST(histogram_is_the_published_one),
    TEST(lengths_follow_the_histogram),
    TEST(lengths_scale_to_the_model),
    TEST(each_distribution_has_its_lengths),
    TEST(sorted_lengths_are_the_histograms_in_order),
    TEST(tokens_are_in_the_vocabulary_and_predictable),
    TEST(a_part_of_a_document_equals_the_whole),
    TEST(a_directory_is_its_plain_files_in_order_of_path),
    TEST(what_cannot_be_a_corpus_is_refused),
    TEST(opening_survives_any_failed_allocation),
  };
  return test_main("corpus", tests, sizeof tests / sizeof *tests);
}
