/* trace_np3_test.c - the trace, what the shim counts beside it, and where a watchdog finds each comm. */
#include "comm/comm_fixture.h"

/* One of each on comm c, over t [6, 9] of f32 and its parts. */
static void one_of_each(struct comm *c, struct tensor *t, struct tensor *mine)
{
  const int rank = comm_rank(world), next = (rank + 1) % 3, before = (rank + 2) % 3;
  const struct tensor small = tensor_part(mine, 0, 1, 0, 5), there = tensor_part(t, 0, 1, 0, 5);
  CHECK_OK(comm_allreduce(c, t, COMM_SUM));
  CHECK_OK(comm_reduce_scatter(c, mine, t, COMM_SUM));
  CHECK_OK(comm_allgather(c, t, mine));
  CHECK_OK(comm_broadcast(c, t, 1));
  CHECK_OK(comm_barrier(c));
  CHECK_OK(comm_group_start(c));
  CHECK_OK(comm_send(c, &small, next));
  CHECK_OK(comm_recv(c, &there, before));
  CHECK_OK(comm_group_finish(c));
}

static void each_call_is_written_down_in_order(void)
{
  static const struct {
    const char *op;
    int64_t count, bytes;
  } want[] = {{"allreduce", 54, 288}, {"reduce_scatter", 54, 144}, {"allgather", 54, 144}, {"broadcast", 54, 216},
              {"barrier", 0, 0},      {"send", 5, 20},             {"recv", 5, 0}};
  struct bench b;
  bench_open(&b, DEV_LAZY, 4);
  const struct comm_config config = {.name = "dp"};
  struct comm *c = comm_of(&b, 4096, &config);
  struct tensor t = matrix(&b, DTYPE_F32, 6, 9, false), mine = matrix(&b, DTYPE_F32, 2, 9, false);
  fill(&t, 0, 0);
  for (int round = 0; round < 2; round++) {
    int64_t n;
    comm_trace_restart(world);
    comm_trace_at(world, 40 + round, round ? -1 : 2);
    one_of_each(c, &t, &mine);
    const struct comm_call *calls = comm_trace(world, &n);
    CHECK(n == 7);
    for (int i = 0; i < 7 && n == 7; i++) {
      CHECK(strcmp(calls[i].op, want[i].op) == 0 && calls[i].count == want[i].count && calls[i].bytes == want[i].bytes);
      CHECK(strcmp(calls[i].group, "dp") == 0 && strcmp(calls[i].stream, "transfer") == 0);
      CHECK(calls[i].step == 40 + round && calls[i].microbatch == (round ? -1 : 2) && calls[i].sequence == 7 * round + i + 1);
      CHECK(calls[i].ranks == 3 && calls[i].rank == comm_rank(world) && !calls[i].ordered && !calls[i].synchronous);
      CHECK(calls[i].type == (i == 4 ? DTYPE_U8 : DTYPE_F32));
    }
  }
  CHECK_OK(mirror_sync(b.d));
  mirror_free(b.d, mine.at);
  mirror_free(b.d, t.at);
  comm_destroy(c);
  bench_close(&b);
}

static void a_warm_trace_allocates_nothing(void)
{
  struct bench b;
  bench_open(&b, DEV_CPU, 0);
  const struct comm_config config = {.name = "dp"};
  struct comm *c = comm_of(&b, 4096, &config);
  struct tensor t = matrix(&b, DTYPE_F32, 6, 9, false), mine = matrix(&b, DTYPE_F32, 2, 9, false);
  fill(&t, 0, 0);
  for (int round = 0; round < 2; round++) {
    comm_trace_restart(world);
    if (round == 1 && !mirror_cuda()) check_fail_allocation(1); /* a stand-in of CUDA allocates */
    for (int i = 0; i < 60; i++) one_of_each(c, &t, &mine);
    CHECK(!check_allocation_failed());
    check_fail_allocation(0);
    CHECK_OK(mirror_sync(b.d));
  }
  mirror_free(b.d, mine.at);
  mirror_free(b.d, t.at);
  comm_destroy(c);
  bench_close(&b);
}

/* Adds b's row into the list a of *n rows. */
static void add_count(struct pmpi_count *a, int *n, const struct pmpi_count *b)
{
  for (int i = 0; i < *n; i++)
    if (strcmp(a[i].call, b->call) == 0) {
      a[i].calls += b->calls;
      a[i].bytes += b->bytes;
      return;
    }
  a[(*n)++] = *b;
}

