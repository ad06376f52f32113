/* traffic_test.c - expected calls of small layouts, counted by hand, and their sums beside predict(). */
#include "base/schedule.h"
#include "predict.h"
#include "testing/check.h"
#include "traffic.h"

#include <string.h>

/* 2 layers, 12 channels, 11 tokens, 3 micro-batches of 8 rows a replica. */
static struct run_config a_case(int64_t dp, int64_t tp, int64_t pp)
{
  struct run_config c;
  config_default(&c);
  c.layers = 2;
  c.heads = 6;
  c.hidden = 12;
  c.vocab = 11;
  c.positions = c.sequence = 8;
  c.micro_batch = 1;
  c.dp = dp;
  c.tp = tp;
  c.pp = pp;
  c.global_batch = 3 * dp;
  return c;
}

static struct traffic of(const struct run_config *c, struct layout at, enum traffic_group g)
{
  struct traffic t;
  if (!CHECK_OK(traffic_expect(c, &at, g, &t))) memset(&t, 0, sizeof t);
  return t;
}

static int count(const struct traffic *t, const char *op, int64_t elements)
{
  int n = 0;
  for (int i = 0; i < t->n; i++) n += strcmp(t->calls[i].op, op) == 0 && t->calls[i].count == elements;
  return n;
}

static void tensor_ranks_reduce_whole_activations(void)
{
  const struct run_config c = a_case(1, 2, 1);
  struct traffic t = of(&c, (struct layout){0}, TRAFFIC_TP);
  /* a micro-batch: embedding 1, two layers 2 and 2, head 1 of 8 x 12; loss 8 and 16 */
  CHECK(t.n == 3 * (10 + 2));
  CHECK(count(&t, "allreduce", 96) == 30 && count(&t, "allreduce", 8) == 3 && count(&t, "allreduce", 16) == 3);
  CHECK(t.calls[0].count == 96 && t.calls[5].count == 8 && t.calls[5].type == DTYPE_F64 && t.calls[6].count == 16);
  CHECK(t.calls[0].microbatch == 0 && t.calls[t.n - 1].microbatch == 2);
  traffic_free(&t);
  t = of(&c, (struct layout){0}, TRAFFIC_NORM);
  CHECK(t.n == 1 && t.calls[0].count == 2 + 24 + 2 && t.calls[0].type == DTYPE_F64);
  traffic_free(&t);
}

static void shards_of_the_sequence_are_gathered_and_scattered(void)
{
  struct run_config c = a_case(1, 2, 1);
  c.sequence_parallel = true;
  struct traffic t = of(&c, (struct layout){0}, TRAFFIC_TP);
  /* a micro-batch: layers 2 + 4 gathers and 2 + 2 scatters each; embedding 1 and 1; head 2 and 1 */
  CHECK(count(&t, "allgather", 96) == 3 * (12 + 1 + 2) && count(&t, "reduce_scatter", 96) == 3 * (8 + 1 + 1));
  /* once a step: two norms a layer and the last, gain and bias; the positions (8 x 12) */
  CHECK(count(&t, "allreduce", 24) == 5 && count(&t, "allreduce", 96) == 1);
  CHECK(t.n == 3 * (25 + 2) + 6);
  traffic_free(&t);
  c.reduce_each = REDUCE_MICROBATCH;
  t = of(&c, (struct layout){0}, TRAFFIC_TP);
  CHECK(count(&t, "allreduce", 24) == 15 && count(&t, "allreduce", 96) == 3);
  traffic_free(&t);
}

/* The gathers for the gradients of weights come with them. */
static void a_split_backward_gathers_the_same(void)
{
  struct run_config c = a_case(1, 2, 1);
  c.sequence_parallel = true;
  struct traffic whole = of(&c, (struct layout){0}, TRAFFIC_TP);
  c.schedule = SCHEDULE_ZB_H1;
  struct traffic split = of(&c, (struct layout){0}, TRAFFIC_TP);
  CHECK(split.n == whole.n && count(&split, "allgather", 96) == count(&whole, "allgather", 96));
  bool same = true;
  for (int i = 0; i < whole.n && i < split.n; i++) same = same && strcmp(whole.calls[i].op, split.calls[i].op) == 0;
  CHECK(!same);
  traffic_free(&whole);
  traffic_free(&split);
}

