/* tasks_copy.c - copies: near, timed for their rate; far apart, for 64-bit offsets. */
#include "train/tasks_copy.h"

#include "base/f16.h"
#include "base/rng.h"
#include "ops/ops.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum { TILE = 1 << 16, FAR_ROWS = 2, FAR_COLS = 16 };

/* Normal numbers, one tile of them over and over: drawing 16 million takes longer than their product. */
enum err tasks_fill(struct dev_stream *s, const struct tensor *t, uint64_t seed)
{
  enum err err = ERR_OK;
  const int64_t n = tensor_count(t);
  const size_t size = dtype_bytes(t->type);
  char *tile = malloc(TILE * size);
  if (tile == NULL) FAIL(ERR_MEMORY, "tile of %d elements", TILE);
  for (int64_t i = 0; i < TILE; i++) {
    const double x = rng_normal((struct rng_key){seed, RNG_TEST, 0}, (uint64_t)i);
    if (t->type == DTYPE_F64) ((double *)(void *)tile)[i] = x;
    else if (t->type == DTYPE_BF16) ((uint16_t *)(void *)tile)[i] = bf16_round_f64(x);
    else if (t->type == DTYPE_F16) ((uint16_t *)(void *)tile)[i] = f16_round_f64(x);
    else ((float *)(void *)tile)[i] = (float)x;
  }
  for (int64_t at = 0; at < n; at += TILE)
    TRY_TO(free_tile, dev_copy_in(s, (char *)t->at + (size_t)at * size, tile, (size_t)(n - at < TILE ? n - at : TILE) * size));
  TRY_TO(free_tile, dev_sync_stream(s));
free_tile:
  dev_sync_stream(s); /* also of what was queued before a failure */
  free(tile);
  return err;
}

/* The one repeat more than asked for comes first and is not counted. */
static enum err repeat(const struct output *o, struct dev *d, struct dev_stream *s, const struct tensor *y, const struct tensor *x)
{
  for (int64_t r = 0; r <= o->run->repeats; r++) {
    dev_set_phase(d, (enum dev_phase)TASKS_TIMED, r, -1);
    TRY(op_copy(s, y, x));
    dev_set_phase(d, DEV_PHASE_OTHER, r, -1);
    TRY(dev_sync_stream(s));
    slots_say(o->slots, "copy", r);
  }
  return ERR_OK;
}

/* Elements of two device vectors that differ in a bit. */
static enum err count_differences(struct dev_stream *s, const struct tensor *a, const struct tensor *b, int64_t *out)
{
  enum err err = ERR_OK;
  const int64_t n = tensor_count(a);
  float *x = malloc(2 * TILE * sizeof *x);
  if (x == NULL) FAIL(ERR_MEMORY, "tiles of %d elements", 2 * TILE);
  float *y = x + TILE;
  *out = 0;
  for (int64_t at = 0; at < n; at += TILE) {
    const int64_t count = n - at < TILE ? n - at : TILE;
    TRY_TO(free_tile, dev_copy_out(s, x, (float *)a->at + at, (size_t)count * sizeof *x));
    TRY_TO(free_tile, dev_copy_out(s, y, (float *)b->at + at, (size_t)count * sizeof *y));
    TRY_TO(free_tile, dev_sync_stream(s));
    for (int64_t i = 0; i < count; i++) *out += memcmp(x + i, y + i, sizeof *x) != 0;
  }
free_tile:
  dev_sync_stream(s); /* also of what was queued before a failure */
  free(x);
  return err;
}

static enum err copy_near(const struct output *o, struct dev *d, struct dev_stream *s)
{
  enum err err;
  const int64_t n = o->run->size / (int64_t)sizeof(float) > 0 ? o->run->size / (int64_t)sizeof(float) : 1;
  const size_t bytes = (size_t)n * sizeof(float);
  int64_t wrong = 0;
  char *block = NULL;
  TRY(dev_alloc(d, 2 * bytes, DEV_OTHER, "copies", (void **)&block));
  const struct tensor x = tensor_at(block, DTYPE_F32, 1, n), y = tensor_at(block + bytes, DTYPE_F32, 1, n);
  TRY_TO(free_block, tasks_fill(s, &x, 1));
  TRY_TO(free_block, repeat(o, d, s, &y, &x));
  TRY_TO(free_block, count_differences(s, &x, &y, &wrong));
  const struct tasks_measure m = {.what = "copy", .size = (int64_t)bytes, .bytes = 2 * (int64_t)bytes, .wrong = wrong};
  TRY_TO(free_block, tasks_say(o, d, &m));

free_block:
  dev_sync_stream(s); /* also of what was queued before a failure */
  dev_free(d, block);
  return err;
}

/* Models beyond 2^31 elements have such rows.  Address space is reserved on both sides, so that an offset
 * cut to 32 bits meets a wrong place and not none; only the pages of the rows are ever touched. */
static enum err copy_far(const struct output *o, struct dev *d, struct dev_stream *s)
{
  enum err err;
  const int64_t half = (int64_t)1 << 31, stride = half + FAR_COLS;
  const size_t bytes = (size_t)(half + 2 * stride) * sizeof(float);
  float values[FAR_ROWS * FAR_COLS];
  void *block = NULL;
  float *space = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (space == MAP_FAILED) FAIL(ERR_MEMORY, "task copy: %zu bytes of address space: %s", bytes, strerror(errno));
  for (int i = 0; i < FAR_ROWS * FAR_COLS; i++) values[i] = (float)(i + 1);
  TRY_TO(unmap, dev_alloc(d, sizeof values, DEV_OTHER, "far rows", &block));
  const struct tensor x = tensor_at(block, DTYPE_F32, FAR_ROWS, FAR_COLS);
  struct tensor y = tensor_at(space + half, DTYPE_F32, FAR_ROWS, FAR_COLS);
  y.stride = stride;
  TRY_TO(unmap, dev_copy_in(s, block, values, sizeof values));
  TRY_TO(unmap, repeat(o, d, s, &y, &x));
  int64_t wrong = 0;
  for (int64_t r = 0; r < FAR_ROWS; r++)
    for (int64_t c = 0; c < FAR_COLS; c++) wrong += space[half + r * stride + c] != values[r * FAR_COLS + c];
  const struct tasks_measure m = {.what = "copy.far", .size = stride * (int64_t)sizeof(float), .bytes = 2 * (int64_t)sizeof values,
                                  .wrong = wrong};
  TRY_TO(unmap, tasks_say(o, d, &m));

unmap:
  dev_sync_stream(s); /* also of what was queued before a failure */
  if (block) dev_free(d, block);
  munmap(space, bytes);
  return err;
}

enum err tasks_copy(const struct output *o, struct dev *d, struct dev_stream *s)
{
  TRY(copy_near(o, d, s));
  TRY(copy_far(o, d, s));
  return ERR_OK;
}
