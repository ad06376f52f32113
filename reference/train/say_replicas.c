/* say_replicas.c - hashes of what must be equal on several ranks, each with the group that must agree.
 *
 *   dp     what a rank has of one part whatever its replica: all of it, or the weights that products read
 *   shard  what replicas share: those that have the same shard of one part
 *   tp     rows that tensor parallelism does not cut
 *   tied   the two copies of the tied matrix, on the first and the last stage
 *   world  the numbers of the step
 */
#include "train/hash.h"
#include "train/say.h"

#include "ops/ops.h"

#include <stdio.h>

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

/* The hash of a tensor on the device, or of one that is offloaded, which it reads in place.  Waits for it. */
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

/* Rows that a group has alike. */
static bool any_row(const struct trainer *t, int row) { return t->table->rows[row].shared_with < 0; }
static bool whole_row(const struct trainer *t, int row) { return any_row(t, row) && t->table->rows[row].cut == PARAM_WHOLE; }
static bool tied_row(const struct trainer *t, int row) { (void)t; return row == 0; }

/* Of those rows, what this rank has in b, piece by piece. */
static enum err hash_rows(struct trainer *t, const struct flat_buffer *b, bool (*wanted)(const struct trainer *, int), uint64_t *out)
{
  const bool whole = b->hold == FLAT_WHOLE;
  *out = hash_start;
  for (int k = 0; k < (whole ? t->table->n : t->n_pieces); k++) {
    const struct flat_piece p = whole ? (struct flat_piece){.row = k, .flat = t->flat->offset[k], .count = t->flat->length[k]} : t->pieces[k];
    if (p.count == 0 || !wanted(t, p.row)) continue;
    uint64_t hash;
    const struct tensor view = flat_view(b, &p);
    TRY(hash_of(t, &view, &hash));
    *out = hash_words(*out, &hash, sizeof hash);
  }
  return ERR_OK;
}

/* Padding too, where the rank has all. */
static enum err hash_all(struct trainer *t, const struct flat_buffer *b, uint64_t *out)
{
  const struct tensor flat = trainer_flat(t, b);
  if (b->hold != FLAT_WHOLE) return hash_rows(t, b, any_row, out);
  return hash_of(t, &flat, out);
}

/* In every group that this rank is in with others.  Both moments are one thing. */
static enum err say_buffers(struct trainer *t, const struct output *o, int64_t step, const char *what, const struct flat_buffer *b, int n)
{
  const struct mesh *m = &t->mesh;
  const bool shared = b->hold != FLAT_WHOLE;
  uint64_t all[2], same[2] = {0}, tied[2] = {0};
  char of_part[64], of_stage[64], of_copy[64];
  for (int i = 0; i < n; i++) {
    TRY(hash_all(t, &b[i], &all[i]));
    if (m->tp > 1) TRY(hash_rows(t, &b[i], whole_row, &same[i]));
    if (t->groups.tied) TRY(hash_rows(t, &b[i], tied_row, &tied[i]));
  }
  if (shared) snprintf(of_part, sizeof of_part, "pp%d tp%d shard%d", m->pp_rank, m->tp_rank, t->shard);
  else snprintf(of_part, sizeof of_part, "pp%d tp%d", m->pp_rank, m->tp_rank);
  snprintf(of_stage, sizeof of_stage, "pp%d dp%d", m->pp_rank, m->dp_rank);
  snprintf(of_copy, sizeof of_copy, "dp%d tp%d", m->dp_rank, m->tp_rank);
  const struct say_hash groups[] = {{what, shared ? "shard" : "dp", of_part, n == 1 ? all[0] : hash_words(hash_start, all, sizeof all)},
                                    {what, "tp", of_stage, n == 1 ? same[0] : hash_words(hash_start, same, sizeof same)},
                                    {what, "tied", of_copy, n == 1 ? tied[0] : hash_words(hash_start, tied, sizeof tied)}};
  const bool in[] = {true, m->tp > 1, t->groups.tied != NULL};
  for (int g = 0; g < 3; g++)
    if (in[g]) TRY(say(o, step, &groups[g]));
  return ERR_OK;
}

/* Where replicas share and products read a copy, that is what they must have alike; the shards are told of apart. */
enum err say_replicas(struct trainer *t, const struct output *o, int64_t step)
{
  const struct flat_buffer moments[] = {optim_moments1(t->optim), optim_moments2(t->optim)};
  const bool apart = trainer_shares(t) && t->rounded.at != NULL;
  TRY(trainer_settle(t));
  TRY(say_buffers(t, o, step, "weights", apart ? trainer_working(t) : &t->weights, 1));
  if (apart) TRY(say_buffers(t, o, step, "masters", &t->weights, 1));
  TRY(say_buffers(t, o, step, "gradients", &t->gradients, 1));
  if (moments[0].at) TRY(say_buffers(t, o, step, "moments", moments, 2));
  const double scalars[] = {t->now.count, t->now.all[0], t->now.all[1], t->now.norm, t->now.factor, t->now.lr};
  const struct say_hash numbers = {"scalars", "world", "", hash_words(hash_start, scalars, sizeof scalars)};
  return say(o, step, &numbers);
}
