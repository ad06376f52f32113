/* comm.c - the life of a comm, and the checks of what is asked of it. */
#include "comm/collective.h"
#include "comm/link_cuda.h"
#include "comm/staged.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

static enum err check_ranks(const struct comm_world *w, const int *ranks, int n)
{
  bool here = false;
  if (n < 1 || n > comm_size(w)) FAIL(ERR_ARG, "a group of %d ranks in a world of %d", n, comm_size(w));
  for (int i = 0; i < n; i++) {
    if (ranks[i] < 0 || ranks[i] >= comm_size(w) || (i > 0 && ranks[i] <= ranks[i - 1]))
      FAIL(ERR_ARG, "group rank %d is world rank %d: must ascend in 0..%d", i, ranks[i], comm_size(w) - 1);
    here = here || ranks[i] == comm_rank(w);
  }
  if (!here) FAIL(ERR_ARG, "world rank %d is not in the group of %d that it creates", comm_rank(w), n);
  return ERR_OK;
}

static int free_place(const struct comm_world *w)
{
  for (int i = 0; i < COMMS_MAX; i++)
    if (w->comms[i] == NULL) return i;
  return -1;
}

/* Scratch where the link works. */
static enum err take_scratch(struct comm *c, void **out)
{
  struct dev *d = dev_of(c->stream);
  if (c->staged) TRY(dev_host_alloc(d, c->area, "staged scratch", out));
  else TRY(dev_alloc(d, c->area, DEV_COMMUNICATION, "comm scratch", out));
  return ERR_OK;
}

static void free_scratch(struct comm *c, void *at)
{
  if (c->staged) dev_host_free(dev_of(c->stream), at);
  else dev_free(dev_of(c->stream), at);
}

static enum err make_link(struct comm *c, const int *ranks)
{
  TRY(link_create(c->world->all, ranks, c->n, &c->link));
  if (!c->on_cuda || c->staged) return ERR_OK;
  struct link *mpi = c->link;
  const enum err err = link_cuda_create(mpi, ranks, c->stream, &c->config, c->b, &c->link);
  link_destroy(mpi);
  return err ? err_trace(err, __FILE__, __LINE__) : ERR_OK;
}

enum err comm_create(struct comm_world *w, struct dev_stream *s, const int *ranks, int n, size_t max_bytes,
                     const struct comm_config *config, struct comm **out)
{
  enum err err = ERR_OK;
  *out = NULL;
  TRY(check_ranks(w, ranks, n));
  if (config->piece < 0 || config->delay_ms < 0 || config->hold_ms < 0)
    FAIL(ERR_ARG, "comm '%s': piece %" PRId64 ", delay %g ms, hold %g ms; none may be negative", config->name, config->piece, config->delay_ms,
         config->hold_ms);
  const int index = free_place(w);
  if (index < 0) FAIL(ERR_ARG, "comm '%s' would be number %d; at most %d live together", config->name, COMMS_MAX + 1, COMMS_MAX);

  struct comm *c = calloc(1, sizeof *c);
  if (c == NULL) FAIL(ERR_MEMORY, "comm '%s': %zu bytes", config->name, sizeof *c);
  c->world = w;
  c->stream = s;
  c->config = *config;
  c->n = n;
  c->index = index;
  c->on_cuda = dev_kind_of(dev_of(s)) == DEV_CUDA;
  if (c->on_cuda && n > 1 && config->transport == COMM_STAGED) TRY_TO(free_comm, staged_create(dev_of(s), &c->staged));
  if (n > 1) {
    const size_t least = 16 * (size_t)n, wanted = max_bytes > least ? max_bytes : least;
    c->area = (wanted + 255) / 256 * 256;
    TRY_TO(free_staged, take_scratch(c, (void **)&c->a));
    TRY_TO(free_a, take_scratch(c, (void **)&c->b));
  }
  TRY_TO(free_b, make_link(c, ranks));
  c->rank = link_rank(c->link);

  pthread_mutex_lock(&w->lock);
  trace_attach(c);
  pthread_mutex_unlock(&w->lock);
  *out = c;
  return ERR_OK;

free_b:
  free_scratch(c, c->b);
free_a:
  free_scratch(c, c->a);
free_staged:
  staged_destroy(c->staged);
free_comm:
  free(c);
  return err;
}

void comm_destroy(struct comm *c)
{
  if (c == NULL) return;
  pthread_mutex_lock(&c->world->lock);
  trace_detach(c);
  pthread_mutex_unlock(&c->world->lock);
  link_destroy(c->link);
  free_scratch(c, c->b);
  free_scratch(c, c->a);
  staged_destroy(c->staged);
  free(c);
}

enum err comm_nccl(char *out, size_t bytes) { return link_cuda_library(out, bytes); }
enum err comm_topology(char *out, size_t bytes) { return link_cuda_topology(out, bytes); }

enum err comm_check_nccl(struct comm_world *w, struct dev *d)
{
  TRY(link_cuda_check(w->all, NULL, dev_uuid(d)));
  return ERR_OK;
}

int comm_group_rank(const struct comm *c) { return c->rank; }
int comm_group_size(const struct comm *c) { return c->n; }
struct dev_stream *comm_stream(const struct comm *c) { return c->stream; }
void comm_delay(struct comm *c, double ms) { c->config.delay_ms = ms; }

/* --- collectives ----------------------------------------------------------- */

