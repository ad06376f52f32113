/* collect.c - what ranks hold is packed in table order, gathered on rank 0 and put where it belongs. */
#include "parallel/collect.h"

#include <stdlib.h>
#include <string.h>

/* What all calls look at. */
struct collection {
  const struct mesh *mesh;
  const struct param_table *table;
  const struct flat *flat; /* of this rank */
  const struct params_place *place;
  const struct flat_buffer *local;
  bool shared;             /* by consecutive replicas */
};

static struct params_place place_at(const struct params_place *mine, int pp_rank, int tp_rank)
{
  struct params_place place = *mine;
  place.pp_rank = pp_rank;
  place.tp_rank = tp_rank;
  return place;
}

static size_t element(const struct collection *c) { return dtype_bytes(c->local->type); }

/* The layout of another stage; tensor ranks have equal ones. */
static enum err layout_at(const struct collection *c, const struct params_place *place, struct flat **out)
{
  const struct flat *f = c->flat;
  TRY(flat_create(c->table, place, f->align, f->shards, f->by_unit, f->bucket, out));
  return ERR_OK;
}

static enum err pieces_of(const struct collection *c, const struct flat *f, int shard, struct flat_piece **out, int *n)
{
  TRY(flat_pieces(f, c->table, c->shared ? shard : FLAT_ALL, out, n));
  return ERR_OK;
}

/* As much as any rank packs. */
static enum err largest_bytes(const struct collection *c, size_t *out)
{
  *out = 0;
  for (int p = 0; p < c->place->pp; p++) {
    const struct params_place place = place_at(c->place, p, 0);
    struct flat *f;
    TRY(layout_at(c, &place, &f));
    const size_t bytes = (size_t)(c->shared ? flat_shard_count(f) : f->count) * element(c);
    if (bytes > *out) *out = bytes;
    flat_destroy(f);
  }
  return ERR_OK;
}

static enum err pack(const struct collection *c, char *out)
{
  struct flat_piece *list;
  int n;
  TRY(pieces_of(c, c->flat, c->mesh->dp_rank % c->flat->shards, &list, &n));
  for (int i = 0; i < n; i++) {
    const size_t bytes = (size_t)list[i].count * element(c);
    memcpy(out, flat_view(c->local, &list[i]).at, bytes);
    out += bytes;
  }
  free(list);
  return ERR_OK;
}

/* What one rank packed, where it stands in the flat buffer of its stage. */
static enum err unpack(const struct collection *c, const struct flat *f, int shard, const char *packed, char *part)
{
  struct flat_piece *list;
  int n;
  TRY(pieces_of(c, f, shard, &list, &n));
  for (int i = 0; i < n; i++) {
    const size_t bytes = (size_t)list[i].count * element(c);
    memcpy(part + (size_t)list[i].flat * element(c), packed, bytes);
    packed += bytes;
  }
  free(list);
  return ERR_OK;
}

/* A rank's part of every row, or that of the ranks that share it, into the whole. */
static enum err put(const struct collection *c, int pp_rank, int tp_rank, const char *all, size_t bytes, char *full)
{
  enum err err;
  const struct params_place theirs = place_at(c->place, pp_rank, tp_rank);
  struct flat *f = NULL;
  TRY(layout_at(c, &theirs, &f));
  char *part = malloc((size_t)f->count * element(c) + 1);
  if (part == NULL) FAIL_TO(release, ERR_MEMORY, "collecting parts: %zu bytes on rank 0", (size_t)f->count * element(c));
  for (int r = 0; r < (c->shared ? f->shards : 1); r++) {
    const char *packed = all + (size_t)mesh_rank(c->mesh, pp_rank, r, tp_rank) * bytes;
    TRY_TO(release, unpack(c, f, r, packed, part));
  }
  err = ERR_OK;
  for (int i = 0; i < c->table->n; i++) {
    const struct param *row = &c->table->rows[i];
    if (row->shared_with >= 0) continue;
    params_put(c->table, i, &theirs, c->local->type, part + (size_t)f->offset[i] * element(c), full);
    full += (size_t)(row->rows * row->cols) * element(c);
  }

release:
  free(part);
  flat_destroy(f);
  return err;
}

static enum err prepare(const struct collection *c, int ranks, size_t *bytes, char **mine, char **all)
{
  TRY(largest_bytes(c, bytes));
  *mine = calloc(1, *bytes + 1);
  if (ranks > 0) *all = malloc(*bytes * (size_t)ranks + 1);
  if (*mine == NULL || (ranks > 0 && *all == NULL)) FAIL(ERR_MEMORY, "collecting parts: %zu bytes on rank 0", *bytes * (size_t)ranks);
  TRY(pack(c, *mine));
  return ERR_OK;
}

enum err collect_flat(struct comm_world *w, const struct mesh *mesh, const struct param_table *table, const struct flat *flat,
                      const struct params_place *place, const struct flat_buffer *local, void *full_host)
{
  enum err err;
  const struct collection c = {mesh, table, flat, place, local, local->hold != FLAT_WHOLE};
  const bool root = comm_rank(w) == 0;
  size_t bytes = 0;
  char *mine = NULL, *all = NULL;
  err = prepare(&c, root ? comm_size(w) : 0, &bytes, &mine, &all);
  TRY_TO(release, comm_agree(w, err));
  TRY_TO(release, comm_host_gather(w, mine, bytes, all));
  /* From the last rank to the first: of what several hold, the first one's stays. */
  for (int p = place->pp - 1; root && err == ERR_OK && p >= 0; p--)
    for (int t = place->tp - 1; err == ERR_OK && t >= 0; t--) err = put(&c, p, t, all, bytes, full_host);
  TRY_TO(release, comm_agree(w, err));

release:
  free(mine);
  free(all);
  return err;
}
