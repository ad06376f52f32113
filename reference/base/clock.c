/* clock.c - CLOCK_MONOTONIC: equal in all processes of a host, never set back. */
#include "base/clock.h"

#include <errno.h>
#include <time.h>

double clock_ms(void)
{
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (double)now.tv_sec * 1e3 + (double)now.tv_nsec * 1e-6;
}

/* To an absolute time: a signal that wakes the thread neither shortens nor lengthens it. */
void clock_sleep_ms(double ms)
{
  if (!(ms > 0)) return;
  struct timespec until;
  clock_gettime(CLOCK_MONOTONIC, &until);
  const double ns = (double)until.tv_nsec + ms * 1e6;
  until.tv_sec += (time_t)(ns / 1e9);
  until.tv_nsec = (long)(ns - (double)(time_t)(ns / 1e9) * 1e9);
  while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, NULL) == EINTR) {}
}
