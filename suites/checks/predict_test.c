/* predict_test.c - closed formulas against published figures and small cases by hand; O12. */
#include "fabricate_test.h"
#include "predict.h"

static const struct layout alone;

static struct run_config model(const char *name)
{
  struct run_config c;
  config_default(&c);
  CHECK_OK(config_set(&c, "model", name));
  CHECK_OK(config_finish(&c));
  return c;
}

static struct predicted of(const struct run_config *c)
{
  struct predicted p;
  predict(c, &p);
  return p;
}

static void parameters_are_the_published_counts(void)
{
  struct run_config c = model("gpt2-124m");
  CHECK(of(&c).parameters == 124439808.0); /* Hugging Face gpt2: 124,439,808 */
  c.tied = false;
  CHECK(of(&c).parameters == 124439808.0 + 50257.0 * 768.0);
  for (int i = 0; i < model_shapes_count; i++) {
    if (model_shapes[i].published_parameters == 0.0) continue;
    c = model(model_shapes[i].name);
    const double P = of(&c).parameters, printed = model_shapes[i].published_parameters;
    if (!CHECK(fabs(P - printed) < 0.03 * printed)) fprintf(stderr, "%s: %.4g, printed %.4g\n", model_shapes[i].name, P, printed);
  }
}

/* 12 l h^2 (1 + 13/(12h) + (V+s)/(12lh)) of Narayanan et al. leaves out the final norm only. */
static void parameters_follow_the_papers_formula(void)
{
  const struct run_config c = model("megatron-145.6b");
  const double l = 80, h = 12288, V = 51200, s = 2048;
  CHECK_NEAR(of(&c).parameters / (12 * l * h * h * (1 + 13 / (12 * h) + (V + s) / (12 * l * h)) + 2 * h), 1.0, 1e-12);
}

/* 72 B L s h^2 (1 + s/(6h) + V/(12hL)): Korthikanti et al. eq. 7, attention in full. */
static void flops_follow_the_papers_formula(void)
{
  struct run_config c = model("korthikanti-175b");
  c.global_batch = 64;
  const double B = 64, L = 96, h = 12288, s = 2048, V = 51200;
  CHECK_NEAR(of(&c).flops_full / (72 * B * L * s * h * h * (1 + s / (6 * h) + V / (12 * h * L))), 1.0, 1e-12);
  CHECK_NEAR((of(&c).flops_full - of(&c).flops_causal) / (72 * B * L * s * h * h * s / (12 * h)), 1.0, 1e-9);
}

static void buckets_are_filled_from_the_last_parameter(void)
{
  struct run_config c = made_config(1); /* 6 channels: 6, 18, 24, 36, 48 (wpe), 66 (wte), 108, 144; unused 7 */
  int64_t counts[64];
  c.bucket = 0;
  CHECK(predict_buckets(&c, &alone, counts, 64) == 1 && (double)counts[0] == predict_flat(&c, &alone));
  c.bucket = 144; /* c_proj [24, 6] and c_fc [6, 24] fill one each; each of 17 rows is padded to 64 */
  const int64_t n = predict_buckets(&c, &alone, counts, 64);
  const int64_t want[] = {64 * 4, 192, 64, 192};
  /* unused 7, ln_f 6 + 6, mlp.c_proj.bias 6; mlp.c_proj.weight; mlp.c_fc.bias; mlp.c_fc.weight */
  for (int i = 0; i < 4; i++) CHECK(counts[i] == want[i]);
  double sum = 0.0;
  for (int64_t i = 0; i < n; i++) sum += (double)counts[i];
  CHECK(sum == predict_flat(&c, &alone));
  c.bucket = 100; /* a larger row is cut from its end: 144 = 44 + 100 */
  predict_buckets(&c, &alone, counts, 64);
  CHECK(counts[1] == 100 + (192 - 144));
  c.bucket = 1;
  CHECK(predict_buckets(&c, &alone, NULL, 0) == 7 + (int64_t)shapes_elements(&c));
}

