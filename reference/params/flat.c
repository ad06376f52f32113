/* flat.c - where each row stands in one flat buffer, and how that is cut into buckets, units and shards. */
#include "params/params.h"

#include <inttypes.h>
#include <stdlib.h>

static int64_t round_up(int64_t n, int64_t to) { return (n + to - 1) / to * to; }

static void place_rows(const struct param_table *t, const struct params_place *place, int64_t each, struct flat *f)
{
  for (int i = 0; i < t->n; i++) {
    const int owner = t->rows[i].shared_with;
    struct param_part part;
    params_part(t, i, place, &part);
    f->rows[i] = part.rows;
    f->cols[i] = part.cols;
    f->length[i] = part.rows * part.cols;
    f->offset[i] = owner >= 0 ? f->offset[owner] : f->count;
    if (owner < 0) f->count += round_up(f->length[i], each);
  }
}

/* --- units -------------------------------------------------------------------------- */

/* An owner's row joins unit u, which ends with it so far. */
static void join_unit(struct flat *f, int u, int row)
{
  struct flat_unit *unit = &f->units[u];
  if (unit->rows == 0) unit->first_row = row;
  unit->rows = row - unit->first_row + 1;
  f->unit[row] = u;
}

/* Needs places for the table's rows and two: no block is smaller than a row. */
static void list_units(const struct param_table *t, struct flat *f)
{
  int layer = -1; /* of the open unit; -1: begin */
  f->n_units = 1;
  for (int i = 0; i < t->n; i++) {
    const struct param *p = &t->rows[i];
    f->unit[i] = -1;
    if (p->shared_with >= 0 || p->layer < 0 || f->length[i] == 0) continue;
    if (p->layer != layer) f->n_units++;
    layer = p->layer;
    join_unit(f, f->n_units - 1, i);
  }
  const int end = f->n_units++;
  bool behind = false; /* the blocks, here or not */
  for (int i = 0; i < t->n; i++) {
    behind = behind || t->rows[i].layer >= 0;
    if (t->rows[i].shared_with >= 0) f->unit[i] = f->unit[t->rows[i].shared_with];
    else if (t->rows[i].layer < 0) join_unit(f, behind ? end : 0, i);
  }
}

/* Units follow each other in the buffer as in the list. */
static void place_units(struct flat *f)
{
  for (int u = f->n_units - 1; u >= 0; u--) {
    struct flat_unit *unit = &f->units[u];
    const int64_t end = u == f->n_units - 1 ? f->count : f->units[u + 1].first;
    unit->first = unit->rows > 0 ? f->offset[unit->first_row] : end;
    unit->count = end - unit->first;
  }
}

static void find_unit_buckets(struct flat *f)
{
  for (int u = 0; u < f->n_units; u++) {
    struct flat_unit *unit = &f->units[u];
    for (int b = f->n_buckets - 1; b >= 0; b--) {
      const struct flat_bucket *k = &f->buckets[b];
      if (k->first >= unit->first + unit->count || k->first + k->count <= unit->first) continue;
      unit->first_bucket = b;
      unit->buckets++;
    }
  }
}

/* --- buckets ------------------------------------------------------------------------- */

/* Cuts the buffer from its end to its start: a row that is here twice, on two stages, apart from the others.  `out` NULL: only counts the buckets. */
struct cutter {
  struct flat_bucket *out;
  int n;
  int64_t end;   /* the open bucket ends here     */
  int64_t taken; /* elements of rows in it so far */
  int last_row;  /* the highest row in it, -1: it is empty */
};

/* The open bucket reaches down to element `first`, in row `row`, and is complete. */
static void close_bucket(struct cutter *c, int64_t first, int row)
{
  if (c->out) c->out[c->n] = (struct flat_bucket){first, c->end - first, row, c->last_row - row + 1};
  c->n++;
  c->end = first;
  c->taken = 0;
  c->last_row = -1;
}

/* How a buffer is to be cut. */
struct cuts {
  int64_t bucket, each; /* elements at most; every bound is a multiple of this, 1: at any element */
  bool by_unit, pipeline;
};

/* Of another unit, or of one that other stages have a part of alone. */
static bool stands_apart(const struct param_table *t, const struct flat *f, int i, int above)
{
  return f->unit[i] != f->unit[above] || t->rows[i].stage != t->rows[above].stage;
}

static int cut(const struct param_table *t, const struct cuts *how, const struct flat *f, struct flat_bucket *out)
{
  struct cutter c = {.out = out, .end = f->count, .last_row = -1};
  int above = -1; /* the owning row visited before */
  for (int i = t->n - 1; i >= 0; i--) {
    if (t->rows[i].shared_with >= 0 || f->length[i] == 0) continue;
    int64_t left = f->length[i];
    const bool alone = how->pipeline && t->rows[i].stage == PARAM_FIRST_AND_LAST;
    const bool apart = alone || (how->by_unit && above >= 0 && stands_apart(t, f, i, above));
    const bool full = how->bucket > 0 && c.taken + left > how->bucket;
    if (c.last_row >= 0 && (apart || full)) close_bucket(&c, f->offset[above], above);
    if (c.last_row < 0) c.last_row = i;
    while (how->bucket > 0 && left > how->bucket) {
      left = (left - how->bucket) / how->each * how->each;
      close_bucket(&c, f->offset[i] + left, i);
      if (left > 0) c.last_row = i;
    }
    c.taken += left;
    above = i;
  }
  if (c.end > 0 || c.n == 0) close_bucket(&c, 0, above);
  return c.n;
}

