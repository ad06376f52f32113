/* dev_internal.h - what the files of this room share.
 *
 * A stream is a ring of work and two counters: pieces submitted (the host's) and
 * pieces completed.  An event is a point: (stream, pieces submitted when it was
 * recorded); it has happened when that many are completed.  So recording queues
 * nothing, recording again just moves the point, and a wait holds the point that it
 * was given.  How the pieces get done is the backend's: cpu by a thread a stream,
 * lazy by the thread that synchronises, cuda by issuing each when it is given; there
 * an event has one of CUDA's beside its point.
 */
#ifndef DEVICE_DEV_INTERNAL_H
#define DEVICE_DEV_INTERNAL_H

#include "device/dev.h"
#include "device/dev_gate.h"

#include <pthread.h>

enum {
  DEV_STREAMS_MAX = 16,             /* open at once on one device                        */
  DEV_CLOCKS = DEV_STREAMS_MAX + 1, /* [0] is the host's                                  */
  DEV_QUEUE_SLOTS = 1024,           /* pieces of work that wait before the host must      */
  DEV_WATCHERS = 32,                /* registered at once on one device                   */
  DEV_ALIGNMENT = 256               /* of every block                                     */
};

/* The first `count` pieces of work of a stream. */
struct dev_point {
  struct dev_stream *stream;
  int64_t count;
};

/* What moves: into device memory, out of it, or 0xFF over it. */
enum dev_way { DEV_COPY_IN, DEV_COPY_OUT, DEV_FILL };

enum dev_work_kind { DEV_WORK_KERNEL, DEV_WORK_WAIT, DEV_WORK_STOP };

struct dev_work {
  enum dev_work_kind kind;
  struct dev_point point;   /* DEV_WORK_WAIT                       */
  struct dev_event *event;  /* the same, while it is given         */
  struct dev_kernel kernel; /* DEV_WORK_KERNEL and all that follows */
  enum dev_phase phase;
  int64_t step;
  int microbatch, action;
  double given_ms;          /* cuda: to the device, while traced   */
  int n_ranges;
  struct dev_range ranges[DEV_RANGES_MAX];
  _Alignas(64) unsigned char args[DEV_ARGS_MAX];
};

struct dev_stream {
  struct dev *dev;
  const char *name;
  enum dev_role role;
  int index; /* in dev->streams */
  bool open, trails;
  struct dev_work *queue;    /* ring; piece i (from 1) is in slot i % DEV_QUEUE_SLOTS */
  int64_t submitted;         /* the host's                                            */
  int64_t completed_seen;    /* the host's last look at `completed`                   */
  struct dev_gate published; /* pieces that the worker may take                       */
  struct dev_gate completed;

  _Atomic int64_t failed_at;  /* number of the piece that failed; INT64_MAX: none     */
  struct err_saved failure;   /* valid once failed_at is set                           */
  bool surfaced;              /* the host has seen it                                  */

  /* Of whoever runs the work. */
  pthread_t thread;
  int64_t next;          /* piece to be done                                           */
  bool in_flight;        /* lazy: the piece at the head was started, its test is due   */
  double flight_ms;      /* lazy: when                                                 */
  double wait_since_ms;  /* lazy: when the wait at the head was first seen, 0: not yet */
  double free_ms;        /* cpu: when the piece before ended; 0: there was no next one   */
  bool held;             /* cpu: the next piece was a wait then that was not over      */
  double waited_ms, longest_ms; /* dev_wait before the next piece                      */
  const char *waited_for;
  struct dev_edge edges[DEV_STREAMS_MAX]; /* by index of the stream waited for; count 0: none */
  struct dev_cuda_stream *cuda; /* cuda only                                           */
};

struct dev_event {
  struct dev *dev;                   /* may be gone before the event */
  const struct dev_backend *backend;
  struct dev_point point; /* stream NULL: never recorded */
  int64_t clock[DEV_CLOCKS];
  void *cuda;             /* cuda only: cudaEvent_t      */
};

/* How queued work gets done. */
struct dev_backend {
  enum err (*open)(struct dev *d);
  void (*close)(struct dev *d);                                            /* after its streams and memory */
  enum err (*stream_open)(struct dev_stream *s);
  void (*stream_close)(struct dev_stream *s);                              /* after its work is done   */
  void (*publish)(struct dev_stream *s);                                   /* piece s->submitted is in */
  void (*await)(struct dev *d, const struct dev_point *points, int n);     /* the host waits for all   */
  enum err (*event_create)(struct dev_event *e);
  void (*event_destroy)(struct dev_event *e);
  enum err (*record)(struct dev_event *e);                                 /* its point has been moved */
  void (*await_event)(struct dev_event *e);                                /* the host waits           */
  enum err (*traced)(struct dev *d);                                       /* all is done: tracing begins or was read */

