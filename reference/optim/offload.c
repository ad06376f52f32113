/* offload.c - windows of the state on their way to the device and back. */
#include "optim/offload.h"

#include "base/fault.h"
#include "ops/ops.h"

#include <stdlib.h>
#include <string.h>

enum { ALIGN = 256 }; /* bytes, of what a place has of a buffer */

/* What a rank has of a bucket, in elements of the buffers; its pieces are [first_piece, first_piece + n_pieces). */
struct window {
  int64_t first, count;
  int first_piece, n_pieces;
};

struct place {
  char *at[OFFLOAD_BUFFERS];
  struct dev_event *fetched, *updated, *stored;
  bool used;
};

struct offload {
  struct offload_config given;
  struct dev_stream *fetch, *store;
  struct window *windows; /* those in which something takes updates */
  int n_windows;
  struct flat_piece *pieces;
  void *staged; /* the block that the places stand in */
  struct place places[OFFLOAD_PLACES];
  int n_places;
  int64_t fetched, updated; /* windows so far, of all steps: the next goes to that place, in turn */
};

/* --- memory of buffers ------------------------------------------------------------------- */

enum err offload_buffer(struct dev *d, const struct flat *f, const char *owner, enum dtype type, enum flat_hold hold, struct flat_buffer *out)
{
  struct flat_buffer b = {NULL, type, hold, true};
  const size_t bytes = (size_t)flat_buffer_count(f, &b) * dtype_bytes(type);
  TRY(dev_host_alloc(d, bytes, owner, &b.at));
  memset(b.at, 0, bytes);
  *out = b;
  return ERR_OK;
}

void offload_free(struct dev *d, const struct flat_buffer *b)
{
  if (b->offloaded) dev_host_free(d, b->at);
  else dev_free(d, b->at);
}

/* --- create and destroy ------------------------------------------------------------------- */

static size_t element(const struct offload *o) { return dtype_bytes(o->given.buffers[0].type); }

static enum err check_config(const struct offload_config *c)
{
  if (c->n_buffers < 1 || c->n_buffers > OFFLOAD_BUFFERS) FAIL(ERR_ARG, "offload: %d buffers, 1 to %d can be", c->n_buffers, OFFLOAD_BUFFERS);
  for (int b = 0; b < c->n_buffers; b++) {
    const struct flat_buffer *x = &c->buffers[b], *first = &c->buffers[0];
    if (!x->offloaded || x->at == NULL || x->hold == FLAT_PIECES || x->type != first->type || x->hold != first->hold)
      FAIL(ERR_ARG, "offload: buffer %d is not on the host, or not like the first", b);
  }
  return ERR_OK;
}

/* The part of a piece that is in the window; count 0: none. */
static struct flat_piece meet(const struct offload *o, const struct window *w, const struct flat_piece *p)
{
  const int64_t at = o->given.buffers[0].hold == FLAT_SHARD ? p->shard : p->flat;
  const int64_t low = at > w->first ? at : w->first, p_end = at + p->count, w_end = w->first + w->count;
  const int64_t high = p_end < w_end ? p_end : w_end;
  return (struct flat_piece){.row = p->row, .flat = p->flat + low - at, .shard = p->shard + low - at, .count = high > low ? high - low : 0};
}

/* A piece is cut at most once for each window that it meets. */
static enum err list_windows(struct offload *o)
{
  const struct flat *f = o->given.flat;
  const int shards = o->given.buffers[0].hold == FLAT_SHARD ? f->shards : 1;
  o->windows = calloc((size_t)f->n_buckets + 1, sizeof *o->windows);
  o->pieces = calloc((size_t)(f->n_buckets + o->given.n_pieces) + 1, sizeof *o->pieces);
  if (o->windows == NULL || o->pieces == NULL) FAIL(ERR_MEMORY, "offload: %d windows, %d pieces", f->n_buckets, o->given.n_pieces);
  int n = 0;
  for (int b = 0; b < f->n_buckets; b++) {
    struct window w = {f->buckets[b].first / shards, f->buckets[b].count / shards, n, 0};
    for (int k = 0; k < o->given.n_pieces; k++) {
      const struct flat_piece here = meet(o, &w, &o->given.pieces[k]);
      if (here.count == 0) continue;
      o->pieces[n++] = here;
      w.n_pieces++;
    }
    if (w.n_pieces > 0) o->windows[o->n_windows++] = w;
  }
  return ERR_OK;
}

static enum err create_places(struct offload *o)
{
  struct dev *d = dev_of(o->given.compute);
  const int shards = o->given.buffers[0].hold == FLAT_SHARD ? o->given.flat->shards : 1;
  const size_t each = ((size_t)(flat_largest_bucket(o->given.flat) / shards) * element(o) + ALIGN - 1) / ALIGN * ALIGN;
  o->n_places = o->n_windows < OFFLOAD_PLACES ? o->n_windows : OFFLOAD_PLACES;
  TRY(dev_alloc(d, each * (size_t)(o->given.n_buffers * o->n_places), DEV_OPTIMIZER, "staged state", &o->staged));
  for (int i = 0; i < o->n_places; i++) {
    struct place *p = &o->places[i];
    for (int b = 0; b < o->given.n_buffers; b++) p->at[b] = (char *)o->staged + each * (size_t)(i * o->given.n_buffers + b);
    TRY(dev_event_create(d, &p->fetched));
    TRY(dev_event_create(d, &p->updated));
    TRY(dev_event_create(d, &p->stored));
  }
  return ERR_OK;
}

