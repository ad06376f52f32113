/* offload_test.c - a walk over state on the host leaves what one in place would, and every copy has its order. */
#include "optim/offload.h"

#include "base/clock.h"
#include "device/dev_mirror.h"
#include "ops/ops.h"
#include "testing/check.h"

#include <stdlib.h>
#include <string.h>

enum { WINDOWS = 8, PIECES = 24, WALKS = 5, BUFFERS = 3 };

/* Elements of each window of one shard, in the order of the buffer; 0 ends them.  pieces: start and count in the buffer. */
struct shape {
  int64_t windows[WINDOWS];
  struct {
    int64_t at, count;
  } pieces[PIECES];
};

static const struct shape shapes[] = {
  {{1}, {{0, 1}}},                                          /* one element                                  */
  {{64}, {{0, 64}}},                                        /* exactly one window                           */
  {{64, 1}, {{0, 65}}},                                     /* and one element more                         */
  {{1, 64}, {{0, 65}}},
  {{64, 64}, {{0, 64}, {64, 64}}},                          /* as many windows as places                    */
  {{64, 64, 64}, {{0, 50}, {50, 100}, {150, 42}}},          /* a piece over three                           */
  {{7, 64, 1, 33, 64, 2, 64}, {{0, 235}}},                  /* many, an odd number                          */
  {{7, 64, 1, 33, 64, 2, 64, 5}, {{100, 140}, {3, 90}}},    /* an even number; gaps; not in order           */
  {{16, 16, 16, 16, 16}, {{0, 8}, {64, 16}}},               /* windows in which nothing takes updates       */
  {{16, 16, 16}, {{20, 3}}},                                /* one window that does, of several             */
  {{16, 16}, {{0, 0}}},                                     /* none                                         */
};
enum { SHAPES = sizeof shapes / sizeof *shapes };

struct rig {
  const struct shape *shape;
  struct flat_bucket buckets[WINDOWS];
  struct flat flat;
  struct flat_piece pieces[PIECES];
  int n_pieces;
  struct dev *dev;
  struct dev_stream *compute;
  struct flat_buffer state[BUFFERS];
  double *gradients; /* device: of a shard */
  struct offload *offload;
  int updates;
};

/* `shards` of which this is one: the flat buffer is as many times as large. */
static void lay_out(struct rig *r, int shards)
{
  int n = 0;
  r->flat = (struct flat){.shards = shards, .buckets = r->buckets};
  for (; n < WINDOWS && r->shape->windows[n] > 0; n++) r->flat.count += r->shape->windows[n] * shards;
  r->flat.n_buckets = n;
  int64_t at = 0;
  for (int w = 0; w < n; w++) { /* buckets are numbered from the buffer's end */
    r->buckets[n - 1 - w] = (struct flat_bucket){.first = at, .count = r->shape->windows[w] * shards};
    at += r->shape->windows[w] * shards;
  }
  for (int k = 0; k < PIECES && r->shape->pieces[k].count > 0; k++)
    r->pieces[r->n_pieces++] = (struct flat_piece){k, 0, r->shape->pieces[k].at, r->shape->pieces[k].count};
  for (int k = 0; k < r->n_pieces; k++)
    if (shards == 1) r->pieces[k].flat = r->pieces[k].shard;
}

static int64_t elements(const struct rig *r) { return r->flat.count / r->flat.shards; }
static double start_of(int buffer, int64_t i) { return 1000.0 * (buffer + 1) + (double)i; }
static double gradient_of(int64_t i) { return 1.0 + (double)(i % 7); }

static bool rig_open(struct rig *r, const struct shape *shape, int shards, const struct dev_config *d)
{
  memset(r, 0, sizeof *r);
  r->shape = shape;
  lay_out(r, shards);
  void *at = NULL;
  const struct dev_config here = mirror_config(d);
  const size_t bytes = (size_t)elements(r) * sizeof(double);
  if (!CHECK_OK(dev_open(&here, &r->dev)) || !CHECK_OK(dev_stream_open(r->dev, "compute", DEV_COMPUTE, &r->compute)) ||
      !CHECK_OK(dev_alloc(r->dev, bytes, DEV_GRADIENTS, "gradients", &at)))
    return false;
  r->gradients = at;
  double *host = malloc(bytes + 1);
  for (int64_t i = 0; host && i < elements(r); i++) host[i] = gradient_of(i);
  const bool there = CHECK(host != NULL) && CHECK_OK(dev_copy_in(r->compute, at, host, bytes)) && CHECK_OK(dev_sync(r->dev));
  free(host);
  const enum flat_hold hold = shards > 1 ? FLAT_SHARD : FLAT_WHOLE;
  for (int b = 0; there && b < BUFFERS; b++) {
    if (!CHECK_OK(offload_buffer(r->dev, &r->flat, "state", DTYPE_F64, hold, &r->state[b]))) return false;
    for (int64_t i = 0; i < elements(r); i++) {
      CHECK(((double *)r->state[b].at)[i] == 0.0);
      ((double *)r->state[b].at)[i] = start_of(b, i);
    }
  }
  return there;
}

