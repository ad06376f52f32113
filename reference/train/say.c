/* say.c - records of the run, its ranks, its parameters, its steps. */
#include "train/say.h"

#include "base/clock.h"
#include "base/fault.h"
#include "ops/ops.h"
#include "train/canonical.h"
#include "train/env.h"
#include "train/hash.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { CORES_MAX = 1024 };

enum err say_run(const struct output *o)
{
  struct record_file *f = o->records;
  record_begin(f, "run", -1, -1);
  for (int i = 0; i < run_options_count; i++) {
    char key[64];
    snprintf(key, sizeof key, "set.%s", run_options[i].key);
    record_json(f, key, opt_json(&run_options[i], o->run));
  }
  record_int(f, "got.ranks", comm_size(o->world));
  TRY(env_record(f, o));
  TRY(record_end(f));
  return ERR_OK;
}

enum err say_rank(const struct output *o, const struct dev *d, int threads, const struct mesh *m)
{
  struct record_file *f = o->records;
  int64_t cores[CORES_MAX];
  const int n = env_cores(cores, CORES_MAX);
  char host[256] = "", device[400];
  gethostname(host, sizeof host - 1);
  if (dev_kind_of(d) == DEV_CUDA) snprintf(device, sizeof device, "%s", dev_uuid(d));
  else env_cpu(device, sizeof device);
  record_begin(f, "rank", -1, -1);
  record_text(f, "got.host", host);
  record_int(f, "got.pid", getpid());
  record_ints(f, "got.cores", cores, n);
  record_text(f, "got.device", device);
  record_int(f, "got.threads", threads);
  if (m) {
    record_int(f, "got.pp_rank", m->pp_rank);
    record_int(f, "got.dp_rank", m->dp_rank);
    record_int(f, "got.tp_rank", m->tp_rank);
  }
  record_real(f, "got.clock_offset_ms", o->clock_offset_ms);
  record_real(f, "got.clock_error_ms", o->clock_error_ms);
  TRY(record_end(f));
  return ERR_OK;
}

enum err say_clock(const struct output *o)
{
  struct record_file *f = o->records;
  double offset_ms, error_ms;
  TRY(comm_clock_offset(o->world, &offset_ms, &error_ms));
  record_begin(f, "clock", -1, -1);
  record_real(f, "got.start_ms", o->clock_at_ms + o->clock_offset_ms);
  record_real(f, "got.start_offset_ms", o->clock_offset_ms);
  record_real(f, "got.end_ms", clock_ms() + o->clock_offset_ms);
  record_real(f, "got.end_offset_ms", offset_ms);
  record_real(f, "got.error_ms", error_ms > o->clock_error_ms ? error_ms : o->clock_error_ms);
  return record_end(f);
}

/* Between two looks; -1 where the card does not say. */
static int64_t spent(int64_t before, int64_t after) { return before >= 0 && after >= 0 ? after - before : -1; }

enum err say_health(const struct output *o, const struct dev *d, const struct dev_health *before, const struct dev_health *after)
{
  struct record_file *f = o->records;
  char held[200];
  dev_health_reasons(after, held, sizeof held);
  record_begin(f, "gpu", -1, -1);
  record_text(f, "got.device", dev_uuid(d));
  record_int(f, "got.clock_mhz", after->clock_mhz);
  record_int(f, "got.clock_max_mhz", after->clock_max_mhz);
  record_int(f, "got.memory_clock_mhz", after->memory_clock_mhz);
  record_int(f, "got.temperature_c", after->temperature_c);
  record_int(f, "got.power_mw", after->power_mw);
  record_int(f, "got.energy_mj", spent(before->energy_mj, after->energy_mj));
  record_int(f, "got.ecc_corrected", spent(before->ecc_corrected, after->ecc_corrected));
  record_int(f, "got.ecc_uncorrected", spent(before->ecc_uncorrected, after->ecc_uncorrected));
  record_int(f, "got.held_by_power_ns", spent(before->held_by_power_ns, after->held_by_power_ns));
  record_int(f, "got.held_by_heat_ns", spent(before->held_by_heat_ns, after->held_by_heat_ns));
  record_text(f, "got.held_by", held);
  TRY(record_end(f));
  return ERR_OK;
}

