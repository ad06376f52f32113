/* say.h - what a training run writes down: one function for each kind of record. */
#ifndef TRAIN_SAY_H
#define TRAIN_SAY_H

#include "train/evaluate.h"
#include "train/output.h"
#include "train/spans.h"
#include "train/step.h"
#include "train/trainer.h"

enum err say_run(const struct output *o);               /* rank 0 */
enum err say_rank(const struct output *o, const struct dev *d, int threads, const struct mesh *m); /* all ranks; m: NULL outside training */
/* All ranks with device cuda, after the last step; `before`: before the first. */
enum err say_health(const struct output *o, const struct dev *d, const struct dev_health *before, const struct dev_health *after);
enum err say_parameters(struct trainer *t, const struct output *o); /* all ranks, rank 0 writes; waits for the device */
enum err say_batches(const struct trainer *t, const struct output *o, int64_t step); /* kinds batch and microbatch */
enum err say_step(const struct trainer *t, const struct output *o, int64_t step);
enum err say_evaluation(const struct output *o, int64_t step, const struct evaluation *e);
/* Hashes of weights, gradients, moments and scalars; waits for the device. */
enum err say_replicas(struct trainer *t, const struct output *o, int64_t step);
enum err say_calls(const struct trainer *t, const struct output *o, int64_t step); /* kinds trace and shim */
/* Kinds time and, with trace_time, action, with trace_spans span.  marks: since the last step. */
enum err say_time(const struct trainer *t, const struct output *o, int64_t step, const struct step_clock *clock, const struct span_marks *marks);
enum err say_spans(const struct trainer *t, const struct output *o, int64_t step, const struct step_clock *clock,
                   const struct span_marks *marks, const struct dev_interval *list, int64_t n);
enum err say_data(const struct trainer *t, const struct output *o); /* after the last step */
/* Kind clock: measures again; after the last step, all ranks. */
enum err say_clock(const struct output *o);
struct say_memory { int64_t os_base, os_peak, others_base, others, allocations_first; };
enum err say_memory(const struct trainer *t, const struct output *o, const struct say_memory *m);
enum err say_finding(const struct output *o, const char *text);
#endif
