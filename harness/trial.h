/* trial.h - from ended runs to the outcome of a trial, of a run of the harness, and its exit status. */
#ifndef HARNESS_TRIAL_H
#define HARNESS_TRIAL_H

#include "harness/plan.h"
#include "harness/results.h"

/* How the processes ended, as a check of its own: O14. */
void trial_of_end(const struct run_data *run, struct verdict *out);

/* True when every run that the trial needs has ended, or its own hung or was killed: no companion changes that. */
bool trial_ready(const struct plan *p, const struct trial *t);
/* Judges trial `index`, and with a planted fault diagnoses it.  Pure but for *t. */
void trial_judge(struct plan *p, int index);
/* The worst verdict becomes outcome, reason and sentence of the trial. */
void trial_settle(struct trial *t);
/* Its verdicts, their comparisons, and what it was judged from, as records. */
enum err trial_record(const struct plan *p, const struct trial *t, const struct results *r);
/* One verdict and its comparisons. */
enum err trial_record_verdict(struct record_file *f, const struct verdict *v);
void trial_release(struct trial *t); /* the details, once recorded */

struct trial_count {
  int passed, failed, invalid, inconclusive, skipped, not_run;
};
struct trial_count trial_count(const struct plan *p);
/* FAIL if any fails, else INVALID if any is, else INCONCLUSIVE if any is, else PASS; nothing judged: INVALID. */
enum outcome trial_overall(const struct trial_count *c);
enum status trial_status(enum outcome o);
#endif
