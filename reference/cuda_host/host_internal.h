/* host_internal.h - what the files of this room share.
 *
 * One lock guards everything.  host_stream.cpp holds the queues and runs them, host_memory.cpp
 * the devices' memory, host_launch.cpp a kernel's blocks, host_fibre.cpp their threads.  CUDA's
 * state is the process's, so this room has one: host_state().
 */
#ifndef CUDA_HOST_INTERNAL_H
#define CUDA_HOST_INTERNAL_H

#include "cuda_host.h"

#include <condition_variable>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

enum { HOST_DEVICES_MAX = 16 };

/* The first `count` pieces of work of a stream. */
struct host_point {
  std::shared_ptr<CUstream_st> stream;
  uint64_t count;
};

struct host_work {
  const char *name;
  enum { NEW, RUNNING, IN_FLIGHT } state = NEW;
  bool waits = false;    /* for `point`, and does nothing else                        */
  host_point point{};
  bool on_host = false;  /* touches no device memory                                  */
  bool unlocked = false; /* a host function: runs without the lock                    */
  std::function<cudaError_t()> start;          /* may be empty                         */
  std::function<cudaError_t(bool *done)> test; /* empty: done when start returns       */
  std::function<void()> release;
};

struct CUstream_st {
  int device;
  bool blocking;       /* ordered with the null stream       */
  bool closed = false; /* destroyed, its work not yet done   */
  std::deque<host_work> queue;
  uint64_t submitted = 0, completed = 0;
};

struct host_record { /* one call of cudaEventRecord */
  host_point point;
  double ms; /* when the stream got there */
};
struct CUevent_st {
  int device;
  bool timing;
  std::shared_ptr<host_record> last; /* NULL: never recorded */
};

struct host_state {
  std::mutex lock;
  std::condition_variable changed;
  int devices;                    /* that CUDA_VISIBLE_DEVICES shows   */
  int physical[HOST_DEVICES_MAX]; /* of each of them: its number       */
  int driver;
  uint64_t random;
  cudaError_t sticky = cudaSuccess;
  std::string message;
  std::shared_ptr<CUstream_st> null_stream[HOST_DEVICES_MAX];
  std::vector<std::shared_ptr<CUstream_st>> streams; /* all, the null streams first */
  std::vector<CUevent_st *> events;
  std::map<const void *, int> dynamic_shared; /* raised by cudaFuncSetAttribute */
};
host_state &host_state_get(void);
uint64_t host_random(void); /* the next draw of CUDA_HOST_SEED */
int host_environment(const char *name, int otherwise);

/* The lock for one call of the interface.  Device memory is closed to the host when it goes. */
struct host_entry {
  std::unique_lock<std::mutex> lock;
  host_entry();
  ~host_entry();
};
/* What a call returns: remembered for cudaGetLastError().  The sticky error overrides. */
cudaError_t host_return(cudaError_t error);
/* The sticky error becomes `error`, said as `text`, unless there is one. */
void host_fail(cudaError_t error, const char *text);
/* First lines of a call: enters, and returns the sticky error if there is one. */
#define HOST_ENTER()                                                               \
  host_entry entry;                                                                \
  if (host_state_get().sticky != cudaSuccess) return host_return(cudaSuccess)

int host_device_now(void); /* this thread's device */

/* --- host_stream.cpp ------------------------------------------------------------- */

/* NULL when `handle` is no stream; the null stream is the current device's. */
std::shared_ptr<CUstream_st> host_stream_of(cudaStream_t handle);
void host_stream_push(const std::shared_ptr<CUstream_st> &stream, host_work work);
void host_stream_wait(const std::shared_ptr<CUstream_st> &stream, const host_point &point); /* a piece of work that waits */
host_point host_stream_tail(const std::shared_ptr<CUstream_st> &stream);
bool host_passed(const host_point &point);
/* Runs what `goals` need, one piece at a time in seeded order.  blocking: until they are done;
 * otherwise as far as it goes.  True when they are done. */
bool host_run(host_entry &entry, const std::vector<host_point> &goals, bool blocking);
/* For a host thread that waits for another process: streams whose work waits for peers go on. */
void host_progress(void);
std::vector<host_point> host_all_work(int device);
const char *host_stream_where(void); /* what runs: a kernel's thread, other work, or "" */
void host_streams_drop(void); /* for cudaDeviceReset() */

/* --- host_memory.cpp --------------------------------------------------------------- */

struct host_block {
  size_t bytes;
  int device;
};
void host_memory_open(void); /* to this process: kernels and copies are about to run */
void host_memory_close(void);
void host_memory_watch(void); /* this thread's faults are told with what they hit */
void host_memory_drop(void);
/* The block that holds `at`; NULL: none.  *first: where it begins. */
const host_block *host_memory_find(const void *at, char **first);
bool host_memory_holds(const void *at, size_t bytes);    /* in one live block         */
bool host_memory_in_range(const void *at);               /* of device addresses       */
bool host_memory_pinned(const void *at, size_t bytes);
std::string host_memory_written_past(void);              /* "" if no block was        */
size_t host_memory_total(void);                          /* of one device             */

/* --- host_fibre.cpp: one stack with a context ----------------------------------------- */

struct host_fibre;
host_fibre *host_fibre_create(void (*main)(void)); /* main never returns */
void host_fibre_renew(host_fibre *f);              /* forgets what it was doing */
/* The running context is kept in *from; NULL stands for the system thread's own. */
void host_fibre_switch(host_fibre *from, host_fibre *to);
[[noreturn]] void host_fibre_leave(void); /* to the system thread; the fibre needs a renewal */
bool host_fibre_guards(const void *at); /* `at` is below the end of a fibre's stack */

/* --- host_launch.cpp -------------------------------------------------------------------- */

/* "kernel 'name', block (0,0,0), thread (1,0,0)", or "" when no kernel runs. */
const char *host_launch_where(void);

#endif
