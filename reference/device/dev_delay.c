/* dev_delay.c - planted: work of some kinds begins late, by a seeded time. */
#include "base/clock.h"
#include "base/rng.h"
#include "device/dev_internal.h"

struct delay {
  double ms, start_ms;
};

static enum err start(void *args)
{
  struct delay *d = args;
  d->start_ms = clock_ms();
  return ERR_OK;
}

static enum err test(void *args, bool *done)
{
  const struct delay *d = args;
  *done = clock_ms() - d->start_ms >= d->ms;
  return ERR_OK;
}

enum err dev_delay(struct dev_stream *s, enum dev_delayed what)
{
  static const struct dev_kernel kernel = {.name = "delay", .start = start, .test = test};
  struct dev *d = s->dev;
  if ((d->config.delayed & (unsigned)what) == 0) return ERR_OK;
  const struct rng_key key = {d->config.delay_seed, RNG_DELAY, 0};
  const struct delay late = {.ms = d->config.delay_ms * rng_uniform(key, d->delays++)};
  TRY(dev_submit(s, &kernel, &late, sizeof late, NULL, 0));
  return ERR_OK;
}
