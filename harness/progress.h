/* progress.h - where a run is: one line that changes on a terminal, few plain lines elsewhere. */
#ifndef HARNESS_PROGRESS_H
#define HARNESS_PROGRESS_H

#include <stdbool.h>

struct progress {
  bool terminal, quiet;
  double started_ms, said_ms;
  bool drawn;
};
void progress_start(struct progress *p);
/* left_s < 0: unknown. */
void progress_show(struct progress *p, const char *what, int done, int total, double left_s);
/* A line that stays. */
void progress_say(struct progress *p, const char *format, ...) __attribute__((format(printf, 2, 3)));
void progress_end(struct progress *p);
#endif
