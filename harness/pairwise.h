/* pairwise.h - rows in which any two values of two axes meet: a covering array, made greedily.
 *
 * Axis 0 is the leading one: each of its values meets every value of every other axis, one after the
 * other; what has not met by then follows.  Where several rows would do, the one that also lets most pairs of other values meet is
 * taken; then the one most like a row that is there (rows that differ little share companion runs); then
 * the first in lexical order.  No chance is in it: the same axes give the same rows.
 */
#ifndef HARNESS_PAIRWISE_H
#define HARNESS_PAIRWISE_H

#include "base/err.h"

enum { PAIRWISE_AXES = 16 };

struct pairwise {
  int axes, size[PAIRWISE_AXES]; /* values of each axis, numbered from 0 */
  /* False: there is no such row.  A pair that no legal row holds is not asked for.  NULL: all are legal. */
  bool (*legal)(void *arg, const int *row);
  void *arg;

  int *rows, n; /* out: n rows of `axes` numbers each */
};

/* Fills rows; a leading value without a legal row gets none.  Owner of p->rows: the caller, who frees it.
 * Fails: ERR_MEMORY, ERR_ARG for no axis, too many, or one without values. */
enum err pairwise_make(struct pairwise *p);

#endif
