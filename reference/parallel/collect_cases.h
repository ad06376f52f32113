/* collect_cases.h - parts cut from known wholes come together again, over 1, 2 and 4 ranks in every layout. */
#include "parallel/collect.h"
#include "testing/check.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct comm_world *world;

enum { LARGEST = 512 }; /* elements of a row */

/* Element k of row i. */
static double value(int i, int64_t k) { return 1000.0 * (i + 1) + (double)k; }

/* Of a whole buffer, which goes. */
static void *only_pieces(const struct param_table *t, const struct flat *f, int shard, enum dtype type, enum flat_hold hold, void *whole)
{
  const size_t element = dtype_bytes(type);
  struct flat_buffer from = {.at = whole, .type = type, .hold = FLAT_PIECES}, to = {.at = malloc((size_t)f->count * element), .type = type, .hold = hold};
  struct flat_piece *list = NULL;
  int n = 0;
  CHECK_OK(flat_pieces(f, t, shard, &list, &n));
  if (CHECK(to.at != NULL)) memset(to.at, 0xFF, (size_t)f->count * element);
  for (int i = 0; i < n; i++) memcpy(flat_view(&to, &list[i]).at, flat_view(&from, &list[i]).at, (size_t)list[i].count * element);
  free(list);
  free(whole);
  return to.at;
}

/* What this rank holds: its parts, where they count; other numbers where another rank's are to be taken.  Where
 * replicas share, only the pieces of its shard count, and they may stand side by side. */
static void *local_of(const struct mesh *m, const struct param_table *t, const struct flat *f, const struct params_place *place,
                      enum dtype type, enum flat_hold hold)
{
  const int replicas_taken = hold == FLAT_WHOLE ? 1 : f->shards;
  const size_t element = dtype_bytes(type);
  char *local = malloc((size_t)f->count * element);
  if (!CHECK(local != NULL)) return NULL;
  memset(local, 0xFF, (size_t)f->count * element);
  for (int i = 0; i < t->n; i++) {
    if (t->rows[i].shared_with >= 0) continue;
    const bool first_copy = (t->rows[i].cut != PARAM_WHOLE || m->tp_rank == 0) && (t->rows[i].stage != PARAM_FIRST_AND_LAST || m->pp_rank == 0);
    const bool taken = m->dp_rank < replicas_taken && first_copy;
    double full[LARGEST];
    char rounded[LARGEST * sizeof(double)];
    for (int64_t k = 0; k < t->rows[i].rows * t->rows[i].cols; k++) full[k] = taken ? value(i, k) : -1.0 - comm_rank(world);
    for (int64_t k = 0; k < t->rows[i].rows * t->rows[i].cols; k++) params_store(rounded, type, type, k, full[k]);
    params_take(t, i, place, type, rounded, local + (size_t)f->offset[i] * element);
  }
  return hold == FLAT_WHOLE ? local : only_pieces(t, f, m->dp_rank % f->shards, type, hold, local);
}

static void check_full(const struct param_table *t, enum dtype type, const void *full)
{
  int64_t at = 0;
  for (int i = 0; i < t->n; i++) {
    if (t->rows[i].shared_with >= 0) continue;
    for (int64_t k = 0; k < t->rows[i].rows * t->rows[i].cols; k++, at++)
      CHECK((type == DTYPE_F64 ? ((const double *)full)[at] : (double)((const float *)full)[at]) == value(i, k));
  }
}

static void collect_held(const struct run_config *c, enum dtype type, enum flat_hold hold, int64_t shards)
{
  struct mesh m;
  struct params_place place;
  struct param_table *t = NULL;
  struct flat *f = NULL, *whole = NULL;
  CHECK_OK(mesh_create(c, comm_rank(world), comm_size(world), &m));
  CHECK_OK(params_place_of(c, m.pp_rank, m.tp_rank, &place));
  CHECK_OK(params_create(c, &t));
  CHECK_OK(flat_create(t, &place, 8, shards, false, 50, &f));
  CHECK_OK(flat_create(t, &params_place_alone, 1, 1, false, 0, &whole));
  void *local = local_of(&m, t, f, &place, type, hold), *full = malloc((size_t)whole->count * sizeof(double));
  if (CHECK(full != NULL)) memset(full, 0xFF, (size_t)whole->count * sizeof(double));
  const struct flat_buffer held = {.at = local, .type = type, .hold = hold};
  CHECK_OK(collect_flat(world, &m, t, f, &place, &held, comm_rank(world) == 0 ? full : NULL));
  if (comm_rank(world) == 0) check_full(t, type, full);
  free(full);
  free(local);
  flat_destroy(whole);
  flat_destroy(f);
  params_destroy(t);
}

