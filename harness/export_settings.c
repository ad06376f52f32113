/* export_settings.c - what a case trains, unless it is told otherwise, and what it cannot be told. */
#include "harness/cut.h"
#include "harness/export.h"

#include "base/nearest.h"

#include <stdio.h>
#include <string.h>

static const struct {
  const char *key, *value;
} own[] = {{"steps", "3"},      {"documents", "400"},      {"documents_each", "1"}, {"seed", "7"},          {"revealing", "true"}, {"clip", "0.1"},
           {"eps", "1e-5"},     {"lr_schedule", "cosine"}, {"lr_warmup", "2"},      {"weights_as", "bf16"}, {"dp", "2"}};

void export_defaults(struct run_config *c)
{
  config_default(c);
  for (size_t i = 0; i < sizeof own / sizeof *own; i++) BUG_IF(config_set(c, own[i].key, own[i].value) != ERR_OK);
}

/* What a trainer that reads a case may be asked to do; the rest is the layout's, the case's own, or of our trainer alone. */
static const char *const allowed[] = {
  "layers", "heads", "hidden", "positions", "vocab", "tied", "revealing", "global_batch", "micro_batch", "sequence", "steps", "lr_schedule",
  "lr_warmup", "lr_decay", "lr", "lr_min", "beta1", "beta2", "eps", "weight_decay", "clip", "corpus", "documents", "lengths", "length",
  "shuffle", "policy", "documents_each", "packing", "pack_limit", "tail", "deal", "cost_a", "cost_b", "cost_c", "seed", "weights", "batch_file"};
enum { ALLOWED = sizeof allowed / sizeof *allowed };

void export_keys(char *out, size_t bytes)
{
  size_t used = 0;
  out[0] = '\0';
  for (int i = 0; i < ALLOWED && used < bytes; i++) used += (size_t)snprintf(out + used, bytes - used, "%s%s", i ? ", " : "", allowed[i]);
}

static const char *why_not(const char *key)
{
  static const struct {
    const char *key, *why;
  } reasons[] = {{"precision", "a case has float32 and bf16"},
                 {"weights_as", "a case's weights are numbers that bf16 holds"},
                 {"dropout", "masks are drawn by each trainer in its own way"},
                 {"model", "that is --model"},
                 {"dp", "that is --layout dp=N"},
                 {"tp", "that is --layout tp=N"},
                 {"pp", "that is --layout pp=N"},
                 {"optimizer", "a case is trained by AdamW"},
                 {"frozen", "every parameter of a case is trained"},
                 {"unused", "every parameter of a case is trained"},
                 {"reused", "every parameter of a case is trained"},
                 {"steps", "it has an update to compare"},
                 {"fault", "its truth has none"}};
  for (size_t i = 0; i < sizeof reasons / sizeof *reasons; i++)
    if (strcmp(reasons[i].key, key) == 0) return reasons[i].why;
  return "a case does not depend on it";
}

bool export_may_set(const char *key, const char **why)
{
  for (int i = 0; i < ALLOWED; i++)
    if (strcmp(allowed[i], key) == 0) return true;
  *why = why_not(key);
  return false;
}

void export_decay(struct run_config *c)
{
  if (c->lr_schedule == LR_COSINE && c->lr_decay == 0) c->lr_decay = c->lr_warmup + 2 * c->steps; /* the last update is not one of nothing */
}

enum err export_check(const struct run_config *c)
{
  const struct {
    const char *key;
    bool ok;
    const char *valid;
  } rules[] = {{"task", c->task == TASK_TRAIN, "train"},
               {"steps", c->steps >= 1, "1 or more"},
               {"weights_as", c->weights_as == DTYPE_BF16, "bf16"},
               {"dropout", c->dropout == 0, "0"},
               {"optimizer", c->optimizer == OPTIMIZER_ADAMW, "adamw"},
               {"frozen", c->frozen[0] == '\0', "\"\""},
               {"unused", !c->unused, "false"},
               {"reused", c->reused == 0, "0"},
               {"fault", c->fault[0] == '\0', "\"\""}};
  for (size_t i = 0; i < sizeof rules / sizeof *rules; i++) {
    char value[CONFIG_PATH];
    if (rules[i].ok) continue;
    opt_text(opt_find(run_options, run_options_count, rules[i].key), c, value, sizeof value);
    FAIL(ERR_CONFIG, "%s: '%.100s' is not for a case (%s); valid: %s", rules[i].key, value, why_not(rules[i].key), rules[i].valid);
  }
  return ERR_OK;
}

static enum err set(const char *text, struct run_config *c)
{
  char key[64];
  const char *equals = strchr(text, '=');
  const size_t n = equals ? (size_t)(equals - text) : 0;
  if (n == 0 || n >= sizeof key) FAIL(ERR_CONFIG, "--set %.80s: no KEY=VALUE; valid: as in --set layers=2", text);
  snprintf(key, sizeof key, "%.*s", (int)n, text);
  struct nearest near = nearest_to(key);
  for (int i = 0; i < ALLOWED; i++) {
    if (strcmp(allowed[i], key) != 0) {
      nearest_offer(&near, allowed[i]);
      continue;
    }
    const enum err err = config_set(c, key, equals + 1);
    if (err) FAIL(err, "--set %s", err_text());
    return ERR_OK;
  }
  char names[128];
  if (opt_find(run_options, run_options_count, key))
    FAIL(ERR_CONFIG, "--set %.80s: %s; valid keys: see `shardmark export --help`", text, why_not(key));
  FAIL(ERR_CONFIG, "--set %.80s: no such key; nearest: %s", text, nearest_text(&near, names, sizeof names));
}

enum err export_settings(const struct export_asked *a, struct run_config *out)
{
  struct run_config c;
  struct cut_pipeline pipeline;
  export_defaults(&c);
  if (*a->model) TRY(config_set(&c, "model", a->model));
  for (int i = 0; i < a->n_sets; i++) TRY(set(a->sets[i], &c));
  if (*a->layout) {
    c.dp = 1;
    TRY(cut_lay(a->layout, &c));
  }
  export_decay(&c);
  TRY(export_check(&c));
  TRY(config_finish(&c));
  TRY(cut_verify(&c, &pipeline));
  *out = c;
  return ERR_OK;
}
