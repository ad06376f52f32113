/* companions_test.c - companions are shared by what they do not depend on, and carry no fault but where they must. */
#include "companions.h"
#include "testing/check.h"

#include <string.h>

static struct run_config a_case(void)
{
  struct run_config c;
  config_default(&c);
  snprintf(c.name, sizeof c.name, "a");
  c.dp = 2;
  c.dump = DUMP_ALL;
  return c;
}

static bool same(const struct run_config *a, const struct run_config *b) { return memcmp(a, b, sizeof *a) == 0; }

static struct run_config truth_of(const struct run_config *c)
{
  struct companion out[1];
  CHECK(companions_truth(c, out, 1) == 1);
  CHECK(strcmp(out[0].role, "truth") == 0);
  return out[0].config;
}

static void layouts_buckets_and_faults_share_one_truth(void)
{
  const struct run_config a = a_case(), truth = truth_of(&a);
  struct run_config b = a;
  snprintf(b.name, sizeof b.name, "b");
  snprintf(b.fault, sizeof b.fault, "ln-rank-token-imbalance");
  b.fault_rank = 1;
  b.dp = 3;
  b.tp = 2;
  b.pp = 2;
  b.schedule = SCHEDULE_INTERLEAVED;
  b.chunks = 2;
  snprintf(b.stages, sizeof b.stages, "1,2,3,2");
  b.sequence_parallel = true;
  b.mesh_order = MESH_ORDER_PP_DP_TP;
  b.tp_across_nodes = true;
  b.tp_sums = 2;
  b.bucket = 17;
  b.overlap = false;
  b.overlap_p2p = false;
  b.reduce = REDUCE_ORDERED;
  b.reduce_each = REDUCE_MICROBATCH;
  b.reduce_type = REDUCE_TYPE_BF16;
  b.synchronous = true;
  b.delay = DELAY_ALL;
  b.communicate = false;
  b.align = true;
  b.read_ahead = 3;
  b.read_delay_ms = b.read_jitter_ms = b.read_stall_ms = 1;
  b.read_stall_step = 1;
  snprintf(b.read_ranks, sizeof b.read_ranks, "0,1");
  b.delay_ms = 7;
  b.delay_seed = 3;
  b.transport = TRANSPORT_STAGED;
  b.nccl_algo = b.nccl_proto = 1;
  b.threads = 2;
  b.device = 1;
  b.lazy_seed = 9;
  b.poison_end = true;
  b.replicas = 4;
  b.order_seed = 5;
  b.dump = DUMP_GRADIENTS;
  b.precision = PRECISION_F64; /* from weights rounded to float32 */
  const struct run_config other = truth_of(&b);
  CHECK(same(&truth, &other));
  CHECK(truth.precision == PRECISION_F64 && truth.weights_as == DTYPE_F32 && truth.dp == 1 && truth.fault[0] == '\0');
}

/* bf16: the case's own weights, in bf16 or not; noise in bf16, on the device that rounds as the case does. */
static void companions_start_from_the_weights_of_the_case(void)
{
  for (int i = 0; i < 4; i++) {
    struct run_config c = a_case();
    struct companion out[16];
    c.precision = PRECISION_BF16;
    c.weights_as = i % 2 ? DTYPE_BF16 : DTYPE_F32;
    c.device = i / 2 ? DEVICE_CUDA : DEVICE_LAZY;
    const int n = companions_noise(&c, out, 16);
    CHECK(n == 1 + COMPANIONS_NOISE);
    for (int k = 0; k < n; k++) {
      CHECK(out[k].config.weights_as == c.weights_as);
      CHECK(out[k].config.precision == (k == 0 ? PRECISION_F64 : PRECISION_BF16));
      CHECK(out[k].config.device == (k > 0 && i / 2 ? DEVICE_CUDA : DEVICE_CPU));
    }
  }
}

static void what_is_learned_has_its_own_truth(void)
{
  const struct run_config a = a_case(), truth = truth_of(&a);
  for (int i = 0; i < 8; i++) {
    struct run_config b = a;
    if (i == 0) b.dropout = 0.1;
    if (i == 1) b.seed++;
    if (i == 2) b.micro_batch = 2;
    if (i == 3) b.tied = false;
    if (i == 4) b.clip = 0.1;
    if (i == 5) snprintf(b.frozen, sizeof b.frozen, "wpe");
    if (i == 6) b.steps++;
    if (i == 7) b.documents_each = 3;
    const struct run_config other = truth_of(&b);
    CHECK(!same(&truth, &other));
  }
}

