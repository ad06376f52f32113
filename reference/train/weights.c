/* weights.c - fills what a rank has of the weights and of their rounded copy, by pieces: no second copy of the model when they are drawn. */
#include "train/weights.h"

#include "ops/ops.h"
#include "params/params_io.h"

#include <stdlib.h>
#include <string.h>

enum { PIECE = 1 << 16 }; /* elements: the memory suite should not see a second copy of the model */

/* Elements are drawn by counter, so threads share a piece without changing a bit.  They do so where compute is
 * elsewhere and the host is idle: 1.6 billion normals take one thread a minute. */
static void draw_piece(const struct trainer *t, int row, int64_t first, int64_t n, char *out)
{
  const enum dtype type = run_state_type(&t->run);
  const int64_t threads = t->run.device == DEVICE_CUDA ? t->run.threads : 1;
#pragma omp parallel for num_threads((int)threads) schedule(static)
  for (int64_t i = 0; i < threads; i++) {
    const int64_t from = n * i / threads, to = n * (i + 1) / threads;
    if (to > from)
      params_initial_piece(t->table, row, &t->place, (uint64_t)t->run.seed, t->run.revealing, (enum dtype)t->run.weights_as, type,
                           first + from, to - from, out + (size_t)from * dtype_bytes(type));
  }
}

/* What `to` has of elements [first, first + n) of this rank's part of a row, from the chunk on the device. */
static enum err store(const struct trainer *t, const struct flat_buffer *to, int row, int64_t first, const struct tensor *chunk)
{
  const struct flat_piece all = {.row = row, .flat = t->flat->offset[row], .shard = 0, .count = t->flat->length[row]};
  const int n = to->hold == FLAT_WHOLE ? 1 : t->n_pieces;
  for (int k = 0; k < n; k++) {
    const struct flat_piece *p = to->hold == FLAT_WHOLE ? &all : &t->pieces[k];
    const int64_t from = t->flat->offset[row] + first, end = from + chunk->cols;
    const int64_t low = p->flat > from ? p->flat : from, high = p->flat + p->count < end ? p->flat + p->count : end;
    if (p->row != row || high <= low) continue;
    const struct flat_piece meet = {.row = row, .flat = low, .shard = p->shard + low - p->flat, .count = high - low};
    const struct tensor there = flat_view(to, &meet), here = tensor_part(chunk, 0, 1, low - from, high - low);
    if (to->offloaded) TRY(dev_copy_out(t->compute, there.at, here.at, (size_t)here.cols * dtype_bytes(here.type)));
    else TRY(op_copy(t->compute, &there, &here));
  }
  return ERR_OK;
}

/* Where rows come in, piece by piece. */
struct incoming {
  char *host;    /* [PIECE] of run_state_type */
  void *device;
};

/* Elements [first, first + n) stand in in->host: to all buffers of weights. */
static enum err put(struct trainer *t, const struct incoming *in, int row, int64_t first, int64_t n)
{
  const struct tensor chunk = tensor_at(in->device, run_state_type(&t->run), 1, n);
  TRY(dev_copy_in(t->compute, in->device, in->host, (size_t)n * dtype_bytes(chunk.type)));
  TRY(store(t, &t->weights, row, first, &chunk));
  if (t->rounded.at) TRY(store(t, &t->rounded, row, first, &chunk));
  TRY(dev_sync_stream(t->compute));
  return dev_host_touch(t->dev, in->host, (size_t)n * dtype_bytes(chunk.type), true);
}

/* This rank's part of a row: drawn, or from `part`. */
static enum err put_row(struct trainer *t, const struct incoming *in, int row, const char *part)
{
  const size_t element = dtype_bytes(run_state_type(&t->run));
  const int64_t n = t->flat->length[row];
  for (int64_t first = 0; first < n; first += PIECE) {
    const int64_t here = n - first < PIECE ? n - first : PIECE;
    if (part) memcpy(in->host, part + (size_t)first * element, (size_t)here * element);
    else draw_piece(t, row, first, here, in->host);
    TRY(put(t, in, row, first, here));
  }
  return ERR_OK;
}

static enum err draw(struct trainer *t, const struct incoming *in)
{
  for (int i = 0; i < t->table->n; i++)
    if (t->table->rows[i].shared_with < 0) TRY(put_row(t, in, i, NULL));
  return ERR_OK;
}

/* The whole model on the host, then this rank's part of each row. */
static enum err read_file(struct trainer *t, const struct incoming *in)
{
  enum err err;
  const enum dtype type = run_state_type(&t->run);
  struct flat *whole = NULL;
  char *host = NULL, *part = NULL;
  TRY(flat_create(t->table, &params_place_alone, 1, 1, false, 0, &whole));
  const size_t bytes = (size_t)whole->count * dtype_bytes(type), here = (size_t)t->flat->count * dtype_bytes(type);
  host = malloc(bytes);
  part = malloc(here);
  if (host == NULL || part == NULL) FAIL_TO(free_host, ERR_MEMORY, "weights %s: %zu bytes", t->run.weights, bytes + here);
  TRY_TO(free_host, params_read(t->run.weights, t->table, whole, (enum dtype)t->run.weights_as, type, host));
  for (int i = 0; i < t->table->n; i++) {
    if (t->table->rows[i].shared_with >= 0 || t->flat->length[i] == 0) continue;
    params_take(t->table, i, &t->place, type, host + (size_t)whole->offset[i] * dtype_bytes(type), part);
    TRY_TO(free_host, put_row(t, in, i, part));
  }
free_host:
  free(part);
  free(host);
  flat_destroy(whole);
  return err;
}

enum err weights_start(struct trainer *t)
{
  enum err err;
  const size_t bytes = PIECE * dtype_bytes(run_state_type(&t->run));
  struct incoming in = {.host = malloc(bytes)};
  if (in.host == NULL) FAIL(ERR_MEMORY, "initial weights: a piece of %d elements", PIECE);
  TRY_TO(free_host, dev_alloc(t->dev, bytes, DEV_PARAMETERS, "initial weights", &in.device));
  const struct tensor all = trainer_flat(t, &t->weights), rounded = trainer_flat(t, &t->rounded);
  if (!t->weights.offloaded) TRY_TO(free_device, op_fill(t->compute, &all, 0)); /* that one is zero already */
  if (rounded.at) TRY_TO(free_device, op_fill(t->compute, &rounded, 0));
  err = t->run.weights[0] ? read_file(t, &in) : draw(t, &in);
  const enum err done = dev_sync_stream(t->compute); /* whatever came of it, what goes must be out of use */
  if (err == ERR_OK) err = done;

free_device:
  dev_free(t->dev, in.device);
free_host:
  free(in.host);
  return err;
}
