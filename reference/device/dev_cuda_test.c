/* dev_cuda_test.c - what only the cuda device does: kernels issued at once among hosted work,
 * errors of kernels, watchers, the arena, a device that is lost.  On a card with 64 MiB. */
#include "device/dev_cuda_state.h"
#include "device/dev_cuda_testing.h"
#include "device/dev_testing.h"

#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>
#ifdef SHARDMARK_CUDA_HOST
#include <cuda_host.h>
#endif

static const struct dev_kernel append = {.name = "append", .cuda = append_cuda};
static const struct dev_kernel add = {.name = "add", .cuda = add_cuda};
static const struct dev_kernel judge = {.name = "judge", .cuda = judge_cuda};

static struct dev *open_cuda(void) { return open_kind(DEV_CUDA); }

static int *ints(struct dev *d, struct dev_stream *s, const int *values, int n)
{
  void *at = NULL;
  CHECK_OK(dev_alloc(d, (size_t)n * sizeof *values, DEV_OTHER, "ints", &at));
  if (values != NULL) CHECK_OK(dev_copy_in(s, at, values, (size_t)n * sizeof *values));
  return at;
}

static enum err submit_append(struct dev_stream *s, int *at, int value)
{
  const struct append_args args = {at, value};
  return dev_submit(s, &append, &args, sizeof args, NULL, 0);
}

static enum err submit_add(struct dev_stream *s, int *to, const int *from, int by, int rounds)
{
  const struct add_args args = {to, from, by, rounds};
  return dev_submit(s, &add, &args, sizeof args, NULL, 0);
}

static enum err submit_judge(struct dev_stream *s, const int *values, int n)
{
  const struct judge_args args = {values, n};
  return dev_submit(s, &judge, &args, sizeof args, NULL, 0);
}

/* --- order ------------------------------------------------------------------------- */

static void kernels_of_a_stream_keep_their_order(void)
{
  struct dev *d = open_cuda();
  struct dev_stream *s = stream(d, "compute", DEV_COMPUTE);
  enum { N = 3000 };
  static int log[N + 1];
  memset(log, 0, sizeof log);
  int *at = ints(d, s, log, N + 1);
  for (int i = 0; i < N; i++) CHECK_OK(submit_append(s, at, i));
  CHECK_OK(dev_copy_out(s, log, at, sizeof log));
  CHECK_OK(dev_sync(d));
  bool ordered = log[0] == N;
  for (int i = 0; i < N; i++) ordered = ordered && log[i + 1] == i;
  CHECK(ordered);
  dev_close(d);
}

static enum err double_it(void *args)
{
  int *x = *(int **)args;
  *x *= 2;
  return ERR_OK;
}

/* Device, host, device, host: each sees what came before it. */
static void hosted_work_stands_between_kernels(void)
{
  struct dev *d = open_cuda();
  struct dev_stream *s = stream(d, "compute", DEV_COMPUTE);
  const struct dev_kernel hosted = {.name = "double", .start = double_it, .test = nothing_test};
  const int zero = 0;
  void *pinned;
  CHECK_OK(dev_host_alloc(d, sizeof(int), "pinned", &pinned));
  int *between = pinned, *at = ints(d, s, &zero, 1), want = 0, got = -1;
  for (int i = 0; i < 12; i++) {
    CHECK_OK(submit_add(s, at, at, i, 200));
    CHECK_OK(dev_copy_out(s, between, at, sizeof *between));
    CHECK_OK(dev_submit(s, &hosted, &between, sizeof between, NULL, 0));
    CHECK_OK(dev_copy_in(s, at, between, sizeof *between));
    want = 2 * (want + i);
  }
  CHECK_OK(dev_copy_out(s, &got, at, sizeof got));
  CHECK_OK(dev_sync_stream(s));
  CHECK(got == want);
  dev_host_free(d, pinned);
  dev_close(d);
}

