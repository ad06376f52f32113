/* view_cuda.h - view.h's functions on a CUDA device: issued to at->stream. */
#ifndef COMM_VIEW_CUDA_H
#define COMM_VIEW_CUDA_H

#include "base/tensor.h"

#ifdef __cplusplus
extern "C" {
#endif

struct dev_cuda;

/* `count` elements, counted row by row from to_first and from_first; views of one type and
 * number of columns, in memory of the device or pinned by it.  They do not overlap, unless they
 * are the same. */
enum err view_cuda_copy(const struct dev_cuda *at, const struct tensor *to, int64_t to_first, const struct tensor *from,
                        int64_t from_first, int64_t count);
/* As view_reduce; max false: sum.  bf16 and f16 are added in float32 and rounded once. */
enum err view_cuda_reduce(const struct dev_cuda *at, void *parts, int n, int64_t count, enum dtype type, bool max);
enum err view_cuda_flip(const struct dev_cuda *at, void *byte, unsigned char bits);

#ifdef __cplusplus
}
#endif
#endif
