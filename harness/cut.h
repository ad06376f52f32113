/* cut.h - how a job is cut: the text of --layout, a layout's name, and what must hold before anything is launched. */
#ifndef HARNESS_CUT_H
#define HARNESS_CUT_H

#include "harness/launch.h"
#include "base/config.h"
#include "base/schedule.h"

/* "dp=2,tp=2,pp=2,schedule=interleaved,chunks=2,stages=3,3,2": each key's value laid over *c; degrees that are not
 * named stay.  Fails: ERR_CONFIG naming key, value and the valid ones. */
enum err cut_lay(const char *text, struct run_config *c);
bool cut_has(const char *text, const char *key); /* True if the text gives this key a value */

/* Every key of a layout back to its default: the same training on one rank. */
void cut_serial(struct run_config *c);

/* "1 rank", "dp2", "tp2 sp", "dp2 pp4 interleaved v2 3,3,2": what is not default. */
void cut_text(const struct run_config *c, char *out, size_t bytes);

/* World ranks of each tensor group stand on one host, unless tp_across_nodes.  hosts: where the launcher
 * puts ranks; n 0: one machine.  c is finished.  Fails: ERR_CONFIG naming ranks, hosts and the way out. */
enum err cut_check_hosts(const struct run_config *c, const struct launch_hosts *hosts);

/* What the verifier says of the schedule of a finished config.  stages 0: no pipeline, nothing to verify. */
struct cut_pipeline {
  int stages;
  double of_ideal, of_total; /* bubble at equal action times, as a share of either */
  int live;                  /* largest number of micro-batches in flight on a stage, over stages */
};
/* Builds the schedule and plays it.  Fails: ERR_CONFIG when the verifier refuses it, ERR_MEMORY. */
enum err cut_verify(const struct run_config *c, struct cut_pipeline *out);

#endif
