/* host_copy.cpp - copies and fills.  What pageable host memory means is CUDA's: it is read before
 * the call returns, and written before the call returns; pinned memory is touched when the
 * stream gets there. */
#include "host_internal.h"

enum place { PAGEABLE, PINNED, DEVICE, WRONG };

static place place_of(const void *at, size_t bytes)
{
  if (host_memory_in_range(at)) return host_memory_holds(at, bytes) ? DEVICE : WRONG;
  return host_memory_pinned(at, bytes) ? PINNED : PAGEABLE;
}

struct shape {
  size_t to_pitch, from_pitch, width, height;
};

static size_t span(size_t pitch, const shape &s) { return s.height == 0 ? 0 : pitch * (s.height - 1) + s.width; }

static void copy_rows(char *to, const char *from, const shape &s)
{
  for (size_t row = 0; row < s.height; row++) memcpy(to + row * s.to_pitch, from + row * s.from_pitch, s.width);
}

static bool direction_fits(enum cudaMemcpyKind kind, place to, place from)
{
  switch (kind) {
  case cudaMemcpyHostToHost: return to != DEVICE && from != DEVICE;
  case cudaMemcpyHostToDevice: return to == DEVICE && from != DEVICE;
  case cudaMemcpyDeviceToHost: return to != DEVICE && from == DEVICE;
  case cudaMemcpyDeviceToDevice: return to == DEVICE && from == DEVICE;
  case cudaMemcpyDefault: return true;
  }
  return false;
}

static cudaError_t copy(host_entry &entry, void *to, const void *from, const shape &s, enum cudaMemcpyKind kind, cudaStream_t handle,
                        bool waits)
{
  auto stream = host_stream_of(handle);
  if (stream == NULL) return cudaErrorInvalidResourceHandle;
  if (s.width == 0 || s.height == 0) return cudaSuccess;
  if (to == NULL || from == NULL || s.to_pitch < s.width || s.from_pitch < s.width) return cudaErrorInvalidValue;
  const place into = place_of(to, span(s.to_pitch, s)), out_of = place_of(from, span(s.from_pitch, s));
  if (into == WRONG || out_of == WRONG || !direction_fits(kind, into, out_of)) return cudaErrorInvalidValue;

  host_work work;
  work.name = "cudaMemcpyAsync";
  if (out_of == PAGEABLE && into == DEVICE) { /* a staged copy of what is there now */
    auto staged = std::make_shared<std::vector<char>>(s.width * s.height);
    const shape in = {s.width, s.from_pitch, s.width, s.height}, out = {s.to_pitch, s.width, s.width, s.height};
    copy_rows(staged->data(), static_cast<const char *>(from), in);
    work.start = [to, staged, out] {
      copy_rows(static_cast<char *>(to), staged->data(), out);
      return cudaSuccess;
    };
  } else {
    work.start = [to, from, s] {
      copy_rows(static_cast<char *>(to), static_cast<const char *>(from), s);
      return cudaSuccess;
    };
  }
  host_stream_push(stream, std::move(work));
  const bool pageable = into == PAGEABLE || (out_of == PAGEABLE && into != DEVICE);
  if (pageable || (waits && !(into == DEVICE && out_of == DEVICE))) host_run(entry, {host_stream_tail(stream)}, true);
  return cudaSuccess;
}

cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind, cudaStream_t stream)
{
  HOST_ENTER();
  return host_return(copy(entry, to, from, shape{bytes, bytes, bytes, 1}, kind, stream, false));
}

/* Waits, except from device to device. */
cudaError_t cudaMemcpy(void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind)
{
  HOST_ENTER();
  return host_return(copy(entry, to, from, shape{bytes, bytes, bytes, 1}, kind, NULL, true));
}

cudaError_t cudaMemcpy2DAsync(void *to, size_t to_pitch, const void *from, size_t from_pitch, size_t width, size_t height,
                              enum cudaMemcpyKind kind, cudaStream_t stream)
{
  HOST_ENTER();
  return host_return(copy(entry, to, from, shape{to_pitch, from_pitch, width, height}, kind, stream, false));
}

cudaError_t cudaMemset2DAsync(void *at, size_t pitch, int value, size_t width, size_t height, cudaStream_t handle)
{
  HOST_ENTER();
  auto stream = host_stream_of(handle);
  if (stream == NULL) return host_return(cudaErrorInvalidResourceHandle);
  if (width == 0 || height == 0) return cudaSuccess;
  const place into = place_of(at, pitch * (height - 1) + width);
  if (pitch < width || (into != DEVICE && into != PINNED)) return host_return(cudaErrorInvalidValue);
  host_work work;
  work.name = "cudaMemsetAsync";
  work.start = [at, pitch, value, width, height] {
    for (size_t row = 0; row < height; row++) memset(static_cast<char *>(at) + row * pitch, value, width);
    return cudaSuccess;
  };
  host_stream_push(stream, std::move(work));
  return host_return(cudaSuccess);
}
cudaError_t cudaMemsetAsync(void *at, int value, size_t bytes, cudaStream_t stream)
{
  return cudaMemset2DAsync(at, bytes, value, bytes, 1, stream);
}
cudaError_t cudaMemset(void *at, int value, size_t bytes) { return cudaMemset2DAsync(at, bytes, value, bytes, 1, NULL); }
