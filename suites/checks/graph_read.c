/* graph_read.c - records of spans become nodes, calls of one collective a group. */
#include "evidence.h"
#include "graph.h"
#include "layout.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* --- who calls together ---------------------------------------------------------------------- */

/* Calls with equal keys are one collective or message. */
struct key {
  int name, instance, from; /* group; which of that name; sender of a message, -1: a collective */
  int64_t sequence;         /* of a message: its number from that sender in this step           */
  int node;
};

enum { DP, GATHER, SHARDS, REPLICAS, SUMS, TP, NORM, OUTPUTS, GRADIENTS, TIED, SCALE, NAMES };
_Static_assert(3 * NAMES <= GRAPH_KINDS, "kinds of what travels");
static const char *const names[NAMES] = {"dp", "gather", "shards", "replicas", "sums", "tp", "norm", "outputs", "gradients", "tied", "scale"};

static int name_of(const char *text)
{
  for (int i = 0; i < NAMES; i++)
    if (strcmp(names[i], text) == 0) return i;
  return -1;
}

/* Ranks of one group have the same number, those of another of its name another one. */
static int instance_of(const struct run_config *c, int name, const struct layout *at)
{
  const int shards = layout_shares(c) ? (int)run_shards(c) : (int)c->dp, part = at->pp * (int)c->tp + at->tp;
  switch (name) {
  case DP: case GATHER: case SHARDS: return part * (int)c->dp + at->dp / shards;
  case REPLICAS: return part * (int)c->dp + at->dp % shards;
  case SUMS: return at->tp;
  case TP: return at->pp * (int)c->dp + at->dp;
  case NORM: return at->dp;
  case OUTPUTS: case GRADIENTS: case TIED: return at->dp * (int)c->tp + at->tp;
  default: return 0;
  }
}

/* The rank at the other end of what this one sends or receives. */
static int peer_of(const struct run_config *c, int name, const struct layout *at, bool sends)
{
  const int pp = (int)c->pp;
  struct layout other = *at;
  if (name == TIED) other.pp = at->pp == 0 ? pp - 1 : 0;
  else other.pp = (at->pp + ((name == OUTPUTS) == sends ? 1 : pp - 1)) % pp;
  return layout_rank(c, other);
}

static int members_of(const struct run_config *c, int ranks, int name, int instance)
{
  int n = 0;
  for (int r = 0; r < ranks; r++) {
    const struct layout at = layout_of(c, r);
    n += instance_of(c, name, &at) == instance;
  }
  return n;
}

/* --- reading --------------------------------------------------------------------------------- */

/* The records of one rank's step. */
struct source {
  const json_t *span, *calls;
  double drift, from_ms; /* what is added to a time t: drift * (t - from_ms) */
  int first;             /* its first node */
};

struct reader {
  const struct run_data *run;
  struct graph *g;
  struct source *sources; /* [ranks] */
  struct key *keys;       /* [n], of calls */
  int n_keys, n_before;
};

static size_t length(const json_t *record, const char *key) { return json_array_size(json_object_get(record, key)); }
static int64_t whole(const json_t *record, const char *key, size_t i) { return json_integer_value(json_array_get(json_object_get(record, key), i)); }
static const char *text_at(const json_t *list, size_t i)
{
  const char *text = json_string_value(json_array_get(list, i));
  return text ? text : "";
}
static const char *name_in(const json_t *record, const char *list, const char *key, size_t i)
{
  return text_at(json_object_get(record, list), (size_t)whole(record, key, i));
}
static double time_at(const struct source *s, const char *key, size_t i)
{
  const double t = json_number_value(json_array_get(json_object_get(s->span, key), i));
  return t + s->drift * (t - s->from_ms);
}

