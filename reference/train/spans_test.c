/* spans_test.c - the graph of a step, from intervals made by hand. */
#include "testing/check.h"
#include "train/spans.h"

#include <string.h>

/* compute: fill, forward of two pieces, backward cut where transfer waits for it and where it waits for scalar, update
 * behind the reduction; gather: one piece of the step before, one of this. */
static const struct dev_edge counted = {"scalar", 2}, computed = {"compute", 5}, reduced = {"transfer", 2}, old = {"gather", 3};
static const struct dev_interval list[] = {
  {.stream = "gather", .kernel = "allgather", .step = 6, .number = 3, .ready_ms = 8, .start_ms = 8, .end_ms = 11},
  {.stream = "compute", .kernel = "fill", .phase = DEV_PHASE_OTHER, .step = 7, .microbatch = -1, .action = -1, .number = 2, .ready_ms = 12, .start_ms = 12, .end_ms = 13, .edges = &old, .n_edges = 1},
  {.stream = "scalar", .kernel = "copy_in", .phase = DEV_PHASE_DATA, .step = 7, .microbatch = -1, .action = -1, .number = 1, .ready_ms = 12, .start_ms = 12, .end_ms = 13.5},
  {.stream = "compute", .kernel = "copy_in", .phase = DEV_PHASE_FORWARD, .step = 7, .microbatch = 4, .action = 0, .number = 3, .ready_ms = 13, .start_ms = 13, .end_ms = 14},
  {.stream = "scalar", .kernel = "allreduce", .phase = DEV_PHASE_DATA, .step = 7, .microbatch = -1, .action = -1, .number = 2, .ready_ms = 13.5, .start_ms = 13.5, .end_ms = 15},
  {.stream = "compute", .kernel = "matmul", .phase = DEV_PHASE_FORWARD, .step = 7, .microbatch = 4, .action = 0, .number = 4, .ready_ms = 14, .start_ms = 14, .end_ms = 17},
  {.stream = "compute", .kernel = "matmul", .phase = DEV_PHASE_BACKWARD, .step = 7, .microbatch = 4, .action = 1, .number = 5, .ready_ms = 17, .start_ms = 17, .end_ms = 20},
  {.stream = "compute", .kernel = "reciprocal", .phase = DEV_PHASE_BACKWARD, .step = 7, .microbatch = 4, .action = 1, .number = 7, .ready_ms = 20, .start_ms = 20, .end_ms = 21, .edges = &counted, .n_edges = 1},
  {.stream = "compute", .kernel = "gelu", .phase = DEV_PHASE_BACKWARD, .step = 7, .microbatch = 4, .action = 1, .number = 8, .ready_ms = 21, .start_ms = 21, .end_ms = 23},
  {.stream = "transfer", .kernel = "allreduce", .phase = DEV_PHASE_BACKWARD, .step = 7, .microbatch = 4, .action = 1, .number = 2, .ready_ms = 20, .start_ms = 20, .end_ms = 25, .edges = &computed, .n_edges = 1},
  {.stream = "compute", .kernel = "adamw", .phase = DEV_PHASE_OPTIMIZER, .step = 7, .microbatch = -1, .action = -1, .number = 10, .ready_ms = 25, .start_ms = 25, .end_ms = 27, .edges = &reduced, .n_edges = 1},
  {.stream = "gather", .kernel = "allgather", .phase = DEV_PHASE_OPTIMIZER, .step = 7, .microbatch = -1, .action = -1, .number = 5, .ready_ms = 27, .start_ms = 27, .end_ms = 28},
};
static const struct comm_call calls[] = {
  {.op = "allreduce", .group = "sums", .stream = "scalar", .sequence = 8},
  {.op = "allreduce", .group = "dp", .stream = "transfer", .sequence = 8},
  {.op = "allgather", .group = "gather", .stream = "gather", .sequence = 7},
  {.op = "allgather", .group = "gather", .stream = "gather", .sequence = 8}, /* not done yet */
};
static const char *const awaited[] = {"compute", "transfer", "scalar"};
static const struct step_clock at = {.begin_ms = 10, .data_ms = 2, .end_ms = 29};

