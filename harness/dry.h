/* dry.h - `run --dry-run`: what would run, how long, how large; nothing is launched. */
#ifndef HARNESS_DRY_H
#define HARNESS_DRY_H
#include "harness/plan.h"

/* *status: 0, or 3 when a case does not fit in available_bytes of one host of ranks_a_host ranks. */
enum err dry_print(const struct plan *p, double available_bytes, int ranks_a_host, double disk_bytes, double budget_s, int cores,
                   enum status *status);
#endif
