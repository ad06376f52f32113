/* flat_test.c - offsets, padding and buckets of the flat buffer. */
#include "params/params.h"

#include "testing/check.h"

#include <stdlib.h>

static struct param_table *table(bool tied, bool unused, int64_t reused)
{
  const struct run_config c = {.layers = 4, .heads = 2, .hidden = 6, .positions = 5, .vocab = 11, .tied = tied,
                               .unused = unused, .reused = reused, .tp = 1};
  struct param_table *t = NULL;
  CHECK_OK(params_create(&c, &t));
  return t;
}

static void rows_stand_in_order_aligned_and_apart(void)
{
  struct param_table *t = table(false, true, 1);
  struct flat *f = NULL;
  if (t == NULL || !CHECK_OK(flat_create(t, &params_place_alone, 8, 3, false, 0, &f))) return;
  int64_t end = 0;
  for (int i = 0; i < t->n; i++) {
    CHECK(f->length[i] == t->rows[i].rows * t->rows[i].cols);
    if (t->rows[i].shared_with >= 0) {
      CHECK(f->offset[i] == f->offset[t->rows[i].shared_with]);
      continue;
    }
    CHECK(f->offset[i] % 24 == 0 && f->offset[i] >= end && f->offset[i] - end < 24);
    end = f->offset[i] + f->length[i];
  }
  CHECK(f->count % 24 == 0 && f->count >= end && f->count - end < 24);
  CHECK(f->n_buckets == 1 && f->buckets[0].first == 0 && f->buckets[0].count == f->count);
  CHECK(f->buckets[0].first_row == 0 && f->buckets[0].rows == t->n);
  flat_destroy(f);
  params_destroy(t);
}

/* What the header says of buckets, for any size; bounds are multiples of `each`. */
static void check_buckets(const struct param_table *t, const struct flat *f, int64_t bucket, int64_t each)
{
  int64_t end = f->count;
  for (int b = 0; b < f->n_buckets; b++) {
    const struct flat_bucket *k = &f->buckets[b];
    CHECK(k->count > 0 && k->first + k->count == end); /* tiles, from the end */
    end = k->first;
    int64_t held = 0, largest = 0;
    for (int i = k->first_row; i < k->first_row + k->rows; i++) {
      if (t->rows[i].shared_with >= 0 || f->length[i] == 0) continue;
      const int64_t low = f->offset[i] > k->first ? f->offset[i] : k->first;
      const int64_t high = f->offset[i] + f->length[i] < k->first + k->count ? f->offset[i] + f->length[i] : k->first + k->count;
      CHECK(high > low); /* each row named has elements here */
      held += high - low;
      if (f->length[i] > largest) largest = f->length[i];
    }
    CHECK(held < bucket + each && k->first % each == 0 && k->count % each == 0);
    for (int i = 0; i < t->n; i++) { /* each row not named has none */
      if (t->rows[i].shared_with >= 0 || f->length[i] == 0 || (i >= k->first_row && i < k->first_row + k->rows)) continue;
      CHECK(f->offset[i] >= k->first + k->count || f->offset[i] + f->length[i] <= k->first);
    }
    if (largest <= bucket) CHECK(k->first == f->offset[k->first_row]); /* border of a row */
  }
  CHECK(end == 0);
}

static void buckets_tile_the_buffer_around_every_parameter_size(void)
{
  for (int variant = 0; variant < 4; variant++) {
    struct param_table *t = table(variant & 1, variant & 1, variant & 2 ? 2 : 0);
    if (t == NULL) return;
    for (int i = 0; i < t->n; i++)
      for (int64_t change = -1; change <= 1; change++) {
        const int64_t bucket = t->rows[i].rows * t->rows[i].cols + change;
        for (int64_t align = 1; align <= 16; align *= 4)
          for (int64_t shards = 1; shards <= 3; shards++) {
            struct flat *f = NULL;
            if (!CHECK_OK(flat_create(t, &params_place_alone, align, shards, false, bucket, &f))) return;
            check_buckets(t, f, bucket, shards > 1 ? align * shards : 1);
            flat_destroy(f);
          }
      }
    params_destroy(t);
  }
}

