/* params.h - the one table of parameters: each fact about one stands here once.
 *
 * Initialisation, reduction groups, norm de-duplication, shards, checkpoints and the
 * equivalence check are derived from these rows.  Names and shapes are Hugging Face
 * GPT-2's (Conv1D weights [in, out]).  Order of rows: wte, wpe, blocks in order, ln_f,
 * lm_head if untied, extra.unused if asked for.  That order is also the order in which
 * per-parameter sums are combined.
 */
#ifndef PARAMS_PARAMS_H
#define PARAMS_PARAMS_H

#include "base/config.h"

enum param_init { PARAM_NORMAL, PARAM_NORMAL_RESIDUAL, PARAM_BIAS, PARAM_GAIN };
enum param_cut { PARAM_WHOLE, PARAM_CUT_ROWS, PARAM_CUT_COLS };
enum param_stage { PARAM_FIRST, PARAM_BLOCK, PARAM_LAST, PARAM_FIRST_AND_LAST };

struct param {
  char name[96];
  int64_t rows, cols; /* logical, unpadded                                   */
  int rank;           /* 1: a vector, rows == 1                              */
  enum param_init init;
  enum param_cut cut; /* axis that tensor parallelism cuts                   */
  int blocks;         /* the cut axis is this many blocks cut alike (QKV: 3) */
  int pad;            /* the cut axis is padded to a multiple of this        */
  enum param_stage stage;
  int layer;          /* -1 outside blocks                                   */
  bool decay, frozen, unused;
  bool zero_gradient; /* part of the true gradient is zero (key bias)        */
  int shared_with;    /* row that holds the storage, or -1: its own          */
};

struct param_table {
  int n;
  struct param *rows;
};

/* Owner of *out: the caller.  Fails: ERR_CONFIG (a frozen pattern that matches
 * nothing names the nearest names), ERR_MEMORY. */
enum err params_create(const struct run_config *c, struct param_table **out);
void params_destroy(struct param_table *t);
int params_find(const struct param_table *t, const char *name); /* -1: none */
int64_t params_count(const struct param_table *t); /* elements, shared storage once, unused not counted */

/* Elements [first, first + n) of row i's initial contents, by counter from the seed,
 * rounded to `as`, stored as `type` at out.  GPT-2's rule (deviation 0.02, residual
 * projections / sqrt(2 L)); with `revealing`, biases and norm offsets are normal 0.02
 * and gains 1 + normal 0.1, so that no fault hides behind a zero or a one. */
void params_initial(const struct param_table *t, int i, uint64_t seed, bool revealing, enum dtype as, enum dtype type,
                    int64_t first, int64_t n, void *out);

/* x, rounded to `as`, stored as element i of an array of `type`; both float64 or float32. */
void params_store(void *at, enum dtype type, enum dtype as, int64_t i, double x);

/* Flat layout: every storage-owning row at an offset of one flat buffer, each padded to
 * `align` elements, the whole to a multiple of `shards`; and its division into
 * consecutive buckets in the order in which backward finishes (last row first). */
struct flat_bucket {
  int64_t first, count; /* elements of the flat buffer, padding included                                       */
  int first_row, rows;  /* of the table: [first_row, first_row + rows); rows among them that share storage have none here */
};
struct flat {
  int64_t count;            /* elements, padding included          */
  int64_t *offset, *length; /* by row; shared rows have their owner's; frozen and unused rows have a place too */
  int n_buckets;
  struct flat_bucket *buckets; /* in order of readiness; bounds at row borders unless a row is larger than a bucket */
};
/* bucket: elements (padding not counted), 0 = one bucket.  A row that does not fit in what
 * is left of a bucket starts the next; one that fits exactly is taken.  A row larger than
 * a bucket is cut from its end into whole buckets; what remains starts a bucket that takes
 * further rows.  The buckets tile [0, count).  Fails: ERR_ARG, ERR_MEMORY. */
enum err flat_create(const struct param_table *t, int64_t align, int64_t shards, int64_t bucket, struct flat **out);
void flat_destroy(struct flat *f);

#endif
