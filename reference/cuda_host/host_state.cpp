/* host_state.cpp - the process's state: errors, devices, what the driver says it is. */
#include "host_internal.h"

#include "cuda.h"

#include <algorithm>
#include <cstdlib>
#include <unistd.h>

int host_environment(const char *name, int otherwise)
{
  const char *text = getenv(name);
  return text ? atoi(text) : otherwise;
}

/* As the driver reads CUDA_VISIBLE_DEVICES: numbers in the order in which they are to be seen, up to the first that is none. */
static int see_devices(int *physical)
{
  const int all = std::min(host_environment("CUDA_HOST_DEVICES", 1), (int)HOST_DEVICES_MAX);
  const char *text = getenv("CUDA_VISIBLE_DEVICES");
  int n = 0;
  if (text == NULL) {
    for (; n < all; n++) physical[n] = n;
    return n;
  }
  for (char *end; n < HOST_DEVICES_MAX; text = end + 1) {
    const long i = strtol(text, &end, 10);
    if (end == text || i < 0 || i >= all) break;
    physical[n++] = (int)i;
    if (*end != ',') break;
  }
  return n;
}

host_state &host_state_get(void)
{
  /* Lives as long as the process: what is still queued at exit stays undone, as on a GPU. */
  static host_state *h = [] {
    host_state *s = new host_state;
    s->devices = see_devices(s->physical);
    s->driver = host_environment("CUDA_HOST_DRIVER", CUDART_VERSION);
    s->random = (uint64_t)host_environment("CUDA_HOST_SEED", 1);
    return s;
  }();
  return *h;
}

uint64_t host_random(void) /* splitmix64 */
{
  uint64_t z = host_state_get().random += 0x9e3779b97f4a7c15u;
  z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
  z = (z ^ z >> 27) * 0x94d049bb133111ebu;
  return z ^ z >> 31;
}

host_entry::host_entry() : lock(host_state_get().lock) {}
host_entry::~host_entry() { host_memory_close(); }

/* --- errors ----------------------------------------------------------------------- */

static thread_local cudaError_t last_error;
static thread_local int device_now;

int host_device_now(void) { return device_now; }

cudaError_t host_return(cudaError_t error)
{
  const cudaError_t sticky = host_state_get().sticky;
  if (sticky != cudaSuccess) error = sticky;
  if (error != cudaSuccess) last_error = error;
  return error;
}

cudaError_t cudaPeekAtLastError(void)
{
  host_entry entry;
  const cudaError_t sticky = host_state_get().sticky;
  return sticky != cudaSuccess ? sticky : last_error;
}

cudaError_t cudaGetLastError(void)
{
  const cudaError_t error = cudaPeekAtLastError();
  last_error = cudaSuccess;
  return error;
}

void host_fail(cudaError_t error, const char *text)
{
  host_state &h = host_state_get();
  if (h.sticky != cudaSuccess) return;
  h.sticky = error;
  h.message = text;
  fprintf(stderr, "cuda_host: %s\n", text);
}

const char *cuda_host_message(void) { return host_state_get().message.c_str(); }

static const struct {
  cudaError_t error;
  const char *text;
} errors[] = {
  {cudaSuccess, "no error"},
  {cudaErrorInvalidValue, "invalid argument"},
  {cudaErrorMemoryAllocation, "out of memory"},
  {cudaErrorInitializationError, "initialization error"},
  {cudaErrorInvalidConfiguration, "invalid configuration argument"},
  {cudaErrorInsufficientDriver, "CUDA driver version is insufficient for CUDA runtime version"},
  {cudaErrorInvalidDeviceFunction, "invalid device function"},
  {cudaErrorNoDevice, "no CUDA-capable device is detected"},
  {cudaErrorInvalidDevice, "invalid device ordinal"},
  {cudaErrorECCUncorrectable, "uncorrectable ECC error encountered"},
  {cudaErrorInvalidResourceHandle, "invalid resource handle"},
  {cudaErrorSymbolNotFound, "named symbol not found"},
  {cudaErrorNotReady, "device not ready"},
  {cudaErrorIllegalAddress, "an illegal memory access was encountered"},
  {cudaErrorHostMemoryAlreadyRegistered, "part or all of the requested memory range is already mapped"},
  {cudaErrorHostMemoryNotRegistered, "pointer does not correspond to a registered memory region"},
  {cudaErrorLaunchFailure, "unspecified launch failure"},
};

