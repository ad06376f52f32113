/* slot.h - where a rank is, in memory that outlives it.
 *
 * A case's directory holds one file state.<node>, an array of slots, one a local rank,
 * mapped by the rank and read by the harness when the case stalls or dies: also a
 * stopped or killed rank's last collective is known.
 */
#ifndef BASE_SLOT_H
#define BASE_SLOT_H
#include <stdatomic.h>
#include <stdint.h>

enum { SLOT_COMMS = 8, SLOT_NAME = 24 };
struct slot_comm {
  char name[SLOT_NAME], op[SLOT_NAME];    /* group; collective at the head of its stream */
  _Atomic int64_t queued, started, done;  /* sequence numbers                             */
  _Atomic int64_t step;
};
struct slot {
  _Atomic int64_t rank;  /* -1: empty                  */
  _Atomic int64_t pid;
  _Atomic int64_t step;
  _Atomic int64_t beat;  /* grows with any progress    */
  char phase[SLOT_NAME]; /* literal copied: "start", "step", "done" */
  char run[128];         /* name of the case it is in  */
  struct slot_comm comms[SLOT_COMMS];
};
#endif
