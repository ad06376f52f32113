/* timeline_test.c - trace.json of steps made by hand, held against the format and against what happened. */
#include "harness/timeline.h"

#include "suites/checks/made_steps_test.h"

#include <math.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

static char dir[64];

static const char *path_of(const char *name)
{
  static char path[128];
  snprintf(path, sizeof path, "%s/%s", dir, name);
  return path;
}

static bool exists(const char *name) { return access(path_of(name), F_OK) == 0; }

/* --- steps of two ranks ----------------------------------------------------------------- */

/* Rank 1 is 7 ms late for the first reduction, rank 0 3 ms for the second. */
static void replicas(struct made_step *s)
{
  for (int r = 0; r < 2; r++) {
    meet(s, r, SCALAR, "allreduce sums", 1, 0.5, -1);
    task(s, r, COMPUTE, "forward", r == 1 ? 27 : 20, -1);
    const int half = task(s, r, COMPUTE, "backward", 20, -1), rest = task(s, r, COMPUTE, "backward", r == 0 ? 30 : 20, -1);
    meet(s, r, TRANSFER, "allreduce dp", 2, 2, half);
    task(s, r, COMPUTE, "optimizer", 5, meet(s, r, TRANSFER, "allreduce dp", 3, 2, rest));
  }
}

static void stages(struct made_step *s)
{
  const int out = meet(s, 0, OUTPUTS, "send outputs", 1, 1, task(s, 0, COMPUTE, "forward", 10, -1));
  s->tasks[0][out].leaves = true;
  const int in = meet(s, 1, OUTPUTS, "recv outputs", 1, 1, -1);
  task(s, 1, COMPUTE, "forward", 10, in);
}

static struct made made;

/* `off` is what rank 1's clock is behind at the end of the run, in ms. */
static void make(int pp, int64_t steps, double off, void (*fill)(struct made_step *))
{
  double end[2] = {0, 0};
  made = (struct made){.records = json_array()};
  config_default(&made.data.config);
  made.data.config.dp = pp == 1 ? 2 : 1;
  made.data.config.pp = pp;
  made.data.config.steps = steps;
  made.data.config.trace_spans = true;
  snprintf(made.data.config.name, sizeof made.data.config.name, "made");
  snprintf(made.data.dir, sizeof made.data.dir, "%s", dir);
  made.data.records = made.records;
  for (int64_t step = 0; step < steps; step++) {
    static struct made_step s;
    double begin[2];
    memset(&s, 0, sizeof s);
    fill(&s);
    for (int r = 0; r < 2; r++) begin[r] = end[r] + 1.5;
    made_play(&s, 2, begin);
    for (int r = 0; r < 2; r++) end[r] = made_tell(&made, &s, r, step, end[r], 1, 0.5, 0);
  }
  for (int r = 0; r < 2; r++) {
    json_t *clock = made_record(&made, "clock", r, -1, -1);
    json_object_set_new(clock, "got.start_ms", json_real(0));
    json_object_set_new(clock, "got.start_offset_ms", json_real(0));
    json_object_set_new(clock, "got.end_ms", json_real(end[0]));
    json_object_set_new(clock, "got.end_offset_ms", json_real(r ? off : 0));
    json_object_set_new(clock, "got.error_ms", json_real(0));
  }
}

static json_t *load(void)
{
  json_error_t why;
  json_t *all = json_load_file(path_of("trace.json"), 0, &why);
  if (!CHECK(all != NULL)) fprintf(stderr, "line %d: %s\n", why.line, why.text);
  return all;
}

/* --- the format --------------------------------------------------------------------------- */

static const char *text(const json_t *e, const char *key)
{
  const char *said = json_string_value(json_object_get(e, key));
  return said ? said : "";
}
static double number(const json_t *e, const char *key)
{
  const json_t *value = json_object_get(e, key);
  return json_is_number(value) ? json_number_value(value) : NAN;
}
static bool is(const json_t *e, const char *phase) { return strcmp(text(e, "ph"), phase) == 0; }
static bool same(const json_t *a, const json_t *b, const char *key) { return json_equal(json_object_get(a, key), json_object_get(b, key)); }
static bool one_thread(const json_t *a, const json_t *b) { return same(a, b, "pid") && same(a, b, "tid"); }

