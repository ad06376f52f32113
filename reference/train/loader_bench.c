/* loader_bench.c - how many times faster micro-batches are read than this machine trains on them, by policy:
 * loader_bench [KEY=VALUE...], any options of a run.  Read in place by the trainer's own thread; medians over the steps. */
#include "train/step.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { STEPS = 12, WARM = 2 };

static int by_value(const void *a, const void *b) { return (*(const double *)a > *(const double *)b) - (*(const double *)a < *(const double *)b); }

static double median(double *of, int n)
{
  qsort(of, (size_t)n, sizeof *of, by_value);
  return of[n / 2];
}

static enum err settings(int argc, char **argv, const char *policy, struct run_config *c)
{
  config_default(c);
  TRY(config_set(c, "policy", policy));
  TRY(config_set(c, "read_ahead", "0"));
  for (int i = 1; i < argc; i++) {
    char key[64];
    const char *equals = strchr(argv[i], '=');
    if (equals == NULL) FAIL(ERR_CONFIG, "'%s'; valid: KEY=VALUE", argv[i]);
    snprintf(key, sizeof key, "%.*s", (int)(equals - argv[i]), argv[i]);
    TRY(config_set(c, key, equals + 1));
  }
  return config_finish(c);
}

static enum err measure(struct comm_world *w, const struct run_config *c, const char *policy)
{
  enum err err = ERR_OK;
  struct trainer *t;
  struct step_clock clock;
  bool fatal;
  double read[STEPS], trained[STEPS];
  TRY(trainer_create(w, c, &t, &fatal));
  for (int64_t step = 0; step < WARM + STEPS; step++) {
    TRY_TO(destroy_trainer, step_run(t, step, &clock));
    if (step < WARM) continue;
    read[step - WARM] = clock.data_ms;
    trained[step - WARM] = clock.end_ms - clock.begin_ms - clock.data_ms;
  }
  const double r = median(read, STEPS), m = median(trained, STEPS);
  printf("%-9s %9.4f ms to read a step's batches, %9.3f ms to train on them: %.0f times faster\n", policy, r, m, m / r);
destroy_trainer:
  trainer_destroy(t);
  return err;
}

int main(int argc, char **argv)
{
  static const char *const policies[] = {"padded", "chunked", "bucketed", "packed", "balanced"};
  struct comm_world *w;
  enum err err = comm_world_open(&w);
  for (int i = 0; i < 5 && err == ERR_OK; i++) {
    struct run_config c;
    err = settings(argc, argv, policies[i], &c);
    if (err == ERR_OK) err = measure(w, &c, policies[i]);
  }
  if (err) fprintf(stderr, "%s\n", err_text());
  comm_world_close(w);
  return err_status(err);
}