/* Hosted work of one stream follows kernels of another, through an event, and the other way. */
static void events_order_kernels_and_hosted_work(void)
{
  struct dev *d = open_cuda();
  struct dev_stream *compute = stream(d, "compute", DEV_COMPUTE), *comm = stream(d, "comm", DEV_TRANSFER);
  struct dev_event *there = event(d), *back = event(d);
  const struct dev_kernel hosted = {.name = "double", .start = double_it, .test = nothing_test};
  const int zero = 0;
  void *pinned;
  CHECK_OK(dev_host_alloc(d, sizeof(int), "pinned", &pinned));
  int *between = pinned, *at = ints(d, compute, &zero, 1), want = 0, got = -1;
  for (int i = 0; i < 12; i++) {
    CHECK_OK(submit_add(compute, at, at, i, 500));
    CHECK_OK(dev_record(there, compute));
    CHECK_OK(dev_wait(comm, there));
    CHECK_OK(dev_copy_out(comm, between, at, sizeof *between));
    CHECK_OK(dev_submit(comm, &hosted, &between, sizeof between, NULL, 0));
    CHECK_OK(dev_copy_in(comm, at, between, sizeof *between));
    CHECK_OK(dev_record(back, comm));
    CHECK_OK(dev_wait(compute, back));
    want = 2 * (want + i);
  }
  CHECK_OK(dev_copy_out(compute, &got, at, sizeof got));
  CHECK_OK(dev_sync_stream(compute));
  CHECK(got == want);
  dev_event_destroy(there);
  dev_event_destroy(back);
  dev_host_free(d, pinned);
  dev_close(d);
}

static void pageable_memory_is_read_at_once(void)
{
  struct dev *d = open_cuda();
  struct dev_stream *s = stream(d, "compute", DEV_COMPUTE);
  int value = 41, got = 0;
  int *at = ints(d, s, &value, 1);
  value = 42;
  CHECK_OK(dev_copy_out(s, &got, at, sizeof got));
  CHECK(got == 0); /* until the host has waited */
  CHECK_OK(dev_sync(d));
  CHECK(got == 41);
  dev_close(d);
}

/* More than the queue or the ring have places for, none waited for by the host. */
static void many_small_copies_keep_their_values(void)
{
  enum { N = 3000 };
  struct dev *d = open_cuda();
  struct dev_stream *s = stream(d, "compute", DEV_COMPUTE);
  static int got[N];
  int *at = ints(d, s, got, N), wrong = 0;
  for (int i = 0; i < N; i++) CHECK_OK(dev_copy_in(s, at + i, &i, sizeof i));
  for (int i = 0; i < N; i++) CHECK_OK(dev_copy_out(s, &got[i], at + N - 1 - i, sizeof *at));
  CHECK_OK(dev_sync(d));
  for (int i = 0; i < N; i++) wrong += got[i] != N - 1 - i;
  CHECK(wrong == 0);
  dev_close(d);
}

/* Eleven of these leave a rest of the ring that the twelfth has to skip: the room of parts that still travel is not given away. */
static void large_copies_keep_their_values_round_the_ring(void)
{
  enum { N = 24, EACH = 175003 };
  struct dev *d = open_cuda();
  struct dev_stream *s = stream(d, "compute", DEV_COMPUTE);
  int *at = ints(d, s, NULL, N * EACH), *part = malloc(EACH * sizeof *part), *got = malloc((size_t)N * EACH * sizeof *got), wrong = 0;
  for (int i = 0; i < N; i++) {
    for (int k = 0; k < EACH; k++) part[k] = i * EACH + k;
    CHECK_OK(dev_copy_in(s, at + (ptrdiff_t)i * EACH, part, EACH * sizeof *part));
  }
  for (int i = 0; i < N; i++) CHECK_OK(dev_copy_out(s, got + (ptrdiff_t)i * EACH, at + (ptrdiff_t)i * EACH, EACH * sizeof *part));
  CHECK_OK(dev_sync(d));
  for (int i = 0; i < N * EACH; i++) wrong += got[i] != i;
  CHECK(wrong == 0);
  free(got);
  free(part);
  dev_close(d);
}

static void work_without_a_cuda_form_is_refused(void)
{
  struct dev *d = open_cuda();
  struct dev_stream *s = stream(d, "compute", DEV_COMPUTE);
  const struct dev_kernel host_only = nothing("layernorm");
  CHECK_ERR(dev_submit(s, &host_only, NULL, 0, NULL, 0), ERR_UNAVAILABLE);
  CHECK_TEXT_HAS(err_text(), "'layernorm' cannot run on the cuda device");
  CHECK_OK(dev_sync(d));
  dev_close(d);
}

