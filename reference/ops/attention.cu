/* attention.cu - attention on CUDA: which kernels run, on what.  The contract is attention.c's.
 *
 * bf16 and f16 run on tensor cores (attention_mma.cuh) up to heads of MMA_D_MAX; other types and wider heads by the scalar
 * form (attention_scalar.cuh).  The backward runs one kernel for dq and one for dk and dv, each recomputing scores:
 * 14 D FLOPs a pair of query and key instead of 10 D, and no sum whose order could change.
 *
 * The workspace holds the ranges of document ids and, in a backward, lse and delta of as many sequences as fit; the
 * rest follow in further launches.
 */
#include "ops/attention_mma.cuh"
#include "ops/attention_scalar.cuh"

enum { MMA_D_MAX = 160, GRAINS_THREADS = 128 };

static bool aligned(const struct tensor *t) { return t->at == NULL || vector_aligned(t); }

/* The case of `args`; ids of its documents are in the workspace when the stream gets there. */
static enum err begin(const struct dev_cuda *at, const struct attention_args *args, size_t stats_bytes,
                      struct attention_case *c)
{
  memset(c, 0, sizeof *c);
  c->a = *args;
  c->T = (int)args->docs.cols;
  c->D = (int)(args->o.cols / args->heads);
  c->scale = 1.0 / sqrt((double)c->D);
  c->aligned = aligned(&args->qkv) && aligned(&args->o) && aligned(&args->d_o) && aligned(&args->dqkv) &&
               (size_t)c->D * dtype_bytes(args->o.type) % 16 == 0;
  const int64_t n = args->docs.rows * grains_in(c->T);
  const size_t grains_bytes = ((size_t)n * sizeof(struct ids) + 255) / 256 * 256,
               sequence_bytes = (size_t)(row_stats_rows(c->T) * args->heads) * stats_bytes,
               least = grains_bytes + sequence_bytes;
  if (least > at->workspace_bytes)
    FAIL(ERR_MEMORY, "attention needs %zu bytes of workspace for %d positions and %d heads, the stream has %zu", least,
         c->T, args->heads, at->workspace_bytes);
  c->grains = (struct ids *)at->workspace;
  c->stats = (char *)at->workspace + grains_bytes;
  const int64_t fit =
      sequence_bytes == 0 ? args->docs.rows : (int64_t)((at->workspace_bytes - grains_bytes) / sequence_bytes);
  c->sequences = fit < args->docs.rows ? fit : args->docs.rows;
  return LAUNCH(at, grains_kernel, blocks_for(n, GRAINS_THREADS / WARP), GRAINS_THREADS, 0, *c);
}

/* Blocks for tiles of `rows` positions of the heads of this launch. */
static dim3 grid_of(const struct attention_case *c, int rows, int parts)
{
  const int64_t tiles = (c->T + rows - 1) / rows;
  return dim3((unsigned)(c->sequences * c->a.heads * tiles), (unsigned)parts);
}

/* --- tensor cores ----------------------------------------------------------------------------- */

/* For each head size, rounded up: 16-row pieces a warp takes, columns that are brought at once, and in the
 * backward columns whose scores are in registers at once.  Chosen so that nothing spills at 255 registers and that
 * two blocks fit an SM. */
#define FORWARD_SHAPES(X) X(16, 2, 64) X(32, 2, 64) X(64, 2, 64) X(96, 2, 32) X(128, 2, 32) X(160, 1, 32)
#define BACKWARD_SHAPES(X) \
  X(16, 2, 64, 32) X(32, 2, 64, 32) X(64, 2, 64, 32) X(96, 1, 64, 32) X(128, 1, 32, 32) X(160, 1, 32, 16)

template <typename T> static enum err forward(const struct dev_cuda *at, const struct attention_case *c)
{
#define TRY_SHAPE(DP, ATOMS, COLUMNS)                                                     \
  if (c->D <= DP) {                                                                       \
    enum { ROWS = MMA_WARPS * ATOMS * 16 };                                            \
    return LAUNCH(at, (mma_fwd<T, DP, ATOMS, COLUMNS>), grid_of(c, ROWS, 1), MMA_THREADS, \
                  (size_t)(ROWS + 4 * COLUMNS) * (DP + 8) * sizeof(T), *c);            \
  }
  FORWARD_SHAPES(TRY_SHAPE)
#undef TRY_SHAPE
  FAIL(ERR_ARG, "no tensor core form for heads of %d", c->D);
}

