/* export_test.c - the verb as it is used: a case appears whole or not at all, and gives its truth again. */
#include "testing/check.h"

#include "base/config.h"
#include "base/record.h"
#include "harness/export.h"
#include "harness/folder.h"
#include "suites/checks/schedule.h"

#include <glob.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static char root[64];
static char said[16384]; /* stdout and stderr of the last command */

static void put(const char *name, const char *text, int mode)
{
  char path[256];
  snprintf(path, sizeof path, "%s/%s", root, name);
  FILE *f = fopen(path, "w");
  if (f == NULL || fputs(text, f) == EOF || fclose(f) != 0 || chmod(path, (mode_t)mode) != 0) abort();
}

/* A shell command in the test's folder; its exit status. */
static int shell(const char *command)
{
  char whole[2048];
  snprintf(whole, sizeof whole, "cd %s && { %s; } 2>&1 </dev/null", root, command);
  FILE *p = popen(whole, "r");
  if (p == NULL) return -1;
  const size_t n = fread(said, 1, sizeof said - 1, p);
  said[n] = '\0';
  const int status = pclose(p);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

/* `shardmark export WORDS` with settings KEY=VALUE in front of it. */
static int export(const char *settings, const char *words)
{
  char command[1024];
  snprintf(command, sizeof command, "%s %s/shardmark export %s", settings, SHARDMARK_BUILD, words);
  return shell(command);
}

static json_t *load(const char *name)
{
  char path[256];
  snprintf(path, sizeof path, "%s/%s", root, name);
  json_t *j = json_load_file(path, 0, NULL);
  CHECK(j != NULL);
  return j;
}

static json_t *records_of(const char *pattern)
{
  char path[256];
  json_t *records = NULL;
  glob_t found;
  int cut;
  snprintf(path, sizeof path, "%s/%s", root, pattern);
  if (!CHECK(glob(path, 0, NULL, &found) == 0)) return json_array();
  CHECK_OK(record_read(found.gl_pathv[0], &records, &cut));
  globfree(&found);
  return records;
}

static double told(const json_t *records, const char *kind, int64_t step, int64_t micro, const char *key)
{
  const json_t *r;
  size_t i;
  json_array_foreach(records, i, r)
    if (strcmp(record_get_text(r, "kind"), kind) == 0 && record_get_int(r, "step", -1) == step && record_get_int(r, "microbatch", -1) == micro)
      return record_get_real(r, key, NAN);
  return NAN;
}

/* Nothing of that name, nor beside it. */
static bool nothing_of(const char *name)
{
  char pattern[256];
  glob_t found;
  snprintf(pattern, sizeof pattern, "%s/%s*", root, name);
  const bool none = glob(pattern, 0, NULL, &found) == GLOB_NOMATCH;
  if (!none) globfree(&found);
  return none;
}

/* --- settings ------------------------------------------------------------------------------------ */

static struct run_config settings(const char *layout, const char *set)
{
  static struct export_asked a;
  struct run_config c;
  memset(&a, 0, sizeof a);
  memset(&c, 0, sizeof c);
  snprintf(a.layout, sizeof a.layout, "%s", layout);
  if (*set) snprintf(a.sets[a.n_sets++], sizeof a.sets[0], "%s", set);
  CHECK_OK(export_settings(&a, &c));
  return c;
}

static void a_case_trains_what_hides_no_fault(void)
{
  const struct run_config c = settings("", "");
  CHECK(c.revealing && c.clip > 0 && c.clip < 1 && c.steps == 3 && c.weights_as == DTYPE_BF16);
  CHECK(c.documents_each == 1 && c.lengths == LENGTHS_OF_WIKIPEDIA && c.dropout == 0 && c.optimizer == OPTIMIZER_ADAMW && c.weight_decay > 0);
  for (int64_t update = 1; update <= c.steps; update++) { /* each has a rate of its own, so that one late is seen */
    CHECK(schedule_lr(&c, update) > 0);
    for (int64_t other = 1; other < update; other++) CHECK(fabs(schedule_lr(&c, update) / schedule_lr(&c, other) - 1) > 0.01);
  }
}

static void what_is_asked_goes_over_it(void)
{
  CHECK(settings("", "").dp == 2 && settings("", "").tp == 1);
  CHECK(settings("tp=2", "").dp == 1 && settings("tp=2", "").tp == 2);
  CHECK(settings("", "steps=10").lr_decay == 22 && settings("", "lr_decay=4").lr_decay == 4);
  CHECK(settings("", "lr_schedule=constant").lr_decay == 0);
}

static void what_no_case_can_have_is_refused(void)
{
  static const char *const none[][2] = {{"dropout", "0.1"}, {"frozen", "ln_1"}, {"unused", "true"}, {"reused", "1"}, {"optimizer", "sgd"},
                                        {"steps", "0"},     {"weights_as", "float32"}, {"task", "gemm"}, {"fault", "tp-missing-backward-reduce"}};
  const char *why = "";
  for (size_t i = 0; i < sizeof none / sizeof *none; i++) {
    struct run_config c;
    export_defaults(&c);
    CHECK_OK(export_check(&c));
    CHECK_OK(config_set(&c, none[i][0], none[i][1]));
    CHECK_ERR(export_check(&c), ERR_CONFIG);
    CHECK_TEXT_HAS(err_text(), none[i][0]);
    CHECK(strcmp(none[i][0], "steps") == 0 || !export_may_set(none[i][0], &why));
    CHECK(*why != '\0' || strcmp(none[i][0], "steps") == 0);
  }
  CHECK(export_may_set("layers", &why) && !export_may_set("bucket", &why));
}

/* --- a case -------------------------------------------------------------------------------------- */

static void a_case_is_written_whole(void)
{
  static const char *const files[] = {"README.md", "config.json", "model.safetensors", "batches.safetensors", "bounds.float32.json",
                                      "bounds.bf16.json",
                                      "truth/weights.step2.safetensors", "truth/gradients.step1.safetensors", "truth/parts.safetensors"};
  CHECK(shell("mkdir a") == 0); /* an empty folder will do */
  const int status = export("", "--layout dp=2,tp=2 --steps 2 --set layers=1 --set global_batch=4 a/");
  if (!CHECK(status == 0)) fprintf(stderr, "%s\n", said);
  CHECK_TEXT_HAS(said, "case: a (");
  for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
    char path[256];
    snprintf(path, sizeof path, "%s/a/%s", root, files[i]);
    CHECK(access(path, R_OK) == 0);
  }
  CHECK(shell("ls -d a*") == 0 && strcmp(said, "a\n") == 0); /* and no scratch */
  json_t *j = load("a/case.json"), *records = records_of("a/truth/records.jsonl");
  const json_t *layout = json_object_get(j, "layout"), *set = json_object_get(j, "set");
  CHECK(json_integer_value(json_object_get(layout, "tp")) == 2 && json_integer_value(json_object_get(set, "tp")) == 1);
  CHECK(json_integer_value(json_object_get(set, "layers")) == 1 && json_integer_value(json_object_get(j, "steps")) == 2);
  CHECK(isfinite(told(records, "step", 1, -1, "got.loss")) && told(records, "step", 0, -1, "got.clip_factor") < 1);
  json_decref(j);
  json_decref(records);
}