static void the_cuda_side_of_a_stream_is_known(void)
{
  struct dev_config config = {.kind = DEV_CUDA, .threads = 1, .tf32 = true};
  struct dev *d = NULL, *cpu = open_kind(DEV_CPU);
  CHECK_OK(dev_open(&config, &d));
  const struct dev_cuda *compute = dev_cuda_of(stream(d, "compute", DEV_COMPUTE)), *comm = dev_cuda_of(stream(d, "comm", DEV_TRANSFER));
  CHECK(compute->tf32 && compute->stream != NULL && compute->stream != comm->stream);
  CHECK(compute->workspace != NULL && compute->workspace_bytes > 0 && comm->workspace == NULL && comm->workspace_bytes == 0);
  CHECK(compute->capability >= 80 && compute->multiprocessors > 0 && compute->device == 0 && compute->products->at == NULL);
  CHECK(dev_cuda_of(stream(cpu, "compute", DEV_COMPUTE)) == NULL);
  const char *uuid = dev_uuid(d), *form = "GPU-xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx";
  bool formed = strlen(uuid) == strlen(form) && strncmp(uuid, "GPU-", 4) == 0;
  for (size_t i = 4; formed && form[i]; i++) formed = form[i] == '-' ? uuid[i] == '-' : strchr("0123456789abcdef", uuid[i]) != NULL;
  CHECK(formed);
  dev_close(cpu);
  dev_close(d);
  config.index = dev_count(DEV_CUDA);
  CHECK_ERR(dev_open(&config, &d), ERR_UNAVAILABLE);
  CHECK_TEXT_HAS(err_text(), "this machine shows ");
  config.index = -1;
  CHECK_ERR(dev_open(&config, &d), ERR_UNAVAILABLE);
}

#ifdef SHARDMARK_CUDA_HOST
static enum err use_everything(struct dev *d)
{
  struct dev_stream *s = stream(d, "compute", DEV_COMPUTE), *t = stream(d, "comm", DEV_TRANSFER);
  const struct dev_interval *rows;
  int64_t n, lost;
  void *pinned;
  TRY(dev_trace(d, 100));
  TRY(dev_host_alloc(d, 100, "pinned", &pinned));
  int *at = ints(d, s, &(int){0}, 1);
  TRY(submit_add(s, at, at, 1, 0));
  TRY(submit_sleep(t, 0));
  TRY(dev_sync(d));
  return dev_trace_take(d, &rows, &n, &lost);
}

static void closing_gives_everything_back(void)
{
  struct cuda_host_alive before, within, after;
  cuda_host_count(&before);
  struct dev *d = open_cuda();
  CHECK_OK(use_everything(d));
  cuda_host_count(&within);
  dev_close(d);
  cuda_host_count(&after);
  CHECK(within.streams > before.streams && within.blocks > before.blocks && within.pinned > before.pinned);
  CHECK(after.streams == before.streams && after.blocks == before.blocks && after.pinned == before.pinned);
}
#endif

/* A rank's card need not be the first: streams, events, memory and hosted work are all of it. */
static void a_second_card_does_it_all(void)
{
  if (dev_count(DEV_CUDA) < 2) return;
  struct dev *first = open_cuda(), *d = NULL;
  const struct dev_config config = {.kind = DEV_CUDA, .index = 1, .threads = 1};
  CHECK_OK(dev_open(&config, &d));
  CHECK(strcmp(dev_uuid(d), dev_uuid(first)) != 0);
  dev_close(first);
  struct dev_stream *s = stream(d, "compute", DEV_COMPUTE), *t = stream(d, "comm", DEV_TRANSFER);
  struct dev_event *e = event(d);
  const struct dev_interval *rows;
  int64_t n, lost;
  int got = 0;
  CHECK(dev_cuda_of(s)->device == 1);
  CHECK_OK(dev_trace(d, 100));
  int *at = ints(d, s, &(int){4}, 1);
  CHECK_OK(submit_add(s, at, at, 1, 0));
  CHECK_OK(dev_record(e, s));
  CHECK_OK(dev_wait(t, e));
  CHECK_OK(submit_sleep(t, 0));
  CHECK_OK(dev_copy_out(t, &got, at, sizeof got));
  CHECK_OK(dev_sync(d));
  CHECK(got == 5);
  CHECK_OK(dev_trace_take(d, &rows, &n, &lost));
  CHECK(n == 4);
  dev_event_destroy(e);
  dev_close(d);
}

