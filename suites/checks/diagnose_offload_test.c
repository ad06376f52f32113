/* diagnose_offload_test.c - evidence bent as faults of offloaded state bend it is named by its cause. */
#include "schedule.h"
#include "whole_test.h"

#include <math.h>

static struct whole w;

/* With its twin that keeps all on the device, which comes last. */
static void setup(int64_t zero, int64_t dump)
{
  struct run_config c = made_config(2);
  c.zero = zero;
  c.offload = OFFLOAD_OPTIMIZER;
  c.steps = 3;
  whole_setup(&w, &c);
  w.b.run.data.config.dump = dump;
  struct bench *b = &w.b;
  CHECK(judge_find("offload_off")->companions(&c, b->wanted + b->n, 1) == 1);
  made_run(&b->other[b->n], &b->wanted[b->n].config, 20);
  b->companions[b->n] = &b->other[b->n].data;
  b->n++;
  w.checks[w.n++] = "offload_off";
}
static void teardown(void) { whole_teardown(&w); }
static struct made *resident(void) { return &w.b.other[w.b.n - 1]; }

static void a_clean_run_has_no_diagnosis(void)
{
  setup(1, DUMP_GRADIENTS);
  CHECK(strcmp(whole_diagnose(&w), "") == 0);
  for (int i = 0; i < w.n; i++)
    if (!CHECK(w.list[i].outcome == OUTCOME_PASS)) fprintf(stderr, "%s: %s\n", w.checks[i], w.list[i].sentence);
  teardown();
}

/* What a run that dumps holds wrong after an update, it does within one. */
static void an_update_that_offload_changes_was_of_a_place_filled_early(void)
{
  for (int64_t zero = 0; zero < 2; zero++)
    for (int64_t step = 1; step <= 2; step++) {
      setup(zero, DUMP_GRADIENTS);
      made_bend(&w.b.run, "weights", step, "c_fc.weight", 1.5, 0.0);
      CHECK(whole_named(&w, FAULT_OV_OFFLOAD_PLACE_REUSED));
      teardown();
    }
}

static void a_run_without_dumps_fetched_what_was_not_stored(void)
{
  setup(1, DUMP_NONE);
  made_set(resident(), "step", 0, 2, -1, "got.norm", json_real(41.0));
  made_set(resident(), "step", 1, 2, -1, "got.norm", json_real(41.0));
  CHECK(whole_named(&w, FAULT_OV_OFFLOAD_FETCHED_TOO_EARLY));
  teardown();
}

static void lazy_says_whose_order_is_missing(void)
{
  static const char staged[] = "'copy_in' on fetch writes optimizer 'staged state' + 0, unordered with 'copy_out' on store, which reads it (step 1 micro-batch -1, and 0 -1)";
  static const char both[] = "'copy_in' on fetch writes optimizer 'staged state' + 0, unordered with 'copy_out' on store, which reads it (step 1 micro-batch -1, and 0 -1)\n"
                             "'copy_in' on fetch reads host 'first moments' + 0, unordered with 'copy_out' on store, which writes it (step 1 micro-batch -1, and 0 -1)";
  static const struct {
    const char *text;
    enum fault cause;
  } cases[] = {{staged, FAULT_OV_OFFLOAD_PLACE_REUSED}, {both, FAULT_OV_OFFLOAD_FETCHED_TOO_EARLY}};
  for (int i = 0; i < 2; i++) {
    setup(1, DUMP_NONE);
    json_t *found = made_record(&w.b.run, "finding", 0, -1, -1);
    json_object_set_new(found, "got.text", json_string(cases[i].text));
    made_set(&w.b.run, "done", 0, -1, -1, "got.error_kind", json_string("device"));
    CHECK(whole_named(&w, cases[i].cause));
    w.b.run.data.config.offload = OFFLOAD_NONE; /* then it is something else */
    CHECK(strncmp(whole_diagnose(&w), "ov-offload", 10) != 0);
    teardown();
  }
}

/* Weights after each step become those of updates with moments of zero: of one tensor, or of all. */
static void forget_moments(const char *part)
{
  static float values[MADE_ELEMENTS];
  const struct run_config *c = &w.b.run.data.config;
  for (int64_t step = 0; step < c->steps; step++) {
    struct safetensors *before, *after, *gradients;
    struct safetensor list[MADE_ROWS];
    static float out[MADE_ROWS][MADE_ELEMENTS];
    static char names[MADE_ROWS][96];
    char path[CONFIG_PATH + 64];
    if (!CHECK_OK(evidence_tensors(&w.b.run.data, "weights", step, &before)) ||
        !CHECK_OK(evidence_tensors(&w.b.run.data, "weights", step + 1, &after)) ||
        !CHECK_OK(evidence_tensors(&w.b.run.data, "gradients", step, &gradients)))
      return;
    const int rows = safetensors_count(before);
    const double factor = made_get(&w.b.run, "step", 0, step, -1, "got.clip_factor");
    for (int i = 0; i < rows; i++) {
      const struct safetensor *t = safetensors_get(before, i), *old = safetensors_find(after, t->name), *g = safetensors_find(gradients, t->name);
      const int64_t n = tensor_count(&t->data);
      memcpy(values, t->data.at, (size_t)n * sizeof *values);
      memcpy(out[i], old->data.at, (size_t)n * sizeof **out);
      for (int64_t k = 0; k < n && strstr(t->name, part) != NULL; k++) {
        struct schedule_element e = {.weight = (double)values[k]};
        schedule_update(c, step + 1, schedule_lr(c, step + 1), t->data.rows > 1, (double)((const float *)g->data.at)[k] * factor, &e);
        out[i][k] = (float)e.weight;
      }
      snprintf(names[i], sizeof names[i], "%s", t->name);
      list[i] = *t;
      list[i].name = names[i];
      list[i].data.at = out[i];
    }
    safetensors_close(before);
    safetensors_close(after);
    safetensors_close(gradients);
    snprintf(path, sizeof path, "%s/weights.step%lld.safetensors", w.b.run.data.dir, (long long)step + 1);
    CHECK_OK(safetensors_write(path, list, rows, NULL));
  }
}

static void updates_by_moments_of_zero_were_never_stored(void)
{
  setup(1, DUMP_GRADIENTS);
  forget_moments("");
  CHECK(whole_named(&w, FAULT_OPT_OFFLOAD_NEVER_STORED));
  w.b.run.data.config.offload = OFFLOAD_NONE;
  CHECK(strcmp(whole_diagnose(&w), "opt-offload-never-stored") != 0);
  teardown();
  setup(1, DUMP_GRADIENTS); /* what only one parameter forgets is not that */
  forget_moments("c_fc.weight");
  CHECK(whole_named(&w, FAULT_OV_OFFLOAD_PLACE_REUSED));
  teardown();
}

int main(void)
{
  static const struct test tests[] = {
    TEST(a_clean_run_has_no_diagnosis),
    TEST(an_update_that_offload_changes_was_of_a_place_filled_early),
    TEST(a_run_without_dumps_fetched_what_was_not_stored),
    TEST(lazy_says_whose_order_is_missing),
    TEST(updates_by_moments_of_zero_were_never_stored),
  };
  return test_main("diagnose_offload", tests, sizeof tests / sizeof *tests);
}
