/* env.h - this machine as it is now: for records, for refusals, for doubts about its quiet. */
#ifndef HARNESS_ENV_H
#define HARNESS_ENV_H

#include "harness/launch.h"
#include "harness/results.h"

enum { ENV_DOUBTS = 8 };
struct env {
  char host[128], kernel[256], cpu[256];
  int cores;
  double memory_bytes, available_bytes, load1;
  double busy_elsewhere; /* cores that other processes used over the last look; NaN: not looked */
  int n_doubts;          /* what makes a timing doubtful        */
  char doubts[ENV_DOUBTS][160];
};
/* look_ms > 0: also watches the processors for so long (nothing of ours may run then). */
void env_look(double look_ms, struct env *out);
enum err env_record(const struct env *e, const struct launch_world *w, const struct results *r);
#endif
