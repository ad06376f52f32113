/* zero.h - where the weights that products read stand, and from when on they may be read.
 *
 * The parameters of a rank come in units (struct flat_unit): what stands before the blocks, each block, what
 * stands after them.  Around each use of a unit in a pass the model says
 *
 *   zero_need(z, unit, pass)   the compute stream waits until the weights are there
 *   zero_weights(z, unit)      where the unit's first element is, until
 *   zero_done(z, unit)         the use is queued
 *
 * Stages 0, 1 and 2 of run->zero keep all weights in one flat buffer.
 */
#ifndef PARALLEL_ZERO_H
#define PARALLEL_ZERO_H
#include "comm/comm.h"
#include "params/params.h"

struct zero;

struct zero_config {
  const struct run_config *run;
  const struct param_table *table;
  const struct flat *flat; /* of this place */
  struct dev_stream *compute;
  void *weights; /* flat buffer of run_work_type */
};

enum zero_pass { ZERO_FORWARD, ZERO_BACKWARD };

/* Owner of *out: the caller.  Fails: ERR_MEMORY. */
enum err zero_create(const struct zero_config *c, struct zero **out);
void zero_destroy(struct zero *z); /* NULL is allowed */

enum err zero_need(struct zero *z, int unit, enum zero_pass pass);
void *zero_weights(const struct zero *z, int unit);
enum err zero_done(struct zero *z, int unit);

#endif
