/* activations.c - the plan of a rank's activations and the views into it. */
#include "model/activations.h"

#include "base/fault.h"
#include "params/plan.h"

#include <stdlib.h>
#include <string.h>

/* Regions are described twice by the same code: first their sizes go into the plan, then,
 * with the block allocated, their tensors get their places. */
struct builder {
  const struct activation_sizes *z;
  struct plan *plan; /* NULL: regions stay where they are */
  bool placing;      /* second round */
  char *block;
  enum err err; /* the first of the first round */
  int64_t end;  /* the last action */
  struct region *open;
  size_t filled;
};

static size_t round_up(size_t bytes) { return (bytes + 255) / 256 * 256; }

static void open_region(struct builder *b, struct region *r)
{
  b->open = r;
  b->filled = 0;
  if (b->placing && b->plan && r->bytes > 0) r->at = b->block + plan_offset(b->plan, r->id);
}

static void add_typed(struct builder *b, struct tensor *t, enum dtype type, int64_t rows, int64_t cols)
{
  if (b->placing) *t = tensor_at(b->open->at + b->filled, type, rows, cols);
  b->filled += round_up((size_t)rows * (size_t)cols * dtype_bytes(type));
}

static void add_tensor(struct builder *b, struct tensor *t, int64_t rows, int64_t cols)
{
  add_typed(b, t, b->z->type, rows, cols);
}

/* All rows, where the stream has shards of them. */
static void add_whole(struct builder *b, struct tensor *t)
{
  if (b->z->sequence) add_tensor(b, t, b->z->N, b->z->C);
}

static void close_region(struct builder *b, const char *name, int64_t first, int64_t last)
{
  b->open->bytes = b->filled;
  b->open->first = b->z->separate ? 0 : first;
  b->open->last = b->z->separate ? b->end : last;
  if (b->placing || b->filled == 0 || b->err != ERR_OK) return;
  b->err = plan_add(b->plan, name, b->filled, b->open->first, b->open->last, &b->open->id);
}

/* What outlives a pass: with others in between it has its bytes all the time. */
static void close_stash(struct builder *b, const char *name, int64_t first, int64_t last)
{
  if (b->z->shared)
    close_region(b, name, first, last);
  else
    close_region(b, name, 0, b->end);
}

/* --- blocks ------------------------------------------------------------------------------ */

/* Parts of what forward makes and backward reads (activations.h). */
enum { QUICK = 1, WIDE = 2, INPUTS = 4, ALL = QUICK | WIDE | INPUTS };

static int kept(const struct activation_sizes *z)
{
  return z->recompute == RECOMPUTE_FULL ? 0 : z->recompute == RECOMPUTE_SELECTIVE ? WIDE : ALL;
}
/* When split, the linear layers' inputs have a place of their own, which outlives the slot. */
static int in_slot(const struct activation_sizes *z) { return kept(z) & (z->split ? ~INPUTS : ALL); }
static int made_again(const struct activation_sizes *z) { return ALL & ~kept(z) & (z->split ? ~INPUTS : ALL); }

static void add_attention(struct builder *b, int parts, struct block_stash *k, struct block_saved *saved)
{
  const struct activation_sizes *z = b->z;
  if (parts & QUICK) add_typed(b, &k->mean1, z->state, z->n, 1);
  if (parts & QUICK) add_typed(b, &k->rstd1, z->state, z->n, 1);
  if (parts & WIDE) add_tensor(b, &k->qkv, z->N, 3 * z->C / z->t);
  if (parts & QUICK) add_typed(b, &k->lse, z->state, z->N, z->H / z->t);
  if (parts & INPUTS) add_tensor(b, &saved->ln1, z->n, z->C);
  if (parts & INPUTS) add_tensor(b, &saved->mixed, z->N, z->C / z->t);
}

static void add_mlp(struct builder *b, int parts, struct block_stash *k, struct block_saved *saved)
{
  const struct activation_sizes *z = b->z;
  if (parts & WIDE) add_tensor(b, &k->sum, z->n, z->C);
  if (parts & QUICK) add_typed(b, &k->mean2, z->state, z->n, 1);
  if (parts & QUICK) add_typed(b, &k->rstd2, z->state, z->n, 1);
  if (parts & WIDE) add_tensor(b, &k->fc, z->N, 4 * z->C / z->t);
  if (parts & INPUTS) add_tensor(b, &saved->ln2, z->n, z->C);
  if (parts & INPUTS) add_tensor(b, &saved->act, z->N, 4 * z->C / z->t);
}

