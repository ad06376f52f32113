/* stall.h - what the slots of a case say about where its ranks are. */
#ifndef HARNESS_STALL_H
#define HARNESS_STALL_H

#include "base/slot.h"
#include <stdbool.h>
#include <stddef.h>

enum { STALL_RANKS = 4096 };
struct stall_rank {
  int rank;
  long pid;
  int64_t step, beat;
  char phase[SLOT_NAME];
  char state; /* of /proc: 'R', 'S', 'T' (stopped), 'Z', '-' (gone), '?' (another host) */
  struct slot_comm comms[SLOT_COMMS];
};
/* All slots of dir's state.* files, by rank.  Owner of *out: the caller, free().  Returns how many. */
int stall_read(const char *dir, struct stall_rank **out);
/* Sum of beats: grows with any progress. */
int64_t stall_beats(const char *dir);
/* One sentence: who is behind and at which collective, who waits in which.  "" without slots. */
void stall_sentence(const struct stall_rank *ranks, int n, char *out, size_t bytes);
/* Where one rank was: "rank 1 in step 3, last collective dp #11 allreduce". */
void stall_where(const struct stall_rank *r, char *out, size_t bytes);
#endif
