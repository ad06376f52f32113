/* replicas.c - O7: what must be equal on all ranks of a group has one hash.
 *
 *   dp     flat buffers of one part of the model, on its replicas         tied   the tied matrix, on the first and the last stage
 *   shard  what replicas share of it, on those that have the same shard    world  norm, factor, rate, counts: on every rank
 *   tp     parameters that no tensor rank cuts, on those of one stage
 *
 * got.of names one group among those of its kind.
 */
#include "evidence.h"
#include "foreign.h"
#include "layout.h"
#include "verdict.h"

#include <stdio.h>
#include <string.h>

static bool same_thing(const json_t *a, const json_t *b)
{
  return evidence_is(b, "replica") && evidence_step(a) == evidence_step(b) && evidence_same_text(a, b, "got.what") &&
         evidence_same_text(a, b, "got.group") && evidence_same_text(a, b, "got.of");
}

/* Ranks of a group of that kind; 0: there is no such kind. */
static int64_t ranks_of(const struct run_config *c, const char *group)
{
  if (strcmp(group, "dp") == 0) return c->dp;
  if (strcmp(group, "shard") == 0) return layout_groups(c);
  if (strcmp(group, "tp") == 0) return c->tp;
  if (strcmp(group, "tied") == 0) return 2;
  return strcmp(group, "world") == 0 ? config_ranks(c) : 0;
}

/* All ranks' hashes of what `first` is about.  False: a verdict is said. */
static bool compare(const struct run_data *run, const json_t *first, struct verdict *out)
{
  const char *what = evidence_text(first, "got.what"), *group = evidence_text(first, "got.group"),
             *of = evidence_text(first, "got.of");
  const int64_t expected = ranks_of(&run->config, group);
  int64_t told = 0;
  for (size_t i = 0; i < json_array_size(run->records); i++) {
    const json_t *other = json_array_get(run->records, i);
    if (!same_thing(first, other)) continue;
    told++;
    const char *hash = evidence_text(other, "got.hash");
    if (hash[0] != '\0' && evidence_same_text(first, other, "got.hash")) continue;
    snprintf(out->worst, sizeof out->worst, "%s in group %s at step %lld", what, group,
             (long long)evidence_step(first));
    verdict_say(out, OUTCOME_FAIL,
                "%s differ between ranks %lld and %lld (group %s%s%s) after step %lld: hashes %s and %s", what,
                (long long)evidence_rank(first), (long long)evidence_rank(other), group, of[0] ? " of " : "", of,
                (long long)evidence_step(first), evidence_text(first, "got.hash"), hash);
    return false;
  }
  if (told == expected) return true;
  verdict_say(out, OUTCOME_INVALID, "%lld ranks told the hash of %s in group %s%s%s at step %lld, expected %lld",
              (long long)told, what, group, of[0] ? " of " : "", of, (long long)evidence_step(first),
              (long long)expected);
  return false;
}

/* The first rank of a group tells; the others are found from it. */
static bool is_first(const struct run_data *run, size_t index)
{
  const json_t *record = json_array_get(run->records, index);
  for (size_t i = 0; i < index; i++)
    if (same_thing(record, json_array_get(run->records, i))) return false;
  return true;
}

static bool told(const struct run_data *run, int rank, int64_t step, const char *group, const char *what)
{
  for (size_t i = 0; i < json_array_size(run->records); i++) {
    const json_t *r = json_array_get(run->records, i);
    if (evidence_is(r, "replica") && evidence_rank(r) == rank && evidence_step(r) == step &&
        strcmp(evidence_text(r, "got.what"), what) == 0 && strcmp(evidence_text(r, "got.group"), group) == 0)
      return true;
  }
  return false;
}

/* At least weights and gradients, at every step, in every group that the rank is in.  Gradients are shared, and with
 * zero 3 weights. */
static bool complete(const struct run_data *run, struct verdict *out)
{
  static const char *const needed[] = {"weights", "gradients"}, *const kinds[] = {"dp", "tp", "tied"};
  const struct run_config *c = &run->config;
  const bool cut[] = {layout_shares(c) && c->zero == 3, layout_shares(c)};
  for (int rank = 0; rank < evidence_ranks(run); rank++) {
    const struct layout at = layout_of(c, rank);
    const bool end = layout_is_first(&at) || layout_is_last(c, &at),
               in[] = {true, c->tp > 1, c->tied && c->pp > 1 && end};
    for (int64_t step = 0; step < c->steps; step++)
      for (int i = 0; i < 6; i++) {
        const char *kind = i / 2 == 0 && cut[i % 2] ? "shard" : kinds[i / 2];
        if (!in[i / 2] || told(run, rank, step, kind, needed[i % 2])) continue;
        verdict_say(out, OUTCOME_INVALID, "rank %d told no hash of %s in group %s at step %lld", rank, needed[i % 2],
                    kind, (long long)step);
        return false;
      }
  }
  return true;
}

void replicas_judge(const struct run_data *run, const struct companion *wanted,
                    const struct run_data *const *companions, int n, struct verdict *out)
{
  (void)wanted, (void)companions, (void)n;
  verdict_start(out, "replicas", "O7");
  int compared = 0;
  if (run->foreign) {
    foreign_replicas(run, out);
    return;
  }
  for (size_t i = 0; i < json_array_size(run->records); i++) {
    const json_t *record = json_array_get(run->records, i);
    if (!evidence_is(record, "replica") || !is_first(run, i)) continue;
    if (!compare(run, record, out)) return;
    compared++;
  }
  if (complete(run, out))
    verdict_say(out, OUTCOME_PASS, "%d hashes equal in all groups of %d ranks", compared, evidence_ranks(run));
}