static void describe_stash(struct builder *b, int64_t l, struct block_stash *k, struct block_saved *saved)
{
  const struct activation_sizes *z = b->z;
  const int64_t L = z->layers;
  const int64_t forward = action_forward(l), second = action_mlp_backward(L, l),
                first = action_attention_backward(L, l);
  const int64_t read = l + 1 < L ? action_attention_backward(L, l + 1) : z->ends ? action_head_backward(L) : b->end;

  open_region(b, &k->attention);
  add_attention(b, in_slot(z), k, saved);
  close_stash(b, "attention", forward, first);

  open_region(b, &k->mlp);
  add_mlp(b, in_slot(z), k, saved);
  close_stash(b, "mlp", forward, second);

  open_region(b, &k->out_region);
  add_tensor(b, &k->out, z->n, z->C);
  close_stash(b, "block output", forward, read);
}

static void describe_saved(struct builder *b, struct block_saved *k)
{
  const struct activation_sizes *z = b->z;
  open_region(b, &k->attention);
  add_attention(b, INPUTS, NULL, k);
  close_region(b, "saved attention", 0, b->end);
  open_region(b, &k->mlp);
  add_mlp(b, INPUTS, NULL, k);
  close_region(b, "saved mlp", 0, b->end);

  open_region(b, &k->attention_gradient);
  add_tensor(b, &k->d_qkv, z->N, 3 * z->C / z->t);
  add_tensor(b, &k->d_attention, z->N, z->C);
  close_region(b, "saved attention gradient", 0, b->end);
  open_region(b, &k->mlp_gradient);
  add_tensor(b, &k->d_act, z->N, 4 * z->C / z->t);
  add_tensor(b, &k->d_mlp, z->N, z->C);
  close_region(b, "saved mlp gradient", 0, b->end);
}

static void describe_work(struct builder *b, int64_t l, struct block_work *k)
{
  const struct activation_sizes *z = b->z;
  const int64_t N = z->N, C = z->C, L = z->layers;
  const int64_t forward = action_forward(l), second = action_mlp_backward(L, l),
                first = action_attention_backward(L, l);

  open_region(b, &k->forward);
  add_whole(b, &k->whole[BLOCK_FORWARD]);
  add_attention(b, ALL & ~kept(z), &k->in_forward.stash, &k->in_forward.saved);
  add_mlp(b, ALL & ~kept(z), &k->in_forward.stash, &k->in_forward.saved);
  close_region(b, "block forward", forward, forward);

  open_region(b, &k->again);
  if (z->recompute == RECOMPUTE_FULL) add_attention(b, made_again(z), &k->in_backward.stash, &k->in_backward.saved);
  close_region(b, "attention again", second, first);

  open_region(b, &k->mlp_backward);
  add_mlp(b, made_again(z), &k->in_backward.stash, &k->in_backward.saved);
  if (!z->split) add_tensor(b, &k->d_act, N, 4 * C / z->t);
  add_tensor(b, &k->d_mlp, z->n, C);
  add_whole(b, &k->whole[BLOCK_MLP_BACKWARD]);
  close_region(b, "mlp backward", second, second);

  open_region(b, &k->attention_backward);
  if (z->recompute == RECOMPUTE_SELECTIVE)
    add_attention(b, made_again(z), &k->in_backward.stash, &k->in_backward.saved);
  if (!z->split) add_tensor(b, &k->d_qkv, N, 3 * C / z->t);
  add_tensor(b, &k->d_mixed, N, C / z->t);
  add_tensor(b, &k->d_attention, z->n, C);
  add_whole(b, &k->whole[BLOCK_ATTENTION_BACKWARD]);
  close_region(b, "attention backward", first, first);

  open_region(b, &k->weight);
  if (z->split) add_whole(b, &k->whole[BLOCK_WEIGHT]);
  close_region(b, "weight backward", action_weight(L, l), action_weight(L, l));
}

/* --- ends of the pipeline ------------------------------------------------------------------ */