static struct spans_of of_list(const struct span_marks *marks)
{
  return (struct spans_of){.list = list, .n = sizeof list / sizeof *list, .calls = calls, .n_calls = 4, .step = 7, .clock = &at,
                           .marks = marks, .awaited = awaited, .n_awaited = 3};
}

static int find(const struct spans *s, const char *stream, double start_ms)
{
  for (int i = 0; i < s->n; i++)
    if (strcmp(s->streams[s->list[i].stream], stream) == 0 && s->list[i].start_ms == start_ms) return i;
  return -1;
}

static bool linked(const struct spans *s, int span, int before)
{
  for (int64_t e = 0; e < s->n_edges; e++)
    if (s->edges[2 * e] == span && s->edges[2 * e + 1] == before) return span >= 0 && before >= 0;
  return false;
}

static void pieces_merge_up_to_the_knots_of_the_graph(void)
{
  struct span_marks marks = {0};
  struct spans s;
  spans_restart(&marks, 5);
  spans_mark(&marks, "log", 7);
  spans_mark(&marks, "log", 8);
  spans_mark(&marks, "evaluate", 10);
  const struct spans_of of = of_list(&marks);
  CHECK_OK(spans_make(&of, &s));
  CHECK(s.n == 4 + 5 + 2 + 2 + 1); /* host, compute, gather, scalar, transfer */
  const int forward = find(&s, "compute", 13), first = find(&s, "compute", 17), second = find(&s, "compute", 20);
  if (CHECK(forward >= 0 && first >= 0 && second >= 0)) {
    CHECK(strcmp(s.list[forward].kernel, "matmul") == 0 && s.list[forward].end_ms == 17 && s.list[forward].busy_ms == 4 && s.list[forward].microbatch == 4);
    CHECK(s.list[first].end_ms == 20 && s.list[first].busy_ms == 3 && s.list[first].phase == DEV_PHASE_BACKWARD && s.list[first].action == 1);
    CHECK(strcmp(s.list[second].kernel, "gelu") == 0 && s.list[second].end_ms == 23 && s.list[second].call == SPAN_WORK);
  }
  for (int i = 1; i < s.n; i++) CHECK(s.list[i].stream != s.list[i - 1].stream || s.list[i].start_ms >= s.list[i - 1].end_ms);
  spans_free(&s);
}

static void edges_lead_to_what_was_waited_for(void)
{
  struct span_marks marks = {0};
  struct spans s;
  const struct spans_of of = of_list(&marks);
  CHECK_OK(spans_make(&of, &s));
  const int data = find(&s, "host", 10), end = find(&s, "host", 29), fill = find(&s, "compute", 12);
  const int scalar = find(&s, "scalar", 13.5), transfer = find(&s, "transfer", 20), update = find(&s, "compute", 25);
  CHECK(linked(&s, fill, data) && linked(&s, find(&s, "scalar", 12), data) && linked(&s, transfer, data));
  CHECK(linked(&s, fill, find(&s, "gather", 8)));
  CHECK(linked(&s, find(&s, "compute", 20), scalar));
  CHECK(linked(&s, transfer, find(&s, "compute", 17)));
  CHECK(linked(&s, update, transfer));
  CHECK(linked(&s, end, update) && linked(&s, end, scalar) && linked(&s, end, transfer));
  CHECK(!linked(&s, end, find(&s, "gather", 27)) && !linked(&s, find(&s, "gather", 8), data) && linked(&s, find(&s, "gather", 27), data));
  CHECK(s.n_edges == 4 + 4 + 3);
  spans_free(&s);
}

