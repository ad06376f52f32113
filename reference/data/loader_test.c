/* loader_test.c - what is read ahead is what would be read in place; how far ahead; what a slow or failing source does. */
#include "base/clock.h"
#include "base/rng.h"
#include "data/data_fixture.h"
#include "data/loader.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

static const int64_t NEVER = INT64_MIN;
enum { N = 3, LONG_MS = 600000, PROMPT_MS = 60000 };

static const int64_t numbers[N] = {3, 5, 4};

/* --- a source whose every read the test allows ----------------------------------------------- */

struct source {
  atomic_int allowed;          /* reads that may begin */
  atomic_int begun;
  int64_t fails_at;            /* step; NEVER: none */
  _Atomic int64_t steps[64];   /* of each read */
};

static enum err read_allowed(void *arg, int64_t step, int64_t microbatch, struct batch *out)
{
  struct source *s = arg;
  const int i = atomic_fetch_add(&s->begun, 1);
  while (atomic_load(&s->allowed) <= i) clock_sleep_ms(0.2);
  atomic_store(&s->steps[i % 64], step);
  if (step == s->fails_at && microbatch == numbers[1]) FAIL(ERR_IO, "gone: step %lld", (long long)step);
  memset(out->tokens, 0, batch_bytes(out->B, out->T));
  out->tokens[0] = (int32_t)(100 * step + microbatch);
  return ERR_OK;
}

static struct run_config small(int64_t read_ahead)
{
  struct run_config c;
  config_default(&c);
  c.micro_batch = 2;
  c.sequence = 4;
  c.steps = 10;
  c.read_ahead = read_ahead;
  return c;
}

static struct dev *open_cpu(void)
{
  const struct dev_config config = {.kind = DEV_CPU, .threads = 1};
  struct dev *d = NULL;
  CHECK_OK(dev_open(&config, &d));
  return d;
}

static bool create(const struct run_config *c, struct dev *d, struct source *s, struct loader **out)
{
  const struct loader_config config = {.run = c, .dev = d, .read = read_allowed, .arg = s, .numbers = numbers, .n = N};
  return CHECK_OK(loader_create(&config, out));
}

/* Until so many reads have begun: false if that never comes. */
static bool begun(struct source *s, int n)
{
  const double end = clock_ms() + PROMPT_MS;
  while (atomic_load(&s->begun) < n && clock_ms() < end) clock_sleep_ms(0.2);
  return atomic_load(&s->begun) == n;
}

static bool ahead(struct loader *l, int64_t n)
{
  const double end = clock_ms() + PROMPT_MS;
  while (loader_ahead(l) < n && clock_ms() < end) clock_sleep_ms(0.2);
  return loader_ahead(l) == n;
}

static bool takes(struct loader *l, int64_t step)
{
  const struct batch *b;
  if (!CHECK_OK(loader_take(l, step, &b))) return false;
  bool right = true;
  for (int i = 0; i < N; i++) right = right && b[i].tokens[0] == 100 * step + numbers[i];
  return CHECK(right);
}

/* --- tests --------------------------------------------------------------------------------------- */

static void it_reads_as_far_ahead_as_it_is_told(void)
{
  for (int64_t n = 0; n <= 3; n++) {
    const struct run_config c = small(n);
    struct source s = {.allowed = 1000, .fails_at = NEVER};
    struct dev *d = open_cpu();
    struct loader *l;
    if (!create(&c, d, &s, &l)) return;
    CHECK(ahead(l, n) && begun(&s, (int)n * N));
    for (int64_t step = 0; step < 5; step++) {
      takes(l, step);
      CHECK(ahead(l, n) && begun(&s, (int)(step + 1 + n) * N));
    }
    clock_sleep_ms(5);
    CHECK(atomic_load(&s.begun) == (5 + n) * N); /* and no further */
    loader_destroy(l);
    dev_close(d);
  }
}

/* The source gives nothing while a step that is read is taken; one that is not makes the caller wait until it is. */
static void *allow_later(void *arg)
{
  struct source *s = arg;
  clock_sleep_ms(30);
  atomic_fetch_add(&s->allowed, N);
  return NULL;
}

static void a_read_that_is_done_costs_no_wait_and_one_that_is_not_does(void)
{
  const struct run_config c = small(2);
  struct source s = {.allowed = 2 * N, .fails_at = NEVER};
  struct dev *d = open_cpu();
  struct loader *l;
  pthread_t later;
  if (!create(&c, d, &s, &l)) return;
  CHECK(ahead(l, 2));
  takes(l, 0);
  takes(l, 1); /* would not return if it waited for a read */
  CHECK(loader_ahead(l) == 0 && atomic_load(&s.allowed) == 2 * N);
  CHECK(begun(&s, 2 * N + 1)); /* the third step's first is waiting to be allowed */
  if (!CHECK(pthread_create(&later, NULL, allow_later, &s) == 0)) return;
  takes(l, 2);
  CHECK(atomic_load(&s.allowed) == 3 * N); /* so it returned after that */
  pthread_join(later, NULL);
  atomic_store(&s.allowed, 1000); /* a read that has begun is ended by its source alone */
  loader_destroy(l);
  dev_close(d);
}

