/* results_test.c - a results directory keeps what it has, whatever happens. */
#include "harness/results.h"
#include "testing/check.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

static char root[64];

static void put(const char *name, const char *text)
{
  char path[256];
  snprintf(path, sizeof path, "%s/%s", root, name);
  FILE *f = fopen(path, "w");
  if (f == NULL || fputs(text, f) == EOF || fclose(f) != 0) abort();
}

static bool make(const char *name, struct results *r)
{
  char path[256];
  snprintf(path, sizeof path, "%s/%s", root, name);
  return CHECK_OK(results_create(path, "s", 0, r));
}

static int lines_of(const struct results *r)
{
  json_t *all = NULL;
  int cut;
  if (record_read(r->records, &all, &cut) != ERR_OK) return -1;
  const int n = (int)json_array_size(all);
  json_decref(all);
  return n;
}

static void a_directory_with_results_is_refused(void)
{
  struct results r, again;
  if (!make("taken", &r)) return;
  CHECK_OK(results_summary(&r, json_pack("{s:i}", "schema", 1)));
  char path[256];
  snprintf(path, sizeof path, "%s/taken", root);
  CHECK_ERR(results_create(path, "s", 0, &again), ERR_CONFIG);
  CHECK_TEXT_HAS(err_text(), "--resume");
}

static void places_that_cannot_be_written_are_refused_before_launch(void)
{
  struct results r;
  CHECK_ERR(results_create("/proc/nothing/here", "s", 0, &r), ERR_IO);
  char path[256];
  snprintf(path, sizeof path, "%s/small", root);
  CHECK_ERR(results_create(path, "s", 1e18, &r), ERR_IO);
  CHECK_TEXT_HAS(err_text(), "expected to write");
  put("file", "x");
  snprintf(path, sizeof path, "%s/file/sub", root);
  CHECK_ERR(results_create(path, "s", 0, &r), ERR_IO);
}

static void only_whole_lines_of_a_dead_run_are_merged(void)
{
  struct results r;
  if (!make("merge", &r)) return;
  put("merge/cases/rank0.jsonl", "{\"schema\":1,\"kind\":\"rank\",\"case\":\"a\"}\n{\"schema\":1,\"kind\":\"st");
  put("merge/cases/rank1.jsonl", "{\"schema\":1,\"kind\":\"rank\",\"case\":\"a\"}\n");
  char dir[CONFIG_PATH + 16];
  snprintf(dir, sizeof dir, "%s/cases", r.dir);
  CHECK_OK(results_merge(&r, dir));
  CHECK(lines_of(&r) == 2);
  json_t *records;
  CHECK_OK(results_read_run(dir, &records));
  CHECK(json_array_size(records) == 2);
  json_decref(records);
}

static void a_cut_line_is_taken_off_on_resume(void)
{
  struct results r, again;
  json_t *asked;
  if (!make("cut", &r)) return;
  put("cut/summary.json", "{\"schema\":1,\"asked\":{\"full\":true}}");
  put("cut/records.jsonl", "{\"schema\":1,\"kind\":\"case\",\"case\":\"a\"}\n{\"schema\":1,\"ki");
  CHECK_OK(results_resume(r.dir, &again, &asked));
  CHECK(json_is_true(json_object_get(asked, "full")));
  json_decref(asked);
  struct stat st;
  CHECK(stat(r.records, &st) == 0 && st.st_size == 38);
}

static void what_is_no_results_directory_cannot_be_resumed(void)
{
  struct results r;
  json_t *asked;
  CHECK_ERR(results_resume(root, &r, &asked), ERR_CONFIG);
  struct results made;
  if (!make("broken", &made)) return;
  put("broken/summary.json", "{\"schema\":1,");
  CHECK_ERR(results_resume(made.dir, &r, &asked), ERR_FORMAT);
  put("broken/summary.json", "{\"schema\":2,\"asked\":{}}");
  CHECK_ERR(results_resume(made.dir, &r, &asked), ERR_FORMAT);
  CHECK_TEXT_HAS(err_text(), "schema 2 is another version's; valid: 1");
  put("broken/summary.json", "{\"schema\":1}");
  CHECK_ERR(results_resume(made.dir, &r, &asked), ERR_FORMAT);
}

