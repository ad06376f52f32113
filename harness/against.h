/* against.h - a case that `shardmark export` wrote, read back: what a foreign run is judged against (results/schema.md, Cases). */
#ifndef HARNESS_AGAINST_H
#define HARNESS_AGAINST_H

#include "harness/case.h"

struct against {
  char dir[CONFIG_PATH];
  char model[CONFIG_NAME];
  struct run_config config; /* the truth's settings                                    */
  struct run_data truth;    /* its records, its folder                                 */
  struct run_data bounds;   /* of one precision, as records of kind "noise" (noise.h) */
  json_t *json;             /* case.json */
};

/* Reads case.json and the truth's records.  Owner of *a: the caller, until against_close.
 * Fails: ERR_CONFIG (no case there, or another version's), ERR_FORMAT (a damaged one), ERR_IO, ERR_MEMORY. */
enum err against_open(const char *dir, struct against *a);
void against_close(struct against *a);

/* Bounds of that precision.  Fails: ERR_CONFIG (the case has none; names those that it has), ERR_FORMAT, ERR_IO, ERR_MEMORY. */
enum err against_bounds(struct against *a, enum precision precision);

/* Truth and bounds of micro-batches become those of micro-batches of `micro_batch` sequences: sums over neighbours; a sum is no farther off
 * than the farthest of its parts.  Fails: ERR_CONFIG (not a multiple that divides the batch), ERR_MEMORY. */
enum err against_regroup(struct against *a, int64_t micro_batch);

#endif
