/* host_launch.cpp - a kernel: blocks one after the other, each a group of fibres.
 *
 * A thread runs until it ends or must wait: at a barrier for the block, in a warp function for
 * the lanes of its mask.  Then one of those that can go on does, by an order that is drawn anew
 * whenever a barrier or a warp function is complete: what relies on a barrier that is missing
 * meets memory as it was before.  A fibre whose thread has ended takes the next thread that has
 * not begun, so a kernel that waits for nothing is a loop.
 *
 * Stricter than a GPU, like compute-sanitizer: a thread that has ended counts as missing at a
 * barrier, and a mask must name lanes that exist and come.
 */
#include "host_internal.h"

#include <cstdarg>
#include <numeric>

enum { THREADS_MAX = 1024, WARP = 32, WARPS_MAX = THREADS_MAX / WARP };
enum { SHARED_STATIC_MAX = 48 * 1024, SHARED_MAX = 227 * 1024, SHARED_ROOM = SHARED_MAX + 16 * 1024, SHARED_GUARD = 32 };

typedef void (*act_function)(void *const lanes[32], unsigned mask);

struct async_copy {
  char *to;
  const char *from;
  size_t bytes, valid;
  bool last; /* of its group */
};

struct thread {
  host_fibre *fibre; /* NULL: not begun, or ended */
  uint3 index;
  int number;
  std::vector<async_copy> copies; /* cp.async, oldest first; those before `first` are done */
  size_t first;
  int groups; /* committed and open */
};

struct warp {
  unsigned exists, ready, ended, waiting;
  unsigned mask[WARP]; /* of each lane that waits, with what it gave and wants done */
  void *mine[WARP];
  act_function act[WARP];
  const char *what[WARP];
};

static struct {
  const char *kernel; /* NULL: none runs */
  const std::function<void()> *body;
  uint64_t serial; /* of the block: no two are the same */
  int n, live, arrived;
  unsigned ready_warps;
  int warp_now;
  unsigned order; /* drawn: by which ready ones are taken */
  uint64_t random;
  int votes_any, votes, voted_any, voted; /* being counted, and of the last barrier */
  thread *now;
  bool failed;
  std::string why;
  size_t shared_dynamic, shared_used, shared_static;
  warp warps[WARPS_MAX];
  thread threads[THREADS_MAX];
} b;

alignas(1024) static char shared_memory[SHARED_ROOM];
/* They live as long as the process, whose streams may still be at work. */
static std::vector<host_fibre *> &idle = *new std::vector<host_fibre *>, &all_fibres = *new std::vector<host_fibre *>;

uint3 threadIdx, blockIdx;
dim3 blockDim, gridDim;

static unsigned draw(void) /* xorshift64 */
{
  b.random ^= b.random << 13;
  b.random ^= b.random >> 7;
  b.random ^= b.random << 17;
  return (unsigned)(b.random >> 32);
}

const char *host_launch_where(void)
{
  static char text[256];
  if (b.kernel == NULL) return "";
  snprintf(text, sizeof text, "kernel '%s', block (%u,%u,%u), thread (%u,%u,%u)", b.kernel, blockIdx.x, blockIdx.y, blockIdx.z, threadIdx.x,
           threadIdx.y, threadIdx.z);
  return text;
}

/* --- who runs ---------------------------------------------------------------------- */

/* One bit of `mask`, counted up or down from a drawn one. */
static int choose(unsigned mask, unsigned order)
{
  const unsigned turn = order & 31, turned = mask >> turn | mask << ((32 - turn) & 31);
  const unsigned i = order & 32 ? 31u - (unsigned)__builtin_clz(turned) : (unsigned)__builtin_ctz(turned);
  return (int)((i + turn) & 31);
}

/* The next thread, taken from the ready ones; the warp that runs goes on first.  NULL: none. */
static thread *next_thread(void)
{
  if (b.ready_warps == 0) return NULL;
  if (!(b.ready_warps >> b.warp_now & 1)) b.warp_now = choose(b.ready_warps, b.order >> 8);
  warp *w = &b.warps[b.warp_now];
  const int lane = choose(w->ready, b.order);
  w->ready &= ~(1u << lane);
  if (w->ready == 0) b.ready_warps &= ~(1u << b.warp_now);
  return &b.threads[b.warp_now * WARP + lane];
}

