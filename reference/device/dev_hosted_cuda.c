/* dev_hosted_cuda.c - work of a cuda stream that a thread of the host does when the stream
 * gets there.  The thread gives CUDA no work: it looks at pinned words and stores them.
 */
#include "base/clock.h"
#include "device/dev_cuda_state.h"

#include <omp.h>
#include <sched.h>

enum { NAP_FIRST_US = 20, NAP_LAST_US = 200, YIELDS = 16, STOP = 0 };

struct naps {
  int yields;
  long us;
};
static void nap(struct naps *n)
{
  if (n->yields < YIELDS) {
    sched_yield();
    n->yields++;
    return;
  }
  n->us = n->us == 0 ? NAP_FIRST_US : n->us * 2 < NAP_LAST_US ? n->us * 2 : NAP_LAST_US;
  clock_sleep_ms((double)n->us * 1e-3);
}

static enum err start_and_poll(struct dev_stream *s, struct dev_work *w)
{
  struct naps naps = {0};
  bool done = false;
  err_clear();
  TRY(w->kernel.start(w->args));
  for (;;) {
    TRY(w->kernel.test(w->args, &done));
    if (done) return ERR_OK;
    if (atomic_load(&s->dev->cuda->lost)) FAIL(ERR_DEVICE, "given up: the device is lost");
    nap(&naps);
  }
}

static void do_piece(struct dev_stream *s, int64_t number)
{
  struct dev_work *w = dev_stream_piece(s, number);
  struct dev_cuda_device *c = s->dev->cuda;

  dev_cuda_lock(c);
  if (!atomic_load(&s->dev->cuda->lost)) dev_cuda_walk(s, number - 1);
  const bool dropped = dev_stream_failed(s, number);
  dev_cuda_unlock(c);

  const double ready_ms = dev_trace_now(s->dev);
  const enum err e = dropped ? ERR_OK : start_and_poll(s, w);

  dev_cuda_lock(c);
  if (!atomic_load(&s->dev->cuda->lost)) {
    s->cuda->passed_ms = dev_trace_now(s->dev);
    if (!dropped) dev_trace_done(s, w, ready_ms, ready_ms, s->cuda->passed_ms);
    if (e) dev_stream_stop(s, number, w->kernel.name, e);
    dev_gate_advance(&s->completed, s->next++);
  }
  dev_cuda_unlock(c);
}

static void *work(void *at)
{
  struct dev_stream *s = at;
  struct dev_cuda_stream *c = s->cuda;
  omp_set_num_threads(s->role == DEV_COMPUTE ? s->dev->config.threads : 1);
  (void)cudaSetDevice(c->at.device); /* the walk reads clocks of events, which must not start another card */
  for (int64_t i = 1;; i++) {
    dev_gate_await(&c->given, i);
    const int64_t number = c->hosted[i % DEV_QUEUE_SLOTS];
    if (number == STOP) return NULL;
    struct naps naps = {0};
    while ((int32_t)(atomic_load_explicit(&c->shared->reached, memory_order_acquire) - (uint32_t)i) < 0) {
      if (atomic_load(&s->dev->cuda->lost)) break;
      nap(&naps);
    }
    do_piece(s, number);
    atomic_store_explicit(&c->shared->released, (uint32_t)i, memory_order_release);
  }
}

/* --- the host's side -------------------------------------------------------------------- */

static enum err look_up(const char *name, void **out)
{
  enum cudaDriverEntryPointQueryResult found;
  *out = NULL;
  CUDA_TRY(cudaGetDriverEntryPointByVersion(name, out, 12000, cudaEnableDefault, &found));
  if (found != cudaDriverEntryPointSuccess || *out == NULL) FAIL(ERR_UNAVAILABLE, "the driver has no %s", name);
  return ERR_OK;
}

static enum err driver_call(CUresult code, const char *name)
{
  if (code != CUDA_SUCCESS) FAIL(ERR_DEVICE, "%s: error %d of the driver", name, (int)code);
  return ERR_OK;
}

static void give(struct dev_cuda_stream *c, int64_t number)
{
  c->hosted[++c->hosted_n % DEV_QUEUE_SLOTS] = number;
  dev_gate_advance(&c->given, c->hosted_n);
}

enum err dev_hosted_give(struct dev_stream *s, int64_t number)
{
  struct dev_cuda_device *d = s->dev->cuda;
  struct dev_cuda_stream *c = s->cuda;
  if (d->wait_value == NULL) {
    TRY(look_up("cuStreamWriteValue32", (void **)&d->write_value));
    TRY(look_up("cuStreamWaitValue32", (void **)&d->wait_value));
  }
  if (!c->hosts) TRY(dev_stream_thread(s, work));
  c->hosts = true;
  const uint32_t i = (uint32_t)(c->hosted_n + 1);
  TRY(driver_call(d->write_value(c->at.stream, (CUdeviceptr)(uintptr_t)&c->shared->reached, i, CU_STREAM_WRITE_VALUE_DEFAULT),
                  "cuStreamWriteValue32"));
  TRY(driver_call(d->wait_value(c->at.stream, (CUdeviceptr)(uintptr_t)&c->shared->released, i, CU_STREAM_WAIT_VALUE_GEQ),
                  "cuStreamWaitValue32"));
  give(c, number);
  return ERR_OK;
}

void dev_hosted_stop(struct dev_stream *s)
{
  if (!s->cuda->hosts) return;
  give(s->cuda, STOP);
  pthread_join(s->thread, NULL);
}
