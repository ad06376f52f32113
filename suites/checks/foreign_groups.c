/* foreign_groups.c - O2, O7 and O11 of a foreign run: what its ranks tell, beside each other. */
#include "foreign.h"
#include "evidence.h"
#include "layout.h"

#include <stdio.h>
#include <string.h>

/* --- micro-batches ------------------------------------------------------------------------ */

static const char *const facts[] = {"got.samples", "got.tokens", "got.valid_tokens"};

/* The first fact that is told and is not the case's; NULL: none. */
static const char *differs(const json_t *mine, const json_t *theirs)
{
  for (size_t i = 0; i < sizeof facts / sizeof *facts; i++) {
    const json_t *a = json_object_get(mine, facts[i]), *b = json_object_get(theirs, facts[i]);
    if (a != NULL && (b == NULL || !json_equal(a, b))) return facts[i] + 4;
  }
  return NULL;
}

/* How often a step reads the sample; each micro-batch counts once, whoever tells of it. */
static int times_read(const struct run_data *run, int64_t step, json_int_t sample)
{
  int n = 0;
  for (int64_t m = 0; m < evidence_microbatches(&run->config); m++) {
    const json_t *samples = json_object_get(evidence_record(run, "batch", -1, step, m), "got.samples");
    for (size_t i = 0; i < json_array_size(samples); i++) n += json_integer_value(json_array_get(samples, i)) == sample;
  }
  return n;
}

/* The first sample of `a`'s step that it reads more often than `b`.  False: none. */
static bool reads_more(const struct run_data *a, const struct run_data *b, int64_t step, json_int_t *sample)
{
  for (int64_t m = 0; m < evidence_microbatches(&a->config); m++) {
    const json_t *samples = json_object_get(evidence_record(a, "batch", -1, step, m), "got.samples");
    for (size_t i = 0; i < json_array_size(samples); i++) {
      *sample = json_integer_value(json_array_get(samples, i));
      if (times_read(a, step, *sample) > times_read(b, step, *sample)) return true;
    }
  }
  return false;
}

/* "; over the step sample 7 is read 2 times, for 1 in the case; sample 9 0 times, for 1": or only another order. */
static void say_reads(const struct run_data *run, const struct run_data *truth, int64_t step, char *out, size_t bytes)
{
  json_int_t more, less;
  const bool has_more = reads_more(run, truth, step, &more), has_less = reads_more(truth, run, step, &less);
  out[0] = '\0';
  if (!has_more && !has_less) snprintf(out, bytes, "; over the step they are the case's, in another order");
  if (!has_more || !has_less) return;
  snprintf(out, bytes, "; over the step sample %" JSON_INTEGER_FORMAT " is read %d times, for %d in the case; sample %" JSON_INTEGER_FORMAT " %d times, for %d",
           more, times_read(run, step, more), times_read(truth, step, more), less, times_read(run, step, less), times_read(truth, step, less));
}

/* All who tell of it say what the case says.  False: a verdict is said. */
static bool judge_microbatch(const struct run_data *run, const struct run_data *truth, int64_t step, int64_t m, struct verdict *out)
{
  const json_t *theirs = evidence_record(truth, "batch", -1, step, m);
  for (int rank = 0; rank < (int)config_ranks(&run->config); rank++) {
    const json_t *mine = evidence_record(run, "batch", rank, step, m);
    const char *what = mine ? differs(mine, theirs) : NULL;
    char reads[160] = "";
    if (what == NULL) continue;
    if (strcmp(what, "samples") == 0) say_reads(run, truth, step, reads, sizeof reads);
    verdict_first(out, step, "micro-batch %lld of step %lld", (long long)m, (long long)step);
    verdict_say(out, OUTCOME_FAIL, "%s on rank %d differs from the case's in its %s%s", out->worst, rank, what, reads);
    return false;
  }
  return true;
}

