/* batch_file.h - batches that someone else made, from a safetensors file. */
#ifndef DATA_BATCH_FILE_H
#define DATA_BATCH_FILE_H

#include "data/data.h"

struct batch_file;
/* Every value is checked: tokens and targets against the vocabulary, positions against the
 * model's.  Fails: ERR_IO, ERR_FORMAT naming path and tensor. */
enum err batch_file_open(const struct run_config *c, struct batch_file **out);
void batch_file_close(struct batch_file *f); /* NULL is allowed */
int64_t batch_file_rows(const struct batch_file *f);
/* Row `row` becomes row b of out. */
void batch_file_row(const struct batch_file *f, int64_t row, int64_t b, struct batch *out);

#endif
