/* data_plan_policies_test.c - bucketed, packed and balanced batches, tails, and what is equal under every policy. */
#include "base/fault.h"
#include "data/data_fixture.h"
#include "testing/check.h"

#include <stdlib.h>
#include <string.h>

enum { T = 24, G = 12, B = 2, M = G / B, KINDS = 6 };

/* Lognormal: one in twelve is longer than a sequence. */
static struct run_config config(int kind)
{
  static const struct { int64_t policy, packing; } kinds[KINDS] = {
    {POLICY_CHUNKED, 0}, {POLICY_BUCKETED, 0}, {POLICY_BALANCED, 0},
    {POLICY_PACKED, PACKING_SHORTEST_PACK_FIRST}, {POLICY_PACKED, PACKING_BEST_FIT}, {POLICY_PACKED, PACKING_FIRST_FIT}};
  struct run_config c;
  config_default(&c);
  c.documents = 203;
  c.lengths = LENGTHS_LOGNORMAL;
  c.sequence = c.positions = T;
  c.vocab = 131;
  c.global_batch = G;
  c.micro_batch = B;
  c.policy = kinds[kind].policy;
  c.packing = kinds[kind].packing;
  c.tail = TAIL_PAD;
  c.deal = 3;
  c.cost_c = 0.1;
  c.seed = 5;
  return c;
}

static uint64_t mix(uint64_t x)
{
  x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
  return (x ^ x >> 27) * 0x94d049bb133111ebu;
}

/* What a token with a target contributes to the loss depends on its piece up to it; a sum over all of them in any order. */
struct content {
  uint64_t sum;
  int64_t tokens, valid, rows;
  uint64_t first; /* hash of the first batch */
};

static void add_row(struct fixture *f, int64_t b, struct content *out)
{
  const struct batch *x = &f->batch;
  uint64_t prefix = 0;
  for (int64_t i = b * T; i < (b + 1) * T; i++) {
    if (x->documents[i] < 0) continue;
    if (x->positions[i] == 0) prefix = mix((uint64_t)x->documents[i] + 1);
    prefix = mix(prefix ^ mix((uint64_t)x->tokens[i] << 20 | (uint64_t)x->positions[i]));
    out->sum += mix(prefix ^ (uint64_t)x->targets[i]);
    out->tokens++;
    out->valid += x->targets[i] >= 0;
  }
  out->rows += x->documents[b * T] >= 0;
}

static struct content steps(struct fixture *f, int64_t first, int64_t n)
{
  struct content c = {0};
  for (int64_t step = first; step < first + n; step++)
    for (int64_t m = 0; m < M; m++) {
      CHECK_OK(data_plan_batch(f->plan, step, m, &f->batch));
      if (step == first && m == 0) c.first = batch_hash(&f->batch);
      for (int64_t b = 0; b < B; b++) add_row(f, b, &c);
    }
  return c;
}

static int64_t epoch_steps(const struct fixture *f) { return (data_plan_epoch(f->plan) + G - 1) / G; }

static void every_policy_has_the_same_in_an_epoch_and_each_epoch_its_order(void)
{
  struct content want = {0};
  for (int kind = 0; kind < KINDS; kind++) {
    struct fixture f;
    struct data_facts facts;
    if (!setup(&f, config(kind))) return;
    const int64_t n = epoch_steps(&f);
    const struct content one = steps(&f, 0, n), two = steps(&f, n, n);
    if (kind == 0) want = one;
    CHECK(one.sum == want.sum && one.valid == want.valid && one.tokens == want.tokens);
    CHECK(two.sum == one.sum && two.first != one.first);
    CHECK(one.rows == data_plan_epoch(f.plan));
    int64_t targets = 0; /* of the training documents, all */
    for (int64_t d = 0; d < 203; d++) targets += d % 16 == 15 ? 0 : corpus_length(f.corpus, d) - 1;
    CHECK(one.valid == targets);
    data_plan_facts(f.plan, &facts);
    CHECK(facts.documents == 191 && facts.tokens - facts.cut_tokens == one.tokens && facts.longer > 5 && facts.longest > T);
    CHECK_NEAR(facts.filled, (double)one.tokens / (double)(one.rows * T), 1e-12);
    teardown(&f);
  }
}

