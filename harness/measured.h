/* measured.h - `shardmark speed`: the speed of training runs that were started by hand or by a script. */
#ifndef HARNESS_MEASURED_H
#define HARNESS_MEASURED_H

#include "base/err.h"

#include <stdio.h>

/* One line for each results folder of the trainer, or why it shows no speed.  Returns the worst of them: PASS, FAIL,
 * INVALID.  Fails: ERR_IO, ERR_FORMAT for a folder that holds no records of one run. */
enum err measured_print(const char *const *folders, int n, FILE *out, enum status *status);

#endif
