/* noise_test.c - Q is the same from the runs and from what was written down of them. */
#include "bound.h"
#include "fabricate_test.h"
#include "noise.h"
#include "verdict.h"

static struct bench b;
static const struct run_data *truth;
static struct noise noise;

static void setup(void)
{
  const struct run_config c = made_config(2);
  struct verdict v;
  bench_setup(&b, "gradients", &c);
  CHECK(noise_have(b.wanted, b.companions, b.n, &truth, &noise, &v));
}

static void add(json_t *bounds, const char *list, int64_t step, int64_t m, const char *name, double q)
{
  json_t *entry = json_pack("{s:I, s:f}", "step", (json_int_t)step, "q", q);
  if (m >= 0) json_object_set_new(entry, "microbatch", json_integer(m));
  if (name) json_object_set_new(entry, "name", json_string(name));
  json_array_append_new(json_object_get(bounds, list), entry);
}

/* As a bounds file has it.  Owner: the caller. */
static json_t *write_down(void)
{
  json_t *bounds = json_pack("{s:[], s:[], s:[], s:[], s:[]}", "loss", "loss_sum", "norm", "gradients", "evaluation");
  const struct run_config *c = &b.run.data.config;
  add(bounds, "evaluation", 1, -1, NULL, noise_of(&noise, truth, "eval", 1, -1, "got.loss"));
  add(bounds, "evaluation", 2, -1, NULL, noise_of(&noise, truth, "eval", 2, -1, "got.loss"));
  for (int64_t step = 0; step < c->steps; step++) {
    struct gaps rows;
    double q[2 * MADE_ROWS];
    add(bounds, "loss", step, -1, NULL, noise_of(&noise, truth, "step", step, -1, "got.loss"));
    add(bounds, "norm", step, -1, NULL, noise_of(&noise, truth, "step", step, -1, "got.norm"));
    for (int64_t m = 0; m < evidence_microbatches(c); m++)
      add(bounds, "loss_sum", step, m, NULL, noise_of(&noise, truth, "microbatch", step, m, "got.loss_sum"));
    CHECK_OK(gap_measure(truth, truth, step, &rows));
    CHECK_OK(noise_gradients(&noise, truth, step, &rows, q));
    for (int p = 0; p < rows.n; p++) add(bounds, "gradients", step, -1, rows.rows[p].name, q[p]);
    gap_free(&rows);
  }
  return bounds;
}

/* Truth and bounds in place of truth and eight runs. */
static void judge_both(const char *check, json_t *bounds)
{
  struct run_data written = {.end = "exited"};
  json_t *records;
  const struct companion wanted[] = {b.wanted[0], {.role = "bounds"}};
  const struct run_data *const companions[] = {truth, &written};
  struct verdict v;
  CHECK_OK(noise_records(bounds, &records));
  written.records = records;
  const enum outcome outcome = bench_judge(&b, check);
  judge_find(check)->judge(&b.run.data, wanted, companions, 2, &v);
  CHECK(v.outcome == outcome);
  CHECK(strcmp(v.sentence, b.verdict.sentence) == 0);
  CHECK(v.bound == b.verdict.bound);
  json_decref(v.details);
  json_decref(records);
}

static void verdicts_are_the_same_to_the_last_digit(void)
{
  static const char *const checks[] = {"loss", "gradients", "norm"};
  setup();
  json_t *bounds = write_down();
  for (int i = 0; i < 3; i++) {
    judge_both(checks[i], bounds);
    CHECK(b.verdict.outcome == OUTCOME_PASS);
  }
  made_bend(&b.run, "gradients", 1, "ln_f.weight", 1.01, 0.0);
  for (int i = 1; i < 3; i++) {
    judge_both(checks[i], bounds);
    CHECK(b.verdict.outcome == OUTCOME_FAIL);
  }
  json_decref(bounds);
  bench_teardown(&b);
}

static void what_is_not_written_is_not_known(void)
{
  setup();
  json_t *bounds = write_down(), *records;
  json_array_clear(json_object_get(bounds, "norm"));
  CHECK_OK(noise_records(bounds, &records));
  struct run_data written = {.end = "exited", .records = records};
  const struct noise from = {.bounds = &written};
  CHECK(isnan(noise_of(&from, truth, "step", 0, -1, "got.norm")));
  CHECK(isnan(noise_of(&from, truth, "step", 7, -1, "got.loss")));
  CHECK(isnan(noise_of(&from, truth, "step", 0, -1, "got.lr")));
  CHECK(noise_of(&from, truth, "microbatch", 1, 2, "got.loss_sum") == noise_of(&noise, truth, "microbatch", 1, 2, "got.loss_sum"));
  CHECK(noise_of(&from, truth, "microbatch", 1, 2, "got.loss_sum") > 0.0);
  json_decref(records);
  json_decref(bounds);
  bench_teardown(&b);
}

static void a_damaged_bounds_file_is_refused_with_its_place(void)
{
  json_t *records = NULL, *bounds = json_pack("{s:[], s:[], s:[]}", "loss", "loss_sum", "norm");
  CHECK(noise_records(bounds, &records) == ERR_FORMAT);
  CHECK_TEXT_HAS(err_text(), "`gradients`");
  json_object_set_new(bounds, "gradients", json_pack("[{s:i, s:f, s:s}, {s:i, s:s}]", "step", 0, "q", 0.1, "name", "a", "step", 0, "q", "b"));
  CHECK(noise_records(bounds, &records) == ERR_FORMAT);
  CHECK_TEXT_HAS(err_text(), "gradients[1]");
  CHECK(records == NULL);
  err_clear();
  json_decref(bounds);
}

static void a_missing_noise_run_is_named(void)
{
  struct verdict v;
  setup();
  b.companions[4] = NULL;
  CHECK(!noise_have(b.wanted, b.companions, b.n, &truth, &noise, &v));
  CHECK(v.outcome == OUTCOME_INVALID);
  CHECK_TEXT_HAS(v.sentence, "noise3");
  bench_teardown(&b);
}

int main(void)
{
  static const struct test tests[] = {
    TEST(verdicts_are_the_same_to_the_last_digit),
    TEST(what_is_not_written_is_not_known),
    TEST(a_damaged_bounds_file_is_refused_with_its_place),
    TEST(a_missing_noise_run_is_named),
  };
  return test_main("noise", tests, sizeof tests / sizeof *tests);
}
