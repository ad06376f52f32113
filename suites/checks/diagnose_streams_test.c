/* diagnose_streams_test.c - evidence bent as faults of shared state and of overlap bend it is named by its cause. */
#include "whole_test.h"

static struct whole w;

static struct run_config shared(int64_t zero)
{
  struct run_config c = made_config(2);
  c.zero = zero;
  c.reduce_each = zero >= 2 ? REDUCE_MICROBATCH : REDUCE_STEP;
  return c;
}

/* How it ended, its numbers, and lists of collectives as planned. */
static void setup(const struct run_config *c)
{
  whole_setup(&w, c);
  for (int64_t step = 0; step < c->steps; step++)
    for (int rank = 0; rank < config_ranks(c); rank++) made_calls(&w.b.run, rank, step);
  w.n = 2; /* ends, finite */
  w.checks[w.n++] = "trace";
}
static void teardown(void) { whole_teardown(&w); }

/* In every call of the list, on all ranks alike. */
static void replace(const char *from, const char *to)
{
  const struct run_config *c = &w.b.run.data.config;
  for (int64_t step = 0; step < c->steps; step++)
    for (int rank = 0; rank < config_ranks(c); rank++) {
      json_t *calls = json_object_get(made_at(&w.b.run, "trace", rank, step, -1), "got.calls");
      for (size_t i = 0; i < json_array_size(calls); i++) {
        const char *text = json_string_value(json_array_get(calls, i)), *at = strstr(text, from);
        char bent[160];
        if (at == NULL) continue;
        snprintf(bent, sizeof bent, "%.*s%s%s", (int)(at - text), text, to, at + strlen(from));
        json_array_set_new(calls, i, json_string(bent));
      }
    }
}

static void clean_runs_have_no_diagnosis(void)
{
  for (int zero = 0; zero <= 3; zero++) {
    const struct run_config c = shared(zero);
    setup(&c);
    CHECK(strcmp(whole_diagnose(&w), "") == 0);
    for (int i = 0; i < w.n; i++)
      if (!CHECK(w.list[i].outcome == OUTCOME_PASS)) fprintf(stderr, "%s: %s\n", w.checks[i], w.list[i].sentence);
    teardown();
  }
}

static void the_stream_of_a_collective_tells_what_it_cannot_run_beside(void)
{
  const struct run_config plain = shared(0), third = shared(3);
  setup(&plain);
  replace(" dp transfer ", " dp compute ");
  CHECK(whole_named(&w, FAULT_OV_SERIALISED_BY_CONNECTIONS));
  teardown();
  setup(&third);
  replace(" dp transfer ", " dp compute ");
  CHECK(whole_named(&w, FAULT_OV_SERIALISED_BY_CONNECTIONS));
  teardown();
  setup(&third);
  replace(" gather gather ", " gather transfer ");
  CHECK(whole_named(&w, FAULT_OV_ALLGATHER_NOT_OVERLAPPED));
  teardown();
  setup(&third); /* a type that nobody asked for is no matter of streams */
  replace(" gather gather float32 ", " gather gather bfloat16 ");
  CHECK(strcmp(whole_diagnose(&w), "") == 0);
  teardown();
}

/* One is queued by the pass that needs it, which is of another micro-batch than the one before. */
static void a_gather_that_comes_later_is_named_where_there_are_chunks(void)
{
  struct run_config c = shared(3);
  c.pp = 2;
  c.layers = 4;
  c.global_batch = 8;
  c.schedule = SCHEDULE_INTERLEAVED;
  c.reduce_each = REDUCE_STEP;
  for (int chunks = 1; chunks <= 2; chunks++) {
    c.chunks = chunks;
    if (chunks == 1) c.schedule = SCHEDULE_1F1B;
    else c.schedule = SCHEDULE_INTERLEAVED;
    whole_setup(&w, &c);
    for (int64_t step = 0; step < c.steps; step++)
      for (int rank = 0; rank < config_ranks(&c); rank++) made_calls(&w.b.run, rank, step);
    w.n = 0;
    w.checks[w.n++] = "trace";
    CHECK(strcmp(whole_diagnose(&w), "") == 0);
    for (int rank = 0; rank < config_ranks(&c); rank++) {
      json_t *calls = json_object_get(made_at(&w.b.run, "trace", rank, 0, -1), "got.calls");
      for (size_t i = json_array_size(calls); i-- > 0;) {
        char text[160];
        snprintf(text, sizeof text, "%s", json_string_value(json_array_get(calls, i)));
        char *last = strrchr(text, ' ');
        if (strstr(text, " gather gather ") == NULL) continue;
        const int number = atoi(last + 1), replica = number / 4; /* of the same replica, another */
        snprintf(last + 1, 16, "%d", 4 * replica + (number + 1) % 4);
        json_array_set_new(calls, i, json_string(text));
        break;
      }
    }
    if (chunks > 1) CHECK(whole_named(&w, FAULT_PP_ALIGNED_GATHER_ONLY_FIRST));
    else CHECK(strcmp(whole_diagnose(&w), "") == 0);
    teardown();
  }
}

/* In a gradient that stood in a slot; in one that did not, it is another's. */
static void a_gradient_of_poison_is_of_the_staging_where_there_is_one(void)
{
  for (int zero = 1; zero <= 3; zero++) {
    const struct run_config c = shared(zero);
    setup(&c);
    made_bend(&w.b.run, "gradients", 0, "ln_2.bias", NAN, 0.0);
    CHECK(whole_named(&w, zero >= 2 ? FAULT_OV_MEMORY_RECYCLED_BEFORE_USE : FAULT_Z_UNINITIALISED_COMM_BUFFER));
    teardown();
  }
}

int main(void)
{
  static const struct test tests[] = {
    TEST(clean_runs_have_no_diagnosis),
    TEST(the_stream_of_a_collective_tells_what_it_cannot_run_beside),
    TEST(a_gather_that_comes_later_is_named_where_there_are_chunks),
    TEST(a_gradient_of_poison_is_of_the_staging_where_there_is_one),
  };
  return test_main("diagnose_streams", tests, sizeof tests / sizeof *tests);
}
