/* results.h - a results directory: records as they come, a summary after every case.
 *
 * Layout: summary.json, records.jsonl, cases/RUN/{run.yaml, records*.jsonl, output.txt,
 * trace.json (timeline.h), tensors}.  A directory that holds results is never written into, except to resume it.
 * Every write error is heard: the file keeps what was whole, and the run becomes INVALID.
 */
#ifndef HARNESS_RESULTS_H
#define HARNESS_RESULTS_H

#include "base/config.h"
#include "base/record.h"

struct results {
  char dir[CONFIG_PATH], records[CONFIG_PATH + 32];
};

/* Makes the directory (out "" : results/runs/<date>-<suite>-<host>), checks that it is
 * writable, empty of results and has bytes_wanted free.  Fails: ERR_CONFIG (has results), ERR_IO. */
enum err results_create(const char *out, const char *suite, double bytes_wanted, struct results *r);
/* An existing one.  *asked: what its summary says was asked, new reference.  Fails: ERR_CONFIG (not one), ERR_IO, ERR_FORMAT. */
enum err results_resume(const char *dir, struct results *r, json_t **asked);
/* Points results/latest at it when it stands in results/runs. */
void results_latest(const struct results *r);

/* Appends the records of a run's directory, whole lines only. */
enum err results_merge(const struct results *r, const char *run_dir);
/* Keeps of records.jsonl only records for which keep(case, context) is true. */
enum err results_filter(const struct results *r, bool (*keep)(const json_t *record, void *context), void *context);
/* Through summary.json.tmp and rename.  Takes the reference. */
enum err results_summary(const struct results *r, json_t *summary);

/* Names of record files: rank<r>.jsonl while a run lasts and where it died, records.<host>.jsonl once it ended. */
bool results_is_records(const char *name);
/* All records*.jsonl of a directory, ranks in order, each by `read` (base/record.h).  *files: how many there are; -1: no such directory,
 * errno says why; both leave *out empty.  *out: new reference.  Fails: as `read`, ERR_MEMORY. */
typedef enum err results_reader(const char *path, json_t **out, int *cut);
enum err results_read_by(results_reader *read, const char *dir, int *files, json_t **out);
/* All records of a run's directory, in the order of ranks.  *out: new reference.  Fails: ERR_IO, ERR_FORMAT. */
enum err results_read_run(const char *run_dir, json_t **out);
/* Empties the directory of a run (made when missing) of records, slots, tensors and output. */
enum err results_clean_run(const char *run_dir);
/* Removes the tensors of a run; its records stay. */
void results_drop_tensors(const char *run_dir);
/* False if a file that a `tensors` record names is gone. */
bool results_tensors_there(const char *run_dir, const json_t *records);

#endif
