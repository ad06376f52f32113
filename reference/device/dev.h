/* dev.h - one device of one rank: memory, streams, events.
 *
 * Three kinds pass dev_test.c:
 *   cpu   a stream is a worker thread with a queue;
 *   lazy  queues run as late as events allow, in a seeded order, on the thread
 *         that synchronises; every declared range is checked with vector clocks;
 *   cuda  streams and events of the CUDA runtime; work is issued when it is given.
 *
 * Work on one stream runs in the order it was given; two streams have no order
 * but the one events give; the host is ordered after work only by dev_sync_*.
 * A lazy device does nothing between syncs: the host must not wait for another rank
 * (comm_agree and the like) that needs work queued here, before it has synced that work.
 * One host thread calls all of this.  Units: bytes, milliseconds.  An error of
 * queued work stops its stream and surfaces, with its text, at the next
 * dev_sync_* that waits for it.
 */
#ifndef DEVICE_DEV_H
#define DEVICE_DEV_H

#include "base/tensor.h"

#ifdef __cplusplus
extern "C" {
#endif

enum dev_kind { DEV_CPU, DEV_LAZY, DEV_CUDA };

/* What can be made to begin late; bits. */
enum dev_delayed { DEV_DELAY_COLLECTIVES = 1, DEV_DELAY_COPIES = 2, DEV_DELAY_UPDATE = 4 };

struct dev_config {
  enum dev_kind kind;
  int index;          /* of the device on this host; 0 for cpu and lazy              */
  int threads;        /* of the compute stream: set inside its own thread (OpenMP)   */
  uint64_t lazy_seed; /* order of lazy's choices                                     */
  bool poison_end;    /* dev_retire() fills what it retires with NaN                 */
  bool tf32;          /* cuda: products of float32 may round their operands to TF32  */
  unsigned delayed;   /* planted: before each of these (enum dev_delayed) its stream waits ... */
  double delay_ms;    /* ... for a time below this, drawn from delay_seed and its number       */
  uint64_t delay_seed;
};

struct dev;
struct dev_stream;
struct dev_event;

/* Owner of *out: the caller, until dev_close().
 * Fails: ERR_UNAVAILABLE if this build or machine has no such device; ERR_MEMORY. */
enum err dev_open(const struct dev_config *config, struct dev **out);
void dev_close(struct dev *d); /* waits for its streams; NULL is allowed */
bool dev_is_idle(const struct dev *d); /* no stream is open and no block is held: whoever took one has given it back */
enum dev_kind dev_kind_of(const struct dev *d);
const char *dev_uuid(const struct dev *d); /* of a cuda device, "GPU-..."; "" otherwise */
int dev_count(enum dev_kind kind);         /* on this host; 0 also when dev_open() would say why */
size_t dev_card_bytes(const struct dev *d); /* memory of a cuda device; 0 otherwise   */
/* "NVIDIA H200, driver 580.65 (CUDA 13.0), built with CUDA 13.0"; "" for cpu and lazy. */
void dev_describe(const struct dev *d, char *out, size_t bytes);

/* While the host waits for a cuda device, fn(arg) is called after each look (NCCL's asynchronous
 * errors).  An error that it returns ends the wait and stops the device's streams with it.
 * Until dev_unwatch() with the same pair.  On cpu and lazy nothing calls it.  Fails: ERR_ARG
 * when too many are registered. */
enum err dev_watch(struct dev *d, enum err (*fn)(void *arg), void *arg);
void dev_unwatch(struct dev *d, enum err (*fn)(void *arg), void *arg);

/* --- memory ------------------------------------------------------------- */

/* What a block is for: the rows of the memory suite. */
enum dev_category { DEV_PARAMETERS, DEV_GRADIENTS, DEV_OPTIMIZER, DEV_ACTIVATIONS, DEV_COMMUNICATION, DEV_OTHER, DEV_ON_HOST, DEV_CATEGORIES };
const char *dev_category_name(enum dev_category c); /* "parameters", ... */

/* One block of `bytes` (0 is allowed), aligned to 256, every byte 0xFF so that
 * reading before writing shows as NaN.  `owner` is a literal for messages.
 * Fails: ERR_MEMORY naming category, owner, bytes and the three largest owners. */
enum err dev_alloc(struct dev *d, size_t bytes, enum dev_category category, const char *owner, void **out);
void dev_free(struct dev *d, void *at); /* NULL is allowed; no queued work may still use it */

/* Host memory that copies of this device reach directly, and that its work may read and write in place, slowly: pinned for
 * cuda, plain for the others.  Of category DEV_ON_HOST.  Aligned to 256, contents unknown.  Fails: ERR_MEMORY, as dev_alloc. */
enum err dev_host_alloc(struct dev *d, size_t bytes, const char *owner, void **out);
void dev_host_free(struct dev *d, void *at); /* NULL is allowed; no queued work may still use it */

/* The life of a range begins: filled with 0xFF on stream s.  It ends: the same,
 * if the device was opened with poison_end; otherwise nothing.  Both count as
 * writes in lazy's check. */
enum err dev_begin(struct dev_stream *s, void *at, size_t bytes);
enum err dev_retire(struct dev_stream *s, void *at, size_t bytes);

struct dev_usage {
  size_t now[DEV_CATEGORIES];     /* bytes held                                          */
  size_t at_peak[DEV_CATEGORIES]; /* bytes held at the instant of the largest total; on cuda of DEV_ON_HOST the most ever */
  size_t peak;                    /* the largest total; on cuda DEV_ON_HOST is no part of it */
  int64_t allocations;            /* calls of dev_alloc so far: constant inside a step    */
  int64_t host_allocations;       /* of dev_host_alloc: constant inside a step after the first, whose messages a host's place grows with */
  double mean_bytes;              /* time-weighted since the last dev_usage_restart()     */
};
void dev_usage(const struct dev *d, struct dev_usage *out);
/* What the card's driver says that is in use of it, by anyone, beyond what was when d was opened; of that, what d holds and nobody
 * asked for: places that are free, and the workspace of matrix products.  False: there is no card, or it does not say. */
struct dev_driver_usage { int64_t bytes, spare_bytes; };
bool dev_driver_usage(const struct dev *d, struct dev_driver_usage *out);
void dev_usage_restart(struct dev *d); /* the mean starts again; peaks stay */

/* --- streams and events -------------------------------------------------- */

enum dev_role { DEV_COMPUTE, DEV_TRANSFER }; /* only a compute stream runs parallel regions */

/* `name` is a literal; it stands in traces and in lazy's findings. */
enum err dev_stream_open(struct dev *d, const char *name, enum dev_role role, struct dev_stream **out);
void dev_stream_close(struct dev_stream *s); /* waits for its work; NULL is allowed */
void dev_stream_trails(struct dev_stream *s); /* the trace is taken without waiting for it */
struct dev *dev_of(const struct dev_stream *s);
const char *dev_stream_name(const struct dev_stream *s);

enum err dev_event_create(struct dev *d, struct dev_event **out);
void dev_event_destroy(struct dev_event *e);

/* e happens when all that was given to s so far is done.  Recording again moves it. */
enum err dev_record(struct dev_event *e, struct dev_stream *s);
/* Work given to s after this starts only once e (as recorded last before this
 * call) has happened.  Waiting for an event never recorded is ERR_ARG. */
enum err dev_wait(struct dev_stream *s, struct dev_event *e);
enum err dev_sync_event(struct dev_event *e);    /* the host waits */
enum err dev_sync_stream(struct dev_stream *s);
enum err dev_sync(struct dev *d);                /* all streams    */

/* --- work ----------------------------------------------------------------- */

/* Memory that work touches: `rows` runs of row_bytes, stride_bytes apart. */
struct dev_range {
  const void *at;
  size_t row_bytes, stride_bytes;
  int64_t rows;
  bool write;
};
struct dev_range dev_reads(const struct tensor *t);
struct dev_range dev_writes(const struct tensor *t); /* also for read-and-write */

enum { DEV_ARGS_MAX = 768, DEV_RANGES_MAX = 16 };

struct dev_cuda; /* device/dev_cuda.h */

/* A kind of work.  Exactly one of `run` and `start`+`test` is set for the CPU.
 * `args` is the stream's own copy and may be changed by start and test.
 * On a cuda device `cuda` issues the work, on the host's thread when it is given.  Work
 * without it but with start and test is hosted: a thread of that stream does it when the
 * stream gets there, and the stream waits.  With only `run` it is ERR_UNAVAILABLE. */
struct dev_kernel {
  const char *name;
  enum err (*run)(void *args);
  enum err (*start)(void *args);             /* begins what must not block (MPI)    */
  enum err (*test)(void *args, bool *done);  /* polled with back-off until done     */
  enum err (*cuda)(const struct dev_cuda *at, void *args); /* NULL in a build without CUDA */
};

/* Give work to s.  args (args_bytes <= DEV_ARGS_MAX) is copied; ranges (n <=
 * DEV_RANGES_MAX) are copied and are all that it reads and writes in memory.
 * Fails: ERR_ARG; the stream's own error if it has stopped. */
enum err dev_submit(struct dev_stream *s, const struct dev_kernel *kernel, const void *args, size_t args_bytes,
                    const struct dev_range *ranges, int n);

/* cpu: how long a poller naps beside compute, after a look that took look_us of processor time and found nothing done,
 * when its last nap was napped_us (0: none yet).  Pure. */
long dev_cpu_nap_us(long napped_us, double look_us);

/* Planted: what is given to s next is of this kind, and begins late if the device was opened so.  Copies to and from
 * the host ask by themselves. */
enum err dev_delay(struct dev_stream *s, enum dev_delayed what);

/* Host <-> device.  Host memory must stay until the stream is past it.  A cuda device reads memory that did not
 * come from dev_host_alloc() at once: what queued work writes and then copies in must come from there. */
enum err dev_copy_in(struct dev_stream *s, void *device, const void *host, size_t bytes);
enum err dev_copy_out(struct dev_stream *s, void *host, const void *device, size_t bytes);

/* The host is about to touch memory that streams also touch: lazy checks that
 * this is ordered after them.  On the other devices nothing. */
enum err dev_host_touch(struct dev *d, const void *at, size_t bytes, bool write);

/* lazy: pairs of unordered accesses found so far, as text ("'head.fwd' on compute
 * writes ... unordered with 'allreduce' on comm reads ..."), "" if none.  A finding
 * also makes the next dev_sync_* fail with ERR_DEVICE and this text. */
const char *dev_findings(const struct dev *d);

/* --- time ------------------------------------------------------------------ */

/* What the host is doing when it gives work: every interval carries it. */
enum dev_phase { DEV_PHASE_DATA, DEV_PHASE_FORWARD, DEV_PHASE_BACKWARD, DEV_PHASE_OPTIMIZER, DEV_PHASE_EVAL, DEV_PHASE_OTHER, DEV_PHASES };
const char *dev_phase_name(enum dev_phase p);
void dev_set_phase(struct dev *d, enum dev_phase phase, int64_t step, int microbatch);
/* The same for the action of a pipeline's list that it gives work for; -1 (as at first): none. */
void dev_set_action(struct dev *d, int action);

/* The first `count` pieces of a stream: what a piece waited for.  Waits are pieces too. */
struct dev_edge {
  const char *stream; /* literal */
  int64_t count;
};
struct dev_interval {
  const char *stream, *kernel; /* literals */
  enum dev_phase phase;
  int64_t step;
  int microbatch;
  int action;      /* index in this rank's list of the pipeline's schedule, -1: none */
  int64_t number;  /* of the piece on its stream, from 1; waits take numbers too     */
  double ready_ms; /* reached the head of its stream with its inputs ready    */
  double start_ms, end_ms;
  double waited_ms; /* head of stream until ready: spent in dev_wait           */
  const char *waited_for; /* stream of the event waited for longest, or NULL   */
  const struct dev_edge *edges; /* of each stream that dev_wait named since the piece before, the latest point, also where */
  int n_edges;                  /* it had happened long ago; they live as long as the interval                             */
};
/* Off by default.  While on, each piece of work leaves one interval.  Reserve
 * `capacity` of them (and as many edges) now so that a step allocates nothing; more are counted, not kept.
 * 0 switches it off.  Waits for the streams. */
enum err dev_trace(struct dev *d, int64_t capacity);
/* After dev_sync(): the intervals since the last call, in order of their end.  They
 * belong to d and live until the next call.  Streams that dev_stream_trails() was called for may still be
 * at work: what they have not done yet comes with a later call. */
enum err dev_trace_take(struct dev *d, const struct dev_interval **out, int64_t *n, int64_t *lost);

/* --- health ------------------------------------------------------------------- */

/* What a card says of itself now; -1: it does not say. */
struct dev_health {
  int64_t clock_mhz, clock_max_mhz, memory_clock_mhz;
  int64_t temperature_c, power_mw, energy_mj;       /* energy since the driver was loaded */
  int64_t ecc_corrected, ecc_uncorrected;           /* since then                         */
  int64_t held_by_power_ns, held_by_heat_ns;        /* time below the wanted clock        */
  int64_t reasons;                                  /* NVML's bits of why it is so now    */
};
void dev_health(struct dev *d, struct dev_health *out); /* all -1 for cpu and lazy, and without NVML */

/* Between two looks: ERR_INVALID when the card lost data (an uncorrected ECC error), or, if
 * `timed`, when heat or the power supply held it back.  Its power limit alone is no fault. */
enum err dev_health_judge(const struct dev_health *before, const struct dev_health *after, bool timed);
/* "" or "power limit, heat": what holds it back now. */
void dev_health_reasons(const struct dev_health *h, char *out, size_t bytes);

#ifdef __cplusplus
}
#endif
#endif
