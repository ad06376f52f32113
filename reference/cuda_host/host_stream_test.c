/* host_stream_test.c - streams, events, copies and errors mean what they mean in CUDA. */
#include "testing/check.h"

#include <cuda.h>
#include <cuda_host.h>
#include <math.h>
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define CHECK_CUDA(call) CHECK((call) == cudaSuccess)
enum { N = 1000, BYTES = N * sizeof(float) };

static cudaStream_t one, two; /* non-blocking */

static float *device_floats(void)
{
  void *at = NULL;
  CHECK_CUDA(cudaMalloc(&at, BYTES));
  return at;
}
static float *pinned_floats(float value)
{
  void *at = NULL;
  CHECK_CUDA(cudaMallocHost(&at, BYTES));
  for (int i = 0; i < N; i++) ((float *)at)[i] = value;
  return at;
}
static void release(float *device, float *pinned)
{
  CHECK_CUDA(cudaFree(device));
  CHECK_CUDA(cudaFreeHost(pinned));
}
static void begin(void)
{
  CHECK_CUDA(cudaStreamCreateWithFlags(&one, cudaStreamNonBlocking));
  CHECK_CUDA(cudaStreamCreateWithFlags(&two, cudaStreamNonBlocking));
}
static void end(void)
{
  CHECK_CUDA(cudaStreamDestroy(one));
  CHECK_CUDA(cudaStreamDestroy(two));
}
static float first_of(const float *device, cudaStream_t s)
{
  float got[N];
  CHECK_CUDA(cudaMemcpyAsync(got, device, BYTES, cudaMemcpyDeviceToHost, s));
  return got[0];
}

/* --- order ------------------------------------------------------------------------ */

static void nothing_runs_before_somebody_waits(void)
{
  begin();
  float *at = device_floats(), *host = pinned_floats(1);
  CHECK_CUDA(cudaMemcpyAsync(at, host, BYTES, cudaMemcpyHostToDevice, one));
  host[0] = 2; /* pinned memory is read when the stream gets there */
  CHECK(first_of(at, one) == 2);
  end();
  release(at, host);
}

static void a_missing_event_wait_shows(void)
{
  begin();
  float *at = device_floats(), *host = pinned_floats(3);
  cudaEvent_t done;
  CHECK_CUDA(cudaEventCreateWithFlags(&done, cudaEventDisableTiming));
  for (int with_wait = 0; with_wait < 2; with_wait++) {
    CHECK_CUDA(cudaMemsetAsync(at, 0, BYTES, one));
    CHECK_CUDA(cudaDeviceSynchronize());
    CHECK_CUDA(cudaMemcpyAsync(at, host, BYTES, cudaMemcpyHostToDevice, one));
    CHECK_CUDA(cudaEventRecord(done, one));
    if (with_wait) CHECK_CUDA(cudaStreamWaitEvent(two, done, 0));
    CHECK(first_of(at, two) == (with_wait ? 3 : 0)); /* a reader that comes too soon */
    CHECK_CUDA(cudaDeviceSynchronize());
  }
  /* A writer that comes too soon: the reader was given first, and is not waited for. */
  float *kept = pinned_floats(0);
  CHECK_CUDA(cudaMemcpyAsync(kept, at, BYTES, cudaMemcpyDeviceToHost, one));
  CHECK_CUDA(cudaMemsetAsync(at, 0, BYTES, two));
  CHECK_CUDA(cudaStreamSynchronize(two));
  CHECK_CUDA(cudaDeviceSynchronize());
  CHECK(kept[0] == 0);
  CHECK_CUDA(cudaEventDestroy(done));
  CHECK_CUDA(cudaFreeHost(kept));
  end();
  release(at, host);
}