static void sharded_buckets_are_cut_where_every_shard_has_whole_lines(void)
{
  struct run_config c = made_config(2);
  int64_t counts[64];
  c.zero = 1; /* two shards: 128 elements each */
  c.bucket = 144;
  predict_buckets(&c, &alone, counts, 64);
  const int64_t want[] = {128, 256, 128, 256, 128, 256};
  /* unused; ln_f 6 + 6; mlp.c_proj.bias; mlp.c_proj.weight; mlp.c_fc.bias; mlp.c_fc.weight */
  for (int i = 0; i < 6; i++) CHECK(counts[i] == want[i]);
  c.bucket = 100; /* 44 is moved down to 0, and the next parameter finds an empty bucket */
  predict_buckets(&c, &alone, counts, 64);
  CHECK(counts[3] == 256 && counts[4] == 128 && counts[5] == 256);
  c.bucket = 15; /* 144 - 15 is moved down to 128 */
  predict_buckets(&c, &alone, counts, 64);
  CHECK(counts[1] == 256 && counts[2] == 128 && counts[3] == 128 && counts[4] == 128);
  c.bucket = 0; /* wte, wpe, each block, ln_f, unused */
  CHECK(predict_buckets(&c, &alone, counts, 64) == 4 + c.layers && counts[0] == 128 && counts[1] == 256);
  c.tied = false; /* then the last stage has no copy of wte without wpe */
  CHECK(predict_buckets(&c, &alone, counts, 64) == 3 + c.layers);
}

static double largest_of(const struct run_config *c)
{
  int64_t counts[64];
  double largest = 0.0;
  for (int64_t i = predict_buckets(c, &alone, counts, 64) - 1; i >= 0; i--) largest = fmax(largest, (double)counts[i]);
  return largest;
}

/* What updates keep is the host's, and two buckets of it are on the device: all, where there is one. */
static void offloaded_state_leaves_two_buckets_on_the_device(void)
{
  struct run_config plain = made_config(4), c = plain;
  c.offload = OFFLOAD_OPTIMIZER;
  c.bucket = plain.bucket = 144;
  c.read_ahead = plain.read_ahead = 2;
  const double flat = predict_flat(&c, &alone), two = 2.0 * largest_of(&c);
  const double batches = 3.0 * (double)(c.global_batch / c.dp) * (double)(16 * c.sequence + 4); /* of int32 */
  CHECK(two > 0.0 && two < flat);
  CHECK(of(&plain).optimizer_bytes == 8.0 * flat && of(&plain).host_bytes == batches);
  CHECK(of(&c).host_bytes == 8.0 * flat + batches && of(&c).optimizer_bytes == 8.0 * two);
  CHECK(of(&c).total_bytes == of(&plain).total_bytes + 8.0 * two); /* one memory */
  c.device = plain.device = DEVICE_CUDA;
  CHECK(of(&c).total_bytes == of(&plain).total_bytes - 8.0 * (flat - two));
  c.bucket = 0;
  CHECK(of(&c).optimizer_bytes == 8.0 * flat);
  c.bucket = 144;
  c.precision = PRECISION_BF16; /* master weights too */
  c.zero = 1;
  const double shard = predict_flat(&c, &alone) / 4.0;
  CHECK(of(&c).host_bytes == 12.0 * shard + batches && of(&c).optimizer_bytes == 12.0 * 2.0 * largest_of(&c) / 4.0);
  c.optimizer = OPTIMIZER_SGD;
  CHECK(of(&c).host_bytes == 4.0 * shard + batches);
}

