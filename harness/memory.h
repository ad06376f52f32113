/* memory.h - memory of a case's worst rank, measured beside predicted, as one record. */
#ifndef HARNESS_MEMORY_H
#define HARNESS_MEMORY_H

#include "harness/plan.h"
#include "harness/results.h"

/* For a judged trial of a suite of kind memory; nothing without `memory` records. */
enum err memory_record(const struct plan *p, const struct trial *t, const struct results *r);
/* Bytes that one host needs for a run, by formula: its ranks' peaks.  hosts: ranks a host. */
double memory_needed(const struct run_config *c, int ranks_a_host);
#endif
