/* imbalance.c - O13: what batch policies lose to uneven work, and which rank has more to do than the others.
 *
 * The line of `imbalance` is drawn for the Wikipedia histogram on two replicas, each with at most four micro-batches of one sequence:
 * balanced and packed lose at most 3 points more of the step than fixed-length batches, and padded at least three times the points of the
 * worse of the two.  Over more micro-batches lengths average out, and padded loses less; in wider ones a sequence costs by the longest
 * beside it, which no deal by tokens evens out.  An interval on both sides of a line decides nothing.  Elsewhere the figures are shown
 * and only their evidence is judged.
 */
#include "evidence.h"
#include "layout.h"
#include "policies.h"
#include "predict.h"
#include "verdict.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static const double most_excess = 0.03, least_times = 3;

static bool has_line(const struct run_config *c)
{
  const bool wikipedia = c->lengths == LENGTHS_OF_WIKIPEDIA && strcmp(c->corpus, "synthetic") == 0;
  const bool few = c->micro_batch == 1 && config_accumulation(c) <= 4;
  return wikipedia && few && c->dp == 2 && config_ranks(c) == 2 && c->compute == COMPUTE_REAL;
}

static void say_figures(const struct policies *p, char *out, size_t bytes)
{
  size_t used = 0;
  for (int k = 0; k < POLICIES_KINDS && used < bytes; k++) {
    const struct policies_figure *f = &p->of[k].lost;
    used += (size_t)snprintf(out + used, bytes - used, "%s%s %.1f [%.1f, %.1f]", k ? ", " : "", policies_name((enum policies_kind)k), 100 * f->value,
                             100 * f->low, 100 * f->high);
  }
}

/* A value beside a line, by its interval: PASS and FAIL on one side of it as a whole. */
static enum outcome below(const struct policies_figure *f, double line)
{
  return f->high <= line ? OUTCOME_PASS : f->low > line ? OUTCOME_FAIL : OUTCOME_INCONCLUSIVE;
}

/* What padded loses over what the worse of the two does, less the line: of each repeat. */
static enum outcome padded_loses(const struct policies *p, double *times)
{
  const struct policies_one *a = &p->of[POLICIES_BALANCED], *b = &p->of[POLICIES_PACKED], *padded = &p->of[POLICIES_PADDED];
  int more = 0;
  for (int r = 0; r < POLICIES_REPEATS; r++) more += padded->lost.each[r] >= least_times * fmax(a->lost.each[r], b->lost.each[r]);
  *times = padded->lost.value / fmax(a->lost.value, b->lost.value);
  return more == POLICIES_REPEATS ? OUTCOME_PASS : more == 0 ? OUTCOME_FAIL : OUTCOME_INCONCLUSIVE;
}

static void judge_line(const struct policies *p, const char *figures, struct verdict *out)
{
  double times;
  const bool more = p->of[POLICIES_BALANCED].excess.value > p->of[POLICIES_PACKED].excess.value;
  const enum policies_kind worse = more ? POLICIES_BALANCED : POLICIES_PACKED;
  const enum outcome parts[] = {below(&p->of[POLICIES_BALANCED].excess, most_excess),
                                below(&p->of[POLICIES_PACKED].excess, most_excess), padded_loses(p, &times)};
  const struct policies_figure *f = &p->of[worse].excess;
  out->value = f->value;
  out->bound = most_excess;
  snprintf(out->worst, sizeof out->worst, "%s", policies_name(worse));
  verdict_say(out, judge_worst(parts, sizeof parts / sizeof *parts),
              "lost to waiting, %% of the step: %s; %s loses %.1f [%.1f, %.1f] points more than fixed, at most %.0f; padded %.1f times as many as "
              "the worse of balanced and packed, at least %.0f", figures, policies_name(worse), 100 * f->value, 100 * f->low, 100 * f->high,
              100 * most_excess, times, least_times);
}

