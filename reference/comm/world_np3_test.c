/* world_np3_test.c - the world: host calls, agreement, clocks, launchers. */
#include "comm/comm_fixture.h"

#include <sys/resource.h>

static void everyone_is_on_one_host(void)
{
  CHECK(comm_size(world) == 3 && comm_rank(world) == check_rank());
  CHECK(comm_node_size(world) == 3 && comm_node_rank(world) == comm_rank(world));
  CHECK(strstr(comm_library(), "MPI") != NULL);
}

static enum err fail_here(enum err code)
{
  FAIL(code, "rank %d says so", comm_rank(world));
}

static void agreement_is_the_worst_code_and_the_lowest_ranks_text(void)
{
  CHECK_OK(comm_agree(world, ERR_OK));
  const int r = comm_rank(world);
  CHECK_ERR(comm_agree(world, r == 0 ? fail_here(ERR_CONFIG) : r == 1 ? fail_here(ERR_MEMORY) : fail_here(ERR_MEMORY)), ERR_MEMORY);
  CHECK_TEXT_HAS(err_text(), "rank 1 says so");
  CHECK_ERR(comm_agree(world, r == 2 ? fail_here(ERR_IO) : ERR_OK), ERR_IO);
  CHECK_TEXT_HAS(err_text(), "rank 2 says so");
  CHECK_TEXT_HAS(err_trail(), "world_np3_test.c");
}

static void the_host_gathers_and_broadcasts_bytes(void)
{
  char mine[5], all[15] = "";
  snprintf(mine, sizeof mine, "r%d..", comm_rank(world));
  CHECK_OK(comm_host_gather(world, mine, sizeof mine, comm_rank(world) == 0 ? all : NULL));
  if (comm_rank(world) == 0) CHECK_SAME_BITS(all, "r0..\0r1..\0r2..", sizeof all);
  for (int root = 0; root < 3; root++) {
    int64_t big[100];
    for (int i = 0; i < 100; i++) big[i] = comm_rank(world) == root ? root + 7 * i : -1;
    CHECK_OK(comm_host_bcast(world, big, sizeof big, root));
    for (int i = 0; i < 100; i++) CHECK(big[i] == root + 7 * i);
  }
  CHECK_OK(comm_host_barrier(world));
  CHECK_ERR(comm_host_bcast(world, mine, sizeof mine, 3), ERR_ARG);
  CHECK_ERR(comm_host_gather(world, mine, (size_t)1 << 31, all), ERR_ARG);
}

/* Ranks of one host share a clock, so what a round trip says is off by no more than it admits. */
static void clocks_of_one_host_agree_within_the_bound(void)
{
  double offset_ms = -1, error_ms = -1;
  CHECK_OK(comm_clock_offset(world, &offset_ms, &error_ms));
  CHECK(offset_ms == 0 && error_ms == 0);
  CHECK_OK(world_measure_clock(world, &offset_ms, &error_ms));
  CHECK(fabs(offset_ms) <= error_ms);
  CHECK(comm_rank(world) == 0 ? error_ms == 0 : error_ms > 0);
}

static void a_launcher_of_another_mpi_is_named(void)
{
  static const char *const names[] = {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "PMIX_SIZE", "SLURM_STEP_NUM_TASKS"};
  char *kept[4];
  for (int i = 0; i < 4; i++) {
    const char *text = getenv(names[i]);
    kept[i] = text ? strdup(text) : NULL;
    unsetenv(names[i]);
  }
  CHECK_OK(world_check_launcher(1));
  for (int i = 0; i < 4; i++) {
    setenv(names[i], "1", 1);
    CHECK_OK(world_check_launcher(1));
    setenv(names[i], "2", 1);
    CHECK_ERR(world_check_launcher(1), ERR_INVALID);
    setenv(names[i], "4", 1);
    CHECK_ERR(world_check_launcher(1), ERR_INVALID);
    CHECK_TEXT_HAS(err_text(), "started 4 processes");
    CHECK_TEXT_HAS(err_text(), names[i]);
    CHECK_TEXT_HAS(err_text(), comm_library());
    CHECK_OK(world_check_launcher(4));
    unsetenv(names[i]);
  }
  for (int i = 0; i < 4; i++) {
    if (kept[i]) setenv(names[i], kept[i], 1);
    free(kept[i]);
  }
}

