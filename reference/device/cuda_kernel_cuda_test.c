/* cuda_kernel_cuda_test.c - what cuda_kernel.cuh promises to every kernel: sums of a fixed order
 * known to all threads, vectors, rounding, shared memory. */
#include "device/cuda_kernel_testing.h"
#include "device/dev_testing.h"

#include "base/bf16.h"

#include <math.h>

enum { MOST = 1024 };
struct bench {
  struct dev *d;
  struct dev_stream *s;
  char *in, *out, *more;
};

static struct bench bench_open(void)
{
  struct bench b = {.d = open_kind(DEV_CUDA)};
  void *at = NULL;
  b.s = stream(b.d, "compute", DEV_COMPUTE);
  CHECK_OK(dev_alloc(b.d, 3 * 32 * MOST * sizeof(double), DEV_OTHER, "bench", &at));
  b.in = at;
  b.out = b.in + 32 * MOST * sizeof(double);
  b.more = b.out + 32 * MOST * sizeof(double);
  return b;
}

static void run(struct bench *b, const char *name, enum err (*cuda)(const struct dev_cuda *at, void *args), const void *args,
                size_t args_bytes, const void *in, void *out, void *more, size_t bytes)
{
  const struct dev_kernel kernel = {.name = name, .cuda = cuda};
  CHECK_OK(dev_copy_in(b->s, b->in, in, bytes));
  CHECK_OK(dev_submit(b->s, &kernel, args, args_bytes, NULL, 0));
  CHECK_OK(dev_copy_out(b->s, out, b->out, bytes));
  if (more != NULL) CHECK_OK(dev_copy_out(b->s, more, b->more, bytes));
  CHECK_OK(dev_sync(b->d));
}

/* The order that the header states: 16 apart first, lanes of a warp, then warps. */
static float tree(const float *x, int n)
{
  float sum[32] = {0};
  for (int i = 0; i < 32; i++) sum[i] = i < n ? x[i] : 0;
  for (int apart = 16; apart > 0; apart /= 2)
    for (int i = 0; i < apart; i++) sum[i] += sum[i + apart];
  return sum[0];
}

static void a_blocks_sum_is_the_stated_tree_for_all_threads(void)
{
  struct bench b = bench_open();
  for (int threads = 32; threads <= MOST; threads += threads < 128 ? 32 : 224) {
    const struct reduce_args args = {b.in, b.out, b.more, threads};
    float in[MOST], out[MOST], most[MOST], warps[32], want_most = -1e30f;
    for (int i = 0; i < threads; i++) in[i] = sinf((float)(i * 37 + threads)) * 10 - 20;
    for (int i = 0; i < threads; i++) want_most = fmaxf(want_most, in[i]);
    for (int w = 0; w < threads / 32; w++) warps[w] = tree(in + 32 * w, 32);
    const float want = tree(warps, threads / 32);
    run(&b, "reduce", reduce_f32_cuda, &args, sizeof args, in, out, most, (size_t)threads * sizeof *in);
    bool same = true;
    for (int i = 0; i < threads; i++) same = same && out[i] == want && most[i] == want_most;
    CHECK(same);
  }
  dev_close(b.d);
}

static void sums_of_double_are_double(void)
{
  struct bench b = bench_open();
  const struct reduce_args args = {b.in, b.out, b.more, 256};
  double in[256], out[256], most[256];
  for (int i = 0; i < 256; i++) in[i] = i == 7 ? 1.0 : ldexp(1.0, -40);
  run(&b, "reduce", reduce_f64_cuda, &args, sizeof args, in, out, most, sizeof in);
  CHECK(out[0] == 1.0 + 255 * ldexp(1.0, -40) && out[255] == out[0] && most[100] == 1.0);
  dev_close(b.d);
}

static void each_warp_has_its_own(void)
{
  struct bench b = bench_open();
  const struct reduce_args args = {b.in, b.out, b.more, 96};
  float in[96], out[96], most[96];
  for (int i = 0; i < 96; i++) in[i] = (float)(i % 7) + 100.0f * (float)(i / 32);
  run(&b, "warps", warps_f32_cuda, &args, sizeof args, in, out, most, sizeof in);
  for (int i = 0; i < 96; i++) CHECK(out[i] == tree(in + i / 32 * 32, 32) && most[i] == 6 + 100.0f * (float)(i / 32));
  dev_close(b.d);
}

static void a_maximum_keeps_nan(void)
{
  struct bench b = bench_open();
  const int places[] = {0, 1, 31, 32, 63};
  const struct reduce_args args = {b.in, b.out, b.more, 64};
  for (size_t k = 0; k < sizeof places / sizeof *places; k++) {
    float in[64], out[64], most[64];
    for (int i = 0; i < 64; i++) in[i] = (float)i;
    in[places[k]] = NAN;
    run(&b, "reduce", reduce_f32_cuda, &args, sizeof args, in, out, most, sizeof in);
    bool all = true;
    for (int i = 0; i < 64; i++) all = all && isnan(most[i]) && isnan(out[i]);
    CHECK(all);
  }
  dev_close(b.d);
}

static void bf16_is_rounded_once_to_nearest_even(void)
{
  struct bench b = bench_open();
  enum { N = 1016 };
  const struct round_args args = {(const float *)b.in, (float *)b.out, b.more, N};
  float in[N], out[N];
  for (int i = 0; i < N; i++) in[i] = ldexpf(1.0f + (float)(i * 65 % 4096) / 4096.0f, i % 40 - 20) * (i % 3 ? 1 : -1);
  run(&b, "round", round_bf16_cuda, &args, sizeof args, in, out, NULL, sizeof in);
  bool same = true;
  for (int i = 0; i < N; i++) same = same && out[i] == bf16_widen(bf16_round(in[i]));
  CHECK(same);
  dev_close(b.d);
}

static void dynamic_shared_memory_may_be_large(void)
{
  struct bench b = bench_open();
  const int counts[] = {100, 12288, 16000}; /* 12288 floats are 48 KiB */
  static float in[16000], out[16000];
  for (size_t k = 0; k < sizeof counts / sizeof *counts; k++) {
    const struct round_args args = {(const float *)b.in, (float *)b.out, NULL, counts[k]};
    for (int i = 0; i < counts[k]; i++) in[i] = (float)i + 0.5f;
    run(&b, "reverse", reverse_cuda, &args, sizeof args, in, out, NULL, (size_t)counts[k] * sizeof *in);
    bool same = true;
    for (int i = 0; i < counts[k]; i++) same = same && out[i] == in[counts[k] - 1 - i];
    CHECK(same);
  }
  dev_close(b.d);
}

int main(void)
{
  static const struct test tests[] = {
      TEST(a_blocks_sum_is_the_stated_tree_for_all_threads),
      TEST(sums_of_double_are_double),
      TEST(each_warp_has_its_own),
      TEST(a_maximum_keeps_nan),
      TEST(bf16_is_rounded_once_to_nearest_even),
      TEST(dynamic_shared_memory_may_be_large),
  };
  return test_main("cuda_kernel", tests, sizeof tests / sizeof *tests);
}