/* --- errors ---------------------------------------------------------------------------- */

static void a_kernel_reports_what_is_wrong_with_the_data(void)
{
  struct dev *d = open_cuda();
  struct dev_stream *s = stream(d, "compute", DEV_COMPUTE), *other = stream(d, "other", DEV_TRANSFER);
  struct dev_event *before = event(d), *after = event(d);
  const int good[3] = {1, 2, 3}, bad[3] = {1, -5, 3}, worse[3] = {1, 2, -6};
  const int *at_good = ints(d, s, good, 3), *at_bad = ints(d, s, bad, 3), *at_worse = ints(d, s, worse, 3);
  CHECK_OK(submit_judge(s, at_good, 3));
  CHECK_OK(dev_record(before, s));
  CHECK_OK(submit_judge(s, at_bad, 3));
  CHECK_OK(submit_judge(s, at_worse, 3));
  CHECK_OK(dev_record(after, s));
  CHECK_OK(dev_sync_event(before));
  CHECK_OK(dev_wait(other, after));
  CHECK_ERR(dev_sync_event(after), ERR_NUMERIC);
  CHECK_TEXT_HAS(err_text(), "'judge' on stream compute: token -5 at 1 of 3 is none (7)"); /* the first */
  CHECK_ERR(submit_judge(s, at_good, 3), ERR_NUMERIC);
  CHECK_ERR(dev_sync_stream(other), ERR_NUMERIC);
  CHECK_TEXT_HAS(err_text(), "token -5");
  dev_event_destroy(before);
  dev_event_destroy(after);
  dev_close(d);
}

/* A place in the queue is used again: an old report must not be found there. */
static void a_report_is_of_its_own_piece(void)
{
  struct dev *d = open_cuda();
  struct dev_stream *s = stream(d, "bad", DEV_TRANSFER);
  const int bad[1] = {-1}, good[1] = {1};
  const int *at_bad = ints(d, s, bad, 1);
  CHECK_OK(submit_judge(s, at_bad, 1));
  dev_stream_close(s);
  CHECK_ERR(dev_sync(d), ERR_NUMERIC);
  s = stream(d, "good", DEV_TRANSFER);
  const int *at_good = ints(d, s, good, 1);
  for (int i = 0; i < DEV_QUEUE_SLOTS + 10; i++) CHECK_OK(submit_judge(s, at_good, 1));
  CHECK_OK(dev_sync(d));
  dev_close(d);
}

static void what_follows_an_error_does_not_reach_the_host(void)
{
  struct dev *d = open_cuda();
  struct dev_stream *s = stream(d, "compute", DEV_COMPUTE);
  const int bad[1] = {-1};
  int got = 5, ran = 0, *ran_at = &ran;
  int *at = ints(d, s, bad, 1);
  const struct dev_kernel hosted = {.name = "double", .start = double_it, .test = nothing_test};
  CHECK_OK(submit_judge(s, at, 1));
  CHECK_OK(dev_copy_out(s, &got, at, sizeof got));
  ran = 3;
  CHECK_OK(dev_submit(s, &hosted, &ran_at, sizeof ran_at, NULL, 0));
  CHECK_ERR(dev_sync(d), ERR_NUMERIC);
  CHECK(got == 5 && ran == 3);
  dev_close(d);
}

static void a_launch_that_cannot_be_is_named(void)
{
  struct dev *d = open_cuda();
  struct dev_stream *s = stream(d, "compute", DEV_COMPUTE);
  const struct dev_kernel oversized = {.name = "gelu", .cuda = oversized_cuda}, empty = {.name = "none", .cuda = empty_cuda};
  CHECK_OK(dev_submit(s, &empty, NULL, 0, NULL, 0)); /* no rows: nothing to do */
  CHECK_OK(dev_sync(d));
  CHECK_OK(dev_submit(s, &oversized, NULL, 0, NULL, 0));
  CHECK_ERR(dev_sync(d), ERR_DEVICE);
  CHECK_TEXT_HAS(err_text(), "'gelu' on stream compute: append_kernel: ");
  CHECK_TEXT_HAS(err_text(), "dev_cuda_test.cu:");
  CHECK_TEXT_HAS(err_text(), "device 0");
  struct dev_stream *t = stream(d, "next", DEV_COMPUTE); /* was of that launch alone */
  int *at = ints(d, t, &(int){0}, 1);
  CHECK_OK(submit_add(t, at, at, 1, 0));
  CHECK_OK(dev_sync_stream(t));
  dev_close(d);
}