  enum err (*alloc)(struct dev *d, size_t bytes, void **out);              /* filled with 0xFF; ERR_MEMORY: the text is "" or says what the device has */
  void (*free)(struct dev *d, void *at, size_t bytes);
  enum err (*host_alloc)(struct dev *d, size_t bytes, void **out);
  void (*host_free)(struct dev *d, void *at, size_t bytes);
  enum err (*copy)(struct dev_stream *s, const char *name, enum dev_way way, void *to, const void *from, size_t bytes);

  bool (*driver_usage)(const struct dev *d, struct dev_driver_usage *out);
  void (*health)(struct dev *d, struct dev_health *out);                   /* what it knows; the rest stays   */
  void (*describe)(const struct dev *d, char *out, size_t bytes);
};
extern const struct dev_backend dev_cpu_backend, dev_lazy_backend, dev_cuda_backend;

/* --- dev_host.c: what cpu and lazy share ------------------------------------------ */

enum err dev_host_block(struct dev *d, size_t bytes, void **out);
void dev_host_unblock(struct dev *d, void *at, size_t bytes);
enum err dev_host_copy(struct dev_stream *s, const char *name, enum dev_way way, void *to, const void *from, size_t bytes);
enum err dev_host_open(struct dev *d);
void dev_host_close(struct dev *d);
enum err dev_host_event(struct dev_event *e);
void dev_host_unevent(struct dev_event *e);
void dev_host_await_event(struct dev_event *e);
bool dev_host_driver_usage(const struct dev *d, struct dev_driver_usage *out);
void dev_host_health(struct dev *d, struct dev_health *out);
void dev_host_describe(const struct dev *d, char *out, size_t bytes);
#define DEV_HOST                                                                                                 \
  .open = dev_host_open, .close = dev_host_close, .event_create = dev_host_event, .event_destroy = dev_host_unevent, \
  .record = dev_host_event, .await_event = dev_host_await_event, .traced = dev_host_open, .alloc = dev_host_block,   \
  .free = dev_host_unblock, .host_alloc = dev_host_block, .host_free = dev_host_unblock, .copy = dev_host_copy,    \
  .driver_usage = dev_host_driver_usage, .health = dev_host_health, .describe = dev_host_describe

/* --- dev_memory.c ------------------------------------------------------------ */

struct dev_block {
  char *at;
  size_t bytes;
  enum dev_category category;
  const char *owner;
};
struct dev_memory {
  struct dev_block *blocks;
  int n, room;
  struct dev_usage usage;
  double since_ms, integral; /* of bytes held over time, since the last restart */
  double at_ms;              /* up to here                                       */
  bool host_apart;           /* the host's memory is no part of the device's     */
};
void dev_memory_init(struct dev_memory *m, enum dev_kind kind);
void dev_memory_release(struct dev *d);
const struct dev_block *dev_memory_find(const struct dev_memory *m, uintptr_t address); /* NULL: not ours */

/* --- dev_trace.c -------------------------------------------------------------- */

struct dev_trace_log {
  struct dev_interval *rows[2]; /* one is filled, the other is the caller's */
  struct dev_edge *edges[2];    /* of the intervals beside them             */
  int64_t capacity;             /* 0: off                                   */
  int filled;
  int64_t kept, edged, lost;    /* rows, edges; rows that did not fit       */
  pthread_mutex_t lock;         /* of what is filled and counted: streams may be at work while it is taken */
};
double dev_trace_now(struct dev *d); /* 0 while off */
/* The wait at the head of s is over, after ms; from whoever runs the work, also for ms 0. */
void dev_trace_waited(struct dev_stream *s, double ms, const struct dev_point *point);
/* The piece s->next is done. */
void dev_trace_done(struct dev_stream *s, const struct dev_work *w, double ready_ms, double start_ms, double end_ms);
void dev_trace_release(struct dev_trace_log *t);

/* --- dev_range.c -------------------------------------------------------------- */

