/* predict.h - parts of the closed formulas that checks share with predict(). */
#ifndef CHECKS_PREDICT_H
#define CHECKS_PREDICT_H

#include "judge.h"
#include "layout.h"

enum { PREDICT_ALIGN = 256 }; /* bytes that each parameter's place in a flat buffer is padded to */

/* Elements of a rank's flat buffer: every parameter that it has, each padded to PREDICT_ALIGN times the shards of its
 * state; unused ones have a place too. */
double predict_flat(const struct run_config *c, const struct layout *at);
/* Gradient buckets of one reduction, last parameter first: a parameter that does not fit in what is left of a
 * bucket starts the next, one that fits exactly is taken, a larger one is cut from its end into whole buckets.  A tied
 * matrix that two stages have fills buckets of its own.  Where state is sharded the cuts of a larger one are moved down to
 * whole lines of every shard, and a bucket has parameters of one block only, or of those outside blocks that every stage has
 * together or not at all.  counts (may be NULL) gets up to max of them, padding
 * included; returns how many there are. */
int64_t predict_buckets(const struct run_config *c, const struct layout *at, int64_t *counts, int64_t max);
/* A parameter's place, in elements. */
int64_t predict_padded(const struct run_config *c, int64_t elements);
/* What is gathered or reduced together (zero 2 and 3): the parameters before the blocks, each block of the rank that owns its
 * parameters, those after the blocks; and their buckets, by number.  Owner of *out: the caller, free().  Fails: ERR_MEMORY. */
struct predicted_unit {
  int64_t count; /* elements, padding included */
  int first_bucket, buckets;
};
enum err predict_units(const struct run_config *c, const struct layout *at, struct predicted_unit **out, int *n);
/* Of the parameter table: each block's, reused or not. */
double predict_rows(const struct run_config *c);
struct partition predict_stages(const struct run_config *c);
/* Layers of the rank's largest chunk, and of all. */
double predict_layers(const struct run_config *c, const struct layout *at, double *all);
/* Bytes of the rank's activations at their peak. */
double predict_activations(const struct run_config *c, const struct layout *at);
/* What predict() says of the worst rank, of the rank at `at`. */
void predict_at(const struct run_config *c, const struct layout *at, struct predicted *out);

#endif
