/* canonical.c - a flat buffer from the device, then its parts from all ranks. */
#include "train/canonical.h"

#include "parallel/collect.h"

#include <stdlib.h>
#include <string.h>

struct canonical {
  struct trainer *t;
  struct flat *flat; /* of the whole */
  void *part, *whole; /* whole: rank 0; the part itself where nothing is cut */
};

bool canonical_is_cut(const struct trainer *t) { return t->mesh.tp > 1 || t->mesh.pp > 1 || t->weights.hold != FLAT_WHOLE; }

static enum dtype type_of(const struct canonical *c) { return run_state_type(&c->t->run); }

static enum err allocate(struct canonical *c)
{
  struct trainer *t = c->t;
  TRY(flat_create(t->table, &params_place_alone, 1, 1, false, 0, &c->flat));
  const size_t bytes = (size_t)t->flat->count * dtype_bytes(type_of(c)), all = (size_t)c->flat->count * dtype_bytes(type_of(c));
  c->part = malloc(bytes);
  if (c->part == NULL) FAIL(ERR_MEMORY, "canonical tensors: %zu bytes for a host copy", bytes);
  if (comm_rank(t->world) != 0) return ERR_OK;
  c->whole = malloc(all);
  if (c->whole == NULL) FAIL(ERR_MEMORY, "canonical tensors: %zu bytes for the whole model", all);
  return ERR_OK;
}

/* The ranks agree, for none may miss in the collecting that follows. */
enum err canonical_create(struct trainer *t, struct canonical **out)
{
  enum err err;
  *out = NULL;
  struct canonical *c = calloc(1, sizeof *c);
  if (c != NULL) {
    c->t = t;
    err = allocate(c);
  } else {
    err = err_set(ERR_MEMORY, __FILE__, __LINE__, "canonical tensors: %zu bytes", sizeof *c);
  }
  TRY_TO(destroy, comm_agree(t->world, err));
  *out = c;
  return ERR_OK;

destroy:
  canonical_destroy(c);
  return err;
}

void canonical_destroy(struct canonical *c)
{
  if (c == NULL) return;
  free(c->whole);
  free(c->part);
  flat_destroy(c->flat);
  free(c);
}

enum err canonical_take(struct canonical *c, const struct flat_buffer *b)
{
  struct trainer *t = c->t;
  const size_t bytes = (size_t)flat_buffer_count(t->flat, b) * dtype_bytes(b->type);
  const struct flat_buffer local = {.at = c->part, .type = b->type, .hold = b->hold};
  TRY(trainer_settle(t));
  if (!b->offloaded) TRY(dev_copy_out(t->compute, c->part, b->at, bytes));
  TRY(dev_sync_stream(t->compute));
  TRY(dev_host_touch(t->dev, b->offloaded ? b->at : c->part, bytes, false));
  if (b->offloaded) memcpy(c->part, b->at, bytes);
  TRY(collect_flat(t->world, &t->mesh, t->table, t->flat, &t->place, &local, c->whole));
  return ERR_OK;
}

const struct flat *canonical_flat(const struct canonical *c) { return c->flat; }
const void *canonical_host(const struct canonical *c) { return c->whole; }

struct tensor canonical_row(const struct canonical *c, int row)
{
  const struct param *p = &c->t->table->rows[row];
  return tensor_at((char *)c->whole + (size_t)c->flat->offset[row] * dtype_bytes(type_of(c)), type_of(c), p->rows, p->cols);
}
