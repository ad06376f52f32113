/* sums.h - run->tp_sums: one rank adds what the ranks of a tensor group would add.
 *
 * A legal serial run in another order of summation: products over a cut axis are added from
 * n parts, each made apart.  How far such runs lie apart is the noise that a cut run is held to.
 */
#ifndef MODEL_SUMS_H
#define MODEL_SUMS_H

#include "model/stage.h"

/* Room for a part, if run->tp_sums asks for several. */
enum err sums_create(struct model *m);
void sums_destroy(struct model *m);
/* As stage_row and stage_column_backward. */
enum err sums_row(const struct model *m, int row, const struct tensor *y, const struct tensor *x);
enum err sums_column_backward(const struct model *m, int row, const struct tensor *dx, const struct tensor *dy);
/* dx = dlogits w of the head, whose vocabulary is cut. */
enum err sums_head_backward(const struct model *m, const struct tensor *dx, const struct tensor *dlogits);

#endif
