/* plan_test.c - no two live buffers overlap, and little is wasted. */
#include "params/plan.h"

#include "base/rng.h"
#include "testing/check.h"

enum { MOST = 200, TIMES = 64 };

struct wanted {
  size_t bytes;
  int64_t first, last;
};

static size_t rounded(size_t bytes) { return (bytes + 255) / 256 * 256; }

/* No placement can be below the largest sum of live bytes. */
static size_t lower_bound(const struct wanted *w, int n)
{
  size_t most = 0;
  for (int64_t time = 0; time < TIMES; time++) {
    size_t live = 0;
    for (int i = 0; i < n; i++)
      if (w[i].first <= time && time <= w[i].last) live += rounded(w[i].bytes);
    if (live > most) most = live;
  }
  return most;
}

static struct plan *placed(const struct wanted *w, int n)
{
  struct plan *p = NULL;
  if (!CHECK_OK(plan_create(&p))) return NULL;
  for (int i = 0; i < n; i++) {
    int id = -1;
    CHECK_OK(plan_add(p, "buffer", w[i].bytes, w[i].first, w[i].last, &id));
    CHECK(id == i);
  }
  CHECK_OK(plan_place(p));
  return p;
}

static void check_apart(const struct plan *p, const struct wanted *w, int n)
{
  int overlaps = 0;
  for (int i = 0; i < n; i++) {
    CHECK(plan_size(p, i) == rounded(w[i].bytes) && plan_offset(p, i) % 256 == 0);
    CHECK(plan_offset(p, i) + plan_size(p, i) <= plan_bytes(p));
    for (int k = 0; k < i; k++)
      if (w[i].first <= w[k].last && w[k].first <= w[i].last && plan_offset(p, i) < plan_offset(p, k) + plan_size(p, k) &&
          plan_offset(p, k) < plan_offset(p, i) + plan_size(p, i))
        overlaps++;
  }
  CHECK(overlaps == 0);
}

static void live_buffers_never_overlap_and_reuse_is_near_the_bound(void)
{
  static struct wanted w[MOST];
  double worst = 0.0;
  for (uint32_t trial = 0; trial < 200; trial++) {
    const struct rng_key key = {20, RNG_TEST, trial};
    const int n = 1 + (int)rng_below(key, 0, MOST);
    for (int i = 0; i < n; i++) {
      const uint64_t at = 10 + 4 * (uint64_t)i;
      const int64_t a = (int64_t)rng_below(key, at, TIMES), b = (int64_t)rng_below(key, at + 1, TIMES);
      w[i] = (struct wanted){(size_t)rng_below(key, at + 2, 100000), a < b ? a : b, a < b ? b : a};
    }
    struct plan *p = placed(w, n);
    if (p == NULL) return;
    check_apart(p, w, n);
    const size_t bound = lower_bound(w, n);
    CHECK(plan_bytes(p) >= bound);
    if (bound > 0 && (double)plan_bytes(p) / (double)bound > worst) worst = (double)plan_bytes(p) / (double)bound;
    plan_destroy(p);
  }
  CHECK(worst > 1.0 && worst < 1.25); /* random lifetimes are the hard case */
}

/* The shape of a training step: kept from a block's forward to its backward, and short-lived inside each. */
static void a_training_step_is_placed_without_waste(void)
{
  enum { BLOCKS = 12 };
  struct wanted w[3 * BLOCKS + 1];
  int n = 0;
  for (int l = 0; l < BLOCKS; l++) {
    const int64_t backward = 2 * BLOCKS - l;
    w[n++] = (struct wanted){160000, l, backward};
    w[n++] = (struct wanted){40000, backward, backward};
    w[n++] = (struct wanted){70000, backward, backward};
  }
  w[n++] = (struct wanted){500000, BLOCKS, BLOCKS}; /* logits */
  struct plan *p = placed(w, n);
  if (p == NULL) return;
  check_apart(p, w, n);
  CHECK(plan_bytes(p) == lower_bound(w, n));
  plan_destroy(p);
}

static void the_same_buffers_get_the_same_places(void)
{
  struct wanted w[40];
  for (int i = 0; i < 40; i++) w[i] = (struct wanted){(size_t)(i % 5) * 1000, i / 3, i / 3 + i % 7};
  struct plan *a = placed(w, 40), *b = placed(w, 40);
  if (a == NULL || b == NULL) return;
  for (int i = 0; i < 40; i++) CHECK(plan_offset(a, i) == plan_offset(b, i));
  plan_destroy(a);
  plan_destroy(b);
}

static void neighbours_in_time_share_only_when_intervals_do_not_meet(void)
{
  const struct wanted w[] = {{1024, 0, 1}, {1024, 1, 2}, {1024, 2, 3}};
  struct plan *p = placed(w, 3);
  if (p == NULL) return;
  CHECK(plan_offset(p, 0) != plan_offset(p, 1) && plan_offset(p, 1) != plan_offset(p, 2));
  CHECK(plan_offset(p, 0) == plan_offset(p, 2) && plan_bytes(p) == 2048);
  plan_destroy(p);
}

static void misuse_is_refused(void)
{
  struct plan *p = NULL;
  int id = -1;
  if (!CHECK_OK(plan_create(&p))) return;
  CHECK_ERR(plan_add(p, "backwards", 1, 2, 1, &id), ERR_ARG);
  CHECK_TEXT_HAS(err_text(), "backwards");
  CHECK_ERR(plan_add(p, "endless", SIZE_MAX, 0, 0, &id), ERR_MEMORY);
  CHECK(id == -1);
  CHECK_OK(plan_place(p));
  CHECK(plan_bytes(p) == 0);
  CHECK_ERR(plan_add(p, "late", 1, 0, 0, &id), ERR_ARG);
  CHECK_ERR(plan_place(p), ERR_ARG);
  plan_destroy(p);
  plan_destroy(NULL);
}

static void failed_allocations_are_reported(void)
{
  struct plan *p = NULL;
  int id = -1;
  check_fail_allocation(1);
  CHECK_ERR(plan_create(&p), ERR_MEMORY);
  CHECK(p == NULL);
  check_fail_allocation(0);
  if (!CHECK_OK(plan_create(&p))) return;
  check_fail_allocation(1);
  CHECK_ERR(plan_add(p, "x", 10, 0, 0, &id), ERR_MEMORY);
  check_fail_allocation(0);
  CHECK_OK(plan_add(p, "x", 10, 0, 0, &id));
  for (long n = 1; n <= 2; n++) {
    check_fail_allocation(n);
    CHECK_ERR(plan_place(p), ERR_MEMORY);
  }
  check_fail_allocation(0);
  CHECK_OK(plan_place(p));
  plan_destroy(p);
}

int main(void)
{
  static const struct test tests[] = {
    TEST(live_buffers_never_overlap_and_reuse_is_near_the_bound),
    TEST(a_training_step_is_placed_without_waste),
    TEST(the_same_buffers_get_the_same_places),
    TEST(neighbours_in_time_share_only_when_intervals_do_not_meet),
    TEST(misuse_is_refused),
    TEST(failed_allocations_are_reported),
  };
  return test_main("plan", tests, sizeof tests / sizeof *tests);
}
