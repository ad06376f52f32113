/* doctor.h - `shardmark doctor`: is this machine fit, and if not, the command that mends it. */
#ifndef HARNESS_DOCTOR_H
#define HARNESS_DOCTOR_H
#include "base/err.h"
#include <stdio.h>

/* Prints a line for each thing looked at, with the command that mends what is wrong.  Status 0, or 3
 * if something that a run needs is missing; what only makes timing doubtful is a warning. */
enum status doctor_print(FILE *out);
#endif