static void stages_send_boundaries_and_the_tied_matrix(void)
{
  struct run_config c = a_case(2, 2, 2);
  c.sequence_parallel = true;
  const struct layout first = {.dp = 1}, last = {.pp = 1, .dp = 1};
  struct traffic t = of(&c, first, TRAFFIC_OUTPUTS);
  CHECK(t.n == 3 && count(&t, "send", 48) == 3 && t.calls[0].microbatch == 3); /* of replica 1 */
  traffic_free(&t);
  t = of(&c, last, TRAFFIC_OUTPUTS);
  CHECK(t.n == 3 && count(&t, "recv", 48) == 3);
  traffic_free(&t);
  t = of(&c, last, TRAFFIC_GRADIENTS);
  CHECK(t.n == 3 && count(&t, "send", 48) == 3);
  traffic_free(&t);
  t = of(&c, first, TRAFFIC_TIED);
  CHECK(t.n == 2 && strcmp(t.calls[0].op, "recv") == 0 && t.calls[0].count == 6 * 12 &&
        strcmp(t.calls[1].op, "send") == 0);
  traffic_free(&t);
  t = of(&c, last, TRAFFIC_TIED);
  CHECK(t.n == 2 && strcmp(t.calls[0].op, "send") == 0);
  traffic_free(&t);
  c.tied = false;
  t = of(&c, last, TRAFFIC_TIED);
  CHECK(t.n == 0);
  traffic_free(&t);
}

/* The tied matrix has buckets of its own, alike on both stages. */
static void buckets_of_the_tied_matrix_are_alike(void)
{
  struct run_config c = a_case(2, 2, 2);
  for (int64_t bucket = 0; bucket < 200; bucket += 50) {
    c.bucket = bucket;
    struct traffic first = of(&c, (struct layout){.pp = 0}, TRAFFIC_DP),
                   last = of(&c, (struct layout){.pp = 1}, TRAFFIC_DP);
    const int pieces = bucket == 50 ? 2 : 1; /* 72 = 22 + 50, and padding up to 128 */
    CHECK(first.n > pieces && last.n > pieces);
    int64_t sum = 0;
    for (int i = 0; i < pieces; i++) {
      CHECK(first.calls[first.n - 1 - i].count == last.calls[last.n - 1 - i].count);
      sum += first.calls[first.n - 1 - i].count;
    }
    CHECK(sum == 128);
    traffic_free(&first);
    traffic_free(&last);
  }
}

/* Full recompute has forward's list once more in backward, but for each block's last sum. */
static void forwards_collectives_come_again_with_full_recompute_alone(void)
{
  for (int sequence = 0; sequence < 2; sequence++) {
    struct run_config c = a_case(1, 2, 1);
    c.layers = 2;
    c.sequence_parallel = sequence;
    const int each = (int)layout_each(&c), more = (sequence ? 3 : 1) * 2 * each;
    struct traffic none = of(&c, (struct layout){0}, TRAFFIC_TP);
    c.recompute = RECOMPUTE_SELECTIVE;
    struct traffic selective = of(&c, (struct layout){0}, TRAFFIC_TP);
    c.recompute = RECOMPUTE_FULL;
    struct traffic full = of(&c, (struct layout){0}, TRAFFIC_TP);
    CHECK(selective.n == none.n && full.n == none.n + more);
    traffic_free(&none);
    traffic_free(&selective);
    traffic_free(&full);
  }
}

