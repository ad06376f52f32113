/* job.h - one started mpirun with the cases it runs, watched until it ends.
 *
 * A job has its own process group and a mark in its environment by which every process
 * of it is found again, so nothing of it is left behind.  Its cases run in the order
 * given; the one it is in is the first that not every rank has finished (`done` record,
 * with or without an error).
 * A case that shows no progress (beats of its slots, growth of its records) for its
 * limit is stopped, and with it the job: the remaining cases are the caller's to start
 * again.  Output goes to output.txt of the case, at most JOB_OUTPUT_BYTES of it.
 */
#ifndef HARNESS_JOB_H
#define HARNESS_JOB_H

#include "harness/launch.h"
#include <stdint.h>

enum { JOB_OUTPUT_BYTES = 1 << 20, JOB_TEXT = 512 };
/* A case that goes on but does not end is stopped after so many times its limit. */
enum { JOB_PATIENCE = 8 };

struct job_case {
  const char *name, *dir; /* dir holds run.yaml, records and state.<node> */
  int ranks;
  double seconds;
  bool foreign; /* another framework's: it has no slots, so that its output is progress, too; its limit holds from its start */
};

struct job_end {
  int finished;        /* cases that every rank finished: the first ones        */
  char end[32];        /* of the one after them, if any; else of the job: "exited", "killed",
                          "timeout", "slow", "interrupted", "not_started"       */
  int status;          /* exit status of the launcher, or the signal of a rank  */
  char text[JOB_TEXT]; /* for a person: rank, reason, last collective           */
};

struct job;
/* cases must live until job_close().  Fails: ERR_IO, ERR_MEMORY, ERR_CONFIG. */
enum err job_start(const struct launch_world *w, const struct launch_wish *wish, const struct job_case *cases, int n,
                   struct job **out);
/* Waits for at most wait_ms for news; true when the job is over and *out is filled. */
bool job_step(struct job *j, double wait_ms, struct job_end *out);
/* Number of cases that every rank has finished so far. */
int job_finished(const struct job *j);
/* Asks the job to end, and makes it after a grace; job_step() goes on until it has.  why: job_end.end. */
void job_stop(struct job *j, const char *why);
void job_close(struct job *j); /* stops it first if it still runs; NULL is allowed */

/* True if each of `ranks` ranks has a `done` record in dir's record files; *errors: how many told of an error. */
bool job_case_done(const char *dir, int ranks, int *errors);

#endif
