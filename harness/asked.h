/* asked.h - what a person asked of `shardmark run`, as words become values. */
#ifndef HARNESS_ASKED_H
#define HARNESS_ASKED_H

#include "base/config.h"
#include <jansson.h>

enum { ASKED_SUITES = 16, ASKED_RANKS = 64 };

struct asked {
  char suites[ASKED_SUITES][CONFIG_PATH];
  int n_suites;
  bool full, dry_run, keep; /* keep: tensors of passed cases stay too */
  bool fail_fast;           /* no run is started after the first FAIL */
  double budget_s;          /* 0: none                                */
  int ranks[ASKED_RANKS], n_ranks; /* 0: every count the suites have    */
  int base;                 /* N0; 0: the smallest                    */
  char model[CONFIG_NAME], device[CONFIG_NAME], layout[256], seed[64], lazy_seed[64], transport[32], policy[32], fault[CONFIG_NAME];
  char only[CONFIG_NAME];   /* cases whose name contains it; "": all  */
  char hosts[CONFIG_PATH], out[CONFIG_PATH], resume[CONFIG_PATH];
};

/* "1,2,4"; each 1..65536, none twice.  Fails: ERR_CONFIG. */
enum err asked_ranks(const char *text, struct asked *a);
/* "30m", "90s", "2h", "45": seconds.  Fails: ERR_CONFIG. */
enum err asked_budget(const char *text, double *seconds);
/* The settings that override a suite's: --model, --device, --seed, --lazy-seed, --layout "dp=2,tp=2", --fault.  --policy takes the place of
 * `padded`, the default: a case about another policy stays about it. */
enum err asked_lay_over(const struct asked *a, struct run_config *c);
/* --layout by itself and against --ranks.  Fails: ERR_CONFIG naming what was asked and the nearest valid. */
enum err asked_check_layout(const struct asked *a);
bool asked_overrides(const struct asked *a); /* True if any is given that may make a case's sizes not fit */

/* What decides which cases there are: kept in summary.json, so that --resume asks the same. */
json_t *asked_json(const struct asked *a);
/* Over *a, whose paths of results stay.  Fails: ERR_FORMAT. */
enum err asked_from_json(const json_t *j, struct asked *a);

#endif