static void a_wait_holds_the_record_that_it_was_given(void)
{
  begin();
  float *at = device_floats(), *host = pinned_floats(4);
  cudaEvent_t e;
  CHECK_CUDA(cudaEventCreate(&e));
  CHECK_CUDA(cudaStreamWaitEvent(two, e, 0)); /* never recorded: waits for nothing */
  CHECK_CUDA(cudaEventSynchronize(e));
  CHECK_CUDA(cudaEventQuery(e));
  CHECK_CUDA(cudaMemsetAsync(at, 0, BYTES, one));
  CHECK_CUDA(cudaEventRecord(e, one));
  CHECK_CUDA(cudaStreamWaitEvent(two, e, 0));
  CHECK_CUDA(cudaMemcpyAsync(at, host, BYTES, cudaMemcpyHostToDevice, one));
  CHECK_CUDA(cudaEventRecord(e, one)); /* later than the wait: not its point */
  CHECK(first_of(at, two) == 0);
  CHECK_CUDA(cudaEventSynchronize(e));
  CHECK(first_of(at, two) == 4);
  CHECK_CUDA(cudaEventDestroy(e));
  end();
  release(at, host);
}

static void work_of_a_destroyed_stream_is_still_done(void)
{
  begin();
  float *at = device_floats(), *host = pinned_floats(5);
  cudaEvent_t e;
  CHECK_CUDA(cudaEventCreate(&e));
  CHECK_CUDA(cudaMemcpyAsync(at, host, BYTES, cudaMemcpyHostToDevice, one));
  CHECK_CUDA(cudaEventRecord(e, one));
  CHECK_CUDA(cudaStreamWaitEvent(two, e, 0));
  CHECK_CUDA(cudaEventDestroy(e));
  CHECK_CUDA(cudaStreamDestroy(one));
  CHECK(cudaStreamSynchronize(one) == cudaErrorInvalidResourceHandle);
  CHECK(first_of(at, two) == 5);
  CHECK_CUDA(cudaStreamDestroy(two));
  cudaGetLastError();
  release(at, host);
}

static void the_null_stream_waits_for_blocking_streams_only(void)
{
  float *at = device_floats(), *host = pinned_floats(6), got[N];
  for (int blocking = 0; blocking < 2; blocking++) {
    cudaStream_t s;
    CHECK_CUDA(blocking ? cudaStreamCreate(&s) : cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking));
    CHECK_CUDA(cudaMemset(at, 0, BYTES));
    CHECK_CUDA(cudaDeviceSynchronize());
    CHECK_CUDA(cudaMemcpyAsync(at, host, BYTES, cudaMemcpyHostToDevice, s));
    CHECK_CUDA(cudaMemcpy(got, at, BYTES, cudaMemcpyDeviceToHost)); /* on the null stream */
    CHECK(got[0] == (blocking ? 6 : 0));
    CHECK_CUDA(cudaMemset(at, 0, BYTES));
    CHECK(first_of(at, s) == (blocking ? 0 : 6));
    CHECK_CUDA(cudaStreamDestroy(s));
  }
  release(at, host);
}

static void add_one(void *counter) { ++*(int *)counter; }
static void host_functions_run_in_order(void)
{
  begin();
  int counter = 0;
  CHECK_CUDA(cudaLaunchHostFunc(one, add_one, &counter));
  CHECK(counter == 0);
  CHECK_CUDA(cudaStreamSynchronize(one));
  CHECK(counter == 1);
  end();
}

/* --- values in memory ---------------------------------------------------------------- */

typedef CUresult (*value_function)(CUstream, CUdeviceptr, cuuint32_t, unsigned);
static value_function entry_point(const char *name)
{
  void *at = NULL;
  enum cudaDriverEntryPointQueryResult result;
  value_function f = NULL;
  CHECK_CUDA(cudaGetDriverEntryPointByVersion(name, &at, 12000, cudaEnableDefault, &result));
  CHECK(result == cudaDriverEntryPointSuccess);
  memcpy(&f, &at, sizeof f);
  return f;
}

static void *store_later(void *word)
{
  cudaStreamQuery(two); /* another thread may call */
  __atomic_store_n((uint32_t *)word, 7, __ATOMIC_RELEASE);
  return NULL;
}

