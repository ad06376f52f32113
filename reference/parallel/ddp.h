/* ddp.h - gradient buckets reduced over the data-parallel group while backward runs.
 *
 * Lives between backward (which says which rows are ready) and the optimizer (which
 * needs all reduced).  Buckets are reduced in one order on every rank, on the comm's
 * own stream, each after an event of the compute stream; the compute stream waits for
 * them in ddp_finish.  With overlap off all reductions start in ddp_finish: same calls,
 * same buckets, same bits.
 */
#ifndef PARALLEL_DDP_H
#define PARALLEL_DDP_H
#include "comm/comm.h"
#include "params/params.h"

struct ddp;
enum err ddp_create(const struct run_config *run, const struct param_table *table, const struct flat *flat, struct comm *c,
                    struct dev_stream *compute, void *gradients, struct ddp **out);
void ddp_destroy(struct ddp *d);
/* The row's gradient of the last micro-batch is queued: a model_ready, arg = the ddp.  An
 * error is kept and returned by ddp_finish. */
void ddp_ready(void *ddp, int row);
/* All buckets are queued and the compute stream will wait for them. */
enum err ddp_finish(struct ddp *d);
#endif
