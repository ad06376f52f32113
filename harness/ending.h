/* ending.h - why a job ended: from its exit status, its last output and what its ranks left. */
#ifndef HARNESS_ENDING_H
#define HARNESS_ENDING_H

#include "harness/job.h"
#include <jansson.h>

/* wait_status as waitpid() gives it; tail: the last output; dir: of the case it died in, NULL if all were
 * finished.  Fills end, status and text of *out. */
void ending_of_exit(int wait_status, const char *tail, const char *dir, struct job_end *out);
/* First `done` record of dir with an error.  False: none.  text: "rank 1: reason"; *status: the exit
 * status that its kind stands for. */
bool ending_error(const char *dir, char *text, size_t bytes, enum status *status);
/* Of ranks without slots: what each told of last, those that are behind first: "rank 1 last told of step 0, rank 0 of step 2". */
void ending_last_told(const char *dir, int ranks, char *out, size_t bytes);
/* True for a `done` that a rank wrote because it was told to end: no reason of anything. */
bool ending_is_last_words(const json_t *done);
#endif