static enum err check_alone(const struct comm *c, const char *op)
{
  if (c->grouping) FAIL(ERR_ARG, "%s on '%s' between group start and finish; only send and recv may stand there", op, c->config.name);
  return ERR_OK;
}

static enum err check_view(const struct comm *c, const char *op, const struct tensor *t)
{
  if (t->rows < 0 || t->cols < 0 || t->stride < t->cols)
    FAIL(ERR_ARG, "%s on '%s': view [%" PRId64 ", %" PRId64 "] of stride %" PRId64, op, c->config.name, t->rows, t->cols, t->stride);
  return ERR_OK;
}

static enum err check_sum(const struct comm *c, const char *op, const struct tensor *t)
{
  if (t->type == DTYPE_U8)
    FAIL(ERR_ARG, "%s on '%s' of %s; valid: float64, float32, bfloat16, float16, int32, int64", op, c->config.name, dtype_name(t->type));
  return ERR_OK;
}

/* all [rows * n, cols] beside mine [rows, cols]. */
static enum err check_parts(const struct comm *c, const char *op, const struct tensor *all, const struct tensor *mine)
{
  TRY(check_alone(c, op));
  TRY(check_view(c, op, all));
  TRY(check_view(c, op, mine));
  if (all->type != mine->type || all->cols != mine->cols || all->rows != mine->rows * c->n)
    FAIL(ERR_ARG, "%s on '%s' of %d ranks: all is %s [%" PRId64 ", %" PRId64 "], mine is %s [%" PRId64 ", %" PRId64 "]", op,
         c->config.name, c->n, dtype_name(all->type), all->rows, all->cols, dtype_name(mine->type), mine->rows, mine->cols);
  return ERR_OK;
}

static enum err check_peer(const struct comm *c, const char *op, int peer)
{
  if (peer < 0 || peer >= c->n) FAIL(ERR_ARG, "%s on '%s': rank %d; valid: 0..%d", op, c->config.name, peer, c->n - 1);
  return ERR_OK;
}

enum err comm_allreduce(struct comm *c, const struct tensor *t, enum comm_op op)
{
  TRY(check_alone(c, "allreduce"));
  TRY(check_view(c, "allreduce", t));
  TRY(check_sum(c, "allreduce", t));
  TRY(collective_queue(c, ALLREDUCE, t, t, op, 0));
  return ERR_OK;
}

enum err comm_reduce_scatter(struct comm *c, const struct tensor *mine, const struct tensor *all, enum comm_op op)
{
  TRY(check_parts(c, "reduce_scatter", all, mine));
  TRY(check_sum(c, "reduce_scatter", all));
  TRY(collective_queue(c, REDUCE_SCATTER, all, mine, op, 0));
  return ERR_OK;
}

enum err comm_allgather(struct comm *c, const struct tensor *all, const struct tensor *mine)
{
  TRY(check_parts(c, "allgather", all, mine));
  TRY(collective_queue(c, ALLGATHER, all, mine, COMM_SUM, 0));
  return ERR_OK;
}

enum err comm_broadcast(struct comm *c, const struct tensor *t, int root)
{
  TRY(check_alone(c, "broadcast"));
  TRY(check_view(c, "broadcast", t));
  TRY(check_peer(c, "broadcast", root));
  TRY(collective_queue(c, BROADCAST, t, t, COMM_SUM, root));
  return ERR_OK;
}

enum err comm_barrier(struct comm *c)
{
  const struct tensor none = tensor_at(NULL, DTYPE_U8, 0, 0);
  TRY(check_alone(c, "barrier"));
  TRY(collective_queue(c, BARRIER, &none, &none, COMM_SUM, 0));
  return ERR_OK;
}

/* --- messages --------------------------------------------------------------- */

enum err comm_group_start(struct comm *c)
{
  if (c->grouping) FAIL(ERR_ARG, "group start on '%s' inside a group", c->config.name);
  c->grouping = true;
  return ERR_OK;
}

enum err comm_group_finish(struct comm *c)
{
  if (!c->grouping) FAIL(ERR_ARG, "group finish on '%s' without a start", c->config.name);
  c->grouping = false;
  TRY(collective_queue_messages(c));
  return ERR_OK;
}

static enum err add_message(struct comm *c, const struct tensor *t, int peer, bool send)
{
  const char *op = send ? "send" : "recv";
  const bool alone = !c->grouping;
  TRY(check_peer(c, op, peer));
  if (c->config.silent) FAIL(ERR_ARG, "%s on '%s', which is silent: its receiver's data would never have been", op, c->config.name);
  if (alone && peer == c->rank) FAIL(ERR_ARG, "%s on '%s' to oneself outside a group would wait for ever", op, c->config.name);
  if (c->n_messages == MESSAGES_MAX) FAIL(ERR_ARG, "more than %d messages in one group on '%s'", MESSAGES_MAX, c->config.name);
  TRY(check_view(c, op, t));
  c->messages[c->n_messages++] = (struct message){*t, peer, send};
  if (alone) TRY(collective_queue_messages(c));
  return ERR_OK;
}

enum err comm_send(struct comm *c, const struct tensor *t, int to)
{
  TRY(add_message(c, t, to, true));
  return ERR_OK;
}

enum err comm_recv(struct comm *c, const struct tensor *t, int from)
{
  TRY(add_message(c, t, from, false));
  return ERR_OK;
}
