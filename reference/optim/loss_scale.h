/* loss_scale.h - the factor on losses that keeps gradients of half precision from vanishing, and who overflowed.
 *
 * The factor is on the device, and so is the decision: a step is skipped if one gradient of one rank was not finite
 * before it was added to those of other replicas (after it, every replica's is, and nobody can say whose it was).  One
 * collective over all ranks of the job: they skip the same steps, and know the same rank.  Sums over replicas need no look of their
 * own: products of finite halves are below 2^32, so that no sum of them in float32 or bf16 comes near its range.
 */
#ifndef OPTIM_LOSS_SCALE_H
#define OPTIM_LOSS_SCALE_H

#include "base/config.h"
#include "comm/comm.h"

struct loss_scale;
struct loss_scale_config {
  const struct run_config *run; /* loss_scale above 0 */
  struct dev *dev;
  struct dev_stream *compute;
  struct comm *all;      /* on compute, over every rank of the job; NULL: this one is alone   */
  struct tensor largest; /* as op_overflow: magnitudes of this rank's own gradients, which may
                          * be read from the compute stream when the decision is queued       */
  int stage, rank;       /* of this one in the pipeline and in the job                        */
};
/* Owner of *out: the caller.  Fails: ERR_MEMORY. */
enum err loss_scale_create(const struct loss_scale_config *config, struct loss_scale **out);
void loss_scale_destroy(struct loss_scale *l); /* NULL is allowed */
/* All ranks of `all`, once a step.  Queue the decision. */
enum err loss_scale_decide(struct loss_scale *l);

/* f64 [1,1] on the device.  next: what the losses of a step are multiplied by, until its decision.  Of the last
 * decision: inverse, 1 / the scale of that step, and skip, 1 or 0. */
struct tensor loss_scale_next(const struct loss_scale *l), loss_scale_inverse(const struct loss_scale *l),
    loss_scale_skip(const struct loss_scale *l);

/* What a step says of it, read back from the device. */
struct loss_scale_said {
  double scale; /* of the step */
  bool skipped;
  int rank; /* the first whose gradient was not finite; -1: none */
};
enum { LOSS_SCALE_NUMBERS = 5 };
enum err loss_scale_read(const struct loss_scale *l, double numbers[LOSS_SCALE_NUMBERS]); /* queued on compute */
struct loss_scale_said loss_scale_say(const double numbers[LOSS_SCALE_NUMBERS]);

#endif
