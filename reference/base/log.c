/* log.c - one line, one write. */
#include "base/log.h"

#include <stdarg.h>
#include <stdio.h>
#include <unistd.h>

static enum log_level now_level = LOG_NORMAL;
static int now_rank = -1;

void log_setup(enum log_level level, int rank)
{
  now_level = level;
  now_rank = rank;
}

static void speak(const char *format, va_list args, int rank)
{
  char line[2048];
  const int room = (int)sizeof line - 1; /* for the newline */
  int n = rank >= 0 ? snprintf(line, (size_t)room, "rank %d: ", rank) : 0;
  n += vsnprintf(line + n, (size_t)(room - n), format, args);
  if (n >= room) n = room - 1; /* cut: a log line is for a person */
  line[n++] = '\n';
  /* A log that cannot be written must not end a run: records are what counts. */
  if (write(STDERR_FILENO, line, (size_t)n) < 0) return;
}

#define SPEAK(rank)            \
  do {                         \
    va_list args;              \
    va_start(args, format);    \
    speak(format, args, rank); \
    va_end(args);              \
  } while (0)

void log_info(const char *format, ...)
{
  if (now_level >= LOG_NORMAL && now_rank <= 0) SPEAK(-1);
}

void log_rank(const char *format, ...)
{
  if (now_level >= LOG_NORMAL) SPEAK(now_rank);
}

void log_detail(const char *format, ...)
{
  if (now_level >= LOG_VERBOSE) SPEAK(now_rank);
}
