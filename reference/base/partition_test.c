/* partition_test.c - layers on virtual stages. */
#include "base/partition.h"
#include "testing/check.h"

#include <string.h>

/* C = 8 and T = 2 make a layer 24 * 64 + 64 = 1600 FLOPs a token, the head 16 V. */
static struct run_config run_of(int64_t layers, int64_t pp, int64_t chunks, const char *stages)
{
  struct run_config c;
  config_default(&c);
  c.layers = layers;
  c.hidden = 8;
  c.sequence = 2;
  c.vocab = 10;
  c.pp = pp;
  c.chunks = chunks;
  strcpy(c.stages, stages);
  return c;
}

static bool has(const struct run_config *c, const int64_t *layers)
{
  struct partition p;
  if (!CHECK_OK(partition_make(c, &p)) || !CHECK(p.stages == c->pp * c->chunks) || !CHECK(p.first[0] == 0)) return false;
  for (int k = 0; k < p.stages; k++)
    if (p.first[k + 1] - p.first[k] != layers[k]) return false;
  return p.first[p.stages] == c->layers;
}
#define HAS(c, ...) CHECK(has(&(c), (const int64_t[]){__VA_ARGS__}))

static void even_gives_the_first_one_more(void)
{
  struct run_config c = run_of(8, 3, 1, "even");
  HAS(c, 3, 3, 2);
  c = run_of(8, 2, 2, "even");
  HAS(c, 2, 2, 2, 2);
  c = run_of(7, 2, 2, "even");
  HAS(c, 2, 2, 2, 1);
  c = run_of(5, 1, 1, "even");
  HAS(c, 5);
  c = run_of(4, 4, 1, "even");
  HAS(c, 1, 1, 1, 1);
}

static void a_list_is_taken_as_it_is(void)
{
  struct run_config c = run_of(8, 3, 1, "1,5,2");
  HAS(c, 1, 5, 2);
  c = run_of(8, 2, 2, "1,1,1,5");
  HAS(c, 1, 1, 1, 5);
  c = run_of(8, 1, 1, "8");
  HAS(c, 8);
}

static void auto_balances_with_the_head(void)
{
  struct run_config c = run_of(8, 4, 1, "auto"); /* a head of a tenth of a layer */
  HAS(c, 2, 2, 2, 2);
  c = run_of(9, 4, 1, "auto"); /* someone has three: not the stage with the head */
  HAS(c, 3, 2, 2, 2);
  c.vocab = 200; /* a head of two layers: 3 * 2 + 3 are 9, and 1 + 2 is 3 */
  c.layers = 10;
  HAS(c, 3, 3, 3, 1);
  c.layers = 11; /* 4 for the first or 2 + 2 for the last: equal, so the last takes more */
  HAS(c, 3, 3, 3, 2);
  c.vocab = 100000; /* a head that costs more than all */
  HAS(c, 4, 3, 3, 1);
  c = run_of(6, 1, 1, "auto");
  HAS(c, 6);
  c = run_of(4, 2, 1, "auto"); /* 2 + head against 3 layers: the last has two if the head costs no more than one */
  c.sequence = 100; /* 8 * (24 * 8 + 4 * 100) is 16 * 296 */
  c.vocab = 296;
  HAS(c, 2, 2);
  c.vocab = 297;
  HAS(c, 3, 1);
}

/* The cheapest among all ways to cut, by trying them. */
static int64_t cheapest(const struct run_config *c, int k, int64_t left)
{
  const int64_t layer = 24 * c->hidden * c->hidden + 4 * c->sequence * c->hidden, head = 2 * c->hidden * c->vocab;
  if (k == c->pp - 1) return left * layer + head;
  int64_t best = INT64_MAX;
  for (int64_t n = 1; n <= left - (c->pp - 1 - k); n++) {
    const int64_t rest = cheapest(c, k + 1, left - n), worst = n * layer > rest ? n * layer : rest;
    if (worst < best) best = worst;
  }
  return best;
}

static void auto_is_the_best_of_all_cuts(void)
{
  for (int64_t layers = 1; layers <= 12; layers++)
    for (int64_t pp = 1; pp <= layers && pp <= 5; pp++)
      for (int64_t vocab = 1; vocab < 700; vocab += 83) {
        struct run_config c = run_of(layers, pp, 1, "auto");
        c.vocab = vocab;
        struct partition p;
        if (!CHECK_OK(partition_make(&c, &p))) return;
        int64_t worst = 0;
        for (int k = 0; k < p.stages; k++) {
          const int64_t n = p.first[k + 1] - p.first[k], cost = n * 1600 + (k == p.stages - 1 ? 16 * vocab : 0);
          if (!CHECK(n >= 1)) return;
          if (cost > worst) worst = cost;
        }
        if (!CHECK(worst == cheapest(&c, 0, layers))) return;
      }
}

static void refused(int64_t layers, int64_t pp, int64_t chunks, const char *stages, const char *says)
{
  const struct run_config c = run_of(layers, pp, chunks, stages);
  struct partition p = {.stages = -1};
  CHECK_ERR(partition_make(&c, &p), ERR_CONFIG);
  CHECK_TEXT_HAS(err_text(), says);
  CHECK(p.stages == -1);
}

static void wrong_lists_are_refused(void)
{
  refused(8, 3, 1, "3, 3, 2", "no list at ' 3, 2'");
  refused(8, 3, 1, "+3,3,2", "no list at '+3,3,2'");
  refused(8, 3, 1, "3,3,", "no list at ''");
  refused(8, 3, 1, "3,3", "stages: 3,3 are 2; valid: pp * chunks = 3 * 1 = 3 of them");
  refused(8, 3, 1, "2,2,2,2", "are 4; valid");
  refused(8, 3, 1, "3,3,3", "9 layers together; valid: 8");
  refused(8, 3, 1, "4,4,0", "a stage of 0 layers; valid: 1 or more");
  refused(8, 3, 1, "9,-3,2", "9 layers; the model has 8");
  refused(8, 3, 1, "3,3,", "at ''; valid: even, auto, or 3 numbers");
  refused(8, 3, 1, "3;3;2", "is no list at '3;3;2'");
  refused(8, 3, 1, "evenly", "is no list at 'evenly'");
  refused(8, 3, 1, "99999999999999999999,1,1", "is no list");
  refused(8, 1, 1, "", "is no list");
}

static void more_stages_than_layers_are_refused(void)
{
  refused(8, 9, 1, "even", "pp: 9 ranks of 1 chunks are 9 stages; valid: at most 8");
  refused(8, 3, 3, "auto", "9 stages; valid: at most 8");
  refused(1024, 513, 1, "even", "valid: at most 512");
  const struct run_config most = run_of(1024, 512, 1, "even");
  struct partition p;
  CHECK_OK(partition_make(&most, &p));
}

int main(void)
{
  static const struct test tests[] = {
    TEST(even_gives_the_first_one_more),
    TEST(a_list_is_taken_as_it_is),
    TEST(auto_balances_with_the_head),
    TEST(auto_is_the_best_of_all_cuts),
    TEST(wrong_lists_are_refused),
    TEST(more_stages_than_layers_are_refused),
  };
  return test_main("partition", tests, sizeof tests / sizeof *tests);
}
