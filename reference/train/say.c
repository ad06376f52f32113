/* say.c - records of the run, its ranks, its parameters, its steps. */
#include "train/say.h"

#include "base/fault.h"
#include "ops/ops.h"
#include "train/env.h"

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
  env_record(f);
  TRY(record_end(f));
  return ERR_OK;
}

enum err say_rank(const struct output *o, int threads)
{
  struct record_file *f = o->records;
  int64_t cores[CORES_MAX];
  const int n = env_cores(cores, CORES_MAX);
  char host[256] = "", cpu[256];
  gethostname(host, sizeof host - 1);
  env_cpu(cpu, sizeof cpu);
  record_begin(f, "rank", -1, -1);
  record_text(f, "got.host", host);
  record_int(f, "got.pid", getpid());
  record_ints(f, "got.cores", cores, n);
  record_text(f, "got.device", cpu);
  record_int(f, "got.threads", threads);
  record_real(f, "got.clock_offset_ms", o->clock_offset_ms);
  record_real(f, "got.clock_error_ms", o->clock_error_ms);
  TRY(record_end(f));
  return ERR_OK;
}

/* FNV-1a over 64-bit words (Fowler, Noll, Vo), going on from `hash`. */
static const uint64_t hash_start = 0xcbf29ce484222325u;
static uint64_t hash_words(uint64_t hash, const void *at, size_t bytes)
{
  uint64_t word;
  for (size_t i = 0; i + sizeof word <= bytes; i += sizeof word) {
    memcpy(&word, (const char *)at + i, sizeof word);
    hash = (hash ^ word) * 0x100000001b3u;
  }
  return hash;
}

/* Contents of a row, each element widened to float64, so that runs of every precision compare. */
enum { PIECE = 1 << 16 }; /* elements */
struct piece {
  char raw[PIECE * sizeof(double)];
  double wide[PIECE];
};
static enum err hash_row(struct trainer *t, const struct tensor *row, struct piece *p, uint64_t *out)
{
  const int64_t count = tensor_count(row);
  const size_t size = dtype_bytes(row->type);
  uint64_t hash = hash_start;
  for (int64_t first = 0; first < count; first += PIECE) {
    const int64_t n = count - first < PIECE ? count - first : PIECE;
    TRY(dev_copy_out(t->compute, p->raw, (const char *)row->at + (size_t)first * size, (size_t)n * size));
    TRY(dev_sync_stream(t->compute));
    TRY(dev_host_touch(t->dev, p->raw, (size_t)n * size, false));
    for (int64_t i = 0; i < n; i++) {
      float narrow;
      memcpy(&narrow, p->raw + (size_t)i * size, sizeof narrow);
      p->wide[i] = (double)narrow;
      if (row->type == DTYPE_F64) memcpy(&p->wide[i], p->raw + (size_t)i * size, sizeof p->wide[i]);
    }
    hash = hash_words(hash, p->wide, (size_t)n * sizeof *p->wide);
  }
  *out = hash;
  return ERR_OK;
}

enum err say_parameters(struct trainer *t, const struct output *o)
{
  struct record_file *f = o->records;
  enum err err = ERR_OK;
  struct piece *piece = malloc(sizeof *piece);
  if (piece == NULL) FAIL(ERR_MEMORY, "hashes of parameters: %zu bytes", sizeof *piece);
  for (int i = 0; i < t->table->n; i++) {
    const struct param *p = &t->table->rows[i];
    const struct tensor row = trainer_row(t, t->weights, i);
    uint64_t hash = 0;
    TRY_TO(free_piece, hash_row(t, &row, piece, &hash));
    record_begin(f, "parameter", -1, -1);
    record_text(f, "got.name", p->name);
    record_int(f, "got.rows", p->rows);
    record_int(f, "got.cols", p->cols);
    record_hex(f, "got.hash", hash);
    record_bool(f, "got.decay", p->decay);
    record_bool(f, "got.frozen", p->frozen);
    record_bool(f, "got.zero_gradient", p->zero_gradient);
    TRY_TO(free_piece, record_end(f));
  }
free_piece:
  free(piece);
  return err;
}

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
    record_hex(f, "got.hash", batch_hash(b));
    TRY(record_end(f));
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
  if (fault_is(FAULT_LN_LOGGED_LOSS_LOCAL_ONLY)) loss_sum = now->mine[0], count = t->valid_here, loss = loss_sum / count;
  record_begin(f, "step", step, -1);
  record_real(f, "got.loss_sum", loss_sum);
  record_int(f, "got.valid_tokens", (int64_t)count);
  record_real(f, "got.loss", loss);
  record_real(f, "got.norm", now->norm);
  record_real(f, "got.clip_factor", now->factor);
  record_real(f, "got.lr", now->lr);
  record_int(f, "got.update", step + 1);
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

/* --- what must be equal on all ranks -------------------------------------------------- */

static enum err say_hash(const struct output *o, int64_t step, const char *what, uint64_t hash)
{
  record_begin(o->records, "replica", step, -1);
  record_text(o->records, "got.what", what);
  record_text(o->records, "got.group", "dp");
  record_hex(o->records, "got.hash", hash);
  TRY(record_end(o->records));
  return ERR_OK;
}

enum err say_replicas(struct trainer *t, const struct output *o, int64_t step)
{
  void *const buffers[] = {t->weights, t->gradients, optim_moments1(t->optim), optim_moments2(t->optim)};
  int64_t hashes[4] = {0};
  for (int i = 0; i < 4 && buffers[i]; i++) {
    const struct tensor flat = trainer_flat(t, buffers[i]), hash = trainer_scalar(&t->at.hashes, 0, i);
    TRY(op_hash(t->compute, &hash, &flat));
  }
  TRY(dev_copy_out(t->compute, hashes, t->at.hashes.at, sizeof hashes)); /* the last thing queued: `hashes` outlives it */
  TRY(dev_sync_stream(t->compute));
  const double scalars[] = {t->now.count, t->now.all[0], t->now.all[1], t->now.norm, t->now.factor, t->now.lr};
  TRY(say_hash(o, step, "weights", (uint64_t)hashes[0]));
  TRY(say_hash(o, step, "gradients", (uint64_t)hashes[1]));
  if (buffers[2]) TRY(say_hash(o, step, "moments", hash_words(hash_start, hashes + 2, 2 * sizeof *hashes)));
  TRY(say_hash(o, step, "scalars", hash_words(hash_start, scalars, sizeof scalars)));
  return ERR_OK;
}

enum err say_memory(const struct trainer *t, const struct output *o, const struct say_memory *m)
{
  static const char *const keys[DEV_CATEGORIES] = {"got.parameters_bytes", "got.gradients_bytes", "got.optimizer_bytes",
                                                   "got.activations_bytes", "got.communication_bytes", "got.other_bytes"};
  struct record_file *f = o->records;
  struct dev_usage u;
  dev_usage(t->dev, &u);
  record_begin(f, "memory", -1, -1);
  record_int(f, "got.peak_bytes", (int64_t)u.peak);
  for (int i = 0; i < DEV_CATEGORIES; i++) record_int(f, keys[i], (int64_t)u.at_peak[i]);
  record_real(f, "got.mean_bytes", u.mean_bytes);
  record_int(f, "got.os_base_bytes", m->os_base);
  record_int(f, "got.os_peak_bytes", m->os_peak - m->os_base);
  record_int(f, "got.allocations_first", m->allocations_first);
  record_int(f, "got.allocations_last", u.allocations);
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