static void what_breaks_the_contract_is_refused(void)
{
  struct bench b;
  bench_open(&b, DEV_CPU, 0);
  const int ranks[] = {0, 1, 2}, twice[] = {0, 1, 1}, falling[] = {2, 1, 0}, far[] = {0, 1, 3};
  const struct comm_config config = {.name = "dp"}, negative = {.name = "dp", .piece = -1}, pieces = {.name = "dp", .piece = 2};
  struct comm *c = NULL;
  CHECK_ERR(test_comm(world, b.transfer, ranks, 0, 0, &config, &c), ERR_ARG);
  CHECK_ERR(test_comm(world, b.transfer, ranks, 4, 0, &config, &c), ERR_ARG);
  CHECK_ERR(test_comm(world, b.transfer, twice, 3, 0, &config, &c), ERR_ARG);
  CHECK_ERR(test_comm(world, b.transfer, falling, 3, 0, &config, &c), ERR_ARG);
  CHECK_ERR(test_comm(world, b.transfer, far, 3, 0, &config, &c), ERR_ARG);
  CHECK_ERR(test_comm(world, b.transfer, ranks, 3, 0, &negative, &c), ERR_ARG);
  CHECK(c == NULL);

  c = comm_of(&b, 256, &config);
  struct tensor t = matrix(&b, DTYPE_F32, 6, 20, false), wide = matrix(&b, DTYPE_F32, 2, 21, false), other = matrix(&b, DTYPE_F64, 2, 20, false);
  struct tensor strided = matrix(&b, DTYPE_F32, 6, 20, true), mine = tensor_part(&t, 0, 2, 0, 20), bad = t;
  int64_t n;
  comm_trace_restart(world);
  CHECK_ERR(comm_allreduce(c, &strided, COMM_SUM), ERR_ARG); /* 480 bytes do not fit the scratch */
  CHECK_TEXT_HAS(err_text(), "needs 480 bytes of scratch");
  CHECK_TEXT_HAS(err_text(), "'dp'");
  CHECK_ERR(comm_reduce_scatter(c, &wide, &t, COMM_SUM), ERR_ARG);
  CHECK_ERR(comm_reduce_scatter(c, &other, &t, COMM_SUM), ERR_ARG);
  CHECK_ERR(comm_allgather(c, &mine, &t), ERR_ARG);
  CHECK_ERR(comm_broadcast(c, &t, 3), ERR_ARG);
  CHECK_ERR(comm_broadcast(c, &t, -1), ERR_ARG);
  CHECK_ERR(comm_send(c, &t, 3), ERR_ARG);
  CHECK_ERR(comm_send(c, &t, comm_rank(world)), ERR_ARG);
  CHECK_ERR(comm_recv(c, &t, comm_rank(world)), ERR_ARG);
  bad.stride = 19;
  CHECK_ERR(comm_broadcast(c, &bad, 0), ERR_ARG);
  CHECK_ERR(comm_allreduce(c, &bad, COMM_SUM), ERR_ARG);
  CHECK_ERR(comm_reduce_scatter(c, &mine, &bad, COMM_SUM), ERR_ARG);
  CHECK_ERR(comm_send(c, &bad, (comm_rank(world) + 1) % 3), ERR_ARG);
  bad = mine;
  bad.stride = 19;
  CHECK_ERR(comm_allgather(c, &t, &bad), ERR_ARG);
  CHECK_ERR(comm_group_finish(c), ERR_ARG);
  CHECK_OK(comm_group_start(c));
  CHECK_ERR(comm_group_start(c), ERR_ARG);
  CHECK_ERR(comm_barrier(c), ERR_ARG);
  CHECK_ERR(comm_allreduce(c, &t, COMM_SUM), ERR_ARG);
  CHECK_OK(comm_group_finish(c)); /* empty: nothing */
  comm_trace(world, &n);
  CHECK(n == 0);

  struct comm *small = comm_of(&b, 256, &pieces);
  const int next = (comm_rank(world) + 1) % 3;
  CHECK_OK(comm_group_start(small));
  for (int i = 0; i < 2; i++) CHECK_OK(comm_send(small, &t, next)); /* 2 x 60 pieces */
  CHECK_ERR(comm_group_finish(small), ERR_ARG);
  CHECK_OK(comm_group_start(small));
  for (int i = 0; i < MESSAGES_MAX; i++) CHECK_OK(comm_send(small, &mine, next));
  CHECK_ERR(comm_send(small, &mine, next), ERR_ARG);
  CHECK_ERR(comm_group_finish(small), ERR_ARG); /* 12 x 20 pieces; and the group is gone */
  CHECK_OK(comm_barrier(small));
  CHECK_OK(mirror_sync(b.d));
  comm_destroy(small);
  comm_destroy(c);
  mirror_free(b.d, strided.at);
  mirror_free(b.d, other.at);
  mirror_free(b.d, wide.at);
  mirror_free(b.d, t.at);
  bench_close(&b);
}

