/* fabricate_test.h - hand-made runs for the tests of checks: consistent with each other by construction,
 * then bent in one place by a test.  Needs a folder of its own; no trainer and no MPI.
 */
#ifndef CHECKS_FABRICATE_TEST_H
#define CHECKS_FABRICATE_TEST_H

#include "base/record.h"
#include "evidence.h"
#include "layout.h"
#include "schedule.h"
#include "shapes.h"
#include "testing/check.h"
#include "traffic.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { MADE_ROWS = 56, MADE_ELEMENTS = 200 };

struct made {
  struct run_data data;
  json_t *records;
  char dir[CONFIG_PATH]; /* data.dir */
};

/* How made_run makes its runs, off unless a test asks: moments are dumped, too; every parameter decays; the schedule is so far ahead. */
static bool made_moments __attribute__((unused)), made_decay_all __attribute__((unused));
static int64_t made_shift __attribute__((unused));

static inline struct run_config made_config(int64_t dp)
{
  struct run_config c;
  config_default(&c);
  c.layers = 1;
  c.heads = 2;
  c.hidden = 6;
  c.positions = c.sequence = 8;
  c.vocab = 11;
  c.dp = dp;
  c.global_batch = 6;
  c.micro_batch = 1;
  c.steps = 2;
  c.lr_schedule = LR_COSINE;
  c.lr_warmup = 2;
  c.lr_decay = 10;
  c.clip = 0.5;
  c.unused = true;
  c.evaluate_each = 1;
  c.bucket = 66; /* wte: 11 * 6 */
  c.dump = DUMP_ALL;
  return c;
}

static inline json_t *made_record(struct made *m, const char *kind, int64_t rank, int64_t step, int64_t microbatch)
{
  json_t *r = json_pack("{s:i, s:s, s:s, s:I}", "schema", RECORD_SCHEMA, "kind", kind, "case", "made", "rank",
                        (json_int_t)rank);
  if (step >= 0) json_object_set_new(r, "step", json_integer(step));
  if (microbatch >= 0) json_object_set_new(r, "microbatch", json_integer(microbatch));
  json_array_append_new(m->records, r);
  return r;
}

/* Deterministic, of any size, never zero. */
static inline double made_value(int row, int64_t element, int64_t step, double scale)
{
  return scale * sin(1.0 + 3.7 * row + 0.91 * (double)element + 1.3 * (double)step) + 0.1 * scale;
}

/* Rounding that differs from draw to draw; draw 0: none. */
static inline double made_noise(int draw, int row, int64_t element)
{
  return draw == 0 ? 1.0 : 1.0 + 3e-7 * sin(17.0 * draw + 5.0 * row + (double)element);
}

static inline bool made_is_key(const struct shape *s, int64_t element)
{
  return strstr(s->name, "c_attn.bias") && element >= s->cols / 3 && element < s->cols / 3 * 2;
}

static inline void made_file(struct made *m, const char *what, int64_t step, const struct shape *shapes, int rows,
                      float (*values)[MADE_ELEMENTS])
{
  struct safetensor list[MADE_ROWS];
  for (int i = 0; i < rows; i++)
    list[i] = (struct safetensor){shapes[i].name, tensor_at(values[i], DTYPE_F32, shapes[i].rows, shapes[i].cols),
                                  shapes[i].rows == 1 ? 1 : 2};
  char file[128], path[CONFIG_PATH + 160];
  snprintf(file, sizeof file, "%s.step%lld.safetensors", what, (long long)step);
  snprintf(path, sizeof path, "%s/%s", m->dir, file);
  CHECK_OK(safetensors_write(path, list, rows, NULL));
  json_t *r = made_record(m, "tensors", 0, step, -1);
  json_object_set_new(r, "got.what", json_string(what));
  json_object_set_new(r, "got.file", json_string(file));
}

/* Loss sum and count of a micro-batch: uneven on purpose. */
static inline double made_tokens(int64_t step, int64_t m) { return (double)(3 + (5 * m + 2 * step) % 7); }
static inline double made_loss(int64_t step, int64_t m, int draw)
{
  return made_tokens(step, m) * (4.0 + 0.3 * sin((double)(m + 10 * step))) *
         (1.0 + 2e-8 * sin(3.0 * draw * (double)(m + 1)) * (step > 0));
}

