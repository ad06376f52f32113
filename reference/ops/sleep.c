/* sleep.c - the stream is busy for a stated time while its core is free. */
#include "ops/op_submit.h"

#include "base/clock.h"

static enum err sleep_run(void *args)
{
  clock_sleep_ms(*(const double *)args);
  return ERR_OK;
}
OP_KERNEL(op_sleep, sleep_run);

enum err op_sleep(struct dev_stream *s, double ms)
{
  if (!(ms >= 0)) FAIL(ERR_ARG, "a sleep of %.17g ms, expected at least 0", ms);
  return dev_submit(s, &op_sleep_kernel, &ms, sizeof ms, NULL, 0);
}
