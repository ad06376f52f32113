/* traffic_gather.c - the list of needs of a step's passes, and what is queued at each. */
#include "traffic_gather.h"

#include "predict.h"
#include "shapes.h"

#include <stdlib.h>

/* A unit's stay. */
struct need {
  int unit, action;
  int last; /* need before which it is over: the one behind it, but for the tied matrix in the head, or from embedding to head */
};

struct walk {
  const struct run_config *c;
  const struct layout *at;
  struct partition stages;
  struct predicted_unit *units;
  int n_units;
  int64_t *buckets;
  struct need *needs;
  int n;
};

static int unit_of_layer(const struct walk *w, int64_t layer)
{
  const int64_t own = shapes_blocks(w->c);
  int unit = 0;
  if (layer >= own) layer -= own; /* a reused block's parameters are those of one of the first */
  for (int64_t l = 0; l <= layer; l++) unit += layout_has_layer(w->c, &w->stages, w->at, l);
  return unit;
}

static void need(struct walk *w, int unit, int action)
{
  w->needs[w->n] = (struct need){unit, action, w->n + 1};
  w->n++;
}

/* The tied matrix and what stands behind the blocks are needed one after the other, and done with together. */
static void head(struct walk *w, bool whole, int action)
{
  const int begun = w->n;
  if (whole) need(w, 0, action);
  need(w, w->n_units - 1, action);
  w->needs[begun].last = w->n;
}

static void forward(struct walk *w, int64_t k, int action)
{
  const bool first = k == 0, last = k == w->stages.stages - 1;
  const int begun = w->n;
  if (first) need(w, 0, action);
  for (int64_t l = w->stages.first[k]; l < w->stages.first[k + 1]; l++) need(w, unit_of_layer(w, l), action);
  if (last) head(w, w->c->tied && !first, action);
  if (first && last && w->c->tied) w->needs[begun].last = w->n;
}

static void backward(struct walk *w, int64_t k, int action)
{
  if (k == w->stages.stages - 1) head(w, w->c->tied, action);
  for (int64_t l = w->stages.first[k + 1] - 1; l >= w->stages.first[k]; l--) need(w, unit_of_layer(w, l), action);
}

static bool is_end(const struct walk *w, int unit) { return unit == 0 || unit == w->n_units - 1; }

/* The place of need j's unit is still in use when need i comes up. */
static bool in_use(const struct walk *w, int j, int i)
{
  for (int before = j - 1; before >= 0 && is_end(w, w->needs[j].unit); before--)
    if (w->needs[before].unit == w->needs[j].unit) return w->needs[before].last > i;
  return false;
}

/* Need i comes up: room for all buckets of all needs. */
static int queue(const struct walk *w, int i, int next, const struct schedule_action *list, struct traffic_gather *out, int *n)
{
  for (; next < w->n && next <= i + w->c->prefetch && !in_use(w, next, i); next++) {
    const struct predicted_unit *u = &w->units[w->needs[next].unit];
    const int action = w->needs[i].action;
    for (int b = u->first_bucket + u->buckets - 1; b >= u->first_bucket; b--)
      out[(*n)++] = (struct traffic_gather){w->buckets[b], action, list[action].microbatch};
  }
  return next;
}

static enum err find_units(struct walk *w)
{
  const int64_t n = predict_buckets(w->c, w->at, NULL, 0);
  TRY(predict_units(w->c, w->at, &w->units, &w->n_units));
  w->buckets = calloc((size_t)n, sizeof *w->buckets);
  if (w->buckets == NULL) FAIL(ERR_MEMORY, "%lld buckets", (long long)n);
  predict_buckets(w->c, w->at, w->buckets, n);
  return ERR_OK;
}

static enum err find_needs(struct walk *w, const struct schedule *s)
{
  const int n = s->n[w->at->pp];
  w->needs = calloc((size_t)n * (size_t)(w->c->layers + 3), sizeof *w->needs);
  if (w->needs == NULL) FAIL(ERR_MEMORY, "needs of %d passes", n);
  for (int i = 0; i < n; i++) {
    const struct schedule_action *a = &s->list[w->at->pp][i];
    const int64_t k = a->chunk * w->c->pp + w->at->pp;
    if (a->pass == PASS_FORWARD) forward(w, k, i);
    if (a->pass == PASS_BACKWARD || a->pass == PASS_BACKWARD_INPUT) backward(w, k, i);
  }
  return ERR_OK;
}

enum err traffic_gathers(const struct run_config *c, const struct layout *at, const struct schedule *s,
                         struct traffic_gather **out, int *n)
{
  enum err err = ERR_OK;
  struct walk w = {.c = c, .at = at, .stages = predict_stages(c)};
  size_t room = 0;
  *out = NULL;
  *n = 0;
  TRY_TO(done, find_units(&w));
  TRY_TO(done, find_needs(&w, s));
  for (int i = 0; i < w.n; i++) room += (size_t)w.units[w.needs[i].unit].buckets;
  *out = calloc(room + 1, sizeof **out);
  if (*out == NULL) FAIL_TO(done, ERR_MEMORY, "%zu gathers", room);
  for (int i = 0, next = 0; i < w.n; i++) next = queue(&w, i, next, s->list[at->pp], *out, n);

done:
  free(w.needs);
  free(w.buckets);
  free(w.units);
  return err;
}
