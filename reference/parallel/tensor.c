/* tensor.c - gather and reduce at the edges of tensor parallelism, and their planted faults. */
#include "parallel/tensor.h"

#include "base/fault.h"
#include "ops/ops.h"

#include <inttypes.h>
#include <math.h>

static const char *const edge_names[TP_EDGES] = {
    [TP_EDGE_EMBEDDING] = "embedding",
    [TP_EDGE_EMBEDDING_BACKWARD] = "embedding's backward",
    [TP_EDGE_ATTENTION] = "attention",
    [TP_EDGE_ATTENTION_BACKWARD] = "attention's backward",
    [TP_EDGE_MLP] = "mlp",
    [TP_EDGE_MLP_BACKWARD] = "mlp's backward",
    [TP_EDGE_HEAD] = "head",
    [TP_EDGE_HEAD_BACKWARD] = "head's backward",
};

static bool alone(const struct tp *tp) { return tp->comm == NULL || tp->size == 1; }
static bool sharded(const struct tp *tp) { return tp->sequence && !alone(tp); }

int64_t tp_rows(const struct tp *tp, int64_t N) { return sharded(tp) ? N / tp->size : N; }
int64_t tp_row0(const struct tp *tp, int64_t N) { return sharded(tp) ? N / tp->size * tp->rank : 0; }

/* part and full as tensor.h says; without shards they are one. */
static enum err check(const struct tp *tp, const struct tensor *full, const struct tensor *part, enum tp_edge edge)
{
  const int64_t shards = sharded(tp) ? tp->size : 1;
  if (part->rows * shards != full->rows || part->cols != full->cols || part->type != full->type)
    FAIL(ERR_ARG,
         "%s of %d ranks: full is %s [%" PRId64 ", %" PRId64 "], part is %s [%" PRId64 ", %" PRId64
         "], expected 1 of %" PRId64 " shards",
         edge_names[edge], tp->size, dtype_name(full->type), full->rows, full->cols, dtype_name(part->type), part->rows,
         part->cols, shards);
  if (!sharded(tp) && (part->at != full->at || part->stride != full->stride))
    FAIL(ERR_ARG, "%s of %d ranks: full and part are two tensors; without shards of the sequence they are one",
         edge_names[edge], tp->size);
  return ERR_OK;
}

enum err tp_gather(const struct tp *tp, const struct tensor *full, const struct tensor *part, enum tp_edge edge)
{
  TRY(check(tp, full, part, edge));
  if (sharded(tp)) TRY(comm_allgather(tp->comm, full, part));
  return ERR_OK;
}

/* --- planted: some rows, all at strength 1, keep this rank's own term instead of the sum ---------- */

static int64_t rows_lost(const struct tensor *part)
{
  return (int64_t)ceil(fmin(fault_strength, 1.0) * (double)part->rows);
}

static struct tensor rows_of(const struct tensor *t, int64_t first, int64_t rows)
{
  return tensor_part(t, first, rows, 0, t->cols);
}

/* The reduction takes place on the other rows alone.  (With part inside full and a strength below 1 all are summed.) */
static enum err leave_out(const struct tp *tp, const struct tensor *part, const struct tensor *full)
{
  const int64_t lost = rows_lost(part);
  const struct tensor rest = rows_of(part, lost, part->rows - lost), to = rows_of(part, 0, lost),
                      from = rows_of(full, tp_row0(tp, full->rows), lost);
  if (!sharded(tp)) return lost < part->rows ? comm_allreduce(tp->comm, &rest, COMM_SUM) : ERR_OK;
  if (lost < part->rows) TRY(comm_reduce_scatter(tp->comm, part, full, COMM_SUM));
  return from.at == to.at ? ERR_OK : op_copy(comm_stream(tp->comm), &to, &from);
}

/* As when a library makes its argument contiguous first: the sum stands in the copy, which nobody reads. */
static enum err reduce_copy(const struct tp *tp, const struct tensor *full)
{
  struct dev_stream *s = comm_stream(tp->comm);
  const struct tensor lost = rows_of(full, 0, rows_lost(full)), rest = rows_of(full, lost.rows, full->rows - lost.rows);
  void *at;
  TRY(dev_alloc(dev_of(s), (size_t)tensor_count(&lost) * dtype_bytes(full->type), DEV_OTHER, "planted copy", &at));
  const struct tensor copy = tensor_at(at, full->type, lost.rows, full->cols);
  enum err err;
  TRY_TO(done, op_copy(s, &copy, &lost));
  TRY_TO(done, comm_allreduce(tp->comm, &copy, COMM_SUM));
  if (rest.rows > 0) TRY_TO(done, comm_allreduce(tp->comm, &rest, COMM_SUM));
  TRY_TO(done, dev_sync_stream(s)); /* the copy is in use until then */
done:
  dev_free(dev_of(s), at);
  return err;
}

enum err tp_reduce(const struct tp *tp, const struct tensor *part, const struct tensor *full, enum tp_edge edge)
{
  TRY(check(tp, full, part, edge));
  if (alone(tp)) return ERR_OK;
  if (fault_is(FAULT_TP_MISSING_BWD_ALLREDUCE_AT_BOUNDARY) && edge == TP_EDGE_HEAD_BACKWARD)
    return leave_out(tp, part, full);
  if (fault_is(FAULT_TP_NONCONTIGUOUS_INPLACE_ALLREDUCE) && edge >= TP_EDGE_EMBEDDING_BACKWARD && !sharded(tp))
    return reduce_copy(tp, full);
  if (sharded(tp))
    TRY(comm_reduce_scatter(tp->comm, part, full, COMM_SUM));
  else
    TRY(comm_allreduce(tp->comm, full, COMM_SUM));
  return ERR_OK;
}

enum err tp_sum_gradient(const struct tp *tp, const struct tensor *gradient)
{
  if (sharded(tp)) TRY(comm_allreduce(tp->comm, gradient, COMM_SUM));
  return ERR_OK;
}
