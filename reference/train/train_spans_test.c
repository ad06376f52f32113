/* train_spans_test.c - the graph that a run records of its steps, and where planted slowness stands in it. */
#include "train/train_fixture.h"

#include <math.h>

/* Of one record: parallel lists. */
struct graph {
  const json_t *record;
  size_t n;
};

static struct graph graph_of(const json_t *records, int rank, int64_t step)
{
  struct graph g = {.record = fixture_find(records, "span", rank, step, 0)};
  if (CHECK(g.record != NULL)) g.n = json_array_size(json_object_get(g.record, "got.stream"));
  return g;
}

static int64_t whole(const struct graph *g, const char *key, size_t i)
{
  return json_integer_value(json_array_get(json_object_get(g->record, key), i));
}
static double real(const struct graph *g, const char *key, size_t i)
{
  return json_number_value(json_array_get(json_object_get(g->record, key), i));
}
static const char *name(const struct graph *g, const char *names, const char *key, size_t i)
{
  return json_string_value(json_array_get(json_object_get(g->record, names), (size_t)whole(g, key, i)));
}

/* Time that spans of this stream and phase (NULL: any) take; kernel NULL: any. */
static double spent_ms(const struct graph *g, const char *stream, const char *phase, const char *kernel)
{
  double ms = 0;
  for (size_t i = 0; i < g->n; i++)
    if (strcmp(name(g, "got.streams", "got.stream", i), stream) == 0 &&
        (phase == NULL || strcmp(name(g, "got.phases", "got.phase", i), phase) == 0) &&
        (kernel == NULL || strcmp(name(g, "got.kernels", "got.kernel", i), kernel) == 0))
      ms += real(g, "got.end_ms", i) - real(g, "got.start_ms", i);
  return ms;
}

static bool causes_come_first(const struct graph *g)
{
  const json_t *edges = json_object_get(g->record, "got.edges");
  bool first = json_array_size(edges) > 0;
  for (size_t e = 0; e + 1 < json_array_size(edges); e += 2) {
    const size_t span = (size_t)json_integer_value(json_array_get(edges, e)), before = (size_t)json_integer_value(json_array_get(edges, e + 1));
    const bool data = strcmp(name(g, "got.kernels", "got.kernel", before), "data") == 0; /* the host's clock is read before it queues */
    first = first && span < g->n && before < g->n && real(g, "got.end_ms", before) <= real(g, "got.ready_ms", span) + (data ? 0.01 : 0);
  }
  for (size_t i = 1; i < g->n; i++)
    if (whole(g, "got.stream", i) == whole(g, "got.stream", i - 1))
      first = first && real(g, "got.end_ms", i - 1) <= real(g, "got.ready_ms", i) + 0.01;
  return first;
}

/* Every collective of the step stands in one span, but gathers that go on into the next step. */
static bool calls_stand_once(const json_t *records, int rank, int64_t step, const struct graph *g)
{
  const json_t *calls = json_object_get(fixture_find(records, "trace", rank, step, 0), "got.calls");
  bool once = json_array_size(calls) > 0;
  for (size_t c = 0; c < json_array_size(calls); c++) {
    int seen = 0;
    for (size_t i = 0; i < g->n; i++) seen += whole(g, "got.call", i) == (int64_t)c;
    const bool gather = strstr(json_string_value(json_array_get(calls, c)), " gather gather ") != NULL;
    once = once && (seen == 1 || (gather && seen == 0));
  }
  return once;
}

