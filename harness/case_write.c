/* case_write.c - the files of a case but its README. */
#include "harness/case.h"

#include "base/safetensors.h"
#include "suites/checks/evidence.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum { PATH_BYTES = 2 * CONFIG_PATH };

/* --- JSON ---------------------------------------------------------------------------------------- */

static json_t *option(const struct run_config *c, const char *key) { return opt_json(opt_find(run_options, run_options_count, key), c); }

static json_t *decayed(const struct run_data *truth)
{
  json_t *list = json_array(), *record;
  size_t i;
  json_array_foreach(truth->records, i, record)
    if (evidence_is(record, "parameter") && evidence_flag(record, "got.decay"))
      json_array_append_new(list, json_string(evidence_text(record, "got.name")));
  return list;
}

static json_t *learning_rates(const struct run_data *truth)
{
  json_t *list = json_array();
  for (int64_t step = 0; step < truth->config.steps; step++)
    json_array_append_new(list, json_real(evidence_value(truth, "step", 0, step, -1, "got.lr")));
  return list;
}

/* Every option but where this machine put it. */
static json_t *settings(const struct run_config *c)
{
  json_t *all = json_object();
  for (int i = 0; i < run_options_count; i++) {
    const char *key = run_options[i].key;
    if (strcmp(key, "name") != 0 && strcmp(key, "out") != 0) json_object_set_new(all, key, opt_json(&run_options[i], c));
  }
  return all;
}

static json_t *layout(const struct run_config *c)
{
  static const char *const keys[] = {"dp", "tp", "pp", "schedule", "chunks", "stages", "sequence_parallel"};
  json_t *all = json_object();
  for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) json_object_set_new(all, keys[i], option(c, keys[i]));
  return all;
}

static json_t *precisions(const struct run_config *c)
{
  json_t *list = json_array();
  for (int i = 0; i < CASE_PRECISIONS; i++) {
    struct run_config of = *c;
    of.precision = case_precisions[i];
    json_array_append_new(list, option(&of, "precision"));
  }
  return list;
}

static json_t *optimizer(const struct case_source *s)
{
  const struct run_config *c = s->config;
  return json_pack("{s:o, s:f, s:f, s:f, s:f, s:o}", "kind", option(c, "optimizer"), "beta1", c->beta1, "beta2", c->beta2, "eps", c->eps,
                   "weight_decay", c->weight_decay, "decayed", decayed(s->truth));
}

json_t *case_json(const struct case_source *s)
{
  const struct run_config *c = s->config;
  const char *writer = evidence_text(evidence_record(s->truth, "run", 0, -1, -1), "env.version");
  return json_pack("{s:s, s:i, s:s, s:s, s:I, s:I, s:I, s:I, s:o, s:o, s:o, s:f, s:o, s:o}", "format", CASE_FORMAT, "version", CASE_VERSION,
                   "shardmark", writer, "model", c->model, "steps", (json_int_t)c->steps, "global_batch", (json_int_t)c->global_batch,
                   "micro_batch", (json_int_t)c->micro_batch, "sequence", (json_int_t)c->sequence, "layout", layout(c), "precisions", precisions(c),
                   "optimizer", optimizer(s), "clip", c->clip, "learning_rates", learning_rates(s->truth), "set", settings(&s->truth->config));
}

json_t *case_model_json(const struct run_config *c)
{
  return json_pack("{s:[s], s:s, s:I, s:I, s:I, s:I, s:I, s:I, s:s, s:f, s:f, s:f, s:f, s:b, s:b, s:n, s:n, s:s}", "architectures", "GPT2LMHeadModel",
                   "model_type", "gpt2", "vocab_size", (json_int_t)c->vocab, "n_positions", (json_int_t)c->positions, "n_embd", (json_int_t)c->hidden,
                   "n_layer", (json_int_t)c->layers, "n_head", (json_int_t)c->heads, "n_inner", (json_int_t)(4 * c->hidden), "activation_function",
                   "gelu_new", "resid_pdrop", 0.0, "embd_pdrop", 0.0, "attn_pdrop", 0.0, "layer_norm_epsilon", 1e-5, "scale_attn_weights", 1,
                   "tie_word_embeddings", c->tied, "bos_token_id", "eos_token_id", "torch_dtype", "float32");
}

