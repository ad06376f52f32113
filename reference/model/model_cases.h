/* model_cases.h - one model cut over the ranks of the test, its passes played by hand.
 *
 * All ranks play one list of passes, each its own of them, with the transfers between stages
 * at their place in the list: nothing can wait for ever.  Every rank also has the run that it is
 * compared with, whole or cut in tensor parts only, on a device of its own.
 */
#ifndef MODEL_MODEL_CASES_H
#define MODEL_MODEL_CASES_H

#include "comm/comm_testing.h"
#include "model/model_fixture.h"

#include "base/fault.h"
#include "parallel/mesh.h"

static struct comm_world *world;

/* How the passes follow one another. */
enum order {
  ORDER_ONE,   /* a micro-batch after another                                              */
  ORDER_AHEAD, /* two in flight, but in the last virtual stage; weights one backward later */
  ORDER_ALL    /* all forwards, all backwards, all weights; one chunk a rank               */
};

struct layout {
  int tp, pp, chunks;
  const char *stages;
  bool sequence, split, separate;
  enum order order;
};

struct cut {
  struct rig rig;
  struct mesh mesh;
  struct comm *tensor, *pipe, *tied;
  enum order order;
  double losses[BATCHES]; /* last virtual stage */
  int told[128];          /* how often, by row  */
};

static inline struct comm *group(struct cut *c, const char *name, const int *ranks, int n)
{
  struct comm *out = NULL;
  const struct comm_config config = {.name = name, .reduce = COMM_ORDERED};
  if (n > 1) CHECK_OK(test_comm(world, c->rig.compute, ranks, n, 1 << 14, &config, &out));
  return out;
}

static inline struct run_config laid_out(const struct run_config *c, const struct layout *l)
{
  struct run_config run = *c;
  run.tp = l->tp;
  run.pp = l->pp;
  run.dp = comm_size(world) / (l->tp * l->pp);
  run.chunks = l->chunks;
  run.sequence_parallel = l->sequence;
  run.schedule = l->chunks > 1 ? SCHEDULE_INTERLEAVED : l->order == ORDER_ALL ? SCHEDULE_GPIPE : SCHEDULE_1F1B;
  snprintf(run.stages, sizeof run.stages, "%s", l->stages ? l->stages : "even");
  return run;
}

static inline bool cut_open(struct cut *c, const struct run_config *base, const struct layout *l,
                            const struct dev_config *d)
{
  int ranks[16], n;
  struct params_place place;
  const struct run_config run = laid_out(base, l);
  memset(c, 0, sizeof *c);
  c->order = l->order;
  if (!CHECK_OK(mesh_create(&run, comm_rank(world), comm_size(world), &c->mesh)) ||
      !CHECK_OK(params_place_of(&run, c->mesh.pp_rank, c->mesh.tp_rank, &place)) ||
      !rig_prepare(&c->rig, &run, d, &place))
    return false;
  n = mesh_group(&c->mesh, MESH_TP, ranks);
  c->tensor = group(c, "tp", ranks, n);
  n = mesh_group(&c->mesh, MESH_PP, ranks);
  c->pipe = group(c, "pipe", ranks, n);
  const int ends[] = {ranks[0], ranks[n - 1]};
  if (run.tied && (c->mesh.pp_rank == 0 || c->mesh.pp_rank == l->pp - 1))
    c->tied = group(c, "tied", ends, l->pp > 1 ? 2 : 1);
  struct model_config *m = &c->rig.part;
  m->tp = (struct tp){c->tensor, l->tp, c->mesh.tp_rank, l->sequence};
  m->tied = c->tied;
  m->slots = l->chunks * (l->order == ORDER_ONE ? 1 : l->order == ORDER_AHEAD ? 2 : BATCHES);
  m->inputs = m->slots;
  m->split = l->split;
  m->separate = l->separate;
  m->weight_slots = l->split ? l->chunks * BATCHES : 0;
  return CHECK_OK(model_create(m, &c->rig.model));
}

static inline void cut_close(struct cut *c)
{
  if (c->rig.dev) CHECK_OK(dev_sync(c->rig.dev));
  model_destroy(c->rig.model);
  c->rig.model = NULL;
  comm_destroy(c->tied);
  comm_destroy(c->pipe);
  comm_destroy(c->tensor);
  rig_close(&c->rig);
}

/* --- passes ------------------------------------------------------------------------------------ */

enum kind { FORWARD, BACKWARD, WEIGHT };

static inline int stages_of(const struct cut *c) { return c->mesh.pp * (int)c->rig.run.chunks; }

static inline struct model_pass pass_at(const struct cut *c, int mb, int k)
{
  const int v = (int)c->rig.run.chunks, chunk = k / c->mesh.pp, slot = mb % (c->rig.part.slots / v) * v + chunk;
  return (struct model_pass){chunk, slot, mb * v + chunk, slot, &c->rig.in[mb]};
}

