/* case_readme.c - suites/case.md with a case's own numbers, and the section of the schema. */
#include "harness/case.h"

#include "harness/place.h"

#include "base/record.h"
#include "base/safetensors.h"
#include "suites/checks/evidence.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

enum { TEMPLATE_BYTES = 1 << 16, LINE = 8192, STEPS_TOLD = 12 };

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
  const struct {
    const char *key;
    int64_t value;
  } sizes[] = {{"version", CASE_VERSION},   {"layers", c->layers},        {"heads", c->heads},        {"hidden", c->hidden},
               {"head", c->hidden / c->heads}, {"positions", c->positions}, {"vocab", c->vocab},        {"sequence", c->sequence},
               {"steps", c->steps},         {"batch", c->global_batch},   {"micro", c->micro_batch},  {"micros", c->global_batch / c->micro_batch},
               {"rows", c->steps * c->global_batch}};
  for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) put(all, sizes[i].key, "%" PRId64, sizes[i].value);
  put(all, "model", "%s", c->model);
  put(all, "head_matrix", "%s", c->tied ? "wte" : "lm_head.weight");
  put(all, "tied", "%s", c->tied ? "Head and token embedding are one matrix: there is no `lm_head.weight`, and its gradient is the sum of both uses."
                                  : "The head is a matrix of its own, `lm_head.weight`.");
}

static void put_rules(json_t *all, const struct run_config *c)
{
  const struct {
    const char *key;
    double value;
  } numbers[] = {{"beta1", c->beta1}, {"beta2", c->beta2}, {"eps", c->eps}, {"decay", c->weight_decay}, {"clip", c->clip}};
  for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) put(all, numbers[i].key, "%.15g", numbers[i].value);
  put(all, "norm_note", "%s", c->tied ? ", a tied matrix once" : "");
  if (c->clip > 0) {
    put(all, "clip_rule", "every gradient times `clip_factor` = min(1, %.15g / (norm + 1e-6))", c->clip);
    put(all, "torch_clip", "after `torch.nn.utils.clip_grad_norm_(parameters, %.15g)`", c->clip);
  } else {
    put(all, "clip_rule", "no clipping: `clip_factor` is 1");
    put(all, "torch_clip", "without clipping");
  }
}

/* A parameter's name without what all have in front; of blocks the first stands for all. */
static void put_parameters(json_t *all, const struct run_data *truth)
{
  static const char front[] = "transformer.";
  char text[LINE] = "";
  json_t *record;
  size_t i;
  json_array_foreach(truth->records, i, record)
  {
    const char *name = evidence_text(record, "got.name");
    const size_t used = strlen(text);
    char shape[64];
    if (!evidence_is(record, "parameter")) continue;
    if (strncmp(name, front, sizeof front - 1) == 0) name += sizeof front - 1;
    if (strncmp(name, "h.", 2) == 0 && strncmp(name, "h.0.", 4) != 0) continue;
    const int64_t rows = record_get_int(record, "got.rows", 0), cols = record_get_int(record, "got.cols", 0);
    if (rows == 1) snprintf(shape, sizeof shape, "[%" PRId64 "]", cols);
    else snprintf(shape, sizeof shape, "[%" PRId64 ", %" PRId64 "]", rows, cols);
    const bool block = strncmp(name, "h.0.", 4) == 0;
    snprintf(text + used, sizeof text - used, "%s| `%s%s` | %s | %s |", used ? "\n" : "", block ? "h.N." : "", block ? name + 4 : name, shape,
             evidence_flag(record, "got.decay") ? "yes" : "no");
  }
  put(all, "parameters", "%s", text);
}

/* --- what the truth says ----------------------------------------------------------------------------- */

/* In as few digits as read back equal. */
static const char *shortest(double value, char out[32])
{
  for (int digits = 15; digits <= 17; digits++) {
    snprintf(out, 32, "%.*g", digits, value);
    if (strtod(out, NULL) == value) break;
  }
  return out;
}