/* Whether two ranges share a byte; *byte: one that they share. */
bool dev_range_overlap(const struct dev_range *a, const struct dev_range *b, uintptr_t *byte);
/* Whether b surely holds all of a (false where that is hard to tell). */
bool dev_range_covers(const struct dev_range *b, const struct dev_range *a);
enum err dev_range_check(const struct dev_range *r);
/* One run instead of rows that touch; rows 0 when it holds no byte. */
struct dev_range dev_range_normal(struct dev_range r);
static inline uintptr_t dev_range_first(const struct dev_range *r) { return (uintptr_t)r->at; }
static inline uintptr_t dev_range_end(const struct dev_range *r)
{
  return (uintptr_t)r->at + (size_t)(r->rows - 1) * r->stride_bytes + r->row_bytes;
}

/* --- dev_clocks.c -------------------------------------------------------------- */

/* Who is about to touch memory, and in which piece of work. */
struct dev_accessor {
  int who;                    /* 0 the host, else 1 + stream index  */
  const char *kernel, *stream;
  int64_t step;
  int microbatch;
};
struct dev_clocks;
enum err dev_clocks_create(const struct dev_memory *memory, struct dev_clocks **out);
void dev_clocks_destroy(struct dev_clocks *c);
enum err dev_clocks_access(struct dev_clocks *c, const struct dev_accessor *by, const struct dev_range *ranges, int n);
void dev_clocks_forget(struct dev_clocks *c, const struct dev_range *range); /* memory that is no more */
void dev_clocks_record(struct dev_clocks *c, int who, int64_t clock[DEV_CLOCKS]);
void dev_clocks_wait(struct dev_clocks *c, int who, const int64_t clock[DEV_CLOCKS]);
int dev_clocks_count(const struct dev_clocks *c); /* of findings                             */
int64_t dev_clocks_history(const struct dev_clocks *c); /* accesses remembered              */
enum err dev_clocks_new(struct dev_clocks *c);    /* ERR_DEVICE once for those not told yet  */
const char *dev_clocks_text(const struct dev_clocks *c);

/* --- dev_stream.c --------------------------------------------------------------- */

/* The next piece to fill in; waits while the queue is full.  dev_stream_push() gives it. */
struct dev_work *dev_stream_slot(struct dev_stream *s);
void dev_stream_push(struct dev_stream *s);
static inline struct dev_work *dev_stream_piece(struct dev_stream *s, int64_t number)
{
  return &s->queue[number % DEV_QUEUE_SLOTS];
}
/* Whether one of the first `count` pieces failed. */
static inline bool dev_stream_failed(struct dev_stream *s, int64_t count)
{
  return atomic_load_explicit(&s->failed_at, memory_order_acquire) <= count;
}
static inline bool dev_stream_stopped(struct dev_stream *s) { return dev_stream_failed(s, INT64_MAX - 1); }
/* Piece `number` failed with this thread's error; or for another stream's error. */
void dev_stream_stop(struct dev_stream *s, int64_t number, const char *kernel, enum err code);
void dev_stream_stop_as(struct dev_stream *s, int64_t number, const struct err_saved *failure);
void dev_stream_stop_with(struct dev_stream *s, int64_t number, struct dev_stream *origin);
/* A thread for s that takes no signals. */
enum err dev_stream_thread(struct dev_stream *s, void *(*work)(void *stream));
void dev_await_all(struct dev *d); /* the host waits for all streams, whatever came of them */

/* Shows the declared ranges to ThreadSanitizer, in its build. */
void dev_work_declare(const struct dev_work *w); /* dev_submit.c */


int dev_cuda_count(void); /* dev_cuda.c; 0 also where dev_open would fail */

struct dev_watcher {
  enum err (*fn)(void *arg); /* NULL: free */
  void *arg;
};

struct dev {
  struct dev_config config;
  char uuid[64];     /* cuda only */
  size_t card_bytes; /* cuda only */
  struct dev_watcher watchers[DEV_WATCHERS];
  const struct dev_backend *backend;
  struct dev_memory memory;
  struct dev_trace_log trace;
  struct dev_clocks *clocks; /* lazy only */
  struct dev_stream streams[DEV_STREAMS_MAX];
  struct err_saved orphan; /* of a closed stream, not seen by the host yet; code ERR_OK: none */
  enum dev_phase phase;
  int64_t step;
  int microbatch, action;
  uint64_t delays;           /* planted so far                                             */
  uint64_t choices;          /* lazy: drawn so far                                         */
  _Atomic uint32_t activity; /* cpu: compute streams at work * 2 + 1 while someone naps    */
  struct dev_cuda_device *cuda;
};

#endif