static void without_shuffle_the_order_is_the_corpus_in_every_epoch(void)
{
  for (int kind = 0; kind < KINDS; kind++) {
    struct run_config c = config(kind);
    c.shuffle = false;
    struct fixture f;
    if (!setup(&f, c)) return;
    const int64_t n = epoch_steps(&f);
    CHECK(steps(&f, 0, 1).sum == steps(&f, n, 1).sum && steps(&f, 0, 1).first == steps(&f, n, 1).first);
    if (kind == 0) {
      CHECK_OK(data_plan_batch(f.plan, 0, 0, &f.batch));
      CHECK(f.batch.documents[0] == 0 && (f.batch.documents[T] == 1 || corpus_length(f.corpus, 0) > T + 1));
    }
    teardown(&f);
  }
}

/* Asked in any order, and by a plan of another layout. */
static void a_batch_is_a_function_of_its_step_and_number(void)
{
  for (int kind = 0; kind < KINDS; kind++) {
    struct fixture f, g;
    struct run_config c = config(kind);
    if (!setup(&f, c)) return;
    c.dp = 3;
    c.tp = 2;
    c.pp = 4;
    c.reduce = REDUCE_ORDERED;
    if (!setup(&g, c)) return;
    uint64_t forward[5][M], evaluation[M];
    for (int64_t step = 0; step < 5; step++)
      for (int64_t m = 0; m < M; m++) {
        CHECK_OK(data_plan_batch(f.plan, step, m, &f.batch));
        forward[step][m] = batch_hash(&f.batch);
        CHECK_OK(data_plan_batch(f.plan, -1, m, &f.batch));
        evaluation[m] = batch_hash(&f.batch);
      }
    for (int64_t m = M - 1; m >= 0; m--)
      for (int64_t step = 4; step >= 0; step--) {
        CHECK_OK(data_plan_batch(g.plan, step, m, &g.batch));
        CHECK(batch_hash(&g.batch) == forward[step][m]);
        CHECK_OK(data_plan_batch(g.plan, -1, m, &g.batch));
        CHECK(batch_hash(&g.batch) == evaluation[m]);
      }
    teardown(&f);
    teardown(&g);
  }
}

static void packed_documents_stand_side_by_side_up_to_the_limit(void)
{
  for (int kind = 3; kind < KINDS; kind++) {
    struct run_config c = config(kind);
    c.pack_limit = 3;
    struct fixture f;
    if (!setup(&f, c)) return;
    int64_t most = 0, wrong = 0;
    for (int64_t step = 0; step < epoch_steps(&f); step++)
      for (int64_t m = 0; m < M; m++) {
        CHECK_OK(data_plan_batch(f.plan, step, m, &f.batch));
        for (int64_t b = 0; b < B; b++) {
          int64_t n = 0;
          for (int64_t t = 0; t < T; t++) {
            const int32_t *d = f.batch.documents + b * T + t, *at = f.batch.positions + b * T + t;
            const bool begins = d[0] >= 0 && (t == 0 || d[0] != d[-1]);
            n += begins;
            wrong += d[0] >= 0 && at[0] != (begins ? 0 : at[-1] + 1);
            wrong += t > 0 && d[0] >= 0 && d[-1] < 0; /* nothing after padding */
          }
          most = n > most ? n : most;
        }
      }
    CHECK(wrong == 0 && most == 3);
    struct data_facts facts;
    data_plan_facts(f.plan, &facts);
    CHECK(facts.most == 3);
    teardown(&f);
  }
}

static int64_t row_length(const struct batch *x, int64_t b)
{
  int64_t n = 0;
  for (int64_t t = 0; t < T; t++) n += x->documents[b * T + t] >= 0;
  return n;
}

