/* tasks_overlap.c - products and sums of a step, and how long they take together and apart. */
#include "train/tasks_overlap.h"

#include "base/clock.h"
#include "base/rng.h"
#include "comm/bare.h"
#include "ops/matmul.h"
#include "params/params.h"

#include <stdlib.h>
#include <string.h>

enum way { TOGETHER, PRODUCTS, SUMS, WAYS };
static const char *const names[WAYS] = {"overlap.both", "overlap.products", "overlap.sums"};

/* One repeat of one way. */
struct taken {
  double ms, processor_ms; /* processor's time: of products, and of sums without looks in vain */
};

struct step {
  const struct run_config *run;
  struct param_table *table;
  struct flat *flat;
  struct bare *bare;
  struct dev_stream *compute;
  void *block;
  float *weights, *gradients; /* flat                                  */
  float *in, *out;            /* [tokens, widest]: read; written only  */
  int64_t tokens, widest;
  double flops;               /* of one step */
};

/* --- products ------------------------------------------------------------------------ */

/* What each row of two axes is for: y = x w, and with the head's, which is stored the other way, y = x w^T. */
static bool is_head(const struct step *s, const struct param *p)
{
  return p->rank == 2 && (s->run->tied ? p->stage == PARAM_FIRST_AND_LAST : p->stage == PARAM_LAST);
}
static bool multiplies(const struct step *s, const struct param *p)
{
  return p->rank == 2 && !p->unused && (p->layer >= 0 || is_head(s, p));
}

static enum err forward(const struct step *s, int row)
{
  const struct param *p = &s->table->rows[row];
  const bool head = is_head(s, p);
  const int64_t I = head ? p->cols : p->rows, O = head ? p->rows : p->cols;
  const float *w = s->weights + s->flat->offset[row];
  TRY(matmul_f32(s->tokens, O, I, s->in, s->widest, false, w, p->cols, head, false, s->out, s->widest));
  return ERR_OK;
}

static enum err backward(const struct step *s, int row)
{
  const struct param *p = &s->table->rows[row];
  const bool head = is_head(s, p);
  const int64_t I = head ? p->cols : p->rows, O = head ? p->rows : p->cols;
  const float *w = s->weights + s->flat->offset[row];
  float *dw = s->gradients + s->flat->offset[row];
  TRY(matmul_f32(s->tokens, I, O, s->in, s->widest, false, w, p->cols, !head, false, s->out, s->widest));
  TRY(matmul_f32(p->rows, p->cols, s->tokens, s->in, s->widest, true, s->in, s->widest, false, true, dw, p->cols));
  return ERR_OK;
}

/* --- one step ---------------------------------------------------------------------------- */

/* Begins the sums of all buckets that have no row before `row`, from *next on. */
static enum err begin_sums(const struct step *s, int row, int *next, bool aligned)
{
  for (; *next < s->flat->n_buckets && s->flat->buckets[*next].first_row >= row; ++*next) {
    const struct flat_bucket *b = &s->flat->buckets[*next];
    TRY(bare_sum(s->bare, s->gradients + b->first, b->count, DTYPE_F32, aligned));
  }
  return ERR_OK;
}

/* Backward of one micro-batch, and with the last one's the sums of what becomes ready.  A shared matrix is the head's
 * first, and only ready with the first rows. */
static enum err one_backward(const struct step *s, bool sums)
{
  int next = 0;
  for (int u = s->flat->n_units - 1; u >= 0; u--) {
    const struct flat_unit *unit = &s->flat->units[u];
    for (int row = s->table->n - 1; row >= 0; row--) {
      const struct param *p = &s->table->rows[row];
      const bool here = row >= unit->first_row && row < unit->first_row + unit->rows;
      const bool first = u == s->flat->n_units - 1 && is_head(s, p); /* of all, wherever its row stands */
      if (multiplies(s, p) && (is_head(s, p) ? first : here)) TRY(backward(s, row));
    }
    if (sums) TRY(begin_sums(s, unit->first_row, &next, false));
  }
  return ERR_OK;
}

struct way_args {
  const struct step *step;
  enum way way;
  struct taken *out;
};

static enum err one_way(void *args)
{
  const struct way_args *a = args;
  const struct step *s = a->step;
  const enum way way = a->way;
  const int64_t m = config_accumulation(s->run);
  struct bare_times sums;
  memset(s->gradients, 0, (size_t)s->flat->count * sizeof *s->gradients);
  TRY(bare_meet(s->bare));
  const double start_ms = clock_ms(), processor_ms = clock_thread_ms();
  for (int64_t i = 0; i < m && way != SUMS; i++) {
    for (int row = 0; row < s->table->n; row++)
      if (multiplies(s, &s->table->rows[row])) TRY(forward(s, row));
    TRY(one_backward(s, way == TOGETHER && i == m - 1));
  }
  int next = 0;
  if (way == SUMS) TRY(begin_sums(s, 0, &next, true));
  const double products_ms = clock_thread_ms() - processor_ms;
  TRY(bare_wait(s->bare, &sums));
  a->out->ms = way == SUMS ? sums.ms : clock_ms() - start_ms;
  a->out->processor_ms = (way == SUMS ? 0 : products_ms) + sums.processor_ms;
  return ERR_OK;
}

/* All of it is one piece of work: the compute stream lends the thread whose team is as large as was asked for. */
static enum err time_way(const struct step *s, enum way way, struct taken *out)
{
  static const struct dev_kernel kernel = {.name = "overlap", .run = one_way};
  const struct way_args args = {s, way, out};
  TRY(dev_submit(s->compute, &kernel, &args, sizeof args, NULL, 0));
  TRY(dev_sync_stream(s->compute));
  return ERR_OK;
}

