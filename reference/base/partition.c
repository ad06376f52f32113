/* partition.c - layers dealt out to virtual stages: evenly, by cost, or as asked for. */
#include "base/partition.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* `layers` over the first n stages, the first ones with one more. */
static void share(struct partition *p, int n, int64_t layers)
{
  for (int k = 0; k < n; k++) p->first[k + 1] = p->first[k] + layers / n + (k < layers % n);
}

/* All layers cost the same, so only the last stage's number is to be chosen: each is tried. */
static void balance(const struct run_config *run, struct partition *p)
{
  const int64_t C = run->hidden, layer = C * (24 * C + 4 * run->sequence), head = 2 * C * run->vocab;
  const int others = p->stages - 1;
  int64_t best = 0, least = INT64_MAX;
  for (int64_t last = 1; last <= run->layers - others; last++) {
    const int64_t left = run->layers - last, end = last * layer + head;
    const int64_t largest = others > 0 ? (left + others - 1) / others * layer : 0;
    const int64_t cost = end > largest ? end : largest;
    if (cost <= least) {
      least = cost;
      best = last;
    }
  }
  if (others > 0) share(p, others, run->layers - best);
  p->first[p->stages] = run->layers;
}

/* "3,3,2" for 3 stages of 8 layers. */
static enum err read_list(const struct run_config *run, struct partition *p)
{
  const char *at = run->stages;
  int n = 0;
  for (bool more = true; more; n++) {
    char *end;
    errno = 0;
    const int64_t layers = strtoll(at, &end, 10);
    const char *digits = at + (*at == '-'); /* as for any number: no blank, no plus */
    if (*digits < '0' || *digits > '9' || errno || (*end != ',' && *end != '\0'))
      FAIL(ERR_CONFIG, "stages: '%s' is no list at '%s'; valid: even, auto, or %d numbers such as 3,3,2", run->stages, at, p->stages);
    if (layers < 1)
      FAIL(ERR_CONFIG, "stages: %s has a stage of %" PRId64 " layers; valid: 1 or more each", run->stages, layers);
    if (layers > run->layers)
      FAIL(ERR_CONFIG, "stages: %s has a stage of %" PRId64 " layers; the model has %" PRId64, run->stages, layers, run->layers);
    if (n < p->stages) p->first[n + 1] = p->first[n] + layers;
    more = *end == ',';
    at = end + 1;
  }
  if (n != p->stages)
    FAIL(ERR_CONFIG, "stages: %s are %d; valid: pp * chunks = %" PRId64 " * %" PRId64 " = %d of them", run->stages, n, run->pp,
         run->chunks, p->stages);
  if (p->first[n] != run->layers)
    FAIL(ERR_CONFIG, "stages: %s are %" PRId64 " layers together; valid: %" PRId64, run->stages, p->first[n], run->layers);
  return ERR_OK;
}

enum err partition_make(const struct run_config *run, struct partition *out)
{
  const int64_t stages = run->pp * run->chunks;
  if (stages > run->layers || stages > PARTITION_MAX)
    FAIL(ERR_CONFIG, "pp: %" PRId64 " ranks of %" PRId64 " chunks are %" PRId64 " stages; valid: at most %" PRId64
         " together, a layer or more for each", run->pp, run->chunks, stages, run->layers < PARTITION_MAX ? run->layers : PARTITION_MAX);
  struct partition p = {.stages = (int)stages};
  if (strcmp(run->stages, "even") == 0) share(&p, p.stages, run->layers);
  else if (strcmp(run->stages, "auto") == 0) balance(run, &p);
  else TRY(read_list(run, &p));
  *out = p;
  return ERR_OK;
}
