/* link_cuda.c - NCCL behind link.h.  Every call goes on the stream whose work is being issued, so
 * streams and events are all the order there is.
 *
 * A group of one has no communicator: its messages to itself are copies.
 *
 * NCCL may complete a send before anybody receives.  A synchronous one must wait for its receiver to
 * have posted: who posts a receive sends a token, who sends waits for one.  Tokens go beside the data,
 * on a stream and a communicator of their own, because a send may as well wait for its receiver, and
 * because NCCL matches messages of a pair by order alone.
 */
#include "comm/link_cuda.h"

#include "comm/comm_state.h"
#include "comm/marks_cuda.h"
#include "comm/members.h"
#include "comm/nccl_cuda.h"
#include "comm/view.h"
#include "comm/view_cuda.h"
#include "device/dev_cuda.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct post {
  char *at;
  size_t bytes;
  int peer;
  bool send, synchronous;
};

struct cuda_link {
  struct link base;
  struct dev_stream *stream;
  const char *name; /* of the comm */
  struct nccl_cuda nccl;
  ncclComm_t data, tokens; /* NULL: a group of one; nothing is synchronous */
  cudaStream_t side;       /* of tokens; its work starts at `reached` and ends at `granted` */
  cudaEvent_t reached, granted;
  char *scratch;           /* what barriers and tokens carry */
  struct marks *marks;
  bool aborted;
  int n_posts;
  struct post posts[LINK_MESSAGES];
};

static struct cuda_link *own(struct link *l) { return (struct cuda_link *)l; }
static cudaStream_t stream_of(const struct cuda_link *l) { return (cudaStream_t)l->base.at->stream; }

/* Of what is added; what is only moved travels as bytes. */
static ncclDataType_t nccl_type(enum dtype type)
{
  switch (type) {
  case DTYPE_F64: return ncclFloat64;
  case DTYPE_F32: return ncclFloat32;
  case DTYPE_BF16: return ncclBfloat16;
  case DTYPE_F16: return ncclFloat16;
  case DTYPE_I32: return ncclInt32;
  case DTYPE_I64: return ncclInt64;
  default: break;
  }
  BUG_IF(true);
  return ncclInt8;
}

static ncclRedOp_t nccl_op(enum comm_op op) { return op == COMM_SUM ? ncclSum : ncclMax; }

/* --- life --------------------------------------------------------------------- */

static enum err alive(const struct cuda_link *l)
{
  if (l->aborted) FAIL(ERR_COMM, "'%s': its NCCL communicator was given up after an error", l->name);
  return ERR_OK;
}

/* Kernels of NCCL that wait for a rank that is gone end only by this. */
static void abort_all(struct cuda_link *l)
{
  if (l->aborted) return;
  l->aborted = true;
  if (l->data) l->nccl.CommAbort(l->data);
  if (l->tokens) l->nccl.CommAbort(l->tokens);
}

static enum err look_at(struct cuda_link *l, ncclComm_t c)
{
  ncclResult_t said = ncclSuccess;
  if (c == NULL || l->aborted) return ERR_OK;
  const ncclResult_t code = l->nccl.CommGetAsyncError(c, &said);
  if (code == ncclSuccess && (said == ncclSuccess || said == ncclInProgress)) return ERR_OK;
  abort_all(l);
  FAIL(ERR_COMM, "'%s': NCCL says: %s; a peer or the way to it is gone (NCCL_DEBUG=WARN says more)", l->name,
       l->nccl.GetErrorString(code != ncclSuccess ? code : said));
}

/* Called while the host waits. */
static enum err look(void *arg)
{
  struct cuda_link *l = arg;
  TRY(look_at(l, l->data));
  TRY(look_at(l, l->tokens));
  TRY(marks_cuda_look(l->marks));
  return ERR_OK;
}

static void destroy_side(struct cuda_link *l)
{
  if (l->granted) cudaEventDestroy(l->granted);
  if (l->reached) cudaEventDestroy(l->reached);
  if (l->side) cudaStreamDestroy(l->side);
}

static void destroy(struct link *link)
{
  struct cuda_link *l = own(link);
  dev_unwatch(dev_of(l->stream), look, l);
  marks_cuda_destroy(l->marks);
  if (l->data && !l->aborted) l->nccl.CommDestroy(l->data);
  if (l->tokens && !l->aborted) l->nccl.CommDestroy(l->tokens);
  destroy_side(l);
  free(l);
}

