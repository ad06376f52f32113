/* params_part.c - which elements of a row a rank has, and where they stand in the whole row. */
#include "params/params.h"

#include <string.h>

const struct params_place params_place_alone = {.tp = 1, .pp = 1};

enum err params_place_of(const struct run_config *c, int pp_rank, int tp_rank, struct params_place *out)
{
  struct params_place place = {.tp = (int)c->tp, .tp_rank = tp_rank, .pp = (int)c->pp, .pp_rank = pp_rank};
  BUG_IF(pp_rank < 0 || pp_rank >= c->pp || tp_rank < 0 || tp_rank >= c->tp);
  TRY(partition_make(c, &place.partition));
  *out = place;
  return ERR_OK;
}

/* The pipeline rank that has the layer. */
static int rank_of_layer(const struct params_place *place, int layer)
{
  int k = 0;
  while (k < place->partition.stages && place->partition.first[k + 1] <= layer) k++;
  BUG_IF(k == place->partition.stages); /* a partition of another model */
  return k % place->pp;
}

bool params_here(const struct param_table *t, int i, const struct params_place *place)
{
  const struct param *row = &t->rows[i];
  if (place->pp == 1) return true;
  const bool first = place->pp_rank == 0, last = place->pp_rank == place->pp - 1; /* virtual stages 0 and pp * chunks - 1 */
  switch (row->stage) {
  case PARAM_FIRST: return first;
  case PARAM_LAST: return last;
  case PARAM_FIRST_AND_LAST: return first || last;
  case PARAM_BLOCK: return rank_of_layer(place, row->layer) == place->pp_rank;
  }
  return false;
}

void params_part(const struct param_table *t, int i, const struct params_place *place, struct param_part *out)
{
  const struct param *row = &t->rows[i];
  const int64_t multiple = place->tp > 1 ? row->pad : 1; /* uncut needs no padding */
  const int64_t padded = (row->rows + multiple - 1) / multiple * multiple;
  *out = (struct param_part){0, 0};
  if (!params_here(t, i, place)) return;
  BUG_IF(row->cut == PARAM_CUT_ROWS && padded % place->tp != 0);
  BUG_IF(row->cut == PARAM_CUT_COLS && row->cols % (row->blocks * place->tp) != 0);
  out->rows = row->cut == PARAM_CUT_ROWS ? padded / place->tp : row->rows;
  out->cols = row->cut == PARAM_CUT_COLS ? row->cols / place->tp : row->cols;
}

/* Elements that follow each other in the part and in the whole row alike. */
struct run {
  int64_t full; /* the first one's place in the whole row; -1: padding */
  int64_t n;
};

/* The run that begins with element `local` of the part. */
static struct run run_from(const struct param *row, const struct params_place *place, const struct param_part *part, int64_t local)
{
  const int64_t count = part->rows * part->cols;
  if (row->cut == PARAM_CUT_COLS) {
    const int64_t block = row->cols / row->blocks, share = block / place->tp;
    const int64_t r = local / part->cols, c = local % part->cols, into = c % share;
    return (struct run){r * row->cols + c / share * block + place->tp_rank * share + into, share - into};
  }
  const int64_t full = (row->cut == PARAM_CUT_ROWS ? place->tp_rank * count : 0) + local, end = row->rows * row->cols;
  if (full >= end) return (struct run){-1, count - local};
  return (struct run){full, count - local < end - full ? count - local : end - full};
}

void params_take(const struct param_table *t, int i, const struct params_place *place, enum dtype type, const void *full, void *local)
{
  const size_t bytes = dtype_bytes(type);
  struct param_part part;
  params_part(t, i, place, &part);
  struct run run;
  for (int64_t k = 0; k < part.rows * part.cols; k += run.n) {
    run = run_from(&t->rows[i], place, &part, k);
    char *to = (char *)local + (size_t)k * bytes;
    if (run.full < 0) memset(to, 0, (size_t)run.n * bytes);
    else memcpy(to, (const char *)full + (size_t)run.full * bytes, (size_t)run.n * bytes);
  }
}

void params_put(const struct param_table *t, int i, const struct params_place *place, enum dtype type, const void *local, void *full)
{
  const size_t bytes = dtype_bytes(type);
  struct param_part part;
  params_part(t, i, place, &part);
  struct run run;
  for (int64_t k = 0; k < part.rows * part.cols; k += run.n) {
    run = run_from(&t->rows[i], place, &part, k);
    if (run.full >= 0) memcpy((char *)full + (size_t)run.full * bytes, (const char *)local + (size_t)k * bytes, (size_t)run.n * bytes);
  }
}

void params_initial_piece(const struct param_table *t, int i, const struct params_place *place, uint64_t seed, bool revealing,
                          enum dtype as, enum dtype type, int64_t first, int64_t n, void *out)
{
  const size_t bytes = dtype_bytes(type);
  struct param_part part;
  params_part(t, i, place, &part);
  BUG_IF(first < 0 || n < 0 || first + n > part.rows * part.cols);
  for (int64_t k = 0; k < n;) {
    struct run run = run_from(&t->rows[i], place, &part, first + k);
    char *to = (char *)out + (size_t)k * bytes;
    if (run.n > n - k) run.n = n - k;
    if (run.full < 0) memset(to, 0, (size_t)run.n * bytes);
    else params_initial(t, i, seed, revealing, as, type, run.full, run.n, to);
    k += run.n;
  }
}

void params_initial_part(const struct param_table *t, int i, const struct params_place *place, uint64_t seed, bool revealing,
                         enum dtype as, enum dtype type, void *out)
{
  struct param_part part;
  params_part(t, i, place, &part);
  params_initial_piece(t, i, place, seed, revealing, as, type, 0, part.rows * part.cols, out);
}

bool params_counts(const struct param_table *t, int i, const struct params_place *place)
{
  const struct param *row = &t->rows[i];
  if (row->shared_with >= 0 || row->frozen || !params_here(t, i, place)) return false;
  if (row->stage == PARAM_FIRST_AND_LAST && place->pp_rank != 0) return false;
  return row->cut != PARAM_WHOLE || place->tp_rank == 0;
}