static struct offload_config config_of(const struct rig *r)
{
  return (struct offload_config){.flat = &r->flat, .compute = r->compute, .buffers = {r->state[0], r->state[1], r->state[2]},
                                 .n_buffers = BUFFERS, .pieces = r->pieces, .n_pieces = r->n_pieces};
}

static bool rig_start(struct rig *r)
{
  const struct offload_config c = config_of(r);
  return CHECK_OK(offload_create(&c, &r->offload));
}

static void rig_close(struct rig *r)
{
  offload_destroy(r->offload);
  for (int b = 0; r->dev && b < BUFFERS; b++) offload_free(r->dev, &r->state[b]);
  if (r->dev) dev_free(r->dev, r->gradients);
  dev_stream_close(r->compute);
  dev_close(r->dev);
}

/* s0 += g, s1 += s0, s2 += s1: what was read of the walk before shows in all that follow. */
static enum err add(void *arg, const struct flat_piece *p, const struct tensor *state)
{
  struct rig *r = arg;
  const struct tensor g = tensor_at(r->gradients + p->shard, DTYPE_F64, 1, p->count);
  r->updates++;
  for (int b = 0; b < BUFFERS; b++) TRY(op_accumulate(r->compute, &state[b], b == 0 ? &g : &state[b - 1]));
  return ERR_OK;
}

static bool takes_updates(const struct rig *r, int64_t i)
{
  for (int k = 0; k < r->n_pieces; k++)
    if (i >= r->pieces[k].shard && i < r->pieces[k].shard + r->pieces[k].count) return true;
  return false;
}

static bool is_right(const struct rig *r, int walks)
{
  bool right = true;
  for (int64_t i = 0; i < elements(r); i++) {
    double s[BUFFERS];
    for (int b = 0; b < BUFFERS; b++) s[b] = start_of(b, i);
    for (int w = 0; takes_updates(r, i) && w < walks; w++)
      for (int b = 0; b < BUFFERS; b++) s[b] += b == 0 ? gradient_of(i) : s[b - 1];
    for (int b = 0; b < BUFFERS; b++) right = right && ((const double *)r->state[b].at)[i] == s[b];
  }
  return right;
}

/* Walks without a wait between them, `before` of them already given; then all is where it belongs. */
static void walk_after(struct rig *r, int before, int walks)
{
  for (int w = before; w < walks; w++) CHECK_OK(offload_walk(r->offload, add, r));
  CHECK_OK(offload_settle(r->offload));
  CHECK_OK(dev_sync_stream(r->compute));
  for (int b = 0; b < BUFFERS; b++) CHECK_OK(dev_host_touch(r->dev, r->state[b].at, (size_t)elements(r) * sizeof(double), false));
  CHECK(is_right(r, walks));
}
static void walk(struct rig *r, int walks) { walk_after(r, 0, walks); }

/* --- tests ---------------------------------------------------------------------------------- */

static void walks_leave_what_walks_in_place_would(void)
{
  for (int i = 0; i < SHAPES; i++)
    for (int shards = 1; shards <= 3; shards += 2)
      for (int kind = 0; kind < 6; kind++) { /* cpu, one with late copies, lazy */
        const struct dev_config d = {.kind = kind < 2 ? DEV_CPU : DEV_LAZY, .threads = 1, .lazy_seed = (uint64_t)kind,
                                     .poison_end = kind % 2 == 1, .delayed = kind == 1 ? DEV_DELAY_COPIES : 0, .delay_ms = 0.5};
        struct rig r;
        if (rig_open(&r, &shapes[i], shards, &d) && rig_start(&r)) {
          walk(&r, WALKS);
          CHECK(strcmp(dev_findings(r.dev), "") == 0);
          if (*dev_findings(r.dev)) fprintf(stderr, "shape %d: %s\n", i, dev_findings(r.dev));
        }
        rig_close(&r);
      }
}

static void an_update_is_cut_where_windows_end_and_nowhere_else(void)
{
  static const int wanted[SHAPES] = {1, 1, 2, 2, 2, 5, 7, 9, 2, 1, 0};
  const struct dev_config cpu = {.kind = DEV_CPU, .threads = 1};
  for (int i = 0; i < SHAPES; i++) {
    struct rig r;
    if (rig_open(&r, &shapes[i], 1, &cpu) && rig_start(&r)) {
      walk(&r, 1);
      if (!CHECK(r.updates == wanted[i])) fprintf(stderr, "shape %d: %d updates\n", i, r.updates);
    }
    rig_close(&r);
  }
}