/* A suite asks by the settings of its own run: how that is cut, rounded, watched and scaled is not the case's. */
static void what_a_case_does_not_depend_on_changes_none_of_its_bytes(void)
{
  char dir[128];
  enum status status = STATUS_FAIL;
  struct export_asked asked = {.layout = "dp=2,tp=2", .n_sets = 3, .sets = {"steps=2", "layers=1", "global_batch=4"}};
  struct run_config c;
  CHECK_OK(export_settings(&asked, &c));
  c.precision = PRECISION_F16;
  c.loss_scale = 1024;
  c.reduce_type = REDUCE_TYPE_BF16;
  c.evaluate_each = 1;
  c.records_each = 2;
  c.zero = 3;
  c.recompute = RECOMPUTE_FULL;
  c.device = DEVICE_LAZY;
  snprintf(dir, sizeof dir, "%s/f", root);
  if (!CHECK_OK(export_run(&c, dir, false, &status))) return;
  CHECK(status == STATUS_PASS);
  CHECK(shell("for f in case.json bounds.bf16.json bounds.float32.json model.safetensors batches.safetensors README.md "
              "truth/gradients.step1.safetensors; do cmp a/$f f/$f || exit 1; done") == 0);
  CHECK(shell("grep -c '\"kind\":\"step\"' f/truth/records.jsonl") == 0 && strcmp(said, "2\n") == 0);
  CHECK(shell("grep -q '\"kind\":\"eval\"' f/truth/records.jsonl") == 1);
}

