/* dev_lazy_test.c - lazy: late and seeded order, and every missing order named. */
#include "base/rng.h"
#include "device/dev_internal.h"
#include "device/dev_testing.h"

#include <stdio.h>
#include <stdlib.h>

enum { SEEDS = 50, BYTES = 1024 };

/* One device with two streams, a block, and events, as most tests need it. */
struct bench {
  struct dev *d;
  struct dev_stream *compute, *comm;
  struct dev_event *ready, *done;
  char *block;
};

static struct bench bench_open(uint64_t seed)
{
  struct bench b = {0};
  const struct dev_config config = {.kind = DEV_LAZY, .threads = 1, .lazy_seed = seed};
  void *at = NULL;
  CHECK_OK(dev_open(&config, &b.d));
  CHECK_OK(dev_stream_open(b.d, "compute", DEV_COMPUTE, &b.compute));
  CHECK_OK(dev_stream_open(b.d, "comm", DEV_TRANSFER, &b.comm));
  CHECK_OK(dev_event_create(b.d, &b.ready));
  CHECK_OK(dev_event_create(b.d, &b.done));
  CHECK_OK(dev_alloc(b.d, BYTES, DEV_GRADIENTS, "bucket", &at));
  b.block = at;
  return b;
}

static void bench_close(struct bench *b)
{
  dev_event_destroy(b->ready);
  dev_event_destroy(b->done);
  dev_close(b->d);
}

static struct dev_range bytes(const char *at, size_t n, bool write) { return (struct dev_range){at, n, n, 1, write}; }

static enum err touch(struct dev_stream *s, const char *kernel, const char *at, size_t n, bool write)
{
  const struct dev_kernel k = nothing(kernel);
  const struct dev_range range = bytes(at, n, write);
  return dev_submit(s, &k, NULL, 0, &range, 1);
}

static int late_target;
static enum err touch_late(struct dev_stream *s, const char *kernel, const char *at, size_t n, bool write)
{
  const struct dev_kernel k = {.name = kernel, .start = late_start, .test = late_test};
  const struct late_args args = {.to = &late_target, .polls = 5};
  const struct dev_range range = bytes(at, n, write);
  return dev_submit(s, &k, &args, sizeof args, &range, 1);
}

static enum err hand_over(struct dev_event *e, struct dev_stream *from, struct dev_stream *to)
{
  TRY(dev_record(e, from));
  return dev_wait(to, e);
}

static void expect_finding(struct bench *b, const char *const *parts, int n)
{
  CHECK_ERR(dev_sync(b->d), ERR_DEVICE);
  for (int i = 0; i < n; i++) {
    CHECK_TEXT_HAS(err_text(), parts[i]);
    CHECK_TEXT_HAS(dev_findings(b->d), parts[i]);
  }
  CHECK_OK(dev_sync(b->d)); /* told once, still listed */
  CHECK(dev_findings(b->d)[0] != '\0');
}
#define EXPECT_FINDING(b, ...)                                         \
  do {                                                                 \
    static const char *const parts_[] = {__VA_ARGS__};                 \
    expect_finding(b, parts_, (int)(sizeof parts_ / sizeof *parts_));  \
  } while (0)

/* A step that overlaps: two buckets, each written by backward, reduced, used, refilled.
 * `without` leaves one of its waits out (-1: none). */
static enum err step(struct bench *b, int without)
{
  char *bucket[2] = {b->block, b->block + BYTES / 2};
  for (int i = 0; i < 4; i++) {
    TRY(touch(b->compute, "block.bwd", bucket[i % 2], BYTES / 2, true));
    if (without != 0) TRY(hand_over(b->ready, b->compute, b->comm));
    TRY(touch_late(b->comm, "allreduce", bucket[i % 2], BYTES / 2, true));
    if (without != 1) TRY(hand_over(b->done, b->comm, b->compute));
    TRY(touch(b->compute, "adamw", bucket[i % 2], BYTES / 2, false));
  }
  return ERR_OK;
}

