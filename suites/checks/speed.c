/* speed.c - step times and tokens of a run become a rate, and a share of the device's peak. */
#include "speed.h"

#include "evidence.h"
#include "median.h"
#include "peak.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void refuse(struct speed *s, enum outcome outcome, const char *format, ...) __attribute__((format(printf, 3, 4)));
static void refuse(struct speed *s, enum outcome outcome, const char *format, ...)
{
  va_list a;
  if (s->outcome != OUTCOME_PASS) return; /* the first reason stands */
  va_start(a, format);
  vsnprintf(s->why, sizeof s->why, format, a);
  va_end(a);
  s->outcome = outcome;
}

/* Every rank ended, and well. */
static void check_ends(const struct run_data *run, struct speed *out)
{
  const int ranks = evidence_ranks(run);
  for (int r = 0; r < ranks; r++) {
    const json_t *done = evidence_record(run, "done", r, -1, -1);
    if (done == NULL) refuse(out, OUTCOME_INVALID, "rank %d did not end", r);
    else if (evidence_text(done, "got.error")[0]) refuse(out, OUTCOME_INVALID, "%s", evidence_text(done, "got.error"));
  }
}

static void check_device(const struct run_data *run, struct speed *out)
{
  const json_t *said = evidence_record(run, "run", -1, -1, -1);
  const char *gpu = evidence_text(said, "env.gpu");
  snprintf(out->device, sizeof out->device, "%.*s", (int)strcspn(gpu, ","), gpu);
  if (run->config.device != DEVICE_CUDA) refuse(out, OUTCOME_INVALID, "the run was not on device cuda");
  else if (strstr(gpu, "not a GPU")) refuse(out, OUTCOME_INVALID, "not a GPU: no speed");
  else if (gpu[0] == '\0') refuse(out, OUTCOME_INVALID, "the run does not say on what device it was");
  if (run->config.transport == TRANSPORT_STAGED && evidence_ranks(run) > 1)
    refuse(out, OUTCOME_INVALID, "ranks exchange through the host (transport: staged)");
}

/* Largest over ranks; NaN if one is missing. */
static double slowest(const struct run_data *run, int64_t step)
{
  double ms = 0;
  for (int r = 0; r < evidence_ranks(run); r++) {
    const double own = evidence_value(run, "time", r, step, -1, "got.step_ms");
    ms = isnan(own) || isnan(ms) ? NAN : fmax(ms, own);
  }
  return ms;
}

/* Tokens of the timed steps; their times in ms[]. */
static double gather(const struct run_data *run, int64_t warm, double *ms, double *all_tokens, struct speed *out)
{
  double timed = 0;
  *all_tokens = 0;
  for (int64_t step = 0; step < run->config.steps; step++) {
    const double tokens = evidence_value(run, "step", -1, step, -1, "got.valid_tokens");
    const double loss = evidence_value(run, "step", -1, step, -1, "got.loss"), time = slowest(run, step);
    if (isnan(tokens) || isnan(time)) refuse(out, OUTCOME_INVALID, "step %lld was not recorded by every rank", (long long)step);
    else if (!isfinite(loss)) refuse(out, OUTCOME_FAIL, "the loss of step %lld is not finite", (long long)step);
    *all_tokens += tokens;
    if (step < warm) continue;
    ms[out->steps++] = time;
    timed += tokens;
  }
  return timed;
}

static void card(const struct run_data *run, double all_tokens, struct speed *out)
{
  double mj = 0, mw = 0, mhz = INFINITY;
  for (int r = 0; r < evidence_ranks(run); r++) {
    const double energy = evidence_value(run, "gpu", r, -1, -1, "got.energy_mj"), power = evidence_value(run, "gpu", r, -1, -1, "got.power_mw");
    mj += energy >= 0 ? energy : NAN;
    mw += power >= 0 ? power : NAN;
    mhz = fmin(mhz, evidence_value(run, "gpu", r, -1, -1, "got.clock_mhz"));
  }
  out->mj_per_token = mj / all_tokens;
  out->power_w = mw / 1e3;
  out->clock_mhz = mhz >= 0 && isfinite(mhz) ? mhz : NAN;
}

void speed_take(const struct run_data *run, int64_t warm, struct speed *out)
{
  const struct run_config *c = &run->config;
  *out = (struct speed){.outcome = OUTCOME_PASS, .step_ms = NAN, .tokens_per_s = NAN, .mfu_causal = NAN, .mfu_full = NAN, .hfu = NAN};
  check_ends(run, out);
  check_device(run, out);
  double *ms = calloc((size_t)c->steps + 1, sizeof *ms), all_tokens, wall_ms = 0;
  if (ms == NULL) {
    refuse(out, OUTCOME_INVALID, "no memory for the times of %lld steps", (long long)c->steps);
    return;
  }
  const double tokens = gather(run, warm, ms, &all_tokens, out);
  card(run, all_tokens, out);
  for (int64_t i = 0; i < out->steps; i++) wall_ms += ms[i];
  if (out->steps == 0 || !(wall_ms > 0)) refuse(out, OUTCOME_INVALID, "no step is left to be timed after %lld", (long long)warm);
  if (out->outcome == OUTCOME_PASS) {
    const double seconds = wall_ms / 1e3;
    out->step_ms = median_sorting(ms, (int)out->steps);
    out->tokens_per_s = tokens / seconds;
    out->mfu_causal = peak_mfu(c, out->device, tokens, seconds, false);
    out->mfu_full = peak_mfu(c, out->device, tokens, seconds, true);
    out->hfu = out->mfu_causal * (peak_hardware_flops(c, tokens) / peak_flops(c, tokens, false)); /* the same where nothing is made again */
    if (out->mfu_causal > 1) refuse(out, OUTCOME_INVALID, "MFU of %.2f: faster than the device's dense peak", out->mfu_causal);
  }
  free(ms);
}