static int count(const json_t *events, const char *phase, const char *name)
{
  int n = 0;
  for (size_t i = 0; i < json_array_size(events); i++) {
    const json_t *e = json_array_get(events, i);
    n += is(e, phase) && (name == NULL || strcmp(text(e, "name"), name) == 0);
  }
  return n;
}

/* The innermost slice that holds an instant of its thread; NULL: none. */
static const json_t *slice_at(const json_t *events, const json_t *e)
{
  const double ts = number(e, "ts");
  const json_t *found = NULL;
  for (size_t i = 0; i < json_array_size(events); i++) {
    const json_t *x = json_array_get(events, i);
    if (!is(x, "X") || !one_thread(x, e) || number(x, "ts") > ts || ts >= number(x, "ts") + number(x, "dur")) continue;
    if (found == NULL || number(x, "ts") >= number(found, "ts")) found = x;
  }
  return found;
}

/* Metadata of that kind with what it says, of e's process, and of its thread if it is one's. */
static bool has_metadata(const json_t *events, const json_t *e, const char *kind, const char *key)
{
  for (size_t i = 0; i < json_array_size(events); i++) {
    const json_t *m = json_array_get(events, i);
    if (is(m, "M") && strcmp(text(m, "name"), kind) == 0 && same(m, e, "pid") && (strncmp(kind, "process", 7) == 0 || same(m, e, "tid")) &&
        json_object_get(json_object_get(m, "args"), key))
      return true;
  }
  return false;
}

static bool slice_is_whole(const json_t *events, const json_t *e)
{
  bool good = number(e, "ts") >= 0 && number(e, "dur") >= 0 && *text(e, "name") && *text(e, "cat") && json_is_object(json_object_get(e, "args"));
  good = good && has_metadata(events, e, "process_name", "name") && has_metadata(events, e, "process_sort_index", "sort_index");
  good = good && has_metadata(events, e, "thread_name", "name") && has_metadata(events, e, "thread_sort_index", "sort_index");
  const double from = number(e, "ts"), to = from + number(e, "dur"), least = 1e-6; /* below a nanosecond */
  for (size_t i = 0; good && i < json_array_size(events); i++) { /* slices of one thread lie side by side, or a transfer in its call */
    const json_t *x = json_array_get(events, i);
    const double first = number(x, "ts"), last = first + number(x, "dur");
    if (x == e || !is(x, "X") || !one_thread(x, e) || last <= from + least || to <= first + least) continue;
    const bool inside = first > from && last <= to + least, around = first < from && to <= last + least;
    good = (inside && strcmp(text(x, "name"), "transfer") == 0) || (around && strcmp(text(e, "name"), "transfer") == 0);
  }
  return good;
}

/* A start has one end, both inside slices of other ranks, the second of which begins later. */
static bool flow_is_whole(const json_t *events, const json_t *s)
{
  const json_t *end = NULL;
  int ends = 0, starts = 0;
  for (size_t i = 0; i < json_array_size(events); i++) {
    const json_t *x = json_array_get(events, i);
    if ((!is(x, "f") && !is(x, "s")) || !same(x, s, "id")) continue;
    starts += is(x, "s");
    ends += is(x, "f");
    if (is(x, "f")) end = x;
  }
  return starts == 1 && ends == 1 && same(s, end, "name") && same(s, end, "cat") && strcmp(text(end, "bp"), "e") == 0 && !same(s, end, "pid") &&
         slice_at(events, s) && slice_at(events, end) && number(slice_at(events, end), "ts") > number(slice_at(events, s), "ts");
}

static bool follows_the_format(const json_t *all)
{
  const json_t *events = json_object_get(all, "traceEvents");
  bool good = json_is_array(events) && strcmp(text(all, "displayTimeUnit"), "ms") == 0;
  for (size_t i = 0; good && i < json_array_size(events); i++) {
    const json_t *e = json_array_get(events, i);
    good = number(e, "pid") > 0 && number(e, "tid") > 0 && *text(e, "name");
    if (is(e, "X")) good = good && slice_is_whole(events, e);
    else if (is(e, "s")) good = good && flow_is_whole(events, e);
    else if (is(e, "i")) good = good && number(e, "ts") >= 0 && strcmp(text(e, "s"), "t") == 0 && has_metadata(events, e, "thread_name", "name");
    else good = good && (is(e, "M") || is(e, "f"));
    if (!good) {
      char *said = json_dumps(e, JSON_COMPACT);
      fprintf(stderr, "%s\n", said);
      free(said);
    }
  }
  return good && count(events, "s", NULL) == count(events, "f", NULL);
}

