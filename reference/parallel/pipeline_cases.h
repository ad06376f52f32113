/* pipeline_cases.h - schedules run by the executor with played passes, against sums made here.
 *
 * Virtual stage k of K maps its input x to (k + 2) x + k + 1 in forward, stage 0 from numbers of
 * its own; the loss of a micro-batch is the last output.  Backward multiplies the gradient
 * by (k + 2) and adds gradient * x to the chunk's weight gradient.  All numbers are whole
 * and stay below 2^53, so sums have no order.  Every place is a buffer of its own, poisoned
 * after each run; each pass declares what it touches.
 */
#include "base/fault.h"
#include "comm/comm_testing.h"
#include "parallel/pipeline_state.h"
#include "testing/check.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct comm_world *world;
enum { ROWS = 3, COLS = 5, PLACES = 64, CHUNKS = 4 };

/* --- work -------------------------------------------------------------------------- */

/* y = a x + b z + c; z may be y; at NULL: not there. */
struct affine {
  struct tensor y, x, z;
  double a, b, c;
};

static enum err affine_run(void *args)
{
  const struct affine *f = args;
  double *y = f->y.at;
  const double *x = f->x.at, *z = f->z.at;
  for (int64_t i = 0; i < tensor_count(&f->y); i++) y[i] = (x ? f->a * x[i] : 0) + (z ? f->b * z[i] : 0) + f->c;
  return ERR_OK;
}

/* y += x z */
static enum err gather_run(void *args)
{
  const struct affine *f = args;
  double *y = f->y.at;
  const double *x = f->x.at, *z = f->z.at;
  for (int64_t i = 0; i < tensor_count(&f->y); i++) y[i] += x[i] * z[i];
  return ERR_OK;
}

static enum err at_once(void *args, bool *done)
{
  (void)args;
  *done = true;
  return ERR_OK;
}

/* On a cuda device the host does it in the stream's place. */
static enum err submit(struct dev_stream *s, const char *name, enum err (*run)(void *), const struct affine *f)
{
  struct dev_kernel kernel = {.name = name, .run = run};
  struct dev_range ranges[3];
  if (dev_kind_of(dev_of(s)) == DEV_CUDA) kernel = (struct dev_kernel){.name = name, .start = run, .test = at_once};
  int n = 0;
  ranges[n++] = dev_writes(&f->y);
  if (f->x.at) ranges[n++] = dev_reads(&f->x);
  if (f->z.at) ranges[n++] = dev_reads(&f->z);
  return dev_submit(s, &kernel, f, sizeof *f, ranges, n);
}

/* --- one rank ------------------------------------------------------------------------ */

struct play {
  struct schedule *s;
  int stage;
  struct dev *d;
  struct dev_stream *compute, *streams[2];
  struct comm *comms[2];
  struct comm *meeting; /* on compute; NULL: none */
  struct pipeline *pipeline;
  struct tensor output[PLACES], stash[PLACES], held[PLACES], input[PLACES]; /* by slot, slot, weight slot, input */
  struct tensor weights[CHUNKS]; /* gradients of each chunk */
  struct tensor losses;          /* [m, ROWS * COLS] on the last virtual stage */
  int runs;                      /* so far; the numbers of each run are others */
};

/* Poisoned.  On a cuda device it is pinned memory, which host and device reach. */
static struct tensor buffer(struct play *p, int64_t rows, int64_t cols)
{
  const size_t bytes = (size_t)(rows * cols) * sizeof(double);
  void *at = NULL;
  if (dev_kind_of(p->d) != DEV_CUDA) CHECK_OK(dev_alloc(p->d, bytes, DEV_OTHER, "test", &at));
  else if (CHECK_OK(dev_host_alloc(p->d, bytes, "boundary", &at))) memset(at, 0xFF, bytes);
  return tensor_at(at, DTYPE_F64, rows, cols);
}

static void drop(struct play *p, struct tensor *t)
{
  if (dev_kind_of(p->d) != DEV_CUDA) dev_free(p->d, t->at);
  else dev_host_free(p->d, t->at);
}

static double first_number(int run, int mb, int64_t i) { return 1 + run + mb + (double)(i % 3); }
static double last_gradient(int mb) { return 1 + mb % 2; }

