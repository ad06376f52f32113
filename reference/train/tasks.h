/* tasks.h - what a rank can measure besides training: kinds `measure` of keys.def.
 *
 *   gemm   square products with edges size, 2 size and 4 size of run.precision, normal random inputs
 *   copy   a buffer of `size` bytes to another, and rows more than 2^31 elements apart, every element checked
 *   comm   each collective on `size` bytes (float32; float64, int32 and strided sums too), every
 *          element of one repeat checked
 *   overlap  products and sums of a step of run.model, together and apart (tasks_overlap.h)
 *   probe  nothing: its `run` and `rank` records say what there is
 * One repeat more than run.repeats is made first and not counted.  Times are the stream's own.
 */
#ifndef TRAIN_TASKS_H
#define TRAIN_TASKS_H

#include "train/output.h"

/* All ranks.  `fatal` as train_run. */
enum err tasks_run(const struct output *o, bool *fatal);
#endif