static void errors_of_the_runtime_have_their_kinds(void)
{
  CHECK_OK(dev_cuda_check(cudaSuccess, "cudaFree", "a/b.c", 7));
  CHECK_ERR(dev_cuda_check(cudaErrorInvalidValue, "cudaFree", "a/b.c", 7), ERR_DEVICE);
  CHECK_TEXT_HAS(err_text(), "cudaFree: ");
  CHECK_TEXT_HAS(err_text(), cudaGetErrorString(cudaErrorInvalidValue));
  CHECK_TEXT_HAS(err_text(), "(b.c:7, device 0)");
  CHECK(strstr(err_text(), "CUDA_LAUNCH_BLOCKING") == NULL);
  CHECK_ERR(dev_cuda_check(cudaErrorMemoryAllocation, "cudaMalloc", "b.c", 7), ERR_MEMORY);
  CHECK_ERR(dev_cuda_check(cudaErrorIllegalAddress, "waiting", "b.c", 7), ERR_DEVICE);
  CHECK_TEXT_HAS(err_text(), "this or earlier work: CUDA_LAUNCH_BLOCKING=1 tells");
  CHECK_ERR(dev_cuda_check(cudaErrorECCUncorrectable, "waiting", "b.c", 7), ERR_INVALID);
  CHECK(strstr(err_text(), "CUDA_LAUNCH_BLOCKING") == NULL); /* the card's fault, not a kernel's */
}

