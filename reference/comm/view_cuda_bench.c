/* view_cuda_bench.c - packing of views, and sums in rank order, against the rate at which the card copies.
 *
 *   view_cuda_bench [repeats]
 */
#include "comm/view_cuda.h"
#include "device/dev_cuda.h"
#include "ops/gpu_bench.h"

enum { RANKS = 8 };

struct copy_args {
  struct tensor to, from;
};
static enum err copy_it(const struct dev_cuda *at, void *args)
{
  const struct copy_args *a = args;
  return view_cuda_copy(at, &a->to, 0, &a->from, 0, tensor_count(&a->from));
}
static enum err copy(const struct tensor *to, const struct tensor *from)
{
  static const struct dev_kernel kernel = {.name = "pack", .cuda = copy_it};
  const struct copy_args args = {*to, *from};
  return dev_submit(stream, &kernel, &args, sizeof args, NULL, 0);
}

struct reduce_args {
  void *parts;
  int64_t count;
  enum dtype type;
};
static enum err reduce_it(const struct dev_cuda *at, void *args)
{
  const struct reduce_args *a = args;
  return view_cuda_reduce(at, a->parts, RANKS, a->count, a->type, false);
}
static enum err reduce(const struct tensor *parts)
{
  static const struct dev_kernel kernel = {.name = "reduce", .cuda = reduce_it};
  const struct reduce_args args = {parts->at, parts->cols, parts->type};
  return dev_submit(stream, &kernel, &args, sizeof args, NULL, 0);
}

int main(int argc, char **argv)
{
  const int status = bench_open(argc, argv);
  if (status != STATUS_PASS) return status;
  const int64_t rows = gpu ? 32768 : 64, cols = gpu ? 4800 : 48, share = gpu ? 1 << 25 : 1 << 12;
  const struct tensor wide = work(rows, cols), packed = work(rows, cols / 3), all = work(rows, cols);
  const struct tensor third = tensor_part(&wide, 0, rows, cols / 3, cols / 3), floats = state(RANKS, share), narrow = work(RANKS, share);
  const double bytes = 2.0 * 2.0 * (double)tensor_count(&packed);
  ceilings(&wide, &all);
  ROW("pack a third of each row", 0, bytes, copy(&packed, &third));
  ROW("unpack it", 0, bytes, copy(&third, &packed));
  ROW("sum of 8 ranks, float32", 0, 4.0 * (RANKS + 1) * (double)share, reduce(&floats));
  ROW("sum of 8 ranks, bf16", 0, 2.0 * (RANKS + 1) * (double)share, reduce(&narrow));
  bench_close();
  return STATUS_PASS;
}