static void the_shim_counts_what_the_trace_stands_for(void)
{
  enum { MOST = 32 };
  struct bench b;
  bench_open(&b, DEV_CPU, 0);
  struct tensor t = matrix(&b, DTYPE_F32, 6, 9, false), mine = matrix(&b, DTYPE_F32, 2, 9, false);
  for (int way = 0; way < 16; way++) {
    const struct comm_config config = {
      .name = "dp", .reduce = way & 1 ? COMM_ORDERED : COMM_FAST, .synchronous = (way & 2) != 0, .piece = way & 4 ? 20 : 0,
      .delay_ms = way & 8 ? 1 : 0};
    struct comm *c = comm_of(&b, 4096, &config);
    fill(&t, 0, 0);
    comm_trace_restart(world);
    pmpi_restart();
    one_of_each(c, &t, &mine);
    one_of_each(c, &t, &mine);
    CHECK_OK(comm_host_barrier(world)); /* control plane: not counted */
    CHECK_OK(mirror_sync(b.d));

    struct pmpi_count want[MOST], got[MOST], row[2];
    int64_t n_calls, allreduced = 0;
    int n_want = 0;
    const struct comm_call *calls = comm_trace(world, &n_calls);
    CHECK(n_calls == 14);
    for (int64_t i = 0; i < n_calls; i++) {
      const int rows = comm_expect(&calls[i], row);
      for (int k = 0; k < rows; k++) add_count(want, &n_want, &row[k]);
      if (strcmp(calls[i].op, "allreduce") == 0) allreduced += calls[i].count * 4;
    }
    const int n_got = pmpi_counts(got, MOST);
    CHECK(n_got == n_want && (test_nccl() ? n_got == 0 : n_got >= 6));
    for (int i = 0; i < n_got; i++) {
      bool found = false;
      for (int k = 0; k < n_want; k++)
        found = found || (strcmp(got[i].call, want[k].call) == 0 && got[i].calls == want[k].calls && got[i].bytes == want[k].bytes);
      if (!CHECK(found)) fprintf(stderr, "way %d: %s %d calls %d bytes\n", way, got[i].call, (int)got[i].calls, (int)got[i].bytes);
      if (strcmp(got[i].call, "MPI_Iallreduce") == 0) CHECK(got[i].bytes == allreduced && got[i].calls == (way & 4 ? 6 : 2));
    }
    comm_destroy(c);
  }
  mirror_free(b.d, mine.at);
  mirror_free(b.d, t.at);
  bench_close(&b);
}

static void nothing_is_expected_of_a_group_of_one_or_no_elements(void)
{
  struct comm_call call = {.op = "allreduce", .type = DTYPE_F32, .count = 10, .ranks = 1, .piece = 5};
  struct pmpi_count row[2];
  CHECK(comm_expect(&call, row) == 0);
  call.ranks = 3;
  CHECK(comm_expect(&call, row) == 1 && row[0].calls == 2 && row[0].bytes == 40);
  call.count = 0;
  CHECK(comm_expect(&call, row) == 0);
  CHECK(comm_ring_bytes("allreduce", 100, 1) == 0 && comm_ring_bytes("allreduce", 100, 4) == 150);
  CHECK(comm_ring_bytes("allreduce", (int64_t)1 << 50, 2) == (int64_t)1 << 50);
}

/* Rank 0 waits in a receive until the others have seen to it that it is seen there. */
static void a_watchdog_sees_the_call_that_waits(void)
{
  struct bench b;
  bench_open(&b, DEV_CPU, 0);
  const struct comm_config config = {.name = "pipe"}, idle = {.name = "idle"};
  struct slot slot = {.rank = comm_rank(world)};
  struct comm *c = comm_of(&b, 4096, &config), *other = comm_of(&b, 0, &idle);
  struct tensor t = matrix(&b, DTYPE_F32, 1, 3, false);
  char text[256];
  fill(&t, comm_rank(world), 0);
  comm_watch(world, &slot);
  comm_trace_at(world, 12, 0);
  CHECK_OK(comm_barrier(c));
  CHECK_OK(mirror_sync(b.d));
  CHECK(slot.comms[0].queued == 1 && slot.comms[0].started == 1 && slot.comms[0].done == 1 && slot.comms[0].step == 12);
  CHECK(strcmp(slot.comms[0].name, "pipe") == 0 && strcmp(slot.comms[0].op, "barrier") == 0);
  CHECK(strcmp(slot.comms[1].name, "idle") == 0 && slot.comms[1].queued == 0 && slot.beat == 1);

  comm_trace_at(world, 13, 0);
  if (comm_rank(world) == 0) {
    CHECK_OK(comm_recv(c, &t, 2));
    CHECK_OK(comm_barrier(c));
  }
  if (comm_rank(world) == 0 && !mirror_cuda()) { /* a device may start nothing before somebody waits for it */
    while (slot.comms[0].started < 2) clock_sleep_ms(0.1);
    CHECK(slot.comms[0].queued == 3 && slot.comms[0].done == 1 && slot.comms[0].step == 13);
    CHECK(strcmp(slot.comms[0].op, "recv") == 0);
    comm_last_call(world, text, sizeof text);
    CHECK(strcmp(text, "pipe #2 recv (step 13), started, 1 more queued; idle: 0 queued, none started") == 0);
    char cut[12];
    comm_last_call(world, cut, sizeof cut);
    CHECK(strcmp(cut, "pipe #2 rec") == 0);
  }
  CHECK_OK(comm_host_barrier(world));
  if (comm_rank(world) == 2) CHECK_OK(comm_send(c, &t, 0));
  if (comm_rank(world) != 0) CHECK_OK(comm_barrier(c));
  CHECK_OK(mirror_sync(b.d));
  comm_last_call(world, text, sizeof text);
  CHECK_TEXT_HAS(text, comm_rank(world) == 1 ? "pipe #2 barrier (step 13), done" : "pipe #3 barrier (step 13), done");
  if (comm_rank(world) == 0) CHECK(element_get(&t, 1) == value(2, 1, DTYPE_F32));

  comm_watch(world, NULL);
  CHECK_OK(comm_barrier(c));
  CHECK_OK(mirror_sync(b.d));
  CHECK(slot.comms[0].queued <= 3);
  comm_destroy(other);
  comm_destroy(c);
  comm_last_call(world, text, sizeof text);
  CHECK(strcmp(text, "") == 0);
  mirror_free(b.d, t.at);
  bench_close(&b);
}