static inline void made_hash(struct made *m, int rank, int64_t step, int what, const char *group, const char *of)
{
  static const char *const names[] = {"weights", "gradients", "moments", "scalars"};
  json_t *h = made_record(m, "replica", rank, step, -1);
  json_object_set_new(h, "got.what", json_string(names[what]));
  json_object_set_new(h, "got.group", json_string(group));
  json_object_set_new(h, "got.of", json_string(of));
  json_object_set_new(h, "got.hash",
                      json_sprintf("%08llx%08x", (unsigned long long)step,
                                   (unsigned)(strlen(group) * 97 + strlen(of) * 31 + (size_t)what + 1)));
}

/* Every rank in each of its groups. */
static inline void made_replicas(struct made *m, int rank, int64_t step)
{
  const struct run_config *c = &m->data.config;
  const struct layout at = layout_of(c, rank);
  char of[64];
  for (int what = 0; what < 3; what++) {
    const bool shared = layout_shares(c) && what > 0;
    if (shared) snprintf(of, sizeof of, "pp%d tp%d shard%d", at.pp, at.tp, at.dp % (int)run_shards(c));
    else snprintf(of, sizeof of, "pp%d tp%d", at.pp, at.tp);
    made_hash(m, rank, step, what, shared ? "shard" : "dp", of);
    snprintf(of, sizeof of, "pp%d dp%d", at.pp, at.dp);
    if (c->tp > 1) made_hash(m, rank, step, what, "tp", of);
    snprintf(of, sizeof of, "dp%d tp%d", at.dp, at.tp);
    if (c->pp > 1 && c->tied && (layout_is_first(&at) || layout_is_last(c, &at)))
      made_hash(m, rank, step, what, "tied", of);
  }
  made_hash(m, rank, step, 3, "world", "");
}

/* Skipped steps before `step`. */
static inline int64_t made_skipped(const struct run_config *c, int64_t step) { return c->inf_step >= 0 && c->inf_step < step; }

/* What a step says of its loss scale; inf_step alone is skipped. */
static inline void made_scale(const struct run_config *c, json_t *s, int64_t step)
{
  double scale = c->loss_scale;
  int64_t good = 0;
  if (c->loss_scale == 0) return;
  for (int64_t before = 0; before < step; before++) {
    good++;
    if (before == c->inf_step) scale /= 2, good = 0;
    if (good == c->scale_interval) scale *= 2, good = 0;
  }
  json_object_set_new(s, "got.scale", json_real(scale));
  json_object_set_new(s, "got.skipped", json_boolean(step == c->inf_step));
  json_object_set_new(s, "got.overflow_rank", json_integer(step == c->inf_step ? c->inf_rank : -1));
}

static inline void made_step_records(struct made *m, int64_t step, double norm, int draw)
{
  const struct run_config *c = &m->data.config;
  const int64_t M = evidence_microbatches(c);
  double sum = 0.0, tokens = 0.0;
  for (int64_t k = 0; k < M; k++) {
    for (int rank = 0; rank < evidence_ranks(&m->data); rank++) {
      if (layout_of(c, rank).dp != layout_replica(c, k)) continue;
      json_t *b = made_record(m, "batch", rank, step, k);
      json_object_set_new(b, "got.samples", json_pack("[I]", (json_int_t)(step * M + k)));
      json_object_set_new(b, "got.tokens", json_integer((json_int_t)made_tokens(step, k) + 2));
      json_object_set_new(b, "got.valid_tokens", json_integer((json_int_t)made_tokens(step, k)));
      json_object_set_new(b, "got.hash", json_sprintf("%016llx", (unsigned long long)(977 * (step * M + k) + 5)));
    }
    const struct layout teller = {.pp = (int)c->pp - 1, .dp = layout_replica(c, k)};
    json_t *l = made_record(m, "microbatch", layout_rank(c, teller), step, k);
    json_object_set_new(l, "got.loss_sum", json_real(made_loss(step, k, draw)));
    json_object_set_new(l, "got.valid_tokens", json_integer((json_int_t)made_tokens(step, k)));
    sum += made_loss(step, k, draw);
    tokens += made_tokens(step, k);
  }
  for (int rank = 0; rank < evidence_ranks(&m->data); rank++) {
    json_t *s = made_record(m, "step", rank, step, -1);
    json_object_set_new(s, "got.loss_sum", json_real(sum));
    json_object_set_new(s, "got.valid_tokens", json_integer((json_int_t)tokens));
    json_object_set_new(s, "got.loss", json_real(sum / tokens));
    json_object_set_new(s, "got.norm", json_real(norm));
    json_object_set_new(s, "got.clip_factor", json_real(schedule_clip(c, norm)));
    json_object_set_new(s, "got.lr", json_real(schedule_lr(c, step + 1 - made_skipped(c, step) + made_shift)));
    json_object_set_new(s, "got.update", json_integer(step + 1 - made_skipped(c, step)));
    made_scale(c, s, step);
    json_t *e = made_record(m, "eval", rank, step + 1, -1);
    json_object_set_new(e, "got.loss_sum", json_real(40.0));
    json_object_set_new(e, "got.valid_tokens", json_integer(10));
    json_object_set_new(e, "got.loss", json_real(4.0));
    json_object_set_new(e, "got.train_loss", json_real(4.0));
    made_replicas(m, rank, step);
  }
}

