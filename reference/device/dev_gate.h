/* dev_gate.h - a counter that only grows, and threads that sleep until it has
 * reached a value.
 *
 * One thread advances a gate, any may wait.  All that the advancing thread did
 * before is seen by whoever saw the value, and nothing flows the other way:
 * ThreadSanitizer then knows of exactly the order that queues and events give.
 */
#ifndef DEVICE_DEV_GATE_H
#define DEVICE_DEV_GATE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

struct dev_gate {
  _Atomic uint64_t word; /* value * 2 + 1 while someone sleeps */
};

void dev_gate_advance(struct dev_gate *g, int64_t value);
void dev_gate_await(struct dev_gate *g, int64_t value);

static inline int64_t dev_gate_value(struct dev_gate *g)
{
  return (int64_t)(atomic_load_explicit(&g->word, memory_order_acquire) >> 1);
}

/* Sleep while *word is `value`, at most `us` microseconds (0: no limit).  May return early. */
void dev_futex_wait(_Atomic uint32_t *word, uint32_t value, long us);
void dev_futex_wake(_Atomic uint32_t *word); /* all sleepers */

#endif