static void eight_legal_runs_all_differ_and_half_split_sums_as_the_layout_does(void)
{
  const struct run_config a = a_case();
  struct companion out[JUDGE_COMPANIONS_MAX];
  CHECK(companions_noise(&a, out, JUDGE_COMPANIONS_MAX) == 1 + COMPANIONS_NOISE);
  int split = 0;
  for (int i = 1; i <= COMPANIONS_NOISE; i++) {
    CHECK(out[i].config.precision == PRECISION_F32 && out[i].config.dp == 1 && out[i].config.order_seed != 0);
    split += out[i].config.replicas == 2;
    for (int k = 1; k < i; k++) CHECK(!same(&out[i].config, &out[k].config));
  }
  CHECK(split == COMPANIONS_NOISE / 2);
}

static void a_rerun_repeats_everything_and_the_others_change_one_thing(void)
{
  struct run_config a = a_case();
  struct companion out[1];
  snprintf(a.fault, sizeof a.fault, "rng-nondeterministic-embedding-bwd");
  CHECK(companions_rerun(&a, out, 1) == 1);
  memset(a.name, 0, sizeof a.name);
  CHECK(same(&out[0].config, &a));
  CHECK(companions_overlap_off(&a, out, 1) == 1);
  a.overlap = a.overlap_gather = a.overlap_p2p = false;
  CHECK(same(&out[0].config, &a));
  CHECK(companions_overlap_off(&a, out, 1) == 0);
  a.overlap_p2p = true; /* without stages it is nothing */
  CHECK(companions_overlap_off(&a, out, 1) == 0);
  a.pp = 2;
  CHECK(companions_overlap_off(&a, out, 1) == 1 && !out[0].config.overlap_p2p);
  a.pp = 1;
  CHECK(companions_undelayed(&a, out, 1) == 0);
  a.delay = DELAY_COPIES;
  CHECK(companions_undelayed(&a, out, 1) == 1 && out[0].config.delay == DELAY_NONE);
  a.delay = DELAY_NONE;
  CHECK(same(&out[0].config, &a));
  CHECK(companions_recompute_off(&a, out, 1) == 0);
  a.recompute = RECOMPUTE_FULL;
  CHECK(companions_recompute_off(&a, out, 1) == 1 && out[0].config.recompute == RECOMPUTE_NONE);
  out[0].config.recompute = RECOMPUTE_FULL;
  CHECK(same(&out[0].config, &a));
  CHECK(companions_offload_off(&a, out, 1) == 0);
  a.offload = OFFLOAD_OPTIMIZER;
  CHECK(companions_offload_off(&a, out, 1) == 1 && out[0].config.offload == OFFLOAD_NONE);
  out[0].config.offload = OFFLOAD_OPTIMIZER;
  CHECK(same(&out[0].config, &a));
  CHECK(companions_truth(&a, out, 1) == 1 && out[0].config.recompute == RECOMPUTE_NONE && out[0].config.offload == OFFLOAD_NONE);
  a.offload = OFFLOAD_NONE;
  CHECK(companions_twin(&a, out, 1) == 0); /* the library's sums have no twin */
  a.reduce = REDUCE_ORDERED;
  a.reduce_type = REDUCE_TYPE_BF16;
  CHECK(companions_twin(&a, out, 1) == 1);
  CHECK(out[0].config.reduce_type == REDUCE_TYPE_BF16); /* each accumulator is rounded as a replica's gradients are */
  CHECK(out[0].config.dp == 1 && out[0].config.replicas == 2 && out[0].config.precision == PRECISION_F32 &&
        out[0].config.fault[0] == '\0');
}

static void products_are_split_as_tensor_ranks_split_them(void)
{
  struct run_config a = a_case();
  struct companion out[JUDGE_COMPANIONS_MAX];
  for (a.dp = 1; a.dp <= 2; a.dp++) {
    a.tp = 3;
    int parts = 0, accumulators = 0;
    const int n = companions_noise(&a, out, JUDGE_COMPANIONS_MAX);
    for (int i = 1; i < n; i++) {
      parts += out[i].config.tp_sums == 3;
      accumulators += out[i].config.replicas == a.dp && a.dp > 1;
      CHECK(out[i].config.tp == 1 && (out[i].config.tp_sums == 1 || out[i].config.replicas == 1));
    }
    CHECK(parts == (a.dp == 1 ? 4 : 2) && accumulators == (a.dp == 1 ? 0 : 2));
  }
  CHECK(companions_curve(&a, out, JUDGE_COMPANIONS_MAX) == 1 + COMPANIONS_CURVE);
  CHECK(out[0].config.tp_sums == 1 && out[1].config.tp_sums == 1 && out[2].config.tp_sums == 3 &&
        out[3].config.tp_sums == 1);
}