static void shared_state_is_cut_and_what_is_sent_is_as_much(void)
{
  struct run_config plain = made_config(4), c = plain;
  c.zero = 1;
  c.precision = plain.precision = PRECISION_BF16;
  const double flat = predict_flat(&c, &alone), buckets = (double)predict_buckets(&c, &alone, NULL, 0);
  CHECK(of(&c).parameters_bytes == 2.0 * flat && of(&c).optimizer_bytes == 12.0 * flat / 4.0);
  CHECK(of(&c).allreduce_bytes == 4.0 * flat * 0.75 && of(&c).gather_bytes == 2.0 * flat * 0.75);
  CHECK(of(&c).allreduce_calls == buckets && of(&c).gather_calls == buckets);
  CHECK(of(&plain).gather_bytes == 0.0 && of(&plain).optimizer_bytes == 12.0 * predict_flat(&plain, &alone));
  c.precision = PRECISION_F32; /* 2 Psi (d - 1) / d, as without sharing */
  CHECK(of(&c).allreduce_bytes + of(&c).gather_bytes == 2.0 * 0.75 * 4.0 * predict_flat(&c, &alone));
  c.shard = 2;
  const double half = predict_flat(&c, &alone);
  CHECK(of(&c).optimizer_bytes == 8.0 * half / 2.0 && of(&c).gather_bytes == 4.0 * half / 2.0);
  CHECK(of(&c).allreduce_bytes == 4.0 * half / 2.0 + 4.0 * half / 2.0); /* within a group; shards over groups */
  CHECK(of(&c).allreduce_calls == 2.0 * of(&c).gather_calls);
  c.replicas = 4; /* emulated: nothing is shared, and each group has a sum of its own */
  c.dp = 1;
  CHECK(of(&c).optimizer_bytes == 8.0 * half && of(&c).gradients_bytes == 4.0 * (4.0 * half + 66.0));
}

static void sums_are_sent_on_a_ring(void)
{
  struct run_config c = made_config(2);
  CHECK(of(&c).allreduce_bytes == predict_flat(&c, &alone) * 4.0); /* 2 (n-1)/n, n = 2 */
  CHECK(of(&c).allreduce_calls == (double)predict_buckets(&c, &alone, NULL, 0));
  c.reduce_each = REDUCE_MICROBATCH; /* three micro-batches a rank */
  CHECK(of(&c).allreduce_bytes == 3.0 * predict_flat(&c, &alone) * 4.0);
  c.reduce_type = REDUCE_TYPE_BF16;
  CHECK(of(&c).allreduce_bytes == 3.0 * predict_flat(&c, &alone) * 2.0);
  c.dp = 1;
  CHECK(of(&c).allreduce_bytes == 0.0 && of(&c).allreduce_calls == 0.0 && of(&c).communication_bytes == 0.0);
}

static void memory_of_each_part_by_hand(void)
{
  struct run_config c = made_config(1);
  c.dump = DUMP_NONE;
  const double flat = predict_flat(&c, &alone), tied = 66.0, N = 8.0;
  CHECK(of(&c).parameters_bytes == 4.0 * flat);
  CHECK(of(&c).gradients_bytes == 4.0 * (flat + tied));
  CHECK(of(&c).optimizer_bytes == 8.0 * flat);
  /* 6 channels, 2 heads, vocabulary 11: the last block's backward, not the head's, is the peak */
  CHECK(of(&c).activations_bytes == N * 4.0 * ((16.0 * 6.0 + 4.0 + 2.0) + 6.0 + 30.0));
  c.dp = 2; /* one bucket on its way in bf16; scratch of its size, twice */
  const double before = of(&c).gradients_bytes;
  int64_t counts[64];
  double whole = 0.0;
  for (int64_t i = 0; i < predict_buckets(&c, &alone, counts, 64); i++) whole = fmax(whole, (double)counts[i]);
  c.reduce_type = REDUCE_TYPE_BF16;
  CHECK(of(&c).gradients_bytes == before + 2.0 * whole && of(&c).communication_bytes == 2.0 * 256.0 * ceil(2.0 * whole / 256.0) + 2.0 * 256.0);
  c.dp = 1;
  CHECK(of(&c).gradients_bytes == 4.0 * (flat + tied));
  c.vocab = 1000;
  CHECK(of(&c).activations_bytes == N * 4.0 * ((16.0 * 6.0 + 4.0 + 2.0) + 6.0 + (6.0 + 3.0 + 1000.0) + 6.0));
  /* bf16: means, deviations and log-sums stay float32, as do gradients, moments and the master copy */
  c.precision = PRECISION_BF16;
  const double half = predict_flat(&c, &alone);
  CHECK(half > flat); /* rows are padded to 256 bytes of bf16 */
  CHECK(of(&c).parameters_bytes == 2.0 * half && of(&c).gradients_bytes == 4.0 * (half + 6000.0) && of(&c).optimizer_bytes == 12.0 * half);
  CHECK(of(&c).activations_bytes == N * (2.0 * (16.0 * 6.0 + 6.0 + 6.0 + 1000.0 + 6.0) + 4.0 * (4.0 + 2.0 + 3.0)));
  c.optimizer = OPTIMIZER_SGD;
  CHECK(of(&c).optimizer_bytes == 4.0 * half);
  c.precision = PRECISION_F64;
  CHECK(of(&c).optimizer_bytes == 0.0);
  CHECK(of(&c).parameters_bytes == 8.0 * predict_flat(&c, &alone));
}