/* In a process of its own, before this one has started CUDA: a kernel, and the host, where no block is. */
static bool ends_well(bool (*program)(void))
{
  int status = -1;
  fflush(NULL);
  const pid_t child = fork();
  if (child == 0) {
    if (freopen("/dev/null", "w", stderr) == NULL) _exit(0);
    _exit(program() ? 0 : 2);
  }
  CHECK(child > 0 && waitpid(child, &status, 0) == child);
  return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

static bool within = true; /* set before the fork */
static bool kernel_program(void)
{
  struct dev *d = open_cuda();
  struct dev_stream *s = stream(d, "compute", DEV_COMPUTE);
  int *a = ints(d, s, (const int[]){1, 2, 3, 4}, 4), *b = ints(d, s, (const int[]){5, 6, 7, 8}, 4);
  return submit_add(s, &a[within ? 3 : 4], &b[3], 1, 0) == ERR_OK && dev_sync(d) == ERR_OK;
}
static bool freed_program(void)
{
  struct dev *d = open_cuda();
  struct dev_stream *s = stream(d, "compute", DEV_COMPUTE);
  int *a = ints(d, s, (const int[]){1, 2, 3, 4}, 4), *b = ints(d, s, (const int[]){5, 6, 7, 8}, 4);
  if (!within) dev_free(d, a);
  return submit_add(s, a, b, 1, 0) == ERR_OK && dev_sync(d) == ERR_OK;
}
static bool host_program(void)
{
  struct dev *d = open_cuda();
  int *a = ints(d, stream(d, "compute", DEV_COMPUTE), (const int[]){1, 2, 3, 4}, 4);
  return dev_sync(d) == ERR_OK && (within || *(volatile int *)a == 1);
}

static void who_reads_or_writes_elsewhere_is_stopped(void)
{
#ifdef __SANITIZE_ADDRESS__
  const bool watched = true;
#else
  const bool watched = false; /* the arena's blocks are known to AddressSanitizer alone */
#endif
  bool (*const programs[])(void) = {kernel_program, freed_program, host_program};
  for (int i = 0; i < 3; i++) {
    within = true;
    CHECK(ends_well(programs[i]));
    within = false;
    if (watched || programs[i] == host_program) CHECK(!ends_well(programs[i]));
  }
}

/* --- the host waits ------------------------------------------------------------------------ */

struct watched {
  int calls, fails_at;
};
static enum err watch(void *arg)
{
  struct watched *w = arg;
  w->calls++;
  if (w->calls == w->fails_at) FAIL(ERR_COMM, "peer %d is gone", 3);
  if (w->calls == 20) atomic_store(&gate_open, true);
  return ERR_OK;
}
static enum err gate_test(void *args, bool *done)
{
  (void)args;
  *done = atomic_load(&gate_open);
  return ERR_OK;
}
static const struct dev_kernel held = {.name = "held", .start = nothing_run, .test = gate_test};

static void watchers_are_called_while_the_host_waits(void)
{
  struct dev *d = open_cuda();
  struct dev_stream *s = stream(d, "compute", DEV_COMPUTE);
  struct watched one = {0}, two = {0};
  atomic_store(&gate_open, false);
  CHECK_OK(dev_watch(d, watch, &one));
  CHECK_OK(dev_watch(d, watch, &two));
  dev_unwatch(d, watch, &two);
  CHECK_OK(dev_submit(s, &held, NULL, 0, NULL, 0));
  CHECK_OK(dev_sync(d)); /* the watcher opens the gate */
  CHECK(one.calls >= 20 && two.calls == 0);
  CHECK_ERR(dev_watch(d, NULL, &one), ERR_ARG);
  for (int i = 1; i < DEV_WATCHERS; i++) CHECK_OK(dev_watch(d, watch, &two));
  CHECK_ERR(dev_watch(d, watch, &two), ERR_ARG);
  dev_close(d);
}

static void a_watcher_ends_a_wait_without_end(void)
{
  struct dev *d = open_cuda();
  struct dev_stream *s = stream(d, "compute", DEV_COMPUTE), *other = stream(d, "other", DEV_TRANSFER), *late;
  struct dev_event *e = event(d);
  struct watched one = {.fails_at = 5};
  atomic_store(&gate_open, false);
  CHECK_OK(dev_submit(s, &held, NULL, 0, NULL, 0));
  CHECK_OK(dev_record(e, s));
  CHECK_OK(dev_watch(d, watch, &one));
  CHECK_ERR(dev_sync_event(e), ERR_COMM);
  CHECK_TEXT_HAS(err_text(), "peer 3 is gone");
  CHECK_ERR(dev_sync_stream(s), ERR_COMM);
  CHECK_ERR(submit_log(other, NULL, 0), ERR_COMM);
  CHECK_ERR(dev_stream_open(d, "late", DEV_TRANSFER, &late), ERR_DEVICE);
  CHECK(one.calls == 5);
  dev_event_destroy(e);
  dev_close(d); /* and this ends */
}

/* The host may close a stream on its way out with an error in hand. */
static void an_error_in_hand_outlives_a_wait(void)
{
  struct dev *d = open_cuda();
  struct dev_stream *s = stream(d, "compute", DEV_COMPUTE);
  struct watched one = {.fails_at = 5};
  atomic_store(&gate_open, false);
  CHECK_OK(dev_submit(s, &held, NULL, 0, NULL, 0));
  CHECK_OK(dev_watch(d, watch, &one));
  CHECK(err_set(ERR_IO, __FILE__, __LINE__, "the reason") == ERR_IO);
  dev_stream_close(s);
  CHECK(strcmp(err_text(), "the reason") == 0);
  CHECK_ERR(dev_sync(d), ERR_COMM); /* told later */
  dev_close(d);
}

/* --- memory ------------------------------------------------------------------------------------ */

static void *block(struct dev *d, size_t bytes)
{
  void *at = NULL;
  CHECK_OK(dev_alloc(d, bytes, DEV_OTHER, "block", &at));
  return at;
}

static void freed_memory_serves_again(void)
{
  enum { BYTES = 100000 };
  struct dev *d = open_cuda();
  void *a = block(d, BYTES), *b = block(d, BYTES), *c = block(d, BYTES);
  const size_t segments = d->cuda->arena.segments;
  CHECK(a != b && b != c && a != c);
  dev_free(d, b);
  void *again = block(d, BYTES);
  CHECK(again == b);
  dev_free(d, a); /* behind one another: they become one, from either side */
  dev_free(d, b);
  void *both = block(d, 2 * BYTES);
  CHECK(both == a);
  dev_free(d, both);
  a = block(d, BYTES);
  b = block(d, BYTES);
  dev_free(d, b);
  dev_free(d, a);
  CHECK(block(d, 2 * BYTES) == both);
  CHECK(d->cuda->arena.segments == segments);
  dev_close(d);
}

/* By the driver's count: the most that was asked for, and what stands free or is the matrix library's. */
static void the_driver_counts_what_is_held(void)
{
  enum { BYTES = 8 << 20 };
  struct dev *d = open_cuda();
  struct dev_driver_usage before, during, after;
  void *at = NULL, *small = NULL;
  CHECK(dev_driver_usage(d, &before));
  CHECK(before.bytes == 0);
  CHECK_OK(dev_alloc(d, BYTES, DEV_OTHER, "large", &at));
  CHECK_OK(dev_alloc(d, 1000, DEV_OTHER, "small", &small));
  CHECK(dev_driver_usage(d, &during));
  CHECK(during.bytes >= BYTES + 1000);
  CHECK(during.bytes - during.spare_bytes == BYTES + 1000);
  dev_free(d, at);
  CHECK(dev_driver_usage(d, &after));
  CHECK(after.bytes == during.bytes); /* the mark stays */
  CHECK(after.spare_bytes == during.spare_bytes);
  dev_free(d, small);
  dev_close(d);
  d = open_kind(DEV_CPU);
  CHECK(!dev_driver_usage(d, &before));
  dev_close(d);
}

static void the_smallest_hole_that_fits_is_taken(void)
{
  struct dev *d = open_cuda();
  void *large = block(d, 200000), *wall = block(d, 100), *small = block(d, 50000), *end = block(d, 100);
  CHECK(wall != NULL && end != NULL);
  dev_free(d, large);
  dev_free(d, small);
  CHECK(block(d, 40000) == small);
  dev_close(d);
}

static void blocks_do_not_overlap(void)
{
  enum { N = 60 };
  struct dev *d = open_cuda();
  struct {
    char *at;
    size_t bytes;
  } held_blocks[N] = {0};
  uint32_t state = 7;
  for (int i = 0; i < 600; i++) {
    state = state * 1664525u + 1013904223u;
    const int k = (int)(state >> 8) % N;
    dev_free(d, held_blocks[k].at);
    held_blocks[k].bytes = (state >> 10) % 70000;
    held_blocks[k].at = block(d, held_blocks[k].bytes);
  }
  int overlaps = 0;
  for (int i = 0; i < N; i++)
    for (int j = 0; j < N; j++)
      if (i != j && held_blocks[i].at != NULL && held_blocks[j].at != NULL && held_blocks[i].at <= held_blocks[j].at)
        overlaps += held_blocks[i].at + held_blocks[i].bytes > held_blocks[j].at || held_blocks[i].at == held_blocks[j].at;
  CHECK(overlaps == 0);
  dev_close(d);
}

static void a_full_card_gives_back_what_is_free_first(void)
{
  enum { MIB = 1 << 20 };
  struct dev *d = open_cuda();
  void *at = NULL;
  dev_free(d, block(d, 40 * MIB));
  void *large = block(d, 50 * MIB); /* 64 MiB would not hold both */
  CHECK_ERR(dev_alloc(d, 30 * MIB, DEV_OPTIMIZER, "moments", &at), ERR_MEMORY);
  CHECK_TEXT_HAS(err_text(), "optimizer 'moments': no memory for 31457280 bytes beside the 52428800 held (device cuda 0, ");
  CHECK_TEXT_HAS(err_text(), "67108864 bytes, ");
  CHECK_TEXT_HAS(err_text(), "the largest: block 52428800 bytes");
  CHECK(at == NULL);
  dev_free(d, large);
  CHECK(block(d, 30 * MIB) != NULL);
  dev_close(d);
}

/* --- time ------------------------------------------------------------------------------------------ */

static void intervals_of_kernels_are_on_the_hosts_clock(void)
{
  struct dev *d = open_cuda();
  struct dev_stream *a = stream(d, "a", DEV_COMPUTE), *b = stream(d, "b", DEV_TRANSFER);
  struct dev_event *e = event(d);
  const struct dev_interval *rows;
  int64_t n, lost;
  int *at = ints(d, a, &(int){0}, 1);
  CHECK_OK(dev_sync(d));
  CHECK_OK(dev_trace(d, 10));
  for (int round = 0; round < 2; round++) { /* the second is measured from a mark of its own */
    const double before_ms = clock_ms();
    CHECK_OK(submit_add(a, at, at, 1, 20000));
    CHECK_OK(dev_record(e, a));
    CHECK_OK(submit_add(b, at, at, 1, 10));
    CHECK_OK(dev_wait(b, e));
    CHECK_OK(submit_add(b, at, at, 1, 10));
    CHECK_OK(dev_sync(d));
    const double after_ms = clock_ms(), slack_ms = 1;
    CHECK_OK(dev_trace_take(d, &rows, &n, &lost));
    if (!CHECK(n == 3 && lost == 0)) continue;
    const struct dev_interval *last = &rows[2];
    for (int i = 0; i < 3; i++) {
      CHECK(strcmp(rows[i].kernel, "add") == 0 && rows[i].start_ms <= rows[i].end_ms && rows[i].ready_ms <= rows[i].start_ms);
      CHECK(rows[i].start_ms >= before_ms - slack_ms && rows[i].end_ms <= after_ms + slack_ms);
    }
    CHECK(strcmp(last->stream, "b") == 0);
    const struct dev_interval *first = strcmp(rows[0].stream, "b") == 0 ? &rows[0] : &rows[1];
    CHECK(strcmp(first->stream, "b") == 0 && last->start_ms >= first->end_ms);
    CHECK(last->waited_for == NULL || strcmp(last->waited_for, "a") == 0);
  }
  dev_event_destroy(e);
  dev_close(d);
}

/* Nor is the time before it was given, nor that of the piece before it. */
static void a_piece_is_not_charged_with_what_was_before_it(void)
{
  struct dev *d = open_cuda();
  struct dev_stream *s = stream(d, "a", DEV_COMPUTE);
  const struct dev_interval *rows;
  int64_t n, lost;
  int *at = ints(d, s, &(int){0}, 1);
  CHECK_OK(dev_sync(d));
  CHECK_OK(dev_trace(d, 10));
  CHECK_OK(submit_add(s, at, at, 1, 10));
  CHECK_OK(dev_sync(d));
  clock_sleep_ms(3);
  const double given_ms = clock_ms();
  CHECK_OK(submit_add(s, at, at, 1, 30000));
  CHECK_OK(submit_add(s, at, at, 1, 10));
  CHECK_OK(dev_sync(d));
  CHECK_OK(dev_trace_take(d, &rows, &n, &lost));
  if (CHECK(n == 3)) {
    CHECK(rows[0].end_ms <= given_ms && rows[1].start_ms >= given_ms - 0.05);
    CHECK(rows[2].start_ms >= rows[1].end_ms && rows[1].end_ms > rows[1].start_ms);
    CHECK(rows[1].waited_ms == 0 && rows[2].waited_ms == 0);
  }
  dev_close(d);
}

int main(void)
{
  setenv("CUDA_HOST_MEMORY_MIB", "64", 1); /* of each of the host build's cards */
  setenv("CUDA_HOST_DEVICES", "2", 1);
  static const struct test tests[] = {
      TEST(who_reads_or_writes_elsewhere_is_stopped), /* first: it forks */
      TEST(kernels_of_a_stream_keep_their_order),
      TEST(hosted_work_stands_between_kernels),
      TEST(events_order_kernels_and_hosted_work),
      TEST(pageable_memory_is_read_at_once),
      TEST(many_small_copies_keep_their_values),
      TEST(large_copies_keep_their_values_round_the_ring),
#ifdef SHARDMARK_CUDA_HOST
      TEST(closing_gives_everything_back),
#endif
      TEST(work_without_a_cuda_form_is_refused),
      TEST(the_cuda_side_of_a_stream_is_known),
      TEST(a_second_card_does_it_all),
      TEST(a_kernel_reports_what_is_wrong_with_the_data),
      TEST(a_report_is_of_its_own_piece),
      TEST(what_follows_an_error_does_not_reach_the_host),
      TEST(a_launch_that_cannot_be_is_named),
      TEST(errors_of_the_runtime_have_their_kinds),
      TEST(watchers_are_called_while_the_host_waits),
      TEST(a_watcher_ends_a_wait_without_end),
      TEST(an_error_in_hand_outlives_a_wait),
      TEST(freed_memory_serves_again),
      TEST(the_driver_counts_what_is_held),
      TEST(the_smallest_hole_that_fits_is_taken),
      TEST(blocks_do_not_overlap),
      TEST(a_full_card_gives_back_what_is_free_first),
      TEST(intervals_of_kernels_are_on_the_hosts_clock),
      TEST(a_piece_is_not_charged_with_what_was_before_it),
  };
  return test_main("dev_cuda", tests, sizeof tests / sizeof *tests);
}
