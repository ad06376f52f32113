/* schedule_parts.h - what the files schedule_*.c share. */
#ifndef BASE_SCHEDULE_PARTS_H
#define BASE_SCHEDULE_PARTS_H

#include "base/schedule.h"

enum { SCHEDULE_JOINED = -1 };

/* --- schedule_lists.c --- */
bool schedule_chunked(enum schedule_kind kind);
bool schedule_splits(enum schedule_kind kind);
/* Passes of one stage in order, into out[room for all]; their number. */
int schedule_passes(const struct schedule *s, int stage, struct schedule_action *out);
/* How many that are. */
int schedule_passes_count(const struct schedule *s);

/* --- schedule_transfers.c --- */
/* From lists of passes with places to lists with transfers, in the total order. */
enum err schedule_add_transfers(struct schedule *s);

static inline int schedule_virtual(const struct schedule *s, int stage, int chunk) { return chunk * s->p + stage; }
static inline bool schedule_is_first(const struct schedule *s, int stage, int chunk) { return schedule_virtual(s, stage, chunk) == 0; }
static inline bool schedule_is_last(const struct schedule *s, int stage, int chunk)
{
  return schedule_virtual(s, stage, chunk) == s->p * s->v - 1;
}
/* The pass that needs the gradient of the output. */
static inline bool schedule_is_backward(enum pass p) { return p == PASS_BACKWARD || p == PASS_BACKWARD_INPUT; }

#endif