static void describe_embedding(struct builder *b, struct activations *a)
{
  const struct activation_sizes *z = b->z;
  const int64_t end = action_embedding_backward(z->layers);
  for (int i = 0; i < z->slots; i++) {
    open_region(b, &a->embedding_regions[i]);
    add_tensor(b, &a->embeddings[i], z->n, z->C);
    close_stash(b, "embedding", ACTION_EMBEDDING, action_attention_backward(z->layers, 0));
  }
  open_region(b, &a->embedding_work);
  add_whole(b, &a->embedding_whole[0]);
  close_region(b, "embedding forward", ACTION_EMBEDDING, ACTION_EMBEDDING);
  open_region(b, &a->embedding_backward);
  add_whole(b, &a->embedding_whole[1]);
  close_region(b, "embedding backward", end, end);
}

static void describe_head(struct builder *b, struct activations *a)
{
  const struct activation_sizes *z = b->z;
  const int64_t N = z->N, L = z->layers, head = action_head(L), backward = action_head_backward(L);
  for (int i = 0; i < z->heads; i++) {
    struct head_stash *h = &a->heads[i];
    open_region(b, &h->norm_region);
    add_tensor(b, &h->normed, z->n, z->C);
    add_typed(b, &h->mean, z->state, z->n, 1);
    add_typed(b, &h->rstd, z->state, z->n, 1);
    close_stash(b, "final norm", head, backward);
    open_region(b, &h->logits_region);
    add_tensor(b, &h->logits, N, z->V);
    add_typed(b, &h->lse, z->state, N, 1);
    close_stash(b, "logits", head, backward);
  }
  open_region(b, &a->head.losses_region);
  add_typed(b, &a->head.losses, DTYPE_F64, N, 1);
  if (z->t > 1) add_typed(b, &a->head.max, DTYPE_F64, N, 1);
  if (z->t > 1) add_typed(b, &a->head.sums, DTYPE_F64, N, 2);
  close_region(b, "losses", head, head);
  open_region(b, &a->head.forward);
  add_whole(b, &a->head.whole[0]);
  close_region(b, "head forward", head, head);
  open_region(b, &a->head.backward);
  add_whole(b, &a->head.whole[1]);
  close_region(b, "head backward", backward, backward);

  open_region(b, &a->stream_region);
  add_tensor(b, &a->stream, z->n, z->C);
  close_region(b, "stream gradient", backward, action_embedding_backward(L));
}

static void describe(struct builder *b, struct activations *a)
{
  const struct activation_sizes *z = b->z;
  const int64_t L = z->layers;
  if (z->begins) describe_embedding(b, a);
  for (int i = 0; i < z->slots; i++)
    for (int64_t l = 0; l < L; l++) describe_stash(b, l, &a->stash[i * L + l], z->split ? NULL : &a->saved[i * L + l]);
  for (int64_t k = 0; z->split && k < z->weight_slots * L; k++) describe_saved(b, &a->saved[k]);
  for (int64_t l = 0; l < L; l++) describe_work(b, l, &a->work[l]);
  if (z->ends) describe_head(b, a);
  for (int i = 0; i < z->inputs; i++) {
    open_region(b, &a->input_regions[i]);
    add_tensor(b, &a->inputs[i], z->n, z->C);
    close_region(b, "chunk input", 0, b->end);
  }
}

/* --- lists ----------------------------------------------------------------------------------- */

/* calloc's room for at least one, so that none is no failure. */
static void *list(int64_t n, size_t each) { return calloc((size_t)(n > 0 ? n : 1), each); }

static enum err allocate_lists(const struct activation_sizes *z, struct activations *a)
{
  const int64_t L = z->layers;
  a->layers = L;
  a->n_saved = z->split ? z->weight_slots : z->slots;
  a->n_heads = z->heads;
  a->stash = list(z->slots * L, sizeof *a->stash);
  a->saved = list(a->n_saved * L, sizeof *a->saved);
  a->work = list(L, sizeof *a->work);
  a->heads = list(z->heads, sizeof *a->heads);
  a->embedding_regions = list(z->slots, sizeof *a->embedding_regions);
  a->embeddings = list(z->slots, sizeof *a->embeddings);
  a->input_regions = list(z->inputs, sizeof *a->input_regions);
  a->inputs = list(z->inputs, sizeof *a->inputs);
  if (z->recompute != RECOMPUTE_NONE) a->stash_forward = list(z->slots * L, sizeof *a->stash_forward);
  if (!a->stash || (z->recompute != RECOMPUTE_NONE && !a->stash_forward) || !a->saved || !a->work || !a->heads || !a->embedding_regions || !a->embeddings || !a->input_regions ||
      !a->inputs)
    FAIL(ERR_MEMORY, "activations: lists of %d slots of %lld blocks", z->slots, (long long)L);
  return ERR_OK;
}

