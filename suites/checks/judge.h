/* judge.h - checks: pure functions of records and tensors.
 *
 * A check looks at one finished case and at companions: runs derived from the case's
 * own settings by a pure function (the float64 truth, legal serial runs that show the
 * noise, a rerun, a twin that must be equal in bits).  The harness runs companions
 * once per distinct setting and shares them between cases.  A check never launches,
 * never writes, and missing evidence is never a pass.
 */
#ifndef SUITES_CHECKS_JUDGE_H
#define SUITES_CHECKS_JUDGE_H

#include "base/config.h"
#include <jansson.h>

enum outcome { OUTCOME_PASS, OUTCOME_FAIL, OUTCOME_INVALID, OUTCOME_INCONCLUSIVE, OUTCOME_SKIPPED };
const char *outcome_name(enum outcome o); /* "PASS", ... */

enum { JUDGE_COMPANIONS_MAX = 24 };

/* One run as it ended. */
struct run_data {
  struct run_config config;
  char dir[CONFIG_PATH];      /* holds the tensors that records name          */
  const json_t *records;      /* array: every record of every rank            */
  char end[32];               /* "exited", "killed", "timeout", "interrupted", "not_started" */
  int status;                 /* exit status or signal                        */
  char text[512];             /* the watcher's sentence: rank and last collective */
  bool foreign;               /* of another trainer: what is absent as a whole was not asked for, and is not judged */
  int ranks;                  /* of a foreign run: those that tell of steps; 0: all of the layout */
};

/* Equal configs are one run, shared by all roles and cases that ask for it; but one whose role starts with "rerun"
 * is a run of its own, one for each such role, though its config equals others'. */
struct companion {
  char role[32]; /* "truth", "noise3", "twin", "rerun", "overlap_off" */
  struct run_config config; /* name and out are the harness's to fill */
};

struct verdict {
  enum outcome outcome;
  char check[32], observable[8];
  char sentence[512];  /* for a person: numbers, parameter, step, rank      */
  char cause[256];     /* likely cause by signature, "" if none is known     */
  char worst[128];     /* parameter or step of the largest value / bound     */
  char first[128];     /* place of the earliest step that is beyond its bound, "" if none is or the check has none */
  int64_t first_step;  /* that step; -1: before any                          */
  double value, bound; /* there; NaN when the check has none                 */
  double smallest;     /* smallest planted relative error it would have seen; NaN: not such a check */
  json_t *details;     /* NULL, or array of {what, step, value, bound}: each parameter (its worst step) or each
                        * step that was compared, for the report; the receiver releases it */
};

struct check {
  const char *name, *observable, *meaning;
  /* Fills out[], returns how many (<= max).  NULL: needs none. */
  int (*companions)(const struct run_config *c, struct companion *out, int max);
  /* companions[i] is NULL where that run could not be had: then INVALID, or FAIL if the
   * companion itself failed to run the same settings that a user would. */
  void (*judge)(const struct run_data *run, const struct companion *wanted, const struct run_data *const *companions, int n,
                struct verdict *out);
};
extern const struct check judge_checks[];
extern const int judge_checks_count;
const struct check *judge_find(const char *name); /* NULL: none */

/* The worst of several, by the rule FAIL > INVALID > INCONCLUSIVE > PASS; SKIPPED only if all are. */
enum outcome judge_worst(const enum outcome *list, int n);

/* What the verdicts of one case say together: the likeliest cause, by signature (a ratio that
 * equals 1/dp, one parameter class, from step 1 on, ...).  Blind: reads no fault's name.  wanted and
 * companions: of all its checks, in any order, NULL where there was none.  Fills `cause` of
 * every FAIL in list. */
struct diagnosis {
  char fault[64];     /* name of the fault_rows row, or of a foreign run the judge_causes row, it looks like; "" = unknown */
  char sentence[256]; /* that row's cause, or what is known                     */
};
void judge_diagnose(const struct run_data *run, const struct companion *wanted, const struct run_data *const *companions, int n,
                    struct verdict *list, int verdicts, struct diagnosis *out);
/* Causes that foreign runs are diagnosed with and that no row of fault_rows is about: name and sentence. */
struct judge_cause {
  const char *name, *sentence;
};
extern const struct judge_cause judge_causes[];
extern const int judge_causes_count;
/* True if a FAIL of the list is of one of these observables (blank-separated, as in fault_row). */
bool judge_caught(const char *observables, const struct verdict *list, int n);

/* --- closed formulas: of the configuration alone, no allocator, no parameter table ---- */

struct predicted {
  double parameters;                 /* elements */
  double rank_parameters;            /* of them, on a rank; the vocabulary padded */
  double parameters_bytes, gradients_bytes, optimizer_bytes, activations_bytes, communication_bytes, total_bytes; /* a rank, peak */
  double host_bytes;                 /* of the host, for batches and what is offloaded; part of the total unless the device is a GPU */
  double flops_full, flops_causal;   /* model FLOPs of a step of all ranks, attention full square / causal half */
  double again_full, again_causal;   /* more, of products that recompute makes again: never in MFU, in HFU alone */
  double allreduce_bytes;            /* gradients over replicas: sent per rank and step on a ring */
  double allreduce_calls;            /* per rank and step */
  double gather_bytes, gather_calls; /* weights over replicas that share them or the optimizer's state: sent per rank and step */
  double tensor_bytes, tensor_calls;     /* sent per rank and step over tensor ranks            */
  double pipeline_bytes, pipeline_calls; /* to neighbouring stages, and the tied matrix between the ends */
};
/* Of the rank with the most memory. */
void predict(const struct run_config *c, struct predicted *out);

#endif
