/* deal.c - longest processing time first, as many to each. */
#include "data/deal.h"

#include <stdlib.h>

struct lot {
  double cost;
  int64_t number, rank;
};

static int by_cost(const void *a, const void *b)
{
  const struct lot *x = a, *y = b;
  if (x->cost != y->cost) return x->cost < y->cost ? 1 : -1;
  return x->number < y->number ? -1 : x->number > y->number;
}

static int by_rank(const void *a, const void *b)
{
  const struct lot *x = a, *y = b;
  if (x->rank != y->rank) return x->rank < y->rank ? -1 : 1;
  return x->number < y->number ? -1 : x->number > y->number;
}

enum err deal(const double *cost, int64_t n, int64_t ranks, int32_t *order)
{
  enum err err = ERR_OK;
  struct lot *lots = malloc((size_t)n * sizeof *lots);
  double *load = calloc((size_t)ranks, sizeof *load);
  int64_t *has = calloc((size_t)ranks, sizeof *has);
  if (lots == NULL || load == NULL || has == NULL) FAIL_TO(free_lots, ERR_MEMORY, "data plan: dealing %lld sequences", (long long)n);
  for (int64_t i = 0; i < n; i++) lots[i] = (struct lot){cost[i], i, 0};
  qsort(lots, (size_t)n, sizeof *lots, by_cost);
  for (int64_t i = 0; i < n; i++) {
    int64_t best = -1;
    for (int64_t r = 0; r < ranks; r++)
      if (has[r] < n / ranks && (best < 0 || load[r] < load[best])) best = r;
    lots[i].rank = best;
    load[best] += lots[i].cost;
    has[best]++;
  }
  qsort(lots, (size_t)n, sizeof *lots, by_rank);
  for (int64_t i = 0; i < n; i++) order[i] = (int32_t)lots[i].number;

free_lots:
  free(lots);
  free(load);
  free(has);
  return err;
}
