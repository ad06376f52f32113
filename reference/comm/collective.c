/* collective.c - the start/test machine of each collective.
 *
 * A collective works through its elements in pieces.  Each piece begins (packs what has to
 * be packed, starts an MPI call), may have a middle (rank-ordered sums: the exchange is
 * done, add, start the gather), and ends (unpacks).  `total` counts the elements of one
 * rank's part; a piece is [first, first + length) of it, of every part.
 *
 *   scratch a: what is sent packed, or received to be unpacked into `all`
 *   scratch b: what is received for this rank alone, and the rank-ordered sums
 *
 * Nothing here blocks, and only one thread touches a work or its link: the stream's own, or, where the
 * link's calls are issued to a stream of the device, the host's, which goes through the whole machine at once.
 * A staged comm's work is on copies of the views in the host's memory.
 */
#include "comm/collective.h"

#include "base/clock.h"
#include "base/fault.h"
#include "comm/staged.h"
#include "comm/view.h"

#include <inttypes.h>

const char *const collective_names[COLLECTIVES] = {"allreduce", "reduce_scatter", "allgather", "broadcast", "barrier"};

struct work {
  struct comm *c;
  enum collective kind;
  enum comm_op op;
  int root;
  struct tensor all, mine;
  bool direct_all, direct_mine, in_place; /* memory of the caller goes straight to MPI; mine is its part of all */
  int64_t total, piece, first, length;
  int64_t sequence, step;
  double delay_ms, start_ms;
  double hold_ms, arrived_ms; /* 0: not yet */
  bool begun, in_middle;
};
_Static_assert(sizeof(struct work) <= DEV_ARGS_MAX, "a work fits the stream's copy");

static bool ordered(const struct work *w)
{
  return w->c->config.reduce == COMM_ORDERED && (w->kind == ALLREDUCE || w->kind == REDUCE_SCATTER);
}

static char *element(const struct tensor *t, int64_t i) { return (char *)t->at + (size_t)i * dtype_bytes(t->type); }

static struct tensor part(const struct work *w, int rank)
{
  return tensor_part(&w->all, w->mine.rows * rank, w->mine.rows, 0, w->mine.cols);
}

/* This piece of every part, side by side in scratch a. */
static enum err pack_parts(const struct work *w)
{
  for (int r = 0; r < w->c->n; r++) {
    const struct tensor p = part(w, r);
    TRY(link_pack(w->c->link, &p, w->first, w->length, w->c->a + (size_t)(w->length * r) * dtype_bytes(p.type)));
  }
  return ERR_OK;
}

/* A link went bad under a low-latency protocol: one bit of one line of 128 bytes.  The highest
 * bit of the exponent, so that no value of the line hides it. */
static enum err corrupt_line(const struct comm *c, char *at, int64_t count, enum dtype type)
{
  const size_t size = dtype_bytes(type);
  if (fault_rank != comm_rank(c->world) || (size_t)count * size < 128) return ERR_OK;
  TRY(link_flip(c->link, at + size - 1, 0x40));
  return ERR_OK;
}

/* --- allreduce --------------------------------------------------------------- */

static enum err allreduce_begin(struct work *w)
{
  struct comm *c = w->c;
  char *at = w->direct_all ? element(&w->all, w->first) : c->a;
  if (!w->direct_all) TRY(link_pack(c->link, &w->all, w->first, w->length, at));
  if (fault_is(FAULT_CL_LL128_CORRUPTION)) TRY(corrupt_line(c, at, w->length, w->all.type));
  if (ordered(w))
    TRY(link_exchange_shares(c->link, at, w->length, c->b, w->all.type));
  else
    TRY(link_allreduce(c->link, at, w->length, w->all.type, w->op));
  return ERR_OK;
}

static enum err allreduce_middle(struct work *w)
{
  struct comm *c = w->c;
  int64_t first, count;
  link_share(w->length, c->n, c->rank, &first, &count);
  TRY(link_reduce(c->link, c->b, c->n, count, w->all.type, w->op));
  TRY(link_gather_shares(c->link, c->b, w->direct_all ? element(&w->all, w->first) : c->a, w->length, w->all.type));
  return ERR_OK;
}

