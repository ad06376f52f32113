/* foreign_records.h - records that another program wrote: read, and looked at before anything is made of them. */
#ifndef HARNESS_FOREIGN_RECORDS_H
#define HARNESS_FOREIGN_RECORDS_H

#include "suites/checks/judge.h"

/* All of records*.jsonl and rank*.jsonl in `dir`, ranks in order; a last line without an end is dropped.  `case` may be absent.
 * *out: new reference.  Fails: ERR_CONFIG (no such directory, no file of that name), ERR_FORMAT (path:line), ERR_IO, ERR_MEMORY. */
enum err foreign_records_read(const char *dir, json_t **out);

/* Places within the run, keys of their types, nothing told twice: what is not so is INVALID, naming the record; so is a kind that
 * the schema does not have.  Keys that it does not have are the program's own affair. */
void foreign_records_judge(const struct run_data *run, struct verdict *out);

#endif