static void collect(const struct run_config *c, enum dtype type) { collect_held(c, type, FLAT_WHOLE, 3); }

static struct run_config layout(int64_t dp, int64_t tp, int64_t pp)
{
  return (struct run_config){.layers = 4, .heads = 4, .hidden = 8, .positions = 5, .vocab = 13, .tied = true, .unused = true,
                             .dp = dp, .tp = tp, .pp = pp, .chunks = 1, .stages = "auto", .sequence = 5};
}

static void parts_come_together_in_every_layout(void)
{
  const int64_t size = comm_size(world);
  for (int64_t dp = 1; dp <= size; dp++)
    for (int64_t tp = 1; dp * tp <= size; tp++) {
      if (size % (dp * tp) != 0) continue;
      for (int order = 0; order < 6; order++)
        for (int variant = 0; variant < 4; variant++) {
          struct run_config c = layout(dp, tp, size / (dp * tp));
          c.mesh_order = order;
          c.tied = variant & 1;
          collect(&c, variant & 2 ? DTYPE_F32 : DTYPE_F64);
        }
    }
}

static void chunks_and_shared_blocks_come_together(void)
{
  const int64_t size = comm_size(world);
  struct run_config c = layout(1, 1, size);
  if (size <= 2) {
    c.chunks = 2;
    if (size == 2) strcpy(c.stages, "1,1,1,1");
    collect(&c, DTYPE_F64);
  }
  c = layout(1, size, 1);
  c.reused = 2;
  collect(&c, DTYPE_F64);
}

static void what_replicas_share_comes_together(void)
{
  const int64_t size = comm_size(world);
  for (int64_t dp = 2; dp <= size; dp++)
    for (int64_t shards = 2; shards <= dp; shards++)
      for (int hold = FLAT_PIECES; hold <= FLAT_SHARD; hold++)
        for (int order = 0; order < 6; order++) {
          if (size % dp != 0 || dp % shards != 0) continue;
          struct run_config c = layout(dp, order % 2 ? size / dp : 1, order % 2 ? 1 : size / dp);
          c.mesh_order = order;
          collect_held(&c, order % 4 ? DTYPE_F32 : DTYPE_F64, (enum flat_hold)hold, shards);
        }
}

/* The last rank alone is out of memory: all hear of it, and none waits. */
static void a_failed_allocation_is_told_to_all(void)
{
  const struct run_config c = layout(1, comm_size(world), 1);
  struct mesh m;
  struct params_place place;
  struct param_table *t = NULL;
  struct flat *f = NULL;
  CHECK_OK(mesh_create(&c, comm_rank(world), comm_size(world), &m));
  CHECK_OK(params_place_of(&c, m.pp_rank, m.tp_rank, &place));
  CHECK_OK(params_create(&c, &t));
  CHECK_OK(flat_create(t, &place, 8, 3, false, 0, &f));
  void *local = local_of(&m, t, f, &place, DTYPE_F32, FLAT_WHOLE), *full = calloc((size_t)params_count(t) + 64, sizeof(float));
  if (comm_rank(world) == comm_size(world) - 1) check_fail_allocation(1);
  const struct flat_buffer held = {.at = local, .type = DTYPE_F32, .hold = FLAT_WHOLE};
  CHECK_ERR(collect_flat(world, &m, t, f, &place, &held, full), ERR_MEMORY);
  check_fail_allocation(0);
  CHECK_OK(collect_flat(world, &m, t, f, &place, &held, full));
  if (comm_rank(world) == 0) check_full(t, DTYPE_F32, full);
  free(full);
  free(local);
  flat_destroy(f);
  params_destroy(t);
}

int main(void)
{
  static const struct test tests[] = {
    TEST(parts_come_together_in_every_layout),
    TEST(chunks_and_shared_blocks_come_together),
    TEST(what_replicas_share_comes_together),
    TEST(a_failed_allocation_is_told_to_all),
  };
  if (comm_world_open(&world) != ERR_OK) {
    fprintf(stderr, "%s\n", err_text());
    return 1;
  }
  const int status = test_main("collect", tests, sizeof tests / sizeof *tests);
  comm_world_close(world);
  return status;
}