static enum err allreduce_end(struct work *w)
{
  if (!w->direct_all) TRY(link_unpack(w->c->link, &w->all, w->first, w->length, w->c->a));
  return ERR_OK;
}

/* --- reduce_scatter ------------------------------------------------------------- */

static enum err reduce_scatter_begin(struct work *w)
{
  struct comm *c = w->c;
  const int64_t stride = w->direct_all ? w->total : w->length;
  const char *send = w->direct_all ? element(&w->all, w->first) : c->a;
  if (!w->direct_all) TRY(pack_parts(w));
  if (ordered(w))
    TRY(link_exchange_parts(c->link, send, w->length, stride, c->b, w->all.type));
  else
    TRY(link_reduce_scatter(c->link, send, w->direct_mine ? element(&w->mine, w->first) : c->b, w->length, w->all.type, w->op));
  return ERR_OK;
}

static enum err reduce_scatter_end(struct work *w)
{
  struct comm *c = w->c;
  if (ordered(w)) TRY(link_reduce(c->link, c->b, c->n, w->length, w->all.type, w->op));
  if (ordered(w) || !w->direct_mine) TRY(link_unpack(c->link, &w->mine, w->first, w->length, c->b));
  return ERR_OK;
}

/* --- allgather, broadcast, barrier ------------------------------------------------- */

static enum err allgather_begin(struct work *w)
{
  struct comm *c = w->c;
  const char *send = w->direct_mine ? element(&w->mine, w->first) : c->b;
  if (!w->direct_mine) TRY(link_pack(c->link, &w->mine, w->first, w->length, c->b));
  TRY(link_allgather(c->link, w->direct_all && w->in_place ? NULL : send, w->direct_all ? w->all.at : c->a, w->length, w->all.type));
  return ERR_OK;
}

static enum err allgather_end(struct work *w)
{
  for (int r = 0; r < w->c->n && !w->direct_all; r++) {
    const struct tensor p = part(w, r);
    TRY(link_unpack(w->c->link, &p, w->first, w->length, w->c->a + (size_t)(w->length * r) * dtype_bytes(p.type)));
  }
  return ERR_OK;
}

static enum err broadcast_begin(struct work *w)
{
  char *at = w->direct_all ? element(&w->all, w->first) : w->c->a;
  if (!w->direct_all && w->c->rank == w->root) TRY(link_pack(w->c->link, &w->all, w->first, w->length, at));
  TRY(link_broadcast(w->c->link, at, w->length, w->all.type, w->root));
  return ERR_OK;
}

static enum err broadcast_end(struct work *w)
{
  if (!w->direct_all && w->c->rank != w->root) TRY(link_unpack(w->c->link, &w->all, w->first, w->length, w->c->a));
  return ERR_OK;
}

static enum err barrier_begin(struct work *w)
{
  TRY(link_barrier(w->c->link));
  return ERR_OK;
}

static enum err nothing(struct work *w)
{
  (void)w;
  return ERR_OK;
}

static const struct recipe {
  enum err (*begin)(struct work *);
  enum err (*middle)(struct work *); /* of rank-ordered sums only */
  enum err (*end)(struct work *);
} recipes[COLLECTIVES] = {
  [ALLREDUCE] = {allreduce_begin, allreduce_middle, allreduce_end},
  [REDUCE_SCATTER] = {reduce_scatter_begin, NULL, reduce_scatter_end},
  [ALLGATHER] = {allgather_begin, NULL, allgather_end},
  [BROADCAST] = {broadcast_begin, NULL, broadcast_end},
  [BARRIER] = {barrier_begin, NULL, nothing},
};

/* --- the machine ------------------------------------------------------------------- */

static enum err begin_piece(struct work *w)
{
  w->length = w->total - w->first < w->piece ? w->total - w->first : w->piece;
  w->begun = true;
  w->in_middle = false;
  TRY(recipes[w->kind].begin(w));
  return ERR_OK;
}

