/* job.h - one run file from start to end, from fresh state. */
#ifndef TRAIN_JOB_H
#define TRAIN_JOB_H

#include "base/config.h"
#include "comm/comm.h"
#include "train/last_words.h"

/* All ranks.  Fails as the run did, with the same code on every rank; then the next run may
 * start.  `fatal`: this rank alone failed and others may wait for it: the job has to end. */
enum err job_run(struct comm_world *w, const struct run_config *run, struct last_words *words, bool *fatal);
#endif
