/* whole_test.h - all checks of a case on one made run, and what they say together. */
#ifndef CHECKS_WHOLE_TEST_H
#define CHECKS_WHOLE_TEST_H

#include "base/fault.h"
#include "fabricate_test.h"

enum { CHECKS_MAX = 24 };

/* All checks of a suite's case on one made run, and the diagnosis. */
struct whole {
  struct bench b;
  const char *checks[CHECKS_MAX];
  struct verdict list[CHECKS_MAX];
  int n;
  struct diagnosis diagnosis;
};
static const char *const usual[] = {"ends",   "finite",   "loss",  "gradients",  "norm",
                                    "update", "replicas", "rerun", "overlap_off"};
enum { USUAL = sizeof usual / sizeof *usual };

static inline void whole_setup(struct whole *w, const struct run_config *c)
{
  memset(w, 0, sizeof *w);
  bench_setup(&w->b, "loss", c); /* truth and noise */
  for (int i = 0; i < USUAL; i++) w->checks[w->n++] = usual[i];
  const char *const twins[] = {"rerun", "overlap_off"};
  for (int i = 0; i < 2; i++) {
    struct bench *b = &w->b;
    const int k = judge_find(twins[i])->companions(c, b->wanted + b->n, 1);
    if (k == 0) continue;
    made_run(&b->other[b->n], &b->wanted[b->n].config, 20);
    b->companions[b->n] = &b->other[b->n].data;
    b->n++;
  }
}

static inline const char *whole_diagnose(struct whole *w)
{
  for (int i = 0; i < w->n; i++) {
    json_decref(w->list[i].details);
    judge_find(w->checks[i])->judge(&w->b.run.data, w->b.wanted, w->b.companions, w->b.n, &w->list[i]);
  }
  judge_diagnose(&w->b.run.data, w->b.wanted, w->b.companions, w->b.n, w->list, w->n, &w->diagnosis);
  return w->diagnosis.fault;
}

static inline void whole_teardown(struct whole *w)
{
  for (int i = 0; i < w->n; i++) json_decref(w->list[i].details);
  bench_teardown(&w->b);
}

static inline bool whole_named(struct whole *w, enum fault f)
{
  const char *got = whole_diagnose(w);
  bool cause = false;
  for (int i = 0; i < w->n; i++)
    cause = cause || (w->list[i].outcome == OUTCOME_FAIL && strcmp(w->list[i].cause, fault_rows[f].cause) == 0);
  if (strcmp(got, fault_rows[f].name) == 0 && cause) return true;
  fprintf(stderr, "taken for '%s', expected '%s'\n", got, fault_rows[f].name);
  return false;
}

#endif