/* Rounded on their way between replicas: only runs that emulate replicas can show that noise. */
static void noise_rounds_where_it_has_replicas(void)
{
  struct run_config a = a_case();
  struct companion out[JUDGE_COMPANIONS_MAX];
  a.reduce_type = REDUCE_TYPE_BF16;
  const int n = companions_noise(&a, out, JUDGE_COMPANIONS_MAX);
  int rounded = 0;
  for (int i = 0; i < n; i++) {
    rounded += out[i].config.reduce_type == REDUCE_TYPE_BF16;
    CHECK((out[i].config.reduce_type == REDUCE_TYPE_BF16) == (out[i].config.replicas == 2));
  }
  CHECK(rounded == 4);
}

static void a_pipeline_has_its_twin_without_cuts(void)
{
  struct run_config a = a_case();
  struct companion out[1];
  a.dp = 1;
  a.pp = 2;
  a.schedule = SCHEDULE_ZB_H1;
  CHECK(companions_twin(&a, out, 1) == 1); /* no sum over ranks: any mode */
  CHECK(out[0].config.pp == 1 && out[0].config.replicas == 1 && out[0].config.schedule == SCHEDULE_1F1B);
  a.dp = 2;
  CHECK(companions_twin(&a, out, 1) == 0);
  a.reduce = REDUCE_ORDERED;
  CHECK(companions_twin(&a, out, 1) == 1);
  CHECK(out[0].config.pp == 1 && out[0].config.dp == 1 && out[0].config.replicas == 2);
  a.tp = 2;
  a.sequence_parallel = true;
  CHECK(companions_twin(&a, out, 1) == 1);
  CHECK(out[0].config.pp == 1 && out[0].config.dp == 2 && out[0].config.tp == 2 && out[0].config.replicas == 1);
  CHECK(out[0].config.sequence_parallel && out[0].config.reduce == REDUCE_ORDERED);
  a.pp = 1;
  CHECK(companions_twin(&a, out, 1) == 0); /* tensor cuts are held to the bound */
}

/* A serial run that emulates the sharing: squares are added by pieces, which buckets cut. */
static void replicas_that_share_have_a_twin_that_emulates_them(void)
{
  struct run_config a = a_case();
  struct companion out[COMPANIONS_NOISE + 1];
  a.dp = 4;
  a.zero = 1;
  a.shard = 2;
  a.bucket = 2304;
  a.overlap = false;
  CHECK(companions_twin(&a, out, 1) == 0); /* the library's sums */
  a.reduce = REDUCE_ORDERED;
  CHECK(companions_twin(&a, out, 1) == 1);
  CHECK(out[0].config.zero == 1 && out[0].config.shard == 2 && out[0].config.replicas == 4 && out[0].config.dp == 1 && out[0].config.bucket == 2304);
  CHECK(companions_overlap_off(&a, out, 1) == 1 && !out[0].config.overlap_gather && out[0].config.zero == 1);
  a.overlap_gather = false;
  CHECK(companions_overlap_off(&a, out, 1) == 0);
  a.zero = 3; /* what is gathered ahead overlaps too */
  a.prefetch = 2;
  CHECK(companions_overlap_off(&a, out, 1) == 1 && out[0].config.prefetch == 0);
  a.prefetch = 0;
  CHECK(companions_overlap_off(&a, out, 1) == 0);
  a.prefetch = 2;
  CHECK(companions_twin(&a, out, 1) == 1 && out[0].config.zero == 3 && out[0].config.prefetch == 1);
  const struct run_config truth = truth_of(&a);
  CHECK(truth.zero == 0 && truth.shard == 0 && truth.overlap_gather && truth.prefetch == 1);
  const int n = companions_noise(&a, out, COMPANIONS_NOISE + 1);
  for (int i = 0; i < n; i++) CHECK(out[i].config.zero == 0 && out[i].config.shard == 0);
}

int main(void)
{
  static const struct test tests[] = {
    TEST(layouts_buckets_and_faults_share_one_truth),
    TEST(companions_start_from_the_weights_of_the_case),
    TEST(what_is_learned_has_its_own_truth),
    TEST(eight_legal_runs_all_differ_and_half_split_sums_as_the_layout_does),
    TEST(products_are_split_as_tensor_ranks_split_them),
    TEST(noise_rounds_where_it_has_replicas),
    TEST(a_pipeline_has_its_twin_without_cuts),
    TEST(replicas_that_share_have_a_twin_that_emulates_them),
    TEST(a_rerun_repeats_everything_and_the_others_change_one_thing),
  };
  return test_main("companions", tests, sizeof tests / sizeof *tests);
}
