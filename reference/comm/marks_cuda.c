/* marks_cuda.c - a ring of events, oldest first. */
#include "comm/marks_cuda.h"

#include "comm/comm_state.h"
#include "device/dev_cuda.h"

#include <stdlib.h>

enum { MARKS = 512 };

struct mark {
  struct link_mark of;
  cudaEvent_t started, done; /* NULL: not used before */
  bool told;                 /* that it started       */
};

struct marks {
  struct mark ring[MARKS];
  int oldest, n;
  bool open; /* the newest waits for its end; false at an end: the call was passed over */
};

enum err marks_cuda_create(struct marks **out)
{
  *out = calloc(1, sizeof **out);
  if (*out == NULL) FAIL(ERR_MEMORY, "marks of a comm: %zu bytes", sizeof **out);
  return ERR_OK;
}

void marks_cuda_destroy(struct marks *m)
{
  if (m == NULL) return;
  (void)marks_cuda_look(m);
  for (int i = 0; i < MARKS; i++) {
    if (m->ring[i].started) cudaEventDestroy(m->ring[i].started);
    if (m->ring[i].done) cudaEventDestroy(m->ring[i].done);
  }
  free(m);
}

enum err marks_cuda_started(struct marks *m, const struct dev_cuda *at, const struct link_mark *of)
{
  m->open = m->n < MARKS;
  if (!m->open) return ERR_OK;
  struct mark *mark = &m->ring[(m->oldest + m->n) % MARKS];
  if (mark->started == NULL) CUDA_TRY(cudaEventCreateWithFlags(&mark->started, cudaEventDisableTiming));
  if (mark->done == NULL) CUDA_TRY(cudaEventCreateWithFlags(&mark->done, cudaEventDisableTiming));
  CUDA_TRY(cudaEventRecord(mark->started, (cudaStream_t)at->stream));
  mark->of = *of;
  mark->told = false;
  return ERR_OK;
}

enum err marks_cuda_done(struct marks *m, const struct dev_cuda *at)
{
  if (!m->open) return ERR_OK;
  CUDA_TRY(cudaEventRecord(m->ring[(m->oldest + m->n) % MARKS].done, (cudaStream_t)at->stream));
  m->open = false;
  m->n++;
  return ERR_OK;
}

static enum err happened(cudaEvent_t event, bool *out)
{
  const cudaError_t code = cudaEventQuery(event);
  *out = code == cudaSuccess;
  if (code != cudaErrorNotReady) return dev_cuda_check(code, "cudaEventQuery", __FILE__, __LINE__);
  (void)cudaGetLastError(); /* an answer, and no error of the call after it */
  return ERR_OK;
}

enum err marks_cuda_look(struct marks *m)
{
  while (m->n > 0) {
    struct mark *mark = &m->ring[m->oldest];
    bool yes = mark->told;
    if (!yes) TRY(happened(mark->started, &yes));
    if (!yes) return ERR_OK;
    if (!mark->told) trace_started(mark->of.comm, mark->of.op, mark->of.sequence, mark->of.step);
    mark->told = true;
    TRY(happened(mark->done, &yes));
    if (!yes) return ERR_OK;
    trace_done(mark->of.comm, mark->of.sequence);
    m->oldest = (m->oldest + 1) % MARKS;
    m->n--;
  }
  return ERR_OK;
}
