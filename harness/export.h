/* export.h - `shardmark export`: runs our trainer and writes a case (case.h) that any other trainer can be checked against. */
#ifndef HARNESS_EXPORT_H
#define HARNESS_EXPORT_H

#include "base/config.h"

enum { EXPORT_SETS = 64 };

/* What a person asked. */
struct export_asked {
  char model[CONFIG_NAME], layout[256], dir[CONFIG_PATH];
  char sets[EXPORT_SETS][CONFIG_PATH]; /* key=value, in order */
  int n_sets;
};

/* What a case trains unless it is told otherwise, not finished: short documents alone in their sequences, biases and gains that hide no
 * fault, clipping that acts, a rate that differs from update to update, an eps that noise in small gradients does not get past. */
void export_defaults(struct run_config *c);
/* The part of that which depends on the rest: where a cosine ends. */
void export_decay(struct run_config *c);
/* True if what a case trains may be asked by that key; if not, why. */
bool export_may_set(const char *key, const char **why);
/* The keys that it may be asked by, for --help: "beta1, beta2, ...". */
void export_keys(char *out, size_t bytes);
/* Whether a case can have these settings, but for what export_run() sets itself.  Fails: ERR_CONFIG. */
enum err export_check(const struct run_config *c);
/* The defaults, then what was asked, finished.  Fails: ERR_CONFIG naming key, value and what is valid: an unknown key, one that no
 * case has, a layout that the model cannot take. */
enum err export_settings(const struct export_asked *a, struct run_config *out);

/* Runs the truth in float64 and eight legal serial runs in each precision, in a scratch folder beside `dir`; then the case appears as
 * `dir`, whole or not at all.  c is finished; its layout is what the case is meant for and what the legal runs split their sums by; its
 * precision, device, loss scale, evaluation and whatever cuts or times a step are not looked at.  say: what was written, on stdout.
 * *status: PASS, or INTERRUPTED and nothing is left.
 * Fails: ERR_CONFIG (export_check; dir exists and is not empty), ERR_INVALID (a bound is above its ceiling, a run did not end),
 * ERR_IO, ERR_UNAVAILABLE, ERR_MEMORY, ERR_FORMAT. */
enum err export_run(const struct run_config *c, const char *dir, bool say, enum status *status);
/* The verb: the same as asked. */
enum err export_case(const struct export_asked *a, enum status *status);
#endif
