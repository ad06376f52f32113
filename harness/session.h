/* session.h - one invocation of `shardmark run`: what it holds, and what every case's end does to it. */
#ifndef HARNESS_SESSION_H
#define HARNESS_SESSION_H

#include "harness/asked.h"
#include "harness/env.h"
#include "harness/faults.h"
#include "harness/plan.h"
#include "harness/progress.h"
#include "harness/results.h"
#include "harness/runner.h"

struct session {
  const struct asked *asked;
  struct suite *suites[ASKED_SUITES];
  int n_suites;
  struct faults_suites named; /* suites that the fault registry names */
  struct plan plan;
  struct launch_world world;
  struct results results;
  struct env env;
  struct progress progress;
  struct runner runner;
  bool *kept;       /* runs whose tensors stay: a case that used them did not pass */
  bool complete;    /* everything that was to run has run   */
  bool interrupted; /* by a person, before that             */
  char trouble[512]; /* why the whole is INVALID, "" if not */
};

/* Judges, records and releases each trial that became ready; rewrites the summary.  For runner.on_ended. */
enum err session_on_ended(void *session, int run);
/* A trial that has its outcome: line on the terminal, records, summary. */
enum err session_settled(struct session *s, int trial);
enum err session_summary(const struct session *s);
/* Takes over what records.jsonl holds of judged trials and of runs that ended well. */
enum err session_restore(struct session *s);
#endif