static void a_clean_program_has_no_finding_under_any_seed(void)
{
  for (uint64_t seed = 0; seed < SEEDS; seed++) {
    struct bench b = bench_open(seed);
    for (int i = 0; i < 3; i++) {
      CHECK_OK(step(&b, -1));
      if (i == 1) CHECK_OK(dev_sync(b.d));
    }
    CHECK_OK(dev_sync(b.d));
    CHECK(strcmp(dev_findings(b.d), "") == 0);
    bench_close(&b);
  }
}

static void a_missing_wait_between_two_operations_is_named(void)
{
  for (uint64_t seed = 0; seed < SEEDS; seed++) {
    struct bench b = bench_open(seed);
    dev_set_phase(b.d, DEV_PHASE_FORWARD, 7, 2);
    CHECK_OK(touch(b.compute, "head.fwd", b.block + 64, 128, true));
    CHECK_OK(touch(b.comm, "pack", b.block + 96, 8, false));
    EXPECT_FINDING(&b, "'pack' on comm reads gradients 'bucket' + 96, unordered with ",
                   "with 'head.fwd' on compute, which writes it", "step 7 micro-batch 2");
    bench_close(&b);
  }
}

static void a_missing_wait_before_or_after_a_collective_is_named(void)
{
  for (uint64_t seed = 0; seed < SEEDS; seed++)
    for (int without = 0; without < 2; without++) {
      struct bench b = bench_open(seed);
      CHECK_OK(step(&b, without));
      EXPECT_FINDING(&b, "'allreduce' on comm", " on compute", "unordered with", "gradients 'bucket' + ");
      CHECK_TEXT_HAS(dev_findings(b.d), without == 0 ? "'block.bwd' on compute" : "'adamw' on compute");
      bench_close(&b);
    }
}

static void a_buffer_refilled_while_it_is_sent_is_named(void)
{
  for (uint64_t seed = 0; seed < SEEDS; seed++) {
    struct bench b = bench_open(seed);
    CHECK_OK(touch(b.compute, "fill", b.block, BYTES, true));
    CHECK_OK(hand_over(b.ready, b.compute, b.comm));
    CHECK_OK(touch_late(b.comm, "send", b.block, BYTES, false));
    CHECK_OK(touch(b.compute, "refill", b.block, BYTES, true));
    EXPECT_FINDING(&b, "'refill' on compute writes", "'send' on comm, which reads it");
    bench_close(&b);
  }
}

static void two_reads_need_no_order(void)
{
  struct bench b = bench_open(1);
  CHECK_OK(touch(b.compute, "a", b.block, BYTES, false));
  CHECK_OK(touch_late(b.comm, "send", b.block, BYTES, false));
  CHECK_OK(dev_host_touch(b.d, b.block, BYTES, false));
  CHECK_OK(dev_sync(b.d));
  bench_close(&b);
}

static void an_order_through_a_third_stream_counts(void)
{
  struct bench b = bench_open(1);
  struct dev_stream *copy;
  CHECK_OK(dev_stream_open(b.d, "copy", DEV_TRANSFER, &copy));
  CHECK_OK(touch(b.compute, "w", b.block, BYTES, true));
  CHECK_OK(hand_over(b.ready, b.compute, copy));
  CHECK_OK(hand_over(b.done, copy, b.comm));
  CHECK_OK(touch(b.comm, "r", b.block, BYTES, true));
  CHECK_OK(dev_sync(b.d));
  bench_close(&b);
}

static void an_event_recorded_too_early_is_named(void)
{
  struct bench b = bench_open(1);
  CHECK_OK(dev_record(b.ready, b.compute));
  CHECK_OK(touch(b.compute, "w", b.block, BYTES, true));
  CHECK_OK(dev_wait(b.comm, b.ready));
  CHECK_OK(touch(b.comm, "r", b.block, BYTES, false));
  EXPECT_FINDING(&b, "'r' on comm reads", "'w' on compute, which writes it");
  bench_close(&b);
}