static enum err open_source(struct reader *r, int rank, int64_t step)
{
  static const char *const lists[] = {"got.kernel", "got.phase", "got.call", "got.ready_ms", "got.start_ms", "got.end_ms", "got.busy_ms"};
  struct source *s = &r->sources[rank];
  const json_t *trace = evidence_record(r->run, "trace", rank, step, -1), *clock = evidence_record(r->run, "clock", rank, -1, -1);
  s->span = evidence_record(r->run, "span", rank, step, -1);
  s->calls = json_object_get(trace, "got.calls");
  if (s->span == NULL || trace == NULL || clock == NULL)
    FAIL(ERR_UNAVAILABLE, "rank %d told no %s of step %lld (trace_spans: true asks for them)", rank,
         s->span == NULL ? "spans" : trace == NULL ? "calls" : "clock", (long long)step);
  for (size_t i = 0; i < sizeof lists / sizeof *lists; i++)
    if (length(s->span, lists[i]) != length(s->span, "got.stream"))
      FAIL(ERR_FORMAT, "rank %d, step %lld: %s is not as long as got.stream", rank, (long long)step, lists[i]);
  const double ms = evidence_real(clock, "got.end_ms") - evidence_real(clock, "got.start_ms");
  s->from_ms = evidence_real(clock, "got.start_ms");
  s->drift = ms > 0 ? (evidence_real(clock, "got.end_offset_ms") - evidence_real(clock, "got.start_offset_ms")) / ms : 0;
  if (isnan(s->drift) || isnan(evidence_real(clock, "got.error_ms"))) FAIL(ERR_FORMAT, "rank %d: its clock record has no numbers", rank);
  r->g->error_ms = fmax(r->g->error_ms, evidence_real(clock, "got.error_ms"));
  s->first = r->g->n;
  r->g->n += (int)length(s->span, "got.stream");
  r->n_before += (int)length(s->span, "got.edges") / 2;
  return ERR_OK;
}

static enum graph_phase phase_of(const json_t *span, size_t i, bool main)
{
  const char *phase = name_in(span, "got.phases", "got.phase", i), *kernel = name_in(span, "got.kernels", "got.kernel", i);
  if (whole(span, "got.stream", i) == 0) return strcmp(phase, "data") == 0 ? GRAPH_DATA : strcmp(kernel, "end") == 0 ? GRAPH_OTHER : GRAPH_BETWEEN;
  if (!main || whole(span, "got.call", i) != -1) return GRAPH_LINK;
  for (int p = GRAPH_FORWARD; p < GRAPH_OTHER; p++)
    if (strcmp(phase, graph_phase_name((enum graph_phase)p)) == 0) return (enum graph_phase)p;
  return GRAPH_OTHER;
}

static enum err read_node(struct reader *r, int rank, size_t i)
{
  struct graph *g = r->g;
  const struct source *s = &r->sources[rank];
  const int64_t call = whole(s->span, "got.call", i);
  const int at = s->first + (int)i;
  const bool main = strcmp(name_in(s->span, "got.streams", "got.stream", i), "compute") == 0;
  if (call < -2 || call >= (int64_t)json_array_size(s->calls)) FAIL(ERR_FORMAT, "rank %d: a span of call %lld", rank, (long long)call);
  g->nodes[at] = (struct graph_node){.rank = rank, .stream = (int)whole(s->span, "got.stream", i), .phase = phase_of(s->span, i, main), .main = main,
                                     .given = call == -2, .call = call >= 0 ? (int)call : -1, .kind = -1, .group = -1};
  g->ready[at] = time_at(s, "got.ready_ms", i);
  g->ended[at] = time_at(s, "got.end_ms", i);
  g->busy[at] = json_number_value(json_array_get(json_object_get(s->span, "got.busy_ms"), i));
  if (!isfinite(g->ready[at]) || !isfinite(g->ended[at])) FAIL(ERR_FORMAT, "rank %d: a span without times", rank);
  if (g->nodes[at].stream == 0 && strcmp(name_in(s->span, "got.kernels", "got.kernel", i), "end") == 0) g->end[rank] = at;
  return ERR_OK;
}