static enum err create_streams(struct offload *o)
{
  struct dev *d = dev_of(o->given.compute);
  TRY(dev_stream_open(d, "fetch", DEV_TRANSFER, &o->fetch));
  TRY(dev_stream_open(d, "store", DEV_TRANSFER, &o->store));
  dev_stream_trails(o->fetch); /* compute has waited for it; what is stored last is waited for by whoever needs it */
  dev_stream_trails(o->store);
  return ERR_OK;
}

enum err offload_create(const struct offload_config *c, struct offload **out)
{
  enum err err;
  *out = NULL;
  TRY(check_config(c));
  struct offload *o = calloc(1, sizeof *o);
  if (o == NULL) FAIL(ERR_MEMORY, "offload: %zu bytes", sizeof *o);
  o->given = *c;
  TRY_TO(destroy, list_windows(o));
  TRY_TO(destroy, create_places(o));
  TRY_TO(destroy, create_streams(o));
  *out = o;
  return ERR_OK;

destroy:
  offload_destroy(o);
  return err;
}

void offload_destroy(struct offload *o)
{
  if (o == NULL) return;
  dev_sync_stream(o->given.compute); /* errors of its work are the caller's to see at its own synchronisation */
  dev_stream_close(o->store);
  dev_stream_close(o->fetch);
  for (int i = 0; i < OFFLOAD_PLACES; i++) {
    dev_event_destroy(o->places[i].stored);
    dev_event_destroy(o->places[i].updated);
    dev_event_destroy(o->places[i].fetched);
  }
  dev_free(dev_of(o->given.compute), o->staged);
  free(o->pieces);
  free(o->windows);
  free(o);
}

/* --- an update ------------------------------------------------------------------------------ */

static char *on_host(const struct offload *o, int buffer, const struct window *w)
{
  return (char *)o->given.buffers[buffer].at + (size_t)w->first * element(o);
}
static size_t bytes_of(const struct offload *o, const struct window *w) { return (size_t)w->count * element(o); }

static enum err fetch(struct offload *o, const struct window *w)
{
  struct place *p = &o->places[o->fetched++ % o->n_places];
  const bool of_this_update = w - o->windows >= o->n_places; /* it was given a window of it before */
  const bool forgets = fault_is(of_this_update ? FAULT_OV_OFFLOAD_PLACE_REUSED : FAULT_OV_OFFLOAD_FETCHED_TOO_EARLY);
  if (p->used && !forgets) TRY(dev_wait(o->fetch, p->stored));
  for (int b = 0; b < o->given.n_buffers; b++) TRY(dev_copy_in(o->fetch, p->at[b], on_host(o, b, w), bytes_of(o, w)));
  p->used = true;
  return dev_record(p->fetched, o->fetch);
}

static enum err update_window(struct offload *o, const struct window *w, const struct place *p, offload_update update, void *arg)
{
  const struct offload_config *c = &o->given;
  TRY(dev_wait(c->compute, p->fetched));
  for (int k = w->first_piece; k < w->first_piece + w->n_pieces; k++) {
    const struct flat_piece *piece = &o->pieces[k];
    const int64_t from = (c->buffers[0].hold == FLAT_SHARD ? piece->shard : piece->flat) - w->first;
    struct tensor state[OFFLOAD_BUFFERS] = {{0}};
    for (int b = 0; b < c->n_buffers; b++)
      state[b] = tensor_at(p->at[b] + (size_t)from * element(o), c->buffers[b].type, 1, piece->count);
    TRY(update(arg, piece, state));
  }
  return dev_record(p->updated, c->compute);
}

/* Planted: late in all, however many windows there are. */
static enum err be_late(struct offload *o)
{
  if (!fault_is(FAULT_OV_OFFLOAD_PLACE_REUSED) && !fault_is(FAULT_OV_OFFLOAD_FETCHED_TOO_EARLY)) return ERR_OK;
  return op_sleep(o->store, 300 * fault_strength / o->n_windows);
}

static enum err store(struct offload *o, const struct window *w, const struct place *p)
{
  TRY(dev_wait(o->store, p->updated));
  TRY(be_late(o));
  for (int b = 0; b < o->given.n_buffers; b++) {
    if (fault_is(FAULT_OPT_OFFLOAD_NEVER_STORED) && b + 2 >= o->given.n_buffers) continue; /* the moments */
    TRY(dev_copy_out(o->store, on_host(o, b, w), p->at[b], bytes_of(o, w)));
    TRY(dev_retire(o->store, p->at[b], bytes_of(o, w)));
  }
  return dev_record(p->stored, o->store);
}

enum err offload_walk(struct offload *o, offload_update update, void *arg)
{
  for (int k = 0; k < o->n_places; k++) TRY(fetch(o, &o->windows[k]));
  for (int k = 0; k < o->n_windows; k++) {
    struct place *p = &o->places[o->updated++ % o->n_places];
    TRY(update_window(o, &o->windows[k], p, update, arg));
    TRY(store(o, &o->windows[k], p));
    if (k + o->n_places < o->n_windows) TRY(fetch(o, &o->windows[k + o->n_places]));
  }
  return ERR_OK;
}

enum err offload_settle(struct offload *o)
{
  for (int i = 0; i < o->n_places; i++)
    if (o->places[i].used) TRY(dev_wait(o->given.compute, o->places[i].stored));
  return ERR_OK;
}