/* NCCL reads its choice of algorithm from the environment when a communicator is made. */
struct choice {
  const char *variable, *value;
  char *before; /* NULL: was not set */
};

static enum err choose(struct choice *c)
{
  const char *now = getenv(c->variable);
  if (c->value == NULL) return ERR_OK;
  c->before = now ? strdup(now) : NULL;
  if ((now && c->before == NULL) || setenv(c->variable, c->value, 1) != 0) FAIL(ERR_MEMORY, "%s=%s", c->variable, c->value);
  return ERR_OK;
}

static void choose_no_more(struct choice *c)
{
  if (c->value == NULL) return;
  if (c->before) setenv(c->variable, c->before, 1);
  else unsetenv(c->variable);
  free(c->before);
}

/* Rank 0 of the group makes the id, MPI carries it. */
static enum err connect(struct cuda_link *l, struct link *mpi, ncclComm_t *out)
{
  ncclUniqueId id;
  ncclResult_t code = ncclSuccess;
  memset(&id, 0, sizeof id);
  if (link_rank(mpi) == 0) code = l->nccl.GetUniqueId(&id);
  int64_t failed = code;
  TRY(link_broadcast(mpi, &failed, 1, DTYPE_I64, 0));
  TRY(link_wait(mpi));
  TRY(nccl_cuda_check(&l->nccl, (ncclResult_t)failed, "ncclGetUniqueId"));
  TRY(link_broadcast(mpi, &id, (int64_t)sizeof id, DTYPE_U8, 0));
  TRY(link_wait(mpi));
  NCCL_TRY(&l->nccl, CommInitRank(out, link_size(mpi), id, link_rank(mpi)));
  return ERR_OK;
}

static enum err connect_tokens(struct cuda_link *l, struct link *mpi)
{
  TRY(connect(l, mpi, &l->tokens));
  CUDA_TRY(cudaStreamCreateWithFlags(&l->side, cudaStreamNonBlocking));
  CUDA_TRY(cudaEventCreateWithFlags(&l->reached, cudaEventDisableTiming));
  CUDA_TRY(cudaEventCreateWithFlags(&l->granted, cudaEventDisableTiming));
  return ERR_OK;
}

static enum err connect_chosen(struct cuda_link *l, struct link *mpi, const struct comm_config *config)
{
  struct choice algo = {"NCCL_ALGO", config->nccl_algo, NULL}, proto = {"NCCL_PROTO", config->nccl_proto, NULL};
  enum err err = ERR_OK;
  TRY(choose(&algo));
  TRY_TO(restore_algo, choose(&proto));
  TRY_TO(restore_proto, connect(l, mpi, &l->data));
  if (config->synchronous) TRY_TO(restore_proto, connect_tokens(l, mpi));

restore_proto:
  choose_no_more(&proto);
restore_algo:
  choose_no_more(&algo);
  return err;
}

enum err link_cuda_check(struct link *mpi, const int *ranks, const char *uuid)
{
  enum err err = ERR_OK;
  struct nccl_cuda nccl;
  struct member mine = {0}, *all = calloc((size_t)link_size(mpi), sizeof *all);
  if (all == NULL) FAIL(ERR_MEMORY, "devices of %d ranks", link_size(mpi));
  snprintf(mine.uuid, sizeof mine.uuid, "%s", uuid);
  if (nccl_cuda_load(&nccl) || nccl_cuda_check(&nccl, nccl.GetVersion(&mine.version), "ncclGetVersion"))
    snprintf(mine.why, sizeof mine.why, "%s", err_text());
  nccl_cuda_text(mine.version, mine.library, sizeof mine.library);
  TRY_TO(free_all, link_allgather(mpi, &mine, all, (int64_t)sizeof mine, DTYPE_U8));
  TRY_TO(free_all, link_wait(mpi));
  TRY_TO(free_all, members_judge(all, link_size(mpi), ranks));

free_all:
  free(all);
  return err;
}

void *link_cuda_handle(struct link *l) { return own(l)->data; }

enum err link_cuda_library(char *out, size_t bytes)
{
  struct nccl_cuda nccl;
  int version = 0;
  TRY(nccl_cuda_load(&nccl));
  NCCL_TRY(&nccl, GetVersion(&version));
  nccl_cuda_text(version, out, bytes);
  return ERR_OK;
}