/* --- what passes share ------------------------------------------------------------------------ */

static void adopt(struct block_stash *to, const struct block_stash *from, int parts)
{
  if (parts & QUICK) {
    to->mean1 = from->mean1;
    to->rstd1 = from->rstd1;
    to->lse = from->lse;
    to->mean2 = from->mean2;
    to->rstd2 = from->rstd2;
  }
  if (parts & WIDE) {
    to->qkv = from->qkv;
    to->sum = from->sum;
    to->fc = from->fc;
  }
}

/* What is not kept is, in any slot, where the block's forward has it and where its backward has it. */
static void share_passing(struct activations *a, const struct activation_sizes *z)
{
  for (int64_t k = 0; k < z->slots * a->layers; k++) {
    const struct block_work *work = &a->work[k % a->layers];
    if (fault_is(FAULT_MM_RECOMPUTE_BUFFER_ALIASED) && kept(z) == WIDE) a->stash[k].fc = a->stash[0].fc;
    a->stash_forward[k] = a->stash[k];
    adopt(&a->stash_forward[k], &work->in_forward.stash, ALL & ~kept(z));
    adopt(&a->stash[k], &work->in_backward.stash, made_again(z));
  }
  for (int64_t k = 0; !z->split && k < a->n_saved * a->layers; k++) a->saved[k] = a->work[k % a->layers].in_backward.saved;
}

/* Backward whole: the gradients that weights need die in the half that makes them, in any slot. */
static void share_gradients(struct activations *a)
{
  for (int64_t k = 0; k < a->n_saved * a->layers; k++) {
    a->saved[k].d_act = a->work[k % a->layers].d_act;
    a->saved[k].d_qkv = a->work[k % a->layers].d_qkv;
  }
}

static void share(struct activations *a)
{
  if (a->sizes.recompute != RECOMPUTE_NONE) share_passing(a, &a->sizes);
  if (!a->sizes.split) share_gradients(a);
}

/* --- create, destroy ------------------------------------------------------------------------- */

enum err activations_allocate(struct dev *d, const struct activation_sizes *sizes, struct activations *a)
{
  enum err err;
  struct builder b = {.z = sizes, .end = action_weight(sizes->layers, 0)};
  *a = (struct activations){.sizes = *sizes};
  TRY_TO(release, allocate_lists(sizes, a));
  TRY_TO(release, plan_create(&b.plan));

  describe(&b, a);
  TRY_TO(release, b.err);
  TRY_TO(release, plan_place(b.plan));
  a->bytes = plan_bytes(b.plan);
  TRY_TO(release, dev_alloc(d, a->bytes, DEV_ACTIVATIONS, "activations", &a->block));

  b.placing = true;
  b.block = a->block;
  describe(&b, a);
  share(a);
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
  free(a->stash);
  free(a->stash_forward);
  free(a->saved);
  free(a->work);
  free(a->heads);
  free(a->embedding_regions);
  free(a->embeddings);
  free(a->input_regions);
  free(a->inputs);
  memset(a, 0, sizeof *a);
}

void activations_narrow(struct activations *a, int64_t N, int64_t n)
{
  a->sizes.N = N;
  a->sizes.n = n;
  struct builder b = {.z = &a->sizes, .placing = true, .end = action_weight(a->layers, 0)};
  describe(&b, a);
  share(a);
}

enum err region_begin(struct dev_stream *s, const struct activations *a, const struct region *r)
{
  if (r->bytes == 0) return ERR_OK;
  BUG_IF(a->now < r->first || a->now > r->last);
  return dev_begin(s, r->at, r->bytes);
}

enum err region_end(struct dev_stream *s, const struct activations *a, const struct region *r)
{
  if (r->bytes == 0) return ERR_OK;
  BUG_IF(a->now < r->first || a->now > r->last);
  return dev_retire(s, r->at, r->bytes);
}
