/* fitting.c - the search for a layout that fits, among few: sizes that are legal divide what they cut. */
#include "fitting.h"

#include <inttypes.h>
#include <stdio.h>

enum { FACTOR_MOST = 64 };

double fitting_needed(const struct run_config *c, int64_t ranks)
{
  struct predicted p;
  predict(c, &p);
  return p.total_bytes * (double)(config_ranks(c) < ranks ? config_ranks(c) : ranks);
}

/* That a search may change, as far as a layout of c must be legal. */
struct change {
  int64_t micro_batch, zero, tp, pp, prefetch;
};

static bool fits(const struct run_config *c, struct change to, struct fitting_room there, struct run_config *out)
{
  *out = *c;
  out->micro_batch = to.micro_batch;
  out->zero = to.zero;
  if (to.zero != c->zero) out->reduce_each = REDUCE_AUTO; /* goes with the stage */
  out->tp = to.tp;
  out->pp = to.pp;
  out->prefetch = to.prefetch;
  if (config_finish(out) == ERR_OK) return fitting_needed(out, there.ranks) <= there.bytes;
  err_clear();
  return false;
}

/* With the largest prefetch up to c's. */
static bool fits_ahead(const struct run_config *c, struct change to, struct fitting_room there, struct run_config *out)
{
  to.prefetch = c->prefetch;
  if (to.zero < 3) return fits(c, to, there, out);
  to.prefetch = 0;
  if (!fits(c, to, there, out)) return false;
  for (to.prefetch = c->prefetch; !fits(c, to, there, out);) to.prefetch--;
  return true;
}

bool fitting_layout(const struct run_config *c, struct fitting_room there, struct run_config *out)
{
  for (int64_t factor = 1; factor <= FACTOR_MOST; factor *= 2)
    for (int64_t zero = c->zero; zero <= (c->dp > 1 ? 3 : c->zero); zero++)
      for (int64_t micro_batch = c->micro_batch; micro_batch > 0; micro_batch /= 2)
        for (int64_t tp = factor; tp > 0; tp /= 2)
          if (fits_ahead(c, (struct change){.micro_batch = micro_batch, .zero = zero, .tp = c->tp * tp, .pp = c->pp * (factor / tp)}, there, out))
            return true;
  return false;
}

void fitting_text(const struct run_config *c, struct fitting_room there, char *out, size_t room)
{
  struct run_config x;
  snprintf(out, room, "%s", "");
  if (fitting_needed(c, there.ranks) <= there.bytes) {
    snprintf(out, room, "alone on such a card it would fit, with %.0f of %.0f bytes: what else is there?", fitting_needed(c, there.ranks), there.bytes);
    return;
  }
  if (!fitting_layout(c, there, &x)) return;
  const struct { const char *key; int64_t is, was; } keys[] = {
    {"micro_batch", x.micro_batch, c->micro_batch}, {"zero", x.zero, c->zero}, {"prefetch", x.prefetch, c->prefetch},
    {"tp", x.tp, c->tp}, {"pp", x.pp, c->pp},
  };
  size_t used = (size_t)snprintf(out, room, "%s would fit: ", there.ranks == 1 ? "on such a card" : "here");
  const size_t first = used;
  for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
    if (keys[i].is != keys[i].was && used < room)
      used += (size_t)snprintf(out + used, room - used, "%s%s: %" PRId64 ", not %" PRId64, used > first ? "; " : "", keys[i].key, keys[i].is, keys[i].was);
  if (config_ranks(&x) != config_ranks(c) && used < room) snprintf(out + used, room - used, "; on %" PRId64 " ranks", config_ranks(&x));
}