/* Sends `out` round the ring and checks what comes in; not refused. */
static void goes_round(struct bench *b, struct comm *c, const struct tensor *out, const struct tensor *in)
{
  const int rank = comm_rank(world), before = (rank + 2) % 3;
  fill(out, rank, 0);
  CHECK_OK(comm_group_start(c));
  CHECK_OK(comm_send(c, out, (rank + 1) % 3));
  CHECK_OK(comm_recv(c, in, before));
  CHECK_OK(comm_group_finish(c));
  CHECK_OK(mirror_sync(b->d));
  for (int64_t i = 0; i < tensor_count(in); i++) CHECK(element_get(in, i) == value(before, i, DTYPE_F32));
}

static void is_refused(struct comm *c, const struct tensor *out, const struct tensor *in)
{
  CHECK_OK(comm_group_start(c));
  CHECK_OK(comm_send(c, out, (comm_rank(world) + 1) % 3));
  CHECK_OK(comm_recv(c, in, (comm_rank(world) + 2) % 3));
  CHECK_ERR(comm_group_finish(c), ERR_ARG);
}

/* What fits to the last byte or piece is done; one more is refused. */
static void limits_are_exact(void)
{
  struct bench b;
  bench_open(&b, DEV_CPU, 0);
  const struct comm_config config = {.name = "dp"}, pieces = {.name = "dp", .piece = 2};
  struct comm *c = comm_of(&b, 768, &config), *small = comm_of(&b, 0, &pieces);

  struct tensor out = matrix(&b, DTYPE_F32, 1, 66, false), in = matrix(&b, DTYPE_F32, 1, 66, false);
  const struct tensor out64 = tensor_part(&out, 0, 1, 0, 64), in64 = tensor_part(&in, 0, 1, 0, 64);
  goes_round(&b, small, &out64, &in64); /* 32 pieces each way */
  is_refused(small, &out, &in);

  struct tensor far_out = matrix(&b, DTYPE_F32, 12, 9, true), far_in = matrix(&b, DTYPE_F32, 12, 9, true);
  const struct tensor out96 = tensor_part(&far_out, 0, 12, 0, 8), in96 = tensor_part(&far_in, 0, 12, 0, 8);
  goes_round(&b, c, &out96, &in96); /* 384 bytes each */
  is_refused(c, &far_out, &far_in);

  struct tensor all = matrix(&b, DTYPE_F32, 27, 8, true), mine = matrix(&b, DTYPE_F32, 9, 8, false);
  const struct tensor all24 = tensor_part(&all, 0, 24, 0, 8), mine8 = tensor_part(&mine, 0, 8, 0, 8);
  fill(&all, comm_rank(world), 0);
  CHECK_OK(comm_reduce_scatter(c, &mine8, &all24, COMM_SUM)); /* three parts of 256 bytes */
  CHECK_ERR(comm_reduce_scatter(c, &mine, &all, COMM_SUM), ERR_ARG);
  CHECK_OK(mirror_sync(b.d));
  for (int64_t i = 0; i < 64; i++) CHECK(reduced(&mine8, i, 64 * comm_rank(world) + i, COMM_SUM, false));
  CHECK_OK(comm_allreduce(c, &all24, COMM_SUM));
  CHECK_ERR(comm_allreduce(c, &all, COMM_SUM), ERR_ARG);
  CHECK_OK(mirror_sync(b.d));

  const struct tensor blocks[] = {out, in, far_out, far_in, all, mine};
  for (int i = 0; i < 6; i++) mirror_free(b.d, blocks[i].at);
  comm_destroy(small);
  comm_destroy(c);
  bench_close(&b);
}

