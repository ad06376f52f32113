/* dev_race_test.c - in the ThreadSanitizer build, a missing wait between streams of the
 * cpu device is seen by it, through the declared ranges alone: nothing here touches the
 * memory.  In other builds the same programs must simply end well. */
#include "device/dev_testing.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#ifdef SHARDMARK_TSAN
static const bool watched = true;
#else
static const bool watched = false;
#endif

static enum err program(bool wait, bool late)
{
  const struct dev_config config = {.kind = DEV_CPU, .threads = 1};
  struct dev *d;
  struct dev_stream *compute, *comm;
  struct dev_event *e;
  void *at;
  TRY(dev_open(&config, &d));
  TRY(dev_stream_open(d, "compute", DEV_COMPUTE, &compute));
  TRY(dev_stream_open(d, "comm", DEV_TRANSFER, &comm));
  TRY(dev_event_create(d, &e));
  TRY(dev_alloc(d, 4096, DEV_GRADIENTS, "bucket", &at));
  const struct dev_kernel write = nothing("write");
  const struct dev_kernel send = {.name = "send", .start = nothing_run, .test = nothing_test}, read = nothing("read");
  const struct dev_range writes = {at, 64, 128, 8, true}, reads = {(char *)at + 32, 8, 128, 8, false};
  for (int i = 0; i < 20; i++) {
    TRY(dev_submit(compute, &write, NULL, 0, &writes, 1));
    if (wait) {
      TRY(dev_record(e, compute));
      TRY(dev_wait(comm, e));
    }
    TRY(dev_submit(comm, late ? &send : &read, NULL, 0, &reads, 1));
    if (wait) {
      TRY(dev_record(e, comm));
      TRY(dev_wait(compute, e));
    }
  }
  TRY(dev_sync(d));
  dev_event_destroy(e);
  dev_close(d);
  return ERR_OK;
}

/* In a process of its own, whose report is thrown away. */
static bool ends_well(bool wait, bool late)
{
  int status = -1;
  const pid_t child = fork();
  if (child == 0) {
    if (freopen("/dev/null", "w", stderr) == NULL) _exit(3);
    exit(program(wait, late) == ERR_OK ? 0 : 2);
  }
  CHECK(child > 0 && waitpid(child, &status, 0) == child && WIFEXITED(status));
  CHECK(WEXITSTATUS(status) != 2 && WEXITSTATUS(status) != 3);
  return WEXITSTATUS(status) == 0;
}

static void events_are_an_order(void)
{
  CHECK(ends_well(true, false));
  CHECK(ends_well(true, true));
}

static void a_missing_wait_is_a_race(void)
{
  CHECK(ends_well(false, false) == !watched);
  CHECK(ends_well(false, true) == !watched);
}

int main(void)
{
  static const struct test tests[] = {TEST(events_are_an_order), TEST(a_missing_wait_is_a_race)};
  return test_main("dev_race", tests, sizeof tests / sizeof *tests);
}
