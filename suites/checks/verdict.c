/* verdict.c - outcome, sentence, and the worst of many comparisons. */
#include "verdict.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

void verdict_start(struct verdict *v, const char *check, const char *observable)
{
  memset(v, 0, sizeof *v);
  v->outcome = OUTCOME_INVALID;
  v->value = v->bound = v->smallest = NAN;
  v->first_step = -1;
  snprintf(v->check, sizeof v->check, "%s", check);
  snprintf(v->observable, sizeof v->observable, "%s", observable);
  snprintf(v->sentence, sizeof v->sentence, "nothing was judged");
}

void verdict_say(struct verdict *v, enum outcome o, const char *format, ...)
{
  va_list args;
  va_start(args, format);
  vsnprintf(v->sentence, sizeof v->sentence, format, args);
  va_end(args);
  v->outcome = o;
}

void verdict_first(struct verdict *v, int64_t step, const char *format, ...)
{
  va_list args;
  va_start(args, format);
  vsnprintf(v->worst, sizeof v->worst, format, args);
  va_end(args);
  memcpy(v->first, v->worst, sizeof v->first);
  v->first_step = step;
}

void verdict_unseen(struct verdict *v, const char *lacks, const char *hidden)
{
  verdict_say(v, OUTCOME_SKIPPED, "not judged: %s, so %s could not be seen", lacks, hidden);
}

/* As records spell numbers: JSON has no word for those that are not finite. */
static json_t *number(double x)
{
  if (isnan(x)) return json_string("nan");
  if (isinf(x)) return json_string(x > 0.0 ? "inf" : "-inf");
  return json_real(x);
}

void verdict_detail(struct verdict *v, const char *what, int64_t step, double value, double bound)
{
  if (v->details == NULL) v->details = json_array();
  json_array_append_new(v->details, json_pack("{s:s, s:I, s:o, s:o}", "what", what, "step", (json_int_t)step, "value", number(value),
                                              "bound", number(bound)));
}

void worst_start(struct worst *w)
{
  memset(w, 0, sizeof *w);
  w->value = w->bound = NAN;
  w->excess = -1.0;
  w->step = w->first_step = -1;
}

bool worst_see(struct worst *w, double value, double bound, const char *format, ...)
{
  const bool ok = isfinite(value) && value <= bound;
  double excess = INFINITY;
  if (isfinite(value) && bound > 0.0) excess = value / bound;
  else if (value == 0.0) excess = 0.0;
  const bool first = !ok && (w->first[0] == '\0' || w->step < w->first_step);
  w->seen++;
  w->over += !ok;
  for (int i = 0; i < 2; i++) {
    va_list args;
    if (!(i == 0 ? first : excess > w->excess)) continue;
    va_start(args, format);
    vsnprintf(i == 0 ? w->first : w->place, sizeof w->place, format, args);
    va_end(args);
  }
  if (first) w->first_step = w->step;
  if (excess > w->excess) {
    w->excess = excess;
    w->value = value;
    w->bound = bound;
  }
  return ok;
}

void worst_to(const struct worst *w, struct verdict *v)
{
  snprintf(v->worst, sizeof v->worst, "%s", w->place);
  v->value = w->value;
  v->bound = w->bound;
  memcpy(v->first, w->first, sizeof v->first);
  v->first_step = w->first_step;
}
