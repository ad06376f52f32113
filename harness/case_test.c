/* case_test.c - a case's files from hand-made runs: bounds, what is trained, weights, the page for strangers. */
#include "harness/case.h"
#include "harness/folder.h"

#include "suites/checks/bound.h"
#include "suites/checks/fabricate_test.h"

/* A truth and eight runs, which serve both precisions. */
static struct bench b;
static struct case_source source;
static struct run_config config;

static void setup(void)
{
  config = made_config(2);
  config.unused = false;
  config.evaluate_each = 0;
  bench_setup(&b, "gradients", &config);
  source = (struct case_source){.config = &config, .truth = b.companions[0]};
  for (int p = 0; p < CASE_PRECISIONS; p++)
    for (int i = 0; i < COMPANIONS_NOISE; i++) source.noise[p][i] = b.companions[1 + i];
}

static struct made *truth(void) { return &b.other[0]; }
static struct made *noise(int i) { return &b.other[1 + i]; }

/* The batches that a run of this config would have written: document 5, then padding in all rows but the first. */
static void put_batches(int documents)
{
  static const char *const names[] = {"tokens", "targets", "positions", "documents"};
  static int32_t values[4][12 * 8];
  struct safetensor list[4];
  char path[2 * CONFIG_PATH];
  for (int i = 0; i < 12 * 8; i++) values[3][i] = i >= 8 && i % 8 > 5 ? -1 : 5 + i % 8 * documents / 8;
  for (int k = 0; k < 4; k++) list[k] = (struct safetensor){names[k], tensor_at(values[k], DTYPE_I32, 12, 8), 2};
  snprintf(path, sizeof path, "%s/batches.safetensors", truth()->dir);
  CHECK_OK(safetensors_write(path, list, 4, NULL));
}

/* The row of a list at that place; NULL: none. */
static const json_t *row_at(const json_t *bounds, const char *list, int64_t step, int64_t micro, const char *name)
{
  const json_t *row;
  size_t i;
  json_array_foreach(json_object_get(bounds, list), i, row)
  {
    const char *is = json_string_value(json_object_get(row, "name"));
    const json_t *m = json_object_get(row, "microbatch");
    if (json_integer_value(json_object_get(row, "step")) == step && (m ? json_integer_value(m) : -1) == micro &&
        (!name || (is && strcmp(is, name) == 0)))
      return row;
  }
  return NULL;
}
static double number(const json_t *row, const char *key) { return json_real_value(json_object_get(row, key)); }

static void a_bound_is_the_floor_or_four_times_the_farthest_run(void)
{
  json_t *bounds;
  struct case_bounds said;
  setup();
  const double want = made_get(truth(), "microbatch", -1, 1, 2, "got.loss_sum");
  made_set(noise(3), "microbatch", -1, 1, 2, "got.loss_sum", json_real(want * (1 + 1e-5)));
  made_set(noise(6), "microbatch", -1, 1, 2, "got.loss_sum", json_real(want * (1 - 0.5e-5)));
  if (!CHECK_OK(case_bounds_json(&source, 0, &bounds, &said))) return;
  const json_t *far = row_at(bounds, "loss_sum", 1, 2, NULL), *near = row_at(bounds, "loss_sum", 0, 2, NULL);
  CHECK_NEAR(number(far, "q"), 1e-5, 1e-11);
  CHECK_NEAR(number(far, "bound"), 4e-5, 1e-11);
  CHECK(number(far, "floor") == 4 * 0x1p-24 && number(far, "ceiling") == 1e-5);
  CHECK(number(near, "q") < 1e-7 && number(near, "bound") == 4 * 0x1p-24 && number(near, "ceiling") == 1e-6);
  CHECK_TEXT_HAS(said.place, "loss sum of micro-batch 2 at step 1");
  CHECK(said.bound == number(far, "bound") && said.ceiling == 1e-5);
  CHECK_TEXT_HAS(json_string_value(json_object_get(bounds, "precision")), "float32");
  /* 6 micro-batches, 16 parameters and the key third of one, two steps; that third has no ceiling */
  CHECK(json_array_size(json_object_get(bounds, "loss")) == 2 && json_array_size(json_object_get(bounds, "norm")) == 2);
  CHECK(json_array_size(json_object_get(bounds, "loss_sum")) == 12 && json_array_size(json_object_get(bounds, "gradients")) == 34);
  CHECK(said.n == 2 + 2 + 12 + 32);
  json_decref(bounds);
  bench_teardown(&b);
}