static const struct link_calls calls;

enum err link_cuda_create(struct link *mpi, const int *ranks, struct dev_stream *s, const struct comm_config *config,
                          void *scratch, struct link **out)
{
  enum err err = ERR_OK;
  *out = NULL;
  if (link_size(mpi) > 1) TRY(link_cuda_check(mpi, ranks, dev_uuid(dev_of(s))));
  struct cuda_link *l = calloc(1, sizeof *l);
  if (l == NULL) FAIL(ERR_MEMORY, "comm '%s': %zu bytes", config->name, sizeof *l);
  l->base = (struct link){.calls = &calls, .rank = link_rank(mpi), .size = link_size(mpi), .issued = true};
  l->stream = s;
  l->name = config->name;
  l->scratch = scratch;
  TRY_TO(free_link, marks_cuda_create(&l->marks));
  if (l->base.size > 1) {
    TRY_TO(free_marks, nccl_cuda_load(&l->nccl));
    TRY_TO(give_up, connect_chosen(l, mpi, config));
  }
  TRY_TO(give_up, dev_watch(dev_of(s), look, l));
  *out = &l->base;
  return ERR_OK;

give_up:
  abort_all(l);
  destroy_side(l);
free_marks:
  marks_cuda_destroy(l->marks);
free_link:
  free(l);
  return err;
}

/* --- collectives ------------------------------------------------------------------ */

/* All between group start and end starts together; the end comes also after a failure. */
#define GROUP(l, body)                                                     \
  do {                                                                     \
    enum err inside_;                                                      \
    NCCL_TRY(&(l)->nccl, GroupStart());                                    \
    inside_ = body;                                                        \
    const enum err end_ = nccl_cuda_check(&(l)->nccl, (l)->nccl.GroupEnd(), "ncclGroupEnd"); \
    TRY(inside_);                                                          \
    TRY(end_);                                                             \
  } while (0)

static enum err allreduce(struct link *link, void *at, int64_t count, enum dtype type, enum comm_op op)
{
  struct cuda_link *l = own(link);
  TRY(alive(l));
  NCCL_TRY(&l->nccl, AllReduce(at, at, (size_t)count, nccl_type(type), nccl_op(op), l->data, stream_of(l)));
  return ERR_OK;
}

static enum err reduce_scatter(struct link *link, const void *send, void *recv, int64_t count, enum dtype type, enum comm_op op)
{
  struct cuda_link *l = own(link);
  TRY(alive(l));
  NCCL_TRY(&l->nccl, ReduceScatter(send, recv, (size_t)count, nccl_type(type), nccl_op(op), l->data, stream_of(l)));
  return ERR_OK;
}

static enum err allgather(struct link *link, const void *send, void *recv, int64_t count, enum dtype type)
{
  struct cuda_link *l = own(link);
  const size_t bytes = (size_t)count * dtype_bytes(type);
  const void *from = send ? send : (const char *)recv + bytes * (size_t)l->base.rank;
  TRY(alive(l));
  NCCL_TRY(&l->nccl, AllGather(from, recv, bytes, ncclUint8, l->data, stream_of(l)));
  return ERR_OK;
}

static enum err broadcast(struct link *link, void *at, int64_t count, enum dtype type, int root)
{
  struct cuda_link *l = own(link);
  TRY(alive(l));
  NCCL_TRY(&l->nccl, Broadcast(at, at, (size_t)count * dtype_bytes(type), ncclUint8, root, l->data, stream_of(l)));
  return ERR_OK;
}

static enum err barrier(struct link *link)
{
  struct cuda_link *l = own(link);
  TRY(alive(l));
  NCCL_TRY(&l->nccl, AllReduce(l->scratch, l->scratch, 1, ncclInt32, ncclMax, l->data, stream_of(l)));
  return ERR_OK;
}

static enum err send_bytes(struct cuda_link *l, const void *at, size_t bytes, int to)
{
  if (bytes > 0) NCCL_TRY(&l->nccl, Send(at, bytes, ncclUint8, to, l->data, stream_of(l)));
  return ERR_OK;
}

static enum err recv_bytes(struct cuda_link *l, void *at, size_t bytes, int from)
{
  if (bytes > 0) NCCL_TRY(&l->nccl, Recv(at, bytes, ncclUint8, from, l->data, stream_of(l)));
  return ERR_OK;
}