/* Begin, the blocks that this place has of its own, end: they tile the buffer, and with by_unit buckets tile them. */
static void check_units(const struct param_table *t, const struct flat *f, const struct params_place *place)
{
  int64_t next = 0;
  int blocks = 0;
  for (int i = 0; i < t->n; i++) {
    const int owner = t->rows[i].shared_with >= 0 ? t->rows[i].shared_with : i, u = flat_unit_of(f, i);
    if (t->rows[owner].layer >= 0 && !params_here(t, owner, place)) {
      CHECK(u == -1);
      continue;
    }
    if (!CHECK(u >= 0 && u < f->n_units)) continue;
    const struct flat_unit *unit = &f->units[u];
    CHECK(owner >= unit->first_row && owner < unit->first_row + unit->rows);
    CHECK((u > 0 && u < f->n_units - 1) == (t->rows[owner].layer >= 0) && (u > 0 || owner < 2));
    CHECK(t->rows[unit->first_row].layer == t->rows[owner].layer);
    if (t->rows[i].layer >= 0 && owner == i && i == unit->first_row) blocks++;
  }
  CHECK(f->n_units == blocks + 2);
  for (int u = 0; u < f->n_units; u++) {
    const struct flat_unit *unit = &f->units[u];
    int64_t held = 0;
    CHECK(unit->first == next);
    next += unit->count;
    for (int b = unit->first_bucket; b < unit->first_bucket + unit->buckets; b++) {
      CHECK(f->buckets[b].first >= unit->first && f->buckets[b].first + f->buckets[b].count <= unit->first + unit->count);
      held += f->buckets[b].count;
    }
    CHECK(held == unit->count && (unit->count > 0) == (unit->buckets > 0));
  }
  CHECK(next == f->count);
}

/* Every rank of a layout, at bucket sizes around those of its parts. */
static void check_layout(const struct run_config *c)
{
  struct param_table *t = NULL;
  if (!CHECK_OK(params_create(c, &t))) return;
  for (int rank = 0; rank < (int)(c->pp * c->tp); rank++) {
    struct params_place place;
    struct flat *f = NULL;
    CHECK_OK(params_place_of(c, rank / (int)c->tp, rank % (int)c->tp, &place));
    for (int i = 0; i < t->n; i += 5)
      for (int64_t change = -1; change <= 1; change++) {
        struct param_part part;
        params_part(t, i, &place, &part);
        const int64_t bucket = part.rows * part.cols + change;
        if (bucket < 1 || !CHECK_OK(flat_create(t, &place, 4, 1 + i % 3, true, bucket, &f))) continue;
        CHECK(f->rows[i] == part.rows && f->cols[i] == part.cols && f->length[i] == part.rows * part.cols);
        CHECK(f->offset[i] >= 0 && f->offset[i] + f->length[i] <= f->count);
        check_buckets(t, f, bucket, i % 3 > 0 ? 4 * (1 + i % 3) : 1);
        check_units(t, f, &place);
        flat_destroy(f);
      }
  }
  params_destroy(t);
}

static void buckets_tile_the_parts_of_every_rank(void)
{
  for (int64_t tp = 1; tp <= 4; tp *= 2)
    for (int64_t pp = 1; pp <= 4; pp++)
      for (int tied = 0; tied < 2; tied++) {
        const struct run_config c = {.layers = 4, .heads = 4, .hidden = 8, .positions = 5, .vocab = 11, .tied = tied, .unused = true,
                                     .tp = tp, .pp = pp, .chunks = 1, .stages = "even"};
        check_layout(&c);
      }
}

/* Elements of the buckets that have a part of row 0, which must have no other's. */
static int wte_buckets(const struct flat *f, int64_t *sizes)
{
  int n = 0;
  for (int b = 0; b < f->n_buckets; b++) {
    const struct flat_bucket *k = &f->buckets[b];
    if (k->first_row == 0) {
      CHECK(k->rows == 1);
      sizes[n++] = k->count;
    }
  }
  return n;
}

static void a_tied_embedding_is_cut_alike_on_both_stages_and_apart(void)
{
  const struct run_config c = {.layers = 4, .heads = 2, .hidden = 6, .positions = 5, .vocab = 11, .tied = true, .tp = 2, .pp = 2,
                               .chunks = 1, .stages = "even"};
  struct param_table *t = NULL;
  if (!CHECK_OK(params_create(&c, &t))) return;
  for (int64_t bucket = 0; bucket < 60; bucket++) {
    struct flat *f[2] = {NULL, NULL};
    int64_t sizes[2][64];
    int n[2];
    for (int stage = 0; stage < 2; stage++) {
      struct params_place place;
      CHECK_OK(params_place_of(&c, stage, 1, &place));
      if (!CHECK_OK(flat_create(t, &place, 4, 1, false, bucket, &f[stage]))) return;
      CHECK(f[stage]->offset[0] == 0 && f[stage]->length[0] == 36); /* 6 of 12 rows: 11 and one of padding */
      n[stage] = wte_buckets(f[stage], sizes[stage]);
    }
    CHECK(n[0] == n[1] && n[0] == (bucket == 0 ? 1 : (36 + bucket - 1) / bucket));
    CHECK_SAME_BITS(sizes[0], sizes[1], (size_t)n[0] * sizeof(int64_t));
    for (int stage = 0; stage < 2; stage++) flat_destroy(f[stage]);
  }
  params_destroy(t);
}

