/* clock.c - CLOCK_MONOTONIC: equal in all processes of a host, never set back; and a thread's own. */
#include "base/clock.h"

#include <errno.h>
#include <time.h>

static double read_ms(clockid_t clock)
{
  struct timespec now;
  clock_gettime(clock, &now);
  return (double)now.tv_sec * 1e3 + (double)now.tv_nsec * 1e-6;
}

double clock_ms(void) { return read_ms(CLOCK_MONOTONIC); }
double clock_thread_ms(void) { return read_ms(CLOCK_THREAD_CPUTIME_ID); }

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
