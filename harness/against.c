/* against.c - a case from its folder; nothing in it is believed before it has been looked at. */
#include "harness/against.h"

#include "base/record.h"
#include "suites/checks/noise.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { PATH_BYTES = CONFIG_PATH + 64 };

static enum err read_json(const char *path, json_t **out)
{
  json_error_t why;
  *out = json_load_file(path, JSON_REJECT_DUPLICATES, &why);
  if (*out == NULL) FAIL(ERR_FORMAT, "%s:%d: %s", path, why.line, why.text);
  if (json_is_object(*out)) return ERR_OK;
  json_decref(*out);
  *out = NULL;
  FAIL(ERR_FORMAT, "%s: not an object", path);
}

/* As a run file spells it. */
static enum err text_of(const char *key, const json_t *value, char *out, size_t bytes)
{
  if (json_is_string(value)) snprintf(out, bytes, "%s", json_string_value(value));
  else if (json_is_integer(value)) snprintf(out, bytes, "%lld", (long long)json_integer_value(value));
  else if (json_is_real(value)) snprintf(out, bytes, "%.17g", json_real_value(value));
  else if (json_is_boolean(value)) snprintf(out, bytes, "%s", json_is_true(value) ? "true" : "false");
  else FAIL(ERR_FORMAT, "case.json: set: %s is neither a text nor a number nor true or false", key);
  return ERR_OK;
}

/* The truth's settings are finished: nothing is derived anew. */
static enum err read_settings(struct against *a)
{
  const char *key;
  json_t *value, *set = json_object_get(a->json, "set");
  if (!json_is_object(set)) FAIL(ERR_FORMAT, "%s/case.json: no object `set`", a->dir);
  config_default(&a->config);
  json_object_foreach(set, key, value)
  {
    char text[CONFIG_PATH];
    TRY(text_of(key, value, text, sizeof text));
    if (config_set(&a->config, key, text) != ERR_OK) {
      struct err_saved why;
      err_save(&why, ERR_FORMAT);
      FAIL(ERR_FORMAT, "%s/case.json: set: %.400s", a->dir, why.text);
    }
  }
  const struct run_config *c = &a->config;
  if (c->steps < 1 || c->micro_batch < 1 || c->global_batch < c->micro_batch || c->layers < 1 || c->hidden < 1 || c->vocab < 1 || c->sequence < 1)
    FAIL(ERR_FORMAT, "%s/case.json: set: steps, global_batch, micro_batch, sequence, layers, hidden and vocab must be at least 1", a->dir);
  return ERR_OK;
}

static enum err read_truth(struct against *a)
{
  char path[PATH_BYTES];
  json_t *records;
  int cut;
  snprintf(path, sizeof path, "%s/truth/records.jsonl", a->dir);
  TRY(record_read(path, &records, &cut));
  a->truth = (struct run_data){.config = a->config, .records = records, .end = "exited"};
  if (snprintf(a->truth.dir, sizeof a->truth.dir, "%s/truth", a->dir) >= (int)sizeof a->truth.dir) FAIL(ERR_CONFIG, "path too long: %.80s...", a->dir);
  return ERR_OK;
}

enum err against_open(const char *dir, struct against *a)
{
  enum err err = ERR_OK;
  char path[PATH_BYTES];
  memset(a, 0, sizeof *a);
  if (snprintf(a->dir, sizeof a->dir, "%s", dir) >= (int)sizeof a->dir) FAIL(ERR_CONFIG, "path too long: %.80s...", dir);
  snprintf(path, sizeof path, "%s/case.json", dir);
  if (access(path, R_OK) != 0) FAIL(ERR_CONFIG, "%s: %s; valid: a directory that `shardmark export` wrote", path, strerror(errno));
  TRY(read_json(path, &a->json));
  const char *format = json_string_value(json_object_get(a->json, "format")), *model = json_string_value(json_object_get(a->json, "model"));
  const json_t *version = json_object_get(a->json, "version");
  if (format == NULL || strcmp(format, CASE_FORMAT) != 0)
    FAIL_TO(close, ERR_CONFIG, "%s: format '%s'; valid: " CASE_FORMAT, path, format ? format : "none");
  if (!json_is_integer(version) || json_integer_value(version) != CASE_VERSION)
    FAIL_TO(close, ERR_CONFIG, "%s: version %lld is another shardmark's; valid: %d", path, (long long)json_integer_value(version), CASE_VERSION);
  snprintf(a->model, sizeof a->model, "%s", model ? model : "");
  TRY_TO(close, read_settings(a));
  TRY_TO(close, read_truth(a));
  return ERR_OK;

close:
  against_close(a);
  return err;
}

void against_close(struct against *a)
{
  json_decref(a->json);
  json_decref((json_t *)a->truth.records);
  json_decref((json_t *)a->bounds.records);
  memset(a, 0, sizeof *a);
}

static const char *precision_name(enum precision p)
{
  static const char *const names[] = {[PRECISION_F64] = "float64", [PRECISION_F32] = "float32", [PRECISION_TF32] = "tf32", [PRECISION_BF16] = "bf16",
                                      [PRECISION_F16] = "fp16"};
  return names[p];
}