static void a_stream_waits_for_a_value(void)
{
  begin();
  const value_function wait = entry_point("cuStreamWaitValue32"), write = entry_point("cuStreamWriteValue32");
  void *none = NULL;
  CHECK(cudaGetDriverEntryPointByVersion("cuNothing", &none, 12000, cudaEnableDefault, NULL) == cudaErrorSymbolNotFound);
  cudaGetLastError();
  float *at = device_floats(), *host = pinned_floats(8);
  uint32_t *word = (uint32_t *)pinned_floats(0);
  CHECK_CUDA(cudaMemsetAsync(at, 0, BYTES, one));
  CHECK(wait(one, (CUdeviceptr)(uintptr_t)word, 7, CU_STREAM_WAIT_VALUE_GEQ) == CUDA_SUCCESS);
  CHECK_CUDA(cudaMemcpyAsync(at, host, BYTES, cudaMemcpyHostToDevice, one));
  CHECK(cudaStreamQuery(one) == cudaErrorNotReady);
  CHECK(cudaGetLastError() == cudaErrorNotReady);
  CHECK(first_of(at, two) == 0);
  pthread_t thread;
  CHECK(pthread_create(&thread, NULL, store_later, word) == 0);
  CHECK_CUDA(cudaStreamSynchronize(one));
  CHECK(pthread_join(thread, NULL) == 0);
  CHECK(first_of(at, one) == 8);
  /* From stream to stream, also before the wait is seen. */
  CHECK(wait(one, (CUdeviceptr)(uintptr_t)word, 9, CU_STREAM_WAIT_VALUE_EQ) == CUDA_SUCCESS);
  CHECK(cudaStreamQuery(one) == cudaErrorNotReady);
  CHECK(write(two, (CUdeviceptr)(uintptr_t)word, 9, CU_STREAM_WRITE_VALUE_DEFAULT) == CUDA_SUCCESS);
  CHECK_CUDA(cudaStreamSynchronize(one)); /* the other stream goes on while this one waits */
  CHECK(wait(one, (CUdeviceptr)(uintptr_t)&at, 9, CU_STREAM_WAIT_VALUE_EQ) == CUDA_ERROR_INVALID_VALUE); /* pageable */
  cudaGetLastError();
  CHECK_CUDA(cudaFreeHost(word));
  end();
  release(at, host);
}

/* --- copies -------------------------------------------------------------------------------- */

static void pageable_memory_is_read_and_written_in_the_call(void)
{
  begin();
  float *at = device_floats(), mine[N], got[N];
  for (int i = 0; i < N; i++) mine[i] = 9;
  CHECK_CUDA(cudaMemcpyAsync(at, mine, BYTES, cudaMemcpyHostToDevice, one));
  mine[0] = 10;
  CHECK_CUDA(cudaMemcpyAsync(got, at, BYTES, cudaMemcpyDeviceToHost, one));
  CHECK(got[0] == 9);
  CHECK_CUDA(cudaHostRegister(mine, BYTES, cudaHostRegisterDefault)); /* now it is pinned */
  CHECK_CUDA(cudaMemcpyAsync(at, mine, BYTES, cudaMemcpyHostToDevice, one));
  mine[0] = 11;
  CHECK(first_of(at, one) == 11);
  CHECK_CUDA(cudaHostUnregister(mine));
  CHECK(cudaHostUnregister(mine) == cudaErrorHostMemoryNotRegistered);
  cudaGetLastError();
  end();
  CHECK_CUDA(cudaFree(at));
}

