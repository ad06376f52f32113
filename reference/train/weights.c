/* weights.c - fills the flat weights, by pieces when they are drawn, whole when they are read. */
#include "train/weights.h"

#include "ops/ops.h"
#include "params/params_io.h"

#include <stdlib.h>

enum { PIECE = 1 << 16 }; /* elements: the memory suite should not see a second copy of the model */

static enum err draw_row(struct trainer *t, int row, char *piece)
{
  const size_t bytes = dtype_bytes((enum dtype)t->run.precision);
  const int64_t n = t->table->rows[row].rows * t->table->rows[row].cols;
  for (int64_t first = 0; first < n; first += PIECE) {
    const int64_t here = n - first < PIECE ? n - first : PIECE;
    params_initial(t->table, row, (uint64_t)t->run.seed, t->run.revealing, (enum dtype)t->run.weights_as,
                   (enum dtype)t->run.precision, first, here, piece);
    TRY(dev_copy_in(t->compute, (char *)t->weights + (size_t)(t->flat->offset[row] + first) * bytes, piece, (size_t)here * bytes));
    TRY(dev_sync_stream(t->compute));
  }
  return ERR_OK;
}

static enum err draw(struct trainer *t)
{
  enum err err = ERR_OK;
  char *piece = malloc(PIECE * dtype_bytes((enum dtype)t->run.precision));
  if (piece == NULL) FAIL(ERR_MEMORY, "initial weights: a piece of %d elements", PIECE);
  for (int i = 0; i < t->table->n; i++)
    if (t->table->rows[i].shared_with < 0) TRY_TO(free_piece, draw_row(t, i, piece));
free_piece:
  free(piece);
  return err;
}

static enum err read_file(struct trainer *t)
{
  enum err err;
  const size_t bytes = (size_t)t->flat->count * dtype_bytes((enum dtype)t->run.precision);
  void *host = calloc(1, bytes);
  if (host == NULL) FAIL(ERR_MEMORY, "weights %s: %zu bytes", t->run.weights, bytes);
  TRY_TO(free_host, params_read(t->run.weights, t->table, t->flat, (enum dtype)t->run.weights_as, (enum dtype)t->run.precision, host));
  TRY_TO(free_host, dev_copy_in(t->compute, t->weights, host, bytes));
  TRY_TO(free_host, dev_sync_stream(t->compute));
free_host:
  free(host);
  return err;
}

enum err weights_start(struct trainer *t)
{
  const struct tensor all = trainer_flat(t, t->weights);
  TRY(op_fill(t->compute, &all, 0));
  if (t->run.weights[0]) TRY(read_file(t));
  else TRY(draw(t));
  return ERR_OK;
}
