/* case_readme.c - suites/case.md with a case's own numbers, and the section of the schema. */
#include "harness/case.h"

#include "harness/place.h"
#include "suites/checks/evidence.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

enum { TEMPLATE_BYTES = 1 << 16, LINE = 4096 };

/* --- the numbers ---------------------------------------------------------------------------------- */

static void put(json_t *all, const char *key, const char *format, ...) __attribute__((format(printf, 3, 4)));
static void put(json_t *all, const char *key, const char *format, ...)
{
  char text[LINE];
  va_list args;
  va_start(args, format);
  vsnprintf(text, sizeof text, format, args);
  va_end(args);
  json_object_set_new(all, key, json_string(text));
}

static void put_sizes(json_t *all, const struct run_config *c)
{
  put(all, "version", "%d", CASE_VERSION);
  put(all, "model", "%s", c->model);
  put(all, "layers", "%" PRId64, c->layers);
  put(all, "heads", "%" PRId64, c->heads);
  put(all, "hidden", "%" PRId64, c->hidden);
  put(all, "head", "%" PRId64, c->hidden / c->heads);
  put(all, "positions", "%" PRId64, c->positions);
  put(all, "vocab", "%" PRId64, c->vocab);
  put(all, "sequence", "%" PRId64, c->sequence);
  put(all, "steps", "%" PRId64, c->steps);
  put(all, "last", "%" PRId64, c->steps - 1);
  put(all, "batch", "%" PRId64, c->global_batch);
  put(all, "micro", "%" PRId64, c->micro_batch);
  put(all, "micros", "%" PRId64, c->global_batch / c->micro_batch);
  put(all, "rows", "%" PRId64, c->steps * c->global_batch);
}

static void put_training(json_t *all, const struct case_source *s)
{
  const struct run_config *c = s->config;
  char rates[LINE] = "";
  for (int64_t step = 0; step < c->steps && strlen(rates) + 64 < sizeof rates; step++)
    snprintf(rates + strlen(rates), sizeof rates - strlen(rates), "%s%.17g", step ? ", " : "", evidence_value(s->truth, "step", 0, step, -1, "got.lr"));
  put(all, "rates", "%s", rates);
  put(all, "beta1", "%.15g", c->beta1);
  put(all, "beta2", "%.15g", c->beta2);
  put(all, "eps", "%.15g", c->eps);
  put(all, "decay", "%.15g", c->weight_decay);
  put(all, "clip", "%.15g", c->clip);
}

static json_t *numbers(const struct case_source *s)
{
  json_t *all = json_object();
  put_sizes(all, s->config);
  put_training(all, s);
  return all;
}

/* --- the text ------------------------------------------------------------------------------------- */

static enum err read_template(char *out, size_t bytes)
{
  char path[CONFIG_PATH];
  TRY(place_source("suites", path, sizeof path - 16));
  strcat(path, "/case.md");
  FILE *f = fopen(path, "r");
  if (f == NULL) FAIL(ERR_IO, "%s: %s", path, strerror(errno));
  const size_t n = fread(out, 1, bytes, f);
  const bool lost = ferror(f) || n == bytes;
  fclose(f);
  if (lost) FAIL(ERR_IO, "%s: cannot be read, or has %zu bytes or more", path, bytes);
  out[n] = '\0';
  return ERR_OK;
}

/* Text with {{key}} replaced. */
static enum err fill(const char *text, const json_t *values, FILE *out)
{
  for (const char *open; (open = strstr(text, "{{"));) {
    char key[32];
    const size_t n = strcspn(open + 2, "}");
    snprintf(key, sizeof key, "%.*s", (int)n, open + 2);
    const char *value = json_string_value(json_object_get(values, key));
    if (value == NULL) FAIL(ERR_FORMAT, "suites/case.md names {{%s}}, which there is not", key);
    fwrite(text, 1, (size_t)(open - text), out);
    fputs(value, out);
    text = open + 2 + n;
    text += strncmp(text, "}}", 2) == 0 ? 2 : strlen(text);
  }
  fputs(text, out);
  return ERR_OK;
}

enum err case_readme(const struct case_source *s, FILE *out)
{
  enum err err = ERR_OK;
  char *text = malloc(TEMPLATE_BYTES);
  if (text == NULL) FAIL(ERR_MEMORY, "README.md: %d bytes", TEMPLATE_BYTES);
  json_t *values = numbers(s);
  TRY_TO(release, read_template(text, TEMPLATE_BYTES));
  TRY_TO(release, fill(text, values, out));
release:
  json_decref(values);
  free(text);
  return err;
}

void case_schema_markdown(FILE *out)
{
  fprintf(out,
          "\n## Cases (`shardmark export`), version %d\n\n"
          "A directory that holds one training's initial weights, batches, float64 truth and bounds, for a trainer of any kind to be\n"
          "checked against; its `README.md` says how.\n\n"
          "| file | what |\n|---|---|\n"
          "| `case.json` | `format` \"%s\", `version` %d, `shardmark` (who wrote it), `model`, `steps` k, `global_batch` G, `micro_batch` b, `sequence` T, "
          "`layout` (what it is meant for), `precisions`, `optimizer` (`kind`, `beta1`, `beta2`, `eps`, `weight_decay`, `decayed`: names), `clip`, "
          "`learning_rates` (one a step), `set` (every option of the truth, but `name` and `out`) |\n"
          "| `config.json` | the model, in Hugging Face's keys of GPT-2 |\n"
          "| `model.safetensors` | initial weights, Hugging Face's names and shapes, float32; each a number that bf16 holds |\n"
          "| `batches.safetensors` | `tokens`, `targets`, `positions`, `documents`, int32 [k G, T]; step s has rows s G .. (s + 1) G - 1, its "
          "micro-batch m of them rows m b .. (m + 1) b - 1; target -1: does not count; document -1: padding; as the option `batch_file` reads it |\n"
          "| `truth/records.jsonl` | records of the run in float64 |\n"
          "| `truth/weights.stepS.safetensors` | before step S; S = k: at the end; float64 |\n"
          "| `truth/gradients.stepS.safetensors` | of the mean loss of step S over its valid tokens, before clipping; float64 |\n"
          "| `bounds.P.json` | of precision P: lists `loss` (step), `loss_sum` (step, microbatch), `norm` (step), `gradients` (name, step), each row "
          "with `q`, `floor`, `bound` = max(floor, 4 q), `ceiling`: null where the true gradient is zero |\n"
          "| `README.md` | what an adapter's author needs |\n",
          CASE_VERSION, CASE_FORMAT, CASE_VERSION);
}