static void make_ready(warp *w, unsigned lanes)
{
  if (lanes == 0) return;
  w->ready |= lanes;
  b.ready_warps |= 1u << (w - b.warps);
}

static void enter(thread *t)
{
  b.now = t;
  threadIdx = t->index;
}

/* The launch has failed: back to whoever runs the block; this fibre is not resumed. */
[[noreturn]] static void fail(const char *format, ...)
{
  char text[512];
  int n = snprintf(text, sizeof text, "%s: ", host_launch_where());
  va_list list;
  va_start(list, format);
  vsnprintf(text + n, sizeof text - (size_t)n, format, list);
  va_end(list);
  b.failed = true;
  b.why = text;
  host_fibre_leave();
}

/* All that is left waits for who will not come. */
[[noreturn]] static void fail_stuck(void)
{
  for (int i = 0; i < b.n; i++) {
    const warp *w = &b.warps[i / WARP];
    if (!(w->waiting >> i % WARP & 1)) continue;
    const unsigned missing = w->mask[i % WARP] & ~w->waiting;
    enter(&b.threads[i]);
    if (missing) fail("%s waits for lanes 0x%08x of its warp, which are elsewhere", w->what[i % WARP], missing);
  }
  fail("__syncthreads is reached by %d of %d threads", b.arrived, b.n);
}

static void give_way(void)
{
  thread *const me = b.now, *const t = next_thread();
  if (t == me) return;
  if (t == NULL) fail_stuck();
  if (t->fibre == NULL) {
    t->fibre = idle.back();
    idle.pop_back();
  }
  enter(t);
  host_fibre_switch(me->fibre, t->fibre);
}

static void forget_copies(thread *t)
{
  t->copies.clear();
  t->first = 0;
  t->groups = 0;
}

static void end_thread(thread *t)
{
  warp *w = &b.warps[t->number / WARP];
  const unsigned bit = 1u << t->number % WARP;
  w->ended |= bit;
  b.live--;
  forget_copies(t);
  if (b.arrived > 0) fail("has ended while %d threads wait at __syncthreads", b.arrived);
  for (unsigned left = w->waiting; left != 0; left &= left - 1) {
    const int lane = __builtin_ctz(left);
    if (w->mask[lane] & bit) fail("has ended while lane %d waits for it in %s", lane, w->what[lane]);
  }
}

static void fibre_main(void)
{
  for (;;) {
    thread *const t = b.now;
    (*b.body)();
    end_thread(t);
    host_fibre *const me = t->fibre;
    t->fibre = NULL;
    thread *const next = next_thread();
    if (next != NULL && next->fibre == NULL) {
      next->fibre = me;
      enter(next);
      continue;
    }
    idle.push_back(me);
    if (next != NULL) {
      enter(next);
      host_fibre_switch(me, next->fibre);
    } else {
      if (b.live > 0) fail_stuck();
      host_fibre_switch(me, NULL);
    }
  }
}

/* --- barriers and lanes that meet ---------------------------------------------------- */

static void barrier(int predicate)
{
  if (b.live != b.n) fail("is at __syncthreads, which %d threads of the block have ended without", b.n - b.live);
  b.votes += predicate != 0;
  b.arrived++;
  if (b.arrived == b.n) {
    b.voted = b.votes;
    b.votes = b.arrived = 0;
    for (warp *w = b.warps; w < b.warps + (b.n + WARP - 1) / WARP; w++) make_ready(w, w->exists);
    b.order = draw();
    b.warp_now = choose(b.ready_warps, b.order >> 8);
  }
  give_way();
}

void __syncthreads(void) { barrier(0); }
int __syncthreads_or(int predicate)
{
  barrier(predicate);
  return b.voted > 0;
}
int __syncthreads_and(int predicate)
{
  barrier(predicate);
  return b.voted == b.n;
}
int __syncthreads_count(int predicate)
{
  barrier(predicate);
  return b.voted;
}

void __trap(void) { fail("__trap"); }

int cuda_host_lane(void) { return b.now->number % WARP; }

