/* host_memory.cpp - device memory: one reserved range of addresses that the host cannot touch
 * while no kernel or copy runs, and pinned host memory, which is ordinary.
 *
 * A block lies between guards that AddressSanitizer knows; without it they are filled with 0xFF
 * and looked at when the block is freed.  Fresh and freed memory is 0xFF: floats read NaN.
 */
#include "host_internal.h"

#include <csignal>
#include <cstdlib>
#include <sys/mman.h>
#include <unistd.h>

#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/asan_interface.h>
void cuda_host_poison(const void *at, size_t bytes) { ASAN_POISON_MEMORY_REGION(at, bytes); }
void cuda_host_unpoison(const void *at, size_t bytes) { ASAN_UNPOISON_MEMORY_REGION(at, bytes); }
#else
void cuda_host_poison(const void *, size_t) {}
void cuda_host_unpoison(const void *, size_t) {}
#endif

namespace {
const size_t RESERVED = (size_t)64 << 30, STEP = (size_t)2 << 20; /* a huge page at a time */
const size_t UNIT = 256, GUARD = 256;                              /* blocks are aligned to UNIT */

struct host_memory {
  char *base = NULL; /* RESERVED bytes                       */
  size_t ready = 0;  /* of them have been made usable        */
  bool open = false;
  std::map<char *, host_block> blocks;
  std::map<char *, size_t> unused;
  size_t used[HOST_DEVICES_MAX] = {};
  std::map<char *, size_t> pinned; /* true sizes */
  std::map<char *, bool> ours;     /* pinned and allocated here, not registered */
};
host_memory &memory(void)
{
  static host_memory &m = *new host_memory; /* lives as long as the process: nothing runs at exit */
  return m;
}
size_t round_up(size_t bytes, size_t unit) { return (bytes + unit - 1) / unit * unit; }
} // namespace

/* --- who may touch it -------------------------------------------------------------- */

void host_memory_open(void)
{
  host_memory &m = memory();
  if (m.open || m.ready == 0) return;
  m.open = true;
  mprotect(m.base, m.ready, PROT_READ | PROT_WRITE);
}

void host_memory_close(void)
{
  host_memory &m = memory();
  if (!m.open) return;
  m.open = false;
  mprotect(m.base, m.ready, PROT_NONE);
}

static struct sigaction before;

/* The fault is told with what it hit; then it happens again, to whoever handled it before. */
static void fault(int signal, siginfo_t *info, void *)
{
  char text[512];
  int n = 0;
  const char *at = static_cast<const char *>(info->si_addr), *where = host_stream_where();
  if (host_fibre_guards(at)) {
    n = snprintf(text, sizeof text, "cuda_host: %s: its stack is full\n", where);
  } else if (host_memory_in_range(at)) {
    char *first;
    const host_block *b = host_memory_find(at, &first);
    n = snprintf(text, sizeof text, "cuda_host: %s%s touched device memory at %p: ", *where ? "" : "the host", where, (const void *)at);
    if (b)
      n += snprintf(text + n, sizeof text - (size_t)n, "byte %zu of a block of %zu bytes on device %d\n", (size_t)(at - first), b->bytes,
                    b->device);
    else n += snprintf(text + n, sizeof text - (size_t)n, "no block is there\n");
  } else if (*where) {
    n = snprintf(text, sizeof text, "cuda_host: %s touched address %p\n", where, (const void *)at);
  }
  if (n > 0 && write(2, text, (size_t)n) < 0) n = 0;
  sigaction(signal, &before, NULL);
}

#ifdef __SANITIZE_ADDRESS__
extern "C" void __asan_on_error(void)
{
  const char *where = host_stream_where();
  if (*where) fprintf(stderr, "cuda_host: %s:\n", where);
}
#endif

/* The handler needs a stack of its own: a full one is among what it tells. */
void host_memory_watch(void)
{
  static thread_local char stack[64 * 1024];
  static thread_local bool watched;
  if (watched) return;
  watched = true;
  stack_t old = {};
  if (sigaltstack(NULL, &old) != 0 || !(old.ss_flags & SS_DISABLE)) return; /* this thread has one */
  stack_t mine = {};
  mine.ss_sp = stack;
  mine.ss_size = sizeof stack;
  sigaltstack(&mine, NULL);
}

