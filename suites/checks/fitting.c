/* fitting.c - the search for a layout that fits, among few: sizes that are legal divide what they cut. */
#include "fitting.h"

#include <inttypes.h>
#include <stdio.h>

enum { FACTOR_MOST = 64 };

static double needed(const struct run_config *c)
{
  struct predicted p;
  predict(c, &p);
  return p.total_bytes;
}

/* c with micro_batch, tp and pp, if that is a legal run. */
static bool legal(const struct run_config *c, int64_t micro_batch, int64_t tp, int64_t pp, struct run_config *out)
{
  *out = *c;
  out->micro_batch = micro_batch;
  out->tp = tp;
  out->pp = pp;
  if (config_finish(out) == ERR_OK) return true;
  err_clear();
  return false;
}

bool fitting_layout(const struct run_config *c, double bytes, struct run_config *out)
{
  for (int64_t factor = 1; factor <= FACTOR_MOST; factor *= 2)
    for (int64_t micro_batch = c->micro_batch; micro_batch > 0; micro_batch /= 2)
      for (int64_t tp = factor; tp > 0; tp /= 2)
        if (legal(c, micro_batch, c->tp * tp, c->pp * (factor / tp), out) && needed(out) <= bytes) return true;
  return false;
}

void fitting_text(const struct run_config *c, double bytes, char *out, size_t room)
{
  struct run_config x;
  snprintf(out, room, "%s", "");
  if (needed(c) <= bytes)
    snprintf(out, room, "alone on such a card it would fit, with %.0f of %.0f bytes: what else is there?", needed(c), bytes);
  else if (fitting_layout(c, bytes, &x))
    snprintf(out, room, "on such a card would fit: micro_batch: %" PRId64 ", tp: %" PRId64 ", pp: %" PRId64 " on %" PRId64 " ranks",
             x.micro_batch, x.tp, x.pp, config_ranks(&x));
}
