/* messages.c - sends and receives posted together, as the work of one stream. */
#include "comm/collective.h"

#include "base/clock.h"
#include "comm/staged.h"
#include "comm/view.h"

#include <inttypes.h>

/* A copy of the comm's list, as it was at group finish. */
struct post {
  struct comm *c;
  int n;
  bool begun;
  struct message messages[MESSAGES_MAX];
  int64_t sequence, step; /* of the first; the others follow */
  double delay_ms, start_ms;
};
_Static_assert(sizeof(struct post) <= DEV_ARGS_MAX, "a post fits the stream's copy");

static int64_t piece_of(const struct comm *c) { return c->config.piece > 0 ? c->config.piece : LINK_PIECE; }

static size_t packed_bytes(const struct message *m)
{
  return tensor_contiguous(&m->t) ? 0 : (size_t)tensor_count(&m->t) * dtype_bytes(m->t.type);
}

/* Where message i starts for MPI: its own memory or its place in scratch, where strided ones
 * stand one after the other. */
static char *place(const struct post *p, int i)
{
  const struct message *m = &p->messages[i];
  char *at = p->c->a;
  if (tensor_contiguous(&m->t)) return m->t.at;
  for (int k = 0; k < i; k++) at += packed_bytes(&p->messages[k]);
  return at;
}

static enum err begin(struct post *p)
{
  const int64_t piece = piece_of(p->c);
  p->begun = true;
  for (int i = 0; i < p->n; i++) {
    const struct message *m = &p->messages[i];
    const int64_t count = tensor_count(&m->t);
    char *at = place(p, i);
    if (m->send && packed_bytes(m) > 0) TRY(link_pack(p->c->link, &m->t, 0, count, at));
    for (int64_t first = 0; first < count; first += piece) {
      const int64_t n = count - first < piece ? count - first : piece;
      char *from = at + (size_t)first * dtype_bytes(m->t.type);
      if (m->send)
        TRY(link_send(p->c->link, from, n, m->t.type, m->peer, p->c->config.synchronous));
      else
        TRY(link_recv(p->c->link, from, n, m->t.type, m->peer, p->c->config.synchronous));
    }
  }
  return ERR_OK;
}

/* The last of them stands for all. */
static struct link_mark mark_of(const struct post *p)
{
  return (struct link_mark){p->c, p->messages[p->n - 1].send ? "send" : "recv", p->sequence + p->n - 1, p->step};
}

static enum err start(void *args)
{
  struct post *p = args;
  const struct link_mark mark = mark_of(p);
  TRY(link_started(p->c->link, &mark));
  p->start_ms = clock_ms();
  if (p->delay_ms == 0) TRY(begin(p));
  return ERR_OK;
}

static enum err test(void *args, bool *done)
{
  struct post *p = args;
  *done = false;
  if (p->delay_ms > 0 && clock_ms() - p->start_ms < p->delay_ms) return ERR_OK;
  if (!p->begun) TRY(begin(p));
  TRY(link_test(p->c->link, done));
  if (!*done) return ERR_OK;
  for (int i = 0; i < p->n; i++) {
    const struct message *m = &p->messages[i];
    if (!m->send && packed_bytes(m) > 0) TRY(link_unpack(p->c->link, &m->t, 0, tensor_count(&m->t), place(p, i)));
  }
  const struct link_mark mark = mark_of(p);
  TRY(link_done(p->c->link, &mark));
  return ERR_OK;
}

static enum err issue(const struct dev_cuda *at, void *args)
{
  struct post *p = args;
  bool done = false;
  p->c->link->at = at;
  TRY(start(p));
  while (!done) TRY(test(p, &done));
  return ERR_OK;
}

static const struct dev_kernel send_kernel = {.name = "send", .start = start, .test = test};
static const struct dev_kernel recv_kernel = {.name = "recv", .start = start, .test = test};
static const struct dev_kernel both_kernel = {.name = "exchange", .start = start, .test = test};

static enum err submit(struct post *p, size_t packed)
{
  struct comm *c = p->c;
  struct dev_range ranges[MESSAGES_MAX + 1];
  struct dev_kernel kernel = p->n > 1 ? both_kernel : p->messages[0].send ? send_kernel : recv_kernel;
  int n = p->n;
  if (c->link->issued) kernel.cuda = issue;
  for (int i = 0; i < n; i++) ranges[i] = p->messages[i].send ? dev_reads(&p->messages[i].t) : dev_writes(&p->messages[i].t);
  if (packed > 0)
    ranges[n++] = (struct dev_range){.at = c->a, .row_bytes = packed, .stride_bytes = packed, .rows = 1, .write = true};
  TRY(dev_submit(c->stream, &kernel, p, sizeof *p, ranges, n));
  return ERR_OK;
}

/* Dense copies of all messages on the host, each begun on a line of its own. */
static enum err submit_staged(struct post *p)
{
  struct tensor views[MESSAGES_MAX];
  size_t bytes = 0, starts[MESSAGES_MAX];
  char *at;
  for (int i = 0; i < p->n; i++) {
    views[i] = p->messages[i].t;
    starts[i] = bytes;
    bytes += ((size_t)tensor_count(&views[i]) * dtype_bytes(views[i].type) + 255) / 256 * 256;
  }
  TRY(staged_place(p->c->staged, bytes, &at));
  for (int i = 0; i < p->n; i++) {
    struct message *m = &p->messages[i];
    m->t = tensor_at(at + starts[i], m->t.type, m->t.rows, m->t.cols);
    if (m->send) TRY(staged_copy(p->c->stream, "to host", &m->t, &views[i]));
  }
  TRY(submit(p, 0));
  for (int i = 0; i < p->n; i++)
    if (!p->messages[i].send) TRY(staged_copy(p->c->stream, "from host", &views[i], &p->messages[i].t));
  return ERR_OK;
}

static enum err queue(struct post *p)
{
  struct comm *c = p->c;
  const int64_t piece = piece_of(c);
  size_t packed = 0;
  int64_t pieces = 0;
  for (int i = 0; i < p->n; i++) {
    packed += packed_bytes(&p->messages[i]);
    pieces += (tensor_count(&p->messages[i].t) + piece - 1) / piece;
  }
  if (packed > c->area)
    FAIL(ERR_ARG, "strided messages on '%s' need %zu bytes of scratch; the comm was created with %zu", c->config.name, packed, c->area);
  if (pieces > LINK_MESSAGES)
    FAIL(ERR_ARG, "messages on '%s' make %" PRId64 " pieces of at most %" PRId64 " elements; at most %d are posted together",
         c->config.name, pieces, piece, LINK_MESSAGES);
  TRY(dev_delay(c->stream, DEV_DELAY_COLLECTIVES));
  for (int i = 0; i < p->n; i++) {
    const struct message *m = &p->messages[i];
    int64_t sequence;
    TRY(trace_add(c, m->send ? "send" : "recv", m->t.type, tensor_count(&m->t), piece, &sequence));
    if (i == 0) p->sequence = sequence;
  }
  TRY(collective_delay(c, &p->delay_ms));
  TRY(c->staged ? submit_staged(p) : submit(p, packed));
  return ERR_OK;
}

enum err collective_queue_messages(struct comm *c)
{
  struct post p = {.c = c, .n = c->n_messages, .step = c->world->step};
  for (int i = 0; i < p.n; i++) p.messages[i] = c->messages[i];
  c->n_messages = 0; /* also when it fails: a group is not half kept */
  if (p.n > 0) TRY(queue(&p));
  return ERR_OK;
}
