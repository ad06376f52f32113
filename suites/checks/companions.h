/* companions.h - the runs that a check needs beside the case, derived from its settings.
 *
 * Pure: of the config alone.  Settings that cannot change what a companion shows are reset to
 * their defaults, so that cases which differ in layout, buckets or overlap share one truth.
 */
#ifndef CHECKS_COMPANIONS_H
#define CHECKS_COMPANIONS_H

#include "judge.h"

enum { COMPANIONS_NOISE = 8, COMPANIONS_CURVE = 3 };

/* One rank, float64 on the CPU, the case's weights and batches, no fault: role "truth". */
int companions_truth(const struct run_config *c, struct companion *out, int max);
/* truth, and noise0..7: legal serial runs in the case's precision, on its device (lazy: the CPU).  Each permutes the micro-batches;
 * every other one also splits sums as the layout does: over as many accumulators as it has replicas, or
 * products into as many parts as it has tensor ranks (by turns if it has both). */
int companions_noise(const struct run_config *c, struct companion *out, int max);
/* serial, and serial0..2: serial runs in the case's precision, the latter with micro-batches permuted, every other one
 * of them with products split into as many parts as the case has tensor ranks. */
int companions_curve(const struct run_config *c, struct companion *out, int max);
/* plan: one rank that makes the case's batches, every step's, and sleeps through the passes of a model of next to nothing. */
int companions_plan(const struct run_config *c, struct companion *out, int max);
/* blocks: the first step in float64, with the outputs of blocks of its last micro-batch. */
int companions_blocks(const struct run_config *c, struct companion *out, int max);
int companions_rerun(const struct run_config *c, struct companion *out, int max);
/* All overlap off; none where there is nothing that could overlap. */
int companions_overlap_off(const struct run_config *c, struct companion *out, int max);
/* Without planted delays; none where there are none. */
int companions_undelayed(const struct run_config *c, struct companion *out, int max);
/* None where all activations are kept already. */
int companions_recompute_off(const struct run_config *c, struct companion *out, int max);
/* None where all state is on the device already. */
int companions_offload_off(const struct run_config *c, struct companion *out, int max);
/* What must be equal in bits: the same replicas and tensor ranks without the pipeline's cut; without tensor ranks the
 * serial run with one accumulator a replica.  None where nothing is cut but tensors, or where sums over ranks have no
 * fixed order. */
int companions_twin(const struct run_config *c, struct companion *out, int max);

/* A companion found again by role: false and a verdict of INVALID that names it if it is missing or did not run to
 * its end.  Truth and noise together: noise.h. */
bool companions_have(const struct companion *wanted, const struct run_data *const *companions, int n, const char *role,
                     const struct run_data **out, struct verdict *v);
bool companions_have_truth(const struct companion *wanted, const struct run_data *const *companions, int n,
                           const struct run_data **truth, struct verdict *v);
bool companions_have_curve(const struct companion *wanted, const struct run_data *const *companions, int n,
                           const struct run_data **serial, const struct run_data *noise[COMPANIONS_CURVE],
                           struct verdict *v);

#endif