static enum err post_shares(struct cuda_link *l, const char *send, int64_t total, char *recv, size_t size)
{
  const int n = l->base.size;
  int64_t first, count, mine;
  link_share(total, n, l->base.rank, &first, &mine);
  for (int r = 0; r < n; r++) {
    link_share(total, n, r, &first, &count);
    TRY(send_bytes(l, send + (size_t)first * size, (size_t)count * size, r));
    TRY(recv_bytes(l, recv + (size_t)(mine * r) * size, (size_t)mine * size, r));
  }
  return ERR_OK;
}

static enum err exchange_shares(struct link *link, const void *send, int64_t total, void *recv, enum dtype type)
{
  struct cuda_link *l = own(link);
  TRY(alive(l));
  GROUP(l, post_shares(l, send, total, recv, dtype_bytes(type)));
  return ERR_OK;
}

static enum err post_share(struct cuda_link *l, const char *send, char *recv, int64_t total, size_t size)
{
  const int n = l->base.size;
  int64_t first, count, mine;
  link_share(total, n, l->base.rank, &first, &mine);
  for (int r = 0; r < n; r++) {
    link_share(total, n, r, &first, &count);
    TRY(send_bytes(l, send, (size_t)mine * size, r));
    TRY(recv_bytes(l, recv + (size_t)first * size, (size_t)count * size, r));
  }
  return ERR_OK;
}

static enum err gather_shares(struct link *link, const void *send, void *recv, int64_t total, enum dtype type)
{
  struct cuda_link *l = own(link);
  TRY(alive(l));
  GROUP(l, post_share(l, send, recv, total, dtype_bytes(type)));
  return ERR_OK;
}

static enum err post_parts(struct cuda_link *l, const char *send, size_t bytes, size_t stride, char *recv)
{
  for (int r = 0; r < l->base.size; r++) {
    TRY(send_bytes(l, send + stride * (size_t)r, bytes, r));
    TRY(recv_bytes(l, recv + bytes * (size_t)r, bytes, r));
  }
  return ERR_OK;
}

static enum err exchange_parts(struct link *link, const void *send, int64_t count, int64_t stride, void *recv, enum dtype type)
{
  struct cuda_link *l = own(link);
  const size_t size = dtype_bytes(type);
  TRY(alive(l));
  GROUP(l, post_parts(l, send, (size_t)count * size, (size_t)stride * size, recv));
  return ERR_OK;
}

/* --- messages ------------------------------------------------------------------------ */

static enum err keep(struct link *link, const void *at, size_t bytes, int peer, bool sends, bool synchronous)
{
  struct cuda_link *l = own(link);
  BUG_IF(l->n_posts == LINK_MESSAGES);
  l->posts[l->n_posts++] = (struct post){(char *)(uintptr_t)at, bytes, peer, sends, synchronous};
  return ERR_OK;
}

static enum err send(struct link *l, const void *at, int64_t count, enum dtype type, int to, bool synchronous)
{
  return keep(l, at, (size_t)count * dtype_bytes(type), to, true, synchronous);
}

static enum err recv(struct link *l, void *at, int64_t count, enum dtype type, int from, bool synchronous)
{
  return keep(l, at, (size_t)count * dtype_bytes(type), from, false, synchronous);
}

static enum err post_data(struct cuda_link *l)
{
  for (int i = 0; i < l->n_posts; i++) {
    const struct post *p = &l->posts[i];
    if (p->send) TRY(send_bytes(l, p->at, p->bytes, p->peer));
    else TRY(recv_bytes(l, p->at, p->bytes, p->peer));
  }
  return ERR_OK;
}

static bool any_synchronous(const struct cuda_link *l)
{
  for (int i = 0; i < l->n_posts; i++)
    if (l->posts[i].synchronous) return true;
  return false;
}

static enum err post_tokens(struct cuda_link *l)
{
  char *const mine = l->scratch + 16 * l->base.rank + 8;
  for (int i = 0; i < l->n_posts; i++) {
    const struct post *p = &l->posts[i];
    if (!p->synchronous) continue;
    if (p->send) NCCL_TRY(&l->nccl, Recv(l->scratch + 16 * p->peer, 1, ncclUint8, p->peer, l->tokens, l->side));
    else NCCL_TRY(&l->nccl, Send(mine, 1, ncclUint8, p->peer, l->tokens, l->side));
  }
  return ERR_OK;
}

