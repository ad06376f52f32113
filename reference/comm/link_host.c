/* link_host.c - what collectives do to the host's memory between the calls of a link. */
#include "comm/link_host.h"

#include "base/clock.h"
#include "comm/comm_state.h"
#include "comm/view.h"

#include <sched.h>
#include <string.h>

enum err link_host_pack(struct link *l, const struct tensor *t, int64_t first, int64_t count, void *at)
{
  (void)l;
  view_pack(t, first, count, at);
  return ERR_OK;
}

enum err link_host_unpack(struct link *l, const struct tensor *t, int64_t first, int64_t count, const void *at)
{
  (void)l;
  view_unpack(t, first, count, at);
  return ERR_OK;
}

enum err link_host_reduce(struct link *l, void *parts, int n, int64_t count, enum dtype type, enum comm_op op)
{
  (void)l;
  view_reduce(parts, n, count, type, op);
  return ERR_OK;
}

enum err link_host_copy(struct link *l, const struct tensor *to, const struct tensor *from)
{
  (void)l;
  for (int64_t row = 0; row < from->rows; row++)
    memmove(tensor_row(to, row), tensor_row(from, row), (size_t)from->cols * dtype_bytes(from->type));
  return ERR_OK;
}

enum err link_host_flip(struct link *l, void *byte, unsigned char bits)
{
  (void)l;
  *(unsigned char *)byte ^= bits;
  return ERR_OK;
}

enum err link_host_started(struct link *l, const struct link_mark *m)
{
  (void)l;
  trace_started(m->comm, m->op, m->sequence, m->step);
  return ERR_OK;
}

enum err link_host_done(struct link *l, const struct link_mark *m)
{
  (void)l;
  trace_done(m->comm, m->sequence);
  return ERR_OK;
}

enum err link_wait(struct link *l)
{
  double pause_ms = 0.02;
  for (int tries = 0;; tries++) {
    bool done = false;
    TRY(link_test(l, &done));
    if (done) return ERR_OK;
    if (tries < 16) {
      sched_yield();
      continue;
    }
    clock_sleep_ms(pause_ms);
    if (pause_ms < 1) pause_ms *= 1.5;
  }
}
