/* dev_cuda_state.h - what the files of the cuda backend share.
 *
 * The host's thread issues each piece of work when it is given.  Pieces
 * that are done are passed over in order, by dev_cuda_walk(): there a kernel's report becomes
 * the stream's error, an error follows the waits, copies reach the host's memory, intervals
 * are kept.  The walk is made by whoever has seen CUDA pass the pieces, under one lock: the
 * host after it has waited, or the thread of a stream's hosted work.
 *
 * Hosted work n of a stream stands between two orders to CUDA: write n to `reached`, wait until
 * `released` is at least n.  The stream's thread looks at the one and stores the other.
 */
#ifndef DEVICE_DEV_CUDA_STATE_H
#define DEVICE_DEV_CUDA_STATE_H

#include "device/dev_cuda.h"
#include "device/dev_internal.h"
#include "device/dev_nvml_cuda.h"

#include <cuda.h>

enum {
  DEV_CUDA_FENCE_EACH = 128,                                    /* pieces                        */
  DEV_CUDA_FENCES = DEV_QUEUE_SLOTS / DEV_CUDA_FENCE_EACH + 8,
  DEV_CUDA_STAGING_BYTES = 8 << 20                              /* pinned, of one stream         */
};

/* --- the arena: dev_arena_cuda.c ---------------------------------------------------- */

/* A run of bytes of a segment (one cudaMalloc), in order of address within it. */
struct dev_span {
  struct dev_span *before, *after; /* in the same segment */
  struct dev_span *next;           /* of all              */
  char *at;
  size_t bytes;
  bool used;
};
struct dev_arena {
  struct dev_span *spans;
  size_t segments; /* cudaMalloc calls so far */
  size_t bytes;    /* of all segments         */
};
enum err dev_arena_take(struct dev *d, size_t bytes, void **out);  /* contents unknown */
void dev_arena_give(struct dev *d, void *at);
void dev_arena_release(struct dev *d);                             /* all segments     */

/* --- pinned buffers and staging: dev_staging_cuda.c ------------------------------------- */

struct dev_pinned {
  struct dev_pinned *next;
  char *at;
  size_t bytes;
};
/* A ring of pinned bytes.  A copy from or to pageable memory holds its part until the walk has passed it. */
struct dev_staging {
  char *room; /* NULL before the first such copy */
  size_t head, held; /* bytes: where the next part begins, what is held before it */
  int64_t first, n;  /* parts held, in a ring of their own                        */
  struct dev_staged {
    int64_t number; /* piece of work                              */
    size_t bytes;   /* with what was left out at the ring's end   */
  } parts[DEV_QUEUE_SLOTS];
};
enum err dev_cuda_copy(struct dev_stream *s, const char *name, enum dev_way way, void *to, const void *from, size_t bytes);
enum err dev_cuda_host_alloc(struct dev *d, size_t bytes, void **out);
void dev_cuda_host_free(struct dev *d, void *at, size_t bytes);
/* Piece `number` is done (or dropped: then nothing reaches the host).  The lock is held. */
void dev_staging_passed(struct dev_stream *s, const struct dev_work *w, int64_t number, bool dropped);
void dev_staging_release(struct dev_stream *s);

/* --- state ---------------------------------------------------------------------------------- */

struct dev_cuda_device {
  int index;
  char name[256];
  int capability, multiprocessors, priority; /* of transfer streams */
  cudaStream_t own;     /* fills fresh memory, marks the clock */
  cudaEvent_t epoch;    /* happened at epoch_ms of the host's clock */
  double epoch_ms;
  pthread_mutex_t lock; /* of what the walk changes */
  _Atomic bool lost;    /* nothing more is waited for */
  int64_t before_bytes; /* in use on the card when it was opened */
  struct dev_arena arena;
  struct dev_pinned *pinned;
  struct dev_nvml nvml; /* library NULL: there is none */
  CUresult(CUDAAPI *write_value)(CUstream, CUdeviceptr, cuuint32_t, unsigned int); /* NULL before the first hosted work */
  CUresult(CUDAAPI *wait_value)(CUstream, CUdeviceptr, cuuint32_t, unsigned int);
};

/* An error-checking mutex: who gives back what he does not hold is a bug. */
static inline void dev_cuda_lock(struct dev_cuda_device *c) { BUG_IF(pthread_mutex_lock(&c->lock) != 0); }
static inline void dev_cuda_unlock(struct dev_cuda_device *c) { BUG_IF(pthread_mutex_unlock(&c->lock) != 0); }

/* In pinned memory, one block a stream. */
struct dev_cuda_shared {
  struct dev_cuda_report reports[DEV_QUEUE_SLOTS]; /* of the piece in that slot */
  _Alignas(64) _Atomic uint32_t reached;
  _Alignas(64) _Atomic uint32_t released;
};

struct dev_cuda_stream {
  struct dev_cuda at;
  struct dev_cuda_kept products;
  struct dev_cuda_shared *shared;
  cudaEvent_t marks[DEV_QUEUE_SLOTS]; /* behind the piece in that slot; made when first used */
  double passed_ms;                   /* end of the last piece that the walk passed          */
  struct dev_cuda_fence {
    int64_t count; /* pieces before it; 0: none */
    cudaEvent_t event;
  } fences[DEV_CUDA_FENCES];
  int fence; /* the next to be moved */
  struct dev_staging staging;

  bool hosts;                      /* its thread runs          */
  int64_t hosted_n;                /* given so far, the host's */
  int64_t hosted[DEV_QUEUE_SLOTS]; /* number of piece i        */
  struct dev_gate given;
};

/* --- dev_issue_cuda.c: from given to done -------------------------------------------------- */

void dev_cuda_walk(struct dev_stream *s, int64_t upto); /* the lock is held; CUDA is past these pieces */
void dev_cuda_publish(struct dev_stream *s);
void dev_cuda_await(struct dev *d, const struct dev_point *points, int n);
void dev_cuda_await_event(struct dev_event *e);
void dev_cuda_lose(struct dev *d, enum err code); /* with this thread's error */

/* --- dev_hosted_cuda.c: work that a thread does ------------------------------------------------ */

enum err dev_hosted_give(struct dev_stream *s, int64_t number);
void dev_hosted_stop(struct dev_stream *s);

#endif