/* A run of c that did everything right; draw 0 and precision float64: the truth. */
static inline void made_run(struct made *m, const struct run_config *c, int draw)
{
  static float weights[MADE_ROWS][MADE_ELEMENTS], gradients[MADE_ROWS][MADE_ELEMENTS];
  static struct schedule_element state[MADE_ROWS][MADE_ELEMENTS];
  struct shape shapes[MADE_ROWS];
  memset(m, 0, sizeof *m);
  memset(state, 0, sizeof state);
  m->data.config = *c;
  m->records = json_array();
  m->data.records = m->records;
  snprintf(m->dir, sizeof m->dir, "/tmp/shardmark-made-XXXXXX");
  CHECK(mkdtemp(m->dir) != NULL);
  memcpy(m->data.dir, m->dir, sizeof m->data.dir);
  snprintf(m->data.end, sizeof m->data.end, "exited");

  const int rows = shapes_count(c);
  BUG_IF(rows > MADE_ROWS);
  for (int i = 0; i < rows; i++) {
    CHECK(shapes_at(c, i, &shapes[i]));
    BUG_IF(shapes[i].rows * shapes[i].cols > MADE_ELEMENTS);
    json_t *p = made_record(m, "parameter", 0, -1, -1);
    json_object_set_new(p, "got.name", json_string(shapes[i].name));
    json_object_set_new(p, "got.rows", json_integer(shapes[i].rows));
    json_object_set_new(p, "got.cols", json_integer(shapes[i].cols));
    json_object_set_new(p, "got.hash", json_sprintf("%016x", 31 * i + 7));
    json_object_set_new(p, "got.decay", json_boolean(shapes[i].rows > 1));
    json_object_set_new(p, "got.frozen", json_boolean(c->frozen[0] && strstr(shapes[i].name, c->frozen)));
    json_object_set_new(p, "got.zero_gradient", json_boolean(strstr(shapes[i].name, "c_attn.bias") != NULL));
    for (int64_t k = 0; k < shapes[i].rows * shapes[i].cols; k++) weights[i][k] = (float)made_value(i, k, 0, 0.2);
  }
  for (int64_t step = 0; step <= c->steps; step++) {
    made_file(m, "weights", step, shapes, rows, weights);
    if (step == c->steps) break;
    double squares = 0.0;
    for (int i = 0; i < rows; i++)
      for (int64_t k = 0; k < shapes[i].rows * shapes[i].cols; k++) {
        const bool zero = shapes[i].unused || made_is_key(&shapes[i], k);
        const double noise = made_noise(draw, i, k);
        gradients[i][k] = zero ? (made_is_key(&shapes[i], k) ? (float)(1e-2 * (noise - 1.0)) : 0.0f)
                               : (float)(made_value(i, k, step + 3, 0.01 * (i + 1)) * noise);
        if (!(c->frozen[0] && strstr(shapes[i].name, c->frozen)))
          squares += (double)gradients[i][k] * (double)gradients[i][k];
      }
    if (step == c->inf_step) gradients[rows - 2][0] = INFINITY, squares = INFINITY;
    made_file(m, "gradients", step, shapes, rows, gradients);
    made_step_records(m, step, sqrt(squares), draw);
    if (step == c->inf_step) continue;
    for (int i = 0; i < rows; i++)
      for (int64_t k = 0; k < shapes[i].rows * shapes[i].cols; k++) {
        if (c->frozen[0] && strstr(shapes[i].name, c->frozen)) continue;
        struct schedule_element *e = &state[i][k];
        e->weight = (double)weights[i][k];
        const int64_t update = step + 1 - made_skipped(c, step);
        schedule_update(c, update, schedule_lr(c, update + made_shift), made_decay_all || shapes[i].rows > 1,
                        (double)gradients[i][k] * schedule_clip(c, sqrt(squares)), e);
        weights[i][k] = (float)e->weight;
      }
    for (int which = 0; made_moments && which < 2; which++) {
      static float moments[MADE_ROWS][MADE_ELEMENTS];
      for (int i = 0; i < rows; i++)
        for (int64_t k = 0; k < shapes[i].rows * shapes[i].cols; k++) moments[i][k] = (float)(which == 0 ? state[i][k].m : state[i][k].v);
      made_file(m, which == 0 ? "moments1" : "moments2", step + 1, shapes, rows, moments);
    }
  }
  for (int rank = 0; rank < evidence_ranks(&m->data); rank++) {
    json_t *d = made_record(m, "done", rank, -1, -1);
    json_object_set_new(d, "got.error", json_string(""));
    json_object_set_new(d, "got.error_kind", json_string("ok"));
  }
}

