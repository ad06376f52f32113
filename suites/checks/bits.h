/* bits.h - two runs that must be equal in every bit that they showed: losses, norms, gradients, weights. */
#ifndef CHECKS_BITS_H
#define CHECKS_BITS_H

#include "evidence.h"
#include "verdict.h"

/* same_layout: every rank's records and replica hashes too; otherwise what does not name a rank: micro-batch
 * losses, rank 0's step, rank 0's dumps.  Fills out. */
void bits_compare(const struct run_data *run, const struct run_data *other, const char *role, bool same_layout, struct verdict *out);

#endif
