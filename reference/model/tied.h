/* tied.h - the matrix that is embedding and head: one accumulator per use, joined once.
 *
 * On one stage the head's use has an accumulator beside the flat gradient; on two, the first
 * stage has the same room for what the last one sends.
 */
#ifndef MODEL_TIED_H
#define MODEL_TIED_H

#include "model/stage.h"

enum err tied_create(struct model *m);
void tied_destroy(struct model *m);
/* Where the head's use adds its gradient. */
struct tensor tied_head_gradient(const struct model *m);
/* embedding's use + head's use, in this order, on every stage that has the matrix. */
enum err tied_join(struct model *m);

#endif