static void what_the_host_has_synced_is_ordered(void)
{
  struct bench b = bench_open(1);
  CHECK_OK(touch(b.compute, "w", b.block, BYTES, true));
  CHECK_OK(dev_record(b.ready, b.compute));
  CHECK_OK(dev_sync_event(b.ready));
  CHECK_OK(dev_host_touch(b.d, b.block, BYTES, true));
  CHECK_OK(touch(b.comm, "r", b.block, BYTES, true));
  CHECK_OK(dev_sync_stream(b.comm));
  CHECK_OK(touch(b.compute, "w", b.block, BYTES, true));
  CHECK_OK(dev_sync(b.d));
  bench_close(&b);
}

static void the_host_touching_too_early_is_named(void)
{
  for (int synced = 0; synced < 2; synced++) {
    struct bench b = bench_open(1);
    CHECK_OK(touch(b.compute, "loss", b.block, 8, true));
    if (synced) CHECK_OK(dev_sync_stream(b.comm)); /* the wrong stream */
    CHECK_OK(dev_host_touch(b.d, b.block, BYTES, false));
    EXPECT_FINDING(&b, "the host reads gradients 'bucket' + 0", "'loss' on compute, which writes it");
    bench_close(&b);
  }
}

static void copies_touch_host_memory(void)
{
  struct bench b = bench_open(1);
  char host[64] = "";
  CHECK_OK(dev_copy_out(b.comm, host, b.block, sizeof host));
  CHECK_OK(dev_host_touch(b.d, host + 8, 1, false));
  EXPECT_FINDING(&b, "the host reads host memory", "'copy_out' on comm, which writes it");
  bench_close(&b);
}

static void lifetimes_begin_and_end_as_writes(void)
{
  for (int end = 0; end < 2; end++) {
    struct bench b = bench_open(1);
    CHECK_OK(touch(b.comm, "send", b.block + 8, 8, false));
    CHECK_OK((end ? dev_retire : dev_begin)(b.compute, b.block, BYTES));
    EXPECT_FINDING(&b, "'send' on comm, which reads it", "on compute writes gradients 'bucket' + 8");
    CHECK_TEXT_HAS(dev_findings(b.d), end ? "'retire'" : "'begin'");
    bench_close(&b);
  }
}

static void memory_freed_while_work_may_use_it_is_named(void)
{
  struct bench b = bench_open(1);
  int value = 0, *to = (int *)(void *)b.block;
  const struct dev_kernel late = {.name = "recv", .start = late_start, .test = late_test};
  const struct late_args args = {.to = to, .value = 3, .polls = 4};
  const struct dev_range range = bytes(b.block, sizeof value, true);
  CHECK_OK(dev_submit(b.comm, &late, &args, sizeof args, &range, 1));
  dev_free(b.d, b.block);
  CHECK(dev_clocks_history(b.d->clocks) == 0); /* whoever gets this memory next starts clean */
  EXPECT_FINDING(&b, "dev_free writes gradients 'bucket' + 0", "'recv' on comm, which writes it");
  bench_close(&b);
}

static void memory_used_again_after_free_has_no_past(void)
{
  struct bench b = bench_open(1);
  for (int i = 0; i < 5; i++) {
    void *at;
    CHECK_OK(dev_alloc(b.d, BYTES, DEV_OTHER, "short", &at));
    CHECK_OK(touch(i % 2 ? b.comm : b.compute, "k", at, BYTES, true));
    CHECK_OK(dev_sync_stream(i % 2 ? b.comm : b.compute));
    dev_free(b.d, at);
  }
  CHECK_OK(dev_sync(b.d));
  bench_close(&b);
}