/* Two windows at most are on the device, whole lines of each buffer; the state itself is the host's. */
static void memory_is_two_windows_and_none_in_a_walk(void)
{
  static const int windows[SHAPES] = {1, 1, 2, 2, 2, 2, 2, 2, 2, 1, 0}, largest[SHAPES] = {1, 64, 64, 64, 64, 64, 64, 64, 16, 16, 16};
  const struct dev_config cpu = {.kind = DEV_CPU, .threads = 1};
  for (int i = 0; i < SHAPES; i++) {
    struct rig r;
    if (rig_open(&r, &shapes[i], 1 + 2 * (i % 2), &cpu) && rig_start(&r)) {
      struct dev_usage before, after;
      dev_usage(r.dev, &before);
      const size_t place = ((size_t)largest[i] * sizeof(double) + 255) / 256 * 256;
      CHECK(before.now[DEV_OPTIMIZER] == (size_t)windows[i] * BUFFERS * place);
      CHECK(before.now[DEV_ON_HOST] == (size_t)elements(&r) * BUFFERS * sizeof(double));
      walk(&r, WALKS);
      dev_usage(r.dev, &after);
      CHECK(after.allocations == before.allocations && after.host_allocations == before.host_allocations);
    }
    rig_close(&r);
  }
}

/* Each window's update waits at a gate, where the host sees what goes on beside it. */
struct gates {
  struct rig r;
  int n, open; /* windows given so far; those whose gate is open */
  struct tensor state[WINDOWS];
  int64_t first[WINDOWS];
};
struct gate {
  struct gates *all;
  int number;
};

static enum err gate_start(void *args)
{
  (void)args;
  return ERR_OK;
}
static enum err gate_test(void *args, bool *done)
{
  const struct gate *g = args;
  *done = __atomic_load_n(&g->all->open, __ATOMIC_ACQUIRE) > g->number;
  return ERR_OK;
}

static enum err add_behind_gate(void *arg, const struct flat_piece *p, const struct tensor *state)
{
  static const struct dev_kernel gate = {.name = "gate", .start = gate_start, .test = gate_test};
  struct gates *g = arg;
  const struct gate mine = {g, g->n};
  g->state[g->n] = state[1];
  g->first[g->n++] = p->shard;
  TRY(dev_submit(g->r.compute, &gate, &mine, sizeof mine, NULL, 0));
  return add(&g->r, p, state);
}

/* Becomes (`is`) or ceases to be what the second buffer began with at element i, before long.  A look at what streams are
 * at work on, without an order: ThreadSanitizer need not say so. */
__attribute__((no_sanitize("thread"))) static bool soon(const volatile double *at, int64_t i, bool is)
{
  for (int tries = 0; tries < 20000; tries++) {
    if ((*at == start_of(1, i)) == is) return true;
    clock_sleep_ms(1);
  }
  return false;
}

/* While a window's update is under way, the one behind it comes and the one before it goes. */
static void copies_run_beside_updates(void)
{
  static struct gates g;
  const struct dev_config cpu = {.kind = DEV_CPU, .threads = 1};
  struct rig *r = &g.r;
  if (mirror_cuda()) return; /* the stand-in for a GPU runs one thing at a time */
  memset(&g, 0, sizeof g);
  if (rig_open(r, &shapes[6], 1, &cpu) && rig_start(r)) {
    CHECK_OK(offload_walk(r->offload, add_behind_gate, &g));
    CHECK(g.n == 7);
    for (int w = 0; w < g.n; w++) {
      for (int k = w; k < w + 2 && k < g.n; k++) CHECK(soon(g.state[k].at, g.first[k], true));
      if (w > 0) CHECK(soon((const double *)r->state[1].at + g.first[w - 1], g.first[w - 1], false));
      __atomic_store_n(&g.open, w + 1, __ATOMIC_RELEASE);
    }
    CHECK_OK(dev_sync(r->dev));
    CHECK(is_right(r, 1));
  }
  rig_close(r);
}

/* lazy does nothing that nobody waits for: of what compute needs, that is all but the last two windows' way out. */
static void compute_waits_for_no_copy_that_it_does_not_need(void)
{
  const struct dev_config lazy = {.kind = DEV_LAZY, .threads = 1, .lazy_seed = 2};
  struct rig r;
  if (mirror_cuda()) return;
  if (rig_open(&r, &shapes[6], 1, &lazy) && rig_start(&r)) {
    CHECK_OK(offload_walk(r.offload, add, &r));
    CHECK_OK(dev_sync_stream(r.compute));
    int64_t first = 0;
    for (int w = 0; w < 7; first += shapes[6].windows[w++])
      CHECK((((const double *)r.state[1].at)[first] == start_of(1, first)) == (w < 2)); /* the buffer is walked from its end */
    walk_after(&r, 1, 1);
    CHECK(strcmp(dev_findings(r.dev), "") == 0);
  }
  rig_close(&r);
}

