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

#include "base/partition.h"
#include "base/tensor.h"

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

/* --- what a rank holds ----------------------------------------------------------
 *
 * The table above is the same on every rank and whole: logical rows, global shapes.  A rank
 * has of each row what its place says, the *part*:
 *
 *   stage    rows of blocks: the pipeline rank whose virtual stage has the layer; embeddings
 *            and extra.unused: the first virtual stage's; final norm and head: the last one's;
 *            a tied wte: both, each with a copy
 *   cut      in columns: of each of the row's blocks an equal share, side by side (QKV: the
 *            rank's heads of q, of k, of v); in rows: an equal share of consecutive rows.  A
 *            row with `pad` is filled with zero rows until it can be cut (tp above 1).  Others are whole on every
 *            tensor rank
 */
struct params_place {
  int tp, tp_rank, pp, pp_rank;
  struct partition partition; /* pp = 1: not read */
};

/* Rank (pp_rank, tp_rank) of a finished config. */
enum err params_place_of(const struct run_config *c, int pp_rank, int tp_rank, struct params_place *out);
extern const struct params_place params_place_alone; /* one rank: all of every row */

/* Shape of the part of row i, zero rows of padding included.  0 x 0: this rank has none of it. */
struct param_part { int64_t rows, cols; };
void params_part(const struct param_table *t, int i, const struct params_place *place, struct param_part *out);
bool params_here(const struct param_table *t, int i, const struct params_place *place);

/* Between all of row i, `full` [rows, cols], and its part, `local`, both dense, of any type.
 * take writes the whole part, padding as zero; put writes the elements of `full` that are in the
 * part and no other.  Nothing where the row is not here. */
void params_take(const struct param_table *t, int i, const struct params_place *place, enum dtype type, const void *full, void *local);
void params_put(const struct param_table *t, int i, const struct params_place *place, enum dtype type, const void *local, void *full);

/* As params_initial, elements [first, first + n) of the part. */
void params_initial_piece(const struct param_table *t, int i, const struct params_place *place, uint64_t seed, bool revealing,
                          enum dtype as, enum dtype type, int64_t first, int64_t n, void *out);
/* The whole part. */
void params_initial_part(const struct param_table *t, int i, const struct params_place *place, uint64_t seed, bool revealing,
                         enum dtype as, enum dtype type, void *out);

/* True on exactly those ranks whose part of row i is to be summed into the global norm so that each element counts
 * once: of a cut row every tensor rank, of a whole one the first, of a tied wte the first stage.
 * Never of rows that share another's storage or take no update. */
bool params_counts(const struct param_table *t, int i, const struct params_place *place);

/* x, rounded to `as`, stored as element i of an array of `type`; both float64 or float32. */
void params_store(void *at, enum dtype type, enum dtype as, int64_t i, double x);

/* Flat layout: the part of every storage-owning row at an offset of one flat buffer, each padded
 * to `align` * `shards` elements; and its division into consecutive buckets in the order in which
 * backward finishes (last row first).
 *
 * With shards above 1 every bucket's count is a multiple of align * shards, and shard r has of
 * each bucket the r-th of as many equal parts.  A buffer of one shard holds its parts in order of their
 * place in the flat buffer: what is first in bucket b's part stands at b.first / shards.
 *
 * A unit is what a pass of the model needs at once: all rows before the blocks ("begin"), each
 * block of this rank that owns its rows, all rows after the blocks ("end").
 */
struct flat_bucket {
  int64_t first, count; /* elements of the flat buffer, padding included                                       */
  int first_row, rows;  /* of the table: [first_row, first_row + rows); rows among them that share storage or are
                           not on this rank have none here */
};
struct flat_unit {
  int first_row, rows;       /* of the table                                              */
  int64_t first, count;      /* elements of the flat buffer, padding included; count 0: nothing of it is here */
  int first_bucket, buckets; /* that have elements of it                                  */
};
struct flat {
  int64_t count;            /* elements, padding included          */
  int shards;
  int64_t align, bucket;    /* with by_unit, as they were asked for */
  bool by_unit;
  int64_t *offset, *length; /* by row; shared rows have their owner's; frozen and unused rows have a place too; rows that
                               are not here have length 0 and an offset inside the buffer or at its end */
  int64_t *rows, *cols;     /* by row: the shape of its part        */
  int n_buckets;
  struct flat_bucket *buckets; /* in order of readiness; bounds at row borders unless a row is larger than a bucket */
  int n_units;
  struct flat_unit *units; /* begin, blocks in order, end */
  int *unit;               /* by row; see flat_unit_of    */
};
/* bucket: elements (padding not counted), 0 = one bucket.  A row that does not fit in what
 * is left of a bucket starts the next; one that fits exactly is taken.  A row larger than
 * a bucket is cut from its end into whole buckets (with shards above 1 into ones larger by less than align *
 * shards, each cut being moved down to a multiple of it); what remains starts a bucket that takes
 * further rows.  A wte with a copy on another stage has buckets of its own, so that both
 * copies are cut and reduced alike.  by_unit: a bucket has rows of one unit
 * only, and of such as every stage has together or not at all, so that a row is cut alike whatever the stages.  The buckets tile [0, count).
 * Fails: ERR_ARG, ERR_MEMORY. */
enum err flat_create(const struct param_table *t, const struct params_place *place, int64_t align, int64_t shards, bool by_unit,
                     int64_t bucket, struct flat **out);
/* The unit that holds the row's storage; -1 where a block's row is not here. */
static inline int flat_unit_of(const struct flat *f, int row) { return f->unit[row]; }
static inline int64_t flat_shard_count(const struct flat *f) { return f->count / f->shards; }
/* Elements of the largest bucket; of the largest unit that is a block (0: there is none). */
int64_t flat_largest_bucket(const struct flat *f);
int64_t flat_largest_block(const struct flat *f);

/* What of a row a shard has, without padding: `count` elements from `flat` on in the flat buffer, from `shard` on
 * in the shard's.  Uncut a row is one piece, the same in both; else one for each bucket that it and the shard meet in. */
struct flat_piece {
  int row;
  int64_t flat, shard, count;
};
/* What a rank has of the elements of a flat layout: all; all places, of which only those of its shard count; its shard. */
enum { FLAT_ALL = -1 };
enum flat_hold { FLAT_WHOLE, FLAT_PIECES, FLAT_SHARD };
/* On the device or the host; owns nothing. */
struct flat_buffer {
  void *at;
  enum dtype type;
  enum flat_hold hold;
  bool offloaded; /* in the host's memory, where what updates keep stands while none is made */
};
static inline int64_t flat_buffer_count(const struct flat *f, const struct flat_buffer *b)
{
  return b->hold == FLAT_SHARD ? flat_shard_count(f) : f->count;
}
/* The piece, [1, count]. */
static inline struct tensor flat_view(const struct flat_buffer *b, const struct flat_piece *p)
{
  const int64_t first = b->hold == FLAT_SHARD ? p->shard : p->flat;
  return tensor_at((char *)b->at + (size_t)first * dtype_bytes(b->type), b->type, 1, p->count);
}

/* Of shard r, in table order; of all shards together, each row whole: r = FLAT_ALL.  Owner of *out: the caller, free().  Fails: ERR_MEMORY. */
enum err flat_pieces(const struct flat *f, const struct param_table *t, int r, struct flat_piece **out, int *n);
void flat_destroy(struct flat *f);

#endif
