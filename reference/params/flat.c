/* flat.c - where each row stands in one flat buffer, and how that is cut into buckets. */
#include "params/params.h"

#include <inttypes.h>
#include <stdlib.h>

static int64_t round_up(int64_t n, int64_t to) { return (n + to - 1) / to * to; }

static void place_rows(const struct param_table *t, const struct params_place *place, int64_t align, int64_t shards, struct flat *f)
{
  for (int i = 0; i < t->n; i++) {
    const int owner = t->rows[i].shared_with;
    struct param_part part;
    params_part(t, i, place, &part);
    f->rows[i] = part.rows;
    f->cols[i] = part.cols;
    f->length[i] = part.rows * part.cols;
    f->offset[i] = owner >= 0 ? f->offset[owner] : f->count;
    if (owner < 0) f->count += round_up(f->length[i], align);
  }
  f->count = round_up(f->count, shards);
}

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

static int cut(const struct param_table *t, const struct params_place *place, const struct flat *f, int64_t bucket,
               struct flat_bucket *out)
{
  struct cutter c = {.out = out, .end = f->count, .last_row = -1};
  int above = -1; /* the owning row visited before */
  for (int i = t->n - 1; i >= 0; i--) {
    if (t->rows[i].shared_with >= 0 || f->length[i] == 0) continue;
    int64_t left = f->length[i];
    const bool alone = place->pp > 1 && t->rows[i].stage == PARAM_FIRST_AND_LAST;
    const bool full = bucket > 0 && c.taken + left > bucket;
    if (c.last_row >= 0 && (alone || full)) close_bucket(&c, f->offset[above], above);
    if (c.last_row < 0) c.last_row = i;
    while (bucket > 0 && left > bucket) {
      left -= bucket;
      close_bucket(&c, f->offset[i] + left, i);
      c.last_row = i;
    }
    c.taken += left;
    above = i;
  }
  close_bucket(&c, 0, above);
  return c.n;
}

enum err flat_create(const struct param_table *t, const struct params_place *place, int64_t align, int64_t shards, int64_t bucket,
                     struct flat **out)
{
  enum err err;
  *out = NULL;
  if (align < 1 || shards < 1 || bucket < 0)
    FAIL(ERR_ARG, "flat: align %" PRId64 ", shards %" PRId64 ", bucket %" PRId64, align, shards, bucket);
  struct flat *f = calloc(1, sizeof *f);
  if (f == NULL) FAIL(ERR_MEMORY, "flat: %zu bytes", sizeof *f);
  const size_t rows_bytes = (size_t)t->n * sizeof(int64_t);
  f->offset = malloc(4 * rows_bytes);
  if (f->offset == NULL) FAIL_TO(destroy, ERR_MEMORY, "flat: %zu bytes", 4 * rows_bytes);
  f->length = f->offset + t->n;
  f->rows = f->length + t->n;
  f->cols = f->rows + t->n;
  place_rows(t, place, align, shards, f);

  f->n_buckets = cut(t, place, f, bucket, NULL);
  f->buckets = malloc((size_t)f->n_buckets * sizeof *f->buckets);
  if (f->buckets == NULL) FAIL_TO(destroy, ERR_MEMORY, "flat: %d buckets", f->n_buckets);
  cut(t, place, f, bucket, f->buckets);
  *out = f;
  return ERR_OK;

destroy:
  flat_destroy(f);
  return err;
}

void flat_destroy(struct flat *f)
{
  if (f == NULL) return;
  free(f->offset); /* and length, rows and cols, which stand in the same block */
  free(f->buckets);
  free(f);
}
