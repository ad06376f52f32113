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

/* The settings of the runs: the case's own, then what was asked, finished, in float32 and with the layout.
 * Fails: ERR_CONFIG naming key, value and what is valid: an unknown key, one that no case has, a layout that the model cannot take. */
enum err export_settings(const struct export_asked *a, struct run_config *out);

/* What a case trains unless it is told otherwise, not finished; and the part of that which depends on the rest: where a cosine ends. */
void export_defaults(struct run_config *c);
void export_decay(struct run_config *c);
/* True if what a case trains may be asked by that key; if not, why. */
bool export_may_set(const char *key, const char **why);

/* The truth in float64 and eight legal serial runs in each precision, in a scratch folder beside a->dir; then the case, whole or not
 * at all.  Says on stdout what was written.  *status: INVALID where a bound is above its ceiling or a run did not end, INTERRUPTED.
 * Fails: ERR_CONFIG (settings; dir exists and is not empty), ERR_IO, ERR_UNAVAILABLE, ERR_MEMORY, ERR_FORMAT. */
enum err export_case(const struct export_asked *a, enum status *status);

/* The same of settings that are finished; say: on stdout, too. */
enum err export_run(const struct run_config *c, const char *dir, bool say, enum status *status);

/* The keys that --set may have, for --help: "beta1, beta2, ...". */
void export_keys(char *out, size_t bytes);
#endif