/* The set that the caller has is not written to, whatever is read meanwhile. */
static void what_was_taken_stays(void)
{
  const struct run_config c = small(2);
  struct source s = {.allowed = 1000, .fails_at = NEVER};
  struct dev *d = open_cpu();
  struct loader *l;
  const struct batch *b;
  if (!create(&c, d, &s, &l)) return;
  for (int64_t step = 0; step < 8; step++) {
    if (!CHECK_OK(loader_take(l, step, &b))) break;
    ahead(l, step + 2 < 10 ? 2 : 9 - step);
    for (int i = 0; i < N; i++) CHECK(b[i].tokens[0] == 100 * step + numbers[i]);
  }
  loader_destroy(l);
  dev_close(d);
}

static void evaluations_are_read_where_they_come_and_nothing_after_the_end(void)
{
  static const int64_t order[] = {0, 1, -1, -2, 2, 3, -1, -2, 4};
  struct run_config c = small(4);
  c.steps = 5;
  c.evaluate_each = 2;
  c.evaluate_batches = 2;
  struct source s = {.allowed = 1000, .fails_at = NEVER};
  struct dev *d = open_cpu();
  struct loader *l;
  const struct batch *b;
  if (!create(&c, d, &s, &l)) return;
  for (int i = 0; i < 9; i++) CHECK_OK(loader_take(l, order[i], &b));
  clock_sleep_ms(5);
  CHECK(atomic_load(&s.begun) == 9 * N && loader_ahead(l) == 0);
  for (int i = 0; i < 9 * N; i++) CHECK(atomic_load(&s.steps[i]) == order[i / N]);
  loader_destroy(l);
  dev_close(d);
}

/* Whoever asks for another step than the next gets it, and reading goes on from there. */
static void another_step_begins_anew(void)
{
  static const int64_t asked[] = {0, 5, 6, 2, -1, 3, 3, 9, 0};
  for (int64_t n = 0; n <= 3; n++) {
    const struct run_config c = small(n);
    struct source s = {.allowed = 1000, .fails_at = NEVER};
    struct dev *d = open_cpu();
    struct loader *l;
    if (!create(&c, d, &s, &l)) return;
    for (size_t i = 0; i < sizeof asked / sizeof *asked; i++) takes(l, asked[i]);
    loader_destroy(l);
    dev_close(d);
  }
}

static void a_failure_is_told_to_the_step_that_needed_the_batch(void)
{
  for (int64_t n = 0; n <= 3; n++) {
    const struct run_config c = small(n);
    struct source s = {.allowed = 1000, .fails_at = 3};
    struct dev *d = open_cpu();
    struct loader *l;
    const struct batch *b;
    if (!create(&c, d, &s, &l)) return;
    for (int64_t step = 0; step < 3; step++) takes(l, step);
    for (int again = 0; again < 2; again++) {
      err_clear();
      CHECK_ERR(loader_take(l, 3, &b), ERR_IO);
      CHECK_TEXT_HAS(err_text(), "gone: step 3");
      CHECK_TEXT_HAS(err_trail(), "loader.c");
    }
    loader_destroy(l);
    dev_close(d);
  }
}

/* While a delay of ten minutes runs; while the thread waits for room; before anything was taken. */
static void destroying_waits_for_nothing_planted(void)
{
  struct run_config c = small(2);
  struct source s = {.allowed = 1000, .fails_at = NEVER};
  struct dev *d = open_cpu();
  struct loader *l;
  const double begin = clock_ms();
  c.read_stall_step = 1;
  c.read_stall_ms = LONG_MS;
  if (!create(&c, d, &s, &l)) return;
  takes(l, 0);
  CHECK(begun(&s, N));
  takes(l, 4); /* nor does a step that is asked for instead */
  loader_destroy(l);
  c.read_stall_step = 0;
  if (!create(&c, d, &s, &l)) return;
  loader_destroy(l);
  CHECK(clock_ms() - begin < PROMPT_MS);
  dev_close(d);
}

