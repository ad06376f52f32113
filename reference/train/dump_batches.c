/* dump_batches.c - micro-batches as they were consumed, put where their numbers say. */
#include "train/dump_batches.h"

#include "base/safetensors.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ARRAYS = 4 };
static const char *const names[ARRAYS] = {"tokens", "targets", "positions", "documents"};

struct batch_rows {
  const struct trainer *t;
  int64_t rows;
  int32_t *values; /* [ARRAYS, rows, T] */
};

enum err dump_batches_create(const struct trainer *t, struct batch_rows **out)
{
  enum err err;
  const struct run_config *run = &t->run;
  *out = NULL;
  if (!run->dump_batches || run->out[0] == '\0' || comm_rank(t->world) != 0) return ERR_OK;
  const int64_t rows = run->steps * run->global_batch;
  const size_t bytes = (size_t)(ARRAYS * rows * run->sequence) * sizeof(int32_t);
  struct batch_rows *r = calloc(1, sizeof *r);
  if (r == NULL) FAIL(ERR_MEMORY, "dump_batches: %zu bytes", sizeof *r);
  r->t = t;
  r->rows = rows;
  r->values = malloc(bytes + 1);
  if (r->values == NULL) FAIL_TO(destroy_rows, ERR_MEMORY, "dump_batches: %" PRId64 " sequences, %zu bytes", rows, bytes);
  *out = r;
  return ERR_OK;

destroy_rows:
  dump_batches_destroy(r);
  return err;
}

void dump_batches_destroy(struct batch_rows *r)
{
  if (r == NULL) return;
  free(r->values);
  free(r);
}

void dump_batches_take(struct batch_rows *r, int64_t step)
{
  if (r == NULL) return;
  const struct run_config *run = &r->t->run;
  const int64_t T = run->sequence;
  for (int64_t i = 0; i < r->t->n_micro; i++) {
    const struct batch *b = &r->t->micro[i].batch;
    const int32_t *const from[ARRAYS] = {b->tokens, b->targets, b->positions, b->documents};
    const int64_t row = step * run->global_batch + r->t->micro[i].number * b->B;
    for (int k = 0; k < ARRAYS; k++) memcpy(r->values + (k * r->rows + row) * T, from[k], (size_t)(b->B * T) * sizeof(int32_t));
  }
}

enum err dump_batches_write(const struct batch_rows *r)
{
  if (r == NULL) return ERR_OK;
  const struct run_config *run = &r->t->run;
  struct safetensor list[ARRAYS];
  char path[CONFIG_PATH + 32];
  for (int k = 0; k < ARRAYS; k++)
    list[k] = (struct safetensor){names[k], tensor_at(r->values + k * r->rows * run->sequence, DTYPE_I32, r->rows, run->sequence), 2};
  snprintf(path, sizeof path, "%s/batches.safetensors", run->out);
  TRY(safetensors_write(path, list, ARRAYS, NULL));
  return ERR_OK;
}