static void a_bucketed_batch_has_a_range_of_lengths_of_its_own(void)
{
  struct fixture f;
  if (!setup(&f, config(1))) return;
  const int64_t n = epoch_steps(&f);
  int64_t low[40], high[40], ascending = 0;
  for (int64_t step = 0; step < n; step++) {
    low[step] = T;
    high[step] = 0;
    for (int64_t m = 0; m < M; m++) {
      CHECK_OK(data_plan_batch(f.plan, n + step, m, &f.batch));
      for (int64_t b = 0; b < B; b++) {
        const int64_t l = row_length(&f.batch, b);
        if (l > 0 && l < low[step]) low[step] = l;
        if (l > high[step]) high[step] = l;
      }
    }
    ascending += step > 0 && low[step] >= low[step - 1];
  }
  int64_t overlaps = 0;
  for (int64_t i = 0; i < n; i++)
    for (int64_t j = 0; j < n; j++) overlaps += i != j && low[i] < low[j] && high[i] > low[j];
  CHECK(n > 10 && overlaps == 0);
  CHECK(ascending < n - 1); /* batches are shuffled */
  teardown(&f);
}

/* The share of a step's cost that the rank with most has, over the mean; ranks: 3 of consecutive micro-batches. */
static double imbalance(struct fixture *f, int64_t step)
{
  double cost[3] = {0}, most = 0, sum = 0;
  for (int64_t m = 0; m < M; m++) {
    CHECK_OK(data_plan_batch(f->plan, step, m, &f->batch));
    for (int64_t b = 0; b < B; b++) {
      const double n = (double)row_length(&f->batch, b);
      cost[m / (M / 3)] += n + 0.1 * n * n;
    }
  }
  for (int r = 0; r < 3; r++) {
    most = cost[r] > most ? cost[r] : most;
    sum += cost[r];
  }
  return most / (sum / 3);
}

static void a_balanced_step_has_the_same_sequences_and_less_on_the_worst_rank(void)
{
  struct fixture in_order, balanced;
  struct run_config c = config(0);
  c.tail = TAIL_WRAP;
  if (!setup(&in_order, c)) return;
  c.policy = POLICY_BALANCED;
  if (!setup(&balanced, c)) return;
  double sums[2] = {0, 0};
  for (int64_t step = 0; step < 40; step++) {
    CHECK(steps(&in_order, step, 1).sum == steps(&balanced, step, 1).sum);
    sums[0] += imbalance(&in_order, step) - 1;
    sums[1] += imbalance(&balanced, step) - 1;
  }
  CHECK(sums[1] < 0.5 * sums[0]);
  teardown(&in_order);
  teardown(&balanced);
}

/* --- tails ---------------------------------------------------------------------------------- */

/* Rows with tokens of each micro-batch of a step; every sample number once, those of empty rows too. */
static int64_t rows(struct fixture *f, int64_t step, int64_t *of_micro)
{
  bool seen[G] = {false};
  int64_t sum = 0;
  for (int64_t m = 0; m < M; m++) {
    CHECK_OK(data_plan_batch(f->plan, step, m, &f->batch));
    of_micro[m] = 0;
    for (int64_t b = 0; b < B; b++) {
      const int64_t sample = f->batch.samples[b] - step * G;
      if (!CHECK(sample >= 0 && sample < G && !seen[sample])) return -1;
      seen[sample] = true;
      of_micro[m] += row_length(&f->batch, b) > 0;
    }
    sum += of_micro[m];
  }
  return sum;
}

static struct run_config fixed(int64_t tail)
{
  struct run_config c = config(0);
  c.documents = 48; /* 45 of training */
  c.lengths = LENGTHS_FIXED;
  c.tail = tail;
  return c;
}