void cuda_host_warp(unsigned mask, void *mine, act_function act, const char *what)
{
  warp *const w = &b.warps[b.now->number / WARP];
  const int lane = b.now->number % WARP;
  if (!(mask >> lane & 1)) fail("%s with mask 0x%08x, in which its own lane %d is missing", what, mask, lane);
  if (mask & ~w->exists) fail("%s with mask 0x%08x names lanes that do not exist: the warp has 0x%08x", what, mask, w->exists);
  if (mask & w->ended) fail("%s with mask 0x%08x names lanes 0x%08x, which have ended", what, mask, mask & w->ended);
  w->mask[lane] = mask;
  w->mine[lane] = mine;
  w->act[lane] = act;
  w->what[lane] = what;
  w->waiting |= 1u << lane;
  if ((w->waiting & mask) != mask) {
    give_way();
    return;
  }
  for (unsigned left = mask; left != 0; left &= left - 1) {
    const int other = __builtin_ctz(left);
    if (w->mask[other] != mask || w->act[other] != act)
      fail("%s with mask 0x%08x meets lane %d in %s with mask 0x%08x", what, mask, other, w->what[other], w->mask[other]);
  }
  act(w->mine, mask);
  w->waiting &= ~mask;
  make_ready(w, mask & ~(1u << lane));
  b.order = draw();
}

/* --- shared memory ----------------------------------------------------------------------- */

void *cuda_host_shared(cuda_host_site *site, size_t bytes, size_t align)
{
  if (site->block == b.serial) return site->at;
  if (align < 16) align = 16;
  const size_t at = (b.shared_used + align - 1) / align * align;
  b.shared_static += bytes;
  if (b.shared_static > SHARED_STATIC_MAX || b.shared_static + b.shared_dynamic > SHARED_MAX || at + bytes + SHARED_GUARD > SHARED_ROOM)
    fail("%zu bytes of static and %zu of dynamic shared memory are more than a block has", b.shared_static, b.shared_dynamic);
  b.shared_used = at + bytes + SHARED_GUARD;
  site->block = b.serial;
  site->at = shared_memory + at;
  cuda_host_unpoison(site->at, bytes);
  return site->at;
}

void *cuda_host_shared_dynamic(void) { return shared_memory; }

static void begin_shared(size_t dynamic)
{
  b.shared_dynamic = dynamic;
  b.shared_static = 0;
  b.shared_used = dynamic + SHARED_GUARD;
  cuda_host_unpoison(shared_memory, dynamic);
}
static void end_shared(void)
{
  cuda_host_unpoison(shared_memory, b.shared_used);
  memset(shared_memory, 0xFF, b.shared_used);
  cuda_host_poison(shared_memory, b.shared_used);
}

/* --- cp.async -------------------------------------------------------------------------------- */

void cuda_host_async_copy(void *shared, const void *global, size_t bytes, size_t valid)
{
  b.now->copies.push_back(async_copy{static_cast<char *>(shared), static_cast<const char *>(global), bytes, valid, false});
}

void cuda_host_async_commit(void)
{
  thread *t = b.now;
  /* A group may be empty: it copies nothing, and is counted. */
  if (t->copies.size() == t->first || t->copies.back().last) t->copies.push_back(async_copy{NULL, NULL, 0, 0, true});
  else t->copies.back().last = true;
  t->groups++;
}

void cuda_host_async_wait(int groups_left)
{
  thread *t = b.now;
  while (t->groups > groups_left) {
    const async_copy &c = t->copies[t->first++];
    if (c.valid > 0) memcpy(c.to, c.from, c.valid);
    if (c.bytes > c.valid) memset(c.to + c.valid, 0, c.bytes - c.valid);
    if (c.last) t->groups--;
  }
  if (t->first == t->copies.size()) {
    t->copies.clear();
    t->first = 0;
  }
}

/* --- launches ----------------------------------------------------------------------------------- */

static void begin_block(void)
{
  b.serial++;
  b.live = b.n;
  b.arrived = 0;
  b.votes = 0;
  b.ready_warps = 0;
  for (int i = 0; i * WARP < b.n; i++) {
    warp *w = &b.warps[i];
    const int lanes = b.n - i * WARP < WARP ? b.n - i * WARP : WARP;
    w->exists = lanes == WARP ? ~0u : (1u << lanes) - 1;
    w->ended = w->waiting = w->ready = 0;
    make_ready(w, w->exists);
  }
  b.order = draw();
  b.warp_now = choose(b.ready_warps, b.order >> 8);
}

static void run_block(void)
{
  thread *const first = next_thread();
  first->fibre = idle.back();
  idle.pop_back();
  enter(first);
  host_fibre_switch(NULL, first->fibre);
}

