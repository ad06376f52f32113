/* dropout.c - y = x * keep / (1 - p), keep drawn by counter.  Srivastava et al. 2014, inverted form.
 *
 *   x, y [n, C], the rows row0.. of B * T   samples i32 [B, 1]   step i32 [1, 1]
 *
 * Element (b, t, c) is kept when word ((samples[b] * positions_max + t) * C + c) of the key with
 * this step is at least p * 2^32, so the mask is that of the global token whatever the cut.  The
 * words are those of rng_block(), computed here for many blocks at once.  Its own backward.
 */
#include "ops/dropout_args.h"
#include "ops/op_submit.h"
#include "ops/vector.h"

#include "base/philox.h"

enum { BLOCKS = PIECE / 4 + 1 }; /* hold any PIECE words that follow one another */

/* words[4 * i + j] = word j of block first + i.  Philox4x32-10, see base/philox.h. */
CLONES static void draw_blocks(struct rng_key key, uint64_t first, int64_t n, uint32_t words[4 * BLOCKS])
{
  uint32_t a[BLOCKS], b[BLOCKS], c[BLOCKS], d[BLOCKS];
  SIMD for (int64_t i = 0; i < n; i++)
  {
    const uint64_t block = first + (uint64_t)i;
    a[i] = (uint32_t)block;
    b[i] = (uint32_t)(block >> 32);
    c[i] = key.purpose;
    d[i] = key.step;
  }
  uint32_t k0 = (uint32_t)key.seed, k1 = (uint32_t)(key.seed >> 32);
  for (int round = 0; round < PHILOX_ROUNDS; round++, k0 += PHILOX_WEYL_0, k1 += PHILOX_WEYL_1) {
    SIMD for (int64_t i = 0; i < n; i++)
    {
      const uint64_t p0 = (uint64_t)PHILOX_MULTIPLIER_0 * a[i], p1 = (uint64_t)PHILOX_MULTIPLIER_1 * c[i];
      a[i] = (uint32_t)(p1 >> 32) ^ b[i] ^ k0;
      b[i] = (uint32_t)p1;
      c[i] = (uint32_t)(p0 >> 32) ^ d[i] ^ k1;
      d[i] = (uint32_t)p0;
    }
  }
  SIMD for (int64_t i = 0; i < n; i++)
  {
    words[4 * i] = a[i];
    words[4 * i + 1] = b[i];
    words[4 * i + 2] = c[i];
    words[4 * i + 3] = d[i];
  }
}

#define KERNELS "ops/dropout_cpu.h"
#include "ops/each_type.h"

OP_KERNELS(op_dropout);

enum err op_dropout(struct dev_stream *s, const struct tensor *y, const struct tensor *x, double p, struct rng_key key,
                    const struct tensor *step, const struct tensor *samples, int64_t positions_max, int64_t sequence,
                    int64_t row0)
{
  TRY(op_expect_real("x", x));
  TRY(OP_EXPECT({"y", y, x->type, x->rows, x->cols}, {"step", step, DTYPE_I32, 1, 1},
                {"samples", samples, DTYPE_I32, -1, 1}));
  if (!(p >= 0 && p < 1)) FAIL(ERR_ARG, "dropout probability %.17g, expected 0 <= p < 1", p);
  if (sequence < 1 || sequence > positions_max)
    FAIL(ERR_ARG, "%" PRId64 " positions a sample, expected 1..%" PRId64, sequence, positions_max);
  if (row0 < 0 || row0 > samples->rows * sequence - x->rows)
    FAIL(ERR_ARG, "x has the rows from %" PRId64 ", %" PRId64 " of them; %" PRId64 " samples have %" PRId64, row0,
         x->rows, samples->rows, samples->rows * sequence);
  const struct dropout_args args = {.y = *y,
                                    .x = *x,
                                    .step = *step,
                                    .samples = *samples,
                                    .key = key,
                                    .T = sequence,
                                    .row0 = row0,
                                    .positions_max = positions_max,
                                    .threshold = (uint32_t)(p * 0x1p32),
                                    .scale = 1 / (1 - p)};
  return OP_SUBMIT(s, &op_dropout_kernels[x->type], args, {y, OP_WRITE}, {x, OP_READ}, {step, OP_READ},
                   {samples, OP_READ});
}
