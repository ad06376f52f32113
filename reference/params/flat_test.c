/* flat_test.c - offsets, padding and buckets of the flat buffer. */
#include "params/params.h"

#include "testing/check.h"

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
  if (t == NULL || !CHECK_OK(flat_create(t, 8, 3, 0, &f))) return;
  int64_t end = 0;
  for (int i = 0; i < t->n; i++) {
    CHECK(f->length[i] == t->rows[i].rows * t->rows[i].cols);
    if (t->rows[i].shared_with >= 0) {
      CHECK(f->offset[i] == f->offset[t->rows[i].shared_with]);
      continue;
    }
    CHECK(f->offset[i] % 8 == 0 && f->offset[i] >= end && f->offset[i] - end < 8);
    end = f->offset[i] + f->length[i];
  }
  CHECK(f->count % 3 == 0 && f->count >= end && f->count - end < 8 + 3);
  CHECK(f->n_buckets == 1 && f->buckets[0].first == 0 && f->buckets[0].count == f->count);
  CHECK(f->buckets[0].first_row == 0 && f->buckets[0].rows == t->n);
  flat_destroy(f);
  params_destroy(t);
}

/* What the header says of buckets, for any size. */
static void check_buckets(const struct param_table *t, const struct flat *f, int64_t bucket)
{
  int64_t end = f->count;
  for (int b = 0; b < f->n_buckets; b++) {
    const struct flat_bucket *k = &f->buckets[b];
    CHECK(k->count > 0 && k->first + k->count == end); /* tiles, from the end */
    end = k->first;
    int64_t held = 0, largest = 0;
    for (int i = k->first_row; i < k->first_row + k->rows; i++) {
      if (t->rows[i].shared_with >= 0) continue;
      const int64_t low = f->offset[i] > k->first ? f->offset[i] : k->first;
      const int64_t high = f->offset[i] + f->length[i] < k->first + k->count ? f->offset[i] + f->length[i] : k->first + k->count;
      CHECK(high > low); /* each row named has elements here */
      held += high - low;
      if (f->length[i] > largest) largest = f->length[i];
    }
    CHECK(held <= bucket);
    for (int i = 0; i < t->n; i++) { /* each row not named has none */
      if (t->rows[i].shared_with >= 0 || (i >= k->first_row && i < k->first_row + k->rows)) continue;
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
        for (int64_t align = 1; align <= 16; align *= 4) {
          struct flat *f = NULL;
          if (!CHECK_OK(flat_create(t, align, 2, bucket, &f))) return;
          check_buckets(t, f, bucket);
          flat_destroy(f);
        }
      }
    params_destroy(t);
  }
}

static void a_row_that_fits_exactly_is_taken_and_one_element_more_is_not(void)
{
  struct param_table *t = table(true, false, 0);
  struct flat *f = NULL;
  if (t == NULL) return;
  /* the last rows: ln_f.bias 6, ln_f.weight 6, mlp.c_proj.bias 6, mlp.c_proj.weight 144 */
  if (!CHECK_OK(flat_create(t, 4, 1, 18 + 144, &f))) return;
  CHECK(f->buckets[0].rows == 4 && f->buckets[0].first == f->offset[t->n - 4]);
  flat_destroy(f);
  if (!CHECK_OK(flat_create(t, 4, 1, 18 + 143, &f))) return;
  CHECK(f->buckets[0].rows == 3 && f->buckets[0].first == f->offset[t->n - 3]);
  CHECK(f->buckets[1].first_row <= t->n - 4 && f->buckets[1].first + f->buckets[1].count == f->offset[t->n - 3]);
  flat_destroy(f);
  params_destroy(t);
}

static void a_row_larger_than_a_bucket_is_cut_into_whole_buckets(void)
{
  struct param_table *t = table(true, false, 0);
  struct flat *f = NULL;
  if (t == NULL || !CHECK_OK(flat_create(t, 1, 1, 50, &f))) return;
  const int row = t->n - 4; /* 144 = 50 + 50 + 44, then mlp.c_fc.bias of 24 does not fit in the 6 left */
  const int64_t end = f->offset[row] + f->length[row];
  CHECK(f->buckets[1].first == end - 50 && f->buckets[1].count == 50 && f->buckets[1].rows == 1);
  CHECK(f->buckets[2].first == end - 100 && f->buckets[2].count == 50 && f->buckets[2].first_row == row);
  CHECK(f->buckets[3].first == end - 144 && f->buckets[3].count == 44);
  flat_destroy(f);
  params_destroy(t);
}

static void bad_arguments_and_failed_allocations_leave_nothing(void)
{
  struct param_table *t = table(true, false, 0);
  struct flat *f = NULL;
  if (t == NULL) return;
  CHECK_ERR(flat_create(t, 0, 1, 0, &f), ERR_ARG);
  CHECK_ERR(flat_create(t, 1, 1, -1, &f), ERR_ARG);
  for (long n = 1; n <= 4; n++) {
    check_fail_allocation(n);
    CHECK_ERR(flat_create(t, 1, 1, 0, &f), ERR_MEMORY);
    CHECK(check_allocation_failed() && f == NULL);
  }
  check_fail_allocation(0);
  flat_destroy(NULL);
  params_destroy(t);
}

int main(void)
{
  static const struct test tests[] = {
    TEST(rows_stand_in_order_aligned_and_apart),
    TEST(buckets_tile_the_buffer_around_every_parameter_size),
    TEST(a_row_that_fits_exactly_is_taken_and_one_element_more_is_not),
    TEST(a_row_larger_than_a_bucket_is_cut_into_whole_buckets),
    TEST(bad_arguments_and_failed_allocations_leave_nothing),
  };
  return test_main("flat", tests, sizeof tests / sizeof *tests);
}