/* The one ahead on its stream, then those of the edges. */
static enum err read_before(struct reader *r, int rank, int *used)
{
  struct graph *g = r->g;
  const struct source *s = &r->sources[rank];
  const int n = (int)length(s->span, "got.stream");
  const size_t n_edges = length(s->span, "got.edges") / 2;
  for (int i = 0; i < n; i++) {
    struct graph_node *x = &g->nodes[s->first + i];
    x->first = *used;
    if (i > 0 && x[-1].stream == x->stream) g->before[(*used)++] = s->first + i - 1;
    for (size_t e = 0; e < n_edges; e++) {
      if (whole(s->span, "got.edges", 2 * e) != i) continue;
      const int64_t to = whole(s->span, "got.edges", 2 * e + 1);
      if (to < 0 || to >= n) FAIL(ERR_FORMAT, "rank %d: an edge to span %lld of %d", rank, (long long)to, n);
      g->before[(*used)++] = s->first + (int)to;
    }
    x->n = *used - x->first;
  }
  if (g->end[rank] < 0) FAIL(ERR_FORMAT, "rank %d: no span is the step's end", rank);
  g->first[rank] = s->first;
  g->origin[rank] = g->ready[s->first];
  return ERR_OK;
}

/* "13 send outputs outputs float32 1152 4608 0" */
static enum err read_key(struct reader *r, int node, int *messages)
{
  const struct run_config *c = &r->run->config;
  const struct graph_node *x = &r->g->nodes[node];
  char op[32], group[32];
  long long sequence;
  const char *text = text_at(r->sources[x->rank].calls, (size_t)x->call);
  if (sscanf(text, "%lld %31s %31s", &sequence, op, group) != 3) FAIL(ERR_FORMAT, "rank %d: '%s' is no call", x->rank, text);
  const struct layout at = layout_of(c, x->rank);
  struct key k = {.name = name_of(group), .from = -1, .sequence = sequence, .node = node};
  if (k.name < 0) FAIL(ERR_FORMAT, "rank %d: a call of group '%s', whose ranks are not known", x->rank, group);
  k.instance = instance_of(c, k.name, &at);
  const bool sends = strcmp(op, "send") == 0;
  if (sends || strcmp(op, "recv") == 0) {
    k.from = sends ? x->rank : peer_of(c, k.name, &at, false);
    k.sequence = messages[2 * k.name + sends]++;
  }
  r->g->nodes[node].kind = 3 * k.name + (k.from < 0 ? 0 : sends ? 1 : 2);
  r->keys[r->n_keys++] = k;
  return ERR_OK;
}

/* Calls in the order of the rank's trace: spans of one stream are in it, and messages of one group are on one stream. */
static enum err read_keys(struct reader *r, int rank)
{
  int messages[2 * NAMES] = {0};
  const struct source *s = &r->sources[rank];
  const int n = (int)length(s->span, "got.stream");
  for (int i = s->first; i < s->first + n; i++)
    if (r->g->nodes[i].call >= 0) TRY(read_key(r, i, messages));
  return ERR_OK;
}

/* --- groups ---------------------------------------------------------------------------------- */

static int by_key(const void *a, const void *b)
{
  const struct key *x = a, *y = b;
  if (x->name != y->name) return x->name < y->name ? -1 : 1;
  if (x->instance != y->instance) return x->instance < y->instance ? -1 : 1;
  if (x->from != y->from) return x->from < y->from ? -1 : 1;
  if (x->sequence != y->sequence) return x->sequence < y->sequence ? -1 : 1;
  return (x->node > y->node) - (x->node < y->node);
}

static bool same_call(const struct key *a, const struct key *b)
{
  return a->name == b->name && a->instance == b->instance && a->from == b->from && a->sequence == b->sequence;
}

