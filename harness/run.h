/* run.h - `shardmark run`: from what was asked to a verdict and a results directory. */
#ifndef HARNESS_RUN_H
#define HARNESS_RUN_H

#include "harness/asked.h"

/* Prints progress and the verdict on stdout.  *status: the exit status; on an error the
 * caller prints it and ends with err_status(). */
enum err run_suites(struct asked *a, enum status *status);
#endif
