/* asked.c - values of `shardmark run`'s options. */
#include "harness/asked.h"
#include "harness/cut.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Digits first: strtol and strtod alone would take " 2", "+2" and "0x10". */
static bool starts_decimal(const char *text) { return *text >= '0' && *text <= '9' && text[1] != 'x' && text[1] != 'X'; }

enum err asked_ranks(const char *text, struct asked *a)
{
  a->n_ranks = 0;
  for (const char *at = text;; at++) {
    char *end;
    errno = 0;
    const long n = strtol(at, &end, 10);
    if (!starts_decimal(at) || errno || n < 1 || n > 65536 || (*end != ',' && *end != '\0'))
      FAIL(ERR_CONFIG, "--ranks %s: '%.*s' is no rank count; valid: 1..65536, as in --ranks 1,2,4", text, (int)strcspn(at, ","), at);
    for (int i = 0; i < a->n_ranks; i++)
      if (a->ranks[i] == n) FAIL(ERR_CONFIG, "--ranks %s: %ld stands twice", text, n);
    if (a->n_ranks == ASKED_RANKS) FAIL(ERR_CONFIG, "--ranks: more than %d counts", ASKED_RANKS);
    a->ranks[a->n_ranks++] = (int)n;
    if (*end == '\0') return ERR_OK;
    at = end;
  }
}

enum err asked_budget(const char *text, double *seconds)
{
  char *end;
  errno = 0;
  const double n = strtod(text, &end);
  const double unit = strcmp(end, "h") == 0 ? 3600 : strcmp(end, "m") == 0 ? 60 : *end == '\0' || strcmp(end, "s") == 0 ? 1 : 0;
  if (!starts_decimal(text) || errno || unit == 0 || !(n > 0) || n * unit > 1e7)
    FAIL(ERR_CONFIG, "--budget %s; valid: a time above 0, as in 90s, 30m, 2h", text);
  *seconds = n * unit;
  return ERR_OK;
}

enum err asked_lay_over(const struct asked *a, struct run_config *c)
{
  if (*a->model) {
    TRY(config_set(c, "model", a->model));
    c->layers = c->heads = c->hidden = c->positions = c->vocab = 0; /* the named model's own */
    if (model_shape_find(a->model) && c->sequence > model_shape_find(a->model)->positions) c->sequence = 0;
  }
  if (*a->device) TRY(config_set(c, "device", a->device));
  if (*a->seed) TRY(config_set(c, "seed", a->seed));
  if (*a->lazy_seed) TRY(config_set(c, "lazy_seed", a->lazy_seed));
  if (*a->transport) TRY(config_set(c, "transport", a->transport));
  if (*a->policy) {
    const int64_t own = c->policy;
    TRY(config_set(c, "policy", a->policy));
    if (own != POLICY_PADDED) c->policy = own;
  }
  if (*a->layout) TRY(cut_lay(a->layout, c));
  if (*a->fault) TRY(config_set(c, "fault", a->fault));
  return ERR_OK;
}

/* "2, 4" of --ranks. */
static void ranks_text(const struct asked *a, char *out, size_t bytes)
{
  size_t used = 0;
  out[0] = '\0';
  for (int i = 0; i < a->n_ranks && used < bytes; i++) used += (size_t)snprintf(out + used, bytes - used, "%s%d", i ? ", " : "", a->ranks[i]);
}

enum err asked_check_layout(const struct asked *a)
{
  struct run_config c;
  char ranks[128];
  if (*a->layout == '\0') return ERR_OK;
  config_default(&c);
  TRY(cut_lay(a->layout, &c));
  if (a->n_ranks == 0) return ERR_OK;
  const int64_t all = config_ranks(&c), model = c.tp * c.pp; /* ranks of the job as told; of one replica */
  ranks_text(a, ranks, sizeof ranks);
  if (cut_has(a->layout, "dp")) {
    for (int i = 0; i < a->n_ranks; i++)
      if (a->ranks[i] == all) return ERR_OK;
    FAIL(ERR_CONFIG, "--layout %s: dp * tp * pp = %lld ranks, --ranks says %s; valid: --ranks %lld", a->layout, (long long)all, ranks,
         (long long)all);
  }
  for (int i = 0; i < a->n_ranks; i++) {
    const int64_t n = a->ranks[i], below = n / model * model;
    if (n % model == 0) continue;
    FAIL(ERR_CONFIG, "--layout %s: tp * pp = %lld does not divide --ranks %lld; nearest valid: %s%lld", a->layout, (long long)model, (long long)n,
         below ? "" : "--ranks ", (long long)(below ? below : model));
  }
  return ERR_OK;
}

