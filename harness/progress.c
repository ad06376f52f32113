/* progress.c - stdout is the person's: records never come from here. */
#include "harness/progress.h"

#include "base/clock.h"

#include <stdarg.h>
#include <stdio.h>
#include <unistd.h>

static const double line_each_ms = 15000, redraw_each_ms = 200;

void progress_start(struct progress *p)
{
  *p = (struct progress){.terminal = isatty(STDOUT_FILENO) == 1, .started_ms = clock_ms()};
  p->said_ms = p->started_ms;
}

static void wipe(struct progress *p)
{
  if (p->drawn) fputs("\r\033[K", stdout);
  p->drawn = false;
}

void progress_show(struct progress *p, const char *what, int done, int total, double left_s)
{
  const double now = clock_ms();
  char left[64] = "";
  if (p->quiet || now - p->said_ms < (p->terminal ? redraw_each_ms : line_each_ms)) return;
  p->said_ms = now;
  if (left_s >= 0) snprintf(left, sizeof left, ", about %d:%02d left", (int)left_s / 60, (int)left_s % 60);
  wipe(p);
  printf("[%d/%d%s] %.80s%s", done, total, left, what, p->terminal ? "" : "\n");
  p->drawn = p->terminal;
  fflush(stdout);
}

void progress_say(struct progress *p, const char *format, ...)
{
  if (p->quiet) return;
  wipe(p);
  va_list a;
  va_start(a, format);
  vprintf(format, a);
  va_end(a);
  putchar('\n');
  fflush(stdout);
}

void progress_end(struct progress *p)
{
  wipe(p);
  fflush(stdout);
}