static enum err write_json(const json_t *value, const char *dir, const char *name)
{
  char path[PATH_BYTES];
  snprintf(path, sizeof path, "%s/%s", dir, name);
  errno = 0;
  if (value == NULL) FAIL(ERR_MEMORY, "%s", path);
  FILE *f = fopen(path, "w");
  if (f == NULL) FAIL(ERR_IO, "%s: %s", path, strerror(errno));
  bool ok = json_dumpf(value, f, JSON_INDENT(1) | JSON_REAL_PRECISION(17)) == 0 && fputc('\n', f) != EOF && fflush(f) == 0;
  const int why = errno;
  ok = fclose(f) == 0 && ok;
  if (!ok) FAIL(ERR_IO, "%s: %s", path, strerror(why ? why : errno));
  return ERR_OK;
}

static enum err write_own_json(json_t *value, const char *dir, const char *name)
{
  const enum err err = write_json(value, dir, name);
  json_decref(value);
  return err ? err_trace(err, __FILE__, __LINE__) : ERR_OK;
}

/* --- tensors --------------------------------------------------------------------------------------- */

/* The weights before step 0 as float32, which holds them exactly: the truth began with numbers of bf16. */
static enum err narrow(const struct safetensor *from, struct safetensor *to)
{
  const int64_t n = tensor_count(&from->data);
  *to = *from;
  double *wide = malloc((size_t)n * sizeof *wide + 1);
  float *values = malloc((size_t)n * sizeof *values + 1);
  to->data = tensor_at(values, DTYPE_F32, from->data.rows, from->data.cols);
  enum err err = ERR_OK;
  if (wide == NULL || values == NULL) FAIL_TO(free_wide, ERR_MEMORY, "weights of %s: %lld elements", from->name, (long long)n);
  TRY_TO(free_wide, evidence_elements(&from->data, wide));
  for (int64_t i = 0; i < n; i++) {
    values[i] = (float)wide[i];
    if ((double)values[i] != wide[i])
      FAIL_TO(free_wide, ERR_FORMAT, "initial weight %s[%lld] = %.17g is no float32", from->name, (long long)i, wide[i]);
  }
free_wide:
  free(wide);
  return err; /* values are the caller's to free, whatever came of it */
}

static enum err write_model(const struct run_data *truth, const char *dir)
{
  static const char *const meta[] = {"format", "pt", NULL}; /* transformers wants to be told */
  enum err err = ERR_OK;
  struct safetensors *file;
  char path[PATH_BYTES];
  TRY(evidence_tensors(truth, "weights", 0, &file));
  const int n = safetensors_count(file);
  struct safetensor *list = calloc((size_t)n + 1, sizeof *list);
  if (list == NULL) FAIL_TO(close_file, ERR_MEMORY, "%d weights", n);
  for (int i = 0; i < n; i++) TRY_TO(free_list, narrow(safetensors_get(file, i), &list[i]));
  snprintf(path, sizeof path, "%s/model.safetensors", dir);
  TRY_TO(free_list, safetensors_write(path, list, n, meta));
free_list:
  for (int i = 0; i < n; i++) free(list[i].data.at);
  free(list);
close_file:
  safetensors_close(file);
  return err;
}

static enum err move(const char *from_dir, const char *name, const char *to_dir)
{
  char from[PATH_BYTES], to[PATH_BYTES];
  snprintf(from, sizeof from, "%s/%s", from_dir, name);
  snprintf(to, sizeof to, "%s/%s", to_dir, name);
  if (rename(from, to) != 0) FAIL(ERR_IO, "%s: %s", to, strerror(errno));
  return ERR_OK;
}