static void column_parts_of_one_matrix_do_not_meet(void)
{
  struct bench b = bench_open(1);
  const struct tensor whole = tensor_at(b.block, DTYPE_F32, 8, 32);
  const struct tensor left = tensor_part(&whole, 0, 8, 0, 16), right = tensor_part(&whole, 0, 8, 16, 16);
  const struct tensor row = tensor_part(&whole, 3, 1, 0, 32);
  const struct dev_kernel k = nothing("qkv");
  const struct dev_range writes_left = dev_writes(&left), writes_right = dev_writes(&right);
  const struct dev_range reads_row = dev_reads(&row);
  CHECK_OK(dev_submit(b.compute, &k, NULL, 0, &writes_left, 1));
  CHECK_OK(dev_submit(b.comm, &k, NULL, 0, &writes_right, 1));
  CHECK_OK(dev_sync(b.d));
  CHECK_OK(dev_submit(b.compute, &k, NULL, 0, &writes_right, 1));
  CHECK_OK(dev_submit(b.comm, &k, NULL, 0, &reads_row, 1));
  EXPECT_FINDING(&b, "reads gradients 'bucket' + 448"); /* row 3, column 16, 4 bytes each */
  bench_close(&b);
}

static void covered_history_still_stands_for_what_it_covers(void)
{
  struct bench b = bench_open(1);
  struct dev_stream *third;
  CHECK_OK(dev_stream_open(b.d, "third", DEV_TRANSFER, &third));
  CHECK_OK(touch(b.compute, "w", b.block, BYTES, true));
  CHECK_OK(hand_over(b.ready, b.compute, b.comm));
  CHECK_OK(touch(b.comm, "part", b.block, 8, true));     /* does not cover w's other bytes */
  CHECK_OK(touch(b.comm, "all", b.block, BYTES, false)); /* a read: does not stand for a write */
  CHECK_OK(touch(third, "early", b.block + 8, 8, false));
  EXPECT_FINDING(&b, "'early' on third reads gradients 'bucket' + 8", "'w' on compute, which writes it");
  bench_close(&b);
}

static void every_sync_tells_what_was_found_since_the_last(void)
{
  struct bench b = bench_open(1);
  CHECK_OK(touch(b.compute, "w1", b.block, 8, true));
  CHECK_OK(touch(b.comm, "r1", b.block, 8, false));
  CHECK_ERR(dev_sync_stream(b.comm), ERR_DEVICE);
  CHECK_TEXT_HAS(err_text(), "1 pair of unordered accesses: 'r1' on comm");
  CHECK_OK(dev_sync(b.d));
  CHECK_OK(touch(b.compute, "w2", b.block, 8, true));
  CHECK_OK(touch(b.comm, "r2", b.block, 8, false));
  CHECK_OK(dev_record(b.done, b.comm));
  CHECK_ERR(dev_sync_event(b.done), ERR_DEVICE);
  CHECK_TEXT_HAS(err_text(), "1 pair of unordered accesses: 'r2' on comm");
  CHECK_TEXT_HAS(dev_findings(b.d), "'r1' on comm");
  CHECK_TEXT_HAS(dev_findings(b.d), "'r2' on comm");
  bench_close(&b);
}

static void a_race_that_repeats_is_told_once(void)
{
  struct bench b = bench_open(1);
  for (int i = 0; i < 100; i++) {
    CHECK_OK(touch(b.compute, "w", b.block, 8, true));
    CHECK_OK(touch(b.comm, "r", b.block, 8, false));
  }
  CHECK_ERR(dev_sync(b.d), ERR_DEVICE);
  CHECK_TEXT_HAS(err_text(), "2 pairs"); /* r after w, and w after r */
  CHECK_OK(touch(b.compute, "w", b.block, 8, true));
  CHECK_OK(touch(b.comm, "r", b.block, 8, false));
  CHECK_OK(dev_sync(b.d));
  CHECK_OK(touch(b.compute, "other", b.block, 8, true));
  CHECK_OK(touch(b.comm, "r", b.block, 8, false)); /* half of it is known */
  CHECK_ERR(dev_sync(b.d), ERR_DEVICE);
  bench_close(&b);
}