/* A run file from what case.json says, but for what `other` says. */
static void put_run(const char *name, const char *other)
{
  char path[256];
  json_t *j = load("a/case.json"), *value;
  const char *key;
  snprintf(path, sizeof path, "%s/%s.yaml", root, name);
  FILE *f = fopen(path, "w");
  if (!CHECK(f != NULL)) return;
  json_object_foreach(json_object_get(j, "set"), key, value)
  {
    char at[80];
    snprintf(at, sizeof at, "\n%s:", key);
    if (strstr(other, at)) continue;
    if (json_is_string(value)) fprintf(f, "%s: \"%s\"\n", key, json_string_value(value));
    else if (json_is_boolean(value)) fprintf(f, "%s: %s\n", key, json_is_true(value) ? "true" : "false");
    else fprintf(f, "%s: %.17g\n", key, json_number_value(value));
  }
  fprintf(f, "name: %s\nout: %s%s", name, name, other);
  fclose(f);
  json_decref(j);
}

/* Weights and batches of the case, read back by our own trainer: one rank has the truth's bits, two have its sums in another order. */
static void a_case_gives_its_truth_again(void)
{
  const char *fed = "\nweights: a/model.safetensors\nbatch_file: a/batches.safetensors\ncorpus: nowhere\ndump_batches: false\n";
  char other[512], command[512];
  put_run("one", fed);
  snprintf(other, sizeof other, "%sdp: 2\n", fed);
  put_run("two", other);
  snprintf(command, sizeof command, "%s/shardmark-train one.yaml && %s/ci/mpirun 2 %s/shardmark-train two.yaml", SHARDMARK_BUILD, SHARDMARK_SOURCE,
           SHARDMARK_BUILD);
  const int status = shell(command);
  if (!CHECK(status == 0)) fprintf(stderr, "%s\n", said);
  json_t *truth = records_of("a/truth/records.jsonl"), *one = records_of("one/records.*.jsonl"), *two = records_of("two/records.*.jsonl");
  for (int64_t step = 0; step < 2; step++) {
    for (int64_t m = 0; m < 4; m++) {
      const double want = told(truth, "microbatch", step, m, "got.loss_sum");
      CHECK(told(one, "microbatch", step, m, "got.loss_sum") == want);
      CHECK_NEAR(told(two, "microbatch", step, m, "got.loss_sum") / want, 1.0, 1e-12);
      CHECK(told(two, "microbatch", step, m, "got.valid_tokens") == told(truth, "microbatch", step, m, "got.valid_tokens"));
    }
    CHECK(told(one, "step", step, -1, "got.loss") == told(truth, "step", step, -1, "got.loss"));
    CHECK_NEAR(told(two, "step", step, -1, "got.norm") / told(truth, "step", step, -1, "got.norm"), 1.0, 1e-12);
    CHECK_NEAR(told(two, "step", step, -1, "got.lr"), told(truth, "step", step, -1, "got.lr"), 0.0);
  }
  CHECK(shell("for f in a/truth/*.step*.safetensors; do cmp $f one/$(basename $f) || exit 1; done") == 0);
  json_decref(truth);
  json_decref(one);
  json_decref(two);
}

/* --- none ---------------------------------------------------------------------------------------- */

