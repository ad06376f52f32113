/* host_stream.cpp - streams and events.  A stream is a queue; an event is a point of one.
 *
 * Nothing runs until a host thread waits or asks for something; then that thread runs what it
 * needs, one piece at a time, drawn among the streams that are needed.  While all of those wait
 * for a peer or for a value in memory, the other streams go on, one piece at a time.
 */
#include "host_internal.h"

#include <chrono>
#include <sched.h>

static double now_ms(void)
{
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

/* --- queues --------------------------------------------------------------------------- */

std::shared_ptr<CUstream_st> host_stream_of(cudaStream_t handle)
{
  host_state &h = host_state_get();
  if (handle == NULL) {
    auto &null = h.null_stream[host_device_now()];
    if (null == NULL) {
      null = std::make_shared<CUstream_st>();
      null->device = host_device_now();
      null->blocking = false;
      h.streams.push_back(null);
    }
    return null;
  }
  for (const auto &s : h.streams)
    if (s.get() == handle && !s->closed) return s;
  return NULL;
}

host_point host_stream_tail(const std::shared_ptr<CUstream_st> &stream) { return host_point{stream, stream->submitted}; }

bool host_passed(const host_point &point) { return point.stream->completed >= point.count; }

static void push(const std::shared_ptr<CUstream_st> &stream, host_work work)
{
  stream->queue.push_back(std::move(work));
  stream->submitted++;
}

void host_stream_wait(const std::shared_ptr<CUstream_st> &stream, const host_point &point)
{
  if (point.stream == stream || host_passed(point)) return;
  host_work work;
  work.name = "wait";
  work.waits = true;
  work.point = point;
  push(stream, std::move(work));
}

/* The null stream waits for the blocking streams of its device, and they for it. */
void host_stream_push(const std::shared_ptr<CUstream_st> &stream, host_work work)
{
  host_state &h = host_state_get();
  const auto &null = h.null_stream[stream->device];
  if (stream == null) {
    for (const auto &s : h.streams)
      if (s->blocking && s->device == stream->device) host_stream_wait(stream, host_stream_tail(s));
  } else if (stream->blocking && null != NULL) {
    host_stream_wait(stream, host_stream_tail(null));
  }
  push(stream, std::move(work));
  h.changed.notify_all();
}

std::vector<host_point> host_all_work(int device)
{
  std::vector<host_point> all;
  for (const auto &s : host_state_get().streams)
    if (s->device == device) all.push_back(host_stream_tail(s));
  return all;
}

/* --- running ------------------------------------------------------------------------------ */

static void finish(const std::shared_ptr<CUstream_st> &stream)
{
  host_state &h = host_state_get();
  if (stream->queue.front().release) stream->queue.front().release();
  stream->queue.pop_front();
  stream->completed++;
  if (stream->closed && stream->queue.empty())
    for (size_t i = 0; i < h.streams.size(); i++)
      if (h.streams[i] == stream) {
        h.streams.erase(h.streams.begin() + (long)i);
        break;
      }
  h.changed.notify_all();
}

static const char *at_work; /* the name of the work that runs, or NULL */

const char *host_stream_where(void)
{
  const char *where = host_launch_where();
  return *where || at_work == NULL ? where : at_work;
}

/* Does what can be done at the head of `stream` now; false when that is nothing. */
static bool step(host_entry &entry, const std::shared_ptr<CUstream_st> &stream)
{
  if (stream->queue.empty()) return false;
  host_work &work = stream->queue.front();
  if (work.waits) {
    if (!host_passed(work.point)) return false;
    finish(stream);
    return true;
  }
  if (work.state == host_work::RUNNING) return false; /* another thread is at it */
  cudaError_t error = cudaSuccess;
  bool progress = false;
  at_work = work.on_host ? NULL : work.name;
  if (work.state == host_work::NEW) {
    progress = true;
    if (work.unlocked) {
      work.state = host_work::RUNNING;
      host_memory_close();
      entry.lock.unlock();
      error = work.start();
      entry.lock.lock();
    } else if (work.start) {
      if (!work.on_host) host_memory_open();
      error = work.start();
    }
    work.state = host_work::IN_FLIGHT;
  }
  bool done = !work.test;
  if (error == cudaSuccess && !done) {
    if (!work.on_host) host_memory_open();
    error = work.test(&done);
  }
  at_work = NULL;
  if (error != cudaSuccess) {
    char text[256];
    snprintf(text, sizeof text, "%s: %s", work.name, cudaGetErrorString(error));
    host_fail(error, text);
    return true;
  }
  if (done) finish(stream);
  return progress || done;
}

typedef std::vector<std::shared_ptr<CUstream_st>> stream_list;

/* Adds the streams whose heads must go on before `point` is passed. */
static void need(stream_list *list, const host_point &point)
{
  if (host_passed(point)) return;
  for (const auto &s : *list)
    if (s == point.stream) return;
  list->push_back(point.stream);
  const host_work &head = point.stream->queue.front();
  if (head.waits) need(list, head.point);
}

/* One step of one stream of `list`, tried in a drawn order. */
static bool step_any(host_entry &entry, stream_list list)
{
  while (!list.empty()) {
    const size_t i = host_random() % list.size();
    if (step(entry, list[i])) return true;
    list[i] = list.back();
    list.pop_back();
  }
  return false;
}

static void say_stuck(const stream_list &needed)
{
  fprintf(stderr, "cuda_host: a host thread has waited for 20 s:");
  for (const auto &s : needed)
    fprintf(stderr, " stream %p is at '%s', piece %llu of %llu;", (void *)s.get(), s->queue.empty() ? "" : s->queue.front().name,
            (unsigned long long)s->completed + 1, (unsigned long long)s->submitted);
  fprintf(stderr, "\n");
}

bool host_run(host_entry &entry, const std::vector<host_point> &goals, bool blocking)
{
  host_state &h = host_state_get();
  std::chrono::microseconds nap(0), slept(0);
  int yields = 0;
  bool said = false;
  while (h.sticky == cudaSuccess) {
    stream_list needed;
    for (const auto &goal : goals) need(&needed, goal);
    if (needed.empty()) return true;
    bool progress = step_any(entry, needed);
    if (!progress) {
      progress = step_any(entry, h.streams);
      if (!blocking) return false;
    }
    if (progress) {
      nap = std::chrono::microseconds(0);
      yields = 0;
      continue;
    }
    host_memory_close();
    if (yields++ < 8) { /* a peer of this machine may be one switch away */
      entry.lock.unlock();
      sched_yield();
      entry.lock.lock();
      continue;
    }
    nap = std::min(nap * 2 + std::chrono::microseconds(10), std::chrono::microseconds(200));
    h.changed.wait_for(entry.lock, nap);
    slept += nap;
    if (!said && slept > std::chrono::seconds(20)) {
      say_stuck(needed);
      said = true;
    }
  }
  return true; /* the caller returns the sticky error */
}

void host_progress(void)
{
  host_entry entry;
  if (host_state_get().sticky != cudaSuccess) return;
  for (const auto &s : stream_list(host_state_get().streams))
    if (!s->queue.empty() && s->queue.front().state == host_work::IN_FLIGHT) step(entry, s);
  step_any(entry, host_state_get().streams);
}

/* --- streams -------------------------------------------------------------------------------- */

cudaError_t cudaStreamCreateWithPriority(cudaStream_t *out, unsigned flags, int)
{
  HOST_ENTER();
  if (out == NULL || (flags & ~(unsigned)cudaStreamNonBlocking) != 0) return host_return(cudaErrorInvalidValue);
  auto stream = std::make_shared<CUstream_st>();
  stream->device = host_device_now();
  stream->blocking = !(flags & cudaStreamNonBlocking);
  host_state_get().streams.push_back(stream);
  *out = stream.get();
  return cudaSuccess;
}
cudaError_t cudaStreamCreateWithFlags(cudaStream_t *out, unsigned flags) { return cudaStreamCreateWithPriority(out, flags, 0); }
cudaError_t cudaStreamCreate(cudaStream_t *out) { return cudaStreamCreateWithPriority(out, cudaStreamDefault, 0); }

/* Returns at once; what was queued is still done. */
cudaError_t cudaStreamDestroy(cudaStream_t handle)
{
  host_entry entry;
  host_state &h = host_state_get();
  auto stream = handle == NULL ? NULL : host_stream_of(handle);
  if (stream == NULL) return host_return(cudaErrorInvalidResourceHandle);
  stream->closed = true;
  if (stream->queue.empty())
    for (size_t i = 0; i < h.streams.size(); i++)
      if (h.streams[i] == stream) {
        h.streams.erase(h.streams.begin() + (long)i);
        break;
      }
  return host_return(cudaSuccess);
}

cudaError_t cudaStreamSynchronize(cudaStream_t handle)
{
  HOST_ENTER();
  auto stream = host_stream_of(handle);
  if (stream == NULL) return host_return(cudaErrorInvalidResourceHandle);
  host_run(entry, {host_stream_tail(stream)}, true);
  return host_return(cudaSuccess);
}

cudaError_t cudaStreamQuery(cudaStream_t handle)
{
  HOST_ENTER();
  auto stream = host_stream_of(handle);
  if (stream == NULL) return host_return(cudaErrorInvalidResourceHandle);
  return host_return(host_run(entry, {host_stream_tail(stream)}, false) ? cudaSuccess : cudaErrorNotReady);
}

cudaError_t cudaDeviceSynchronize(void)
{
  HOST_ENTER();
  host_run(entry, host_all_work(host_device_now()), true);
  const std::string past = host_state_get().sticky == cudaSuccess ? host_memory_written_past() : "";
  if (!past.empty()) host_fail(cudaErrorIllegalAddress, past.c_str());
  return host_return(cudaSuccess);
}

cudaError_t cudaStreamWaitEvent(cudaStream_t handle, cudaEvent_t event, unsigned flags)
{
  HOST_ENTER();
  auto stream = host_stream_of(handle);
  if (stream == NULL || event == NULL) return host_return(cudaErrorInvalidResourceHandle);
  if (flags != 0) return host_return(cudaErrorInvalidValue);
  if (event->last != NULL) host_stream_wait(stream, event->last->point); /* never recorded: nothing to wait for */
  return host_return(cudaSuccess);
}

cudaError_t cudaLaunchHostFunc(cudaStream_t handle, cudaHostFn_t function, void *data)
{
  HOST_ENTER();
  auto stream = host_stream_of(handle);
  if (stream == NULL) return host_return(cudaErrorInvalidResourceHandle);
  host_work work;
  work.name = "cudaLaunchHostFunc";
  work.on_host = work.unlocked = true;
  work.start = [function, data] {
    function(data);
    return cudaSuccess;
  };
  host_stream_push(stream, std::move(work));
  return host_return(cudaSuccess);
}

void host_streams_drop(void)
{
  host_state &h = host_state_get();
  for (const auto &s : h.streams)
    while (!s->queue.empty()) {
      if (s->queue.front().release) s->queue.front().release();
      s->queue.pop_front();
      s->completed++;
    }
  h.streams.clear();
  for (auto &null : h.null_stream) null.reset();
}

/* --- events ------------------------------------------------------------------------------------ */

cudaError_t cudaEventCreateWithFlags(cudaEvent_t *out, unsigned flags)
{
  HOST_ENTER();
  if (out == NULL || (flags & ~(unsigned)(cudaEventBlockingSync | cudaEventDisableTiming)) != 0) return host_return(cudaErrorInvalidValue);
  *out = new CUevent_st{host_device_now(), !(flags & cudaEventDisableTiming), NULL};
  return cudaSuccess;
}
cudaError_t cudaEventCreate(cudaEvent_t *out) { return cudaEventCreateWithFlags(out, cudaEventDefault); }

cudaError_t cudaEventDestroy(cudaEvent_t event)
{
  host_entry entry;
  if (event == NULL) return host_return(cudaErrorInvalidResourceHandle);
  delete event;
  return host_return(cudaSuccess);
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t handle)
{
  HOST_ENTER();
  auto stream = host_stream_of(handle);
  if (event == NULL || stream == NULL || stream->device != event->device) return host_return(cudaErrorInvalidResourceHandle);
  auto record = std::make_shared<host_record>();
  host_work work;
  work.name = "cudaEventRecord";
  work.on_host = true;
  work.start = [record] {
    record->ms = now_ms();
    return cudaSuccess;
  };
  host_stream_push(stream, std::move(work));
  record->point = host_stream_tail(stream);
  event->last = record;
  return host_return(cudaSuccess);
}

cudaError_t cudaEventSynchronize(cudaEvent_t event)
{
  HOST_ENTER();
  if (event == NULL) return host_return(cudaErrorInvalidResourceHandle);
  if (event->last != NULL) host_run(entry, {event->last->point}, true);
  return host_return(cudaSuccess);
}

cudaError_t cudaEventQuery(cudaEvent_t event)
{
  HOST_ENTER();
  if (event == NULL) return host_return(cudaErrorInvalidResourceHandle);
  if (event->last == NULL) return cudaSuccess;
  return host_return(host_run(entry, {event->last->point}, false) ? cudaSuccess : cudaErrorNotReady);
}

cudaError_t cudaEventElapsedTime(float *ms, cudaEvent_t start, cudaEvent_t end)
{
  HOST_ENTER();
  if (ms == NULL) return host_return(cudaErrorInvalidValue);
  if (start == NULL || end == NULL || !start->timing || !end->timing || start->last == NULL || end->last == NULL)
    return host_return(cudaErrorInvalidResourceHandle);
  if (!host_passed(start->last->point) || !host_passed(end->last->point)) return host_return(cudaErrorNotReady);
  *ms = (float)(end->last->ms - start->last->ms);
  return cudaSuccess;
}
