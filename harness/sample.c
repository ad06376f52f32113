/* sample.c - records of one timed run become one sample. */
#include "harness/sample.h"
#include "harness/stats.h"

#include "base/record.h"
#include "suites/checks/peak.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { STEPS_MAX = 1024 };

int sample_warm_up(int64_t steps) { return steps > 5 ? 2 : 1; }

static bool is_kind(const json_t *r, const char *kind)
{
  const char *is = json_string_value(json_object_get(r, "kind"));
  return is && strcmp(is, kind) == 0;
}

static void refuse(struct sample *s, bool wrong, const char *why)
{
  s->ok = false;
  if (s->why[0]) return;
  s->wrong = wrong;
  snprintf(s->why, sizeof s->why, "%s", why);
}

/* What the ranks said of one step. */
struct step {
  int ranks;
  double slowest_ms, busy_sum, busy_max, exposed_max, flops, tokens;
};

static void add_time(struct step *s, const json_t *r)
{
  const double ms = record_get_real(r, "got.step_ms", NAN);
  const double busy = record_get_real(r, "got.forward_ms", NAN) + record_get_real(r, "got.backward_ms", NAN) +
                      record_get_real(r, "got.optimizer_ms", NAN) + record_get_real(r, "got.other_ms", NAN);
  const double exposed = record_get_real(r, "got.exposed_ms", NAN) / ms;
  s->ranks++;
  s->slowest_ms = fmax(s->slowest_ms, ms);
  s->busy_sum += busy;
  s->busy_max = fmax(s->busy_max, busy);
  s->exposed_max = fmax(s->exposed_max, exposed);
  s->flops += record_get_real(r, "got.matmul_flops", NAN);
}

static bool is_final_hash(const json_t *r, int64_t last)
{
  const char *what = record_get_text(r, "got.what");
  return is_kind(r, "replica") && what && strcmp(what, "weights") == 0 && record_get_int(r, "step", -1) >= last && record_get_text(r, "got.hash");
}

static bool same_text(const json_t *a, const json_t *b, const char *key)
{
  const char *x = record_get_text(a, key), *y = record_get_text(b, key);
  return x && y ? strcmp(x, y) == 0 : x == y;
}

/* At the end every rank gave hashes of its weights, and those of one group, of the same things, are equal. */
static void check_replicas(const json_t *records, int ranks, int64_t last, struct sample *out)
{
  size_t i, k;
  json_t *a, *b;
  int64_t heard = 0;
  json_array_foreach(records, i, a)
  {
    if (!is_final_hash(a, last)) continue;
    bool first = true; /* of its rank, and of its group */
    bool judged = false;
    for (k = 0; k < i; k++) {
      b = json_array_get(records, k);
      if (!is_final_hash(b, last)) continue;
      first = first && record_get_int(a, "rank", -1) != record_get_int(b, "rank", -1);
      if (judged || !same_text(a, b, "got.group") || !same_text(a, b, "got.of") || record_get_int(a, "step", -1) != record_get_int(b, "step", -1)) continue;
      judged = true; /* all of a group are held against its first */
      if (!same_text(a, b, "got.hash")) refuse(out, true, "replicas differ at the end of the timed run");
    }
    heard += first;
  }
  if (heard < ranks) refuse(out, true, "not every rank gave the hash of its weights at the end of the timed run");
}

/* All ranks say the same loss, and it is finite. */
static void check_losses(const json_t *records, struct sample *out)
{
  size_t i;
  json_t *r;
  out->first_loss = NAN;
  json_array_foreach(records, i, r)
  {
    if (!is_kind(r, "step")) continue;
    const double loss = record_get_real(r, "got.loss", NAN);
    if (!isfinite(loss)) refuse(out, true, "a loss of the timed run is not finite");
    if (record_get_int(r, "step", -1) != 0) continue;
    if (isnan(out->first_loss)) out->first_loss = loss;
    else if (out->first_loss != loss) refuse(out, true, "ranks disagree about the first loss of the timed run");
  }
  if (isnan(out->first_loss)) refuse(out, true, "the timed run gave no first loss");
}

static bool share_a_core(const json_t *a, const json_t *b)
{
  size_t i, k;
  json_t *x, *y;
  json_array_foreach(json_object_get(a, "got.cores"), i, x)
    json_array_foreach(json_object_get(b, "got.cores"), k, y) if (json_integer_value(x) == json_integer_value(y)) return true;
  return false;
}