static void put_steps(json_t *all, const struct run_data *truth)
{
  char text[LINE] = "";
  for (int64_t step = 0; step < truth->config.steps; step++) {
    const json_t *r = evidence_record(truth, "step", 0, step, -1);
    const size_t used = strlen(text);
    char rate[32];
    if (step == STEPS_TOLD) {
      snprintf(text + used, sizeof text - used, "\n| ... | | | | | |");
      break;
    }
    snprintf(text + used, sizeof text - used, "%s| %" PRId64 " | %s | %.0f | %.12g | %.12g | %.12g |", used ? "\n" : "", step,
             shortest(evidence_real(r, "got.lr"), rate), evidence_real(r, "got.valid_tokens"), evidence_real(r, "got.loss"),
             evidence_real(r, "got.norm"), evidence_real(r, "got.clip_factor"));
  }
  put(all, "told", "%s", text);
}

/* The truth's own first numbers stand in the examples. */
static void put_examples(json_t *all, const struct run_data *truth)
{
  static const struct {
    const char *key, *kind;
    int64_t micro;
    const char *of;
  } examples[] = {{"example_sum", "step", -1, "got.loss_sum"},       {"example_count", "step", -1, "got.valid_tokens"},
                  {"example_loss", "step", -1, "got.loss"},          {"example_norm", "step", -1, "got.norm"},
                  {"example_factor", "step", -1, "got.clip_factor"}, {"example_lr", "step", -1, "got.lr"},
                  {"example_micro_sum", "microbatch", 0, "got.loss_sum"}, {"example_micro_count", "microbatch", 0, "got.valid_tokens"},
                  {"example_micro_tokens", "batch", 0, "got.tokens"}};
  for (size_t i = 0; i < sizeof examples / sizeof *examples; i++)
    put(all, examples[i].key, "%.12g", evidence_value(truth, examples[i].kind, 0, 0, examples[i].micro, examples[i].of));
}

static void put_micros(json_t *all, const struct run_data *truth)
{
  double fewest = HUGE_VAL, most = 0;
  json_t *record;
  size_t i;
  json_array_foreach(truth->records, i, record)
  {
    if (!evidence_is(record, "microbatch")) continue;
    fewest = fmin(fewest, evidence_real(record, "got.valid_tokens"));
    most = fmax(most, evidence_real(record, "got.valid_tokens"));
  }
  put(all, "fewest", "%.0f", fewest);
  put(all, "most", "%.0f", most);
}

/* Documents that stand side by side in one row, at most: changes of their number along it. */
static enum err put_documents(json_t *all, const struct run_data *truth)
{
  struct safetensors *file;
  char path[2 * CONFIG_PATH];
  int64_t most = 0;
  bool padded = false;
  snprintf(path, sizeof path, "%s/batches.safetensors", truth->dir);
  TRY(safetensors_open(path, &file));
  const struct safetensor *t = safetensors_find(file, "documents");
  for (int64_t row = 0; t && row < t->data.rows; row++) {
    int32_t before = -1, now;
    int64_t here = 0;
    for (int64_t i = 0; i < t->data.cols; i++, before = now) {
      memcpy(&now, tensor_row(&t->data, row) + (size_t)i * sizeof now, sizeof now);
      here += now >= 0 && now != before;
      padded = padded || now < 0;
    }
    if (here > most) most = here;
  }
  safetensors_close(file);
  if (most == 0) FAIL(ERR_FORMAT, "%s: no documents", path);
  const char *filled = padded ? " What is left of a row is padding (`documents` -1): it has no target, and no token of a document sees it." : "";
  if (most == 1) {
    put(all, "attention", "over j <= i");
    put(all, "padding", "A row holds one document from its first place on, so a causal mask is all that attention needs.%s", filled);
  } else {
    put(all, "attention", "over those j <= i that have the same number in `documents`");
    put(all, "padding", "A row holds up to %" PRId64 " documents side by side: token i attends to those j <= i whose number in `documents` is "
        "the same.%s", most, filled);
  }
  return ERR_OK;
}

/* --- bounds ------------------------------------------------------------------------------------------ */

