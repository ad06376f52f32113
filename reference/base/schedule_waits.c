/* schedule_waits.c - what each action of a list waits for on other streams of its rank. */
#include "base/schedule_parts.h"

#include <stdlib.h>

/* Places of the actions of one rank in its list, and who had each place last. */
struct index {
  const struct schedule *s;
  int stage;
  int *at;            /* [PASSES][v][m]; -1: not yet in the list */
  int *slot, *input;  /* [v m + 1] v m numbers c m + mb; -1: nobody yet */
};

static int *entry(struct index *x, enum pass pass, int cell) { return &x->at[(int)pass * x->s->v * x->s->m + cell]; }

static enum err cause(struct index *x, int i, enum pass pass, int cell, int *out)
{
  *out = *entry(x, pass, cell);
  if (*out >= 0) return ERR_OK;
  const struct schedule_action *a = &x->s->list[x->stage][i];
  FAIL(ERR_ARG, "schedule %s: stage %d: %s of micro-batch %d in chunk %d comes before the %s of micro-batch %d in chunk %d",
       schedule_name(x->s->kind), x->stage, schedule_pass_name(a->pass), a->microbatch, a->chunk, schedule_pass_name(pass),
       cell % x->s->m, cell / x->s->m);
}

static enum err in_range(const struct index *x, int i)
{
  const struct schedule *s = x->s;
  const struct schedule_action *a = &s->list[x->stage][i];
  if ((unsigned)a->pass >= PASSES || (unsigned)a->microbatch >= (unsigned)s->m || (unsigned)a->chunk >= (unsigned)s->v)
    FAIL(ERR_ARG, "schedule %s: stage %d: action %d is pass %d of micro-batch %d in chunk %d", schedule_name(s->kind), x->stage, i,
         (int)a->pass, a->microbatch, a->chunk);
  if (a->slot < 0 || a->slot >= s->slots[x->stage] || a->input < -1 || a->input >= s->inputs[x->stage] ||
      a->weight_slot < -1 || a->weight_slot >= s->weight_slots[x->stage] ||
      (a->weight_slot < 0) == s->splits || (a->input < 0) != schedule_is_first(s, x->stage, a->chunk))
    FAIL(ERR_ARG, "schedule %s: stage %d: %s of micro-batch %d in chunk %d has slot %d, weight slot %d, input %d",
         schedule_name(s->kind), x->stage, schedule_pass_name(a->pass), a->microbatch, a->chunk, a->slot, a->weight_slot, a->input);
  return ERR_OK;
}

static enum err find(struct index *x, int i, int *on)
{
  const struct schedule *s = x->s;
  const struct schedule_action *a = &s->list[x->stage][i];
  const int cell = a->chunk * s->m + a->microbatch;
  const bool first = schedule_is_first(s, x->stage, a->chunk), last = schedule_is_last(s, x->stage, a->chunk);
  switch (a->pass) {
  case PASS_FORWARD: {
    const int before = x->slot[a->slot];
    if (!first) TRY(cause(x, i, PASS_RECV_INPUT, cell, &on[0]));
    if (before >= 0 && !schedule_is_last(s, x->stage, before / s->m)) TRY(cause(x, i, PASS_SEND_OUTPUT, before, &on[1]));
    x->slot[a->slot] = cell;
    return ERR_OK;
  }
  case PASS_SEND_OUTPUT:
    return cause(x, i, PASS_FORWARD, cell, &on[0]);
  case PASS_RECV_INPUT: {
    const int before = x->input[a->input];
    if (before >= 0) TRY(cause(x, i, s->kind == SCHEDULE_FORWARD ? PASS_FORWARD : PASS_SEND_GRADIENT, before, &on[0]));
    x->input[a->input] = cell;
    return ERR_OK;
  }
  case PASS_RECV_GRADIENT:
    return cause(x, i, PASS_SEND_OUTPUT, cell, &on[0]);
  case PASS_BACKWARD:
  case PASS_BACKWARD_INPUT:
    return last ? ERR_OK : cause(x, i, PASS_RECV_GRADIENT, cell, &on[0]);
  case PASS_SEND_GRADIENT:
    return cause(x, i, s->splits ? PASS_BACKWARD_INPUT : PASS_BACKWARD, cell, &on[0]);
  case PASS_BACKWARD_WEIGHT:
  case PASSES:
    break;
  }
  return ERR_OK;
}

enum err schedule_waits(const struct schedule *s, int stage, struct schedule_waits *out)
{
  const int own = s->m * s->v, all = own * PASSES;
  struct index x = {.s = s, .stage = stage};
  x.at = malloc((size_t)(all + 2 * own + 2) * sizeof *x.at);
  if (x.at == NULL) FAIL(ERR_MEMORY, "schedule: waits of %d actions", s->n[stage]);
  x.slot = x.at + all;
  x.input = x.slot + own + 1;
  for (int i = 0; i < all + 2 * own + 2; i++) x.at[i] = -1;
  enum err err = ERR_OK;
  for (int i = 0; i < s->n[stage] && !err; i++) {
    out[i] = (struct schedule_waits){{-1, -1}};
    err = in_range(&x, i);
    if (!err) err = find(&x, i, out[i].on);
    if (!err) *entry(&x, s->list[stage][i].pass, s->list[stage][i].chunk * s->m + s->list[stage][i].microbatch) = i;
  }
  free(x.at);
  return err ? err_trace(err, __FILE__, __LINE__) : ERR_OK;
}
