/* meters.h - time and memory of this rank, from what the device and the system counted. */
#ifndef TRAIN_METERS_H
#define TRAIN_METERS_H

#include "comm/comm.h"
#include "device/dev.h"

#include "params/params.h"

/* One step, in milliseconds, as keys.def "time" has it. */
struct meters_time {
  double forward_ms, backward_ms, optimizer_ms, other_ms; /* compute stream busy                    */
  double exposed_ms; /* compute stream waited for another, or ran a collective itself */
  double replicas_ms; /* of exposed: waited for a transfer over replicas              */
  double backward_end_ms; /* last backward on the compute stream, its clock; NaN: none */
  double comm_ms;    /* other streams busy, and collectives on compute               */
};
struct meters_time meters_split(const struct dev_interval *list, int64_t n);

/* Compute stream busy in forward and backward of micro-batches first .. first + n_micro - 1 (numbers of the step), collectives
 * left out.  ms: n_micro. */
void meters_microbatches(const struct dev_interval *list, int64_t n, int64_t first, int64_t n_micro, double *ms);

/* When each traced collective was ready and done, on rank 0's clock: calls[i] is the next
 * interval of its name and step on its stream.  ready and end: n_calls; -1 for gathers of weights that go on into the
 * next step.  Fails: ERR_ARG if another has none. */
enum err meters_calls(const struct dev_interval *list, int64_t n, const struct comm_call *calls, int64_t n_calls,
                      double offset_ms, double *ready_ms, double *end_ms);

/* FLOP of this rank's matrix products with weights for n valid tokens: 2 a weight forward, 4
 * backward (Kaplan et al. 2020, section 2.1), attention's own products not counted.  Of the layers
 * of its stage, the head on the last, and its part of each. */
double meters_matmul_flops(const struct run_config *run, const struct params_place *place, double valid_tokens);

/* The system's high-water mark of this process's memory, in bytes.  meters_memory_restart()
 * gives unused memory back, sets the mark to what is held now and returns that. */
enum err meters_memory_restart(int64_t *bytes);
enum err meters_memory_peak(int64_t *bytes);
/* Of it, now: what of segments shared with other processes (MPI's) is theirs, when each page is divided by those that map it.
 * 0 where the system does not say: nothing is then left out. */
enum err meters_memory_others(int64_t *bytes);
#endif
