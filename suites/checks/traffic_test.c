/* traffic_test.c - expected calls of small layouts, counted by hand, and their sums beside predict(). */
#include "base/schedule.h"
#include "predict.h"
#include "testing/check.h"
#include "traffic.h"
#include "traffic_gather.h"

#include <stdlib.h>
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

/* Of 4 replicas two share each; of each bucket a part is summed over the two groups; the weights go in bf16. */
static void replicas_that_share_scatter_and_gather(void)
{
  struct run_config c = a_case(4, 1, 1);
  c.zero = 1;
  c.shard = 2;
  c.precision = PRECISION_BF16;
  c.bucket = 1000;
  struct traffic dp = of(&c, (struct layout){0}, TRAFFIC_DP), groups = of(&c, (struct layout){0}, TRAFFIC_REPLICAS),
                 gather = of(&c, (struct layout){0}, TRAFFIC_GATHER), shards = of(&c, (struct layout){0}, TRAFFIC_SHARDS);
  CHECK(dp.n > 4 && groups.n == dp.n && gather.n == dp.n && shards.n == 1 && shards.calls[0].count == 2 + 24 + 2);
  for (int i = 0; i < dp.n; i++) {
    const struct traffic_call *g = &gather.calls[dp.n - 1 - i];
    CHECK(strcmp(dp.calls[i].op, "reduce_scatter") == 0 && dp.calls[i].type == DTYPE_F32 && dp.calls[i].count % 256 == 0);
    CHECK(strcmp(groups.calls[i].op, "allreduce") == 0 && groups.calls[i].count == dp.calls[i].count / 2);
    CHECK(strcmp(g->op, "allgather") == 0 && g->type == DTYPE_BF16 && g->count == dp.calls[i].count && g->microbatch == -1);
  }
  CHECK(traffic_ranks(&c, TRAFFIC_DP) == 2 && traffic_ranks(&c, TRAFFIC_GATHER) == 2 && traffic_ranks(&c, TRAFFIC_REPLICAS) == 2);
  traffic_free(&dp);
  traffic_free(&groups);
  traffic_free(&gather);
  traffic_free(&shards);
  c.zero = 0;
  c.shard = 0;
  gather = of(&c, (struct layout){0}, TRAFFIC_GATHER);
  CHECK(gather.n == 0 && traffic_ranks(&c, TRAFFIC_DP) == 4);
  traffic_free(&gather);
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
  for (int p = PRECISION_F64; p <= PRECISION_F16; p++)
    for (int r = RECOMPUTE_NONE; r <= RECOMPUTE_FULL; r++) check_totals((enum precision)p, (enum recompute)r);
}

/* Bytes that a rank sends in a group in a step, and calls. */
static double sent(const struct run_config *c, struct layout at, enum traffic_group g, double *calls)
{
  struct traffic t = of(c, at, g);
  double bytes = 0;
  for (int k = 0; k < t.n; k++)
    bytes += (double)traffic_bytes(t.calls[k].op, t.calls[k].count * (int64_t)dtype_bytes(t.calls[k].type), traffic_ranks(c, g));
  *calls += t.n;
  traffic_free(&t);
  return bytes;
}