/* Every rank heard, with the threads asked for, and no two on one core of one host. */
static void check_places(const json_t *records, int ranks, int64_t threads, struct sample *out)
{
  size_t i, k;
  json_t *a, *b;
  int heard = 0;
  json_array_foreach(records, i, a)
  {
    if (!is_kind(a, "rank")) continue;
    heard++;
    if (record_get_int(a, "got.threads", -1) != threads) refuse(out, false, "a rank did not run with the threads asked for");
    const char *host = record_get_text(a, "got.host");
    for (k = i + 1; k < json_array_size(records); k++) {
      b = json_array_get(records, k);
      const char *other = record_get_text(b, "got.host");
      if (!is_kind(b, "rank") || host == NULL || other == NULL || strcmp(host, other) != 0 || !share_a_core(a, b)) continue;
      refuse(out, false, "two ranks may run on one core: the launcher did not bind them");
    }
  }
  if (heard != ranks) refuse(out, false, "not every rank said where it ran");
}

/* Of the device that rank 0 names; faster than that can be is a mistake somewhere. */
static void take_mfu(const struct run_data *run, double tokens, double seconds, struct sample *out)
{
  size_t i;
  json_t *r;
  const char *device = NULL;
  json_array_foreach(run->records, i, r) if (device == NULL && is_kind(r, "run")) device = record_get_text(r, "env.gpu");
  out->mfu = NAN;
  if (device == NULL) return;
  out->mfu = peak_mfu(&run->config, device, tokens, seconds, false);
  if (out->mfu > 1) refuse(out, false, "MFU above 1: faster than the devices' dense peak");
}

void sample_take(const struct run_data *run, struct sample *out)
{
  struct step steps[STEPS_MAX] = {0};
  double ms[STEPS_MAX], exposed[STEPS_MAX], balance[STEPS_MAX], share[STEPS_MAX];
  size_t i;
  json_t *r;
  const int ranks = (int)config_ranks(&run->config), warm = sample_warm_up(run->config.steps);
  const int64_t n = run->config.steps < STEPS_MAX ? run->config.steps : STEPS_MAX;
  *out = (struct sample){.ok = true};
  json_array_foreach(run->records, i, r)
  {
    const int64_t step = record_get_int(r, "step", -1);
    if (is_kind(r, "memory")) out->peak_bytes = fmax(out->peak_bytes, record_get_real(r, "got.os_peak_bytes", 0)); /* -1, none: 0 */
    if (step < 0 || step >= n) continue;
    if (is_kind(r, "time")) add_time(&steps[step], r);
    if (is_kind(r, "step")) steps[step].tokens = record_get_real(r, "got.valid_tokens", NAN);
  }
  check_places(run->records, ranks, run->config.threads, out);
  check_losses(run->records, out);
  check_replicas(run->records, ranks, run->config.steps - 1, out);
  double tokens = 0, wall_ms = 0, flops = 0, busy_ms = 0;
  int timed = 0;
  for (int64_t k = warm; k < n; k++) {
    const struct step *s = &steps[k];
    if (s->ranks != ranks) {
      refuse(out, false, "not every rank gave the times of every step");
      return;
    }
    ms[timed] = s->slowest_ms;
    exposed[timed] = s->exposed_max;
    balance[timed] = s->busy_max > 0 ? s->busy_sum / ranks / s->busy_max : NAN;
    share[timed] = s->busy_sum / ranks / s->slowest_ms;
    busy_ms += s->busy_sum;
    tokens += s->tokens;
    wall_ms += s->slowest_ms;
    flops += s->flops;
    timed++;
  }
  if (timed == 0 || !(wall_ms > 0) || !(tokens > 0)) {
    refuse(out, false, "no timed step is left after the warm-up");
    return;
  }
  out->tokens_per_s = tokens / (wall_ms / 1e3);
  out->flops_per_s = flops / ranks / (wall_ms / 1e3);
  take_mfu(run, tokens, wall_ms / 1e3, out);
  out->step_ms = stats_median(ms, timed);
  out->exposed = stats_median(exposed, timed);
  out->balance = stats_median(balance, timed);
  out->busy = stats_median(share, timed);
  out->busy_a_token_s = busy_ms / 1e3 / tokens;
}

double sample_rate(const json_t *records)
{
  size_t i, k;
  json_t *r, *x;
  double best = NAN;
  json_array_foreach(records, i, r)
  {
    double seconds[STEPS_MAX];
    int n = 0;
    if (!is_kind(r, "measure")) continue;
    json_array_foreach(json_object_get(r, "got.seconds"), k, x) if (n < STEPS_MAX) seconds[n++] = json_number_value(x);
    const double rate = n ? record_get_real(r, "got.flops", NAN) / stats_median(seconds, n) : NAN;
    if (isfinite(rate) && !(best >= rate)) best = rate;
  }
  return best;
}