/* --- tests ----------------------------------------------------------------------------------- */

static void a_trace_follows_the_format(void)
{
  for (int pp = 1; pp <= 2; pp++) {
    make(pp, 3, 0, pp == 1 ? replicas : stages);
    if (!CHECK_OK(timeline_write(&made.data))) return;
    json_t *all = load();
    const json_t *events = json_object_get(all, "traceEvents");
    CHECK(follows_the_format(all));
    CHECK(count(events, "M", "process_name") == 2 && count(events, "X", "data") == 6);
    CHECK(count(events, "X", NULL) == 3 * (4 + (pp == 1 ? 14 + 3 : 4 + 1)) && count(events, "i", "end") == 6);
    CHECK(count(events, "s", NULL) == 3 * (pp == 1 ? 3 : 1));
    CHECK(!exists("trace.json.tmp"));
    json_decref(all);
    json_decref(made.records);
  }
}

/* Times, phases, calls of one step, by what was made. */
static void a_slice_says_what_it_is(void)
{
  make(1, 1, 0, replicas);
  CHECK_OK(timeline_write(&made.data));
  json_t *all = load();
  const json_t *events = json_object_get(all, "traceEvents");
  int seen = 0;
  for (size_t i = 0; i < json_array_size(events); i++) {
    const json_t *e = json_array_get(events, i), *args = json_object_get(e, "args");
    if (is(e, "X") && number(e, "pid") == 2 && strcmp(text(e, "name"), "forward") == 0) {
      CHECK(strcmp(text(e, "cat"), "forward") == 0 && number(e, "ts") == 1500 && number(e, "dur") == 27000 && number(args, "step") == 0);
      seen++;
    }
    if (is(e, "X") && number(e, "pid") == 1 && strcmp(text(e, "name"), "allreduce dp") == 0 && number(args, "sequence") == 2) {
      CHECK(number(e, "ts") == 41500 && number(e, "dur") == 9000); /* 20 + 20; the other 47, and 2 of transfer */
      CHECK(number(args, "bytes") == 4 && number(args, "count") == 1 && strcmp(text(args, "type"), "float32") == 0 && strcmp(text(args, "group"), "dp") == 0);
      seen++;
    }
    if (is(e, "M") && strcmp(text(e, "name"), "process_name") == 0) CHECK_TEXT_HAS(text(args, "name"), number(e, "pid") == 1 ? "rank 0: dp 0, tp 0, pp 0" : "rank 1: dp 1");
  }
  CHECK(seen == 2);
  json_decref(all);
  json_decref(made.records);
}

/* From whoever came last, and from a sender to its receiver, which was there before. */
static void a_flow_comes_from_whom_was_waited_for(void)
{
  make(1, 1, 0, replicas);
  CHECK_OK(timeline_write(&made.data));
  json_t *all = load();
  const json_t *events = json_object_get(all, "traceEvents");
  int from_rank[2] = {0, 0};
  for (size_t i = 0; i < json_array_size(events); i++) {
    const json_t *s = json_array_get(events, i);
    if (!is(s, "s") || strcmp(text(slice_at(events, s), "name"), "allreduce dp") != 0) continue;
    const double sequence = number(json_object_get(slice_at(events, s), "args"), "sequence");
    CHECK(number(s, "pid") == (sequence == 2 ? 2 : 1));
    from_rank[(int)number(s, "pid") - 1]++;
  }
  CHECK(from_rank[0] == 1 && from_rank[1] == 1);
  json_decref(all);
  json_decref(made.records);

  make(2, 1, 0, stages);
  CHECK_OK(timeline_write(&made.data));
  all = load();
  events = json_object_get(all, "traceEvents");
  for (size_t i = 0; i < json_array_size(events); i++) {
    const json_t *e = json_array_get(events, i);
    if (is(e, "s")) CHECK(number(e, "pid") == 1 && number(e, "ts") == 11500 && strcmp(text(slice_at(events, e), "name"), "send outputs") == 0);
    if (is(e, "f")) CHECK(number(e, "pid") == 2 && number(e, "ts") == 11500.001 && strcmp(text(slice_at(events, e), "name"), "transfer") == 0);
    if (is(e, "X") && strcmp(text(e, "name"), "transfer") == 0) CHECK_NEAR(number(e, "dur"), 999.999, 1e-6); /* the receiver was there before */
  }
  json_decref(all);
  json_decref(made.records);
}