static enum err create_buckets(const struct param_table *t, const struct cuts *how, struct flat *f)
{
  f->n_buckets = cut(t, how, f, NULL);
  f->buckets = malloc((size_t)f->n_buckets * sizeof *f->buckets);
  if (f->buckets == NULL) FAIL(ERR_MEMORY, "flat: %d buckets", f->n_buckets);
  cut(t, how, f, f->buckets);
  return ERR_OK;
}

/* --- the whole ------------------------------------------------------------------------- */

static enum err allocate(const struct param_table *t, struct flat *f)
{
  const size_t rows_bytes = (size_t)t->n * sizeof(int64_t);
  f->offset = malloc(4 * rows_bytes);
  f->unit = malloc((size_t)t->n * sizeof *f->unit);
  f->units = calloc((size_t)t->n + 2, sizeof *f->units);
  if (f->offset == NULL || f->unit == NULL || f->units == NULL) FAIL(ERR_MEMORY, "flat: %d rows", t->n);
  f->length = f->offset + t->n;
  f->rows = f->length + t->n;
  f->cols = f->rows + t->n;
  return ERR_OK;
}

enum err flat_create(const struct param_table *t, const struct params_place *place, int64_t align, int64_t shards, bool by_unit,
                     int64_t bucket, struct flat **out)
{
  enum err err;
  *out = NULL;
  if (align < 1 || shards < 1 || bucket < 0)
    FAIL(ERR_ARG, "flat: align %" PRId64 ", shards %" PRId64 ", bucket %" PRId64, align, shards, bucket);
  struct flat *f = calloc(1, sizeof *f);
  if (f == NULL) FAIL(ERR_MEMORY, "flat: %zu bytes", sizeof *f);
  const struct cuts how = {.bucket = bucket, .each = shards > 1 ? align * shards : 1, .by_unit = by_unit, .pipeline = place->pp > 1};
  f->shards = (int)shards;
  f->align = align;
  f->bucket = bucket;
  f->by_unit = by_unit;
  TRY_TO(destroy, allocate(t, f));
  place_rows(t, place, align * shards, f);
  list_units(t, f);
  place_units(f);
  TRY_TO(destroy, create_buckets(t, &how, f));
  find_unit_buckets(f);
  *out = f;
  return ERR_OK;

destroy:
  flat_destroy(f);
  return err;
}

int64_t flat_largest_bucket(const struct flat *f)
{
  int64_t largest = 0;
  for (int b = 0; b < f->n_buckets; b++)
    if (f->buckets[b].count > largest) largest = f->buckets[b].count;
  return largest;
}

int64_t flat_largest_block(const struct flat *f)
{
  int64_t largest = 0;
  for (int u = 1; u < f->n_units - 1; u++)
    if (f->units[u].count > largest) largest = f->units[u].count;
  return largest;
}

void flat_destroy(struct flat *f)
{
  if (f == NULL) return;
  free(f->offset); /* and length, rows and cols, which stand in the same block */
  free(f->unit);
  free(f->units);
  free(f->buckets);
  free(f);
}

/* --- shards ------------------------------------------------------------------------------ */

/* What shard r has of row i in bucket b; count <= 0: nothing. */
static struct flat_piece meet(const struct flat *f, int i, const struct flat_bucket *b, int r)
{
  const int64_t part = b->count / f->shards, from = b->first + r * part, to = from + part;
  const int64_t row_end = f->offset[i] + f->length[i];
  const int64_t first = from > f->offset[i] ? from : f->offset[i], end = to < row_end ? to : row_end;
  return (struct flat_piece){.row = i, .flat = first, .shard = b->first / f->shards + first - from, .count = end - first};
}

/* `out` NULL: only counts. */
static int list_pieces(const struct flat *f, const struct param_table *t, int r, struct flat_piece *out)
{
  int n = 0;
  for (int i = 0; i < t->n; i++) {
    if (t->rows[i].shared_with >= 0 || f->length[i] == 0) continue;
    if (f->shards == 1 || r == FLAT_ALL) {
      if (out) out[n] = (struct flat_piece){.row = i, .flat = f->offset[i], .shard = f->offset[i], .count = f->length[i]};
      n++;
      continue;
    }
    for (int b = f->n_buckets - 1; b >= 0; b--) { /* from the row's start to its end */
      const struct flat_piece p = meet(f, i, &f->buckets[b], r);
      if (p.count <= 0) continue;
      if (out) out[n] = p;
      n++;
    }
  }
  return n;
}

enum err flat_pieces(const struct flat *f, const struct param_table *t, int r, struct flat_piece **out, int *n)
{
  const int count = list_pieces(f, t, r, NULL);
  *out = malloc((size_t)(count + 1) * sizeof **out);
  if (*out == NULL) FAIL(ERR_MEMORY, "flat: %d pieces", count);
  *n = list_pieces(f, t, r, *out);
  return ERR_OK;
}
