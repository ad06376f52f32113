/* activations.c - the plan of a micro-batch's memory and the views into it. */
#include "model/activations.h"

#include "params/plan.h"

#include <stdlib.h>
#include <string.h>

/* Regions are described twice by the same code: first their sizes go into the plan, then,
 * with the block allocated, their tensors get their places. */
struct builder {
  struct plan *plan;
  bool placing; /* second round */
  char *block;
  enum err err; /* the first of the first round */
  int64_t separate_until; /* above 0: every lifetime is [0, this] */
  struct region *open;
  size_t filled;
};

static size_t round_up(size_t bytes) { return (bytes + 255) / 256 * 256; }

static void open_region(struct builder *b, struct region *r)
{
  b->open = r;
  b->filled = 0;
  if (b->placing) r->at = b->block + plan_offset(b->plan, r->id);
}

static void add_tensor(struct builder *b, struct tensor *t, enum dtype type, int64_t rows, int64_t cols)
{
  if (b->placing) *t = tensor_at(b->open->at + b->filled, type, rows, cols);
  b->filled += round_up((size_t)rows * (size_t)cols * dtype_bytes(type));
}

static void close_region(struct builder *b, const char *name, int64_t first, int64_t last)
{
  b->open->bytes = b->filled;
  if (b->separate_until > 0) {
    first = 0;
    last = b->separate_until;
  }
  b->open->first = first;
  b->open->last = last;
  if (!b->placing && b->err == ERR_OK) b->err = plan_add(b->plan, name, b->filled, first, last, &b->open->id);
}

static void describe_block(struct builder *b, const struct activation_sizes *z, int64_t l, struct block_memory *k)
{
  const int64_t N = z->N, C = z->C, L = z->layers, end = action_embedding_backward(L);
  const int64_t forward = action_forward(l), second = action_mlp_backward(L, l), first = action_attention_backward(L, l);
  const int64_t read = l + 1 < L ? action_attention_backward(L, l + 1) : action_head_backward(L); /* its reader's backward */

  open_region(b, &k->attention);
  add_tensor(b, &k->ln1, z->type, N, C);
  add_tensor(b, &k->mean1, z->type, N, 1);
  add_tensor(b, &k->rstd1, z->type, N, 1);
  add_tensor(b, &k->qkv, z->type, N, 3 * C);
  add_tensor(b, &k->mixed, z->type, N, C);
  add_tensor(b, &k->lse, z->type, N, z->H);
  close_region(b, "attention", forward, first);

  open_region(b, &k->mlp);
  add_tensor(b, &k->sum, z->type, N, C);
  add_tensor(b, &k->ln2, z->type, N, C);
  add_tensor(b, &k->mean2, z->type, N, 1);
  add_tensor(b, &k->rstd2, z->type, N, 1);
  add_tensor(b, &k->fc, z->type, N, 4 * C);
  add_tensor(b, &k->act, z->type, N, 4 * C);
  close_region(b, "mlp", forward, second);

  open_region(b, &k->out_region);
  add_tensor(b, &k->out, z->type, N, C);
  close_region(b, "block output", forward, z->keep ? end : read);

  open_region(b, &k->mlp_backward);
  add_tensor(b, &k->d_act, z->type, N, 4 * C);
  add_tensor(b, &k->d_mlp, z->type, N, C);
  close_region(b, "mlp backward", second, second);

  open_region(b, &k->attention_backward);
  add_tensor(b, &k->d_qkv, z->type, N, 3 * C);
  add_tensor(b, &k->d_mixed, z->type, N, C);
  add_tensor(b, &k->d_attention, z->type, N, C);
  close_region(b, "attention backward", first, first);

  if (!z->keep) return;
  open_region(b, &k->kept_gradient);
  add_tensor(b, &k->d_out, z->type, N, C);
  close_region(b, "kept gradient", 0, end);
}

static void describe(struct builder *b, const struct activation_sizes *z, struct activations *a)
{
  const int64_t N = z->N, C = z->C, L = z->layers;
  const int64_t head = action_head(L), head_backward = action_head_backward(L), end = action_embedding_backward(L);
  if (z->separate) b->separate_until = end;

  open_region(b, &a->embedding_region);
  add_tensor(b, &a->embedding, z->type, N, C);
  close_region(b, "embedding", ACTION_EMBEDDING, z->keep ? end : action_attention_backward(L, 0));
  for (int64_t l = 0; l < L; l++) describe_block(b, z, l, &a->blocks[l]);

  open_region(b, &a->norm_region);
  add_tensor(b, &a->normed, z->type, N, C);
  add_tensor(b, &a->mean, z->type, N, 1);
  add_tensor(b, &a->rstd, z->type, N, 1);
  close_region(b, "final norm", head, z->keep ? end : head_backward);

  open_region(b, &a->logits_region);
  add_tensor(b, &a->logits, z->type, N, z->V);
  add_tensor(b, &a->lse, z->type, N, 1);
  close_region(b, "logits", head, head_backward);

  open_region(b, &a->losses_region);
  add_tensor(b, &a->losses, DTYPE_F64, N, 1);
  close_region(b, "losses", head, z->keep ? end : head);

  open_region(b, &a->stream_region);
  add_tensor(b, &a->d_stream, z->type, N, C);
  close_region(b, "stream gradient", head_backward, end);

  if (!z->keep) return;
  open_region(b, &a->kept_embedding_gradient);
  add_tensor(b, &a->d_embedding, z->type, N, C);
  close_region(b, "kept gradient", 0, end);
  open_region(b, &a->kept_norm_gradient);
  add_tensor(b, &a->d_normed, z->type, N, C);
  close_region(b, "kept gradient", 0, end);
}

enum err activations_allocate(struct dev *d, const struct activation_sizes *sizes, struct activations *a)
{
  enum err err;
  struct builder b = {0};
  memset(a, 0, sizeof *a);
  a->layers = sizes->layers;
  a->blocks = calloc((size_t)sizes->layers, sizeof *a->blocks);
  if (a->blocks == NULL) FAIL(ERR_MEMORY, "activations: %lld blocks", (long long)sizes->layers);
  TRY_TO(release, plan_create(&b.plan));

  describe(&b, sizes, a);
  TRY_TO(release, b.err);
  TRY_TO(release, plan_place(b.plan));
  a->bytes = plan_bytes(b.plan);
  TRY_TO(release, dev_alloc(d, a->bytes, DEV_ACTIVATIONS, "activations", &a->block));

  b.placing = true;
  b.block = a->block;
  describe(&b, sizes, a);
  plan_destroy(b.plan);
  return ERR_OK;

release:
  plan_destroy(b.plan);
  activations_free(d, a);
  return err;
}

void activations_free(struct dev *d, struct activations *a)
{
  dev_free(d, a->block);
  free(a->blocks);
  memset(a, 0, sizeof *a);
}

enum err region_begin(struct dev_stream *s, const struct activations *a, const struct region *r)
{
  BUG_IF(a->now < r->first || a->now > r->last);
  return dev_begin(s, r->at, r->bytes);
}

enum err region_end(struct dev_stream *s, const struct activations *a, const struct region *r)
{
  BUG_IF(a->now < r->first || a->now > r->last);
  return dev_retire(s, r->at, r->bytes);
}
