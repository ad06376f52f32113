/* staged_cuda.c - the copy as a kernel: it reaches pinned memory itself, so strided views need no
 * second copy. */
#include "comm/staged_args.h"
#include "comm/view.h"
#include "comm/view_cuda.h"
#include "ops/op_submit.h"

OP_CUDA_KERNEL(staged_copy_cuda);

enum err staged_copy_cuda(const struct dev_cuda *at, void *args)
{
  const struct staged_copy_args *c = args;
  const struct tensor from = tensor_contiguous(&c->to) ? view_packed(&c->from) : c->from;
  TRY(view_cuda_copy(at, &c->to, 0, &from, 0, tensor_count(&from)));
  return ERR_OK;
}