static void many_findings_fit(void)
{
  struct bench b = bench_open(1);
  static char names[300][120];
  for (int i = 0; i < 300; i++) {
    snprintf(names[i], sizeof names[i], "a kernel with rather a long name, number %d", i);
    CHECK_OK(touch(i % 2 ? b.comm : b.compute, names[i], b.block, 8, true));
  }
  CHECK_ERR(dev_sync(b.d), ERR_DEVICE);
  CHECK_TEXT_HAS(dev_findings(b.d), "number 0' on compute");
  CHECK_TEXT_HAS(dev_findings(b.d), "and more");
  CHECK(strlen(dev_findings(b.d)) < 32768);
  bench_close(&b);
}

static void the_past_stays_small_without_a_sync(void)
{
  struct bench b = bench_open(1);
  int64_t most = 0;
  for (int i = 0; i < 300; i++) {
    CHECK_OK(step(&b, -1));
    const int64_t now = dev_clocks_history(b.d->clocks);
    if (now > most) most = now;
  }
  CHECK(most <= 8);
  CHECK_OK(dev_sync(b.d));
  CHECK(dev_clocks_history(b.d->clocks) == 0);
  bench_close(&b);
}

/* --- order of execution ---------------------------------------------------------------- */

static struct log seen;

static void nothing_runs_before_a_sync_and_only_what_it_needs(void)
{
  for (uint64_t seed = 0; seed < SEEDS; seed++) {
    struct bench b = bench_open(seed);
    atomic_store(&seen.n, 0);
    CHECK_OK(submit_log(b.compute, &seen, 1));
    CHECK_OK(hand_over(b.ready, b.compute, b.comm));
    CHECK_OK(submit_log(b.compute, &seen, 4));
    CHECK_OK(submit_log(b.comm, &seen, 2));
    CHECK_OK(dev_record(b.done, b.comm));
    CHECK_OK(submit_log(b.comm, &seen, 3));
    CHECK(seen.n == 0);
    CHECK_OK(dev_sync_event(b.done));
    CHECK(seen.n == 2 && seen.value[0] == 1 && seen.value[1] == 2);
    CHECK_OK(dev_sync_stream(b.comm));
    CHECK(seen.n == 3 && seen.value[2] == 3);
    CHECK_OK(dev_sync(b.d));
    CHECK(seen.n == 4 && seen.value[3] == 4);
    bench_close(&b);
  }
}

static void a_wait_that_nobody_demands_demands_nothing(void)
{
  struct bench b = bench_open(1);
  struct dev_stream *third;
  atomic_store(&seen.n, 0);
  CHECK_OK(dev_stream_open(b.d, "third", DEV_TRANSFER, &third));
  CHECK_OK(submit_log(b.compute, &seen, 1));
  CHECK_OK(hand_over(b.ready, b.compute, b.comm));
  CHECK_OK(submit_log(third, &seen, 2));
  CHECK_OK(submit_log(third, &seen, 3));
  CHECK_OK(dev_sync_stream(third));
  CHECK(seen.n == 2 && seen.value[0] == 2);
  bench_close(&b);
}

/* The order in which 2 x 6 independent pieces ran, as bits. */
static unsigned order_of(uint64_t seed)
{
  struct bench b = bench_open(seed);
  atomic_store(&seen.n, 0);
  for (int i = 0; i < 6; i++) {
    CHECK_OK(submit_log(b.compute, &seen, 0));
    CHECK_OK(submit_log(b.comm, &seen, 1));
  }
  CHECK_OK(dev_sync(b.d));
  unsigned order = 0;
  for (int i = 0; i < 12; i++) order = 2 * order + (unsigned)seen.value[i];
  bench_close(&b);
  return order;
}

static void seeds_give_different_orders_and_each_its_own_again(void)
{
  unsigned orders[SEEDS];
  int different = 0;
  for (uint64_t seed = 0; seed < SEEDS; seed++) {
    orders[seed] = order_of(seed);
    CHECK(order_of(seed) == orders[seed]);
    bool fresh = true;
    for (uint64_t other = 0; other < seed; other++) fresh = fresh && orders[other] != orders[seed];
    different += fresh;
  }
  CHECK(different > SEEDS / 2);
}