static void destroy_waits_for_queued_walks(void)
{
  for (int kind = 0; kind < 2; kind++) {
    const struct dev_config d = {.kind = kind ? DEV_LAZY : DEV_CPU, .threads = 1, .lazy_seed = 3};
    struct rig r;
    if (rig_open(&r, &shapes[6], 1, &d) && rig_start(&r)) {
      CHECK_OK(offload_walk(r.offload, add, &r));
      offload_destroy(r.offload);
      r.offload = NULL;
      CHECK(is_right(&r, 1));
      for (int b = 0; b < BUFFERS; b++) CHECK_OK(dev_host_touch(r.dev, r.state[b].at, (size_t)elements(&r) * sizeof(double), true));
      CHECK(strcmp(dev_findings(r.dev), "") == 0);
    }
    rig_close(&r);
  }
}

static void buffers_that_are_not_alike_are_refused(void)
{
  const struct dev_config cpu = {.kind = DEV_CPU, .threads = 1};
  struct rig r;
  if (rig_open(&r, &shapes[4], 1, &cpu)) {
    struct offload_config c = config_of(&r);
    c.n_buffers = 0;
    CHECK_ERR(offload_create(&c, &r.offload), ERR_ARG);
    c.n_buffers = OFFLOAD_BUFFERS + 1;
    CHECK_ERR(offload_create(&c, &r.offload), ERR_ARG);
    CHECK_TEXT_HAS(err_text(), "4 buffers, 1 to 3");
    c = config_of(&r);
    c.buffers[1].type = DTYPE_F32;
    CHECK_ERR(offload_create(&c, &r.offload), ERR_ARG);
    c = config_of(&r);
    c.buffers[2].hold = FLAT_SHARD;
    CHECK_ERR(offload_create(&c, &r.offload), ERR_ARG);
    c = config_of(&r);
    c.buffers[0].offloaded = false;
    CHECK_ERR(offload_create(&c, &r.offload), ERR_ARG);
    CHECK_TEXT_HAS(err_text(), "buffer 0 is not on the host");
    CHECK(r.offload == NULL);
  }
  rig_close(&r);
}

static void no_memory_names_whose_it_was_to_be(void)
{
  const struct dev_config cpu = {.kind = DEV_CPU, .threads = 1};
  const struct flat vast = {.count = (int64_t)1 << 58, .shards = 1};
  struct flat_buffer b = {.at = NULL};
  struct rig r;
  if (rig_open(&r, &shapes[4], 1, &cpu)) {
    CHECK_ERR(offload_buffer(r.dev, &vast, "first moments", DTYPE_F64, FLAT_WHOLE, &b), ERR_MEMORY);
    CHECK_TEXT_HAS(err_text(), "host 'first moments': no memory for 2305843009213693952 bytes beside the ");
    CHECK_TEXT_HAS(err_text(), "the largest: state 3072 bytes");
    CHECK(b.at == NULL);
  }
  rig_close(&r);
}

static void create_survives_every_failed_allocation(void)
{
  const struct dev_config cpu = {.kind = DEV_CPU, .threads = 1};
  struct rig r;
  if (rig_open(&r, &shapes[6], 1, &cpu)) {
    const struct offload_config c = config_of(&r);
    struct dev_usage before, after;
    dev_usage(r.dev, &before);
    int failures = 0;
    bool done = false;
    for (long n = 1; n < 200 && !done; n++) {
      struct offload *o = NULL;
      check_fail_allocation(n);
      const enum err e = offload_create(&c, &o);
      done = !check_allocation_failed();
      check_fail_allocation(0);
      CHECK(done ? e == ERR_OK && o != NULL : e == ERR_MEMORY && o == NULL);
      failures += !done;
      offload_destroy(o);
      dev_usage(r.dev, &after);
      CHECK(after.now[DEV_OPTIMIZER] == before.now[DEV_OPTIMIZER]);
    }
    CHECK(done && failures > 6);
  }
  rig_close(&r);
}

int main(void)
{
  static const struct test tests[] = {
    TEST(walks_leave_what_walks_in_place_would),
    TEST(an_update_is_cut_where_windows_end_and_nowhere_else),
    TEST(memory_is_two_windows_and_none_in_a_walk),
    TEST(copies_run_beside_updates),
    TEST(compute_waits_for_no_copy_that_it_does_not_need),
    TEST(destroy_waits_for_queued_walks),
    TEST(buffers_that_are_not_alike_are_refused),
    TEST(no_memory_names_whose_it_was_to_be),
    TEST(create_survives_every_failed_allocation),
  };
  return test_main("offload", tests, sizeof tests / sizeof *tests);
}