/* "2.4e-07", or "2.4e-07 to 1e-06": of rows that have a ceiling. */
static void span(const json_t *bounds, const char *first, const char *second, char *out, size_t bytes)
{
  const char *const lists[] = {first, second};
  double least = HUGE_VAL, most = 0;
  const json_t *row;
  size_t i;
  for (int k = 0; k < 2; k++)
    json_array_foreach(json_object_get(bounds, lists[k]), i, row)
    {
      if (json_is_null(json_object_get(row, "ceiling"))) continue;
      least = fmin(least, json_number_value(json_object_get(row, "bound")));
      most = fmax(most, json_number_value(json_object_get(row, "bound")));
    }
  if (least == most) snprintf(out, bytes, "%.2g", most);
  else snprintf(out, bytes, "%.2g to %.2g", least, most);
}

static void put_bounds(json_t *all, json_t *const bounds[CASE_PRECISIONS])
{
  char text[LINE] = "";
  for (int p = 0; p < CASE_PRECISIONS; p++) {
    char loss[64], norm[64], gradients[64];
    const size_t used = strlen(text);
    span(bounds[p], "loss", "loss_sum", loss, sizeof loss);
    span(bounds[p], "norm", "norm", norm, sizeof norm);
    span(bounds[p], "gradients", "gradients", gradients, sizeof gradients);
    snprintf(text + used, sizeof text - used, "%s| `%s` | %s | %s | %s |", used ? "\n" : "",
             json_string_value(json_object_get(bounds[p], "precision")), loss, norm, gradients);
  }
  put(all, "bounds", "%s", text);
}

static enum err numbers(const struct case_source *s, json_t *const bounds[CASE_PRECISIONS], json_t *all)
{
  put_sizes(all, s->config);
  put_rules(all, s->config);
  put_parameters(all, s->truth);
  put_steps(all, s->truth);
  put_examples(all, s->truth);
  put_micros(all, s->truth);
  put_bounds(all, bounds);
  return put_documents(all, s->truth);
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

enum err case_readme(const struct case_source *s, json_t *const bounds[CASE_PRECISIONS], FILE *out)
{
  enum err err = ERR_OK;
  char *text = malloc(TEMPLATE_BYTES);
  if (text == NULL) FAIL(ERR_MEMORY, "README.md: %d bytes", TEMPLATE_BYTES);
  json_t *values = json_object();
  TRY_TO(release, numbers(s, bounds, values));
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
          "| `case.json` | `format` \"%s\", `version` %d, `shardmark` (who wrote it), `model`, `steps` k, `global_batch` G, `micro_batch` b, "
          "`sequence` T, `layout` (what it is meant for), `precisions`, `optimizer` (`kind`, `beta1`, `beta2`, `eps`, `weight_decay`, `decayed`: "
          "names), `clip`, `learning_rates` (one a step), `set` (every option of the truth, but `name` and `out`) |\n"
          "| `config.json` | the model, in Hugging Face's keys of GPT-2 |\n"
          "| `model.safetensors` | initial weights, Hugging Face's names and shapes, float32; each a number that bf16 holds |\n"
          "| `batches.safetensors` | `tokens`, `targets`, `positions`, `documents`, int32 [k G, T]; step s has rows s G .. (s + 1) G - 1, its "
          "micro-batch m of them rows m b .. (m + 1) b - 1; target -1: does not count; document -1: padding; as the option `batch_file` reads it |\n"
          "| `truth/records.jsonl` | records of the run in float64 |\n"
          "| `truth/weights.stepS.safetensors` | before step S; S = k: at the end; float64 |\n"
          "| `truth/gradients.stepS.safetensors` | of the mean loss of step S over its valid tokens, before clipping; float64 |\n"
          "| `truth/parts.safetensors` | under the name of each vector parameter a matrix [micro-batches, elements]: what each micro-batch contributes to the gradient of step 0; float64. For `shardmark check`; absent with more than 64 micro-batches, and with policies that deal batches by their size |\n"
          "| `bounds.P.json` | of precision P: lists `loss` (step), `loss_sum` (step, microbatch), `norm` (step), `gradients` (name, step), each row "
          "with `q`, `floor`, `bound` = max(floor, 4 q), `ceiling`: null where the true gradient is zero |\n"
          "| `README.md` | what an adapter's author needs |\n",
          CASE_VERSION, CASE_FORMAT, CASE_VERSION);
}