void imbalance_judge(const struct run_data *run, const struct companion *wanted, const struct run_data *const *companions, int n,
                     struct verdict *out)
{
  struct policies p;
  char figures[320];
  verdict_start(out, "imbalance", "O13");
  if (policies_measure(run, wanted, companions, n, &p) != ERR_OK) {
    verdict_say(out, OUTCOME_INVALID, "%.400s", err_text());
    return;
  }
  say_figures(&p, figures, sizeof figures);
  if (has_line(&run->config)) judge_line(&p, figures, out);
  else verdict_say(out, OUTCOME_PASS, "lost to waiting, %% of the step: %s; no line is drawn for this layout, batch and distribution", figures);
}

/* --- one rank that has more to do ---------------------------------------------------------------------- */

/* Timed waits of a step on a rank, by the configuration. */
static double slept_ms(const struct run_config *c, int rank)
{
  struct partition stages;
  const struct layout at = layout_of(c, rank);
  double each = c->sleep_forward_ms + c->sleep_input_ms + c->sleep_weight_ms, sum = 0;
  if (partition_make(c, &stages) != ERR_OK) return NAN;
  for (int k = at.pp; k < stages.stages; k += (int)c->pp) {
    sum += (double)(stages.first[k + 1] - stages.first[k]) * each;
    if (k == stages.stages - 1) sum += 3 * c->sleep_head_ms; /* forward, and each part of its backward */
  }
  return sum * (double)layout_each(c);
}

static bool is_heaviest(const struct run_config *c, int rank, double most_ms) { return slept_ms(c, rank) >= most_ms * (1 - 1e-9); }

/* "2 or 3": replicas of one stage have as much to do, and which of them is last is chance.  Returns how many. */
static int name_heaviest(const struct run_config *c, int ranks, double most_ms, char *out, size_t bytes)
{
  size_t used = 0;
  int found = 0;
  for (int r = 0; r < ranks; r++) {
    if (!is_heaviest(c, r, most_ms)) continue;
    if (used < bytes) used += (size_t)snprintf(out + used, bytes - used, "%s%d", found ? " or " : "", r);
    found++;
  }
  return found;
}

static const double share_error = 0.02; /* of the mean: what waits and the rest of a step may be longer than they were asked to be */

void heaviest_judge(const struct run_data *run, const struct companion *wanted, const struct run_data *const *companions, int n,
                    struct verdict *out)
{
  const struct run_config *c = &run->config;
  struct uneven u;
  double mean = 0, most = 0;
  char heavy[64];
  int holds;
  (void)wanted, (void)companions, (void)n;
  verdict_start(out, "heaviest", "O13");
  if (c->compute != COMPUTE_SLEEP) {
    verdict_say(out, OUTCOME_INVALID, "only with compute: sleep is it known which rank has most to do");
    return;
  }
  if (uneven_measure(run, &u) != ERR_OK) {
    verdict_say(out, OUTCOME_INVALID, "%.400s", err_text());
    return;
  }
  for (int r = 0; r < u.ranks; r++) {
    const double ms = slept_ms(c, r);
    mean += ms / u.ranks;
    most = fmax(most, ms);
  }
  const int as_heavy = name_heaviest(c, u.ranks, most, heavy, sizeof heavy);
  const double memory = uneven_memory(run, &holds), share = u.persistent_ms / u.mean_ms, planned = most / mean - 1;
  const bool level = planned <= share_error, named = level || (is_heaviest(c, u.worst, most) && (as_heavy > 1 || u.last == 1));
  out->value = fabs(share - planned);
  out->bound = share_error + 0.1 * planned;
  snprintf(out->worst, sizeof out->worst, "rank %d", u.worst);
  verdict_say(out, named && out->value <= out->bound ? OUTCOME_PASS : OUTCOME_FAIL,
              "rank %d is busiest in %.0f %% of the steps, most in its %s: %.1f %% more than the mean of %.4g ms (planned: rank %s, %.1f %%); jitter "
              "%.2g ms; memory: rank %d has %.2f times the least", u.worst, 100 * u.last, uneven_phase_name(u.phase), 100 * share, u.mean_ms, heavy,
              100 * planned, u.jitter_ms, holds, memory);
}