/* A file-size limit refuses writes as a full disk does. */
static void a_full_disk_is_heard_and_nothing_is_lost(void)
{
  struct results r;
  struct rlimit old, tight = {.rlim_cur = 300};
  char dir[CONFIG_PATH + 16], line[160];
  if (!make("full", &r)) return;
  memset(line, ' ', sizeof line);
  memcpy(line, "{\"schema\":1,\"kind\":\"case\",\"case\":\"a\"", 36);
  line[sizeof line - 3] = '}';
  line[sizeof line - 2] = '\n';
  line[sizeof line - 1] = '\0';
  put("full/cases/rank0.jsonl", line);
  snprintf(dir, sizeof dir, "%s/cases", r.dir);
  CHECK_OK(results_summary(&r, json_pack("{s:s}", "verdict", "old")));
  CHECK_OK(results_merge(&r, dir));
  signal(SIGXFSZ, SIG_IGN);
  getrlimit(RLIMIT_FSIZE, &old);
  tight.rlim_max = old.rlim_max;
  setrlimit(RLIMIT_FSIZE, &tight);
  const enum err err = results_merge(&r, dir);
  json_t *large = json_pack("{s:s}", "verdict", "new");
  for (int i = 0; i < 100; i++) json_object_set_new(large, line + i, json_integer(i));
  const enum err summary = results_summary(&r, large);
  setrlimit(RLIMIT_FSIZE, &old);
  CHECK_ERR(err, ERR_IO);
  CHECK_ERR(summary, ERR_IO);
  CHECK(lines_of(&r) == 1); /* the part that fitted is gone, the whole record is there */
  char path[CONFIG_PATH + 32];
  snprintf(path, sizeof path, "%s/summary.json", r.dir);
  json_t *kept = json_load_file(path, 0, NULL);
  const char *verdict = json_string_value(json_object_get(kept, "verdict"));
  CHECK(verdict && strcmp(verdict, "old") == 0);
  json_decref(kept);
}

static bool is_a(const json_t *record, void *context)
{
  (void)context;
  return strcmp(json_string_value(json_object_get(record, "case")), "a") == 0;
}

static void filtering_keeps_what_is_asked(void)
{
  struct results r;
  if (!make("filter", &r)) return;
  put("filter/records.jsonl", "{\"schema\":1,\"kind\":\"case\",\"case\":\"a\"}\n{\"schema\":1,\"kind\":\"case\",\"case\":\"b\"}\n");
  CHECK_OK(results_filter(&r, is_a, NULL));
  CHECK(lines_of(&r) == 1);
}

static void tensors_go_and_are_missed(void)
{
  struct results r;
  json_t *records;
  if (!make("tensors", &r)) return;
  char dir[CONFIG_PATH + 16];
  snprintf(dir, sizeof dir, "%s/cases", r.dir);
  put("tensors/cases/rank0.jsonl", "{\"schema\":1,\"kind\":\"tensors\",\"case\":\"a\",\"got.file\":\"w.safetensors\"}\n");
  put("tensors/cases/w.safetensors", "x");
  CHECK_OK(results_read_run(dir, &records));
  CHECK(results_tensors_there(dir, records));
  results_drop_tensors(dir);
  CHECK(!results_tensors_there(dir, records));
  json_decref(records);
  CHECK_OK(results_clean_run(dir));
  CHECK_OK(results_read_run(dir, &records));
  CHECK(json_array_size(records) == 0);
  json_decref(records);
}

int main(void)
{
  static const struct test tests[] = {
    TEST(a_directory_with_results_is_refused),
    TEST(places_that_cannot_be_written_are_refused_before_launch),
    TEST(only_whole_lines_of_a_dead_run_are_merged),
    TEST(a_cut_line_is_taken_off_on_resume),
    TEST(what_is_no_results_directory_cannot_be_resumed),
    TEST(a_full_disk_is_heard_and_nothing_is_lost),
    TEST(filtering_keeps_what_is_asked),
    TEST(tensors_go_and_are_missed),
  };
  char command[128];
  snprintf(root, sizeof root, "/tmp/results_test.%d", (int)getpid());
  if (mkdir(root, 0700) != 0) return 1;
  const int status = test_main("results", tests, sizeof tests / sizeof *tests);
  snprintf(command, sizeof command, "rm -rf %s", root);
  return system(command) == 0 ? status : 1;
}
