/* shapes.h - GPT-2's parameters written down a second time, from the published architecture.
 *
 * An independent count: nothing here includes the trainer's parameter table.  Names are Hugging
 * Face's.  Rows that share storage (reused blocks, the tied head) are not listed.
 */
#ifndef CHECKS_SHAPES_H
#define CHECKS_SHAPES_H

#include "layout.h"

enum { SHAPES_A_BLOCK = 12 };

/* How tensor parallelism cuts it: not at all; in rows (c_proj's inputs, the vocabulary); in columns
 * (c_attn's and c_fc's outputs). */
enum shape_cut { SHAPE_WHOLE, SHAPE_ROWS, SHAPE_COLS };

struct shape {
  char name[96];
  int64_t rows, cols;
  int64_t layer;      /* -1 outside blocks                                                  */
  enum shape_cut cut;
  bool unused;        /* no forward touches it                                              */
  bool decay;         /* matrices take weight decay, vectors do not                         */
  bool frozen;        /* its name, or that of a block that shares it, has what was asked for */
  bool zero_gradient; /* softmax does not see the key bias                                  */
};

/* Row i in table order: wte, wpe, blocks, ln_f, lm_head if untied, extra.unused if asked for.
 * False: no such row. */
bool shapes_at(const struct run_config *c, int i, struct shape *out);
/* The same row with the rows and columns that the rank at `at` has of it: 0 x 0 if none.  The vocabulary is padded
 * to a multiple of tp; a tied matrix is in the first and in the last stage. */
bool shapes_part(const struct run_config *c, const struct partition *stages, const struct layout *at, int i,
                 struct shape *out);
int shapes_count(const struct run_config *c);
int64_t shapes_blocks(const struct run_config *c); /* blocks that own their parameters */
double shapes_elements(const struct run_config *c); /* sum over rows, unused not counted */

#endif