static void a_gradient_is_bounded_by_name_and_step_in_its_precision(void)
{
  json_t *bounds;
  struct case_bounds said;
  setup();
  made_bend(noise(5), "gradients", 1, "ln_f.weight", 1.01, 0.0);
  if (!CHECK_OK(case_bounds_json(&source, 1, &bounds, &said))) return;
  const json_t *bent = row_at(bounds, "gradients", 1, -1, "transformer.ln_f.weight");
  const json_t *before = row_at(bounds, "gradients", 0, -1, "transformer.ln_f.weight");
  const json_t *key = row_at(bounds, "gradients", 0, -1, "transformer.h.0.attn.c_attn.bias[key]");
  CHECK_NEAR(number(bent, "q"), 0.01, 1e-5);
  CHECK(number(bent, "bound") == 4 * number(bent, "q") && number(bent, "ceiling") == 0.15);
  CHECK(number(before, "bound") == number(before, "floor") && number(before, "floor") == 4 * 0x1p-8);
  CHECK(key && json_is_null(json_object_get(key, "ceiling")) && number(key, "bound") >= 4 * 0x1p-8);
  CHECK_TEXT_HAS(json_string_value(json_object_get(bounds, "precision")), "bf16");
  CHECK(number(row_at(bounds, "norm", 0, -1, NULL), "floor") == 0x1p-9);
  json_decref(bounds);
  bench_teardown(&b);
}

static void noise_that_is_not_finite_or_not_there_bounds_nothing(void)
{
  json_t *bounds = NULL;
  struct case_bounds said;
  setup();
  made_set(noise(2), "step", -1, 1, -1, "got.norm", json_string("nan"));
  CHECK(case_bounds_json(&source, 0, &bounds, &said) == ERR_FORMAT);
  CHECK_TEXT_HAS(err_text(), "norm at step 1");
  made_set(noise(2), "step", -1, 1, -1, "got.norm", json_real(made_get(truth(), "step", -1, 1, -1, "got.norm")));
  CHECK_OK(case_bounds_json(&source, 0, &bounds, &said));
  json_decref(bounds);
  bounds = NULL;
  made_drop(noise(0), "microbatch", -1, 0, 3);
  CHECK(case_bounds_json(&source, 0, &bounds, &said) == ERR_FORMAT);
  CHECK_TEXT_HAS(err_text(), "micro-batch 3 at step 0");
  CHECK(bounds == NULL);
  bench_teardown(&b);
}

static const char *text_at(const json_t *j, const char *a, const char *key)
{
  const char *text = json_string_value(json_object_get(a ? json_object_get(j, a) : j, key));
  return text ? text : "";
}

static void what_is_trained_is_told_in_numbers(void)
{
  setup();
  json_t *run = made_record(truth(), "run", 0, -1, -1);
  json_object_set_new(run, "env.version", json_string("9.8"));
  json_t *j = case_json(&source), *model = case_model_json(&config);
  const json_t *set = json_object_get(j, "set"), *rates = json_object_get(j, "learning_rates"), *optimizer = json_object_get(j, "optimizer");
  CHECK(strcmp(text_at(j, NULL, "format"), "shardmark-case") == 0 && json_integer_value(json_object_get(j, "version")) == 1);
  CHECK(strcmp(text_at(j, NULL, "shardmark"), "9.8") == 0);
  CHECK(json_integer_value(json_object_get(j, "steps")) == 2 && json_integer_value(json_object_get(j, "global_batch")) == 6);
  CHECK(json_integer_value(json_object_get(json_object_get(j, "layout"), "dp")) == 2);
  CHECK(json_integer_value(json_object_get(set, "dp")) == 1 && strcmp(text_at(set, NULL, "precision"), "float64") == 0);
  CHECK(json_object_get(set, "name") == NULL && json_object_get(set, "out") == NULL);
  CHECK(json_object_size(set) == (size_t)run_options_count - 2);
  CHECK(json_array_size(rates) == 2 && json_real_value(json_array_get(rates, 0)) == 0.5e-3 && json_real_value(json_array_get(rates, 1)) == 1e-3);
  CHECK(number(optimizer, "beta2") == 0.95 && number(optimizer, "eps") == 1e-8 && number(j, "clip") == 0.5);
  CHECK(json_array_size(json_object_get(optimizer, "decayed")) == 6); /* two embeddings, four matrices */
  CHECK(strcmp(json_string_value(json_array_get(json_object_get(optimizer, "decayed"), 0)), "transformer.wte.weight") == 0);
  CHECK(json_integer_value(json_object_get(model, "n_embd")) == 6 && json_integer_value(json_object_get(model, "vocab_size")) == 11);
  CHECK(json_is_true(json_object_get(model, "tie_word_embeddings")) && strcmp(text_at(model, NULL, "activation_function"), "gelu_new") == 0);
  json_decref(j);
  json_decref(model);
  bench_teardown(&b);
}