static enum err post_all(struct cuda_link *l)
{
  const bool tokens = any_synchronous(l);
  TRY(alive(l));
  if (tokens) {
    CUDA_TRY(cudaEventRecord(l->reached, stream_of(l)));
    CUDA_TRY(cudaStreamWaitEvent(l->side, l->reached, 0));
    GROUP(l, post_tokens(l));
    CUDA_TRY(cudaEventRecord(l->granted, l->side));
  }
  GROUP(l, post_data(l));
  if (tokens) CUDA_TRY(cudaStreamWaitEvent(stream_of(l), l->granted, 0));
  return ERR_OK;
}

/* To oneself: the k-th send is the k-th receive. */
static enum err copy_posts(struct cuda_link *l)
{
  int from = 0, to = 0;
  for (;; from++, to++) {
    while (from < l->n_posts && !l->posts[from].send) from++;
    while (to < l->n_posts && l->posts[to].send) to++;
    if (from == l->n_posts || to == l->n_posts) break;
    if (l->posts[from].bytes != l->posts[to].bytes)
      FAIL(ERR_ARG, "'%s': %zu bytes to oneself are received as %zu", l->name, l->posts[from].bytes, l->posts[to].bytes);
    CUDA_TRY(cudaMemcpyAsync(l->posts[to].at, l->posts[from].at, l->posts[from].bytes, cudaMemcpyDeviceToDevice, stream_of(l)));
  }
  if (from != to || from != l->n_posts) FAIL(ERR_ARG, "'%s': a message to oneself without its other end would wait for ever", l->name);
  return ERR_OK;
}

/* All that was asked for is on the stream. */
static enum err test(struct link *link, bool *done)
{
  struct cuda_link *l = own(link);
  enum err err = ERR_OK;
  if (l->n_posts > 0) err = l->data ? post_all(l) : copy_posts(l);
  l->n_posts = 0;
  *done = true;
  return err ? err_trace(err, __FILE__, __LINE__) : ERR_OK;
}

/* --- memory of the device, and marks ------------------------------------------------------ */

static enum err pack(struct link *l, const struct tensor *t, int64_t first, int64_t count, void *at)
{
  const struct tensor from = view_packed(t), run = tensor_at(at, t->type, 1, count);
  TRY(view_cuda_copy(l->at, &run, 0, &from, first, count));
  return ERR_OK;
}

static enum err unpack(struct link *l, const struct tensor *t, int64_t first, int64_t count, const void *at)
{
  const struct tensor run = tensor_at((void *)(uintptr_t)at, t->type, 1, count);
  TRY(view_cuda_copy(l->at, t, first, &run, 0, count));
  return ERR_OK;
}

static enum err reduce(struct link *l, void *parts, int n, int64_t count, enum dtype type, enum comm_op op)
{
  TRY(view_cuda_reduce(l->at, parts, n, count, type, op == COMM_MAX));
  return ERR_OK;
}

static enum err copy(struct link *l, const struct tensor *to, const struct tensor *from)
{
  TRY(view_cuda_copy(l->at, to, 0, from, 0, tensor_count(from)));
  return ERR_OK;
}

static enum err flip(struct link *l, void *byte, unsigned char bits)
{
  TRY(view_cuda_flip(l->at, byte, bits));
  return ERR_OK;
}

static enum err started(struct link *l, const struct link_mark *m)
{
  TRY(marks_cuda_started(own(l)->marks, l->at, m));
  return ERR_OK;
}

static enum err done(struct link *l, const struct link_mark *m)
{
  (void)m;
  TRY(marks_cuda_done(own(l)->marks, l->at));
  return ERR_OK;
}

static const struct link_calls calls = {
  .destroy = destroy, .test = test, .started = started, .done = done, .allreduce = allreduce,
  .reduce_scatter = reduce_scatter, .allgather = allgather, .broadcast = broadcast, .barrier = barrier,
  .exchange_shares = exchange_shares, .gather_shares = gather_shares, .exchange_parts = exchange_parts,
  .send = send, .recv = recv, .pack = pack, .unpack = unpack, .reduce = reduce, .copy = copy, .flip = flip,
};