void foreign_batch(const struct run_data *run, const struct run_data *truth, struct verdict *out)
{
  const int64_t M = evidence_microbatches(&run->config);
  if (!evidence_tells(run, "batch", NULL)) {
    verdict_unseen(out, "no records of batches", "samples that were read twice or not at all, but for what the loss shows of it");
    return;
  }
  for (int64_t step = 0; step < run->config.steps; step++) {
    const int each = evidence_count(run, "batch", -1, step, 0);
    if (evidence_count(run, "batch", -1, step, -1) == 0) {
      verdict_first(out, step, "micro-batches of step %lld", (long long)step);
      verdict_say(out, OUTCOME_FAIL, "no rank tells of a batch of step %lld", (long long)step);
      return;
    }
    for (int64_t m = 0; m < M; m++) {
      const int told = evidence_count(run, "batch", -1, step, m);
      if (!judge_microbatch(run, truth, step, m, out)) return;
      if (told > 0 && told == each) continue;
      verdict_first(out, step, "micro-batch %lld of step %lld", (long long)m, (long long)step);
      verdict_say(out, OUTCOME_FAIL, "%s was consumed by %d ranks, micro-batch 0 by %d", out->worst, told, each);
      return;
    }
    if (evidence_count(run, "batch", -1, step, -1) == M * each) continue;
    verdict_first(out, step, "micro-batches of step %lld", (long long)step);
    verdict_say(out, OUTCOME_FAIL, "step %lld consumed %d micro-batches, expected %lld on each of %d ranks of a replica", (long long)step,
                evidence_count(run, "batch", -1, step, -1), (long long)M, each);
    return;
  }
  verdict_say(out, OUTCOME_PASS, "%lld micro-batches at each of %lld steps as the case has them", (long long)M, (long long)run->config.steps);
}

/* --- replicas ------------------------------------------------------------------------------ */

static bool same_thing(const json_t *a, const json_t *b)
{
  return evidence_is(b, "replica") && evidence_step(a) == evidence_step(b) && evidence_same_text(a, b, "got.what") &&
         evidence_same_text(a, b, "got.group") && evidence_same_text(a, b, "got.of");
}

/* Those behind record `index`.  Adds to *compared.  False: a verdict is said. */
static bool same_hashes(const struct run_data *run, size_t index, int *compared, struct verdict *out)
{
  const json_t *first = json_array_get(run->records, index);
  const char *what = evidence_text(first, "got.what"), *group = evidence_text(first, "got.group"), *of = evidence_text(first, "got.of");
  for (size_t i = index + 1; i < json_array_size(run->records); i++) {
    const json_t *other = json_array_get(run->records, i);
    if (!same_thing(first, other)) continue;
    ++*compared;
    const char *hash = evidence_text(first, "got.hash");
    if (hash[0] != '\0' && evidence_same_text(first, other, "got.hash")) return true; /* the next ones are compared with this one */
    verdict_first(out, evidence_step(first), "%s in group %s at step %lld", what, group, (long long)evidence_step(first));
    verdict_say(out, OUTCOME_FAIL, "%s differ between ranks %lld and %lld (group %s%s%s) at step %lld: hashes %s and %s", what,
                (long long)evidence_rank(first), (long long)evidence_rank(other), group, of[0] ? " of " : "", of,
                (long long)evidence_step(first), hash, evidence_text(other, "got.hash"));
    return false;
  }
  return true;
}

void foreign_replicas(const struct run_data *run, struct verdict *out)
{
  int compared = 0;
  if (config_ranks(&run->config) == 1) {
    verdict_say(out, OUTCOME_SKIPPED, "one rank has no replicas");
    return;
  }
  for (int64_t step = -1; step <= run->config.steps; step++)
    for (size_t i = 0; i < json_array_size(run->records); i++) {
      const json_t *r = json_array_get(run->records, i);
      if (evidence_is(r, "replica") && evidence_step(r) == step && !same_hashes(run, i, &compared, out)) return;
    }
  if (compared == 0)
    verdict_unseen(out, "no two ranks tell a hash of one thing", "replicas that drift apart, and a gradient that one of them lacks");
  else
    verdict_say(out, OUTCOME_PASS, "%d hashes equal to that of another rank", compared);
}

/* --- order of collectives ------------------------------------------------------------------- */

/* Without its number, and where it is told as our own traces are, without the micro-batch, which is another on each replica. */
struct call {
  char text[160], op[48], group[48];
};

static bool parse(const json_t *value, struct call *c)
{
  const char *text = json_string_value(value);
  if (text == NULL) return false;
  const size_t digits = strspn(text, "0123456789");
  const bool numbered = digits > 0 && text[digits] == ' ';
  int words = 1;
  for (const char *at = text; *at; at++) words += *at == ' ';
  snprintf(c->text, sizeof c->text, "%s", numbered ? text + digits + 1 : text);
  char *last = strrchr(c->text, ' ');
  if (numbered && words == 8 && last) *last = '\0';
  return sscanf(c->text, "%47s %47s", c->op, c->group) == 2;
}

static bool is_ordered(const struct call *c) { return !strstr(c->op, "send") && !strstr(c->op, "recv") && strcmp(c->group, "other") != 0; }

