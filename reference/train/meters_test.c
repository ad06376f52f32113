/* meters_test.c - where time goes, from intervals made by hand; what the system says of memory. */
#include "testing/check.h"
#include "train/meters.h"

#include <math.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

/* In order of their end, as dev_trace_take gives them. */
static const struct dev_interval list[] = {
  {.stream = "compute", .kernel = "copy_in", .phase = DEV_PHASE_OTHER, .ready_ms = 0, .start_ms = 0, .end_ms = 1},
  {.stream = "compute", .kernel = "matmul", .phase = DEV_PHASE_FORWARD, .ready_ms = 1, .start_ms = 1, .end_ms = 4},
  {.stream = "scalar", .kernel = "allreduce", .phase = DEV_PHASE_DATA, .ready_ms = 0, .start_ms = 0.5, .end_ms = 5},
  {.stream = "compute", .kernel = "matmul", .phase = DEV_PHASE_BACKWARD, .ready_ms = 5, .start_ms = 5, .end_ms = 9, .waited_ms = 1, .waited_for = "scalar"},
  {.stream = "transfer", .kernel = "copy_in", .phase = DEV_PHASE_BACKWARD, .ready_ms = 8, .start_ms = 8, .end_ms = 9},
  {.stream = "transfer", .kernel = "allreduce", .phase = DEV_PHASE_BACKWARD, .ready_ms = 9, .start_ms = 9, .end_ms = 12},
  {.stream = "compute", .kernel = "adamw", .phase = DEV_PHASE_OPTIMIZER, .ready_ms = 12, .start_ms = 12, .end_ms = 14, .waited_ms = 3, .waited_for = "transfer"},
  {.stream = "scalar", .kernel = "allreduce", .phase = DEV_PHASE_OTHER, .ready_ms = 14, .start_ms = 14, .end_ms = 15},
};
enum { N = sizeof list / sizeof *list };

static void time_is_split_by_phase_and_stream(void)
{
  const struct meters_time t = meters_split(list, N);
  CHECK(t.forward_ms == 3 && t.backward_ms == 4 && t.optimizer_ms == 2 && t.other_ms == 1);
  CHECK(t.exposed_ms == 4 && t.replicas_ms == 3);
  CHECK(t.backward_end_ms == 9);
  CHECK(t.comm_ms == 4.5 + 1 + 3 + 1);
}

/* Forward and backward of compute alone, by micro-batch. */
static void each_micro_batch_has_its_own_time(void)
{
  static const struct dev_interval some[] = {
    {.stream = "compute", .kernel = "matmul", .phase = DEV_PHASE_FORWARD, .microbatch = 3, .start_ms = 0, .end_ms = 4},
    {.stream = "compute", .kernel = "allreduce", .phase = DEV_PHASE_FORWARD, .microbatch = 3, .start_ms = 4, .end_ms = 9},
    {.stream = "transfer", .kernel = "copy_in", .phase = DEV_PHASE_BACKWARD, .microbatch = 3, .start_ms = 4, .end_ms = 9},
    {.stream = "compute", .kernel = "matmul", .phase = DEV_PHASE_FORWARD, .microbatch = 2, .start_ms = 9, .end_ms = 10},
    {.stream = "compute", .kernel = "matmul", .phase = DEV_PHASE_BACKWARD, .microbatch = 3, .start_ms = 10, .end_ms = 12},
    {.stream = "compute", .kernel = "adamw", .phase = DEV_PHASE_OPTIMIZER, .microbatch = 3, .start_ms = 12, .end_ms = 15},
    {.stream = "compute", .kernel = "matmul", .phase = DEV_PHASE_BACKWARD, .microbatch = 4, .start_ms = 15, .end_ms = 16},
  };
  double ms[2];
  meters_microbatches(some, sizeof some / sizeof *some, 2, 2, ms);
  CHECK(ms[0] == 1 && ms[1] == 6);
}

static void each_collective_has_its_own_interval(void)
{
  const struct comm_call calls[] = {
    {.op = "allreduce", .group = "sums", .stream = "scalar", .sequence = 1},
    {.op = "allreduce", .group = "dp", .stream = "transfer", .sequence = 1},
    {.op = "allreduce", .group = "sums", .stream = "scalar", .sequence = 2},
    {.op = "allreduce", .group = "dp", .stream = "transfer", .sequence = 2},
  };
  double ready[4], end[4];
  CHECK_OK(meters_calls(list, N, calls, 3, 100.0, ready, end));
  CHECK(ready[0] == 100 && ready[1] == 109 && ready[2] == 114);
  CHECK(end[0] == 105 && end[1] == 112 && end[2] == 115);
  CHECK_ERR(meters_calls(list, N, calls, 4, 0.0, ready, end), ERR_ARG);
  CHECK_TEXT_HAS(err_text(), "allreduce #2 of dp");
}