static enum err forward(struct play *p, const struct schedule_action *a, int k, bool last)
{
  const struct tensor x = p->stash[a->slot], none = {0};
  if (k == 0) {
    for (int64_t i = 0; i < ROWS * COLS; i++) { /* element by element, as an embedding would */
      const struct tensor one = tensor_part(&x, i / COLS, 1, i % COLS, 1);
      const struct affine embed = {one, none, none, 0, 0, first_number(p->runs, a->microbatch, i)};
      TRY(submit(p->compute, "embed", affine_run, &embed));
    }
  } else {
    const struct affine keep = {x, p->input[a->input], none, 1, 0, 0};
    TRY(submit(p->compute, "keep", affine_run, &keep));
  }
  char *loss = (char *)p->losses.at + (size_t)a->microbatch * ROWS * COLS * sizeof(double);
  const struct tensor y = last ? tensor_at(loss, DTYPE_F64, ROWS, COLS) : p->output[a->slot];
  const struct affine map = {y, x, none, k + 2, 0, k + 1};
  return submit(p->compute, "forward", affine_run, &map);
}

static enum err backward_input(struct play *p, const struct schedule_action *a, int k, bool last)
{
  const struct tensor none = {0}, dy = p->output[a->slot];
  if (last) {
    const struct affine begin = {dy, none, none, 0, 0, last_gradient(a->microbatch)};
    TRY(submit(p->compute, "loss", affine_run, &begin));
  }
  if (a->weight_slot >= 0) { /* gradient times x is all that W needs */
    const struct affine clear = {p->held[a->weight_slot], none, none, 0, 0, 0};
    const struct affine hold = {p->held[a->weight_slot], dy, p->stash[a->slot], 0, 0, 0};
    TRY(submit(p->compute, "clear", affine_run, &clear));
    TRY(submit(p->compute, "hold", gather_run, &hold));
  }
  if (k == 0) return ERR_OK;
  const struct affine back = {p->input[a->input], dy, none, k + 2, 0, 0};
  return submit(p->compute, "backward", affine_run, &back);
}

static enum err play_pass(void *arg, const struct schedule_action *a)
{
  struct play *p = arg;
  const int k = a->chunk * p->s->p + p->stage;
  const bool last = k == p->s->p * p->s->v - 1;
  const struct tensor w = p->weights[a->chunk];
  if (a->pass == PASS_FORWARD) return forward(p, a, k, last);
  if (a->pass == PASS_BACKWARD_WEIGHT) {
    const struct affine add = {w, p->held[a->weight_slot], w, 1, 1, 0};
    return submit(p->compute, "weights", affine_run, &add);
  }
  if (a->pass == PASS_BACKWARD_INPUT) return backward_input(p, a, k, last);
  TRY(backward_input(p, a, k, last)); /* the gradient of the output stays where it is */
  const struct affine add = {w, p->output[a->slot], p->stash[a->slot], 0, 0, 0};
  return submit(p->compute, "weights", gather_run, &add);
}

static struct tensor play_boundary(void *arg, const struct schedule_action *a, bool output)
{
  struct play *p = arg;
  return output ? p->output[a->slot] : p->input[a->input];
}

/* All stages meet after each backward, on their compute streams. */
static enum err play_after(void *arg, const struct schedule_action *a)
{
  struct play *p = arg;
  return a->pass == PASS_BACKWARD ? comm_barrier(p->meeting) : ERR_OK;
}

static struct pipeline_work work_of(struct play *p)
{
  return (struct pipeline_work){p, play_pass, play_boundary, p->meeting ? play_after : NULL};
}

/* What one test wants. */
struct setting {
  enum dev_kind device;
  uint64_t seed;
  enum schedule_kind kind;
  int p, m, v; /* p 1: every rank its own */
  bool synchronous;
  bool meets; /* all stages, after each backward */
  bool waits; /* for each transfer at once       */
};

static void open_play(struct play *p, const struct setting *set)
{
  static const char *const names[2] = {"outputs", "gradients"};
  *p = (struct play){0};
  CHECK_OK(schedule_create(set->kind, set->p, set->m, set->v, &p->s));
  p->stage = set->p == 1 ? 0 : comm_rank(world);
  CHECK_OK(test_dev(set->device, set->seed, &p->d));
  CHECK_OK(dev_stream_open(p->d, "compute", DEV_COMPUTE, &p->compute));
  int ranks[8];
  for (int i = 0; i < set->p; i++) ranks[i] = i;
  for (int i = 0; i < 2 && set->p > 1; i++) {
    const struct comm_config c = {.name = names[i], .synchronous = set->synchronous};
    CHECK_OK(dev_stream_open(p->d, names[i], DEV_TRANSFER, &p->streams[i]));
    CHECK_OK(test_comm(world, p->streams[i], ranks, set->p, 0, &c, &p->comms[i]));
  }
  const struct comm_config meeting = {.name = "meeting"};
  if (set->meets) CHECK_OK(test_comm(world, p->compute, ranks, set->p, 0, &meeting, &p->meeting));
  for (int i = 0; i < p->s->slots[p->stage]; i++) {
    p->output[i] = buffer(p, ROWS, COLS);
    p->stash[i] = buffer(p, ROWS, COLS);
  }
  for (int i = 0; i < p->s->weight_slots[p->stage]; i++) p->held[i] = buffer(p, ROWS, COLS);
  for (int i = 0; i < p->s->inputs[p->stage]; i++) p->input[i] = buffer(p, ROWS, COLS);
  for (int i = 0; i < set->v; i++) p->weights[i] = buffer(p, ROWS, COLS);
  p->losses = buffer(p, set->m, ROWS * COLS);
  CHECK_OK(pipeline_create(p->s, p->stage, !set->waits, p->compute, p->comms[0], p->comms[1], &p->pipeline));
}

