/* trace.c - what was queued, what it stands for in MPI, and where each comm is. */
#include "comm/comm_state.h"

#include "comm/pmpi_shim.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* --- the calls queued ----------------------------------------------------------- */

/* Room grows by doubling and is kept by a restart, so that a step like the one before
 * allocates nothing. */
static enum err make_room(struct comm_world *w)
{
  if (w->n_calls < w->room) return ERR_OK;
  const int64_t room = w->room ? 2 * w->room : 256;
  struct comm_call *calls = realloc(w->calls, (size_t)room * sizeof *calls);
  if (calls == NULL) FAIL(ERR_MEMORY, "trace of %" PRId64 " calls: %zu bytes", room, (size_t)room * sizeof *calls);
  w->calls = calls;
  w->room = room;
  return ERR_OK;
}

enum err trace_add(struct comm *c, const char *op, enum dtype type, int64_t count, int64_t piece, int64_t *sequence)
{
  struct comm_world *w = c->world;
  TRY(make_room(w));
  *sequence = atomic_fetch_add(&c->queued, 1) + 1;
  w->calls[w->n_calls++] = (struct comm_call){
    .op = op, .group = c->config.name, .stream = dev_stream_name(c->stream), .type = type, .count = count,
    .bytes = c->config.silent ? 0 : comm_ring_bytes(op, count * (int64_t)dtype_bytes(type), c->n), .step = w->step, .microbatch = w->microbatch,
    .sequence = (int)*sequence, .ranks = c->n, .rank = c->rank, .ordered = c->config.reduce == COMM_ORDERED,
    .synchronous = c->config.synchronous, .nccl = c->link->issued, .silent = c->config.silent, .piece = piece};
  struct slot_comm *slot = atomic_load(&c->slot);
  if (slot) atomic_store(&slot->queued, *sequence);
  return ERR_OK;
}

void comm_trace_at(struct comm_world *w, int64_t step, int microbatch)
{
  w->step = step;
  w->microbatch = microbatch;
}

const struct comm_call *comm_trace(const struct comm_world *w, int64_t *n)
{
  *n = w->n_calls;
  return w->calls;
}

void comm_trace_restart(struct comm_world *w) { w->n_calls = 0; }

/* --- what a call stands for -------------------------------------------------------- */

static bool is(const char *op, const char *name) { return strcmp(op, name) == 0; }

int64_t comm_ring_bytes(const char *op, int64_t bytes, int n)
{
  if (is(op, "barrier") || is(op, "recv") || n == 1) return 0;
  if (is(op, "allreduce")) return 2 * (n - 1) * bytes / n;
  if (is(op, "reduce_scatter") || is(op, "allgather")) return (n - 1) * bytes / n;
  return bytes;
}

/* This rank's shares of a buffer cut into pieces, each shared out on its own. */
static int64_t own_shares(const struct comm_call *call)
{
  int64_t sum = 0;
  for (int64_t at = 0; at < call->count; at += call->piece) {
    int64_t first, count;
    link_share(call->count - at < call->piece ? call->count - at : call->piece, call->ranks, call->rank, &first, &count);
    sum += count;
  }
  return sum;
}

int comm_expect(const struct comm_call *call, struct pmpi_count *out)
{
  const bool parts = is(call->op, "reduce_scatter") || is(call->op, "allgather");
  const bool message = is(call->op, "send") || is(call->op, "recv");
  const int64_t size = (int64_t)dtype_bytes(call->type), total = parts ? call->count / call->ranks : call->count;
  const int64_t pieces = (total + call->piece - 1) / call->piece, buffer = call->count * size;
  if (call->nccl || call->silent || (call->ranks == 1 && !message)) return 0;
  if (is(call->op, "barrier")) {
    out[0] = (struct pmpi_count){"MPI_Ibarrier", 1, 0};
    return 1;
  }
  if (call->count == 0) return 0;
  if (is(call->op, "send")) out[0] = (struct pmpi_count){call->synchronous ? "MPI_Issend" : "MPI_Isend", pieces, buffer};
  if (is(call->op, "recv")) out[0] = (struct pmpi_count){"MPI_Irecv", pieces, buffer};
  if (is(call->op, "broadcast")) out[0] = (struct pmpi_count){"MPI_Ibcast", pieces, buffer};
  if (is(call->op, "allgather")) out[0] = (struct pmpi_count){"MPI_Iallgather", pieces, total * size};
  if (is(call->op, "reduce_scatter"))
    out[0] = (struct pmpi_count){call->ordered ? "MPI_Ialltoallv" : "MPI_Ireduce_scatter_block", pieces, buffer};
  if (is(call->op, "allreduce")) {
    out[0] = (struct pmpi_count){call->ordered ? "MPI_Ialltoallv" : "MPI_Iallreduce", pieces, buffer};
    if (call->ordered) out[1] = (struct pmpi_count){"MPI_Iallgatherv", pieces, own_shares(call) * size};
    return call->ordered ? 2 : 1;
  }
  return 1;
}