template <typename T> static enum err backward(const struct dev_cuda *at, const struct attention_case *c)
{
#define TRY_SHAPE(DP, ATOMS, COLUMNS, GROUP)                                                                \
  if (c->D <= DP) {                                                                                         \
    enum { ROWS = MMA_WARPS * ATOMS * 16 };                                                                 \
    const size_t bytes = (size_t)(2 * ROWS + 4 * COLUMNS) * (DP + 8) * sizeof(T);                              \
    TRY(LAUNCH(at, (mma_bwd_kv<T, DP, ATOMS, COLUMNS, GROUP>), grid_of(c, ROWS, 1), MMA_THREADS,               \
               bytes + 2 * COLUMNS * sizeof(struct row_stats<float>), *c));                                    \
    return LAUNCH(at, (mma_bwd_q<T, DP, ATOMS, COLUMNS, GROUP>), grid_of(c, ROWS, 1), MMA_THREADS, bytes, *c); \
  }
  BACKWARD_SHAPES(TRY_SHAPE)
#undef TRY_SHAPE
  FAIL(ERR_ARG, "no tensor core form for heads of %d", c->D);
}

/* --- every type -------------------------------------------------------------------------------- */

/* NULL: T has none. */
typedef enum err tensor_core_form(const struct dev_cuda *at, const struct attention_case *c);

template <typename T> static enum err run_fwd(const struct dev_cuda *at, void *args, tensor_core_form *form)
{
  struct attention_case c;
  TRY(begin(at, (const struct attention_args *)args, 0, &c));
  if (form != NULL && c.D <= MMA_D_MAX) return form(at, &c);
  return LAUNCH(at, scalar_fwd<T>, grid_of(&c, SIDE, (c.D + SIDE - 1) / SIDE), SCALAR_THREADS, 0, c);
}

template <typename T> static enum err run_bwd(const struct dev_cuda *at, void *args, tensor_core_form *form)
{
  struct attention_case c;
  TRY(begin(at, (const struct attention_args *)args, sizeof(struct row_stats<stat_t<T>>), &c));
  const bool tensor_cores = form != NULL && c.D <= MMA_D_MAX;
  const int64_t all = c.a.docs.rows, at_once = c.sequences;
  for (; c.sequence < all; c.sequence += at_once) {
    if (c.sequences > all - c.sequence) c.sequences = all - c.sequence;
    TRY(LAUNCH(at, stats_kernel<T>,
               blocks_for(c.sequences * c.a.heads * row_stats_rows(c.T), STATS_THREADS / STATS_LANES), STATS_THREADS, 0,
               c, tensor_cores ? LOG2_E : 1.0));
    if (tensor_cores) {
      TRY(form(at, &c));
      continue;
    }
    const dim3 grid = grid_of(&c, SIDE, (c.D + SIDE - 1) / SIDE);
    TRY(LAUNCH(at, scalar_bwd_kv<T>, grid, SCALAR_THREADS, 0, c));
    TRY(LAUNCH(at, scalar_bwd_q<T>, grid, SCALAR_THREADS, 0, c));
  }
  return ERR_OK;
}

extern "C" {
enum err op_attention_fwd_cuda_f64(const struct dev_cuda *at, void *args) { return run_fwd<double>(at, args, NULL); }
enum err op_attention_fwd_cuda_f32(const struct dev_cuda *at, void *args) { return run_fwd<float>(at, args, NULL); }
enum err op_attention_fwd_cuda_bf16(const struct dev_cuda *at, void *args) { return run_fwd<__nv_bfloat16>(at, args, forward<__nv_bfloat16>); }
enum err op_attention_fwd_cuda_f16(const struct dev_cuda *at, void *args) { return run_fwd<__half>(at, args, forward<__half>); }
enum err op_attention_bwd_cuda_f64(const struct dev_cuda *at, void *args) { return run_bwd<double>(at, args, NULL); }
enum err op_attention_bwd_cuda_f32(const struct dev_cuda *at, void *args) { return run_bwd<float>(at, args, NULL); }
enum err op_attention_bwd_cuda_bf16(const struct dev_cuda *at, void *args) { return run_bwd<__nv_bfloat16>(at, args, backward<__nv_bfloat16>); }
enum err op_attention_bwd_cuda_f16(const struct dev_cuda *at, void *args) { return run_bwd<__half>(at, args, backward<__half>); }
}
