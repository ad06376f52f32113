/* traffic.c - expected lists of calls, made by walking the schedule's list of a rank. */
#include "traffic.h"

#include "predict.h"
#include "shapes.h"
#include "traffic_gather.h"
#include "base/schedule.h"

#include <stdlib.h>
#include <string.h>

static const struct {
  const char *name, *stream;
} groups[TRAFFIC_GROUPS] = {
    [TRAFFIC_DP] = {"dp", "transfer"},          [TRAFFIC_REPLICAS] = {"replicas", "transfer"},
    [TRAFFIC_GATHER] = {"gather", "gather"},    [TRAFFIC_SHARDS] = {"shards", "compute"},
    [TRAFFIC_SUMS] = {"sums", "scalar"},
    [TRAFFIC_TP] = {"tp", "compute"},           [TRAFFIC_NORM] = {"norm", "compute"},
    [TRAFFIC_OUTPUTS] = {"outputs", "outputs"}, [TRAFFIC_GRADIENTS] = {"gradients", "gradients"},
    [TRAFFIC_TIED] = {"tied", "compute"},       [TRAFFIC_SCALE] = {"scale", "compute"},
};

const char *traffic_name(enum traffic_group g) { return groups[g].name; }
const char *traffic_stream(enum traffic_group g) { return groups[g].stream; }

int64_t traffic_ranks(const struct run_config *c, enum traffic_group g)
{
  const int64_t sharing = layout_shares(c) ? run_shards(c) : c->dp;
  const int64_t sizes[TRAFFIC_GROUPS] = {
    [TRAFFIC_DP] = sharing,    [TRAFFIC_REPLICAS] = c->dp / sharing, [TRAFFIC_GATHER] = sharing, [TRAFFIC_SHARDS] = sharing,
    [TRAFFIC_SUMS] = c->dp * c->pp, [TRAFFIC_TP] = c->tp, [TRAFFIC_NORM] = c->tp * c->pp,
    [TRAFFIC_OUTPUTS] = c->pp, [TRAFFIC_GRADIENTS] = c->pp,    [TRAFFIC_TIED] = 2,
    [TRAFFIC_SCALE] = config_ranks(c),
  };
  return sizes[g];
}

int64_t traffic_bytes(const char *op, int64_t bytes, int64_t n)
{
  if (n == 1 || strcmp(op, "recv") == 0) return 0;
  if (strcmp(op, "allreduce") == 0) return 2 * (n - 1) * bytes / n;
  return strcmp(op, "send") == 0 ? bytes : (n - 1) * bytes / n;
}

/* --- lists ----------------------------------------------------------------------------- */

struct walk {
  const struct run_config *c;
  const struct layout *at;
  struct partition stages;
  struct traffic *out;
  enum err err;
  int64_t microbatch; /* that calls are of */
  int64_t folds;      /* times that gradients are complete in a step */
};

static void say(struct walk *w, const char *op, enum dtype type, int64_t count)
{
  struct traffic *t = w->out;
  if (w->err != ERR_OK) return;
  if (t->n == t->room) {
    const int room = t->room ? 2 * t->room : 256;
    struct traffic_call *more = realloc(t->calls, (size_t)room * sizeof *more);
    if (more == NULL) {
      w->err = err_set(ERR_MEMORY, __FILE__, __LINE__, "%d calls", room);
      return;
    }
    t->calls = more;
    t->room = room;
  }
  t->calls[t->n++] = (struct traffic_call){op, type, count, w->microbatch, false};
}

/* Of the micro-batch's positions. */
static void say_rows(struct walk *w, const char *op, enum dtype type, int64_t count)
{
  say(w, op, type, count);
  if (w->err == ERR_OK) w->out->calls[w->out->n - 1].by_width = true;
}

void traffic_free(struct traffic *t)
{
  free(t->calls);
  *t = (struct traffic){0};
}

/* Of what passes hand on, and of gradients of weights. */
static enum dtype work(const struct walk *w) { return run_work_type(w->c); }
static enum dtype state(const struct walk *w) { return run_state_type(w->c); }
static int64_t rows(const struct walk *w) { return w->c->micro_batch * w->c->sequence; }
static int64_t whole(const struct walk *w) { return rows(w) * w->c->hidden; }

/* Micro-batch i of the replica is the last before gradients are folded. */
static bool folds_after(const struct walk *w, int64_t i) { return w->folds > 1 || i == layout_each(w->c) - 1; }

/* --- tensor ranks ----------------------------------------------------------------------- */