/* Going on with n elements, each widened to float64, so that runs of every precision compare. */
enum { PIECE = 1 << 16 }; /* elements */
struct piece {
  char raw[PIECE * sizeof(double)];
  double wide[PIECE];
};
static uint64_t hash_elements(uint64_t hash, const void *at, enum dtype type, int64_t n, double *wide)
{
  for (int64_t i = 0; i < n; i++) wide[i] = type == DTYPE_F64 ? ((const double *)at)[i] : (double)((const float *)at)[i];
  return hash_words(hash, wide, (size_t)n * sizeof *wide);
}

/* A row that this rank has whole, by pieces: no second copy of the model. */
static enum err hash_row(struct trainer *t, const struct tensor *row, struct piece *p, uint64_t *out)
{
  const int64_t count = tensor_count(row);
  const size_t size = dtype_bytes(row->type);
  *out = hash_start;
  for (int64_t first = 0; first < count; first += PIECE) {
    const int64_t n = count - first < PIECE ? count - first : PIECE;
    TRY(dev_copy_out(t->compute, p->raw, (const char *)row->at + (size_t)first * size, (size_t)n * size));
    TRY(dev_sync_stream(t->compute));
    TRY(dev_host_touch(t->dev, p->raw, (size_t)n * size, false));
    *out = hash_elements(*out, p->raw, row->type, n, p->wide);
  }
  return ERR_OK;
}

/* One that is on the host. */
static void hash_host(const struct tensor *row, struct piece *p, uint64_t *out)
{
  const int64_t count = tensor_count(row);
  *out = hash_start;
  for (int64_t first = 0; first < count; first += PIECE) {
    const int64_t n = count - first < PIECE ? count - first : PIECE;
    *out = hash_elements(*out, (const char *)row->at + (size_t)first * dtype_bytes(row->type), row->type, n, p->wide);
  }
}

static enum err say_parameter(const struct trainer *t, const struct output *o, int row, uint64_t hash)
{
  struct record_file *f = o->records;
  const struct param *p = &t->table->rows[row];
  record_begin(f, "parameter", -1, -1);
  record_text(f, "got.name", p->name);
  record_int(f, "got.rows", p->rows);
  record_int(f, "got.cols", p->cols);
  record_hex(f, "got.hash", hash);
  record_bool(f, "got.decay", p->decay);
  record_bool(f, "got.frozen", p->frozen);
  record_bool(f, "got.zero_gradient", p->zero_gradient);
  TRY(record_end(f));
  return ERR_OK;
}

/* Rank 0 says each row; a cut model is collected first. */
enum err say_parameters(struct trainer *t, const struct output *o)
{
  enum err err = ERR_OK;
  struct canonical *whole = NULL;
  struct piece *piece = malloc(sizeof *piece);
  if (piece == NULL) FAIL(ERR_MEMORY, "hashes of parameters: %zu bytes", sizeof *piece);
  if (canonical_is_cut(t)) {
    TRY_TO(free_piece, canonical_create(t, &whole));
    TRY_TO(free_piece, canonical_take(whole, &t->weights));
  }
  for (int i = 0; comm_rank(t->world) == 0 && i < t->table->n; i++) {
    uint64_t hash = 0;
    const struct tensor row = whole ? canonical_row(whole, i) : trainer_row(t, &t->weights, i);
    if (whole || t->weights.offloaded) hash_host(&row, piece, &hash);
    else TRY_TO(free_piece, hash_row(t, &row, piece, &hash));
    TRY_TO(free_piece, say_parameter(t, o, i, hash));
  }
free_piece:
  canonical_destroy(whole);
  free(piece);
  return err;
}

/* Every rank of a replica has its batches; its losses are told once. */
enum err say_batches(const struct trainer *t, const struct output *o, int64_t step)
{
  struct record_file *f = o->records;
  for (int64_t i = 0; i < t->n_micro; i++) {
    const struct batch *b = &t->micro[i].batch;
    json_t *samples = json_array();
    for (int64_t s = 0; s < b->B; s++) json_array_append_new(samples, json_integer(b->samples[s]));
    record_begin(f, "batch", step, t->micro[i].number);
    record_json(f, "got.samples", samples);
    record_int(f, "got.tokens", b->n_tokens);
    record_int(f, "got.valid_tokens", b->n_valid);
    record_int(f, "got.pairs", b->n_pairs);
    if (t->run.narrow) record_int(f, "got.width", t->micro[i].input.tokens.cols);
    record_hex(f, "got.hash", batch_hash(b));
    TRY(record_end(f));
    if (!trainer_has_loss(t) || t->mesh.tp_rank != 0) continue;
    record_begin(f, "microbatch", step, t->micro[i].number);
    record_real(f, "got.loss_sum", t->loss_sums[i]);
    record_int(f, "got.valid_tokens", b->n_valid);
    TRY(record_end(f));
  }
  return ERR_OK;
}

