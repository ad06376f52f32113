/* say_spans.c - the record of a step's spans. */
#include "train/say.h"

#include <stdlib.h>

/* Names, each once, in the order in which they come. */
struct names {
  const char **list;
  int n;
};
static int64_t name_at(struct names *names, const char *name)
{
  for (int i = 0; i < names->n; i++)
    if (names->list[i] == name) return i; /* literals: a second one of the same text is only said twice */
  names->list[names->n] = name;
  return names->n++;
}

static void say_names(struct record_file *f, const struct spans *s)
{
  const char *phases[DEV_PHASES];
  for (int i = 0; i < DEV_PHASES; i++) phases[i] = dev_phase_name((enum dev_phase)i);
  record_texts(f, "got.streams", s->streams, s->n_streams);
  record_texts(f, "got.phases", phases, DEV_PHASES);
}

/* ints: room for n; reals as well. */
static void say_columns(struct record_file *f, const struct spans *s, double offset_ms, struct names *kernels, int64_t *ints, double *reals)
{
#define INTS(key, value)                                    \
  do {                                                      \
    for (int i = 0; i < s->n; i++) ints[i] = (value);       \
    record_ints(f, key, ints, s->n);                        \
  } while (0)
#define REALS(key, value)                                                       \
  do {                                                                          \
    for (int i = 0; i < s->n; i++) reals[i] = (value);                          \
    record_reals(f, key, reals, s->n);                                          \
  } while (0)
  INTS("got.kernel", name_at(kernels, s->list[i].kernel));
  record_texts(f, "got.kernels", kernels->list, kernels->n);
  INTS("got.stream", s->list[i].stream);
  INTS("got.phase", s->list[i].phase);
  INTS("got.microbatch", s->list[i].microbatch);
  INTS("got.action", s->list[i].action);
  INTS("got.call", s->list[i].call);
  REALS("got.ready_ms", s->list[i].ready_ms + offset_ms);
  REALS("got.start_ms", s->list[i].start_ms + offset_ms);
  REALS("got.end_ms", s->list[i].end_ms + offset_ms);
  REALS("got.busy_ms", s->list[i].busy_ms);
#undef REALS
#undef INTS
}

static enum err say(const struct output *o, int64_t step, const struct spans *s)
{
  struct record_file *f = o->records;
  const size_t n = (size_t)s->n;
  int64_t *ints = malloc(n * sizeof *ints);
  double *reals = malloc(n * sizeof *reals);
  struct names kernels = {.list = malloc(n * sizeof(const char *))};
  enum err err = ERR_OK;
  if (ints == NULL || reals == NULL || kernels.list == NULL) FAIL_TO(done, ERR_MEMORY, "record of %d spans", s->n);
  record_begin(f, "span", step, -1);
  say_names(f, s);
  say_columns(f, s, o->clock_offset_ms, &kernels, ints, reals);
  record_ints(f, "got.edges", s->edges, 2 * s->n_edges);
  TRY_TO(done, record_end(f));

done:
  free(kernels.list);
  free(reals);
  free(ints);
  return err;
}

enum err say_spans(const struct trainer *t, const struct output *o, int64_t step, const struct step_clock *clock,
                   const struct span_marks *marks, const struct dev_interval *list, int64_t n)
{
  struct spans s;
  const char *awaited[TRAINER_AWAITED];
  struct spans_of of = {.list = list, .n = n, .step = step, .clock = clock, .marks = marks, .awaited = awaited,
                        .n_awaited = trainer_awaited(t, awaited)};
  of.calls = comm_trace(t->world, &of.n_calls);
  TRY(spans_make(&of, &s));
  const enum err err = say(o, step, &s);
  spans_free(&s);
  return err;
}