static void a_row_that_fits_exactly_is_taken_and_one_element_more_is_not(void)
{
  struct param_table *t = table(true, false, 0);
  struct flat *f = NULL;
  if (t == NULL) return;
  /* the last rows: ln_f.bias 6, ln_f.weight 6, mlp.c_proj.bias 6, mlp.c_proj.weight 144 */
  if (!CHECK_OK(flat_create(t, &params_place_alone, 4, 1, false, 18 + 144, &f))) return;
  CHECK(f->buckets[0].rows == 4 && f->buckets[0].first == f->offset[t->n - 4]);
  flat_destroy(f);
  if (!CHECK_OK(flat_create(t, &params_place_alone, 4, 1, false, 18 + 143, &f))) return;
  CHECK(f->buckets[0].rows == 3 && f->buckets[0].first == f->offset[t->n - 3]);
  CHECK(f->buckets[1].first_row <= t->n - 4 && f->buckets[1].first + f->buckets[1].count == f->offset[t->n - 3]);
  flat_destroy(f);
  params_destroy(t);
}

static void a_row_larger_than_a_bucket_is_cut_into_whole_buckets(void)
{
  struct param_table *t = table(true, false, 0);
  struct flat *f = NULL;
  if (t == NULL || !CHECK_OK(flat_create(t, &params_place_alone, 1, 1, false, 50, &f))) return;
  const int row = t->n - 4; /* 144 = 50 + 50 + 44, then mlp.c_fc.bias of 24 does not fit in the 6 left */
  const int64_t end = f->offset[row] + f->length[row];
  CHECK(f->buckets[1].first == end - 50 && f->buckets[1].count == 50 && f->buckets[1].rows == 1);
  CHECK(f->buckets[2].first == end - 100 && f->buckets[2].count == 50 && f->buckets[2].first_row == row);
  CHECK(f->buckets[3].first == end - 144 && f->buckets[3].count == 44);
  flat_destroy(f);
  params_destroy(t);
}

/* The begin unit's rows, then a block's, stand in one bucket each; the last bucket may have parts of two units. */
static void a_units_buckets_are_all_that_meet_it(void)
{
  struct param_table *t = table(true, false, 2);
  struct flat *f = NULL;
  if (t == NULL || !CHECK_OK(flat_create(t, &params_place_alone, 4, 2, false, 200, &f))) return;
  CHECK(f->n_units == 4 && flat_unit_of(f, 2) == 1 && flat_unit_of(f, 2 + 2 * 12) == 1); /* blocks 2 and 3 are 0 and 1 */
  int shared = 0;
  for (int u = 0; u < f->n_units; u++)
    for (int b = 0; b < f->n_buckets; b++) {
      const struct flat_unit *unit = &f->units[u];
      const struct flat_bucket *k = &f->buckets[b];
      const bool meets = k->first < unit->first + unit->count && unit->first < k->first + k->count;
      CHECK(meets == (b >= unit->first_bucket && b < unit->first_bucket + unit->buckets));
      shared += meets && (k->first < unit->first || k->first + k->count > unit->first + unit->count);
    }
  CHECK(shared >= 2); /* or the test shows nothing */
  flat_destroy(f);
  params_destroy(t);
}

/* Every element of every row is in one shard, where the order of places in a shard is that of the buffer. */
static void check_pieces(const struct param_table *t, const struct flat *f, int64_t align)
{
  char *seen = calloc((size_t)f->count, 1);
  if (!CHECK(seen != NULL)) return;
  for (int r = 0; r < f->shards; r++) {
    struct flat_piece *list = NULL;
    int n = 0, row = 0;
    int64_t shard = 0, flat = 0;
    CHECK_OK(flat_pieces(f, t, r, &list, &n));
    for (int k = 0; k < n; k++) {
      const struct flat_piece *p = &list[k];
      CHECK(p->count > 0 && p->row >= row && p->flat >= flat && p->shard >= shard);
      CHECK(p->flat >= f->offset[p->row] && p->flat + p->count <= f->offset[p->row] + f->length[p->row]);
      CHECK(p->shard % align == 0 && p->flat % align == 0); /* a row and a part of a bucket begin there */
      int b = 0;
      while (f->buckets[b].first > p->flat) b++;
      const int64_t part = f->buckets[b].count / f->shards, from = f->buckets[b].first + r * part;
      if (f->shards > 1) CHECK(p->flat >= from && p->flat + p->count <= from + part && p->shard - p->flat == f->buckets[b].first / f->shards - from);
      else CHECK(p->shard == p->flat && p->count == f->length[p->row] && (k == 0 || p->row > row));
      for (int64_t i = 0; i < p->count; i++) CHECK(seen[p->flat + i]++ == 0);
      row = p->row;
      flat = p->flat + p->count;
      shard = p->shard + p->count;
    }
    CHECK(shard <= flat_shard_count(f));
    free(list);
  }
  for (int i = 0; i < t->n; i++)
    for (int64_t k = 0; k < f->length[i]; k++) CHECK(seen[f->offset[i] + k] == 1);
  free(seen);
}

