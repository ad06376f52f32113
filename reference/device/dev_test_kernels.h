/* dev_test_kernels.h - work for the tests of this room. */
#ifndef DEVICE_DEV_TEST_KERNELS_H
#define DEVICE_DEV_TEST_KERNELS_H

#include "base/clock.h"
#include "device/dev.h"
#include "testing/check.h"

#include <stdatomic.h>
#include <string.h>

enum { LOG_ROOM = 8192 };
struct log { /* what ran, in its order */
  _Atomic int n;
  int value[LOG_ROOM];
};
struct log_args {
  struct log *log;
  int value;
};
static inline enum err log_run(void *args)
{
  const struct log_args *a = args;
  a->log->value[atomic_fetch_add(&a->log->n, 1)] = a->value;
  return ERR_OK;
}
static const struct dev_kernel log_kernel = {.name = "log", .run = log_run};
static inline enum err submit_log(struct dev_stream *s, struct log *log, int value)
{
  const struct log_args args = {log, value};
  return dev_submit(s, &log_kernel, &args, sizeof args, NULL, 0);
}

static inline enum err sleep_run(void *args)
{
  clock_sleep_ms(*(double *)args);
  return ERR_OK;
}
static const struct dev_kernel sleep_kernel = {.name = "sleep", .run = sleep_run};
static inline enum err submit_sleep(struct dev_stream *s, double ms)
{
  return dev_submit(s, &sleep_kernel, &ms, sizeof ms, NULL, 0);
}

/* Looks like MPI: begun, then done at the polls-th look, when it writes `value`.  The
 * arguments are the stream's own copy, so it counts in them. */
struct late_args {
  int *to;
  int value, polls, looked;
};
static inline enum err late_start(void *args)
{
  ((struct late_args *)args)->looked = 0;
  return ERR_OK;
}
static inline enum err late_test(void *args, bool *done)
{
  struct late_args *a = args;
  *done = ++a->looked == a->polls;
  if (*done) *a->to = a->value;
  return ERR_OK;
}

static inline enum err nothing_run(void *args)
{
  (void)args;
  return ERR_OK;
}
static inline struct dev_kernel nothing(const char *name)
{
  return (struct dev_kernel){.name = name, .run = nothing_run};
}
static inline enum err nothing_test(void *args, bool *done)
{
  (void)args;
  *done = true;
  return ERR_OK;
}

#endif