static bool alone(const struct work *w) { return w->c->n == 1 || w->c->config.silent; }

/* Of a group of one, or as if it were: mine and this rank's part of all are the same values. */
static enum err copy_alone(const struct work *w)
{
  const struct tensor own = w->kind == REDUCE_SCATTER || w->kind == ALLGATHER ? part(w, w->c->rank) : w->all;
  if (w->kind == REDUCE_SCATTER) TRY(link_copy(w->c->link, &w->mine, &own));
  if (w->kind == ALLGATHER) TRY(link_copy(w->c->link, &own, &w->mine));
  return ERR_OK;
}

static bool travels(const struct work *w) { return !alone(w) && w->first < w->total; }

static struct link_mark mark_of(const struct work *w)
{
  return (struct link_mark){w->c, collective_names[w->kind], w->sequence, w->step};
}

static enum err start(void *args)
{
  struct work *w = args;
  const struct link_mark mark = mark_of(w);
  TRY(link_started(w->c->link, &mark));
  w->start_ms = clock_ms();
  if (w->delay_ms == 0 && travels(w)) TRY(begin_piece(w));
  return ERR_OK;
}

/* All has arrived; planted: this rank alone has it later. */
static enum err finish(struct work *w, bool *done)
{
  const struct link_mark mark = mark_of(w);
  if (w->hold_ms > 0 && w->arrived_ms == 0) w->arrived_ms = clock_ms();
  if (w->hold_ms > 0 && clock_ms() - w->arrived_ms < w->hold_ms) return ERR_OK;
  TRY(link_done(w->c->link, &mark));
  *done = true;
  return ERR_OK;
}

static enum err test(void *args, bool *done)
{
  struct work *w = args;
  *done = false;
  if (w->arrived_ms > 0) return finish(w, done);
  if (w->delay_ms > 0 && clock_ms() - w->start_ms < w->delay_ms) return ERR_OK;
  if (alone(w)) TRY(copy_alone(w));
  if (travels(w)) {
    bool arrived = false;
    if (!w->begun) TRY(begin_piece(w));
    TRY(link_test(w->c->link, &arrived));
    if (!arrived) return ERR_OK;
    if (ordered(w) && recipes[w->kind].middle && !w->in_middle) {
      w->in_middle = true;
      TRY(recipes[w->kind].middle(w));
      return ERR_OK;
    }
    TRY(recipes[w->kind].end(w));
    w->first += w->length;
    if (travels(w)) {
      TRY(begin_piece(w));
      return ERR_OK;
    }
  }
  return finish(w, done);
}

/* To at->stream, where all of it is done in order. */
static enum err issue(const struct dev_cuda *at, void *args)
{
  struct work *w = args;
  bool done = false;
  w->c->link->at = at;
  TRY(start(w));
  while (!done) TRY(test(w, &done));
  return ERR_OK;
}

#define KERNEL(literal) {.name = literal, .start = start, .test = test}
static const struct dev_kernel kernels[COLLECTIVES] = {
  [ALLREDUCE] = KERNEL("allreduce"), [REDUCE_SCATTER] = KERNEL("reduce_scatter"), [ALLGATHER] = KERNEL("allgather"),
  [BROADCAST] = KERNEL("broadcast"), [BARRIER] = KERNEL("barrier"),
};

/* --- planning ------------------------------------------------------------------------ */

static int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }

static bool apart(const struct tensor *x, const struct tensor *y)
{
  const char *x0, *x1, *y0, *y1;
  view_extent(x, &x0, &x1);
  view_extent(y, &y0, &y1);
  return x1 <= y0 || y1 <= x0;
}

/* How long a piece is: of what is equal on all ranks only, since all must cut alike; strides
 * and aliases may differ. */