/* The page as text; owner: the caller. */
static char *page(void)
{
  char *text = NULL;
  size_t bytes;
  json_t *bounds[CASE_PRECISIONS];
  struct case_bounds said;
  for (int p = 0; p < CASE_PRECISIONS; p++) CHECK_OK(case_bounds_json(&source, p, &bounds[p], &said));
  FILE *f = open_memstream(&text, &bytes);
  CHECK_OK(case_readme(&source, bounds, f));
  fclose(f);
  for (int p = 0; p < CASE_PRECISIONS; p++) json_decref(bounds[p]);
  return text;
}

static void the_page_has_the_cases_own_numbers(void)
{
  setup();
  put_batches(1);
  char *text = page();
  CHECK(strstr(text, "{{") == NULL && strstr(text, "}}") == NULL);
  CHECK_TEXT_HAS(text, "1 blocks, 2 heads of 3 channels, C = 6 channels, 8 positions, 11 tokens");
  CHECK_TEXT_HAS(text, "int32 [12, 8]");
  CHECK_TEXT_HAS(text, "step 1 begins with row 6");
  CHECK_TEXT_HAS(text, "| `h.N.attn.c_attn.weight` | [6, 18] | yes |\n| `h.N.attn.c_attn.bias` | [18] | no |");
  CHECK_TEXT_HAS(text, "min(1, 0.5 / (norm + 1e-6))");
  CHECK_TEXT_HAS(text, "| 0 | 0.0005 | ");
  CHECK_TEXT_HAS(text, "A row holds one document");
  CHECK_TEXT_HAS(text, "is padding");
  CHECK_TEXT_HAS(text, "| `bf16` | 0.002 | ");
  free(text);
  put_batches(2);
  config.clip = 0;
  text = page();
  CHECK_TEXT_HAS(text, "up to 2 documents side by side");
  CHECK_TEXT_HAS(text, "over those j <= i that have the same number in `documents`");
  CHECK_TEXT_HAS(text, "no clipping: `clip_factor` is 1");
  free(text);
  bench_teardown(&b);
}

static bool there(const char *dir, const char *name)
{
  char path[2 * CONFIG_PATH];
  snprintf(path, sizeof path, "%s/%s", dir, name);
  return access(path, R_OK) == 0;
}

static enum err write_into(const char *dir)
{
  json_t *bounds[CASE_PRECISIONS];
  struct case_bounds said;
  for (int p = 0; p < CASE_PRECISIONS; p++) CHECK_OK(case_bounds_json(&source, p, &bounds[p], &said));
  const enum err err = case_write(&source, bounds, dir);
  for (int p = 0; p < CASE_PRECISIONS; p++) json_decref(bounds[p]);
  return err;
}

/* Into a new folder. */
static enum err write_to(char dir[64])
{
  strcpy(dir, "/tmp/case_test.XXXXXX");
  CHECK(mkdtemp(dir) != NULL);
  return write_into(dir);
}

static void all_files_are_written_and_those_of_the_truth_moved(void)
{
  static const char *const files[] = {"case.json", "config.json", "bounds.float32.json", "bounds.bf16.json", "README.md", "model.safetensors",
                                      "batches.safetensors", "truth/records.jsonl", "truth/weights.step0.safetensors",
                                      "truth/weights.step2.safetensors", "truth/gradients.step1.safetensors"};
  struct safetensors *model, *begin;
  char dir[64], path[2 * CONFIG_PATH];
  json_t *records;
  int cut;
  setup();
  put_batches(1);
  json_object_set_new(made_record(truth(), "run", 0, -1, -1), "set.out", json_string("/somewhere"));
  json_object_set_new(made_at(truth(), "batch", 0, 1, 2), "got.samples", json_pack("[i]", 77)); /* as a policy deals them */
  if (!CHECK_OK(write_to(dir))) return;
  for (size_t i = 0; i < sizeof files / sizeof *files; i++) CHECK(there(dir, files[i]));
  CHECK(!there(truth()->dir, "weights.step0.safetensors") && !there(truth()->dir, "batches.safetensors"));
  snprintf(path, sizeof path, "%s/truth/records.jsonl", dir);
  CHECK_OK(record_read(path, &records, &cut));
  CHECK(json_array_size(records) == json_array_size(truth()->records));
  for (size_t i = 0; i < json_array_size(records); i++) CHECK(json_object_get(json_array_get(records, i), "set.out") == NULL);
  const struct run_data written = {.records = records};
  const json_t *row = json_array_get(json_object_get(evidence_record(&written, "batch", 0, 1, 2), "got.samples"), 0);
  CHECK(json_integer_value(row) == 1 * 6 + 2);
  CHECK(json_integer_value(json_array_get(json_object_get(made_at(truth(), "batch", 0, 1, 2), "got.samples"), 0)) == 77);
  json_decref(records);
  snprintf(path, sizeof path, "%s/model.safetensors", dir);
  CHECK_OK(safetensors_open(path, &model));
  snprintf(path, sizeof path, "%s/truth/weights.step0.safetensors", dir);
  CHECK_OK(safetensors_open(path, &begin));
  CHECK(safetensors_count(model) == 16 && safetensors_count(begin) == 16);
  CHECK(strcmp(safetensors_meta(model, "format"), "pt") == 0);
  for (int i = 0; i < safetensors_count(begin); i++) {
    const struct safetensor *from = safetensors_get(begin, i), *to = safetensors_find(model, from->name);
    if (!CHECK(to && to->data.type == DTYPE_F32 && to->rank == from->rank && tensor_count(&to->data) == tensor_count(&from->data))) continue;
    CHECK(memcmp(to->data.at, from->data.at, (size_t)tensor_count(&to->data) * sizeof(float)) == 0); /* a made truth is float32 */
  }
  safetensors_close(model);
  safetensors_close(begin);
  folder_remove(dir);
  bench_teardown(&b);
}