static void planted_times_are_as_asked(void)
{
  struct run_config c = small(1);
  double sum = 0;
  for (int rank = 0; rank < 3; rank++) CHECK(loader_planted_ms(&c, rank, 2) == 0);
  c.read_delay_ms = 5;
  c.read_stall_step = 2;
  c.read_stall_ms = 100;
  snprintf(c.read_ranks, sizeof c.read_ranks, "1");
  CHECK(loader_planted_ms(&c, 0, 2) == 0 && loader_planted_ms(&c, 1, 2) == 105 && loader_planted_ms(&c, 1, 3) == 5);
  CHECK(loader_planted_ms(&c, 1, -1) == 0);
  c.read_jitter_ms = 8;
  snprintf(c.read_ranks, sizeof c.read_ranks, "all");
  for (int64_t step = 10; step < 1010; step++) {
    const double a = loader_planted_ms(&c, 0, step), b = loader_planted_ms(&c, 1, step);
    CHECK(a > 5 && a < 13 && b > 5 && b < 13 && a != b);
    CHECK(a == loader_planted_ms(&c, 0, step) && a != loader_planted_ms(&c, 0, step + 1));
    sum += a - 5;
  }
  CHECK_NEAR(sum / 1000, 4, 5 * 8 / 3.4641 / 31.6); /* five deviations of a mean of 1000 */
  const double first = loader_planted_ms(&c, 0, 10);
  c.delay_seed = 2;
  CHECK(loader_planted_ms(&c, 0, 10) != first);
}

static enum err read_plan(void *plan, int64_t step, int64_t microbatch, struct batch *out) { return data_plan_batch(plan, step, microbatch, out); }

static bool reads_the_plan(const struct run_config *c)
{
  static const int64_t order[] = {0, 1, -1, 2, 3, -1, 4, 5, -1, 6};
  struct fixture f, mine;
  struct loader *l;
  const struct batch *got;
  struct dev *d = open_cpu();
  if (!setup(&f, *c) || !setup(&mine, *c)) return false;
  const struct loader_config config = {.run = c, .dev = d, .read = read_plan, .arg = f.plan, .numbers = numbers, .n = N};
  if (!CHECK_OK(loader_create(&config, &l))) return false;
  bool same = true;
  for (size_t k = 0; k < sizeof order / sizeof *order; k++) {
    if (!CHECK_OK(loader_take(l, order[k], &got))) return false;
    for (int i = 0; i < N; i++) {
      if (!CHECK_OK(data_plan_batch(mine.plan, order[k], numbers[i], &mine.batch))) return false;
      same = same && batch_hash(&got[i]) == batch_hash(&mine.batch) && got[i].n_valid == mine.batch.n_valid && got[i].n_tokens == mine.batch.n_tokens &&
             memcmp(got[i].samples, mine.batch.samples, (size_t)mine.batch.B * sizeof(int32_t)) == 0;
    }
  }
  loader_destroy(l);
  dev_close(d);
  teardown(&f);
  teardown(&mine);
  return CHECK(same);
}

/* By policy and length of the queue, evaluation among it. */
static void batches_are_those_of_the_plan(void)
{
  static const int64_t policies[] = {POLICY_PADDED, POLICY_CHUNKED, POLICY_BUCKETED, POLICY_PACKED, POLICY_BALANCED}, queues[] = {0, 1, 3};
  for (int k = 0; k < 5; k++)
    for (int n = 0; n < 3; n++) {
      struct run_config c;
      config_default(&c);
      c.policy = policies[k];
      c.documents = 40;
      c.lengths = LENGTHS_LOGNORMAL;
      c.micro_batch = 2;
      c.read_ahead = queues[n];
      c.evaluate_each = 2;
      c.steps = 7;
      if (!CHECK_OK(config_finish(&c)) || !reads_the_plan(&c)) return;
    }
}

static void making_one_survives_any_failed_allocation(void)
{
  const struct run_config c = small(2);
  struct source s = {.allowed = 1000, .fails_at = NEVER};
  struct dev *d = open_cpu();
  const struct loader_config config = {.run = &c, .dev = d, .read = read_allowed, .arg = &s, .numbers = numbers, .n = N};
  struct loader *l = NULL;
  long n = 0;
  while (l == NULL && n < 50) {
    check_fail_allocation(++n);
    const enum err e = loader_create(&config, &l);
    const bool failed = check_allocation_failed();
    check_fail_allocation(0);
    if (failed) CHECK_ERR(e, ERR_MEMORY);
    if (failed) CHECK(l == NULL);
  }
  CHECK(n > 4 && n < 50);
  loader_destroy(l);
  loader_destroy(NULL);
  dev_close(d);
}

int main(void)
{
  static const struct test tests[] = {
    TEST(it_reads_as_far_ahead_as_it_is_told),
    TEST(a_read_that_is_done_costs_no_wait_and_one_that_is_not_does),
    TEST(what_was_taken_stays),
    TEST(evaluations_are_read_where_they_come_and_nothing_after_the_end),
    TEST(another_step_begins_anew),
    TEST(a_failure_is_told_to_the_step_that_needed_the_batch),
    TEST(destroying_waits_for_nothing_planted),
    TEST(planted_times_are_as_asked),
    TEST(batches_are_those_of_the_plan),
    TEST(making_one_survives_any_failed_allocation),
  };
  return test_main("loader", tests, sizeof tests / sizeof *tests);
}