static inline void made_free(struct made *m)
{
  char command[CONFIG_PATH + 16];
  json_decref(m->records);
  snprintf(command, sizeof command, "rm -rf '%s'", m->dir);
  CHECK(system(command) == 0);
}

/* Rows of the shim, one an MPI function. */
enum { MADE_FUNCTIONS = 5 };
static const char *const made_functions[MADE_FUNCTIONS] = {"MPI_Iallreduce", "MPI_Ireduce_scatter_block",
                                                           "MPI_Iallgather", "MPI_Isend", "MPI_Irecv"};
static const char *const made_ops[MADE_FUNCTIONS] = {"allreduce", "reduce_scatter", "allgather", "send", "recv"};

/* What a right run queues in a step, as the plan says, and what MPI sees of it. */
static inline void made_calls(struct made *m, int rank, int64_t step)
{
  const struct run_config *c = &m->data.config;
  const struct layout at = layout_of(c, rank);
  json_t *list = json_array();
  long long calls[MADE_FUNCTIONS] = {0}, bytes[MADE_FUNCTIONS] = {0};
  for (int g = 0; g < TRAFFIC_GROUPS; g++) {
    struct traffic plan;
    CHECK_OK(traffic_expect(c, &at, (enum traffic_group)g, &plan));
    const int64_t ranks = traffic_ranks(c, (enum traffic_group)g);
    for (int i = 0; i < plan.n; i++) {
      const struct traffic_call *k = &plan.calls[i];
      const int64_t size = k->count * (int64_t)dtype_bytes(k->type);
      json_array_append_new(list,
                            json_sprintf("%d %s %s %s %s %d %d %d", (int)step * plan.n + i + 1, k->op,
                                         traffic_name((enum traffic_group)g), traffic_stream((enum traffic_group)g),
                                         dtype_name(k->type), (int)k->count, (int)traffic_bytes(k->op, size, ranks),
                                         (int)k->microbatch));
      for (int f = 0; f < MADE_FUNCTIONS; f++) {
        if (strcmp(made_ops[f], k->op) != 0 || ranks == 1) continue;
        calls[f]++;
        bytes[f] += f == 2 ? size / ranks : size;
      }
    }
    traffic_free(&plan);
  }
  json_object_set_new(made_record(m, "trace", rank, step, -1), "got.calls", list);
  for (int f = 0; f < MADE_FUNCTIONS; f++) {
    if (calls[f] == 0) continue;
    json_t *r = made_record(m, "shim", rank, step, -1);
    json_object_set_new(r, "got.call", json_string(made_functions[f]));
    json_object_set_new(r, "got.calls", json_integer(calls[f]));
    json_object_set_new(r, "got.bytes", json_integer(bytes[f]));
  }
}

/* --- bending ------------------------------------------------------------------------------ */