/* The same allocation fails on every rank, so all leave together. */
static void creation_survives_each_failed_allocation(void)
{
  struct bench b;
  bench_open(&b, DEV_CPU, 0);
  const int ranks[] = {0, 1, 2};
  const struct comm_config config = {.name = "dp"};
  struct comm *c = NULL;
  struct dev_usage before, after;
  const size_t scratch = mirror_cuda() && test_staged() ? 0 : 2048; /* a staged comm's is the host's */
  dev_usage(b.d, &before);
  enum err e = ERR_MEMORY;
  for (long n = 1; e != ERR_OK && n < 100; n++) {
    check_fail_allocation(n);
    e = test_comm(world, b.transfer, ranks, 3, 1000, &config, &c);
    CHECK(e == ERR_OK ? !check_allocation_failed() : c == NULL);
    check_fail_allocation(0);
    if (e != ERR_OK) CHECK_ERR(e, ERR_MEMORY);
    dev_usage(b.d, &after);
    CHECK(after.now[DEV_COMMUNICATION] - before.now[DEV_COMMUNICATION] == (e == ERR_OK ? scratch : 0));
  }
  CHECK_OK(e);
  comm_destroy(c);
  comm_destroy(NULL);
  dev_usage(b.d, &after);
  CHECK(after.now[DEV_COMMUNICATION] == before.now[DEV_COMMUNICATION]);
  bench_close(&b);
}

/* A sanitizer brings a malloc of its own. */
#if !defined __SANITIZE_ADDRESS__ && !defined __SANITIZE_THREAD__
/* Takes as MPI does for a large collective; the faults of the second time. */
static void *take_twice(void *faults)
{
  enum { BYTES = 80 << 20 };
  for (int i = 0; i < 2; i++) {
    struct rusage before, after;
    getrusage(RUSAGE_THREAD, &before);
    char *at = malloc(BYTES);
    if (CHECK(at != NULL)) memset(at, i + 1, BYTES);
    getrusage(RUSAGE_THREAD, &after);
    *(long *)faults = after.ru_minflt - before.ru_minflt;
    CHECK(at == NULL || at[BYTES / 2] == i + 1);
    free(at);
  }
  return NULL;
}

static void memory_once_taken_is_kept_for_every_thread(void)
{
  long faults = -1;
  pthread_t thread;
  CHECK(pthread_create(&thread, NULL, take_twice, &faults) == 0);
  CHECK(pthread_join(thread, NULL) == 0);
  CHECK(faults >= 0 && faults < 100); /* 20,480 when the memory is fresh again */
}
#define FRESH_MEMORY TEST(memory_once_taken_is_kept_for_every_thread),
#else
#define FRESH_MEMORY
#endif

int main(void)
{
  static const struct test tests[] = {
    TEST(everyone_is_on_one_host),
    TEST(agreement_is_the_worst_code_and_the_lowest_ranks_text),
    TEST(the_host_gathers_and_broadcasts_bytes),
    TEST(clocks_of_one_host_agree_within_the_bound),
    TEST(a_launcher_of_another_mpi_is_named),
    TEST(what_breaks_the_contract_is_refused),
    TEST(limits_are_exact),
    TEST(creation_survives_each_failed_allocation),
    FRESH_MEMORY
  };
  return run_all("world", tests, sizeof tests / sizeof *tests);
}
