/* host_fibre.cpp - fibres: a stack each, and a switch of a few instructions without system calls.
 *
 * x86-64 and aarch64 save the registers that a call keeps; other machines, and a build with
 * HOST_FIBRE_UCONTEXT, use ucontext.  AddressSanitizer is told of each switch.
 */
#include "host_internal.h"

#include <cstdlib>
#include <sys/mman.h>
#include <unistd.h>

#if !defined(__x86_64__) && !defined(__aarch64__) && !defined(HOST_FIBRE_UCONTEXT)
#define HOST_FIBRE_UCONTEXT
#endif
#ifdef HOST_FIBRE_UCONTEXT
#include <ucontext.h>
#endif
#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
enum { STACK_BYTES = 256 * 1024 };
#else
enum { STACK_BYTES = 64 * 1024 };
#endif
enum { GUARD_BYTES = 4096, SLABS_MAX = 64, SLAB_FIBRES = 64 };

struct host_fibre {
  char *stack; /* lowest byte, above its guard */
  void (*main)(void);
  void *shadow; /* AddressSanitizer's */
#ifdef HOST_FIBRE_UCONTEXT
  ucontext_t context;
#else
  void *sp;
#endif
};

/* Stacks come in slabs: neighbours differ in where they begin inside a page, or all would meet in
 * the same lines of the cache. */
static char *slabs[SLABS_MAX];
static int n_slabs, left_in_slab;
static host_fibre system_fibre; /* whichever system thread runs the kernel */