static inline json_t *made_at(struct made *m, const char *kind, int64_t rank, int64_t step, int64_t microbatch)
{
  json_t *r = (json_t *)evidence_record(&m->data, kind, rank, step, microbatch);
  BUG_IF(r == NULL);
  return r;
}
static inline void made_set(struct made *m, const char *kind, int64_t rank, int64_t step, int64_t microbatch,
                            const char *key, json_t *value)
{
  json_object_set_new(made_at(m, kind, rank, step, microbatch), key, value);
}
static inline double made_get(struct made *m, const char *kind, int64_t rank, int64_t step, int64_t microbatch,
                              const char *key)
{
  return evidence_real(made_at(m, kind, rank, step, microbatch), key);
}
/* Removes all records of that place. */
static inline void made_drop(struct made *m, const char *kind, int64_t rank, int64_t step, int64_t microbatch)
{
  const json_t *r;
  while ((r = evidence_record(&m->data, kind, rank, step, microbatch)) != NULL)
    for (size_t i = 0; i < json_array_size(m->records); i++)
      if (json_array_get(m->records, i) == r) {
        json_array_remove(m->records, i);
        break;
      }
}
/* Writes the dump anew without the tensors whose name contains `part`; with `turned`, with these transposed. */
static inline void made_rewrite(struct made *m, const char *what, int64_t step, const char *part, bool turned)
{
  struct safetensors *f;
  static float values[MADE_ROWS][MADE_ELEMENTS];
  struct safetensor list[MADE_ROWS];
  char path[CONFIG_PATH + 160], names[MADE_ROWS][96];
  int kept = 0;
  if (!CHECK_OK(evidence_tensors(&m->data, what, step, &f))) return;
  for (int i = 0; i < safetensors_count(f); i++) {
    const struct safetensor *t = safetensors_get(f, i);
    const int64_t rows = t->data.rows, cols = t->data.cols;
    const bool meant = strstr(t->name, part) != NULL;
    if (meant && !turned) continue;
    snprintf(names[kept], sizeof names[kept], "%s", t->name);
    memcpy(values[kept], t->data.at, (size_t)(rows * cols) * sizeof(float));
    for (int64_t k = 0; meant && k < rows * cols; k++) memcpy(&values[kept][k % cols * rows + k / cols], (const float *)t->data.at + k, sizeof(float));
    list[kept] = (struct safetensor){names[kept], tensor_at(values[kept], DTYPE_F32, meant ? cols : rows, meant ? rows : cols), t->rank};
    kept++;
  }
  safetensors_close(f);
  snprintf(path, sizeof path, "%s/%s.step%lld.safetensors", m->dir, what, (long long)step);
  CHECK_OK(safetensors_write(path, list, kept, NULL));
}
static inline void made_omit(struct made *m, const char *what, int64_t step, const char *part) { made_rewrite(m, what, step, part, false); }
static inline void made_transpose(struct made *m, const char *what, int64_t step, const char *part) { made_rewrite(m, what, step, part, true); }

/* Every element x of the dump's tensors whose name contains `part` becomes scale * x + add. */
static inline void made_bend(struct made *m, const char *what, int64_t step, const char *part, double scale, double add)
{
  struct safetensors *f;
  static float values[MADE_ROWS][MADE_ELEMENTS];
  struct safetensor list[MADE_ROWS];
  char path[CONFIG_PATH + 160], names[MADE_ROWS][96];
  if (!CHECK_OK(evidence_tensors(&m->data, what, step, &f))) return;
  const int rows = safetensors_count(f);
  for (int i = 0; i < rows; i++) {
    list[i] = *safetensors_get(f, i);
    snprintf(names[i], sizeof names[i], "%s", list[i].name);
    const int64_t n = tensor_count(&list[i].data);
    memcpy(values[i], list[i].data.at, (size_t)n * sizeof(float));
    for (int64_t k = 0; k < n && strstr(names[i], part); k++)
      values[i][k] = (float)(scale * (double)values[i][k] + add);
    list[i].name = names[i];
    list[i].data.at = values[i];
  }
  safetensors_close(f);
  snprintf(path, sizeof path, "%s/%s.step%lld.safetensors", m->dir, what, (long long)step);
  CHECK_OK(safetensors_write(path, list, rows, NULL));
}

/* --- a case with its companions ------------------------------------------------------------ */

struct bench {
  struct made run, other[JUDGE_COMPANIONS_MAX];
  struct companion wanted[JUDGE_COMPANIONS_MAX];
  const struct run_data *companions[JUDGE_COMPANIONS_MAX];
  int n;
  struct verdict verdict;
};

/* The check's companions, each made; noise draws differ from the run's. */
static inline void bench_setup(struct bench *b, const char *check, const struct run_config *c)
{
  memset(b, 0, sizeof *b);
  made_run(&b->run, c, 20);
  const struct check *k = judge_find(check);
  b->n = k->companions ? k->companions(c, b->wanted, JUDGE_COMPANIONS_MAX) : 0;
  for (int i = 0; i < b->n; i++) {
    const bool truth = strcmp(b->wanted[i].role, "truth") == 0, noise = strncmp(b->wanted[i].role, "noise", 5) == 0;
    made_run(&b->other[i], &b->wanted[i].config, truth ? 0 : noise ? i : 20);
    b->companions[i] = &b->other[i].data;
  }
}
static inline enum outcome bench_judge(struct bench *b, const char *check)
{
  json_decref(b->verdict.details);
  judge_find(check)->judge(&b->run.data, b->wanted, b->companions, b->n, &b->verdict);
  return b->verdict.outcome;
}
static inline void bench_teardown(struct bench *b)
{
  json_decref(b->verdict.details);
  made_free(&b->run);
  for (int i = 0; i < b->n; i++) made_free(&b->other[i]);
}

#endif
