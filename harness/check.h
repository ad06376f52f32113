/* check.h - `shardmark check`: a foreign run on the terminal, and as a results directory. */
#ifndef HARNESS_CHECK_H
#define HARNESS_CHECK_H

#include "base/config.h"

struct check_asked {
  char dir[CONFIG_PATH], against[CONFIG_PATH], out[CONFIG_PATH]; /* out "": no records */
};

/* Judges, prints, with `out` writes records and a report.  *status: that of the verdict.  Fails: as foreign_check; ERR_CONFIG (out holds
 * results), ERR_IO. */
enum err check_run(const struct check_asked *a, enum status *status);

#endif