/* got.loss is what training went down: each micro-batch's loss times the scale its backward had. */
enum err say_step(const struct trainer *t, const struct output *o, int64_t step)
{
  struct record_file *f = o->records;
  const struct trainer_numbers *now = &t->now;
  double loss_sum = now->all[0], count = now->count, loss = now->all[1];
  if (fault_is(FAULT_LN_LOGGED_LOSS_LOCAL_ONLY)) loss_sum = now->mine[0], count = (double)t->n_valid, loss = loss_sum / count;
  record_begin(f, "step", step, -1);
  record_real(f, "got.loss_sum", loss_sum);
  record_int(f, "got.valid_tokens", (int64_t)count);
  record_real(f, "got.loss", loss);
  record_real(f, "got.norm", now->norm);
  record_real(f, "got.clip_factor", now->factor);
  record_real(f, "got.lr", now->lr);
  const struct loss_scale_said said = t->loss_scale ? loss_scale_say(now->scaling) : (struct loss_scale_said){0};
  record_int(f, "got.update", t->updates + said.skipped); /* what it was, or is to be */
  if (t->loss_scale) {
    record_real(f, "got.scale", said.scale);
    record_bool(f, "got.skipped", said.skipped);
    record_int(f, "got.overflow_rank", said.rank);
  }
  TRY(record_end(f));
  return ERR_OK;
}

enum err say_evaluation(const struct output *o, int64_t step, const struct evaluation *e)
{
  struct record_file *f = o->records;
  record_begin(f, "eval", step, -1);
  record_real(f, "got.loss_sum", e->loss_sum);
  record_int(f, "got.valid_tokens", (int64_t)e->valid_tokens);
  record_real(f, "got.loss", e->loss);
  record_real(f, "got.train_loss", e->train_loss);
  TRY(record_end(f));
  return ERR_OK;
}

enum err say_data(const struct trainer *t, const struct output *o)
{
  struct record_file *f = o->records;
  struct data_facts d;
  data_plan_facts(t->plan, &d);
  record_begin(f, "data", -1, -1);
  record_int(f, "got.documents", d.documents);
  record_int(f, "got.left_out", d.left_out);
  record_int(f, "got.tokens", d.tokens);
  record_int(f, "got.longest", d.longest);
  record_int(f, "got.longer", d.longer);
  record_int(f, "got.cut_tokens", d.cut_tokens);
  record_int(f, "got.sequences", d.sequences);
  record_int(f, "got.dropped", d.dropped);
  record_int(f, "got.most", d.most);
  record_real(f, "got.filled", d.filled);
  record_hex(f, "got.hash", t->consumed);
  TRY(record_end(f));
  return ERR_OK;
}

enum err say_memory(const struct trainer *t, const struct output *o, const struct say_memory *m)
{
  static const char *const keys[DEV_CATEGORIES] = {"got.parameters_bytes", "got.gradients_bytes", "got.optimizer_bytes",
                                                   "got.activations_bytes", "got.communication_bytes", "got.other_bytes", "got.host_bytes"};
  struct record_file *f = o->records;
  struct dev_usage u;
  dev_usage(t->dev, &u);
  record_begin(f, "memory", -1, -1);
  record_int(f, "got.peak_bytes", (int64_t)u.peak);
  for (int i = 0; i < DEV_CATEGORIES; i++) record_int(f, keys[i], (int64_t)u.at_peak[i]);
  record_real(f, "got.mean_bytes", u.mean_bytes);
  record_int(f, "got.os_base_bytes", m->os_base);
  record_int(f, "got.os_peak_bytes", m->os_peak - m->os_base);
  record_int(f, "got.os_others_bytes", m->others - m->others_base);
  record_int(f, "got.allocations_first", m->allocations_first);
  record_int(f, "got.allocations_last", u.allocations + u.host_allocations);
  TRY(record_end(f));
  return ERR_OK;
}

enum err say_finding(const struct output *o, const char *text)
{
  record_begin(o->records, "finding", -1, -1);
  record_text(o->records, "got.text", text);
  TRY(record_end(o->records));
  return ERR_OK;
}
