/* comm_state.h - what a world and a comm are made of; for the files of this room. */
#ifndef COMM_STATE_H
#define COMM_STATE_H

#include "comm/comm.h"
#include "comm/link.h"

#include <pthread.h>
#include <stdatomic.h>

enum { COMMS_MAX = 64, MESSAGES_MAX = 12 };

struct comm_world {
  struct link *all, *node; /* host calls */
  bool on_root_host;       /* rank 0 shares this rank's clock */

  pthread_mutex_t lock; /* of comms and slot, which a watchdog reads */
  struct comm *comms[COMMS_MAX];
  _Atomic(struct slot *) slot;

  int64_t step; /* tags of what is queued next */
  int microbatch;
  struct comm_call *calls;
  int64_t n_calls, room;
};

/* One send or receive. */
struct message {
  struct tensor t;
  int peer;
  bool send;
};

struct comm {
  struct comm_world *world;
  struct link *link;
  struct dev_stream *stream;
  struct comm_config config;
  int n, rank, index;
  char *a, *b;       /* two blocks of scratch, `area` bytes each */
  bool on_cuda;
  struct staged *staged; /* where data waits on the host; NULL: the link reaches the device's memory */
  size_t area;
  bool grouping;
  int n_messages;
  struct message messages[MESSAGES_MAX];

  /* Where the stream is: written by the host (queued) and the stream's thread, read by a watchdog. */
  _Atomic int64_t queued, started, done, step;
  _Atomic(const char *) op; /* of the call last started */
  _Atomic(struct slot_comm *) slot;
};

/* --- trace.c --- */
/* Counts the call in c and writes it down; returns its sequence number in *sequence. */
enum err trace_add(struct comm *c, const char *op, enum dtype type, int64_t count, int64_t piece, int64_t *sequence);
void trace_started(struct comm *c, const char *op, int64_t sequence, int64_t step);
void trace_done(struct comm *c, int64_t sequence);
void trace_attach(struct comm *c); /* to the world's list and slot; its lock is held */
void trace_detach(struct comm *c);

/* --- world.c --- */
/* The text of ERR_INVALID if the launcher's environment names more ranks than MPI sees. */
enum err world_check_launcher(int size);
enum err world_measure_clock(struct comm_world *w, double *offset_ms, double *error_ms);

#endif