static void work_runs_while_a_collective_is_in_flight(void)
{
  int between = 0;
  for (uint64_t seed = 0; seed < SEEDS; seed++) {
    struct bench b = bench_open(seed);
    static int result;
    static const struct dev_kernel late = {.name = "allreduce", .start = late_start, .test = late_test};
    const struct late_args args = {.to = &result, .value = 1, .polls = 3};
    int early[8];
    result = 0;
    CHECK_OK(dev_submit(b.comm, &late, &args, sizeof args, NULL, 0));
    for (int i = 0; i < 8; i++) CHECK_OK(dev_copy_out(b.compute, &early[i], &result, sizeof result));
    CHECK_OK(dev_sync(b.d)); /* a race, but the collective declares nothing */
    between += early[0] == 0 && early[7] == 1;
    bench_close(&b);
  }
  CHECK(between > 0);
}

/* A peer that answers only when other work of this rank, which nobody demands, has run. */
static bool peer_answered;
static enum err answer(void *args)
{
  (void)args;
  peer_answered = true;
  return ERR_OK;
}
static enum err peer_test(void *args, bool *done)
{
  (void)args;
  *done = peer_answered;
  return ERR_OK;
}

static void undemanded_work_runs_when_a_peer_needs_it(void)
{
  for (uint64_t seed = 0; seed < SEEDS; seed++) {
    struct bench b = bench_open(seed);
    const struct dev_kernel recv = {.name = "recv", .start = nothing_run, .test = peer_test};
    const struct dev_kernel send = {.name = "send", .run = answer};
    peer_answered = false;
    CHECK_OK(dev_submit(b.comm, &recv, NULL, 0, NULL, 0));
    CHECK_OK(touch(b.compute, "earlier", b.block, 8, true));
    CHECK_OK(dev_submit(b.compute, &send, NULL, 0, NULL, 0));
    CHECK_OK(dev_sync_stream(b.comm));
    CHECK(peer_answered);
    bench_close(&b);
  }
}

static void a_sync_leaves_the_reason_in_hand_alone(void)
{
  struct bench b = bench_open(1);
  const struct dev_kernel k = nothing("k");
  CHECK_OK(dev_submit(b.compute, &k, NULL, 0, NULL, 0));
  const enum err e = err_set(ERR_IO, __FILE__, __LINE__, "disk full");
  bench_close(&b); /* on the way out of a function that failed */
  CHECK(e == ERR_IO);
  CHECK_TEXT_HAS(err_text(), "disk full");
}

int main(void)
{
  static const struct test tests[] = {
      TEST(a_clean_program_has_no_finding_under_any_seed),
      TEST(a_missing_wait_between_two_operations_is_named),
      TEST(a_missing_wait_before_or_after_a_collective_is_named),
      TEST(a_buffer_refilled_while_it_is_sent_is_named),
      TEST(two_reads_need_no_order),
      TEST(an_order_through_a_third_stream_counts),
      TEST(an_event_recorded_too_early_is_named),
      TEST(what_the_host_has_synced_is_ordered),
      TEST(the_host_touching_too_early_is_named),
      TEST(copies_touch_host_memory),
      TEST(lifetimes_begin_and_end_as_writes),
      TEST(memory_freed_while_work_may_use_it_is_named),
      TEST(memory_used_again_after_free_has_no_past),
      TEST(column_parts_of_one_matrix_do_not_meet),
      TEST(covered_history_still_stands_for_what_it_covers),
      TEST(every_sync_tells_what_was_found_since_the_last),
      TEST(a_race_that_repeats_is_told_once),
      TEST(many_findings_fit),
      TEST(the_past_stays_small_without_a_sync),
      TEST(nothing_runs_before_a_sync_and_only_what_it_needs),
      TEST(a_wait_that_nobody_demands_demands_nothing),
      TEST(seeds_give_different_orders_and_each_its_own_again),
      TEST(work_runs_while_a_collective_is_in_flight),
      TEST(undemanded_work_runs_when_a_peer_needs_it),
      TEST(a_sync_leaves_the_reason_in_hand_alone),
  };
  return test_main("dev_lazy", tests, sizeof tests / sizeof *tests);
}