/* One block of 6 channels and 2 heads; what its backward makes again is larger than what the head needs. */
static void memory_of_what_is_made_again_by_hand(void)
{
  struct run_config c = made_config(1);
  const double N = 8.0, C = 6.0, H = 2.0, half = 5.0 * C;
  c.dump = DUMP_NONE;
  c.recompute = RECOMPUTE_SELECTIVE; /* output, sum, qkv, c_fc stay; mlp's norm, its two statistics and gelu come again */
  CHECK(of(&c).activations_bytes == 4.0 * N * (9.0 * C + C + half + (C + 2.0 + 4.0 * C)));
  c.recompute = RECOMPUTE_FULL; /* the output stays; all else comes again */
  CHECK(of(&c).activations_bytes == 4.0 * N * (C + C + half + (15.0 * C + 4.0 + H)));
  c.pp = 2; /* the last of two stages, its weights' backward one later: a micro-batch between the two backwards is there, and one more; two inputs */
  c.schedule = SCHEDULE_ZB_H1;
  c.layers = 2;
  struct predicted p;
  const struct layout last = {.pp = 1};
  predict_at(&c, &last, &p);
  const double weights = 16.0 * C, head = C + 2.0 + 11.0 + 1.0, in_forward = 15.0 * C + 4.0 + H;
  CHECK(p.activations_bytes == 4.0 * N * (C + 2.0 * C + 2.0 * weights + head + in_forward));
}

/* --- the check of memory ------------------------------------------------------------------- */

static struct bench b;
static void remember(int rank, double larger)
{
  const struct predicted p = of(&b.run.data.config);
  json_t *r = made_record(&b.run, "memory", rank, -1, -1);
  json_object_set_new(r, "got.parameters_bytes", json_real(p.parameters_bytes));
  json_object_set_new(r, "got.gradients_bytes", json_real(p.gradients_bytes));
  json_object_set_new(r, "got.optimizer_bytes", json_real(p.optimizer_bytes * larger));
  json_object_set_new(r, "got.activations_bytes", json_real(p.activations_bytes));
  json_object_set_new(r, "got.communication_bytes", json_real(p.communication_bytes));
  json_object_set_new(r, "got.host_bytes", json_real(p.host_bytes));
  json_object_set_new(r, "got.peak_bytes", json_real(p.total_bytes));
  json_object_set_new(r, "got.os_peak_bytes", json_real(p.total_bytes * 1.04));
  json_object_set_new(r, "got.os_others_bytes", json_real(0));
  json_object_set_new(r, "got.allocations_first", json_integer(40));
  json_object_set_new(r, "got.allocations_last", json_integer(40));
}
static void setup_on(enum device device, double larger)
{
  struct run_config c = made_config(2);
  c.device = device;
  bench_setup(&b, "memory", &c);
  remember(0, 1.0);
  remember(1, larger);
}