static enum err make_group(struct reader *r, const struct key *k, int n)
{
  struct graph *g = r->g;
  const bool message = k->from >= 0;
  const int want = message ? 2 : members_of(&r->run->config, g->ranks, k->name, k->instance);
  if (n != want && k->name != GATHER)
    FAIL(ERR_UNAVAILABLE, "%d of %d ranks told of call %lld of group %s in which rank %d took part", n, want, (long long)k->sequence, names[k->name],
         g->nodes[k->node].rank);
  const int first = g->n_groups ? g->groups[g->n_groups - 1].first + g->groups[g->n_groups - 1].n : 0;
  for (int i = 0; i < n; i++) {
    struct graph_node *x = &g->nodes[k[i].node];
    g->members[first + i] = k[i].node;
    x->group = g->n_groups;
    x->given = n != want; /* with some it goes on into the next step */
  }
  g->groups[g->n_groups++] = (struct graph_group){first, n, message};
  return ERR_OK;
}

static enum err make_groups(struct reader *r)
{
  if (r->n_keys > 0) qsort(r->keys, (size_t)r->n_keys, sizeof *r->keys, by_key);
  for (int i = 0, n; i < r->n_keys; i += n) {
    n = 1;
    while (i + n < r->n_keys && same_call(&r->keys[i], &r->keys[i + n])) n++;
    TRY(make_group(r, &r->keys[i], n));
  }
  return ERR_OK;
}

/* --- made ------------------------------------------------------------------------------------ */

static enum err allocate(struct reader *r)
{
  struct graph *g = r->g;
  const size_t n = (size_t)g->n + 1;
  g->nodes = calloc(n, sizeof *g->nodes);
  g->before = malloc((n + (size_t)r->n_before) * sizeof *g->before);
  g->members = malloc(n * sizeof *g->members);
  g->groups = malloc(n * sizeof *g->groups);
  g->order = malloc(2 * n * sizeof *g->order);
  g->ready = malloc(3 * n * sizeof *g->ready);
  r->keys = malloc(n * sizeof *r->keys);
  if (!g->nodes || !g->before || !g->members || !g->groups || !g->order || !g->ready || !r->keys) FAIL(ERR_MEMORY, "graph of %d spans", g->n);
  g->ended = g->ready + n;
  g->busy = g->ended + n;
  return ERR_OK;
}

static enum err read_all(struct reader *r, int64_t step)
{
  struct graph *g = r->g;
  int used = 0;
  for (int rank = 0; rank < g->ranks; rank++) TRY(open_source(r, rank, step));
  TRY(allocate(r));
  for (int rank = 0; rank < g->ranks; rank++) {
    g->end[rank] = -1;
    for (size_t i = 0; i < length(r->sources[rank].span, "got.stream"); i++) TRY(read_node(r, rank, i));
    TRY(read_before(r, rank, &used));
    TRY(read_keys(r, rank));
    g->base = fmax(g->base, g->origin[rank]);
  }
  TRY(make_groups(r));
  return graph_finish(g, used);
}

enum err graph_read(const struct run_data *run, int64_t step, struct graph *out)
{
  enum err err = ERR_OK;
  *out = (struct graph){.ranks = evidence_ranks(run), .base = -INFINITY};
  struct reader r = {.run = run, .g = out};
  const size_t ranks = (size_t)out->ranks;
  r.sources = calloc(ranks, sizeof *r.sources);
  out->first = malloc(2 * ranks * sizeof *out->first);
  out->origin = malloc(ranks * sizeof *out->origin);
  if (r.sources == NULL || out->first == NULL || out->origin == NULL) FAIL_TO(done, ERR_MEMORY, "graph of %zu ranks", ranks);
  out->end = out->first + ranks;
  err = read_all(&r, step);

done:
  free(r.keys);
  free(r.sources);
  if (err) graph_free(out);
  return err ? err_trace(err, __FILE__, __LINE__) : ERR_OK;
}