static void what_was_waited_for_ended_before(void)
{
  static const struct {
    const char *name, *settings;
    int ranks;
  } runs[] = {{"replicas", "dp: 2\nbucket: 2304\ntrace_spans: true", 2},
              {"shared", "dp: 2\nzero: 3\nbucket: 2304\ntrace_spans: true", 2},
              {"cut", "tp: 2\npp: 2\nmicro_batch: 1\ntrace_spans: true\nsteps: 3\nevaluate_each: 1", 4},
              {"late", "dp: 2\ndevice: lazy\nlazy_seed: 4\nbucket: 2304\ntrace_spans: true", 2}};
  for (size_t k = 0; k < sizeof runs / sizeof *runs; k++) {
    fixture_run(runs[k].name, runs[k].settings);
    if (!CHECK(TRAIN(runs[k].ranks, runs[k].name) == 0)) continue;
    json_t *records = fixture_records(runs[k].name);
    for (int rank = 0; rank < runs[k].ranks; rank++)
      for (int64_t step = 0; step < 2; step++) {
        const struct graph g = graph_of(records, rank, step);
        if (!CHECK(g.n > 0)) continue;
        CHECK(causes_come_first(&g));
        CHECK(calls_stand_once(records, rank, step, &g));
      }
    CHECK(fixture_real(records, "clock", 1, -1, "got.error_ms") == 0); /* one host */
    json_decref(records);
  }
}

/* Passes sleep for 4 * 4 ms forward and twice that backward; 60 ms more on rank 1. */
static void planted_slowness_stands_in_its_phase_and_rank(void)
{
  static const struct {
    const char *name, *settings, *stream, *phase, *kernel;
    double usual_ms;
  } runs[] = {{"forward", "slow_phase: forward", "compute", "forward", NULL, 16},
              {"backward", "slow_phase: backward", "compute", "backward", NULL, 32},
              {"optimizer", "slow_phase: optimizer", "compute", "optimizer", NULL, 0},
              {"link", "slow_phase: link\nbucket: 2304", "transfer", NULL, NULL, 0},
              {"log", "slow_phase: log\nslow_every: 2", "host", NULL, "log", 0}};
  for (size_t k = 0; k < sizeof runs / sizeof *runs; k++) {
    char text[512];
    snprintf(text, sizeof text, "dp: 2\nglobal_batch: 4\nmicro_batch: 1\nlayers: 4\nsteps: 3\ntrace_spans: true\ncompute: sleep\nsleep_forward_ms: 2\n"
             "sleep_input_ms: 2\nsleep_weight_ms: 2\nslow_ms: 60\nslow_rank: 1\n%s", runs[k].settings);
    fixture_run(runs[k].name, text);
    if (!CHECK(TRAIN(2, runs[k].name) == 0)) continue;
    json_t *records = fixture_records(runs[k].name);
    const struct graph other = graph_of(records, 0, 2), slow = graph_of(records, 1, 2);
    const double own_ms = spent_ms(&slow, runs[k].stream, runs[k].phase, runs[k].kernel);
    CHECK(own_ms >= runs[k].usual_ms + 60);
    if (strcmp(runs[k].name, "link") != 0) /* there the other waits inside the next collective for what is late */
      CHECK(spent_ms(&other, runs[k].stream, runs[k].phase, runs[k].kernel) < own_ms - 30);
    json_decref(records);
  }
}

/* By a share of what it is; with compute: sleep too. */
static void a_percentage_stretches_a_pass(void)
{
  fixture_run("share", "dp: 2\nglobal_batch: 4\nmicro_batch: 1\nlayers: 4\ntrace_spans: true\ncompute: sleep\nsleep_forward_ms: 4\nslow_percent: 200\n"
                       "slow_rank: 1\nslow_phase: forward");
  if (!CHECK(TRAIN(2, "share") == 0)) return;
  json_t *records = fixture_records("share");
  const struct graph other = graph_of(records, 0, 1), slow = graph_of(records, 1, 1);
  CHECK(spent_ms(&slow, "compute", "forward", NULL) >= 96);
  CHECK(spent_ms(&other, "compute", "forward", NULL) < 80);
  json_decref(records);
}

int main(void)
{
  static const struct test tests[] = {
    TEST(what_was_waited_for_ended_before),
    TEST(planted_slowness_stands_in_its_phase_and_rank),
    TEST(a_percentage_stretches_a_pass),
  };
  return fixture_main("train_spans", tests, sizeof tests / sizeof *tests);
}