static void tails_are_as_stated(void)
{
  int64_t n[M];
  struct fixture f;
  if (!setup(&f, fixed(TAIL_PAD))) return;
  CHECK(data_plan_epoch(f.plan) == 45 && rows(&f, 2, n) == G && rows(&f, 3, n) == 9 && rows(&f, 4, n) == G);
  rows(&f, 3, n);
  CHECK(n[0] == 2 && n[3] == 2 && n[4] == 1 && n[5] == 0);
  CHECK_OK(data_plan_batch(f.plan, 3, 5, &f.batch));
  CHECK(f.batch.n_tokens == 0 && f.batch.n_valid == 0);
  teardown(&f);

  if (!setup(&f, fixed(TAIL_RESHAPE))) return;
  CHECK(rows(&f, 3, n) == 9 && n[0] == 2 && n[1] == 2 && n[2] == 2 && n[3] == 1 && n[4] == 1 && n[5] == 1);
  CHECK(rows(&f, 0, n) == G);
  teardown(&f);

  if (!setup(&f, fixed(TAIL_DROP))) return;
  struct data_facts facts;
  data_plan_facts(f.plan, &facts);
  CHECK(facts.dropped == 9 && facts.sequences == 45);
  for (int64_t step = 0; step < 8; step++) CHECK(rows(&f, step, n) == G);
  CHECK(steps(&f, 0, 3).sum != steps(&f, 3, 3).sum); /* others are left out */
  teardown(&f);

  if (!setup(&f, fixed(TAIL_WRAP))) return;
  for (int64_t step = 0; step < 8; step++) CHECK(rows(&f, step, n) == G);
  const struct content four = steps(&f, 0, 15); /* 180 = 4 * 45 */
  CHECK(four.rows == 180 && four.sum == steps(&f, 15, 15).sum);
  teardown(&f);
}

static void a_short_bucketed_batch_is_last_and_differs_from_epoch_to_epoch(void)
{
  struct run_config c = config(1);
  c.documents = 48;
  c.lengths = LENGTHS_SORTED;
  c.tail = TAIL_RESHAPE;
  struct fixture f;
  int64_t n[M], first[4];
  if (!setup(&f, c)) return;
  for (int64_t epoch = 0; epoch < 4; epoch++) {
    CHECK(rows(&f, 4 * epoch + 3, n) == 9 && rows(&f, 4 * epoch, n) == G);
    CHECK_OK(data_plan_batch(f.plan, 4 * epoch + 3, 0, &f.batch));
    first[epoch] = row_length(&f.batch, 0);
  }
  CHECK(first[0] != first[1] || first[1] != first[2] || first[2] != first[3]);
  teardown(&f);
}

static void a_corpus_smaller_than_a_step(void)
{
  for (int64_t tail = TAIL_WRAP; tail <= TAIL_RESHAPE; tail++) {
    struct run_config c = fixed(tail);
    struct fixture f;
    int64_t n[M];
    c.documents = 5;
    if (tail == TAIL_DROP) {
      struct corpus *corpus;
      struct data_plan *plan;
      if (!CHECK_OK(corpus_open(&c, &corpus))) return;
      CHECK_ERR(data_plan_create(&c, corpus, &plan), ERR_CONFIG);
      CHECK_TEXT_HAS(err_text(), "global_batch: 12 sequences, but the corpus makes 5 in an epoch");
      CHECK(plan == NULL);
      corpus_close(corpus);
      continue;
    }
    if (!setup(&f, c)) return;
    CHECK(rows(&f, 0, n) == (tail == TAIL_WRAP ? G : 5) && rows(&f, 1, n) == (tail == TAIL_WRAP ? G : 5));
    teardown(&f);
  }
}

/* An odd set of three: evaluated once in a batch of twelve, whatever becomes of training's tail. */
static void evaluation_leaves_none_out(void)
{
  for (int kind = 0; kind < KINDS; kind++) {
    struct run_config c = config(kind);
    c.documents = 48;
    c.lengths = LENGTHS_FIXED;
    c.tail = TAIL_DROP;
    struct fixture f;
    if (!setup(&f, c)) return;
    int64_t seen = 0;
    for (int64_t m = 0; m < M; m++) {
      CHECK_OK(data_plan_batch(f.plan, -1, m, &f.batch));
      for (int64_t b = 0; b < B; b++) {
        if (row_length(&f.batch, b) == 0) continue;
        CHECK(f.batch.documents[b * T] % 16 == 15);
        seen++;
      }
    }
    CHECK(seen == 3);
    teardown(&f);
  }
}

