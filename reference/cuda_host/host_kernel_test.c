/* host_kernel_test.c - kernels run as on a GPU, and what is wrong in a kernel shows. */
#include "cuda_host/host_kernel_test.h"

#include "cuda_host/host_child_test.h"
#include "testing/check.h"

#include <cuda_host.h>
#include <math.h>
#include <stdint.h>
#include <stdlib.h>

#define CHECK_CUDA(call) CHECK((call) == cudaSuccess)
#define CHECK_STARTED(call) CHECK_CUDA(call)

#ifdef __SANITIZE_ADDRESS__
enum { SANITIZED = true };
#else
enum { SANITIZED = false };
#endif

static void *zeros(size_t bytes)
{
  void *at = NULL;
  CHECK_CUDA(cudaMalloc(&at, bytes));
  CHECK_CUDA(cudaMemset(at, 0, bytes));
  return at;
}
static void fetch(void *to, const void *from, size_t bytes) { CHECK_CUDA(cudaMemcpy(to, from, bytes, cudaMemcpyDeviceToHost)); }

/* --- launches ------------------------------------------------------------------- */

static void every_thread_of_every_block_runs_once(void)
{
  static const struct grid_shape shapes[] = {{{1, 1, 1}, {1, 1, 1}}, {{7, 1, 1}, {33, 1, 1}}, {{3, 5, 2}, {4, 3, 5}}, {{2, 1, 1}, {1024, 1, 1}}, {{6, 4, 1}, {64, 1, 1}}};
  for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
    const unsigned *g = shapes[i].grid, *b = shapes[i].block, n = g[0] * g[1] * g[2] * b[0] * b[1] * b[2];
    int *at = zeros(n * sizeof *at), *got = malloc(n * sizeof *got);
    CHECK_STARTED(start_number(shapes[i], at));
    fetch(got, at, n * sizeof *got);
    unsigned right = 0;
    for (unsigned j = 0; j < n; j++) right += got[j] == 1;
    CHECK(right == n);
    free(got);
    CHECK_CUDA(cudaFree(at));
  }
}

static void launches_beyond_the_card_are_refused(void)
{
  int *at = zeros(64);
  static const struct grid_shape bad[] = {{{1, 1, 1}, {1025, 1, 1}}, {{1, 1, 1}, {32, 33, 1}}, {{1, 1, 1}, {1, 1, 65}}, {{1, 65536, 1}, {1, 1, 1}},
                                          {{1, 1, 65536}, {1, 1, 1}}, {{0, 1, 1}, {1, 1, 1}}, {{1, 1, 1}, {1, 0, 1}}};
  for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
    CHECK(start_number(bad[i], at) == cudaErrorInvalidConfiguration);
    CHECK(cudaGetLastError() == cudaErrorInvalidConfiguration);
    CHECK(cudaGetLastError() == cudaSuccess);
  }
  const struct grid_shape one = {{1, 1, 1}, {1, 1, 1}};
  CHECK_STARTED(start_number_with(one, 48 * 1024, at));
  CHECK(start_number_with(one, 48 * 1024 + 1, at) == cudaErrorInvalidValue);
  CHECK(raise_number(228 * 1024) == cudaErrorInvalidValue);
  CHECK_CUDA(raise_number(100 * 1024));
  CHECK_STARTED(start_number_with(one, 100 * 1024, at));
  CHECK(start_number_with(one, 100 * 1024 + 1, at) == cudaErrorInvalidValue);
  CHECK_CUDA(cudaDeviceSynchronize());
  CHECK_CUDA(cudaFree(at));
}

/* --- warps ------------------------------------------------------------------------- */

