/* comm_np2_cuda_test.c - NCCL's own part of the contract: who may share a communicator, how it is
 * chosen, and what becomes of a wait for a rank that is gone. */
#include "comm/comm_fixture.h"
#include "comm/link_cuda.h"

#include <nccl.h>

static void open_on(struct bench *b, int index)
{
  const struct dev_config config = {.kind = DEV_CUDA, .threads = 1, .index = index};
  CHECK_OK(dev_open(&config, &b->d));
  CHECK_OK(dev_stream_open(b->d, "compute", DEV_COMPUTE, &b->compute));
  CHECK_OK(dev_stream_open(b->d, "transfer", DEV_TRANSFER, &b->transfer));
}

static enum err create(struct bench *b, const struct comm_config *config, struct comm **out)
{
  static const int ranks[] = {0, 1};
  return comm_create(world, b->transfer, ranks, 2, 0, config, out);
}

static void two_ranks_on_one_device_need_the_way_by_the_host(void)
{
  struct bench b;
  struct comm *c = NULL;
  const struct comm_config nccl = {.name = "dp"}, staged = {.name = "dp", .transport = COMM_STAGED};
  open_on(&b, 0);
  CHECK_ERR(create(&b, &nccl, &c), ERR_INVALID);
  CHECK_TEXT_HAS(err_text(), "ranks 0 and 1 share the device GPU-");
  CHECK_TEXT_HAS(err_text(), "transport: staged");
  CHECK(c == NULL);
  CHECK_ERR(comm_check_nccl(world, b.d), ERR_INVALID);
  CHECK_OK(create(&b, &staged, &c));
  comm_destroy(c);
  bench_close(&b);
  open_on(&b, comm_rank(world));
  CHECK_OK(comm_check_nccl(world, b.d));
  CHECK_OK(create(&b, &nccl, &c));
  comm_destroy(c);
  bench_close(&b);
}

static void a_group_of_one_needs_no_nccl(void)
{
  struct bench b;
  struct comm *c = NULL;
  const int me = comm_rank(world);
  const struct comm_config config = {.name = "own"};
  open_on(&b, 0);
  CHECK_OK(comm_create(world, b.transfer, &me, 1, 0, &config, &c));
  CHECK(link_cuda_handle(c->link) == NULL);
  struct tensor t = matrix(&b, DTYPE_F32, 2, 5, false), far = matrix(&b, DTYPE_F32, 2, 5, false);
  fill(&t, me, 0);
  CHECK_OK(comm_group_start(c));
  CHECK_OK(comm_recv(c, &far, 0));
  CHECK_OK(comm_send(c, &t, 0));
  CHECK_OK(comm_group_finish(c));
  CHECK_OK(mirror_sync(b.d));
  for (int64_t i = 0; i < 10; i++) CHECK(element_get(&far, i) == value(me, i, DTYPE_F32));
  CHECK_OK(comm_group_start(c));
  CHECK_OK(comm_send(c, &t, 0));
  CHECK_OK(comm_group_finish(c));
  CHECK_ERR(dev_sync(b.d), ERR_ARG);
  CHECK_TEXT_HAS(err_text(), "without its other end");
  mirror_free(b.d, far.at);
  mirror_free(b.d, t.at);
  comm_destroy(c);
  bench_close(&b);
}

#ifdef SHARDMARK_CUDA_HOST /* what only the stand-in can be told to do */
static void other_versions_are_refused_on_both(void)
{
  struct bench b;
  struct comm *c = NULL;
  const struct comm_config config = {.name = "dp"};
  open_on(&b, comm_rank(world));
  if (comm_rank(world) == 1) setenv("CUDA_HOST_NCCL_VERSION", "22602", 1);
  CHECK_ERR(create(&b, &config, &c), ERR_INVALID);
  CHECK_TEXT_HAS(err_text(), "on rank 0 and 2.26.2 on rank 1");
  unsetenv("CUDA_HOST_NCCL_VERSION");
  CHECK_OK(create(&b, &config, &c));
  comm_destroy(c);
  bench_close(&b);
}

static bool chosen(struct comm *c, const char *algo, const char *proto)
{
  ncclComm_t handle = link_cuda_handle(c->link);
  return strcmp(cuda_host_nccl_chosen(handle, "NCCL_ALGO"), algo) == 0 && strcmp(cuda_host_nccl_chosen(handle, "NCCL_PROTO"), proto) == 0;
}

/* The environment is what it was before, so that the next run of the job has its own. */
static void the_choice_holds_for_its_communicator_alone(void)
{
  struct bench b;
  struct comm *c = NULL;
  const struct comm_config pinned = {.name = "dp", .nccl_algo = "ring", .nccl_proto = "simple", .synchronous = true}, open = {.name = "dp"};
  open_on(&b, comm_rank(world));
  CHECK_OK(create(&b, &pinned, &c));
  CHECK(chosen(c, "ring", "simple"));
  CHECK(getenv("NCCL_ALGO") == NULL && getenv("NCCL_PROTO") == NULL);
  comm_destroy(c);
  setenv("NCCL_ALGO", "Tree", 1);
  CHECK_OK(create(&b, &pinned, &c));
  CHECK(chosen(c, "ring", "simple"));
  CHECK(strcmp(getenv("NCCL_ALGO"), "Tree") == 0 && getenv("NCCL_PROTO") == NULL);
  comm_destroy(c);
  CHECK_OK(create(&b, &open, &c));
  CHECK(chosen(c, "Tree", ""));
  comm_destroy(c);
  unsetenv("NCCL_ALGO");
  bench_close(&b);
}

/* The other rank never comes: without the watch this would wait for ever. */
static void an_error_of_the_network_ends_the_wait(void)
{
  for (int synchronous = 0; synchronous < 2; synchronous++) {
    struct bench b;
    struct comm *c = NULL;
    const struct comm_config config = {.name = "dp", .synchronous = synchronous};
    open_on(&b, comm_rank(world));
    CHECK_OK(create(&b, &config, &c));
    struct tensor t = matrix(&b, DTYPE_F32, 1, 8, false);
    fill(&t, comm_rank(world), 0);
    CHECK_OK(comm_allreduce(c, &t, COMM_SUM));
    CHECK_OK(mirror_sync(b.d));
    CHECK_OK(comm_host_barrier(world));
    if (comm_rank(world) == 0) {
      CHECK_OK(comm_send(c, &t, 1));
      cuda_host_nccl_break(link_cuda_handle(c->link), ncclRemoteError);
      CHECK_ERR(dev_sync(b.d), ERR_COMM);
      CHECK_TEXT_HAS(err_text(), "'dp': NCCL says: remote process exited");
      CHECK_ERR(comm_allreduce(c, &t, COMM_SUM), ERR_COMM);
    }
    CHECK_OK(comm_host_barrier(world));
    comm_destroy(c);
    mirror_free(b.d, t.at);
    bench_close(&b);
  }
}
#define STAND_IN                                       \
  TEST(other_versions_are_refused_on_both),            \
  TEST(the_choice_holds_for_its_communicator_alone),   \
  TEST(an_error_of_the_network_ends_the_wait),
#else
#define STAND_IN
#endif

int main(void)
{
  static const struct test tests[] = {
    TEST(two_ranks_on_one_device_need_the_way_by_the_host),
    TEST(a_group_of_one_needs_no_nccl),
    STAND_IN
  };
  setenv("CUDA_HOST_DEVICES", "2", 1);
  return run_all("comm over NCCL", tests, sizeof tests / sizeof *tests);
}
