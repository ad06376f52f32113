/* output.h - where a run writes: records a rank, merged a host at the end; tensors.
 *
 * While the run lasts, each rank has <out>/rank<r>.jsonl of its own.  At its end they become
 * <out>/records.<host>.jsonl, and only then each rank adds its `done` record: who sees the
 * last of those reads complete files.  With out empty nothing is kept.
 */
#ifndef TRAIN_OUTPUT_H
#define TRAIN_OUTPUT_H

#include "base/config.h"
#include "base/record.h"
#include "train/last_words.h"
#include "train/slots.h"

struct output {
  const struct run_config *run;
  struct comm_world *world;
  struct last_words *last_words;
  struct record_file *records;
  struct slots *slots;
  char piece[CONFIG_PATH + 64], merged[CONFIG_PATH + 300];
  double start_ms, clock_offset_ms, clock_error_ms; /* comm_clock_offset() at the start ... */
  double clock_at_ms;                               /* ... when, our clock              */
};

/* All ranks; they agree on the result.  Makes the directory.  Fails: ERR_IO naming the path;
 * ERR_CONFIG if it already holds records of a run. */
enum err output_open(struct comm_world *w, const struct run_config *run, struct last_words *words, struct output *out);
/* All ranks, how the run went on all of them (same code everywhere): merges, says done. */
enum err output_finish(struct output *o, enum err result);
/* This rank alone, before the job is aborted: says done with its own reason, leaves the pieces. */
void output_abandon(struct output *o, enum err result);
#endif
