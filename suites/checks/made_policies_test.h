/* made_policies_test.h - runs of every batch policy made by hand, for the tests of what is told of them.
 *
 * Two ranks, EACH micro-batches of one sequence on each, STEPS steps.  Lengths follow the policy, times follow the lengths.
 */
#ifndef CHECKS_MADE_POLICIES_TEST_H
#define CHECKS_MADE_POLICIES_TEST_H

#include "policies.h"
#include "testing/check.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { RUNS = POLICIES_KINDS * POLICIES_REPEATS, STEPS = 8, EACH = 4 };

struct made {
  struct run_data data;
  json_t *records;
};
static struct made made[RUNS]; /* the last: the case's own */
static struct companion wanted[JUDGE_COMPANIONS_MAX];
static const struct run_data *companions[JUDGE_COMPANIONS_MAX];
static int n;

static inline json_t *put(struct made *m, const char *kind, int rank, int64_t step, int64_t microbatch)
{
  json_t *r = json_pack("{s:s, s:i, s:I}", "kind", kind, "rank", rank, "step", (json_int_t)step);
  if (microbatch >= 0) json_object_set_new(r, "microbatch", json_integer(microbatch));
  json_array_append_new(m->records, r);
  return r;
}

static inline void real(json_t *r, const char *key, double value) { json_object_set_new(r, key, json_real(value)); }

/* Lengths by policy: fixed of any, balanced and packed alike on both ranks, padded and bucketed not. */
static inline double tokens_of(enum policies_kind k, int rank, int64_t step, int i)
{
  const double mine = (double)(40 + (17 * i + 29 * step) % 50);
  return k == POLICIES_PACKED ? 120 + i : k == POLICIES_BALANCED ? mine : mine + (double)(k == POLICIES_PADDED && (step + rank) % 2 ? 30 : 0);
}
static inline double cost(double tokens) { return 0.5 + 0.1 * tokens + 0.001 * tokens * tokens; }

/* Steps of two ranks as long as the busiest rank's work and 10 ms; rank 1 works `more` ms longer where that is said.  The first
 * two are far off. */
static inline void make(struct made *m, const struct run_config *c, enum policies_kind k, double more)
{
  *m = (struct made){.records = json_array()};
  m->data = (struct run_data){.config = *c, .records = m->records, .end = "exited"};
  for (int64_t step = 0; step < STEPS; step++) {
    double busy[2] = {0, more};
    json_t *time[2];
    for (int rank = 0; rank < 2; rank++) {
      json_t *each = json_array();
      for (int i = 0; i < EACH; i++) {
        const double tokens = tokens_of(k, rank, step, i), ms = k == POLICIES_FIXED ? cost(128) : cost(tokens);
        json_t *b = put(m, "batch", rank, step, rank * EACH + i);
        real(b, "got.tokens", tokens);
        real(b, "got.valid_tokens", tokens - 1);
        real(b, "got.pairs", tokens * tokens);
        if (c->narrow) real(b, "got.width", ceil(tokens / 16) * 16);
        json_array_append_new(each, json_real(ms));
        busy[rank] += ms;
      }
      time[rank] = put(m, "time", rank, step, -1);
      json_object_set_new(time[rank], "got.microbatches_ms", each);
    }
    for (int rank = 0; rank < 2; rank++) {
      real(time[rank], "got.forward_ms", 0.25 * busy[rank] + (step < 2 ? 100 * rank : 0));
      real(time[rank], "got.backward_ms", 0.75 * busy[rank]);
      real(time[rank], "got.optimizer_ms", 0);
      real(time[rank], "got.other_ms", 0);
      real(time[rank], "got.step_ms", fmax(busy[0], busy[1]) + 10);
    }
  }
}

/* Every run of kind `which` in the repeats from `first` on has rank 1 busy so much longer. */
static inline void setup(enum policies_kind which, int first, double more)
{
  struct run_config c;
  config_default(&c);
  c.dp = 2;
  c.global_batch = 2 * EACH;
  c.sequence = 128;
  c.steps = STEPS;
  c.policy = POLICY_CHUNKED;
  c.tail = TAIL_WRAP;
  c.trace_time = true;
  n = policies_companions(&c, wanted, JUDGE_COMPANIONS_MAX);
  CHECK(n == RUNS - 1);
  make(&made[RUNS - 1], &c, POLICIES_FIXED, which == POLICIES_FIXED && first == 0 ? more : 0);
  for (int i = 0; i < n; i++) {
    int repeat = -1, k = 0;
    CHECK(sscanf(wanted[i].role, "rerun%d-", &repeat) == 1);
    while (k < POLICIES_KINDS && strcmp(strchr(wanted[i].role, '-') + 1, policies_name((enum policies_kind)k)) != 0) k++;
    if (!CHECK(k < POLICIES_KINDS)) return;
    make(&made[i], &wanted[i].config, (enum policies_kind)k, k == (int)which && repeat >= first ? more : 0);
    companions[i] = &made[i].data;
  }
}
static inline void teardown(void)
{
  for (int i = 0; i < RUNS; i++) json_decref(made[i].records);
}

#endif
