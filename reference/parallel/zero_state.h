/* zero_state.h - what zero.c and zero_slots.c share. */
#ifndef PARALLEL_ZERO_STATE_H
#define PARALLEL_ZERO_STATE_H
#include "parallel/zero.h"

/* A place for one unit. */
struct zero_slot {
  void *at;
  int unit;                   /* that it holds or held last; -1: none yet                      */
  int life;                   /* of the plan, that it is taken for                             */
  int left;                   /* uses until its life is over; 0: it may be taken               */
  struct dev_event *gathered; /* for the compute stream                                        */
  struct dev_event *released; /* for the gather stream                                         */
  bool used;                  /* released has been recorded                                    */
};

struct zero {
  struct zero_config given;
  enum dtype type;
  struct dev_event *updated; /* on compute, before gathers of what it wrote */

  /* stages 1 and 2 */
  struct dev_event **there; /* [units] gathered, since the last update */
  bool *pending;            /* [units] no need has waited for it yet    */

  /* stage 3 */
  int ahead, ring;         /* units gathered before they are needed; slots of blocks: one more */
  struct zero_slot *slots; /* [2 + ring]: begin, end, blocks */
  int *slot_of;            /* [units] where a need finds it  */
  const struct zero_life *lives;
  int n_lives, needed, gathered; /* of the plan: begun, queued for gathering */
  int blocks;                    /* lives of blocks queued so far: the next slot in turn */
};

bool zero_in_slots(const struct zero *z);
enum err zero_slots_create(struct zero *z);
enum err zero_slots_room(struct zero *z);
void zero_slots_destroy(struct zero *z);
enum err zero_slots_plan(struct zero *z, const struct zero_life *lives, int n);
enum err zero_slots_need(struct zero *z, int unit, enum zero_pass pass);
enum err zero_slots_done(struct zero *z, int unit);

/* Of the shard group: this rank's part of bucket b, and the bucket as `ranks` parts in a row, `at` its first element. */
struct tensor zero_whole(const struct zero *z, void *at, const struct flat_bucket *b);

#endif