static void gather(struct walk *w) { if (w->c->sequence_parallel) say_rows(w, "allgather", work(w), whole(w)); }
static void reduce(struct walk *w)
{
  say_rows(w, w->c->sequence_parallel ? "reduce_scatter" : "allreduce", work(w), whole(w));
}
static void sum_shards(struct walk *w, bool last, int64_t count)
{
  if (w->c->sequence_parallel && last) say(w, "allreduce", state(w), count);
}

static void forward(struct walk *w, int64_t k)
{
  if (k == 0) reduce(w);
  for (int64_t l = 2 * w->stages.first[k]; l < 2 * w->stages.first[k + 1]; l++) { /* two halves a layer */
    gather(w);
    reduce(w);
  }
  if (k < w->stages.stages - 1) return;
  gather(w);
  say_rows(w, "allreduce", DTYPE_F64, rows(w));
  say_rows(w, "allreduce", DTYPE_F64, 2 * rows(w));
}

/* Before the backward of a block's second half, which is the first to come: all of forward's but its last sum. */
static void forward_again(struct walk *w)
{
  if (w->c->recompute != RECOMPUTE_FULL) return;
  gather(w);
  reduce(w);
  gather(w);
}

/* Inputs of the layers cut by columns, gathered again for the gradients of their weights, where not in a pass of its own. */
static void backward(struct walk *w, int64_t k, bool with_weights, bool last)
{
  const int64_t C = w->c->hidden;
  if (k == w->stages.stages - 1) {
    gather(w);
    reduce(w);
    sum_shards(w, last, 2 * C);
  }
  for (int64_t l = 2 * w->stages.first[k + 1] - 1; l >= 2 * w->stages.first[k]; l--) {
    if (l % 2 == 1) forward_again(w);
    gather(w);
    if (with_weights) gather(w);
    reduce(w);
    sum_shards(w, last && l / 2 < shapes_blocks(w->c), 2 * C); /* shared ones once, as their owner's */
  }
  if (k > 0) return;
  sum_shards(w, last, w->c->positions * C);
  gather(w);
}

static void weights(struct walk *w, int64_t k)
{
  for (int64_t l = 2 * w->stages.first[k]; l < 2 * w->stages.first[k + 1]; l++) gather(w);
}

/* --- passes and messages ------------------------------------------------------------------- */

static void action(struct walk *w, enum traffic_group g, const struct schedule_action *a)
{
  const int64_t k = a->chunk * w->c->pp + w->at->pp, n = whole(w) / (w->c->sequence_parallel ? w->c->tp : 1);
  const bool last = folds_after(w, a->microbatch);
  w->microbatch = w->at->dp * layout_each(w->c) + a->microbatch;
  if (g == TRAFFIC_TP && a->pass == PASS_FORWARD) forward(w, k);
  if (g == TRAFFIC_TP && a->pass == PASS_BACKWARD) backward(w, k, true, last);
  if (g == TRAFFIC_TP && a->pass == PASS_BACKWARD_INPUT) backward(w, k, false, last);
  if (g == TRAFFIC_TP && a->pass == PASS_BACKWARD_WEIGHT) weights(w, k);
  if (g == TRAFFIC_OUTPUTS && a->pass == PASS_SEND_OUTPUT) say_rows(w, "send", work(w), n);
  if (g == TRAFFIC_OUTPUTS && a->pass == PASS_RECV_INPUT) say_rows(w, "recv", work(w), n);
  if (g == TRAFFIC_GRADIENTS && a->pass == PASS_SEND_GRADIENT) say_rows(w, "send", work(w), n);
  if (g == TRAFFIC_GRADIENTS && a->pass == PASS_RECV_GRADIENT) say_rows(w, "recv", work(w), n);
}

static enum err passes(struct walk *w, enum traffic_group g)
{
  const struct run_config *c = w->c;
  struct schedule *s;
  TRY(schedule_create((enum schedule_kind)c->schedule, (int)c->pp, (int)layout_each(c), (int)c->chunks, &s));
  for (int i = 0; i < s->n[w->at->pp]; i++) action(w, g, &s->list[w->at->pp][i]);
  schedule_destroy(s);
  return ERR_OK;
}

/* --- once a step or a fold -------------------------------------------------------------------- */

/* Owner of *out: the caller. */
static enum err list_buckets(const struct walk *w, int64_t **out, int64_t *n)
{
  *n = predict_buckets(w->c, w->at, NULL, 0);
  *out = malloc((size_t)*n * sizeof **out);
  if (*out == NULL) FAIL(ERR_MEMORY, "plan of %lld buckets", (long long)*n);
  predict_buckets(w->c, w->at, *out, *n);
  return ERR_OK;
}

