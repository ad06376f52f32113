/* say_replicas.c - hashes of what must be equal on several ranks, each with the group that must agree.
 *
 *   dp     everything that a rank holds: replicas of one part
 *   tp     rows that tensor parallelism does not cut
 *   tied   the two copies of the tied matrix, on the first and the last stage
 *   world  the numbers of the step
 */
#include "train/hash.h"
#include "train/say.h"

#include "ops/ops.h"

#include <stdio.h>

enum { BUFFERS = 4, KINDS = 3 };

struct say_hash {
  const char *what, *group, *of;
  uint64_t hash;
};

static enum err say(const struct output *o, int64_t step, const struct say_hash *h)
{
  record_begin(o->records, "replica", step, -1);
  record_text(o->records, "got.what", h->what);
  record_text(o->records, "got.group", h->group);
  record_text(o->records, "got.of", h->of);
  record_hex(o->records, "got.hash", h->hash);
  TRY(record_end(o->records));
  return ERR_OK;
}

/* Weights, gradients, and both moments as one; an optimizer may have none. */
static enum err say_kinds(const struct output *o, int64_t step, const char *group, const char *of, const uint64_t hash[BUFFERS], bool moments)
{
  const struct say_hash kinds[KINDS] = {{"weights", group, of, hash[0]},
                                        {"gradients", group, of, hash[1]},
                                        {"moments", group, of, hash_words(hash_start, hash + 2, 2 * sizeof *hash)}};
  for (int i = 0; i < (moments ? KINDS : KINDS - 1); i++) TRY(say(o, step, &kinds[i]));
  return ERR_OK;
}

/* The hash of a tensor on the device.  Waits for it. */
static enum err hash_of(struct trainer *t, const struct tensor *x, uint64_t *out)
{
  int64_t word;
  const struct tensor place = trainer_scalar(&t->at.hashes, 0, 0);
  TRY(op_hash(t->compute, &place, x));
  TRY(dev_copy_out(t->compute, &word, place.at, sizeof word));
  TRY(dev_sync_stream(t->compute));
  TRY(dev_host_touch(t->dev, &word, sizeof word, false));
  *out = (uint64_t)word;
  return ERR_OK;
}

/* Rows that every rank of a tensor group holds alike. */
static enum err hash_whole_rows(struct trainer *t, void *buffer, uint64_t *out)
{
  *out = hash_start;
  for (int i = 0; i < t->table->n; i++) {
    if (t->table->rows[i].cut != PARAM_WHOLE || t->table->rows[i].shared_with >= 0 || t->flat->length[i] == 0) continue;
    uint64_t hash;
    const struct tensor row = trainer_row(t, buffer, i);
    TRY(hash_of(t, &row, &hash));
    *out = hash_words(*out, &hash, sizeof hash);
  }
  return ERR_OK;
}

enum err say_replicas(struct trainer *t, const struct output *o, int64_t step)
{
  void *const buffers[BUFFERS] = {t->weights, t->gradients, optim_moments1(t->optim), optim_moments2(t->optim)};
  const struct mesh *m = &t->mesh;
  const bool moments = buffers[2] != NULL;
  uint64_t whole[BUFFERS] = {0}, same[BUFFERS] = {0}, tied[BUFFERS] = {0};
  char of_part[64], of_stage[64], of_copy[64];
  for (int i = 0; i < BUFFERS && buffers[i]; i++) {
    const struct tensor flat = trainer_flat(t, buffers[i]), matrix = trainer_row(t, buffers[i], 0);
    TRY(hash_of(t, &flat, &whole[i]));
    if (m->tp > 1) TRY(hash_whole_rows(t, buffers[i], &same[i]));
    if (t->groups.tied) TRY(hash_of(t, &matrix, &tied[i]));
  }
  snprintf(of_part, sizeof of_part, "pp%d tp%d", m->pp_rank, m->tp_rank);
  snprintf(of_stage, sizeof of_stage, "pp%d dp%d", m->pp_rank, m->dp_rank);
  snprintf(of_copy, sizeof of_copy, "dp%d tp%d", m->dp_rank, m->tp_rank);
  const double scalars[] = {t->now.count, t->now.all[0], t->now.all[1], t->now.norm, t->now.factor, t->now.lr};
  const struct say_hash numbers = {"scalars", "world", "", hash_words(hash_start, scalars, sizeof scalars)};
  TRY(say_kinds(o, step, "dp", of_part, whole, moments));
  if (m->tp > 1) TRY(say_kinds(o, step, "tp", of_stage, same, moments));
  if (t->groups.tied) TRY(say_kinds(o, step, "tied", of_copy, tied, moments));
  TRY(say(o, step, &numbers));
  return ERR_OK;
}