/* --- records ------------------------------------------------------------------------------- */

static enum err say(const struct output *o, const struct step *s, enum way way, const struct taken *each, int64_t n, int64_t wrong)
{
  json_t *seconds = json_array(), *processor = json_array();
  for (int64_t i = 0; i < n; i++) {
    json_array_append_new(seconds, json_real(each[i].ms / 1e3));
    json_array_append_new(processor, json_real(each[i].processor_ms / 1e3));
  }
  record_begin(o->records, "measure", -1, -1);
  record_text(o->records, "got.what", names[way]);
  record_int(o->records, "got.size", s->run->bucket);
  record_json(o->records, "got.seconds", seconds);
  record_json(o->records, "got.processor_seconds", processor);
  record_real(o->records, "got.flops", way == SUMS ? 0 : s->flops);
  record_int(o->records, "got.bytes", way == PRODUCTS ? 0 : s->flat->count * (int64_t)sizeof(float));
  record_int(o->records, "got.wrong", wrong);
  TRY(record_end(o->records));
  return ERR_OK;
}

/* Every element is summed once: elements that are not. */
static enum err count_wrong(const struct step *s, int rank, int ranks, int64_t *wrong)
{
  int next = 0;
  struct bare_times unused;
  *wrong = 0;
  for (int64_t i = 0; i < s->flat->count; i++) s->gradients[i] = (float)(1 + rank);
  TRY(begin_sums(s, 0, &next, false));
  TRY(bare_wait(s->bare, &unused));
  for (int64_t i = 0; i < s->flat->count; i++) *wrong += s->gradients[i] != (float)(ranks * (ranks + 1) / 2);
  return ERR_OK;
}

static enum err measure(const struct output *o, struct step *s)
{
  enum err err;
  int64_t wrong;
  const int64_t n = o->run->steps;
  struct taken *each = malloc((size_t)(WAYS * n) * sizeof *each);
  if (each == NULL) FAIL(ERR_MEMORY, "times of %lld repeats", (long long)n);
  for (int64_t r = 0; r <= n; r++)
    for (int way = 0; way < WAYS; way++) {
      struct taken one;
      TRY_TO(free_each, time_way(s, (enum way)way, &one));
      if (r > 0) each[way * n + r - 1] = one; /* the first warms up */
      slots_say(o->slots, "overlap", r);
    }
  TRY_TO(free_each, count_wrong(s, comm_rank(o->world), comm_size(o->world), &wrong));
  for (int way = 0; way < WAYS; way++) TRY_TO(free_each, say(o, s, (enum way)way, each + way * n, n, way == PRODUCTS ? 0 : wrong));
free_each:
  free(each);
  return err;
}

/* --- memory ---------------------------------------------------------------------------------- */

static enum err refuse_others(const struct run_config *c)
{
  if (c->precision != PRECISION_F32 || c->device != DEVICE_CPU)
    FAIL(ERR_CONFIG, "task overlap multiplies in float32 on the cpu; valid: precision float32, device cpu");
  if (c->tp != 1 || c->pp != 1 || c->zero != 0) FAIL(ERR_CONFIG, "task overlap knows replicas only; valid: tp 1, pp 1, zero 0");
  return ERR_OK;
}

static enum err fill(struct step *s)
{
  const struct run_config *run = s->run;
  const int64_t all = 2 * s->flat->count + 2 * s->tokens * s->widest;
  const struct rng_key key = {(uint64_t)run->seed, RNG_INIT, 0};
  TRY(dev_alloc(dev_of(s->compute), (size_t)all * sizeof(float), DEV_OTHER, "products and sums", &s->block));
  s->weights = s->block;
  s->gradients = s->weights + s->flat->count;
  s->in = s->gradients + s->flat->count;
  s->out = s->in + s->tokens * s->widest;
  for (int64_t i = 0; i < all; i++) s->weights[i] = (float)(0.1 * rng_uniform(key, (uint64_t)i));
  return ERR_OK;
}

static enum err prepare(struct step *s)
{
  const struct run_config *run = s->run;
  TRY(params_create(run, &s->table));
  TRY(flat_create(s->table, &params_place_alone, 256 / (int64_t)sizeof(float), 1, false, run->bucket, &s->flat));
  s->tokens = run->micro_batch * run->sequence;
  for (int i = 0; i < s->table->n; i++) {
    const struct param *p = &s->table->rows[i];
    if (!multiplies(s, p)) continue;
    const int64_t wider = p->rows > p->cols ? p->rows : p->cols;
    if (wider > s->widest) s->widest = wider;
    s->flops += 6.0 * (double)(p->rows * p->cols) * (double)(s->tokens * config_accumulation(run));
  }
  TRY(fill(s));
  return ERR_OK;
}

enum err tasks_overlap(const struct output *o, struct dev_stream *compute, bool *fatal)
{
  enum err err;
  struct step s = {.run = o->run, .compute = compute};
  TRY(refuse_others(o->run));
  TRY_TO(release, comm_agree(o->world, prepare(&s)));
  *fatal = comm_size(o->world) > 1; /* from here on the others may wait for this rank */
  TRY_TO(release, bare_create(o->world, &s.bare));
  TRY_TO(release, measure(o, &s));
  bare_destroy(s.bare);
  *fatal = false;

release:
  if (*fatal) return err;
  if (s.block) dev_free(dev_of(compute), s.block);
  flat_destroy(s.flat);
  params_destroy(s.table);
  return err;
}