/* Replicas that share: the closed formulas are the sums of the lists, whatever else is cut, and however far ahead. */
static void what_replicas_share_is_sent_as_the_formulas_say(void)
{
  static const struct {
    int64_t dp, shard, tp, pp, reused;
    enum schedule_kind kind;
  } rows[] = {{2, 0, 1, 1, 0, SCHEDULE_1F1B},  {4, 2, 1, 1, 0, SCHEDULE_1F1B}, {3, 0, 1, 1, 2, SCHEDULE_1F1B},
              {2, 0, 1, 2, 0, SCHEDULE_GPIPE}, {4, 0, 2, 2, 0, SCHEDULE_1F1B}, {2, 0, 1, 2, 0, SCHEDULE_INTERLEAVED},
              {2, 0, 1, 2, 0, SCHEDULE_ZB_H1}};
  for (int variant = 0; variant < 7 * 3 * 2 * 3; variant++) {
    const int i = variant % 7, prefetch = variant / 42;
    struct run_config c = a_case(rows[i].dp, rows[i].tp, rows[i].pp);
    const bool step = rows[i].kind == SCHEDULE_INTERLEAVED || rows[i].kind == SCHEDULE_ZB_H1;
    c.zero = 1 + variant / 7 % 3;
    c.tied = variant / 21 % 2;
    c.shard = rows[i].shard;
    c.layers = 4;
    c.reused = rows[i].reused;
    c.schedule = rows[i].kind;
    c.bucket = 200;
    c.prefetch = prefetch;
    c.precision = prefetch ? PRECISION_BF16 : PRECISION_F32;
    if (rows[i].kind == SCHEDULE_INTERLEAVED) c.chunks = 2, c.global_batch = 8;
    if (c.zero == 2 && step) continue;
    c.reduce_each = c.zero > 1 && !step ? REDUCE_MICROBATCH : REDUCE_STEP;
    for (int p = 0; p < c.pp; p++) {
      const struct layout at = {.pp = p};
      struct predicted x;
      double calls = 0, reductions = 0;
      predict_at(&c, &at, &x);
      const double reduced = sent(&c, at, TRAFFIC_DP, &reductions) + sent(&c, at, TRAFFIC_REPLICAS, &reductions);
      CHECK_NEAR(x.allreduce_bytes, reduced, reductions); /* whole bytes of each call */
      CHECK(x.allreduce_calls == reductions);
      const double gathered = sent(&c, at, TRAFFIC_GATHER, &calls);
      CHECK_NEAR(x.gather_bytes, gathered, calls);
      CHECK(x.gather_calls == calls && calls > 0);
      calls = 0;
      sent(&c, at, TRAFFIC_SHARDS, &calls);
      CHECK(calls == 1);
    }
  }
}

/* On a ring: 2, m + 1 and 3 m times all parameters, of each the part of the others; less what stands before
 * the blocks, which backward does not read again unless the head is tied to it. */
static void each_stage_sends_as_often_as_is_known_of_it(void)
{
  for (int zero = 0; zero <= 3; zero++)
    for (int tied = 0; tied < 2; tied++) {
      struct run_config c = a_case(4, 1, 1);
      const struct layout at = {0};
      struct predicted x;
      struct predicted_unit *units;
      int n;
      c.zero = zero;
      c.tied = tied;
      c.reduce_each = zero > 1 ? REDUCE_MICROBATCH : REDUCE_STEP;
      predict_at(&c, &at, &x);
      if (!CHECK_OK(predict_units(&c, &at, &units, &n))) return;
      const double begin = tied || zero < 3 ? 0 : (double)units[0].count;
      const double times[] = {2, 2, 3 + 1, 3 * 3};
      CHECK(n == 4 && units[0].count > 0);
      CHECK_NEAR(x.allreduce_bytes + x.gather_bytes, 0.75 * 4 * (times[zero] * predict_flat(&c, &at) - 3 * begin), 1e-6);
      free(units);
    }
}

/* Two blocks, two micro-batches; gathered one ahead, but for the end whose place its forward has. */
static void units_are_gathered_in_the_order_of_their_need(void)
{
  struct run_config c = a_case(2, 1, 1);
  const struct layout at = {0};
  c.zero = 3;
  c.tied = false;
  c.global_batch = 4;
  c.reduce_each = REDUCE_MICROBATCH;
  c.bucket = 0; /* a unit is a bucket */
  for (int prefetch = 0; prefetch < 3; prefetch++) {
    struct traffic_gather *list;
    struct predicted_unit *units;
    struct schedule *s;
    int n, n_units;
    c.prefetch = prefetch;
    CHECK_OK(predict_units(&c, &at, &units, &n_units));
    CHECK_OK(schedule_create(SCHEDULE_1F1B, 1, 2, 1, &s));
    if (!CHECK_OK(traffic_gathers(&c, &at, s, &list, &n))) return;
    const int order[] = {0, 1, 2, 3, 3, 2, 1, 0, 1, 2, 3, 3, 2, 1};
    /* the pass that had begun: F0 B0 F1 B1 */
    const int passes[3][14] = {{0, 0, 0, 0, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3}, {0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 3, 3, 3}, {0, 0, 0, 0, 1, 1, 1, 1, 1, 2, 2, 3, 3, 3}};
    CHECK(n == 14);
    for (int i = 0; i < n && i < 14; i++) {
      CHECK(list[i].count == units[order[i]].count);
      CHECK(list[i].action == passes[prefetch][i] && list[i].microbatch == passes[prefetch][i] / 2);
    }
    free(list);
    free(units);
    schedule_destroy(s);
  }
}