static void setup(double larger) { setup_on(DEVICE_CPU, larger); }

static void memory_passes_within_the_formula_and_fails_beyond_it(void)
{
  setup(1.0);
  CHECK(bench_judge(&b, "memory") == OUTCOME_PASS);
  CHECK(json_array_size(b.verdict.details) == 7);
  bench_teardown(&b);
  setup(1.06);
  CHECK(bench_judge(&b, "memory") == OUTCOME_FAIL);
  CHECK_TEXT_HAS(b.verdict.worst, "optimizer of rank 1");
  bench_teardown(&b);
  setup(1.0);
  made_set(&b.run, "memory", 0, -1, -1, "got.os_peak_bytes", json_real(1.06 * of(&b.run.data.config).total_bytes));
  CHECK(bench_judge(&b, "memory") == OUTCOME_FAIL);
  CHECK_TEXT_HAS(b.verdict.worst, "measured on rank 0");
  made_set(&b.run, "memory", 0, -1, -1, "got.os_others_bytes", json_real(0.02 * of(&b.run.data.config).total_bytes));
  CHECK(bench_judge(&b, "memory") == OUTCOME_PASS);
  CHECK_TEXT_HAS(b.verdict.sentence, "left out as other ranks' of MPI's segments, at most");
  made_set(&b.run, "memory", 0, -1, -1, "got.peak_bytes", json_real(0.96 * of(&b.run.data.config).total_bytes));
  CHECK(bench_judge(&b, "memory") == OUTCOME_FAIL);
  CHECK_TEXT_HAS(b.verdict.worst, "unaccounted on rank 0");
  bench_teardown(&b);
  setup(1.0);
  made_set(&b.run, "memory", 0, -1, -1, "got.allocations_last", json_integer(41));
  CHECK(bench_judge(&b, "memory") == OUTCOME_FAIL);
  CHECK_TEXT_HAS(b.verdict.worst, "allocations");
  bench_teardown(&b);
  setup_on(DEVICE_CUDA, 1.0);
  made_set(&b.run, "memory", 1, -1, -1, "got.os_peak_bytes", json_integer(-1));
  CHECK(bench_judge(&b, "memory") == OUTCOME_PASS);
  CHECK_TEXT_HAS(b.verdict.sentence, "without the driver's mark");
  bench_teardown(&b);
  setup(1.0); /* on the cpu there always is one */
  made_set(&b.run, "memory", 1, -1, -1, "got.os_peak_bytes", json_integer(-1));
  CHECK(bench_judge(&b, "memory") == OUTCOME_FAIL);
  bench_teardown(&b);
  setup(1.0);
  made_drop(&b.run, "memory", 1, -1, -1);
  CHECK(bench_judge(&b, "memory") == OUTCOME_INVALID);
  bench_teardown(&b);
}

int main(void)
{
  static const struct test tests[] = {
    TEST(parameters_are_the_published_counts),
    TEST(parameters_follow_the_papers_formula),
    TEST(flops_follow_the_papers_formula),
    TEST(buckets_are_filled_from_the_last_parameter),
    TEST(sharded_buckets_are_cut_where_every_shard_has_whole_lines),
    TEST(offloaded_state_leaves_two_buckets_on_the_device),
    TEST(shared_state_is_cut_and_what_is_sent_is_as_much),
    TEST(sums_are_sent_on_a_ring),
    TEST(memory_of_each_part_by_hand),
    TEST(memory_of_what_is_made_again_by_hand),
    TEST(memory_passes_within_the_formula_and_fails_beyond_it),
  };
  return test_main("predict", tests, sizeof tests / sizeof *tests);
}
