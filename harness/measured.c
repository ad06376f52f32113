/* measured.c - records of a run that the harness did not start, read back and judged by suites/checks/speed.c. */
#include "harness/measured.h"
#include "harness/sample.h"

#include "base/record.h"
#include "suites/checks/speed.h"

#include <dirent.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static int is_records(const struct dirent *e)
{
  const size_t n = strlen(e->d_name);
  return n > 6 && strncmp(e->d_name, "records", 7) == 0 && strcmp(e->d_name + n - 6, ".jsonl") == 0;
}

/* Of every node; new reference. */
static enum err read_folder(const char *folder, json_t **out)
{
  enum err err = ERR_OK;
  struct dirent **files = NULL;
  json_t *all = json_array();
  const int n = scandir(folder, &files, is_records, alphasort);
  if (n < 0) FAIL_TO(drop, ERR_IO, "%s: %s", folder, strerror(errno));
  for (int i = 0; i < n; i++) {
    char path[CONFIG_PATH];
    json_t *some = NULL;
    int cut;
    snprintf(path, sizeof path, "%s/%s", folder, files[i]->d_name);
    if (!err) err = record_read(path, &some, &cut);
    if (some) json_array_extend(all, some);
    json_decref(some);
    free(files[i]);
  }
  free(files);
  if (err) goto drop;
  *out = all;
  return ERR_OK;

drop:
  json_decref(all);
  return err;
}

/* The settings that the run says it had. */
static enum err read_config(const char *folder, const json_t *records, struct run_config *out)
{
  size_t i;
  json_t *r;
  config_default(out);
  json_array_foreach(records, i, r)
  {
    const char *kind = record_get_text(r, "kind"), *key;
    json_t *value;
    if (kind == NULL || strcmp(kind, "run") != 0) continue;
    json_object_foreach(r, key, value) {
      char text[CONFIG_PATH];
      if (strncmp(key, "set.", 4) != 0) continue;
      if (json_is_string(value)) snprintf(text, sizeof text, "%s", json_string_value(value));
      else if (json_is_boolean(value)) snprintf(text, sizeof text, json_is_true(value) ? "true" : "false");
      else if (json_is_integer(value)) snprintf(text, sizeof text, "%lld", (long long)json_integer_value(value));
      else snprintf(text, sizeof text, "%.17g", json_number_value(value));
      TRY(config_set(out, key + 4, text));
    }
    return ERR_OK;
  }
  FAIL(ERR_FORMAT, "%s: no record of a run", folder);
}

/* "n/a" for what is not known. */
static const char *number(double x, const char *format, double scale, char out[32])
{
  snprintf(out, 32, "n/a");
  if (isfinite(x)) snprintf(out, 32, format, x * scale);
  return out;
}

static void print_row(FILE *out, const struct run_config *c, const struct speed *s)
{
  char a[32], b[32], h[32], d[32], e[32], f[32], batch[64], precision[32];
  opt_text(opt_find(run_options, run_options_count, "precision"), c, precision, sizeof precision);
  snprintf(batch, sizeof batch, "%lld x %lld", (long long)c->global_batch, (long long)c->sequence);
  fprintf(out, "%-12s %-8s %-10s", c->model, precision, batch);
  if (s->outcome != OUTCOME_PASS) {
    fprintf(out, " %s: %s\n", outcome_name(s->outcome), s->why);
    return;
  }
  fprintf(out, " %5lld %9.2f %10.0f %8s %8s %8s %6s %6s %8s  %s\n", (long long)s->steps, s->step_ms, s->tokens_per_s,
          number(s->mfu_causal, "%.1f %%", 100, a), number(s->mfu_full, "%.1f %%", 100, b), number(s->hfu, "%.1f %%", 100, h), number(s->clock_mhz, "%.0f", 1, d),
          number(s->power_w, "%.0f", 1, e), number(s->mj_per_token, "%.2f", 1, f), s->device);
}

static enum err one(const char *folder, FILE *out, enum outcome *outcome)
{
  struct run_data run = {.status = 0};
  struct speed speed;
  json_t *records = NULL;
  TRY(read_folder(folder, &records));
  const enum err err = read_config(folder, records, &run.config);
  if (!err) {
    run.records = records;
    speed_take(&run, sample_warm_up(run.config.steps), &speed);
    print_row(out, &run.config, &speed);
    *outcome = speed.outcome;
  }
  json_decref(records);
  return err ? err_trace(err, __FILE__, __LINE__) : ERR_OK;
}

enum err measured_print(const char *const *folders, int n, FILE *out, enum status *status)
{
  *status = STATUS_PASS;
  fprintf(out, "%-12s %-8s %-10s %5s %9s %10s %8s %8s %8s %6s %6s %8s  %s\n", "model", "type", "batch", "steps", "step/ms", "tokens/s",
          "MFU", "square", "HFU", "MHz", "W", "mJ/token", "device");
  for (int i = 0; i < n; i++) {
    enum outcome outcome;
    TRY(one(folders[i], out, &outcome));
    if (outcome == OUTCOME_FAIL) *status = STATUS_FAIL;
    if (outcome == OUTCOME_INVALID && *status == STATUS_PASS) *status = STATUS_INVALID;
  }
  fprintf(out, "MFU: model FLOPs (attention's causal half; square: all of it; no padding, no recompute) over the published dense peak; HFU: with recompute\n");
  return ERR_OK;
}
