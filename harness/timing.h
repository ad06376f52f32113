/* timing.h - what a scaling run times: settings, in turn and repeatedly, and the machine meanwhile.
 *
 * Every repeat runs each setting once, every other repeat backwards, so that a drift of
 * the machine meets all of them alike.
 */
#ifndef HARNESS_TIMING_H
#define HARNESS_TIMING_H

#include "harness/sample.h"
#include "harness/session.h"

enum { TIMING_REPEATS = 5, TIMING_SETTINGS = 256, TIMING_THREADS = 8 };

/* One setting that is timed in every repeat: `copies` independent one-rank runs, or one run. */
struct timing_setting {
  struct run_config config;
  int copies; /* 0: one run of config's ranks */
  char label[CONFIG_NAME];
  double seconds;
  struct sample samples[TIMING_REPEATS];
  int n_samples;
  int first_run; /* of the plan: repeat 1, whose records stay until timing_free(); -1 */
};

struct timing {
  struct session *s;
  struct timing_setting *list; /* does not move */
  int n;
  struct {
    int64_t threads;
    double rate; /* matrix products of one rank, FLOP/s; NaN */
  } rates[TIMING_THREADS];
  int n_rates;
  double elsewhere[TIMING_REPEATS]; /* cores that others used, before each repeat */
  int n_looks;
  bool never_quiet; /* the quick form does not time what it could not show */
};

enum err timing_create(struct session *s, struct timing *out); /* ERR_MEMORY */
void timing_free(struct timing *b);
/* The setting of these, added if it is new. */
struct timing_setting *timing_add(struct timing *b, const struct run_config *c, int copies, const char *label, double seconds);
/* All settings, all repeats; stops (ERR_OK) on an interrupt. */
enum err timing_all(struct timing *b);
/* First loss of one rank on the same global batch as `of`, from a timed run or one made for it; NaN: not had. */
enum err timing_one_rank_loss(struct timing *b, const struct timing_setting *of, const char *name, double *out);
/* Best measured rate with these threads; NaN: none. */
double timing_rate(const struct timing *b, int64_t threads);
/* Looks for at most ten seconds.  False: it did not become quiet; *cores_elsewhere: what others use. */
bool timing_wait_for_quiet(struct session *s, double *cores_elsewhere);
/* Cores that others used, median over the looks; NaN: not looked.  Quiet: at most TIMING_QUIET. */
double timing_elsewhere(const struct timing *b);
bool timing_quiet(double cores_elsewhere);

#endif