/* The output of stage k to stage k + 1, or the gradient in it back. */
static inline void transfer(struct cut *c, int mb, int k, bool back)
{
  const int p = c->mesh.pp, me = c->mesh.pp_rank, low = k % p, high = (k + 1) % p;
  const struct model_pass below = pass_at(c, mb, k), above = pass_at(c, mb, k + 1);
  if (me == low) {
    const struct tensor t = model_boundary(c->rig.model, &below, true);
    if (back)
      CHECK_OK(comm_recv(c->pipe, &t, high));
    else
      CHECK_OK(comm_send(c->pipe, &t, high));
  }
  if (me == high) {
    const struct tensor t = model_boundary(c->rig.model, &above, false);
    if (back)
      CHECK_OK(comm_send(c->pipe, &t, low));
    else
      CHECK_OK(comm_recv(c->pipe, &t, low));
  }
}

static inline void count_told(void *arg, int row)
{
  struct cut *c = arg;
  c->told[row]++;
}

static inline void play(struct cut *c, enum kind kind, int mb, int k)
{
  struct rig *r = &c->rig;
  const bool mine = k % c->mesh.pp == c->mesh.pp_rank, last = mb == BATCHES - 1;
  const struct model_pass p = pass_at(c, mb, k);
  if (kind == FORWARD) {
    if (mine) CHECK_OK(model_forward(r->model, &p, true, &r->loss));
    if (mine && k == stages_of(c) - 1)
      CHECK_OK(dev_copy_out(r->compute, &c->losses[mb], r->loss.at, sizeof c->losses[mb]));
    if (k + 1 < stages_of(c)) transfer(c, mb, k, false);
  } else if (kind == BACKWARD) {
    if (mine && r->part.split) CHECK_OK(model_backward_input(r->model, &p, &r->scale, last, count_told, c));
    if (mine && !r->part.split) CHECK_OK(model_backward(r->model, &p, &r->scale, last, count_told, c));
    if (k > 0) transfer(c, mb, k - 1, true);
  } else if (mine && r->part.split) {
    CHECK_OK(model_backward_weight(r->model, &p, last, count_told, c));
  }
}

/* Micro-batch mb through virtual stages first .. last, in this order. */
static inline void walk(struct cut *c, enum kind kind, int mb, int first, int last)
{
  if (mb >= BATCHES || mb < 0) return;
  for (int k = first; first <= last ? k <= last : k >= last; k += first <= last ? 1 : -1) play(c, kind, mb, k);
}

static inline void forward_but_last(struct cut *c, int mb)
{
  if (stages_of(c) > 1) walk(c, FORWARD, mb, 0, stages_of(c) - 2);
}

static inline bool cut_step(struct cut *c)
{
  const int end = stages_of(c) - 1;
  if (c->order == ORDER_AHEAD) forward_but_last(c, 0);
  for (int mb = 0; mb < BATCHES; mb++) {
    if (c->order == ORDER_AHEAD) {
      forward_but_last(c, mb + 1);
      walk(c, FORWARD, mb, end, end);
    } else {
      walk(c, FORWARD, mb, 0, end);
    }
    if (c->order == ORDER_ALL) continue;
    walk(c, BACKWARD, mb, end, 0);
    if (c->order == ORDER_ONE)
      walk(c, WEIGHT, mb, end, 0);
    else
      walk(c, WEIGHT, mb - 1, end, 0);
  }
  if (c->order == ORDER_AHEAD) walk(c, WEIGHT, BATCHES - 1, end, 0);
  for (int mb = 0; c->order == ORDER_ALL && mb < BATCHES; mb++) walk(c, BACKWARD, mb, end, 0);
  for (int mb = 0; c->order == ORDER_ALL && mb < BATCHES; mb++) walk(c, WEIGHT, mb, end, 0);
  return CHECK_OK(model_finish(c->rig.model, count_told, c)) && CHECK_OK(dev_sync(c->rig.dev));
}

/* --- comparisons ----------------------------------------------------------------------------------- */

/* Largest difference of a row's gradient to that of the whole model, relative to the row's size; -1: not here. */
static inline double row_off(const struct cut *c, const double *mine, const struct rig *whole, const double *all,
                             int row)
{
  const int64_t n = c->rig.flat->length[row];
  double off = 0.0, size = 1e-3;
  if (n == 0 || c->rig.table->rows[row].shared_with >= 0) return -1.0;
  double *part = malloc((size_t)n * sizeof *part);
  if (!CHECK(part != NULL)) return NAN;
  params_take(c->rig.table, row, &c->rig.part.place, DTYPE_F64, all + whole->flat->offset[row], part);
  for (int64_t i = 0; i < n; i++) {
    const double d = fabs(mine[c->rig.flat->offset[row] + i] - part[i]);
    size = fmax(size, fabs(part[i]));
    if (!(d <= off)) off = d; /* a NaN stays */
  }
  free(part);
  return off / size;
}