/* The closed formulas of predict() give the same totals as the lists. */
static void check_totals(enum precision precision, enum recompute recompute)
{
  static const struct {
    int64_t dp, tp, pp;
    enum schedule_kind kind;
    bool sequence;
  } rows[] = {{2, 1, 1, SCHEDULE_1F1B, false}, {1, 2, 1, SCHEDULE_1F1B, true},   {1, 3, 1, SCHEDULE_1F1B, false},
              {2, 2, 2, SCHEDULE_ZB_H1, true}, {1, 1, 2, SCHEDULE_GPIPE, false}, {1, 2, 2, SCHEDULE_INTERLEAVED, true}};
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    struct run_config c = a_case(rows[i].dp, rows[i].tp, rows[i].pp);
    c.precision = precision;
    c.recompute = recompute;
    c.layers = 4;
    c.schedule = rows[i].kind;
    c.sequence_parallel = rows[i].sequence;
    if (rows[i].kind == SCHEDULE_INTERLEAVED) c.chunks = 2, c.global_batch = 4;
    for (int p = 0; p < c.pp; p++) {
      const struct layout at = {.pp = p};
      struct predicted x;
      double bytes[TRAFFIC_GROUPS] = {0}, calls[TRAFFIC_GROUPS] = {0};
      predict_at(&c, &at, &x);
      for (int g = 0; g < TRAFFIC_GROUPS; g++) {
        struct traffic t = of(&c, at, (enum traffic_group)g);
        for (int k = 0; k < t.n; k++) {
          bytes[g] += (double)traffic_bytes(t.calls[k].op, t.calls[k].count * (int64_t)dtype_bytes(t.calls[k].type),
                                            traffic_ranks(&c, (enum traffic_group)g));
          calls[g] += strcmp(t.calls[k].op, "recv") != 0;
        }
        traffic_free(&t);
      }
      CHECK_NEAR(x.tensor_bytes, bytes[TRAFFIC_TP], 0.5 * calls[TRAFFIC_TP]); /* whole bytes of each call */
      CHECK(x.tensor_calls == calls[TRAFFIC_TP]);
      CHECK(x.pipeline_bytes == bytes[TRAFFIC_OUTPUTS] + bytes[TRAFFIC_GRADIENTS] + bytes[TRAFFIC_TIED]);
      CHECK(x.pipeline_calls == calls[TRAFFIC_OUTPUTS] + calls[TRAFFIC_GRADIENTS] + calls[TRAFFIC_TIED]);
      if (c.dp > 1) CHECK(x.allreduce_bytes == bytes[TRAFFIC_DP] && x.allreduce_calls == calls[TRAFFIC_DP]);
    }
  }
}

static void totals_are_those_of_the_formulas(void)
{
  for (int p = PRECISION_F64; p <= PRECISION_BF16; p++)
    for (int r = RECOMPUTE_NONE; r <= RECOMPUTE_FULL; r++) check_totals((enum precision)p, (enum recompute)r);
}

/* Of what passes hand on, of gradients of weights, and of the loss. */
static void types_are_those_of_work_and_of_state(void)
{
  struct run_config c = a_case(2, 2, 2);
  c.precision = PRECISION_BF16;
  c.sequence_parallel = true;
  for (int g = 0; g < TRAFFIC_GROUPS; g++) {
    const struct layout at = {.pp = 1};
    struct traffic t = of(&c, at, (enum traffic_group)g);
    for (int k = 0; k < t.n; k++) {
      const bool losses = t.calls[k].type == DTYPE_F64, sum = strcmp(t.calls[k].op, "allreduce") == 0;
      const bool wide = g == TRAFFIC_DP || g == TRAFFIC_TIED || (g == TRAFFIC_TP && sum && !losses);
      if (g == TRAFFIC_SUMS || g == TRAFFIC_NORM) CHECK(losses);
      else if (!losses) CHECK(t.calls[k].type == (wide ? DTYPE_F32 : DTYPE_BF16));
      else CHECK(g == TRAFFIC_TP);
    }
    CHECK(t.n > 0);
    traffic_free(&t);
  }
  c.reduce_type = REDUCE_TYPE_BF16; /* between replicas alone */
  struct traffic t = of(&c, (struct layout){0}, TRAFFIC_DP);
  for (int k = 0; k < t.n; k++) CHECK(t.calls[k].type == DTYPE_BF16);
  traffic_free(&t);
  t = of(&c, (struct layout){0}, TRAFFIC_TIED);
  for (int k = 0; k < t.n; k++) CHECK(t.calls[k].type == DTYPE_F32);
  traffic_free(&t);
}

int main(void)
{
  static const struct test tests[] = {
    TEST(tensor_ranks_reduce_whole_activations),
    TEST(shards_of_the_sequence_are_gathered_and_scattered),
    TEST(a_split_backward_gathers_the_same),
    TEST(stages_send_boundaries_and_the_tied_matrix),
    TEST(buckets_of_the_tied_matrix_are_alike),
    TEST(forwards_collectives_come_again_with_full_recompute_alone),
    TEST(totals_are_those_of_the_formulas),
    TEST(types_are_those_of_work_and_of_state),
  };
  return test_main("traffic", tests, sizeof tests / sizeof *tests);
}