enum err against_bounds(struct against *a, enum precision precision)
{
  char path[PATH_BYTES], valid[160] = "";
  json_t *bounds, *records;
  for (enum precision p = PRECISION_F64; p <= PRECISION_F16; p++) {
    snprintf(path, sizeof path, "%s/bounds.%s.json", a->dir, precision_name(p));
    const size_t used = strlen(valid);
    if (access(path, F_OK) == 0) snprintf(valid + used, sizeof valid - used, "%s%s", used ? ", " : "", precision_name(p));
  }
  snprintf(path, sizeof path, "%s/bounds.%s.json", a->dir, precision_name(precision));
  if (access(path, F_OK) != 0)
    FAIL(ERR_CONFIG, "set.precision: %s; the case has no bounds for it; valid: %s", precision_name(precision), valid[0] ? valid : "none");
  TRY(read_json(path, &bounds));
  const enum err err = noise_records(bounds, &records);
  json_decref(bounds);
  if (err) {
    struct err_saved why;
    err_save(&why, err);
    FAIL(err, "%s: %.400s", path, why.text);
  }
  a->bounds = (struct run_data){.config = a->config, .records = records, .end = "exited"};
  a->bounds.config.precision = precision;
  return ERR_OK;
}

/* --- other micro-batches ----------------------------------------------------------------------- */

static bool is_noise_of_sums(const json_t *r)
{
  const char *kind = json_string_value(json_object_get(r, "kind")), *of = record_get_text(r, "got.of");
  return kind && of && strcmp(kind, "noise") == 0 && strcmp(of, "loss_sum") == 0;
}

static bool is_of_microbatches(const json_t *r)
{
  const char *kind = json_string_value(json_object_get(r, "kind"));
  return kind && (strcmp(kind, "microbatch") == 0 || strcmp(kind, "batch") == 0 || is_noise_of_sums(r));
}

static bool same_place(const json_t *a, const json_t *b)
{
  return json_equal(json_object_get(a, "kind"), json_object_get(b, "kind")) && json_equal(json_object_get(a, "step"), json_object_get(b, "step")) &&
         json_equal(json_object_get(a, "microbatch"), json_object_get(b, "microbatch"));
}

/* What the part adds to the whole: numbers are summed up, samples joined, distances are at most the largest. */
static void join(json_t *whole, const json_t *part)
{
  static const char *const counts[] = {"got.tokens", "got.valid_tokens"};
  const double sum = record_get_real(whole, "got.loss_sum", NAN) + record_get_real(part, "got.loss_sum", NAN);
  for (int i = 0; i < 2; i++)
    if (json_object_get(whole, counts[i]))
      json_object_set_new(whole, counts[i], json_integer(record_get_int(whole, counts[i], 0) + record_get_int(part, counts[i], 0)));
  if (!isnan(sum)) json_object_set_new(whole, "got.loss_sum", json_real(sum));
  if (json_object_get(whole, "got.q"))
    json_object_set_new(whole, "got.q", json_real(fmax(record_get_real(whole, "got.q", NAN), record_get_real(part, "got.q", NAN))));
  json_array_extend(json_object_get(whole, "got.samples"), json_object_get(part, "got.samples"));
}

/* New reference. */
static json_t *regrouped(const json_t *records, int64_t n)
{
  json_t *out = json_array(), *r;
  size_t i, k;
  json_array_foreach((json_t *)records, i, r)
  {
    if (!is_of_microbatches(r)) {
      json_array_append(out, r);
      continue;
    }
    json_t *mine = json_deep_copy(r), *whole = NULL, *other;
    json_object_set_new(mine, "microbatch", json_integer(record_get_int(r, "microbatch", 0) / n));
    json_object_del(mine, "got.hash"); /* of contents of another cut */
    json_array_foreach(out, k, other) if (is_of_microbatches(other) && same_place(other, mine)) whole = other;
    if (whole) join(whole, mine);
    else json_array_append(out, mine);
    json_decref(mine);
  }
  return out;
}

enum err against_regroup(struct against *a, int64_t micro_batch)
{
  const int64_t own = a->config.micro_batch;
  if (micro_batch == own) return ERR_OK;
  if (micro_batch < own || micro_batch % own != 0 || a->config.global_batch % micro_batch != 0)
    FAIL(ERR_CONFIG, "set.micro_batch: %lld; valid: a multiple of the case's %lld that divides its batch of %lld", (long long)micro_batch,
         (long long)own, (long long)a->config.global_batch);
  struct run_data *const both[] = {&a->truth, &a->bounds};
  for (int i = 0; i < 2; i++) {
    json_t *records = regrouped(both[i]->records, micro_batch / own);
    json_decref((json_t *)both[i]->records);
    both[i]->records = records;
    both[i]->config.micro_batch = micro_batch;
  }
  a->config.micro_batch = micro_batch;
  return ERR_OK;
}