static void a_collective_says_which_call_it_is(void)
{
  struct span_marks marks = {0};
  struct spans s;
  const struct spans_of of = of_list(&marks);
  CHECK_OK(spans_make(&of, &s));
  const int here[] = {find(&s, "scalar", 13.5), find(&s, "transfer", 20), find(&s, "gather", 27), find(&s, "gather", 8)};
  for (int i = 0; i < 4; i++)
    if (CHECK(here[i] >= 0)) CHECK(s.list[here[i]].call == (i < 3 ? i : SPAN_EARLIER));
  spans_free(&s);
}

/* On a CUDA device a slow link is a piece of its own behind the collective, which then ended that much later. */
static void what_holds_a_collective_back_is_its_end(void)
{
  const struct dev_interval held[] = {
    {.stream = "transfer", .kernel = "allreduce", .phase = DEV_PHASE_BACKWARD, .step = 7, .number = 1, .ready_ms = 12, .start_ms = 12, .end_ms = 13},
    {.stream = "transfer", .kernel = COMM_HOLD, .phase = DEV_PHASE_BACKWARD, .step = 7, .number = 2, .ready_ms = 13, .start_ms = 13, .end_ms = 20},
    {.stream = "transfer", .kernel = "cast", .phase = DEV_PHASE_BACKWARD, .step = 7, .number = 3, .ready_ms = 20, .start_ms = 20, .end_ms = 21},
    {.stream = "transfer", .kernel = COMM_HOLD, .phase = DEV_PHASE_BACKWARD, .step = 7, .number = 4, .ready_ms = 21, .start_ms = 21, .end_ms = 22},
  };
  const struct comm_call call = {.op = "allreduce", .group = "dp", .stream = "transfer", .sequence = 8};
  struct span_marks marks = {0};
  struct spans s;
  const struct spans_of of = {.list = held, .n = 4, .calls = &call, .n_calls = 1, .step = 7, .clock = &at, .marks = &marks, .awaited = awaited, .n_awaited = 2};
  CHECK_OK(spans_make(&of, &s));
  const int reduction = find(&s, "transfer", 12), after = find(&s, "transfer", 20);
  if (CHECK(s.n == 2 + 2 && reduction >= 0 && after >= 0)) {
    CHECK(s.list[reduction].call == 0 && s.list[reduction].end_ms == 20 && strcmp(s.list[reduction].kernel, "allreduce") == 0);
    CHECK(s.list[after].call == SPAN_WORK && s.list[after].end_ms == 22);
  }
  spans_free(&s);
}

static void a_collective_without_an_interval_is_refused(void)
{
  struct span_marks marks = {0};
  struct spans s;
  struct spans_of of = of_list(&marks);
  of.n -= 3; /* the reduction did not leave one */
  CHECK_ERR(spans_make(&of, &s), ERR_ARG);
  CHECK_TEXT_HAS(err_text(), "allreduce #8 of dp left no interval on stream transfer");
  CHECK(s.list == NULL);
}

/* A rank with nothing on its device still says when its step was. */
static void a_step_without_work_has_the_hosts_spans(void)
{
  struct span_marks marks = {0};
  struct spans s;
  const struct spans_of of = {.clock = &at, .marks = &marks};
  CHECK_OK(spans_make(&of, &s));
  if (CHECK(s.n == 2 && s.n_edges == 0 && s.n_streams == 1)) {
    CHECK(strcmp(s.list[0].kernel, "data") == 0 && s.list[0].start_ms == 10 && s.list[0].end_ms == 12);
    CHECK(strcmp(s.list[1].kernel, "end") == 0 && s.list[1].end_ms == 29);
  }
  spans_free(&s);
}

int main(void)
{
  static const struct test tests[] = {
    TEST(pieces_merge_up_to_the_knots_of_the_graph),
    TEST(edges_lead_to_what_was_waited_for),
    TEST(a_collective_says_which_call_it_is),
    TEST(what_holds_a_collective_back_is_its_end),
    TEST(a_collective_without_an_interval_is_refused),
    TEST(a_step_without_work_has_the_hosts_spans),
  };
  return test_main("spans", tests, sizeof tests / sizeof *tests);
}
