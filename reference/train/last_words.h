/* last_words.h - a rank told to end says where it was, then ends.
 *
 * A thread of its own waits for SIGTERM and SIGINT, since the main thread may be waiting for a
 * peer that is gone.  It appends a `finding` (last collectives) and a `done` record to the
 * file it was told of, and ends the process with 143 or 130.
 */
#ifndef TRAIN_LAST_WORDS_H
#define TRAIN_LAST_WORDS_H

#include "comm/comm.h"

/* Both signals stay blocked in this thread and all it starts: call first of all. */
void last_words_block(void);

struct last_words;
enum err last_words_start(const struct comm_world *w, struct last_words **out);
void last_words_stop(struct last_words *l); /* NULL is allowed */
/* The run that words would be about; NULL: none.  Both are copied. */
void last_words_about(struct last_words *l, const char *path, const char *name);
#endif
