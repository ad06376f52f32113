/* reduce.c - sum, sum of squares and largest magnitude of a whole tensor, into f64 [1, 1].
 *
 * The elements are taken in row order whatever the row stride, so equal contents give equal
 * bits.  Chunks of CHUNK elements are summed in double, in lanes (vector.h); the chunks' sums
 * are added in index order.  Threads share out chunks and change nothing.
 */
#include "ops/reduce_args.h"
#include "ops/op_submit.h"
#include "ops/vector.h"

enum { CHUNK = 4096, BATCH = 512 }; /* chunks summed before their sums are added: bounds the stack */

typedef uint16_t bits_bf16, bits_f16;
typedef uint32_t bits_f32;
typedef uint64_t bits_f64;

#define KERNELS "ops/reduce_cpu.h"
#include "ops/each_type.h"

OP_KERNELS(op_sum);
OP_KERNELS(op_sum_squares);
OP_KERNELS(op_max_abs);

static enum err submit(struct dev_stream *s, const struct dev_kernel kernels[DTYPE_COUNT], const struct tensor *out,
                       const struct tensor *x)
{
  TRY(op_expect_real("x", x));
  TRY(op_expect("out", out, DTYPE_F64, 1, 1));
  const struct reduce_args args = {*out, *x};
  return OP_SUBMIT(s, &kernels[x->type], args, {out, OP_WRITE}, {x, OP_READ});
}

enum err op_sum(struct dev_stream *s, const struct tensor *out, const struct tensor *x)
{
  return submit(s, op_sum_kernels, out, x);
}
enum err op_sum_squares(struct dev_stream *s, const struct tensor *out, const struct tensor *x)
{
  return submit(s, op_sum_squares_kernels, out, x);
}
enum err op_max_abs(struct dev_stream *s, const struct tensor *out, const struct tensor *x)
{
  return submit(s, op_max_abs_kernels, out, x);
}