static double warp_expected(enum warp_way way, int i)
{
  const int lane = i % 32, first = i - lane;
  switch (way) {
  case BUTTERFLY: return 32 * first + 496;
  case BROADCAST: return first + 3;
  case UP: return lane < 2 ? i : i - 2;
  case DOWN: return lane >= 30 ? i : i + 2;
  case WIDTH_8: return lane % 8 >= 5 ? i : i + 3;
  case BALLOT: return 0x49249249;
  case ANY_ALL: return 2;
  case HALVES: return (i ^ 1) + (lane < 16 ? 0 : 1);
  case DOUBLES: return 1e300 + (i ^ 1) * 1e290;
  }
  return NAN;
}
static void warp_functions_give_what_cuda_gives(void)
{
  double got[96], *at = zeros(sizeof got);
  for (enum warp_way way = BUTTERFLY; way <= DOUBLES; way++) {
    CHECK_STARTED(start_warp(way, 96, at));
    fetch(got, at, sizeof got);
    int right = 0;
    for (int i = 0; i < 96; i++) right += got[i] == warp_expected(way, i);
    CHECK(right == 96);
  }
  CHECK_CUDA(cudaFree(at));
}

static void a_block_votes(void)
{
  int got[5], *at = zeros(sizeof got);
  CHECK_STARTED(start_votes(at));
  fetch(got, at, sizeof got);
  CHECK(got[0] == 1 && got[1] == 0 && got[2] == 1 && got[3] == 0 && got[4] == 48);
  CHECK_CUDA(cudaFree(at));
}

static void atomics_lose_nothing(void)
{
  int got[7], *at = zeros(sizeof got);
  CHECK_STARTED(start_atomics(at));
  fetch(got, at, sizeof got);
  CHECK(got[0] == 255 * 128 && got[1] == 255 && got[2] == 0 && got[3] == 1 && got[4] == 1 && got[5] == 1 && got[6] == 1);
  CHECK_CUDA(cudaFree(at));
}

static void bf16_is_rounded_to_nearest_even(void)
{
  const float from[] = {1, 1.00390625f, 1.01171875f, -1.00390625f, 3.4e38f, INFINITY, NAN, 1e-40f, 0};
  const unsigned short want[] = {0x3f80, 0x3f80, 0x3f82, 0xbf80, 0x7f80, 0x7f80, 0x7fff, 0x0001, 0};
  unsigned short got[9], *at = zeros(sizeof got);
  float *in = zeros(sizeof from);
  CHECK_CUDA(cudaMemcpy(in, from, sizeof from, cudaMemcpyHostToDevice));
  CHECK_STARTED(start_bf16(at, in, 9));
  fetch(got, at, sizeof got);
  CHECK_SAME_BITS(got, want, sizeof got);
  CHECK_CUDA(cudaFree(at));
  CHECK_CUDA(cudaFree(in));
}

/* --- barriers ------------------------------------------------------------------------ */

static int wrong_sums(enum tree_way way)
{
  enum { BLOCKS = 20 };
  float got[BLOCKS], *at = zeros(sizeof got);
  CHECK_STARTED(start_tree(way, BLOCKS, at));
  fetch(got, at, sizeof got);
  int wrong = 0;
  for (int i = 0; i < BLOCKS; i++) wrong += got[i] != 2 * (64.0f * (float)i + 2016);
  CHECK_CUDA(cudaFree(at));
  return wrong;
}
static void a_missing_syncthreads_shows(void)
{
  CHECK(wrong_sums(WHOLE) == 0);
  CHECK(wrong_sums(NO_BARRIER) > 10);
  CHECK(wrong_sums(NO_BARRIER_BEFORE_REUSE) > 3); /* wrong where thread 0 comes before thread 63 */
}

static int wrong_lanes(int with_barrier)
{
  enum { BLOCKS = 20, ALL = BLOCKS * 32 };
  float got[ALL], *at = zeros(sizeof got);
  CHECK_STARTED(start_lanes(with_barrier, BLOCKS, at));
  fetch(got, at, sizeof got);
  int wrong = 0;
  for (int i = 0; i < ALL; i++) wrong += !(got[i] == (float)((i + 1) % 32));
  CHECK_CUDA(cudaFree(at));
  return wrong;
}
static void a_missing_syncwarp_shows(void)
{
  CHECK(wrong_lanes(1) == 0);
  CHECK(wrong_lanes(0) > 50);
}

