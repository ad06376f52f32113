/* staged.c - one place on the host that grows, and copies to and from it. */
#include "comm/staged.h"

#include "comm/staged_args.h"
#include "comm/view.h"
#include "ops/op_submit.h"

#include <stdlib.h>

enum { BLOCKS = 48 }; /* each at least twice the one before: more than memory can be */

struct staged {
  struct dev *dev;
  void *blocks[BLOCKS]; /* the last is the place; queued work may still use the others */
  int n;
  size_t bytes;
};

enum err staged_create(struct dev *d, struct staged **out)
{
  *out = calloc(1, sizeof **out);
  if (*out == NULL) FAIL(ERR_MEMORY, "place of staged data: %zu bytes", sizeof **out);
  (*out)->dev = d;
  return ERR_OK;
}

void staged_destroy(struct staged *s)
{
  if (s == NULL) return;
  for (int i = 0; i < s->n; i++) dev_host_free(s->dev, s->blocks[i]);
  free(s);
}

enum err staged_place(struct staged *s, size_t bytes, char **out)
{
  if (s->n == 0 || bytes > s->bytes) {
    const size_t wanted = bytes > 2 * s->bytes ? bytes : 2 * s->bytes;
    BUG_IF(s->n == BLOCKS);
    TRY(dev_host_alloc(s->dev, wanted, "staged data", &s->blocks[s->n]));
    s->n++;
    s->bytes = wanted;
  }
  *out = s->blocks[s->n - 1];
  return ERR_OK;
}

static enum err copy(void *args)
{
  const struct staged_copy_args *c = args;
  if (tensor_contiguous(&c->to)) view_pack(&c->from, 0, tensor_count(&c->from), c->to.at);
  else view_unpack(&c->to, 0, tensor_count(&c->to), c->from.at);
  return ERR_OK;
}

OP_CUDA_KERNEL(staged_copy_cuda);

enum err staged_copy(struct dev_stream *stream, const char *name, const struct tensor *to, const struct tensor *from)
{
  const struct dev_kernel kernel = {.name = name, .run = copy, .cuda = OP_CUDA(staged_copy_cuda)};
  const struct staged_copy_args args = {*to, *from};
  const struct dev_range ranges[] = {dev_writes(to), dev_reads(from)};
  if (tensor_count(to) == 0) return ERR_OK;
  TRY(dev_submit(stream, &kernel, &args, sizeof args, ranges, 2));
  return ERR_OK;
}