/* Sequences are numbered as a run that reads batches.safetensors numbers them: by their rows. */
static void renumber(const struct run_config *c, json_t *batch)
{
  const int64_t first = evidence_step(batch) * c->global_batch + evidence_microbatch(batch) * c->micro_batch;
  json_t *rows = json_array();
  for (int64_t b = 0; b < c->micro_batch; b++) json_array_append_new(rows, json_integer(first + b));
  json_object_set_new(batch, "got.samples", rows);
}

/* The run's own records, but for where it found its sequences and put its files. */
static enum err write_records(const struct run_data *truth, const char *dir)
{
  char path[PATH_BYTES];
  json_t *record;
  size_t i;
  snprintf(path, sizeof path, "%s/records.jsonl", dir);
  FILE *f = fopen(path, "w");
  if (f == NULL) FAIL(ERR_IO, "%s: %s", path, strerror(errno));
  bool ok = true;
  json_array_foreach(truth->records, i, record)
  {
    json_t *said = json_copy(record);
    json_object_del(said, "set.out");
    if (evidence_is(said, "batch")) renumber(&truth->config, said);
    ok = ok && said && json_dumpf(said, f, JSON_COMPACT | JSON_REAL_PRECISION(17)) == 0 && fputc('\n', f) != EOF;
    json_decref(said);
  }
  ok = ok && fflush(f) == 0;
  const int why = errno;
  if (fclose(f) != 0 || !ok) FAIL(ERR_IO, "%s: %s", path, strerror(ok ? errno : why));
  return ERR_OK;
}

static enum err write_truth(const struct run_data *truth, const struct run_data *parts, const char *dir)
{
  char folder[PATH_BYTES];
  json_t *record;
  size_t i;
  snprintf(folder, sizeof folder, "%s/truth", dir);
  if (mkdir(folder, 0777) != 0) FAIL(ERR_IO, "%s: %s", folder, strerror(errno));
  TRY(write_records(truth, folder));
  if (parts) TRY(case_write_parts(truth, parts, folder));
  json_array_foreach(truth->records, i, record)
    if (evidence_is(record, "tensors")) TRY(move(truth->dir, evidence_text(record, "got.file"), folder));
  return ERR_OK;
}

static enum err write_readme(const struct case_source *s, json_t *const bounds[CASE_PRECISIONS], const char *dir)
{
  char path[PATH_BYTES];
  snprintf(path, sizeof path, "%s/README.md", dir);
  FILE *f = fopen(path, "w");
  if (f == NULL) FAIL(ERR_IO, "%s: %s", path, strerror(errno));
  const enum err err = case_readme(s, bounds, f);
  const bool ok = fflush(f) == 0 && !ferror(f);
  const int why = errno;
  if (fclose(f) != 0 || (!err && !ok)) FAIL(ERR_IO, "%s: %s", path, strerror(ok ? errno : why));
  return err ? err_trace(err, __FILE__, __LINE__) : ERR_OK;
}

enum err case_write(const struct case_source *s, json_t *const bounds[CASE_PRECISIONS], const char *dir)
{
  TRY(write_own_json(case_json(s), dir, "case.json"));
  TRY(write_own_json(case_model_json(s->config), dir, "config.json"));
  for (int i = 0; i < CASE_PRECISIONS; i++) {
    char name[64];
    snprintf(name, sizeof name, "bounds.%s.json", json_string_value(json_object_get(bounds[i], "precision")));
    TRY(write_json(bounds[i], dir, name));
  }
  TRY(write_readme(s, bounds, dir));
  TRY(write_model(s->truth, dir));
  TRY(move(s->truth->dir, "batches.safetensors", dir));
  return write_truth(s->truth, s->parts, dir);
}