static void what_cannot_meet_fails_the_launch(void)
{
  static const struct {
    enum bad_way way;
    const char *part;
  } all[] = {{HALF_AT_BARRIER, "__syncthreads"}, {ENDED_BEFORE_BARRIER, "__syncthreads"}, {LANE_ENDED, "ended"},
             {LANE_AT_BARRIER, "waits for lanes 0x00000200"}, {OWN_LANE_MISSING, "own lane 0 is missing"},
             {LANES_THAT_DO_NOT_EXIST, "names lanes that do not exist: the warp has 0x0000ffff"}, {TWO_FUNCTIONS, "meets lane"},
             {TWO_MASKS, "in __shfl_xor_sync"}, {TRAP, "thread (3,0,0): __trap"}, {TOO_MUCH_SHARED, "52000 bytes of static"}};
  for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
    float *at = zeros(64 * sizeof *at);
    CHECK_STARTED(start_bad(all[i].way, at)); /* late: the launch itself is well */
    CHECK(cudaDeviceSynchronize() == cudaErrorLaunchFailure);
    CHECK_TEXT_HAS(cuda_host_message(), "kernel 'bad', block (0,0,0), thread (");
    CHECK_TEXT_HAS(cuda_host_message(), all[i].part);
    CHECK(cudaGetLastError() == cudaErrorLaunchFailure);
    CHECK(cudaGetLastError() == cudaErrorLaunchFailure); /* sticky */
    CHECK(cudaMemset(at, 0, 4) == cudaErrorLaunchFailure);
    CHECK_CUDA(cudaDeviceReset());
    a_block_votes(); /* and nothing of it is left */
  }
}

/* --- memory ---------------------------------------------------------------------------- */

static void memory_that_nobody_wrote_is_nan(void)
{
  float got[96], *at = NULL, *out = zeros(sizeof got);
  CHECK_CUDA(cudaMalloc((void **)&at, sizeof got));
  CHECK_STARTED(start_copy(out, at, 96, 0));
  fetch(got, out, sizeof got);
  for (int i = 0; i < 96; i++) CHECK(isnan(got[i]));
  for (int again = 0; again < 2; again++) {
    CHECK_STARTED(start_shared_unwritten(out));
    fetch(got, out, 32 * sizeof *got);
    for (int i = 0; i < 32; i++) CHECK(isnan(got[i]));
  }
  CHECK_CUDA(cudaMemset(at, 0, sizeof got));
  CHECK_CUDA(cudaFree(at));
  CHECK_CUDA(cudaMalloc((void **)&at, sizeof got)); /* the same place, most likely */
  CHECK_STARTED(start_copy(out, at, 96, 0));
  fetch(got, out, sizeof got);
  for (int i = 0; i < 96; i++) CHECK(isnan(got[i]));
  CHECK_CUDA(cudaFree(at));
  CHECK_CUDA(cudaFree(out));
}

static void async_copies_are_there_after_their_wait(void)
{
  float from[128], got[128], *in = zeros(sizeof from), *out = zeros(sizeof got);
  for (int i = 0; i < 128; i++) from[i] = (float)(i + 1);
  CHECK_CUDA(cudaMemcpy(in, from, sizeof from, cudaMemcpyHostToDevice));
  CHECK_STARTED(start_async_copy(out, in, 1));
  fetch(got, out, sizeof got);
  for (int i = 0; i < 126; i++) CHECK(got[i] == from[i]);
  CHECK(got[126] == 0 && got[127] == 0); /* not valid: zero */
  CHECK_STARTED(start_async_copy(out, in, 0));
  fetch(got, out, sizeof got);
  for (int i = 0; i < 128; i++) CHECK(isnan(got[i]));
  CHECK_CUDA(cudaFree(in));
  CHECK_CUDA(cudaFree(out));
}

