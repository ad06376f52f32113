/* checks.h - the checks, one row each: name, observable, companions, meaning.
 *
 * A row's judge is the function <name>_judge in <name>.c (those that compare bits
 * share bits.c, those of long runs curve.c, those of overlap overlap.c, cost and gain pace.c, heaviest imbalance.c, samples batch.c).  To add one: a row here and a file with its function.
 */
#ifndef CHECKS_CHECKS_H
#define CHECKS_CHECKS_H

#include "companions.h"
#include "hidden.h"
#include "judge.h"
#include "pace.h"
#include "policies.h"

#define CHECKS_LIST(CHECK)                                                                                              \
  CHECK(ends, "O14", NULL, "the run ended by itself, every rank told of every step once and closed its records")        \
  CHECK(finite, "O3", NULL, "every loss, norm, factor, gradient and weight is a finite number")                         \
  CHECK(initial, "O1", companions_truth, "same parameters, shapes and initial contents as the truth; count by formula") \
  CHECK(batch, "O2", companions_truth, "the same samples, tokens and micro-batches as the serial run, each once")       \
  CHECK(samples, "O2", companions_plan, "the same against a serial run that makes the batches and computes nothing")    \
  CHECK(loss, "O3", companions_noise, "loss sums and counts per micro-batch and step, and evaluation, against the truth") \
  CHECK(gradients, "O4", companions_noise, "every parameter's reduced gradient at every step against the truth")        \
  CHECK(norm, "O5", companions_noise, "gradient norm against the truth and against the run's own gradients")            \
  CHECK(update, "O6", NULL, "clip factor, learning rate, moments and weights recomputed from the observed gradients")   \
  CHECK(scale, "O7", NULL, "the loss scale by its closed form; every rank skips the same steps and names the same rank")  \
  CHECK(replicas, "O7", NULL, "what must be equal on all ranks of a group has equal hashes")                            \
  CHECK(rerun, "O8", companions_rerun, "the same run again gives the same bits")                                        \
  CHECK(overlap_off, "O8", companions_overlap_off, "the same run without overlap gives the same bits")                  \
  CHECK(undelayed, "O8", companions_undelayed, "the same run without its planted delays gives the same bits")           \
  CHECK(recompute_off, "O8", companions_recompute_off, "the same run that keeps all activations gives the same bits")   \
  CHECK(offload_off, "O8", companions_offload_off, "the same run that keeps all state on the device gives the same bits")  \
  CHECK(twin, "O8", companions_twin, "pipeline cuts and rank-ordered replicas equal in bits the run without them") \
  CHECK(trace, "O11", NULL, "every rank queues the same collectives, and those that the plan predicts")                 \
  CHECK(memory, "O12", NULL, "peak memory a rank and category against the closed formula; nothing allocated in steps")  \
  CHECK(clock, "O13", NULL, "a step's time is no shorter than its parts, the run's no shorter than its steps")          \
  CHECK(bubble, "O13", NULL, "idle time of pipeline stages beside their list simulated with the run's median times")     \
  CHECK(blame, "O13", NULL, "the rank and phase that are waited for, at what cost; beside the slowness that was planted")  \
  CHECK(overlap, "O13", hidden_companions, "share of the transfers over replicas that compute hides; by the clock and by the streams") \
  CHECK(bare, "O13", hidden_companions, "hides at least 0.9 of what a bare program with the same products and transfers does") \
  CHECK(cost, "O13", cost_companions, "a step with sharded states takes at most 1.05 times one without")                 \
  CHECK(tracing, "O13", tracing_companions, "a step whose spans are recorded takes at most 1.01 times one without")        \
  CHECK(gain, "O13", gain_companions, "where the processor multiplies bf16, a step in it is at least 1.4 times as fast as in float32") \
  CHECK(imbalance, "O13", policies_companions, "what batch policies lose to waiting for the busiest rank, beside batches of fixed length") \
  CHECK(heaviest, "O13", NULL, "with compute: sleep, the rank that has more to do than the others is named, by as much as planned") \
  CHECK(divergence, "O15", companions_blocks, "where block outputs, then gradients, first leave the truth")               \
  CHECK(shim, "O16", NULL, "MPI calls and bytes counted below the trainer equal what its trace implies")                \
  CHECK(curve, "O3", companions_curve, "the loss of every step of a long run beside the serial run's")                  \
  CHECK(learns, "O3", NULL, "the loss starts at that of knowing nothing and falls well below")                          \
  CHECK(collectives, "O16", NULL, "self-test: each collective or copy delivers what a closed form says, no element wrong")

#define CHECKS_DECLARE(name, observable, wants, meaning)                                                                  \
  void name##_judge(const struct run_data *run, const struct companion *wanted, const struct run_data *const *companions, \
                    int n, struct verdict *out);
CHECKS_LIST(CHECKS_DECLARE)
#undef CHECKS_DECLARE

#endif