/* The first is the last step's; of this step's two the second is not done when the step ends. */
static void a_gather_may_go_on_into_the_next_step(void)
{
  static const struct dev_interval some[] = {
    {.stream = "gather", .kernel = "allgather", .step = 3, .ready_ms = 1, .start_ms = 1, .end_ms = 2},
    {.stream = "gather", .kernel = "allgather", .step = 4, .ready_ms = 6, .start_ms = 6, .end_ms = 8},
  };
  const struct comm_call calls[] = {{.op = "allgather", .group = "gather", .stream = "gather", .step = 4, .sequence = 1},
                                    {.op = "allgather", .group = "gather", .stream = "gather", .step = 4, .sequence = 2}};
  double ready[2], end[2];
  CHECK_OK(meters_calls(some, 2, calls, 2, 10.0, ready, end));
  CHECK(ready[0] == 16 && end[0] == 18 && ready[1] == -1 && end[1] == -1);
}

static void flops_are_six_a_weight_and_token(void)
{
  const struct run_config run = {.layers = 12, .hidden = 768, .vocab = 50257};
  const double layer = 12 * 768.0 * 768.0, head = 50257.0 * 768.0;
  const struct params_place alone = {.tp = 1, .pp = 1, .partition = {.stages = 1, .first = {0, 12}}};
  CHECK_NEAR(meters_matmul_flops(&run, &alone, 10.0), 60.0 * (12 * layer + head), 1.0);
  /* Two stages with two chunks each, of 4, 3, 3 and 2 layers; two tensor ranks. */
  struct params_place place = {.tp = 2, .pp = 2, .partition = {.stages = 4, .first = {0, 4, 7, 10, 12}}};
  CHECK_NEAR(meters_matmul_flops(&run, &place, 10.0), 60.0 * 7 * layer / 2, 1.0);
  place.pp_rank = 1;
  CHECK_NEAR(meters_matmul_flops(&run, &place, 10.0), 60.0 * (5 * layer + head) / 2, 1.0);
}

static void a_collective_on_the_compute_stream_is_exposed(void)
{
  static const struct dev_interval some[] = {
    {.stream = "compute", .kernel = "op_linear_fwd", .phase = DEV_PHASE_FORWARD, .start_ms = 0, .end_ms = 4},
    {.stream = "compute", .kernel = "allreduce", .phase = DEV_PHASE_FORWARD, .start_ms = 4, .end_ms = 7},
    {.stream = "compute", .kernel = "allgather", .phase = DEV_PHASE_BACKWARD, .start_ms = 8, .end_ms = 10, .waited_ms = 1, .waited_for = "gather"},
  };
  const struct meters_time t = meters_split(some, 3);
  CHECK(t.replicas_ms == 1 && isnan(meters_split(some, 1).backward_end_ms));
  CHECK(t.forward_ms == 4 && t.backward_ms == 0 && t.exposed_ms == 3 + 2 + 1 && t.comm_ms == 5);
}

static void the_high_water_mark_keeps_what_is_gone(void)
{
  enum { BYTES = 48 << 20, SLACK = 4 << 20 }; /* the kernel counts pages in batches, by processor */
#ifdef SHARDMARK_TSAN
  enum { SHADOW = 6 }; /* ThreadSanitizer keeps several bytes for each that is touched */
#else
  enum { SHADOW = 1 };
#endif
  int64_t base, peak, after;
  CHECK_OK(meters_memory_restart(&base));
  char *block = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (!CHECK(block != MAP_FAILED)) return;
  memset(block, 1, BYTES);
  munmap(block, BYTES);
  CHECK_OK(meters_memory_peak(&peak));
  CHECK(peak - base > BYTES - SLACK && peak - base < SHADOW * (int64_t)BYTES + SLACK);
  CHECK_OK(meters_memory_restart(&after));
  CHECK(after < peak - BYTES / 2);
}

/* Another process with the same pages: half of them are its. */
static void of_shared_pages_each_process_has_its_part(void)
{
  enum { BYTES = 16 << 20, SLACK = 1 << 20 };
  int64_t base, alone, two;
  int written[2], kept[2];
  char byte = 0;
  CHECK_OK(meters_memory_others(&base));
  char *block = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (!CHECK(block != MAP_FAILED && pipe(written) == 0 && pipe(kept) == 0)) return;
  memset(block, 1, BYTES);
  CHECK_OK(meters_memory_others(&alone));
  const pid_t child = fork();
  if (child == 0) {
    close(kept[1]);
    memset(block, 2, BYTES);
    if (write(written[1], &byte, 1) == 1) (void)!read(kept[0], &byte, 1); /* until the other end is closed */
    _exit(0);
  }
  CHECK(child > 0 && read(written[0], &byte, 1) == 1);
  CHECK_OK(meters_memory_others(&two));
  CHECK(alone - base < SLACK);
  CHECK(two - base > BYTES / 2 - SLACK && two - base < BYTES / 2 + SLACK);
  close(kept[1]);
  waitpid(child, NULL, 0);
  close(kept[0]), close(written[0]), close(written[1]);
  munmap(block, BYTES);
}

int main(void)
{
  static const struct test tests[] = {
    TEST(time_is_split_by_phase_and_stream),
    TEST(each_micro_batch_has_its_own_time),
    TEST(each_collective_has_its_own_interval),
    TEST(a_gather_may_go_on_into_the_next_step),
    TEST(flops_are_six_a_weight_and_token),
    TEST(a_collective_on_the_compute_stream_is_exposed),
    TEST(the_high_water_mark_keeps_what_is_gone),
    TEST(of_shared_pages_each_process_has_its_part),
  };
  return test_main("meters", tests, sizeof tests / sizeof *tests);
}
