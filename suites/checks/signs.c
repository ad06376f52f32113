/* signs.c - what signatures have in common. */
#include "signs.h"

#include "bound.h"

#include <math.h>
#include <string.h>

const struct verdict *signs_failed(const struct signs *s, const char *check)
{
  for (int i = 0; i < s->n; i++)
    if (s->list[i].outcome == OUTCOME_FAIL && strcmp(s->list[i].check, check) == 0) return &s->list[i];
  return NULL;
}

bool signs_near(double a, double b, double relative)
{
  return isfinite(a) && isfinite(b) && fabs(a - b) <= relative * fabs(b);
}

bool signs_is_off(const struct signs *s, const struct gap *row)
{
  return !row->zero && !(row->error <= bound_no_rounding(BOUND_GRADIENT, bound_precision(&s->run->config, BOUND_GRADIENT, 0)));
}

int signs_count_off(const struct signs *s, const struct gaps *g)
{
  int off = 0;
  for (int i = 0; i < g->n; i++) off += signs_is_off(s, &g->rows[i]);
  return off;
}

bool signs_only_tied_is_off(const struct signs *s)
{
  if (!s->run->config.tied || s->first.n == 0) return false;
  bool tied = false;
  for (int i = 0; i < s->first.n; i++) {
    if (!signs_is_off(s, &s->first.rows[i])) continue;
    if (strstr(s->first.rows[i].name, "wte") == NULL) return false;
    tied = true;
  }
  return tied;
}