/* --- where each comm is ------------------------------------------------------------- */

static void copy_name(char out[SLOT_NAME], const char *name) { snprintf(out, SLOT_NAME, "%s", name); }

void trace_started(struct comm *c, const char *op, int64_t sequence, int64_t step)
{
  atomic_store(&c->op, op);
  atomic_store(&c->step, step);
  atomic_store(&c->started, sequence);
  struct slot_comm *slot = atomic_load(&c->slot);
  if (slot == NULL) return;
  copy_name(slot->op, op);
  atomic_store(&slot->step, step);
  atomic_store(&slot->started, sequence);
}

void trace_done(struct comm *c, int64_t sequence)
{
  atomic_store(&c->done, sequence);
  struct slot_comm *slot = atomic_load(&c->slot);
  if (slot == NULL) return;
  atomic_store(&slot->done, sequence);
  struct slot *whole = atomic_load(&c->world->slot);
  if (whole) atomic_fetch_add(&whole->beat, 1);
}

static void open_slot(struct comm *c, struct slot *slot)
{
  if (slot == NULL || c->index >= SLOT_COMMS) {
    atomic_store(&c->slot, NULL);
    return;
  }
  struct slot_comm *s = &slot->comms[c->index];
  const char *op = atomic_load(&c->op);
  copy_name(s->op, op ? op : "");
  atomic_store(&s->queued, atomic_load(&c->queued));
  atomic_store(&s->started, atomic_load(&c->started));
  atomic_store(&s->done, atomic_load(&c->done));
  atomic_store(&s->step, atomic_load(&c->step));
  copy_name(s->name, c->config.name);
  atomic_store(&c->slot, s);
}

void trace_attach(struct comm *c)
{
  c->world->comms[c->index] = c;
  open_slot(c, atomic_load(&c->world->slot));
}

void trace_detach(struct comm *c)
{
  struct slot_comm *s = atomic_load(&c->slot);
  if (s) copy_name(s->name, "");
  c->world->comms[c->index] = NULL;
}

void comm_watch(struct comm_world *w, struct slot *slot)
{
  pthread_mutex_lock(&w->lock);
  atomic_store(&w->slot, slot);
  for (int i = 0; i < COMMS_MAX; i++)
    if (w->comms[i]) open_slot(w->comms[i], slot);
  pthread_mutex_unlock(&w->lock);
}

/* "dp #12 allreduce (step 3), started": the call at the head of the stream, or the last. */
static int describe(const struct comm *c, char *out, size_t bytes)
{
  const int64_t queued = atomic_load(&c->queued), started = atomic_load(&c->started), done = atomic_load(&c->done);
  const char *op = atomic_load(&c->op);
  if (started == 0) return snprintf(out, bytes, "%s: %" PRId64 " queued, none started", c->config.name, queued);
  int n = snprintf(out, bytes, "%s #%" PRId64 " %s (step %" PRId64 "), %s", c->config.name, started, op, atomic_load(&c->step),
                   started > done ? "started" : "done");
  if (queued > started && (size_t)n < bytes) n += snprintf(out + n, bytes - (size_t)n, ", %" PRId64 " more queued", queued - started);
  return n;
}

void comm_last_call(const struct comm_world *w, char *out, size_t bytes)
{
  pthread_mutex_t *lock = (pthread_mutex_t *)(uintptr_t)&w->lock;
  size_t used = 0;
  if (bytes > 0) out[0] = '\0';
  pthread_mutex_lock(lock);
  for (int i = 0; i < COMMS_MAX; i++) {
    if (w->comms[i] == NULL || used + 2 >= bytes) continue;
    if (used > 0) used += (size_t)snprintf(out + used, bytes - used, "; ");
    used += (size_t)describe(w->comms[i], out + used, bytes - used);
  }
  pthread_mutex_unlock(lock);
}
