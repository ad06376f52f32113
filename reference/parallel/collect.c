/* collect.c - parts are packed in table order, gathered on rank 0 and put where they belong. */
#include "parallel/collect.h"

#include <stdlib.h>
#include <string.h>

static struct params_place place_at(const struct params_place *mine, int pp_rank, int tp_rank)
{
  struct params_place place = *mine;
  place.pp_rank = pp_rank;
  place.tp_rank = tp_rank;
  return place;
}

/* Of all parts that a rank holds. */
static size_t packed_bytes(const struct param_table *t, const struct params_place *place, size_t element)
{
  size_t bytes = 0;
  for (int i = 0; i < t->n; i++) {
    struct param_part part;
    params_part(t, i, place, &part);
    if (t->rows[i].shared_with < 0) bytes += (size_t)(part.rows * part.cols) * element;
  }
  return bytes;
}

static size_t largest_bytes(const struct param_table *t, const struct params_place *mine, size_t element)
{
  size_t largest = 0;
  for (int p = 0; p < mine->pp; p++) { /* tensor ranks hold equal shapes */
    const struct params_place place = place_at(mine, p, 0);
    const size_t bytes = packed_bytes(t, &place, element);
    if (bytes > largest) largest = bytes;
  }
  return largest;
}

static void pack(const struct param_table *t, const struct flat *f, size_t element, const char *local, char *out)
{
  for (int i = 0; i < t->n; i++) {
    if (t->rows[i].shared_with >= 0) continue;
    memcpy(out, local + (size_t)f->offset[i] * element, (size_t)f->length[i] * element);
    out += (size_t)f->length[i] * element;
  }
}

static void unpack(const struct param_table *t, const struct params_place *place, enum dtype type, const char *packed, char *full)
{
  for (int i = 0; i < t->n; i++) {
    struct param_part part;
    if (t->rows[i].shared_with >= 0) continue;
    params_part(t, i, place, &part);
    params_put(t, i, place, type, packed, full);
    packed += (size_t)(part.rows * part.cols) * dtype_bytes(type);
    full += (size_t)(t->rows[i].rows * t->rows[i].cols) * dtype_bytes(type);
  }
}

enum err collect_flat(struct comm_world *w, const struct mesh *mesh, const struct param_table *table, const struct flat *flat,
                      const struct params_place *place, enum dtype type, const void *local_host, void *full_host)
{
  enum err err = ERR_OK;
  const size_t element = dtype_bytes(type), bytes = largest_bytes(table, place, element);
  const bool root = comm_rank(w) == 0;
  char *all = root ? malloc(bytes * (size_t)comm_size(w)) : NULL, *mine = calloc(1, bytes);
  if (mine == NULL || (root && all == NULL))
    err = err_set(ERR_MEMORY, __FILE__, __LINE__, "collecting parts: %zu bytes on rank 0", bytes * (size_t)comm_size(w));
  TRY_TO(release, comm_agree(w, err));
  pack(table, flat, element, local_host, mine);
  TRY_TO(release, comm_host_gather(w, mine, bytes, all));
  /* From the last rank to the first: of what several hold, the first one's stays. */
  for (int p = place->pp - 1; root && p >= 0; p--)
    for (int t = place->tp - 1; t >= 0; t--) {
      const struct params_place theirs = place_at(place, p, t);
      unpack(table, &theirs, type, all + (size_t)mesh_rank(mesh, p, 0, t) * bytes, full_host);
    }

release:
  free(mine);
  free(all);
  return err;
}
