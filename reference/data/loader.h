/* loader.h - the micro-batches of a step, read ahead by a thread of its own.
 *
 * What is read is the pure function of data.h: when it is read changes none of it.  Which step comes after which is known
 * before: 0, 1, ..., and after every run.evaluate_each-th the batches of an evaluation.  Sets of a step's batches go round: one is the
 * caller's, at most run.read_ahead more are read or being read; with read_ahead 0 there is no thread, and the caller reads.
 *
 * What a read fails with surfaces, with its text, when the step that needed it is asked for; nothing is read after it.
 * Reads of chosen ranks can be made to take longer (run.read_*): loader_planted_ms.
 */
#ifndef DATA_LOADER_H
#define DATA_LOADER_H

#include "data/data.h"
#include "device/dev.h"

struct loader;
struct loader_config {
  const struct run_config *run;
  struct dev *dev; /* its copies reach the batches directly: dev_host_alloc */
  enum err (*read)(void *arg, int64_t step, int64_t microbatch, struct batch *out); /* as data_plan_batch; by one thread at a time */
  void *arg;
  const int64_t *numbers; /* [n] of this rank's micro-batches, in the whole step */
  int64_t n;
  int rank; /* of the job */
};

/* Reading begins at once, with step 0.  The loader keeps its own copy of run and numbers; dev and arg must outlive it.
 * Owner of *out: the caller.  Fails: ERR_MEMORY, ERR_DEVICE. */
enum err loader_create(const struct loader_config *config, struct loader **out);
void loader_destroy(struct loader *l); /* ends a planted delay; no queued work may still use a batch; NULL is allowed */

/* The n micro-batches of `step` (below 0: of evaluation batch -1 - step), in the order of `numbers`.  The loader's, unchanged until
 * the next call, before which the host has waited for all that was queued on them.  A step that is not the next one makes
 * reading begin anew there.  Fails: as `read`. */
enum err loader_take(struct loader *l, int64_t step, const struct batch **out);
/* Steps that are read and not yet taken. */
int64_t loader_ahead(struct loader *l);

/* What is planted before the reads of a step on this rank: run.read_delay_ms, below run.read_jitter_ms more, drawn from delay_seed,
 * step and rank, and in run.read_stall_step run.read_stall_ms more.  0 for ranks that run.read_ranks does not name, and in evaluation. */
double loader_planted_ms(const struct run_config *run, int rank, int64_t step);

#endif