static void rows_are_copied_and_filled_with_their_pitch(void)
{
  float *at = device_floats(), *host = pinned_floats(1), got[6];
  for (int i = 0; i < 6; i++) host[i] = (float)i;
  CHECK_CUDA(cudaMemset(at, 0, BYTES));
  CHECK_CUDA(cudaMemcpy2DAsync(at, 12, host, 8, 8, 3, cudaMemcpyHostToDevice, NULL)); /* 3 rows of 2, 3 apart */
  CHECK_CUDA(cudaMemset2DAsync(at + 1, 12, 0, 4, 2, NULL));
  CHECK_CUDA(cudaMemcpy(got, at, sizeof got, cudaMemcpyDeviceToHost));
  const float want[6] = {0, 0, 0, 2, 0, 0};
  CHECK_SAME_BITS(got, want, sizeof got);
  release(at, host);
}

static void copies_that_cannot_be_are_refused(void)
{
  float *at = device_floats(), *host = pinned_floats(1);
  CHECK(cudaMemcpy(at, host, BYTES + 1, cudaMemcpyHostToDevice) == cudaErrorInvalidValue);
  CHECK(cudaMemcpy(at, host, BYTES, cudaMemcpyDeviceToHost) == cudaErrorInvalidValue);
  CHECK(cudaMemcpy(at + N / 2, at, BYTES, cudaMemcpyDeviceToDevice) == cudaErrorInvalidValue);
  CHECK(cudaMemset(at + 1, 0, BYTES) == cudaErrorInvalidValue);
  CHECK(cudaFree(at + 1) == cudaErrorInvalidValue);
  CHECK(cudaGetLastError() == cudaErrorInvalidValue);
  CHECK(cudaGetLastError() == cudaSuccess); /* none of these is sticky */
  release(at, host);
}

/* --- time, memory, devices ---------------------------------------------------------------------- */

static void events_tell_time_once_they_have_happened(void)
{
  begin();
  cudaEvent_t a, b, untimed;
  float ms = -1;
  CHECK_CUDA(cudaEventCreate(&a));
  CHECK_CUDA(cudaEventCreate(&b));
  CHECK_CUDA(cudaEventCreateWithFlags(&untimed, cudaEventDisableTiming));
  CHECK(cudaEventElapsedTime(&ms, a, b) == cudaErrorInvalidResourceHandle);
  CHECK_CUDA(cudaEventRecord(a, one));
  CHECK_CUDA(cudaEventRecord(b, one));
  CHECK_CUDA(cudaEventRecord(untimed, one));
  CHECK(cudaEventElapsedTime(&ms, a, b) == cudaErrorNotReady);
  CHECK_CUDA(cudaEventSynchronize(untimed));
  CHECK_CUDA(cudaEventElapsedTime(&ms, a, b));
  CHECK(ms >= 0);
  CHECK(cudaEventElapsedTime(&ms, a, untimed) == cudaErrorInvalidResourceHandle);
  cudaGetLastError();
  CHECK_CUDA(cudaEventDestroy(a));
  CHECK_CUDA(cudaEventDestroy(b));
  CHECK_CUDA(cudaEventDestroy(untimed));
  end();
}

static void memory_in_stream_order_is_of_that_order(void)
{
  begin();
  float *at = NULL, *again = NULL;
  size_t before, during, after, total;
  CHECK_CUDA(cudaMemGetInfo(&before, &total));
  CHECK_CUDA(cudaMallocAsync((void **)&at, BYTES, one));
  CHECK_CUDA(cudaMemGetInfo(&during, &total));
  CHECK(before - during == BYTES);
  CHECK_CUDA(cudaMemsetAsync(at, 0, BYTES, one));
  CHECK(first_of(at, one) == 0);
  CHECK_CUDA(cudaFreeAsync(at, one));
  CHECK_CUDA(cudaMallocAsync((void **)&again, BYTES, two)); /* not the same: it is not free yet */
  CHECK(again != at);
  CHECK_CUDA(cudaFreeAsync(again, two));
  CHECK_CUDA(cudaDeviceSynchronize());
  CHECK_CUDA(cudaMemGetInfo(&after, &total));
  CHECK(after == before);
  end();
}