static enum err buckets(struct walk *w)
{
  int64_t *counts, n;
  TRY(list_buckets(w, &counts, &n));
  for (int64_t fold = 0; fold < w->folds; fold++)
    for (int64_t i = 0; i < n; i++) say(w, layout_shares(w->c) ? "reduce_scatter" : "allreduce", run_reduce_type(w->c), counts[i]);
  free(counts);
  return ERR_OK;
}

static enum err groups_of_shards(struct walk *w)
{
  int64_t *counts, n;
  if (!layout_shares(w->c) || run_shards(w->c) == w->c->dp) return ERR_OK;
  TRY(list_buckets(w, &counts, &n));
  for (int64_t i = 0; i < n; i++) say(w, "allreduce", run_reduce_type(w->c), counts[i] / run_shards(w->c));
  free(counts);
  return ERR_OK;
}

static enum err updated_weights(struct walk *w)
{
  int64_t *counts, n;
  TRY(list_buckets(w, &counts, &n));
  for (int64_t i = n - 1; i >= 0; i--) say(w, "allgather", work(w), counts[i]);
  free(counts);
  return ERR_OK;
}

static enum err needed_weights(struct walk *w)
{
  const struct run_config *c = w->c;
  struct traffic_gather *list;
  struct schedule *s;
  int n;
  TRY(schedule_create((enum schedule_kind)c->schedule, (int)c->pp, (int)layout_each(c), (int)c->chunks, &s));
  const enum err err = traffic_gathers(c, w->at, s, &list, &n);
  schedule_destroy(s);
  TRY(err);
  for (int i = 0; i < n; i++) {
    w->microbatch = w->at->dp * layout_each(c) + list[i].microbatch;
    say(w, "allgather", work(w), list[i].count);
  }
  free(list);
  return ERR_OK;
}

static enum err weights_over_replicas(struct walk *w)
{
  if (!layout_shares(w->c)) return ERR_OK;
  return w->c->zero == 3 ? needed_weights(w) : updated_weights(w);
}

static void tied(struct walk *w)
{
  struct shape s;
  const bool first = layout_is_first(w->at), last = layout_is_last(w->c, w->at);
  if (!w->c->tied || w->c->pp == 1 || !(first || last) || !shapes_part(w->c, &w->stages, w->at, 0, &s) || s.frozen)
    return;
  for (int64_t fold = 0; fold < w->folds; fold++) {
    say(w, first ? "recv" : "send", state(w), s.rows * s.cols);
    say(w, first ? "send" : "recv", state(w), s.rows * s.cols);
  }
}

enum err traffic_expect(const struct run_config *c, const struct layout *at, enum traffic_group g, struct traffic *out)
{
  struct walk w = {.c = c,
                   .at = at,
                   .out = out,
                   .microbatch = -1,
                   .folds = c->reduce_each == REDUCE_MICROBATCH ? layout_each(c) : 1};
  enum err err = ERR_OK;
  *out = (struct traffic){0};
  TRY(partition_make(c, &w.stages));
  if (g == TRAFFIC_DP) TRY_TO(release, buckets(&w));
  if (g == TRAFFIC_REPLICAS) TRY_TO(release, groups_of_shards(&w));
  if (g == TRAFFIC_GATHER) TRY_TO(release, weights_over_replicas(&w));
  if (g == TRAFFIC_SHARDS && layout_shares(c)) say(&w, "allreduce", DTYPE_F64, (int64_t)predict_rows(c));
  if (g == TRAFFIC_SUMS) {
    say(&w, "allreduce", DTYPE_F64, 1);
    say(&w, "allreduce", DTYPE_F64, 2);
  }
  if (g == TRAFFIC_NORM && c->tp * c->pp > 1)
    say(&w, "allreduce", DTYPE_F64, (int64_t)predict_rows(c));
  if (g == TRAFFIC_TIED) tied(&w);
  if (g == TRAFFIC_SCALE && c->loss_scale > 0 && config_ranks(c) > 1) say(&w, "allreduce", DTYPE_F64, 1);
  if ((g == TRAFFIC_TP && c->tp > 1) || ((g == TRAFFIC_OUTPUTS || g == TRAFFIC_GRADIENTS) && c->pp > 1))
    TRY_TO(release, passes(&w, g));
  TRY_TO(release, w.err);
  return ERR_OK;

release:
  traffic_free(out);
  return err;
}