static void planted_faults_change_the_plan_as_they_say(void)
{
  struct run_config c = config(0);
  c.micro_batch = c.global_batch = 1;
  c.tail = TAIL_WRAP;
  struct fixture f;
  if (!setup(&f, c)) return;
  const int64_t E = data_plan_epoch(f.plan);
  uint64_t right[3];
  for (int i = 0; i < 3; i++) {
    CHECK_OK(data_plan_batch(f.plan, i == 2 ? E : i == 1 ? E - 1 : 0, 0, &f.batch));
    right[i] = batch_hash(&f.batch);
  }
  CHECK_OK(fault_plant("data-same-order-every-epoch", 1, 0));
  CHECK_OK(data_plan_batch(f.plan, E, 0, &f.batch));
  CHECK(batch_hash(&f.batch) == right[0] && right[0] != right[2]);
  CHECK_OK(fault_plant("data-position-off-by-shard", 1, 0));
  CHECK_OK(data_plan_batch(f.plan, E, 0, &f.batch));
  CHECK(batch_hash(&f.batch) == right[1]);
  CHECK_OK(data_plan_batch(f.plan, E + 1, 0, &f.batch));
  CHECK(batch_hash(&f.batch) == right[2]);
  CHECK_OK(fault_plant("", 1, 0));
  teardown(&f);
}

/* Each document's tokens squared, in each sequence by itself. */
static void pairs_are_of_one_document(void)
{
  static const int32_t documents[2][6] = {{4, 4, 4, 7, 7, -1}, {7, 7, 4, -1, -1, -1}};
  struct batch b;
  if (!CHECK_OK(batch_create(2, 6, &b))) return;
  for (int i = 0; i < 12; i++) {
    b.documents[i] = documents[i / 6][i % 6];
    b.targets[i] = -1;
  }
  batch_count(&b);
  CHECK(b.n_tokens == 8 && b.n_valid == 0 && b.n_pairs == 9 + 4 + 4 + 1);
  batch_destroy(&b);
}

/* The longest sequence up to a multiple of 16, what tensor ranks can share, and never beyond the sequence. */
static void a_batch_is_as_wide_as_its_longest_sequence(void)
{
  struct batch b;
  if (!CHECK_OK(batch_create(2, 50, &b))) return;
  for (int i = 0; i < 100; i++) b.documents[i] = -1;
  CHECK(batch_width(&b, 1) == 16); /* nothing but padding */
  b.documents[15] = 3;
  CHECK(batch_width(&b, 1) == 16);
  b.documents[50 + 16] = 4;
  CHECK(batch_width(&b, 1) == 32);
  CHECK(batch_width(&b, 3) == 48); /* 64 positions are no three shards, 96 are */
  CHECK(batch_width(&b, 7) == 50); /* nor seven */
  b.documents[40] = 3;
  CHECK(batch_width(&b, 1) == 48);
  b.documents[99] = 3;
  CHECK(batch_width(&b, 1) == 50);
  batch_destroy(&b);
}

int main(void)
{
  static const struct test tests[] = {
    TEST(every_policy_has_the_same_in_an_epoch_and_each_epoch_its_order),
    TEST(without_shuffle_the_order_is_the_corpus_in_every_epoch),
    TEST(a_batch_is_a_function_of_its_step_and_number),
    TEST(packed_documents_stand_side_by_side_up_to_the_limit),
    TEST(a_bucketed_batch_has_a_range_of_lengths_of_its_own),
    TEST(a_balanced_step_has_the_same_sequences_and_less_on_the_worst_rank),
    TEST(tails_are_as_stated),
    TEST(a_short_bucketed_batch_is_last_and_differs_from_epoch_to_epoch),
    TEST(a_corpus_smaller_than_a_step),
    TEST(evaluation_leaves_none_out),
    TEST(planted_faults_change_the_plan_as_they_say),
    TEST(a_batch_is_as_wide_as_its_longest_sequence),
    TEST(pairs_are_of_one_document),
  };
  return test_main("data_plan_policies", tests, sizeof tests / sizeof *tests);
}
