/* memory.h - memory of a case's worst rank, measured beside predicted, as one record. */
#ifndef HARNESS_MEMORY_H
#define HARNESS_MEMORY_H

#include "harness/plan.h"
#include "harness/results.h"

/* What does not fit: how much is needed and there, of the rank that wants most its bytes and its three largest
 * categories, and what would fit: "2 ranks of model a need 3.00 GiB ... ; most on rank 0, 1610612736 bytes: optimizer
 * 800000000 bytes, ...; here would fit: prefetch: 3, not 9". */
void memory_refusal(const struct run_config *c, int ranks_a_host, double available_bytes, char *out, size_t room);
/* For a judged trial of a suite of kind memory; nothing without `memory` records. */
enum err memory_record(const struct plan *p, const struct trial *t, const struct results *r);
/* Bytes that one host needs for a run, by formula: its ranks' peaks.  hosts: ranks a host. */
double memory_needed(const struct run_config *c, int ranks_a_host);
#endif