static char *stack_create(void)
{
  const size_t each = STACK_BYTES + GUARD_BYTES;
  if (left_in_slab == 0) {
    if (n_slabs == SLABS_MAX) abort(); /* 1,024 threads a block need 16 */
    void *at = mmap(NULL, each * SLAB_FIBRES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (at == MAP_FAILED) {
      fprintf(stderr, "cuda_host: no memory for the stacks of a block\n");
      abort();
    }
    slabs[n_slabs++] = static_cast<char *>(at);
    left_in_slab = SLAB_FIBRES;
    for (int i = 0; i < SLAB_FIBRES; i++) mprotect(slabs[n_slabs - 1] + i * each, GUARD_BYTES, PROT_NONE);
  }
  left_in_slab--;
  return slabs[n_slabs - 1] + left_in_slab * each + GUARD_BYTES;
}

bool host_fibre_guards(const void *at)
{
  const size_t each = STACK_BYTES + GUARD_BYTES;
  for (int i = 0; i < n_slabs; i++) {
    const char *p = static_cast<const char *>(at);
    if (p >= slabs[i] && p < slabs[i] + each * SLAB_FIBRES) return (size_t)(p - slabs[i]) % each < GUARD_BYTES;
  }
  return false;
}

#ifndef HOST_FIBRE_UCONTEXT
extern "C" void host_fibre_swap(void **save, void *to);
#if defined(__x86_64__)
asm(R"(
.text
.globl host_fibre_swap
.hidden host_fibre_swap
.type host_fibre_swap, @function
host_fibre_swap:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
.size host_fibre_swap, .-host_fibre_swap
)");
enum { SAVED_WORDS = 7, RETURN_WORD = 6 };
#else
asm(R"(
.text
.globl host_fibre_swap
.hidden host_fibre_swap
.type host_fibre_swap, %function
host_fibre_swap:
  sub sp, sp, #160
  stp x19, x20, [sp, #0]
  stp x21, x22, [sp, #16]
  stp x23, x24, [sp, #32]
  stp x25, x26, [sp, #48]
  stp x27, x28, [sp, #64]
  stp x29, x30, [sp, #80]
  stp d8, d9, [sp, #96]
  stp d10, d11, [sp, #112]
  stp d12, d13, [sp, #128]
  stp d14, d15, [sp, #144]
  mov x9, sp
  str x9, [x0]
  mov sp, x1
  ldp x19, x20, [sp, #0]
  ldp x21, x22, [sp, #16]
  ldp x23, x24, [sp, #32]
  ldp x25, x26, [sp, #48]
  ldp x27, x28, [sp, #64]
  ldp x29, x30, [sp, #80]
  ldp d8, d9, [sp, #96]
  ldp d10, d11, [sp, #112]
  ldp d12, d13, [sp, #128]
  ldp d14, d15, [sp, #144]
  add sp, sp, #160
  ret
.size host_fibre_swap, .-host_fibre_swap
)");
enum { SAVED_WORDS = 20, RETURN_WORD = 11 };
#endif
#endif

/* The first thing on a fresh stack.  Nothing of it lies in memory that AddressSanitizer would
 * guard, since host_fibre_renew() leaves it without a return. */
__attribute__((no_sanitize_address)) static void fibre_begin(void);

static host_fibre *running; /* during a switch: where it goes */
#ifdef __SANITIZE_ADDRESS__
static const void *system_stack; /* of the system thread; NULL until a fibre was entered from it */
static size_t system_stack_bytes;
#endif

static void switched(void *shadow)
{
#ifdef __SANITIZE_ADDRESS__
  const void *bottom;
  size_t bytes;
  __sanitizer_finish_switch_fiber(shadow, &bottom, &bytes);
  if (system_stack == NULL) { /* it is known only by coming from it */
    system_stack = bottom;
    system_stack_bytes = bytes;
  }
#else
  (void)shadow;
#endif
}

static void fibre_begin(void)
{
  switched(NULL);
  running->main();
  abort();
}

void host_fibre_renew(host_fibre *f)
{
#ifdef __SANITIZE_ADDRESS__
  ASAN_UNPOISON_MEMORY_REGION(f->stack, STACK_BYTES);
#endif
  f->shadow = NULL;
#ifdef HOST_FIBRE_UCONTEXT
  getcontext(&f->context);
  f->context.uc_stack.ss_sp = f->stack;
  f->context.uc_stack.ss_size = STACK_BYTES;
  f->context.uc_link = NULL;
  makecontext(&f->context, fibre_begin, 0);
#else
  const size_t colour = ((uintptr_t)f->stack / (STACK_BYTES + GUARD_BYTES)) % 61 * 64;
  void **top = reinterpret_cast<void **>(f->stack + STACK_BYTES - colour);
  *--top = NULL; /* where fibre_begin would return to: the end for whoever walks the stack */
  top -= SAVED_WORDS;
#if defined(__aarch64__)
  top -= 1; /* the stack pointer stays a multiple of 16 */
#endif
  memset(top, 0, SAVED_WORDS * sizeof *top);
  top[RETURN_WORD] = reinterpret_cast<void *>(fibre_begin);
  f->sp = top;
#endif
}

host_fibre *host_fibre_create(void (*main)(void))
{
  host_fibre *f = new host_fibre{};
  f->stack = stack_create();
  f->main = main;
  host_fibre_renew(f);
  return f;
}

void host_fibre_leave(void)
{
  static host_fibre left;
  host_fibre_switch(&left, NULL);
  abort();
}

void host_fibre_switch(host_fibre *from, host_fibre *to)
{
  host_fibre *const out = from ? from : &system_fibre, *const in = to ? to : &system_fibre;
  running = in;
#ifdef __SANITIZE_ADDRESS__
  if (out == &system_fibre) system_stack = NULL; /* another system thread may be the one now */
  if (in == &system_fibre) __sanitizer_start_switch_fiber(&out->shadow, system_stack, system_stack_bytes);
  else __sanitizer_start_switch_fiber(&out->shadow, in->stack, STACK_BYTES);
#endif
#ifdef HOST_FIBRE_UCONTEXT
  swapcontext(&out->context, &in->context);
#else
  host_fibre_swap(&out->sp, in->sp);
#endif
  switched(out->shadow);
}