static void the_pieces_of_all_shards_are_each_element_once(void)
{
  struct param_table *t = table(true, true, 1);
  if (t == NULL) return;
  for (int64_t shards = 1; shards <= 4; shards++)
    for (int64_t bucket = 0; bucket < 160; bucket += 13)
      for (int by_unit = 0; by_unit < 2; by_unit++) {
        struct flat *f = NULL;
        if (!CHECK_OK(flat_create(t, &params_place_alone, 4, shards, by_unit, bucket, &f))) return;
        check_pieces(t, f, 4);
        flat_destroy(f);
      }
  params_destroy(t);
}

/* Where a row's buckets end, from its start; at most 64. */
static int ends_in_row(const struct flat *f, int row, int64_t *ends)
{
  int n = 0;
  for (int b = f->n_buckets - 1; b >= 0; b--) {
    const struct flat_bucket *k = &f->buckets[b];
    if (k->first >= f->offset[row] + f->length[row] || k->first + k->count <= f->offset[row] || n + 2 > 64) continue;
    ends[n++] = k->first - f->offset[row];
    ends[n++] = k->first + k->count - f->offset[row];
  }
  return n;
}

static void a_row_is_cut_alike_whatever_the_stages(void)
{
  for (int tied = 0; tied < 2; tied++)
    for (int64_t bucket = 0; bucket < 200; bucket += 23) {
      const struct run_config c = {.layers = 4, .heads = 2, .hidden = 6, .positions = 5, .vocab = 11, .tied = tied, .unused = true, .tp = 1,
                                   .pp = 2, .chunks = 1, .stages = "even"};
      struct param_table *t = NULL;
      struct flat *whole = NULL, *part = NULL;
      if (!CHECK_OK(params_create(&c, &t)) || !CHECK_OK(flat_create(t, &params_place_alone, 4, 2, true, bucket, &whole))) return;
      for (int stage = 0; stage < 2; stage++) {
        struct params_place place;
        int64_t here[64], there[64];
        CHECK_OK(params_place_of(&c, stage, 0, &place));
        if (!CHECK_OK(flat_create(t, &place, 4, 2, true, bucket, &part))) return;
        for (int i = 0; i < t->n; i++) {
          if (part->length[i] == 0) continue;
          const int n = ends_in_row(part, i, here);
          if (!CHECK(n == ends_in_row(whole, i, there) && n > 0)) continue;
          CHECK_SAME_BITS(here, there, (size_t)n * sizeof *here);
        }
        flat_destroy(part);
      }
      flat_destroy(whole);
      params_destroy(t);
    }
}

static void bad_arguments_and_failed_allocations_leave_nothing(void)
{
  struct param_table *t = table(true, false, 0);
  struct flat *f = NULL;
  if (t == NULL) return;
  CHECK_ERR(flat_create(t, &params_place_alone, 0, 1, false, 0, &f), ERR_ARG);
  CHECK_ERR(flat_create(t, &params_place_alone, 1, 1, false, -1, &f), ERR_ARG);
  for (long n = 1; n <= 5; n++) {
    check_fail_allocation(n);
    CHECK_ERR(flat_create(t, &params_place_alone, 1, 1, false, 0, &f), ERR_MEMORY);
    CHECK(check_allocation_failed() && f == NULL);
  }
  check_fail_allocation(0);
  struct flat_piece *list = NULL;
  int count;
  CHECK_OK(flat_create(t, &params_place_alone, 1, 1, false, 0, &f));
  check_fail_allocation(1);
  CHECK_ERR(flat_pieces(f, t, 0, &list, &count), ERR_MEMORY);
  check_fail_allocation(0);
  CHECK(list == NULL);
  flat_destroy(f);
  flat_destroy(NULL);
  params_destroy(t);
}

int main(void)
{
  static const struct test tests[] = {
    TEST(rows_stand_in_order_aligned_and_apart),
    TEST(buckets_tile_the_buffer_around_every_parameter_size),
    TEST(buckets_tile_the_parts_of_every_rank),
    TEST(a_tied_embedding_is_cut_alike_on_both_stages_and_apart),
    TEST(a_row_that_fits_exactly_is_taken_and_one_element_more_is_not),
    TEST(a_row_larger_than_a_bucket_is_cut_into_whole_buckets),
    TEST(a_units_buckets_are_all_that_meet_it),
    TEST(the_pieces_of_all_shards_are_each_element_once),
    TEST(a_row_is_cut_alike_whatever_the_stages),
    TEST(bad_arguments_and_failed_allocations_leave_nothing),
  };
  return test_main("flat", tests, sizeof tests / sizeof *tests);
}