/* Half of what the clock was off at the end, half way. */
static void drift_is_taken_out(void)
{
  make(1, 2, 10, replicas);
  CHECK_OK(timeline_write(&made.data));
  json_t *all = load();
  const json_t *events = json_object_get(all, "traceEvents");
  double ts[2] = {0, 0};
  for (size_t i = 0; i < json_array_size(events); i++) {
    const json_t *e = json_array_get(events, i);
    if (is(e, "X") && strcmp(text(e, "name"), "data") == 0 && number(json_object_get(e, "args"), "step") == 1) ts[(int)number(e, "pid") - 1] = number(e, "ts");
  }
  CHECK(ts[0] > 0);
  const double first_ms = ts[0] / 1000 - 1; /* length of the first step; of both twice that */
  CHECK_NEAR(ts[1] - ts[0], 10 * ts[0] / (2 * first_ms), 0.01);
  json_decref(all);
  json_decref(made.records);
}

/* What a killed rank did not tell is not drawn, nor guessed. */
static void a_step_that_one_rank_did_not_tell_of_has_no_flows(void)
{
  make(1, 2, 0, replicas);
  for (size_t i = json_array_size(made.records); i-- > 0;) {
    const json_t *r = json_array_get(made.records, i);
    if (record_get_int(r, "rank", -1) == 1 && record_get_int(r, "step", -1) == 1) json_array_remove(made.records, i);
  }
  CHECK_OK(timeline_write(&made.data));
  json_t *all = load();
  const json_t *events = json_object_get(all, "traceEvents");
  CHECK(follows_the_format(all));
  CHECK(count(events, "s", NULL) == 3 && count(events, "X", "data") == 3);
  CHECK_TEXT_HAS(text(json_object_get(all, "otherData"), "flows"), "step 1 has no flows: rank 1 told no");
  json_decref(all);
  json_decref(made.records);
}

/* Records need not be ours. */
static void strange_records_make_no_strange_json(void)
{
  make(1, 1, 0, replicas);
  json_t *span = (json_t *)json_array_get(made.records, 0);
  CHECK(strcmp(record_get_text(span, "kind"), "span") == 0);
  json_array_set_new(json_object_get(span, "got.kernels"), 0, json_string("a \"quoted\"\n\\ name"));
  json_array_set_new(json_object_get(span, "got.stream"), 1, json_integer(77));
  json_array_set_new(json_object_get(span, "got.kernel"), 2, json_string("none"));
  json_object_set_new(span, "got.phases", json_integer(3));
  CHECK_OK(timeline_write(&made.data));
  json_t *all = load();
  CHECK(json_array_size(json_object_get(all, "traceEvents")) > 20);
  CHECK(count(json_object_get(all, "traceEvents"), "X", "a \"quoted\"\n\\ name") == 1);
  json_decref(all);
  json_decref(made.records);
}

static void without_spans_there_is_no_file_and_without_room_an_error(void)
{
  unlink(path_of("trace.json"));
  make(1, 0, 0, replicas);
  CHECK_OK(timeline_write(&made.data));
  CHECK(!exists("trace.json"));
  json_decref(made.records);
  make(1, 1, 0, replicas);
  snprintf(made.data.dir, sizeof made.data.dir, "%s/nowhere", dir);
  CHECK_ERR(timeline_write(&made.data), ERR_IO);
  CHECK_TEXT_HAS(err_text(), "nowhere/trace.json.tmp: No such file or directory");
  json_decref(made.records);
}

int main(void)
{
  static const struct test tests[] = {
    TEST(a_trace_follows_the_format),
    TEST(a_slice_says_what_it_is),
    TEST(a_flow_comes_from_whom_was_waited_for),
    TEST(drift_is_taken_out),
    TEST(a_step_that_one_rank_did_not_tell_of_has_no_flows),
    TEST(strange_records_make_no_strange_json),
    TEST(without_spans_there_is_no_file_and_without_room_an_error),
  };
  strcpy(dir, "/tmp/timeline_test.XXXXXX");
  if (mkdtemp(dir) == NULL) return 1;
  const int status = test_main("timeline", tests, sizeof tests / sizeof *tests);
  char command[128];
  snprintf(command, sizeof command, "rm -rf %s", dir);
  return system(command) == 0 ? status : 1;
}