/* Fibres that a failed block left in the middle of their threads. */
static void abandon_fibres(void)
{
  idle = all_fibres;
  for (host_fibre *f : all_fibres) host_fibre_renew(f);
  for (thread &t : b.threads) {
    t.fibre = NULL;
    forget_copies(&t);
  }
}

/* CUDA_HOST_ECC_AT: whether this kernel is the one. */
static bool hits_bad_memory(void)
{
  static int64_t ran;
  static const int at = host_environment("CUDA_HOST_ECC_AT", 0);
  return ++ran == at;
}

static cudaError_t run(const char *name, dim3 grid, dim3 block, size_t shared, const std::function<void()> &body)
{
  host_memory_watch();
  if (hits_bad_memory()) {
    host_fail(cudaErrorECCUncorrectable, (std::string("kernel '") + name + "' met an uncorrectable ECC error").c_str());
    return cudaErrorECCUncorrectable;
  }
  b.kernel = name;
  b.body = &body;
  b.failed = false;
  b.random = host_random() | 1;
  b.n = (int)(block.x * block.y * block.z);
  blockDim = block;
  gridDim = grid;
  for (int i = 0; i < b.n; i++) {
    b.threads[i].number = i;
    b.threads[i].index = uint3{(unsigned)i % block.x, (unsigned)i / block.x % block.y, (unsigned)i / (block.x * block.y)};
  }
  /* A thread more than the block has, for whoever takes a fibre before another gives one back. */
  while ((int)all_fibres.size() <= b.n) {
    all_fibres.push_back(host_fibre_create(fibre_main));
    idle.push_back(all_fibres.back());
  }
  if (b.serial == 0) {
    b.shared_used = SHARED_ROOM;
    end_shared();
  }
  /* Every block once: a stride that shares no factor with their number. */
  const uint64_t blocks = (uint64_t)grid.x * grid.y * grid.z;
  uint64_t stride = blocks > 1 ? host_random() % blocks : 1, at = host_random() % blocks;
  while (std::gcd(stride, blocks) != 1) stride++;
  for (uint64_t i = 0; i < blocks && !b.failed; i++, at = (at + stride) % blocks) {
    blockIdx = uint3{(unsigned)(at % grid.x), (unsigned)(at / grid.x % grid.y), (unsigned)(at / grid.x / grid.y)};
    begin_block();
    begin_shared(shared);
    run_block();
    end_shared();
  }
  b.kernel = NULL;
  if (!b.failed) return cudaSuccess;
  abandon_fibres();
  host_fail(cudaErrorLaunchFailure, b.why.c_str());
  return cudaErrorLaunchFailure;
}

cudaError_t cuda_host_launch_body(const char *name, const void *kernel, dim3 grid, dim3 block, size_t shared, cudaStream_t handle,
                                  std::function<void()> body)
{
  HOST_ENTER();
  host_state &h = host_state_get();
  auto stream = host_stream_of(handle);
  if (stream == NULL || stream->device != host_device_now()) return host_return(cudaErrorInvalidResourceHandle);
  const uint64_t threads = (uint64_t)block.x * block.y * block.z;
  if (threads == 0 || threads > THREADS_MAX || block.z > 64 || grid.x == 0 || grid.x > 2147483647u || grid.y == 0 || grid.y > 65535 ||
      grid.z == 0 || grid.z > 65535)
    return host_return(cudaErrorInvalidConfiguration);
  const auto raised = h.dynamic_shared.find(kernel);
  const size_t limit = raised == h.dynamic_shared.end() ? (size_t)SHARED_STATIC_MAX : (size_t)raised->second;
  if (shared > limit) return host_return(cudaErrorInvalidValue);
  host_work work;
  work.name = name;
  work.start = [=] { return run(name, grid, block, shared, body); };
  host_stream_push(stream, std::move(work));
  return host_return(cudaSuccess);
}

cudaError_t cudaFuncSetAttribute(const void *kernel, enum cudaFuncAttribute attribute, int value)
{
  HOST_ENTER();
  if (kernel == NULL) return host_return(cudaErrorInvalidDeviceFunction);
  if (attribute != cudaFuncAttributeMaxDynamicSharedMemorySize || value < 0 || value > SHARED_MAX) return host_return(cudaErrorInvalidValue);
  host_state_get().dynamic_shared[kernel] = value;
  return cudaSuccess;
}