static void close_play(struct play *p)
{
  pipeline_destroy(p->pipeline);
  comm_destroy(p->meeting);
  for (int i = 0; i < 2; i++) comm_destroy(p->comms[i]);
  for (int i = 0; i < PLACES; i++) {
    drop(p, &p->output[i]);
    drop(p, &p->stash[i]);
    drop(p, &p->held[i]);
    drop(p, &p->input[i]);
  }
  for (int i = 0; i < CHUNKS; i++) drop(p, &p->weights[i]);
  drop(p, &p->losses);
  dev_close(p->d);
  schedule_destroy(p->s);
}

static enum err poison(struct play *p, const struct tensor *t)
{
  return t->at ? dev_begin(p->compute, t->at, ROWS * COLS * sizeof(double)) : ERR_OK;
}

/* One run queued: gradients from zero; afterwards all places are the compute stream's again. */
static enum err queue_run(struct play *p)
{
  const struct tensor none = {0};
  const struct pipeline_work w = work_of(p);
  for (int i = 0; i < p->s->v; i++) {
    const struct affine zero = {p->weights[i], none, none, 0, 0, 0};
    TRY(submit(p->compute, "zero", affine_run, &zero));
  }
  TRY(pipeline_run(p->pipeline, &w));
  for (int i = 0; i < PLACES; i++) {
    TRY(poison(p, &p->output[i]));
    TRY(poison(p, &p->stash[i]));
    TRY(poison(p, &p->held[i]));
    TRY(poison(p, &p->input[i]));
  }
  p->runs++;
  return ERR_OK;
}

/* --- what must come out ------------------------------------------------------------------ */

/* Input of virtual stage k, for element i of micro-batch mb in run `run`; k = K: the last output. */
static double activation(int k, int run, int mb, int64_t i)
{
  double x = first_number(run, mb, i);
  for (int j = 0; j < k; j++) x = (j + 2) * x + j + 1;
  return x;
}

static bool correct(const struct play *p)
{
  const struct schedule *s = p->s;
  const int K = s->p * s->v, run = p->runs - 1;
  bool ok = true;
  for (int c = 0; c < s->v; c++) {
    const int k = c * s->p + p->stage;
    const double *w = p->weights[c].at, *y = p->losses.at;
    for (int64_t i = 0; i < ROWS * COLS; i++) {
      double want = 0;
      for (int mb = 0; mb < s->m && s->kind != SCHEDULE_FORWARD; mb++) {
        double g = last_gradient(mb);
        for (int j = K - 1; j > k; j--) g *= j + 2;
        want += g * activation(k, run, mb, i);
      }
      ok = ok && w[i] == want;
      for (int mb = 0; mb < s->m && k == K - 1; mb++) ok = ok && y[mb * ROWS * COLS + i] == activation(K, run, mb, i);
    }
  }
  return ok;
}

/* Two runs, one after the other without a sync, and a third: all right, and the third takes no memory. */
static void check_runs(const struct setting *set)
{
  struct play p;
  struct dev_usage before, after;
  open_play(&p, set);
  CHECK_OK(queue_run(&p));
  CHECK_OK(queue_run(&p));
  CHECK_OK(dev_sync(p.d));
  if (!CHECK(correct(&p)))
    printf("%s p %d m %d v %d on %d\n", schedule_name(set->kind), set->p, set->m, set->v, (int)set->device);
  comm_trace_restart(world);
  dev_usage(p.d, &before);
  if (dev_kind_of(p.d) == DEV_CPU) check_fail_allocation(1);
  CHECK_OK(queue_run(&p));
  CHECK(!check_allocation_failed());
  check_fail_allocation(0);
  CHECK_OK(dev_sync(p.d));
  dev_usage(p.d, &after);
  CHECK(after.allocations == before.allocations);
  CHECK(correct(&p));
  CHECK(strcmp(dev_findings(p.d), "") == 0);
  close_play(&p);
}

static int run_all(const char *suite, const struct test *tests, size_t n)
{
  if (comm_world_open(&world) != ERR_OK) {
    fprintf(stderr, "%s\n", err_text());
    return 1;
  }
  const int status = test_main(suite, tests, n);
  comm_world_close(world);
  return status;
}