bool asked_overrides(const struct asked *a) { return *a->model || *a->layout || *a->policy; }

json_t *asked_json(const struct asked *a)
{
  json_t *suites = json_array(), *ranks = json_array();
  for (int i = 0; i < a->n_suites; i++) json_array_append_new(suites, json_string(a->suites[i]));
  for (int i = 0; i < a->n_ranks; i++) json_array_append_new(ranks, json_integer(a->ranks[i]));
  return json_pack("{s:o,s:b,s:b,s:o,s:i,s:s,s:s,s:s,s:s,s:s,s:s,s:s,s:s,s:s,s:s}", "suites", suites, "full", a->full, "keep", a->keep, "ranks",
                   ranks, "base", a->base, "model", a->model, "device", a->device, "layout", a->layout, "seed", a->seed, "lazy_seed", a->lazy_seed, "transport", a->transport,
                   "policy", a->policy, "fault", a->fault, "only", a->only, "hosts", a->hosts);
}

static enum err take_text(const json_t *j, const char *key, char *out, size_t bytes)
{
  const char *text = json_string_value(json_object_get(j, key));
  if (text == NULL || strlen(text) >= bytes) FAIL(ERR_FORMAT, "summary.json: asked.%s is missing or too long", key);
  snprintf(out, bytes, "%s", text);
  return ERR_OK;
}

enum err asked_from_json(const json_t *j, struct asked *a)
{
  struct asked made = *a;
  json_t *suites = json_object_get(j, "suites"), *ranks = json_object_get(j, "ranks");
  if (json_array_size(suites) == 0 || json_array_size(suites) > ASKED_SUITES || json_array_size(ranks) > ASKED_RANKS)
    FAIL(ERR_FORMAT, "summary.json: asked.suites or asked.ranks is not a list that this version wrote");
  made.n_suites = (int)json_array_size(suites);
  for (int i = 0; i < made.n_suites; i++) {
    const char *text = json_string_value(json_array_get(suites, (size_t)i));
    if (text == NULL || strlen(text) >= sizeof made.suites[i]) FAIL(ERR_FORMAT, "summary.json: asked.suites[%d] is no text", i);
    snprintf(made.suites[i], sizeof made.suites[i], "%s", text);
  }
  made.n_ranks = (int)json_array_size(ranks);
  for (int i = 0; i < made.n_ranks; i++) made.ranks[i] = (int)json_integer_value(json_array_get(ranks, (size_t)i));
  made.full = json_is_true(json_object_get(j, "full"));
  made.keep = json_is_true(json_object_get(j, "keep"));
  made.base = (int)json_integer_value(json_object_get(j, "base"));
  TRY(take_text(j, "model", made.model, sizeof made.model));
  TRY(take_text(j, "device", made.device, sizeof made.device));
  TRY(take_text(j, "layout", made.layout, sizeof made.layout));
  TRY(take_text(j, "seed", made.seed, sizeof made.seed));
  TRY(take_text(j, "lazy_seed", made.lazy_seed, sizeof made.lazy_seed));
  TRY(take_text(j, "transport", made.transport, sizeof made.transport));
  if (json_object_get(j, "policy")) TRY(take_text(j, "policy", made.policy, sizeof made.policy)); /* earlier versions had none */
  TRY(take_text(j, "fault", made.fault, sizeof made.fault));
  TRY(take_text(j, "only", made.only, sizeof made.only));
  TRY(take_text(j, "hosts", made.hosts, sizeof made.hosts));
  *a = made;
  return ERR_OK;
}
