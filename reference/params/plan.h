/* plan.h - memory planned first: buffers with lifetimes, placed in a few blocks.
 *
 * A lifetime is an interval [first, last] over the actions of the schedule.  Buffers
 * whose intervals do not meet may share bytes.
 */
#ifndef PARAMS_PLAN_H
#define PARAMS_PLAN_H
#include "base/err.h"
#include <stdint.h>

struct plan;
enum err plan_create(struct plan **out);
void plan_destroy(struct plan *p);
/* Returns the buffer's number in *id.  bytes is rounded up to 256. */
enum err plan_add(struct plan *p, const char *name, size_t bytes, int64_t first, int64_t last, int *id);
enum err plan_place(struct plan *p);             /* offsets; first fit by size, deterministic */
size_t plan_bytes(const struct plan *p);         /* of the block that holds all               */
size_t plan_offset(const struct plan *p, int id);
size_t plan_size(const struct plan *p, int id);
#endif