/* The last of two stages, GPipe: the head is through with the tied matrix only when it is through with what stands behind
 * the blocks, so the first backward's is not gathered in the last forward. */
static void a_tied_matrix_is_in_use_to_the_end_of_the_head(void)
{
  struct run_config c = a_case(2, 1, 2);
  const struct layout at = {.pp = 1};
  struct traffic_gather *list;
  struct predicted_unit *units;
  struct schedule *s;
  int n, n_units;
  c.zero = 3;
  c.prefetch = 1;
  c.layers = 2;
  c.global_batch = 4;
  c.reduce_each = REDUCE_MICROBATCH;
  c.schedule = SCHEDULE_GPIPE;
  c.bucket = 0;
  CHECK_OK(predict_units(&c, &at, &units, &n_units));
  CHECK_OK(schedule_create(SCHEDULE_GPIPE, 2, 2, 1, &s));
  if (!CHECK(n_units == 3) || !CHECK_OK(traffic_gathers(&c, &at, s, &list, &n))) return;
  const int order[] = {1, 0, 2, 1, 0, 2, 0, 2, 1, 0, 2, 1}; /* block, matrix, end twice; then backwards */
  const int microbatch[] = {0, 0, 0, 0, 1, 1, 0, 0, 0, 0, 1, 1}; /* of the pass in which it is queued */
  CHECK(n == 12);
  for (int i = 0; i < n && i < 12; i++)
    if (!CHECK(list[i].count == units[order[i]].count && list[i].microbatch == microbatch[i])) fprintf(stderr, "gather %d\n", i);
  free(list);
  free(units);
  schedule_destroy(s);
}

/* Of what passes hand on, of gradients of weights, and of the loss. */
static void types_are_those_of_work_and_of_state(void)
{
  struct run_config c = a_case(2, 2, 2);
  c.precision = PRECISION_BF16;
  c.loss_scale = 2; /* as if it had one */
  c.sequence_parallel = true;
  for (int g = 0; g < TRAFFIC_GROUPS; g++) {
    const struct layout at = {.pp = 1};
    struct traffic t = of(&c, at, (enum traffic_group)g);
    for (int k = 0; k < t.n; k++) {
      const bool losses = t.calls[k].type == DTYPE_F64, sum = strcmp(t.calls[k].op, "allreduce") == 0;
      const bool wide = g == TRAFFIC_DP || g == TRAFFIC_TIED || (g == TRAFFIC_TP && sum && !losses);
      if (g == TRAFFIC_SUMS || g == TRAFFIC_NORM || g == TRAFFIC_SCALE) CHECK(losses);
      else if (!losses) CHECK(t.calls[k].type == (wide ? DTYPE_F32 : DTYPE_BF16));
      else CHECK(g == TRAFFIC_TP);
    }
    CHECK((t.n > 0) == (g != TRAFFIC_REPLICAS && g != TRAFFIC_GATHER && g != TRAFFIC_SHARDS)); /* nothing is shared */
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
    TEST(replicas_that_share_scatter_and_gather),
    TEST(totals_are_those_of_the_formulas),
    TEST(what_replicas_share_is_sent_as_the_formulas_say),
    TEST(each_stage_sends_as_often_as_is_known_of_it),
    TEST(units_are_gathered_in_the_order_of_their_need),
    TEST(a_tied_matrix_is_in_use_to_the_end_of_the_head),
    TEST(types_are_those_of_work_and_of_state),
  };
  return test_main("traffic", tests, sizeof tests / sizeof *tests);
}
