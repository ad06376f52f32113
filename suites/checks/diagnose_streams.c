/* diagnose_streams.c - signatures of faults of state that replicas share, and of what is to overlap. */
#include "signs.h"

#include <stdio.h>
#include <string.h>

/* The failed plan of that group, or NULL. */
static const struct verdict *plan_of(const struct signs *s, const char *group)
{
  char place[48];
  const struct verdict *trace = signs_failed(s, "trace");
  snprintf(place, sizeof place, "plan of group %s ", group);
  return trace != NULL && strstr(trace->worst, place) ? trace : NULL;
}

bool streams_reductions_are_in_compute(const struct signs *s)
{
  const struct verdict *dp = plan_of(s, "dp");
  return dp != NULL && strstr(dp->sentence, " dp compute ");
}

bool streams_gathers_are_with_reductions(const struct signs *s)
{
  const struct verdict *gather = plan_of(s, "gather");
  return gather != NULL && strstr(gather->sentence, " gather transfer ");
}

/* All gathers are there, each on its stream; but one was queued by a later pass than planned. */
bool streams_later_chunks_are_not_gathered_ahead(const struct signs *s)
{
  const struct verdict *gather = plan_of(s, "gather");
  return gather != NULL && s->run->config.chunks > 1 && strstr(gather->sentence, " gather gather ");
}

/* Of a gradient that was staged on its way. */
bool streams_staging_was_poisoned(const struct signs *s)
{
  const struct run_config *c = &s->run->config;
  const struct verdict *finite = signs_failed(s, "finite");
  const bool stages = c->zero >= 2 && c->dp > 1 && c->reduce_each == REDUCE_MICROBATCH;
  return stages && finite != NULL && strcmp(finite->observable, "O4") == 0;
}

/* More parameters than the shard and the places that prefetch asks for. */
bool streams_weights_are_gathered_without_limit(const struct signs *s)
{
  const struct verdict *memory = signs_failed(s, "memory");
  double got, formula;
  if (memory == NULL || s->run->config.zero != 3) return false;
  return sscanf(memory->worst, "parameters of rank %*d: %lf bytes, formula %lf", &got, &formula) == 2 && got > formula;
}