static void cut(struct work *w)
{
  const struct comm *c = w->c;
  const int64_t limit = c->config.piece > 0 ? c->config.piece : LINK_PIECE, room = (int64_t)(c->area / dtype_bytes(w->all.type));
  const bool parts = w->kind == REDUCE_SCATTER || w->kind == ALLGATHER;
  w->total = w->kind == BARRIER ? 1 : tensor_count(parts ? &w->mine : &w->all);
  w->piece = parts ? limit / c->n : limit;
  const bool many = w->total > w->piece; /* then parts are not side by side in a piece and have to be packed */
  if (c->n > 1 && parts && (many || ordered(w))) w->piece = least(w->piece, room / c->n);
  if (c->n > 1 && w->kind == ALLREDUCE && ordered(w)) w->piece = least(w->piece, room - c->n); /* shares are uneven by one */
  w->direct_all = tensor_contiguous(&w->all) && !(parts && many);
  w->direct_mine = tensor_contiguous(&w->mine);
  if (parts) {
    const struct tensor own = part(w, c->rank);
    w->in_place = own.at == w->mine.at && (own.stride == w->mine.stride || own.rows <= 1);
    if (!apart(&w->all, &w->mine) && !(w->kind == ALLGATHER && w->in_place)) w->direct_mine = false;
  }
}

static enum err check_scratch(const struct work *w)
{
  const struct comm *c = w->c;
  const bool parts = w->kind == REDUCE_SCATTER || w->kind == ALLGATHER;
  const size_t one = (size_t)least(w->total, w->piece) * dtype_bytes(w->all.type);
  size_t needed = 0;
  if (!w->direct_all) needed = parts ? one * (size_t)c->n : one;
  else if (parts && !w->direct_mine) needed = one;
  if (w->piece < 1 || needed > c->area)
    FAIL(ERR_ARG, "%s on '%s' of views that must be packed needs %zu bytes of scratch; the comm was created with %zu (piece %" PRId64 ")",
         collective_names[w->kind], c->config.name, needed, c->area, c->config.piece);
  return ERR_OK;
}

static struct dev_range scratch_range(const char *at, size_t bytes)
{
  return (struct dev_range){.at = at, .row_bytes = bytes, .stride_bytes = bytes, .rows = 1, .write = true};
}

/* Which memory a work touches; returns the number of ranges. */
static int ranges_of(const struct work *w, struct dev_range *out)
{
  const struct comm *c = w->c;
  int n = 0;
  switch (w->kind) {
  case ALLREDUCE: out[n++] = dev_writes(&w->all); break;
  case BROADCAST: out[n++] = c->rank == w->root ? dev_reads(&w->all) : dev_writes(&w->all); break;
  case REDUCE_SCATTER:
    out[n++] = dev_reads(&w->all);
    out[n++] = dev_writes(&w->mine);
    break;
  case ALLGATHER:
    out[n++] = dev_reads(&w->mine);
    out[n++] = dev_writes(&w->all);
    break;
  default: break;
  }
  if (c->n > 1 && (!w->direct_all || !w->direct_mine || ordered(w))) {
    out[n++] = scratch_range(c->a, c->area);
    out[n++] = scratch_range(c->b, c->area);
  }
  return n;
}

/* --- delay --------------------------------------------------------------------------- */

struct delay {
  double ms, start_ms;
};

static enum err delay_start(void *args)
{
  struct delay *d = args;
  d->start_ms = clock_ms();
  return ERR_OK;
}

static enum err delay_test(void *args, bool *done)
{
  const struct delay *d = args;
  *done = clock_ms() - d->start_ms >= d->ms;
  return ERR_OK;
}

static enum err submit_delay(struct comm *c, const char *name, double ms)
{
  const struct dev_kernel kernel = {.name = name, .start = delay_start, .test = delay_test};
  const struct delay d = {.ms = ms};
  return dev_submit(c->stream, &kernel, &d, sizeof d, NULL, 0);
}

enum err collective_delay(struct comm *c, double *left_ms)
{
  *left_ms = c->on_cuda ? 0 : c->config.delay_ms;
  if (*left_ms < c->config.delay_ms) TRY(submit_delay(c, "delay", c->config.delay_ms));
  return ERR_OK;
}

/* --- by way of the host ----------------------------------------------------------------- */

enum { IN = 1, OUT = 2 };