/* A comm created while watched writes at once; a destroyed one leaves its place to the next. */
static void places_in_the_slot_are_used_again(void)
{
  struct bench b;
  bench_open(&b, DEV_CPU, 0);
  const struct comm_config config = {.name = "first"}, next = {.name = "a-name-longer-than-the-slot-has-room-for"};
  struct slot slot = {.rank = 0};
  comm_watch(world, &slot);
  struct comm *c = comm_of(&b, 0, &config);
  CHECK_OK(comm_barrier(c));
  CHECK_OK(mirror_sync(b.d));
  CHECK(strcmp(slot.comms[0].name, "first") == 0 && slot.comms[0].done == 1);
  comm_destroy(c);
  CHECK(strcmp(slot.comms[0].name, "") == 0);
  c = comm_of(&b, 0, &next);
  CHECK(strcmp(slot.comms[0].name, "a-name-longer-than-the-") == 0 && slot.comms[0].queued == 0 && slot.comms[0].done == 0);
  comm_watch(world, NULL);
  comm_destroy(c);
  bench_close(&b);
}

/* Each planted fault of this room changes what arrives, and switched off nothing. */
static void planted_faults_change_what_arrives(void)
{
  static const char *const faults[] = {"", "cl-ll128-corruption", "cl-noncontiguous-tensor"};
  struct bench b;
  bench_open(&b, DEV_CPU, 0);
  for (int ordered = 0; ordered < 2; ordered++)
    for (int f = 0; f < 3; f++) {
      const struct comm_config config = {.name = "dp", .reduce = ordered ? COMM_ORDERED : COMM_FAST};
      struct comm *c = comm_of(&b, 4096, &config);
      struct tensor t = matrix(&b, DTYPE_F32, 5, 11, true), scalars = matrix(&b, DTYPE_F32, 1, 31, false);
      fill(&t, comm_rank(world), 0);
      fill(&scalars, comm_rank(world), 0);
      CHECK_OK(fault_plant(faults[f], 1, 1));
      CHECK_OK(comm_allreduce(c, &t, COMM_SUM));
      CHECK_OK(comm_allreduce(c, &scalars, COMM_SUM));
      CHECK_OK(mirror_sync(b.d));
      CHECK_OK(fault_plant("", 1, 0));
      int wrong = 0;
      for (int64_t i = 0; i < 55; i++) wrong += !reduced(&t, i, i, COMM_SUM, ordered != 0);
      CHECK(f == 0 ? wrong == 0 : f == 1 ? wrong == 1 : wrong > 30); /* corruption on rank 1 is seen by all */
      for (int64_t i = 0; i < 31; i++) CHECK(reduced(&scalars, i, i, COMM_SUM, ordered != 0)); /* no line of 128 bytes */
      mirror_free(b.d, scalars.at);
      mirror_free(b.d, t.at);
      comm_destroy(c);
    }
  bench_close(&b);
}

int main(void)
{
  static const struct test tests[] = {
    TEST(each_call_is_written_down_in_order),
    TEST(a_warm_trace_allocates_nothing),
    TEST(the_shim_counts_what_the_trace_stands_for),
    TEST(nothing_is_expected_of_a_group_of_one_or_no_elements),
    TEST(a_watchdog_sees_the_call_that_waits),
    TEST(places_in_the_slot_are_used_again),
    TEST(planted_faults_change_what_arrives),
  };
  return run_all("trace", tests, sizeof tests / sizeof *tests);
}