const char *cudaGetErrorString(cudaError_t error)
{
  for (const auto &e : errors)
    if (e.error == error) return e.text;
  return "unrecognized error code";
}

/* --- devices ------------------------------------------------------------------------- */

/* A driver that is missing or too old refuses the first call that needs it. */
static cudaError_t usable(void)
{
  const host_state &h = host_state_get();
  if (h.sticky != cudaSuccess) return h.sticky;
  if (h.driver / 1000 < CUDART_VERSION / 1000) return cudaErrorInsufficientDriver;
  return h.devices <= 0 ? cudaErrorNoDevice : cudaSuccess;
}

static cudaError_t known(int device)
{
  const cudaError_t error = usable();
  if (error != cudaSuccess) return error;
  return device < 0 || device >= host_state_get().devices ? cudaErrorInvalidDevice : cudaSuccess;
}

cudaError_t cudaGetDeviceCount(int *count)
{
  host_entry entry;
  const cudaError_t error = usable();
  *count = error == cudaSuccess ? host_state_get().devices : 0;
  return host_return(error);
}

cudaError_t cudaDeviceCanAccessPeer(int *can, int device, int peer)
{
  host_entry entry;
  const int n = host_state_get().devices;
  if (can == NULL || device < 0 || device >= n || peer < 0 || peer >= n) return host_return(cudaErrorInvalidDevice);
  *can = device != peer;
  return host_return(cudaSuccess);
}

cudaError_t cudaSetDevice(int device)
{
  host_entry entry;
  const cudaError_t error = known(device);
  if (error == cudaSuccess) device_now = device;
  return host_return(error);
}

cudaError_t cudaGetDevice(int *device)
{
  host_entry entry;
  *device = device_now;
  return host_return(usable());
}

cudaError_t cudaGetDeviceProperties(struct cudaDeviceProp *p, int device)
{
  host_entry entry;
  const cudaError_t error = known(device);
  if (error != cudaSuccess) return host_return(error);
  *p = {};
  snprintf(p->name, sizeof p->name, "host build (not a GPU)");
  /* The device's number on this host and the host's name: two ranks on one device have one UUID. */
  char host[64] = "";
  gethostname(host, sizeof host - 1);
  uint64_t hash = 14695981039346656037u; /* FNV-1a */
  for (const char *c = host; *c; c++) hash = (hash ^ (unsigned char)*c) * 1099511628211u;
  memcpy(p->uuid.bytes, "hostdev", 7);
  p->uuid.bytes[7] = (char)host_state_get().physical[device];
  memcpy(p->uuid.bytes + 8, &hash, sizeof hash);
  p->totalGlobalMem = host_memory_total();
  p->sharedMemPerBlock = 48 * 1024;
  p->regsPerBlock = 65536;
  p->warpSize = 32;
  p->maxThreadsPerBlock = 1024;
  p->maxThreadsDim[0] = p->maxThreadsDim[1] = 1024;
  p->maxThreadsDim[2] = 64;
  p->maxGridSize[0] = 2147483647;
  p->maxGridSize[1] = p->maxGridSize[2] = 65535;
  p->major = 9;
  p->minor = 0;
  p->multiProcessorCount = 132;
  p->pciBusID = host_state_get().physical[device] + 1;
  p->memoryBusWidth = 5120;
  p->l2CacheSize = 50 << 20;
  p->maxThreadsPerMultiProcessor = 2048;
  p->sharedMemPerMultiprocessor = 228 * 1024;
  p->sharedMemPerBlockOptin = 227 * 1024;
  return cudaSuccess;
}

cudaError_t cudaDeviceGetPCIBusId(char *text, int bytes, int device)
{
  host_entry entry;
  const cudaError_t error = known(device);
  if (error != cudaSuccess) return host_return(error);
  if (bytes < 13) return host_return(cudaErrorInvalidValue);
  snprintf(text, (size_t)bytes, "0000:%02x:00.0", (unsigned)(host_state_get().physical[device] + 1) & 0xffu);
  return cudaSuccess;
}