/* What happens to all, and to mine: its data goes in, or comes out.  What nobody sends keeps what it has. */
static int flow_all(const struct work *w)
{
  const int received = alone(w) ? IN | OUT : OUT;
  switch (w->kind) {
  case ALLREDUCE: return IN | OUT;
  case REDUCE_SCATTER: return IN;
  case ALLGATHER: return received;
  case BROADCAST: return w->c->rank == w->root ? IN : received;
  default: return 0;
  }
}

static int flow_mine(const struct work *w) { return w->kind == ALLGATHER ? IN : w->kind == REDUCE_SCATTER ? OUT : 0; }

/* Dense copies of both views on the host, side by side, each begun on a line of its own. */
static enum err place_on_host(struct work *w)
{
  char *at;
  const bool parts = w->kind == REDUCE_SCATTER || w->kind == ALLGATHER;
  const size_t all = (size_t)tensor_count(&w->all) * dtype_bytes(w->all.type), mine_at = (all + 255) / 256 * 256;
  const size_t mine = parts ? (size_t)tensor_count(&w->mine) * dtype_bytes(w->mine.type) : 0;
  TRY(staged_place(w->c->staged, mine_at + mine, &at));
  w->all = tensor_at(at, w->all.type, w->all.rows, w->all.cols);
  w->mine = parts ? tensor_at(at + mine_at, w->mine.type, w->mine.rows, w->mine.cols) : w->all;
  cut(w); /* the pieces are those of the views; what can go directly has changed */
  return ERR_OK;
}

static enum err submit(struct work *w)
{
  struct dev_kernel kernel = kernels[w->kind];
  struct dev_range ranges[4];
  if (w->c->link->issued) kernel.cuda = issue;
  TRY(dev_submit(w->c->stream, &kernel, w, sizeof *w, ranges, ranges_of(w, ranges)));
  return ERR_OK;
}

static enum err submit_staged(struct work *w)
{
  struct dev_stream *s = w->c->stream;
  const struct tensor all = w->all, mine = w->mine;
  TRY(place_on_host(w));
  if (flow_all(w) & IN) TRY(staged_copy(s, "to host", &w->all, &all));
  if (flow_mine(w) & IN) TRY(staged_copy(s, "to host", &w->mine, &mine));
  TRY(submit(w));
  if (flow_all(w) & OUT) TRY(staged_copy(s, "from host", &all, &w->all));
  if (flow_mine(w) & OUT) TRY(staged_copy(s, "from host", &mine, &w->mine));
  return ERR_OK;
}

static enum err queue(struct comm *c, enum collective kind, const struct tensor *all, const struct tensor *mine, enum comm_op op,
                      int root)
{
  struct work w = {.c = c, .kind = kind, .op = op, .root = root, .all = *all, .mine = *mine, .step = c->world->step};
  cut(&w);
  if (c->n > 1) TRY(check_scratch(&w));
  TRY(dev_delay(c->stream, DEV_DELAY_COLLECTIVES));
  TRY(trace_add(c, collective_names[kind], all->type, tensor_count(all), w.piece, &w.sequence));
  TRY(collective_delay(c, &w.delay_ms));
  const double hold_ms = kind == ALLREDUCE || kind == REDUCE_SCATTER ? c->config.hold_ms : 0;
  if (!c->link->issued) w.hold_ms = hold_ms;
  TRY(c->staged ? submit_staged(&w) : submit(&w));
  if (c->link->issued && hold_ms > 0) TRY(submit_delay(c, COMM_HOLD, hold_ms)); /* the host goes through the whole machine at once */
  return ERR_OK;
}

enum err collective_queue(struct comm *c, enum collective kind, const struct tensor *all, const struct tensor *mine,
                          enum comm_op op, int root)
{
  const struct tensor none = tensor_at(NULL, DTYPE_U8, 0, 0);
  if (c->config.aligned && kind != BARRIER) TRY(queue(c, BARRIER, &none, &none, COMM_SUM, 0));
  TRY(queue(c, kind, all, mine, op, root));
  return ERR_OK;
}
