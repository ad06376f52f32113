/* runner.h - runs of a plan become ended runs, by jobs.
 *
 * Runs of one rank count share a job; jobs run beside each other while cores are free.  A
 * job that dies or hangs costs only the run it was in: the rest are started again.  Every
 * run that ends is merged into records.jsonl at once.
 */
#ifndef HARNESS_RUNNER_H
#define HARNESS_RUNNER_H

#include "harness/launch.h"
#include "harness/plan.h"
#include "harness/progress.h"
#include "harness/results.h"

struct runner {
  struct plan *plan;
  const struct launch_world *world;
  const struct results *results;
  struct progress *progress;
  double budget_s, started_ms; /* budget 0: none */
  bool out_of_budget, unusable; /* unusable: jobs do not start on this machine */
  bool enough;                  /* set by on_ended: start nothing more          */
  char why_unusable[512];
  /* Called after each run that ended; may use the plan.  An error stops the runner. */
  enum err (*on_ended)(void *context, int run);
  void *context;
  int done, total;    /* for the progress line; runner_phase() starts it anew */
  bool timing;        /* runs of like length: time left by their number       */
  double phase_ms, estimated_s; /* start; guesses of the runs that ended      */
  int bad_in_a_row;
};

/* Correctness runs, in the order given as far as rank counts allow; not bound to cores.  Stops early
 * (ERR_OK) on an interrupt, a spent budget, an unusable launcher or when it is told `enough`. */
enum err runner_all(struct runner *r, const int *runs, int n);

/* One job for a measurement, alone on the machine: runs of equal rank count, each rank
 * on its own cores_each cores, starting at first_core if it is one rank; hosts above 1: on so many.  The jobs of one call run at the same time. */
struct runner_timed {
  const int *runs;
  int n, cores_each, first_core, hosts;
  /* Of another framework: one run, started by these words (launch.h) with this file in place of run.yaml.  Its records
   * stay in its folder, since they may say anything. */
  const char *const *program, *const *settings;
  const char *file;
};
enum err runner_timed(struct runner *r, const struct runner_timed *jobs, int n);

/* From here on progress counts `total` runs. */
void runner_phase(struct runner *r, int total, bool timing);

/* Takes out of a run's data what would tell a judge which fault was planted. */
void runner_make_blind(struct run_data *d);

#endif