cudaError_t cudaDeviceGetStreamPriorityRange(int *least, int *greatest)
{
  host_entry entry;
  *least = 0;
  *greatest = -5;
  return host_return(usable());
}

/* Everything of the process goes: streams, what they hold, memory, the sticky error. */
cudaError_t cudaDeviceReset(void)
{
  host_entry entry;
  host_state &h = host_state_get();
  host_streams_drop();
  host_memory_drop();
  h.dynamic_shared.clear();
  h.sticky = last_error = cudaSuccess;
  h.message.clear();
  return cudaSuccess;
}

cudaError_t cudaDriverGetVersion(int *version)
{
  *version = host_state_get().driver; /* 0: there is none */
  return cudaSuccess;
}
cudaError_t cudaRuntimeGetVersion(int *version)
{
  *version = CUDART_VERSION;
  return cudaSuccess;
}

/* --- the driver's entry points ------------------------------------------------------------ */

static CUresult value_checked(std::shared_ptr<CUstream_st> *out, CUstream stream, CUdeviceptr address)
{
  if (host_state_get().sticky != cudaSuccess) return CUDA_ERROR_LAUNCH_FAILED;
  *out = host_stream_of(stream);
  if (*out == NULL) return CUDA_ERROR_INVALID_HANDLE;
  const void *at = reinterpret_cast<const void *>(address);
  return address % 4 == 0 && (host_memory_pinned(at, 4) || host_memory_holds(at, 4)) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

static CUresult wait_value(CUstream handle, CUdeviceptr address, cuuint32_t value, unsigned flags)
{
  host_entry entry;
  std::shared_ptr<CUstream_st> stream;
  const CUresult result = value_checked(&stream, handle, address);
  if (result != CUDA_SUCCESS) return result;
  if (flags > CU_STREAM_WAIT_VALUE_EQ) return CUDA_ERROR_INVALID_VALUE;
  const auto *at = reinterpret_cast<const cuuint32_t *>(address);
  host_work work;
  work.name = "cuStreamWaitValue32";
  work.on_host = !host_memory_in_range(at);
  work.test = [at, value, flags](bool *done) {
    const cuuint32_t seen = __atomic_load_n(at, __ATOMIC_ACQUIRE);
    *done = flags == CU_STREAM_WAIT_VALUE_GEQ ? (int32_t)(seen - value) >= 0 : seen == value;
    return cudaSuccess;
  };
  host_stream_push(stream, std::move(work));
  return CUDA_SUCCESS;
}

static CUresult write_value(CUstream handle, CUdeviceptr address, cuuint32_t value, unsigned flags)
{
  host_entry entry;
  std::shared_ptr<CUstream_st> stream;
  const CUresult result = value_checked(&stream, handle, address);
  if (result != CUDA_SUCCESS) return result;
  if (flags != CU_STREAM_WRITE_VALUE_DEFAULT) return CUDA_ERROR_INVALID_VALUE;
  auto *at = reinterpret_cast<cuuint32_t *>(address);
  host_work work;
  work.name = "cuStreamWriteValue32";
  work.on_host = !host_memory_in_range(at);
  work.start = [at, value] {
    __atomic_store_n(at, value, __ATOMIC_RELEASE);
    return cudaSuccess;
  };
  host_stream_push(stream, std::move(work));
  return CUDA_SUCCESS;
}

cudaError_t cudaGetDriverEntryPointByVersion(const char *symbol, void **function, unsigned, unsigned long long,
                                             enum cudaDriverEntryPointQueryResult *result)
{
  host_entry entry;
  const cudaError_t error = usable();
  if (error != cudaSuccess) return host_return(error);
  *function = NULL;
  if (strcmp(symbol, "cuStreamWaitValue32") == 0) *function = reinterpret_cast<void *>(wait_value);
  if (strcmp(symbol, "cuStreamWriteValue32") == 0) *function = reinterpret_cast<void *>(write_value);
  if (result) *result = *function ? cudaDriverEntryPointSuccess : cudaDriverEntryPointSymbolNotFound;
  return *function ? cudaSuccess : host_return(cudaErrorSymbolNotFound);
}