static void a_weight_that_float32_does_not_hold_is_refused(void)
{
  double tenth[11 * 6];
  char dir[64], path[2 * CONFIG_PATH];
  setup();
  put_batches(1);
  for (int i = 0; i < 11 * 6; i++) tenth[i] = 0.1;
  const struct safetensor wide = {"transformer.wte.weight", tensor_at(tenth, DTYPE_F64, 11, 6), 2};
  snprintf(path, sizeof path, "%s/weights.step0.safetensors", truth()->dir);
  CHECK_OK(safetensors_write(path, &wide, 1, NULL));
  CHECK(write_to(dir) == ERR_FORMAT);
  CHECK_TEXT_HAS(err_text(), "transformer.wte.weight[0] = 0.1");
  folder_remove(dir);
  bench_teardown(&b);
}

/* A file that lies on a full disk, in place of each in turn. */
static void a_full_disk_is_heard_of(void)
{
  static const char *const files[] = {"case.json", "config.json", "bounds.float32.json", "bounds.bf16.json", "README.md"};
  char dir[64], path[2 * CONFIG_PATH];
  setup();
  put_batches(1);
  for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
    strcpy(dir, "/tmp/case_test.XXXXXX");
    CHECK(mkdtemp(dir) != NULL);
    snprintf(path, sizeof path, "%s/%s", dir, files[i]);
    CHECK(symlink("/dev/full", path) == 0);
    CHECK_ERR(write_into(dir), ERR_IO);
    CHECK_TEXT_HAS(err_text(), files[i]);
    CHECK_TEXT_HAS(err_text(), "No space left");
    folder_remove(dir);
  }
  bench_teardown(&b);
}

static void a_folder_is_measured_and_removed_whole(void)
{
  char dir[64] = "/tmp/case_test.XXXXXX", path[128];
  CHECK(mkdtemp(dir) != NULL);
  CHECK(folder_is_empty(dir) && folder_bytes(dir) == 0);
  for (int i = 0; i < 2; i++) {
    snprintf(path, sizeof path, "mkdir -p %s/a/.b && printf 12345 > %s/a/%s && ln -sf /etc %s/a/link", dir, dir, i ? ".b/x" : "y", dir);
    CHECK(system(path) == 0);
  }
  CHECK(!folder_is_empty(dir) && folder_bytes(dir) == 10);
  folder_remove(dir);
  CHECK(access(dir, F_OK) != 0 && access("/etc", R_OK) == 0);
  CHECK(!folder_is_empty(dir));
}

int main(void)
{
  static const struct test tests[] = {
    TEST(a_bound_is_the_floor_or_four_times_the_farthest_run),
    TEST(a_gradient_is_bounded_by_name_and_step_in_its_precision),
    TEST(noise_that_is_not_finite_or_not_there_bounds_nothing),
    TEST(what_is_trained_is_told_in_numbers),
    TEST(the_page_has_the_cases_own_numbers),
    TEST(all_files_are_written_and_those_of_the_truth_moved),
    TEST(a_weight_that_float32_does_not_hold_is_refused),
    TEST(a_full_disk_is_heard_of),
    TEST(a_folder_is_measured_and_removed_whole),
  };
  return test_main("case", tests, sizeof tests / sizeof *tests);
}