static void a_folder_with_something_in_it_is_left_alone(void)
{
  CHECK(shell("mkdir full && echo x >full/mine && echo y >file") == 0);
  CHECK(export("", "full") == 2);
  CHECK_TEXT_HAS(said, "full: not empty; valid: a new or empty directory");
  CHECK(export("", "file") == 2);
  CHECK_TEXT_HAS(said, "file: there, and no directory");
  CHECK(shell("cat full/mine file") == 0 && strcmp(said, "x\ny\n") == 0);
  CHECK(export("", "file/below") == 3); /* where nothing can be made */
  CHECK_TEXT_HAS(said, "is not a folder");
  CHECK(export("", "/proc/case") == 3);
  CHECK_TEXT_HAS(said, "beside /proc/case");
}

static void mistakes_name_key_value_and_what_is_valid(void)
{
  static const struct {
    const char *words, *text;
  } cases[] = {{"--set layer=1 b", "nearest: layers"},
               {"--set layers=x b", "layers: 'x' is not valid; valid: a whole number"},
               {"--set layers b", "no KEY=VALUE"},
               {"--set dropout=0.1 b", "masks are drawn by each trainer"},
               {"--set precision=bf16 b", "a case has float32 and bf16"},
               {"--set dp=2 b", "--layout dp=N"},
               {"--steps 0 b", "steps: '0' is not for a case"},
               {"--model tinny b", "nearest: tiny"},
               {"--layout tp=5 b", "tp: 5 does not divide heads = 12"},
               {"--layout dp=5 b", "global_batch: 12"},
               {"--layout pp=9 b", "pp"},
               {"--layout td=2 b", "no 'td' in a layout"},
               {"--layout tp=1 b c", "one directory at a time"},
               {"", "which directory?"}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    if (!CHECK(export("", cases[i].words) == 2)) fprintf(stderr, "%s: %s\n", cases[i].words, said);
    CHECK_TEXT_HAS(said, cases[i].text);
  }
  CHECK(nothing_of("b"));
  CHECK(export("", "--help") == 0);
  CHECK_TEXT_HAS(said, "weight_decay");
}

/* A rate that makes roundings grow: float32 runs leave each other, and nothing could be decided by them. */
static void bounds_above_their_ceilings_are_no_case(void)
{
  CHECK(export("", "--steps 3 --set layers=1 --set global_batch=4 --set lr=1 --set eps=1e-30 c") == 3);
  CHECK_TEXT_HAS(said, "differ too much to decide");
  CHECK_TEXT_HAS(said, "no case is written");
  CHECK(nothing_of("c"));
}

static void a_run_that_breaks_is_named_and_nothing_is_left(void)
{
  put("breaks", "#!/bin/sh\necho 'it broke' >&2\nexit 1\n", 0755);
  CHECK(export("SHARDMARK_TRAINER=./breaks", "d") == 3);
  CHECK_TEXT_HAS(said, "did not end well");
  CHECK_TEXT_HAS(said, "shardmark export: run "); /* the first to end: two jobs may race */
  CHECK(nothing_of("d"));
}

static void an_interrupt_leaves_nothing(void)
{
  char command[512];
  put("interrupts", "#!/bin/sh\nkill -INT $(cat pid)\nsleep 100\n", 0755);
  snprintf(command, sizeof command, "SHARDMARK_TRAINER=./interrupts sh -c 'echo $$ >pid; exec %s/shardmark export e'", SHARDMARK_BUILD);
  CHECK(shell(command) == 130);
  CHECK(nothing_of("e"));
}

int main(void)
{
  static const struct test tests[] = {
    TEST(a_case_trains_what_hides_no_fault),
    TEST(what_is_asked_goes_over_it),
    TEST(what_no_case_can_have_is_refused),
    TEST(a_case_is_written_whole),
    TEST(what_a_case_does_not_depend_on_changes_none_of_its_bytes),
    TEST(a_case_gives_its_truth_again),
    TEST(a_folder_with_something_in_it_is_left_alone),
    TEST(mistakes_name_key_value_and_what_is_valid),
    TEST(bounds_above_their_ceilings_are_no_case),
    TEST(a_run_that_breaks_is_named_and_nothing_is_left),
    TEST(an_interrupt_leaves_nothing),
  };
  snprintf(root, sizeof root, "/tmp/export_test.%d", (int)getpid());
  if (mkdir(root, 0700) != 0) return 1;
  const int status = test_main("export", tests, sizeof tests / sizeof *tests);
  folder_remove(root);
  return status;
}
