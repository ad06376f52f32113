/* weights.c - fills the flat weights, by pieces when they are drawn, whole when they are read; then their rounded copy. */
#include "train/weights.h"

#include "ops/ops.h"
#include "params/params_io.h"

#include <stdlib.h>

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

/* This rank's part of a row. */
static enum err draw_row(struct trainer *t, int row, char *piece)
{
  const enum dtype type = run_state_type(&t->run);
  const int64_t n = t->flat->length[row];
  for (int64_t first = 0; first < n; first += PIECE) {
    const int64_t here = n - first < PIECE ? n - first : PIECE;
    char *const at = (char *)t->weights + (size_t)(t->flat->offset[row] + first) * dtype_bytes(type);
    TRY(dev_host_touch(t->dev, piece, (size_t)here * dtype_bytes(type), true));
    draw_piece(t, row, first, here, piece);
    TRY(dev_copy_in(t->compute, at, piece, (size_t)here * dtype_bytes(type)));
    TRY(dev_sync_stream(t->compute));
  }
  return ERR_OK;
}

static enum err draw(struct trainer *t)
{
  enum err err = ERR_OK;
  char *piece = malloc(PIECE * dtype_bytes(run_state_type(&t->run)));
  if (piece == NULL) FAIL(ERR_MEMORY, "initial weights: a piece of %d elements", PIECE);
  for (int i = 0; i < t->table->n; i++)
    if (t->table->rows[i].shared_with < 0) TRY_TO(free_piece, draw_row(t, i, piece));
free_piece:
  free(piece);
  return err;
}

/* The whole model on the host, then this rank's part of it to the device. */
static enum err read_file(struct trainer *t)
{
  enum err err;
  const enum dtype type = run_state_type(&t->run);
  struct flat *whole = NULL;
  char *host = NULL, *part = NULL;
  TRY(flat_create(t->table, &params_place_alone, 1, 1, false, 0, &whole));
  const size_t bytes = (size_t)whole->count * dtype_bytes(type), here = (size_t)t->flat->count * dtype_bytes(type);
  host = malloc(bytes);
  part = calloc(1, here);
  if (host == NULL || part == NULL) FAIL_TO(free_host, ERR_MEMORY, "weights %s: %zu bytes", t->run.weights, bytes + here);
  TRY_TO(free_host, params_read(t->run.weights, t->table, whole, (enum dtype)t->run.weights_as, type, host));
  for (int i = 0; i < t->table->n; i++)
    if (t->table->rows[i].shared_with < 0 && t->flat->length[i] > 0)
      params_take(t->table, i, &t->place, type, host + (size_t)whole->offset[i] * dtype_bytes(type),
                  part + (size_t)t->flat->offset[i] * dtype_bytes(type));
  TRY_TO(free_host, dev_copy_in(t->compute, t->weights, part, here));
  TRY_TO(free_host, dev_sync_stream(t->compute));
  TRY_TO(free_host, dev_host_touch(t->dev, part, here, true)); /* it goes */
free_host:
  free(part);
  free(host);
  flat_destroy(whole);
  return err;
}

enum err weights_start(struct trainer *t)
{
  const struct tensor all = trainer_flat(t, t->weights);
  TRY(op_fill(t->compute, &all, 0));
  if (t->run.weights[0]) TRY(read_file(t));
  else TRY(draw(t));
  if (t->rounded == NULL) return ERR_OK;
  const struct tensor rounded = tensor_at(t->rounded, run_work_type(&t->run), 1, t->flat->count);
  TRY(op_copy(t->compute, &rounded, &all));
  return ERR_OK;
}
