/* plan.h - which cases there are, and which distinct runs they need.
 *
 * A trial is a case of a suite in this invocation: one run to judge, checks, and the
 * companions that the checks ask for.  A run is a distinct set of settings: equal
 * settings (all keys but name and out) are one run, shared by every trial that needs it,
 * except that a companion whose role starts with "rerun" is a run of its own, one for each such role.
 */
#ifndef HARNESS_PLAN_H
#define HARNESS_PLAN_H

#include "harness/asked.h"
#include "harness/suite.h"
#include "base/fault.h"

#include <stdint.h>

enum trial_state { TRIAL_WAITING, TRIAL_JUDGED, TRIAL_NOT_RUN };
/* What a trial is beside a case that is judged by its checks. */
enum trial_part {
  PART_CASE,
  PART_PLANTED,
  PART_TWIN,
  PART_EVIDENCE,
  PART_POINT, /* timed in repeats; its verdict is the point's */
  PART_TIMED, /* judged by its checks from a run that has the machine to itself */
  PART_FOREIGN /* another framework's run, judged against an exported case (frameworks.h) */
};

struct run {
  char name[CONFIG_NAME], dir[CONFIG_PATH];
  uint64_t key;
  struct run_config config;
  int ranks;
  double seconds, estimate_s; /* limit without progress; guess of the time it takes */
  double disk_bytes;          /* guess of what it writes          */
  bool alone;                 /* its own job: expected to hang    */
  bool foreign;               /* another framework's program      */
  int after;                  /* run that has to end before; -1   */
  bool ended;
  struct run_data data;       /* filled when it has ended         */
  int users;                  /* trials not judged yet that need it */
};

struct trial {
  const struct suite *suite;
  const struct suite_case *of;
  enum trial_part part;
  char name[CONFIG_NAME];
  int64_t priority;
  int run;                 /* index; -1: skipped */
  int n_checks;
  const struct check *checks[SUITE_CHECKS_MAX];
  int n_companions[SUITE_CHECKS_MAX], companions[SUITE_CHECKS_MAX][JUDGE_COMPANIONS_MAX];
  enum fault fault;        /* planted; FAULT_NONE */
  int twin;                /* planted: index of the trial without the fault; point, timed: of its conformance case */

  double elsewhere;        /* timed: cores that other processes used just before it; NaN: not looked */

  enum trial_state state;
  enum outcome outcome;
  char reason[64], sentence[640];
  int n_verdicts;
  struct verdict verdicts[SUITE_CHECKS_MAX + 1];
  struct diagnosis diagnosis;
};

struct plan {
  char cases_dir[CONFIG_PATH]; /* "<results>/cases" */
  struct run *runs;
  struct trial *trials;
  int n_runs, n_trials, room_runs, room_trials;
};

void plan_free(struct plan *p); /* what is in it; not p */

/* Adds a suite's own cases as asked (kinds conformance and memory, and the clean set of faults); cases
 * that this build cannot run, or that an override makes impossible, are trials that are SKIPPED.
 * The suite must outlive the plan.  Fails: ERR_CONFIG naming the case's place, ERR_MEMORY. */
enum err plan_add_cases(struct plan *p, const struct asked *a, const struct suite *s, enum trial_part part);
/* The settings of a case as asked, finished.  *skip: "" or why it cannot be had here.  Fails: ERR_CONFIG. */
enum err plan_settings(const struct asked *a, const struct suite_case *of, struct run_config *out, char *skip, size_t bytes);
/* True if the form, --only and --ranks let the case in. */
bool plan_wants(const struct asked *a, const struct suite_case *of, const struct run_config *c);
/* One trial of one config.  `name` is made unique.  *out: index of the trial, or NULL. */
enum err plan_add_trial(struct plan *p, const struct suite *s, const struct suite_case *of, const char *name,
                        const struct run_config *c, enum trial_part part, int *out);
enum err plan_add_skipped(struct plan *p, const struct suite *s, const struct suite_case *of, const char *why);
/* A trial of part PART_FOREIGN with a run of its own. */
enum err plan_add_foreign(struct plan *p, const struct suite *s, const struct suite_case *of, const struct run_config *c);
/* One run that no trial judges (a measurement): always a run of its own. */
enum err plan_add_run(struct plan *p, const char *name, const struct run_config *c, double seconds, int *out);

/* Gives run `index` its folder under cases_dir, once that is known.  Fails: ERR_CONFIG. */
enum err plan_place(struct plan *p, int index);
/* Once all trials are there: the companions that their checks want become runs. */
enum err plan_companions(struct plan *p);

/* The runs that trials still wait for, each once: those of the first trial of the best priority first, so that a
 * budget buys whole verdicts.  out: room for all runs.  Fails: ERR_MEMORY. */
enum err plan_order(const struct plan *p, int *out, int *n);

/* Hash of every key but name and out. */
uint64_t plan_key(const struct run_config *c);
bool plan_same(const struct run_config *a, const struct run_config *b);
/* All runs a trial needs, each once.  Returns how many (at most max). */
int plan_runs_of(const struct trial *t, int *out, int max);
#endif