/* Losses and gradients after a step of both: of every row that is here within the bound; 0: the same bits. */
static inline void compare_with_whole(struct cut *c, struct rig *whole, double bound)
{
  double *mine = gradients_of(&c->rig), *all = gradients_of(whole);
  int looked = 0;
  for (int row = 0; mine && all && row < c->rig.table->n; row++) {
    const double off = row_off(c, mine, whole, all, row);
    if (off < 0.0) continue;
    if (!CHECK(off <= bound)) fprintf(stderr, "  %s: %g\n", c->rig.table->rows[row].name, off);
    looked++;
  }
  CHECK(looked > 0);
  free(mine);
  free(all);
}

/* Steps of the cut model and of the whole one. */
static inline void check_cut(const struct run_config *run, const struct layout *l, const struct dev_config *d,
                             double bound)
{
  struct cut c;
  struct rig whole;
  const bool a = cut_open(&c, run, l, d), b = rig_open(&whole, run, &cpu);
  if (CHECK(a && b) && cut_step(&c) && one_step(&whole, NULL, NULL)) {
    compare_with_whole(&c, &whole, bound);
    for (int row = 0; row < c.rig.table->n; row++)
      CHECK(c.told[row] == (c.rig.flat->length[row] > 0 && c.rig.table->rows[row].shared_with < 0));
    for (int mb = 0; c.rig.model->ends && mb < BATCHES; mb++) {
      double loss = NAN;
      const struct model_pass p = pass_of(&whole, mb);
      CHECK_OK(model_forward(whole.model, &p, true, &whole.loss));
      CHECK_OK(dev_copy_out(whole.compute, &loss, whole.loss.at, sizeof loss));
      CHECK_OK(dev_sync(whole.dev));
      CHECK_NEAR(c.losses[mb], loss, bound * 20);
    }
  }
  cut_close(&c);
  rig_close(&whole);
}

/* Losses and gradients of a model cut into tensor parts and stages have the bits of one cut into the parts alone. */
static inline void check_stages_of_parts(const struct run_config *run, const struct layout *l,
                                         const struct dev_config *d)
{
  struct cut stages, parts;
  const struct layout one = {.tp = l->tp, .pp = 1, .chunks = 1, .sequence = l->sequence};
  const bool a = cut_open(&stages, run, l, d), b = cut_open(&parts, run, &one, &cpu);
  if (CHECK(a && b) && cut_step(&stages) && cut_step(&parts)) {
    double *x = gradients_of(&stages.rig), *y = gradients_of(&parts.rig);
    for (int row = 0; x && y && row < stages.rig.table->n; row++) {
      const int64_t n = stages.rig.flat->length[row];
      if (n == 0) continue;
      CHECK(n == parts.rig.flat->length[row]);
      CHECK_SAME_BITS(x + stages.rig.flat->offset[row], y + parts.rig.flat->offset[row], (size_t)n * sizeof *x);
    }
    if (stages.rig.model->ends) CHECK_SAME_BITS(stages.losses, parts.losses, sizeof stages.losses);
    free(x);
    free(y);
  }
  cut_close(&stages);
  cut_close(&parts);
}

/* What a planted fault makes of the gradients: how many rows, of those here, are off by more than 1e-9.  All of them
 * have `part` in their name. */
static inline int rows_off_under(const char *fault, const struct run_config *run, const struct layout *l,
                                 const char *part)
{
  struct cut c;
  struct rig whole;
  int off = 0, with_part = 0;
  CHECK_OK(fault_plant(fault, 1.0, 0));
  const bool a = cut_open(&c, run, l, &cpu);
  const bool done = a && cut_step(&c);
  CHECK_OK(fault_plant("", 1.0, 0));
  const bool b = rig_open(&whole, run, &cpu);
  if (CHECK(done && b) && one_step(&whole, NULL, NULL)) {
    double *mine = gradients_of(&c.rig), *all = gradients_of(&whole);
    for (int row = 0; mine && all && row < c.rig.table->n; row++)
      if (row_off(&c, mine, &whole, all, row) > 1e-9) {
        off++;
        with_part += strstr(c.rig.table->rows[row].name, part) != NULL;
      }
    free(mine);
    free(all);
  }
  cut_close(&c);
  rig_close(&whole);
  CHECK(part[0] == '\0' || with_part == off);
  return off;
}

static inline int run_cut(const char *suite, const struct test *tests, size_t n)
{
  if (comm_world_open(&world) != ERR_OK) {
    fprintf(stderr, "%s\n", err_text());
    return 1;
  }
  const int status = test_main(suite, tests, n);
  comm_world_close(world);
  return status;
}

#endif