static void memory_ends_where_the_card_does(void)
{
  void *a = NULL, *b = NULL;
  size_t free_bytes, total;
  setenv("CUDA_HOST_MEMORY_MIB", "4", 1);
  CHECK_CUDA(cudaMemGetInfo(&free_bytes, &total));
  CHECK(total == 4 << 20);
  CHECK_CUDA(cudaMalloc(&a, 3 << 20));
  CHECK(cudaMalloc(&b, (1 << 20) + 1) == cudaErrorMemoryAllocation && b == NULL);
  CHECK(cudaGetLastError() == cudaErrorMemoryAllocation);
  CHECK_CUDA(cudaMalloc(&b, 1 << 20));
  CHECK_CUDA(cudaFree(a));
  CHECK_CUDA(cudaFree(b));
  unsetenv("CUDA_HOST_MEMORY_MIB");
  CHECK_CUDA(cudaFree(NULL));
}

static void pointers_know_what_they_are(void)
{
  float *at = device_floats(), *host = pinned_floats(1), mine;
  struct cudaPointerAttributes is;
  CHECK_CUDA(cudaPointerGetAttributes(&is, at + 3));
  CHECK(is.type == cudaMemoryTypeDevice && is.devicePointer == at + 3);
  CHECK_CUDA(cudaPointerGetAttributes(&is, host));
  CHECK(is.type == cudaMemoryTypeHost);
  CHECK_CUDA(cudaPointerGetAttributes(&is, &mine));
  CHECK(is.type == cudaMemoryTypeUnregistered);
  CHECK(cuda_host_is_device(at, BYTES) && !cuda_host_is_device(at, BYTES + 1) && !cuda_host_is_device(host, 4));
  release(at, host);
}

static void devices_have_streams_and_names_of_their_own(void)
{
  int n, device;
  char bus[2][16];
  struct cudaDeviceProp p[2];
  CHECK_CUDA(cudaGetDeviceCount(&n));
  CHECK(n == 2);
  CHECK(cudaSetDevice(2) == cudaErrorInvalidDevice);
  begin();
  CHECK_CUDA(cudaSetDevice(1));
  CHECK_CUDA(cudaGetDevice(&device));
  CHECK(device == 1);
  cudaEvent_t e;
  CHECK_CUDA(cudaEventCreate(&e));
  CHECK(cudaEventRecord(e, one) == cudaErrorInvalidResourceHandle); /* an event of 1 on a stream of 0 */
  CHECK_CUDA(cudaEventDestroy(e));
  CHECK_CUDA(cudaSetDevice(0));
  end();
  cudaGetLastError();
  for (int i = 0; i < 2; i++) {
    CHECK_CUDA(cudaGetDeviceProperties(&p[i], i));
    CHECK_CUDA(cudaDeviceGetPCIBusId(bus[i], sizeof bus[i], i));
    CHECK_TEXT_HAS(p[i].name, "not a GPU");
  }
  CHECK(memcmp(&p[0].uuid, &p[1].uuid, sizeof p[0].uuid) != 0 && strcmp(bus[0], bus[1]) != 0);
}

int main(void)
{
  static const struct test tests[] = {
    TEST(nothing_runs_before_somebody_waits),
    TEST(a_missing_event_wait_shows),
    TEST(a_wait_holds_the_record_that_it_was_given),
    TEST(work_of_a_destroyed_stream_is_still_done),
    TEST(the_null_stream_waits_for_blocking_streams_only),
    TEST(host_functions_run_in_order),
    TEST(a_stream_waits_for_a_value),
    TEST(pageable_memory_is_read_and_written_in_the_call),
    TEST(rows_are_copied_and_filled_with_their_pitch),
    TEST(copies_that_cannot_be_are_refused),
    TEST(events_tell_time_once_they_have_happened),
    TEST(memory_in_stream_order_is_of_that_order),
    TEST(memory_ends_where_the_card_does),
    TEST(pointers_know_what_they_are),
    TEST(devices_have_streams_and_names_of_their_own),
  };
  setenv("CUDA_HOST_DEVICES", "2", 1);
  return test_main("host_stream", tests, sizeof tests / sizeof *tests);
}