/* Both ranks are in the group of that name which the one is in. */
static bool share_group(const struct run_config *c, const char *group, int a, int b)
{
  const struct layout x = layout_of(c, a), y = layout_of(c, b);
  if (strcmp(group, "dp") == 0) return x.tp == y.tp && x.pp == y.pp;
  if (strcmp(group, "tp") == 0) return x.dp == y.dp && x.pp == y.pp;
  if (strcmp(group, "pp") == 0) return x.tp == y.tp && x.dp == y.dp;
  return true;
}

static const json_t *calls_of(const struct run_data *run, int rank, int64_t step)
{
  return json_object_get(evidence_record(run, "trace", rank, step, -1), "got.calls");
}

/* The next call of the group at or behind *i. */
static bool next_of(const json_t *calls, const char *group, size_t *i, struct call *c)
{
  while (*i < json_array_size(calls))
    if (parse(json_array_get(calls, (*i)++), c) && is_ordered(c) && strcmp(c->group, group) == 0) return true;
  snprintf(c->text, sizeof c->text, "nothing");
  return false;
}

/* How often it is among the calls of its group; NULL: how many these are. */
static int times(const json_t *calls, const char *group, const char *text)
{
  struct call c;
  int n = 0;
  for (size_t i = 0; next_of(calls, group, &i, &c);) n += text == NULL || strcmp(c.text, text) == 0;
  return n;
}

/* Calls of one group on two ranks, in order.  False: a verdict is said. */
static bool same_order(const struct run_data *run, const char *group, int a, int b, int64_t step, struct verdict *out)
{
  const json_t *mine = calls_of(run, a, step), *theirs = calls_of(run, b, step);
  size_t i = 0, k = 0;
  for (int n = 0;; n++) {
    struct call x, y;
    const bool one = next_of(mine, group, &i, &x), other = next_of(theirs, group, &k, &y);
    if (!one && !other) return true;
    if (one && other && strcmp(x.text, y.text) == 0) continue;
    const bool same_calls = times(mine, group, NULL) == times(theirs, group, NULL) && times(mine, group, x.text) == times(theirs, group, x.text) &&
                            times(mine, group, y.text) == times(theirs, group, y.text);
    verdict_first(out, step, "%s call %d in group %s at step %lld", same_calls ? "order of" : "contents of", n, group, (long long)step);
    verdict_say(out, OUTCOME_FAIL, "call %d in group %s at step %lld: rank %d gave '%s', rank %d '%s'%s", n, group, (long long)step, a, x.text, b, y.text,
                same_calls ? "" : "; these calls differ, not only their order");
    return false;
  }
}

/* Each group that the rank names, with every other rank of it that names it. */
static bool judge_rank(const struct run_data *run, int rank, int64_t step, int *compared, struct verdict *out)
{
  const json_t *calls = calls_of(run, rank, step);
  for (size_t i = 0; i < json_array_size(calls); i++) {
    struct call c, before;
    bool seen = false;
    if (!parse(json_array_get(calls, i), &c) || !is_ordered(&c)) continue;
    for (size_t k = 0; k < i; k++) seen = seen || (parse(json_array_get(calls, k), &before) && strcmp(before.group, c.group) == 0);
    for (int other = rank + 1; !seen && other < (int)config_ranks(&run->config); other++) {
      size_t at = 0;
      const bool layout = strcmp(c.group, "dp") == 0 || strcmp(c.group, "tp") == 0 || strcmp(c.group, "pp") == 0 || strcmp(c.group, "world") == 0;
      if (!share_group(&run->config, c.group, rank, other) || (!layout && !next_of(calls_of(run, other, step), c.group, &at, &before))) continue;
      ++*compared;
      if (!same_order(run, c.group, rank, other, step, out)) return false;
    }
  }
  return true;
}

void foreign_trace(const struct run_data *run, struct verdict *out)
{
  const int ranks = (int)config_ranks(&run->config);
  int compared = 0;
  if (ranks == 1) {
    verdict_say(out, OUTCOME_SKIPPED, "one rank has no collectives");
    return;
  }
  if (!evidence_tells(run, "trace", NULL)) {
    verdict_unseen(out, "no records of collectives", "an order that differs between ranks and hangs sooner or later");
    return;
  }
  for (int64_t step = 0; step < run->config.steps; step++)
    for (int rank = 0; rank < ranks; rank++) {
      if (!json_is_array(calls_of(run, rank, step))) {
        verdict_say(out, OUTCOME_INVALID, "rank %d left no trace of step %lld", rank, (long long)step);
        return;
      }
      if (!judge_rank(run, rank, step, &compared, out)) return;
    }
  if (compared == 0) verdict_unseen(out, "no two ranks tell of calls in one group", "an order that differs between ranks");
  else verdict_say(out, OUTCOME_PASS, "%d lists of calls equal to that of another rank of the group", compared);
}
