/* dev_gate.c - gates on the kernel's futex. */
#include "device/dev_gate.h"

#include <linux/futex.h>
#include <limits.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "a gate sleeps on the first half of its word");
static _Atomic uint32_t *low_half(struct dev_gate *g) { return (_Atomic uint32_t *)&g->word; }

void dev_futex_wait(_Atomic uint32_t *word, uint32_t value, long us)
{
  const struct timespec limit = {.tv_sec = us / 1000000, .tv_nsec = us % 1000000 * 1000};
  syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, value, us > 0 ? &limit : NULL, NULL, 0);
}

void dev_futex_wake(_Atomic uint32_t *word) { syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, INT_MAX, NULL, NULL, 0); }

void dev_gate_advance(struct dev_gate *g, int64_t value)
{
  const uint64_t old = atomic_exchange_explicit(&g->word, (uint64_t)value << 1, memory_order_release);
  if (old & 1) dev_futex_wake(low_half(g));
}

void dev_gate_await(struct dev_gate *g, int64_t value)
{
  uint64_t word = atomic_load_explicit(&g->word, memory_order_acquire);
  while ((int64_t)(word >> 1) < value) {
    if (!(word & 1) && !atomic_compare_exchange_strong_explicit(&g->word, &word, word | 1, memory_order_acquire,
                                                                memory_order_acquire))
      continue; /* it moved: look again before sleeping */
    dev_futex_wait(low_half(g), (uint32_t)(word | 1), 0);
    word = atomic_load_explicit(&g->word, memory_order_acquire);
  }
}
