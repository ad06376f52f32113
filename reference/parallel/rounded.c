/* rounded.c - into the room, over the ranks, and back. */
#include "parallel/rounded.h"

#include "ops/ops.h"

enum err rounded_room(struct dev *d, const struct flat *flat, enum dtype type, struct tensor *out)
{
  void *at;
  const int64_t largest = flat_largest_bucket(flat);
  TRY(dev_alloc(d, (size_t)largest * dtype_bytes(type), DEV_GRADIENTS, "rounded gradients", &at));
  *out = tensor_at(at, type, 1, largest);
  return ERR_OK;
}

enum err rounded_allreduce(struct comm *c, const struct tensor *t, const struct tensor *room)
{
  if (room->at == NULL) return comm_allreduce(c, t, COMM_SUM);
  const struct tensor sent = tensor_part(room, 0, 1, 0, t->cols);
  TRY(op_copy(comm_stream(c), &sent, t));
  TRY(comm_allreduce(c, &sent, COMM_SUM));
  return op_copy(comm_stream(c), t, &sent);
}