static bool reserve(host_memory &m)
{
  if (m.base != NULL) return true;
  void *at = mmap(NULL, RESERVED, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (at == MAP_FAILED) return false;
  m.base = reinterpret_cast<char *>(round_up(reinterpret_cast<size_t>(at), STEP));
  struct sigaction action = {};
  action.sa_sigaction = fault;
  action.sa_flags = SA_SIGINFO | SA_ONSTACK;
  sigaction(SIGSEGV, &action, &before);
  return true;
}

/* --- blocks ------------------------------------------------------------------------- */

/* Bytes that become usable: inaccessible before, poisoned after. */
static bool extend(host_memory &m, size_t bytes)
{
  const size_t more = round_up(bytes + GUARD, STEP);
  if (m.ready + more > RESERVED - STEP) return false;
  char *const at = m.base + m.ready;
  host_memory_open();
  if (mprotect(at, more, PROT_READ | PROT_WRITE)) return false;
  m.open = true;
  madvise(at, more, MADV_HUGEPAGE);
  cuda_host_poison(at, more);
  m.ready += more;
  if (m.ready == more) { /* the first block has a guard before it too */
    cuda_host_unpoison(at, GUARD);
    memset(at, 0xFF, GUARD);
    cuda_host_poison(at, GUARD);
    m.unused[at + GUARD] = more - GUARD;
    return true;
  }
  /* Joined with the last piece if that is unused. */
  if (!m.unused.empty()) {
    auto last = std::prev(m.unused.end());
    if (last->first + last->second == at) {
      last->second += more;
      return true;
    }
  }
  m.unused[at] = more;
  return true;
}

static char *take(host_memory &m, size_t bytes)
{
  const size_t want = round_up(bytes, UNIT) + GUARD;
  for (int tries = 0; tries < 2; tries++) {
    auto best = m.unused.end();
    for (auto i = m.unused.begin(); i != m.unused.end(); ++i)
      if (i->second >= want && (best == m.unused.end() || i->second < best->second)) best = i;
    if (best != m.unused.end()) {
      char *const at = best->first;
      const size_t left = best->second - want;
      m.unused.erase(best);
      if (left > 0) m.unused[at + want] = left;
      return at;
    }
    if (tries == 0 && !extend(m, want)) return NULL;
  }
  return NULL;
}

static void give(host_memory &m, char *at, size_t bytes)
{
  size_t size = round_up(bytes, UNIT) + GUARD;
  auto after = m.unused.lower_bound(at);
  if (after != m.unused.end() && at + size == after->first) {
    size += after->second;
    after = m.unused.erase(after);
  }
  if (after != m.unused.begin()) {
    auto prior = std::prev(after);
    if (prior->first + prior->second == at) {
      prior->second += size;
      return;
    }
  }
  m.unused[at] = size;
}

/* A block's bytes and its guard, at the beginning or end of its life. */
static void fill(char *at, size_t bytes)
{
  host_memory_open();
  const size_t whole = round_up(bytes, UNIT) + GUARD;
  cuda_host_unpoison(at, whole);
  memset(at, 0xFF, whole);
  cuda_host_poison(at, whole);
}

static cudaError_t allocate(void **out, size_t bytes)
{
  host_memory &m = memory();
  const int device = host_device_now();
  *out = NULL;
  if (bytes == 0) return cudaSuccess;
  if (bytes > host_memory_total() || m.used[device] + bytes > host_memory_total()) return cudaErrorMemoryAllocation;
  if (!reserve(m)) return cudaErrorMemoryAllocation;
  char *const at = take(m, bytes);
  if (at == NULL) return cudaErrorMemoryAllocation;
  m.blocks[at] = host_block{bytes, device};
  m.used[device] += bytes;
  *out = at;
  return cudaSuccess;
}

static std::string written_past(char *at, size_t bytes)
{
#ifndef __SANITIZE_ADDRESS__
  host_memory_open();
  const size_t whole = round_up(bytes, UNIT) + GUARD;
  for (size_t i = bytes; i < whole; i++)
    if (static_cast<unsigned char>(at[i]) != 0xFF) {
      char text[160];
      snprintf(text, sizeof text, "byte %zu was written, in a block of %zu bytes of device memory", i, bytes);
      return text;
    }
#else
  (void)at;
  (void)bytes;
#endif
  return "";
}

static void end_of(char *at)
{
  host_memory &m = memory();
  const host_block b = m.blocks[at];
  const std::string past = written_past(at, b.bytes);
  if (!past.empty()) host_fail(cudaErrorIllegalAddress, past.c_str());
  fill(at, b.bytes);
  m.used[b.device] -= b.bytes;
  m.blocks.erase(at);
  give(m, at, b.bytes);
}

std::string host_memory_written_past(void)
{
  for (const auto &b : memory().blocks) {
    const std::string past = written_past(b.first, b.second.bytes);
    if (!past.empty()) return past;
  }
  return "";
}

const host_block *host_memory_find(const void *at, char **first)
{
  host_memory &m = memory();
  char *const p = static_cast<char *>(const_cast<void *>(at));
  auto i = m.blocks.upper_bound(p);
  if (i == m.blocks.begin()) return NULL;
  --i;
  if (p >= i->first + i->second.bytes) return NULL;
  *first = i->first;
  return &i->second;
}

bool host_memory_in_range(const void *at)
{
  const host_memory &m = memory();
  const char *p = static_cast<const char *>(at);
  return m.base != NULL && p >= m.base && p < m.base + RESERVED;
}

bool host_memory_holds(const void *at, size_t bytes)
{
  char *first;
  const host_block *b = host_memory_find(at, &first);
  return b != NULL && bytes <= b->bytes - (size_t)(static_cast<const char *>(at) - first);
}

bool host_memory_pinned(const void *at, size_t bytes)
{
  host_memory &m = memory();
  char *const p = static_cast<char *>(const_cast<void *>(at));
  auto i = m.pinned.upper_bound(p);
  if (i == m.pinned.begin()) return false;
  --i;
  return p + bytes <= i->first + i->second;
}

size_t host_memory_total(void)
{
  const char *text = getenv("CUDA_HOST_MEMORY_MIB");
  return (text ? strtoull(text, NULL, 10) : 8192) << 20;
}

void host_memory_drop(void)
{
  host_memory &m = memory();
  while (!m.blocks.empty()) {
    char *const at = m.blocks.begin()->first;
    const host_block b = m.blocks.begin()->second;
    fill(at, b.bytes);
    m.used[b.device] -= b.bytes;
    m.blocks.erase(at);
    give(m, at, b.bytes);
  }
}

/* --- CUDA's names ---------------------------------------------------------------------- */

void cuda_host_count(struct cuda_host_alive *out)
{
  host_entry entry;
  const host_state &h = host_state_get();
  int streams = 0;
  for (const auto &stream : h.streams) {
    bool made = !stream->closed;
    for (int i = 0; i < HOST_DEVICES_MAX; i++) made = made && stream != h.null_stream[i];
    streams += made;
  }
  out->streams = streams;
  out->blocks = (int)memory().blocks.size();
  out->pinned = (int)memory().pinned.size();
}

int cuda_host_is_device(const void *at, size_t bytes)
{
  host_entry entry;
  return host_memory_holds(at, bytes);
}

cudaError_t cudaMalloc(void **at, size_t bytes)
{
  HOST_ENTER();
  if (at == NULL) return host_return(cudaErrorInvalidValue);
  const cudaError_t error = allocate(at, bytes);
  if (error == cudaSuccess && *at != NULL) {
    fill(static_cast<char *>(*at), bytes);
    cuda_host_unpoison(*at, bytes);
  }
  return host_return(error);
}

/* Waits for the device, as CUDA does: no kernel under way loses its memory. */
cudaError_t cudaFree(void *at)
{
  HOST_ENTER();
  if (at == NULL) return cudaSuccess;
  if (memory().blocks.count(static_cast<char *>(at)) == 0) return host_return(cudaErrorInvalidValue);
  host_run(entry, host_all_work(host_device_now()), true);
  if (host_state_get().sticky == cudaSuccess) end_of(static_cast<char *>(at));
  return host_return(cudaSuccess);
}

/* The block is usable from here on in the stream's order; before that it is out of bounds. */
cudaError_t cudaMallocAsync(void **at, size_t bytes, cudaStream_t handle)
{
  HOST_ENTER();
  auto stream = host_stream_of(handle);
  if (at == NULL) return host_return(cudaErrorInvalidValue);
  if (stream == NULL) return host_return(cudaErrorInvalidResourceHandle);
  const cudaError_t error = allocate(at, bytes);
  if (error != cudaSuccess || *at == NULL) return host_return(error);
  char *const block = static_cast<char *>(*at);
  host_work work;
  work.name = "cudaMallocAsync";
  work.start = [block, bytes] {
    fill(block, bytes);
    cuda_host_unpoison(block, bytes);
    return cudaSuccess;
  };
  host_stream_push(stream, std::move(work));
  return host_return(cudaSuccess);
}

cudaError_t cudaFreeAsync(void *at, cudaStream_t handle)
{
  HOST_ENTER();
  auto stream = host_stream_of(handle);
  if (stream == NULL) return host_return(cudaErrorInvalidResourceHandle);
  if (at == NULL) return cudaSuccess;
  char *const block = static_cast<char *>(at);
  if (memory().blocks.count(block) == 0) return host_return(cudaErrorInvalidValue);
  host_work work;
  work.name = "cudaFreeAsync";
  work.start = [block] {
    if (memory().blocks.count(block) == 0) return cudaErrorInvalidValue; /* freed twice */
    end_of(block);
    return cudaSuccess;
  };
  host_stream_push(stream, std::move(work));
  return host_return(cudaSuccess);
}

cudaError_t cudaMemGetInfo(size_t *free_bytes, size_t *total_bytes)
{
  HOST_ENTER();
  *total_bytes = host_memory_total();
  *free_bytes = *total_bytes - memory().used[host_device_now()];
  return cudaSuccess;
}

cudaError_t cudaHostAlloc(void **at, size_t bytes, unsigned)
{
  HOST_ENTER();
  if (at == NULL) return host_return(cudaErrorInvalidValue);
  *at = NULL;
  if (bytes == 0) return cudaSuccess;
  char *const block = static_cast<char *>(operator new(bytes, std::align_val_t(4096), std::nothrow));
  if (block == NULL) return host_return(cudaErrorMemoryAllocation);
  memory().pinned[block] = bytes;
  memory().ours[block] = true;
  *at = block;
  return cudaSuccess;
}
cudaError_t cudaMallocHost(void **at, size_t bytes) { return cudaHostAlloc(at, bytes, cudaHostAllocDefault); }

cudaError_t cudaFreeHost(void *at)
{
  HOST_ENTER();
  if (at == NULL) return cudaSuccess;
  char *const block = static_cast<char *>(at);
  if (memory().ours.count(block) == 0) return host_return(cudaErrorInvalidValue);
  host_run(entry, host_all_work(host_device_now()), true); /* as cudaFree */
  memory().pinned.erase(block);
  memory().ours.erase(block);
  operator delete(at, std::align_val_t(4096));
  return host_return(cudaSuccess);
}

cudaError_t cudaHostRegister(void *at, size_t bytes, unsigned)
{
  HOST_ENTER();
  if (at == NULL || bytes == 0) return host_return(cudaErrorInvalidValue);
  if (host_memory_pinned(at, 1)) return host_return(cudaErrorHostMemoryAlreadyRegistered);
  memory().pinned[static_cast<char *>(at)] = bytes;
  return cudaSuccess;
}

cudaError_t cudaHostUnregister(void *at)
{
  HOST_ENTER();
  char *const block = static_cast<char *>(at);
  if (memory().pinned.count(block) == 0 || memory().ours.count(block) != 0) return host_return(cudaErrorHostMemoryNotRegistered);
  memory().pinned.erase(block);
  return cudaSuccess;
}

cudaError_t cudaPointerGetAttributes(struct cudaPointerAttributes *attributes, const void *at)
{
  HOST_ENTER();
  char *first;
  const host_block *b = host_memory_find(at, &first);
  void *const p = const_cast<void *>(at);
  if (b != NULL) *attributes = {cudaMemoryTypeDevice, b->device, p, NULL};
  else if (host_memory_pinned(at, 1)) *attributes = {cudaMemoryTypeHost, host_device_now(), p, p};
  else *attributes = {cudaMemoryTypeUnregistered, -2, NULL, p};
  return cudaSuccess;
}
