/* schedule.c - a schedule made: passes, then places, then transfers. */
#include "base/schedule_parts.h"

#include <stdlib.h>

const char *schedule_pass_name(enum pass pass)
{
  static const char *const names[PASSES] = {"F", "B", "I", "W", "send-output", "recv-input", "send-gradient", "recv-gradient"};
  return names[pass];
}

enum schedule_stream schedule_stream_of(enum pass pass)
{
  if (pass == PASS_SEND_OUTPUT || pass == PASS_RECV_INPUT) return SCHEDULE_OUTPUTS;
  if (pass == PASS_SEND_GRADIENT || pass == PASS_RECV_GRADIENT) return SCHEDULE_GRADIENTS;
  return SCHEDULE_COMPUTE;
}

/* --- places ------------------------------------------------------------------ */

/* Numbers that are handed out, the lowest free first. */
struct pool {
  bool *taken;
  int needed;
};

static int take(struct pool *pool)
{
  int i = 0;
  while (pool->taken[i]) i++;
  pool->taken[i] = true;
  if (i >= pool->needed) pool->needed = i + 1;
  return i;
}

static void give_back(struct pool *pool, int i)
{
  if (i >= 0) pool->taken[i] = false;
}

struct places {
  int slot, weight_slot, input;
};

/* The next forward of this rank after action i, -1: none. */
static int next_forward(const struct schedule_action *list, int n, int i)
{
  for (i++; i < n; i++)
    if (list[i].pass == PASS_FORWARD) return i;
  return -1;
}

static void take_input(const struct schedule *s, int stage, const struct schedule_action *a, struct pool *inputs,
                       struct places *of)
{
  if (!schedule_is_first(s, stage, a->chunk)) of[a->chunk * s->m + a->microbatch].input = take(inputs);
}

/* pools: slots, weight slots, inputs.  of: [v m] places of each micro-batch and chunk. */
static void place(struct schedule *s, int stage, struct pool *pools, struct places *of)
{
  struct schedule_action *list = s->list[stage];
  const int n = s->n[stage];
  take_input(s, stage, &list[0], &pools[2], of);
  for (int i = 0; i < n; i++) {
    struct schedule_action *a = &list[i];
    struct places *mine = &of[a->chunk * s->m + a->microbatch];
    if (a->pass == PASS_FORWARD) {
      mine->slot = take(&pools[0]);
      if (s->splits) mine->weight_slot = take(&pools[1]);
      const int next = next_forward(list, n, i);
      if (next >= 0) take_input(s, stage, &list[next], &pools[2], of);
    }
    a->slot = mine->slot;
    a->weight_slot = mine->weight_slot;
    a->input = mine->input;
    if (schedule_is_backward(a->pass) || s->kind == SCHEDULE_FORWARD) {
      give_back(&pools[0], a->slot);
      give_back(&pools[2], a->input);
    }
    if (a->pass == PASS_BACKWARD_WEIGHT) give_back(&pools[1], a->weight_slot);
  }
  s->slots[stage] = pools[0].needed;
  s->weight_slots[stage] = pools[1].needed;
  s->inputs[stage] = pools[2].needed;
}

static enum err add_places(struct schedule *s)
{
  const int all = s->m * s->v, room = all + 1;
  struct places *of = malloc((size_t)all * sizeof *of);
  bool *taken = malloc((size_t)room * 3);
  if (of == NULL || taken == NULL) {
    free(of);
    free(taken);
    FAIL(ERR_MEMORY, "schedule: places of %d micro-batches x chunks", all);
  }
  for (int stage = 0; stage < s->p; stage++) {
    for (int i = 0; i < room * 3; i++) taken[i] = false;
    for (int i = 0; i < all; i++) of[i] = (struct places){-1, -1, -1};
    struct pool pools[3] = {{taken, 0}, {taken + room, 0}, {taken + 2 * room, 0}};
    place(s, stage, pools, of);
  }
  free(of);
  free(taken);
  return ERR_OK;
}

/* --- the whole ----------------------------------------------------------------- */

static enum err check(enum schedule_kind kind, int p, int m, int v)
{
  if (p < 1 || m < 1 || v < 1)
    FAIL(ERR_CONFIG, "schedule: %d ranks, %d micro-batches, %d chunks; valid: 1 or more of each", p, m, v);
  if (p > SCHEDULE_RANKS_MAX / v)
    FAIL(ERR_CONFIG, "schedule: %d ranks of %d chunks; valid: at most %d virtual stages", p, v, (int)SCHEDULE_RANKS_MAX);
  if (kind == SCHEDULE_FORWARD) {
    if (p == 1 && v > 1) FAIL(ERR_CONFIG, "schedule: %d chunks on one rank; valid: 1", v);
  } else if (!schedule_chunked(kind)) {
    if (v > 1) FAIL(ERR_CONFIG, "schedule: %s with %d chunks; valid: 1", schedule_name(kind), v);
  } else if (v < 2 || p < 2)
    FAIL(ERR_CONFIG, "schedule: %s with %d chunks on %d ranks; valid: 2 or more of each", schedule_name(kind), v, p);
  else if (m % p != 0)
    FAIL(ERR_CONFIG, "schedule: %s with %d micro-batches on %d ranks; nearest valid: %d, %d", schedule_name(kind), m, p,
         m / p > 0 ? m / p * p : p, (m / p + 1) * p);
  return ERR_OK;
}

static enum err fill(struct schedule *s)
{
  s->n = calloc((size_t)s->p * 4, sizeof *s->n);
  s->list = calloc((size_t)s->p, sizeof *s->list);
  if (s->n == NULL || s->list == NULL) FAIL(ERR_MEMORY, "schedule: %d ranks", s->p);
  s->slots = s->n + s->p;
  s->weight_slots = s->n + 2 * s->p;
  s->inputs = s->n + 3 * s->p;
  const int count = schedule_passes_count(s);
  for (int stage = 0; stage < s->p; stage++) {
    s->list[stage] = malloc((size_t)count * sizeof *s->list[stage]);
    if (s->list[stage] == NULL) FAIL(ERR_MEMORY, "schedule: %d passes", count);
    s->n[stage] = schedule_passes(s, stage, s->list[stage]);
  }
  TRY(add_places(s));
  if (s->p > 1) TRY(schedule_add_transfers(s));
  return ERR_OK;
}

enum err schedule_create(enum schedule_kind kind, int p, int m, int v, struct schedule **out)
{
  *out = NULL;
  TRY(check(kind, p, m, v));
  struct schedule *s = calloc(1, sizeof *s);
  if (s == NULL) FAIL(ERR_MEMORY, "schedule: %zu bytes", sizeof *s);
  *s = (struct schedule){.kind = kind, .p = p, .m = m, .v = v, .splits = schedule_splits(kind)};
  const enum err err = fill(s);
  if (err) {
    schedule_destroy(s);
    return err_trace(err, __FILE__, __LINE__);
  }
  *out = s;
  return ERR_OK;
}

void schedule_destroy(struct schedule *s)
{
  if (s == NULL) return;
  for (int stage = 0; s->list != NULL && stage < s->p; stage++) free(s->list[stage]);
  free(s->list);
  free(s->n);
  free(s);
}