static void write_past_end(void)
{
  float *at = zeros(100 * sizeof *at), *from = zeros(101 * sizeof *at);
  start_copy(at, from, 101, 0);
  if (cudaDeviceSynchronize() != cudaSuccess) _exit(1);
}
static void read_past_end(void)
{
  float *from = zeros(100 * sizeof *from), *at = zeros(100 * sizeof *at), got[100];
  start_copy(at, from, 100, 1);
  cudaMemcpy(got, at, sizeof got, cudaMemcpyDeviceToHost);
  if (isnan(got[99])) _exit(1);
}
static void read_before_begin(void)
{
  float *from = zeros(100 * sizeof *from), *at = zeros(100 * sizeof *at), got[100];
  start_copy(at, from, 100, -1);
  cudaMemcpy(got, at, sizeof got, cudaMemcpyDeviceToHost);
  if (isnan(got[0])) _exit(1);
}
static void read_after_free(void)
{
  float *from = zeros(100 * sizeof *from), *at = zeros(100 * sizeof *at), got[100];
  cudaFree(from);
  start_copy(at, from, 100, 0);
  cudaMemcpy(got, at, sizeof got, cudaMemcpyDeviceToHost);
  if (isnan(got[5])) _exit(1);
}
static void read_past_shared(void)
{
  float *at = zeros(32 * sizeof *at), got[32];
  start_shared_past_end(at);
  cudaMemcpy(got, at, sizeof got, cudaMemcpyDeviceToHost);
  if (isnan(got[31])) _exit(1);
}
static void accesses_out_of_bounds_are_found(void)
{
  static const struct {
    void (*run)(void);
    const char *kernel;
  } all[] = {{write_past_end, "kernel 'copy'"}, {read_past_end, "kernel 'copy'"}, {read_before_begin, "kernel 'copy'"},
             {read_after_free, "kernel 'copy'"}, {read_past_shared, "kernel 'past_end'"}};
  static char said[16384];
  for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
    CHECK(child_dies(all[i].run, said, sizeof said));
    if (SANITIZED) {
      CHECK_TEXT_HAS(said, "AddressSanitizer: use-after-poison");
      CHECK_TEXT_HAS(said, all[i].kernel);
    }
  }
}

static void touch_from_host(void)
{
  volatile float *at = zeros(64);
  cudaDeviceSynchronize();
  at[3] = 1;
}
static void touch_nothing(void)
{
  start_copy((float *)64, (float *)64, 1, 0);
  cudaDeviceSynchronize();
}
static void fill_the_stack(void)
{
  start_bad(DEEP, zeros(256));
  cudaDeviceSynchronize();
}
static void faults_are_told_with_their_place(void)
{
  static char said[16384];
  CHECK(child_dies(touch_from_host, said, sizeof said));
  CHECK_TEXT_HAS(said, "the host touched device memory");
  CHECK_TEXT_HAS(said, "byte 12 of a block of 64 bytes on device 0");
  CHECK(child_dies(touch_nothing, said, sizeof said));
  CHECK_TEXT_HAS(said, "kernel 'copy', block (0,0,0), thread (0,0,0)");
  CHECK(child_dies(fill_the_stack, said, sizeof said));
  CHECK_TEXT_HAS(said, SANITIZED ? "kernel 'bad'" : "its stack is full");
}

int main(void)
{
  static const struct test tests[] = {
    TEST(every_thread_of_every_block_runs_once),
    TEST(launches_beyond_the_card_are_refused),
    TEST(warp_functions_give_what_cuda_gives),
    TEST(a_block_votes),
    TEST(atomics_lose_nothing),
    TEST(bf16_is_rounded_to_nearest_even),
    TEST(a_missing_syncthreads_shows),
    TEST(a_missing_syncwarp_shows),
    TEST(what_cannot_meet_fails_the_launch),
    TEST(memory_that_nobody_wrote_is_nan),
    TEST(async_copies_are_there_after_their_wait),
    TEST(accesses_out_of_bounds_are_found),
    TEST(faults_are_told_with_their_place),
  };
  return test_main("host_kernel", tests, sizeof tests / sizeof *tests);
}
