/* env.h - what a record says of machine, versions and launch: the allow-list of base/env.def. */
#ifndef TRAIN_ENV_H
#define TRAIN_ENV_H

#include "train/output.h"

/* Keys env.* into the record that is being made.  Fails: as dev_open, when the run asks for a device that is not here. */
enum err env_record(struct record_file *f, const struct output *o);
/* Processors this process may run on, ascending; returns their number, at most `max`. */
int env_cores(int64_t *out, int max);
/* "Intel(R) Xeon(R) ..."; "unknown" where /proc/cpuinfo does not say. */
void env_cpu(char *out, size_t bytes);
#endif
