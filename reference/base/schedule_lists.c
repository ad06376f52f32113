/* schedule_lists.c - the passes of each schedule in order, and the published formulas, from schedules.def. */
#include "base/schedule_parts.h"

#define JOINED SCHEDULE_JOINED

struct rule {
  const char *name;
  bool chunked;
  int warm, late, live, pending;
  double bubble;
};

/* The row of `kind`, with these numbers in its expressions. */
static struct rule rule_of(enum schedule_kind kind, int p, int m, int v, int s, double f, double b, double w)
{
  switch (kind) {
#define SCHEDULE(id, name_, chunked_, warm_, late_, bubble_, live_, pending_)                                              \
  case SCHEDULE_##id:                                                                                                      \
    return (struct rule){.name = name_, .chunked = chunked_, .warm = warm_, .late = late_, .live = live_, .pending = pending_, \
                         .bubble = bubble_};
#include "base/schedules.def"
#undef SCHEDULE
  case SCHEDULE_FORWARD:
  case SCHEDULES:
    break;
  }
  return (struct rule){.name = "forward", .warm = m * v, .late = JOINED, .live = 1, .bubble = (p - 1) * f / v};
}

const char *schedule_name(enum schedule_kind kind) { return rule_of(kind, 1, 1, 1, 0, 0, 0, 0).name; }
bool schedule_chunked(enum schedule_kind kind) { return rule_of(kind, 1, 1, 1, 0, 0, 0, 0).chunked; }
bool schedule_splits(enum schedule_kind kind) { return rule_of(kind, 1, 1, 1, 0, 0, 0, 0).late != JOINED; }

/* --- the lists ------------------------------------------------------------- */

int schedule_passes_count(const struct schedule *s)
{
  return s->m * s->v * (s->kind == SCHEDULE_FORWARD ? 1 : s->splits ? 3 : 2);
}

/* Pass number i: groups of p micro-batches go through the chunks one after the other, in
 * forward from the first chunk on, in backward from the last.  One chunk: micro-batch order.
 * (Narayanan et al. 2021, sec. 2.2.2.)  The last group of a forward schedule may be smaller. */
static struct schedule_action numbered(const struct schedule *s, enum pass pass, int i)
{
  const int group = i / (s->p * s->v), left = s->m - group * s->p, size = left < s->p ? left : s->p;
  const int chunk = (i - group * s->p * s->v) / size;
  return (struct schedule_action){.pass = pass,
                                  .microbatch = group * s->p + (i - group * s->p * s->v) % size,
                                  .chunk = pass == PASS_FORWARD ? chunk : s->v - 1 - chunk,
                                  .peer = -1, .slot = -1, .weight_slot = -1, .input = -1};
}

int schedule_passes(const struct schedule *s, int stage, struct schedule_action *out)
{
  const struct rule rule = rule_of(s->kind, s->p, s->m, s->v, stage, 0, 0, 0);
  const int all = s->m * s->v, warm = rule.warm < all ? rule.warm : all;
  int n = 0;
  for (int i = 0; i < warm; i++) out[n++] = numbered(s, PASS_FORWARD, i);
  if (s->kind == SCHEDULE_FORWARD) return n;
  for (int i = 0; i < all; i++) { /* one forward, one backward; then what is left of both backwards */
    if (warm + i < all) out[n++] = numbered(s, PASS_FORWARD, warm + i);
    out[n++] = numbered(s, s->splits ? PASS_BACKWARD_INPUT : PASS_BACKWARD, i);
    if (s->splits && i >= rule.late) out[n++] = numbered(s, PASS_BACKWARD_WEIGHT, i - rule.late);
  }
  for (int i = all - rule.late; s->splits && i < all; i++)
    if (i >= 0) out[n++] = numbered(s, PASS_BACKWARD_WEIGHT, i);
  return n;
}

/* --- formulas ---------------------------------------------------------------- */

double schedule_bubble_time(enum schedule_kind kind, int p, int m, int v, double f, double b, double w)
{
  return rule_of(kind, p, m, v, 0, f, b, w).bubble;
}

double schedule_bubble_of_ideal(enum schedule_kind kind, int p, int m, int v)
{
  return schedule_bubble_time(kind, p, m, v, 1, 1, 1) / (m * (kind == SCHEDULE_FORWARD ? 1 : 3));
}

double schedule_bubble_of_total(enum schedule_kind kind, int p, int m, int v)
{
  const double of_ideal = schedule_bubble_of_ideal(kind, p, m, v);
  return of_ideal / (1 + of_ideal);
}

int schedule_live(enum schedule_kind kind, int p, int m, int v, int stage)
{
  return rule_of(kind, p, m, v, stage, 0, 0, 0).live;
}

int schedule_pending(enum schedule_kind kind, int p, int m, int v, int stage)
{
  return rule_of(kind, p, m, v, stage, 0, 0, 0).pending;
}
