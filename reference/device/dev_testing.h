/* dev_testing.h - devices, streams and work for the tests of this room. */
#ifndef DEVICE_DEV_TESTING_H
#define DEVICE_DEV_TESTING_H

#include "base/clock.h"
#include "device/dev.h"
#include "testing/check.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

/* The kinds under test: cpu and lazy, or the one that the environment names; the body runs
 * once with each. */
static inline bool on_cuda(void)
{
  const char *name = getenv("SHARDMARK_TEST_DEVICE");
  return name != NULL && strcmp(name, "cuda") == 0;
}
static inline size_t kind_count(void) { return on_cuda() ? 1 : 2; }
static inline enum dev_kind kind_at(size_t k) { return on_cuda() ? DEV_CUDA : k == 0 ? DEV_CPU : DEV_LAZY; }
#define EACH_KIND(d)                                 \
  for (size_t k_ = 0; k_ < kind_count(); k_++)       \
    for (struct dev *d = open_kind(kind_at(k_)); d != NULL; dev_close(d), d = NULL)

static inline struct dev *open_kind(enum dev_kind kind)
{
  const struct dev_config config = {.kind = kind, .threads = 2, .lazy_seed = 3};
  struct dev *d = NULL;
  CHECK_OK(dev_open(&config, &d));
  return d;
}

static inline struct dev_stream *stream(struct dev *d, const char *name, enum dev_role role)
{
  struct dev_stream *s = NULL;
  CHECK_OK(dev_stream_open(d, name, role, &s));
  return s;
}

static inline struct dev_event *event(struct dev *d)
{
  struct dev_event *e = NULL;
  CHECK_OK(dev_event_create(d, &e));
  return e;
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

/* dev_submit, and on a cuda device a kernel of the host alone becomes hosted work. */
static inline enum err submit(struct dev_stream *s, const struct dev_kernel *kernel, const void *args, size_t args_bytes,
                              const struct dev_range *ranges, int n)
{
  struct dev_kernel k = *kernel;
  if (dev_kind_of(dev_of(s)) == DEV_CUDA && k.run != NULL && k.cuda == NULL && k.start == NULL && k.test == NULL) {
    k.start = k.run;
    k.test = nothing_test;
    k.run = NULL;
  }
  return dev_submit(s, &k, args, args_bytes, ranges, n);
}

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
  return submit(s, &log_kernel, &args, sizeof args, NULL, 0);
}

static inline enum err sleep_run(void *args)
{
  clock_sleep_ms(*(double *)args);
  return ERR_OK;
}
static const struct dev_kernel sleep_kernel = {.name = "sleep", .run = sleep_run};
static inline enum err submit_sleep(struct dev_stream *s, double ms)
{
  return submit(s, &sleep_kernel, &ms, sizeof ms, NULL, 0);
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

/* A piece that ends when the host says so. */
static _Atomic bool gate_open;
static inline enum err gate_run(void *args)
{
  (void)args;
  while (!atomic_load(&gate_open)) clock_sleep_ms(0.05);
  return ERR_OK;
}
static const struct dev_kernel gate_kernel = {.name = "gate", .run = gate_run};

static inline enum err fail_run(void *args) { FAIL(ERR_NUMERIC, "token %d is none", *(int *)args); }
static const struct dev_kernel fail_kernel = {.name = "embed", .run = fail_run};
static inline enum err submit_fail(struct dev_stream *s, int token)
{
  return submit(s, &fail_kernel, &token, sizeof token, NULL, 0);
}

#endif
