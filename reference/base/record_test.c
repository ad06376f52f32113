/* record_test.c - records come back as they were said, also after a kill and from a full disk. */
#include "base/config.h"
#include "base/record.h"
#include "base/record_keys.h"
#include "testing/check.h"

#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

static char path[64];

static void write_raw(const char *text)
{
  FILE *file = fopen(path, "ab");
  fputs(text, file);
  fclose(file);
}

/* One "step" record of a rank. */
static enum err write_step(int rank, int64_t step)
{
  struct record_file *f;
  TRY(record_open(path, "dp2", rank, &f));
  record_begin(f, "step", step, -1);
  record_real(f, "got.loss", 0.1 * (double)step);
  const enum err err = record_end(f);
  record_close(f);
  return err;
}

static void what_is_said_is_read(void)
{
  unlink(path);
  struct record_file *f;
  if (!CHECK_OK(record_open(path, "dp2", 3, &f))) return;
  record_begin(f, "step", 7, -1);
  record_real(f, "got.loss_sum", 0.1);
  record_int(f, "got.valid_tokens", 9007199254740993);
  record_real(f, "got.norm", 2);
  record_real(f, "got.loss", NAN);
  record_real(f, "got.clip_factor", INFINITY);
  record_real(f, "got.lr", -INFINITY);
  CHECK_OK(record_end(f));
  record_begin(f, "batch", 0, 2);
  const int64_t samples[] = {5, -6};
  record_ints(f, "got.samples", samples, 2);
  record_hex(f, "got.hash", 0xabc);
  CHECK_OK(record_end(f));
  record_begin(f, "time", 0, -1);
  const double ready[] = {1.5, NAN};
  record_reals(f, "got.calls_ready_ms", ready, 2);
  record_reals(f, "got.calls_end_ms", ready, 0);
  CHECK_OK(record_end(f));
  record_begin(f, "trace", 0, -1);
  const char *const calls[] = {"0 allreduce", "b\xff\n"};
  record_texts(f, "got.calls", calls, 2);
  CHECK_OK(record_end(f));
  record_begin(f, "parameter", -1, -1);
  record_bool(f, "got.decay", true);
  CHECK_OK(record_end(f));
  record_close(f);

  json_t *list;
  int cut;
  if (!CHECK_OK(record_read(path, &list, &cut))) return;
  CHECK(json_array_size(list) == 5 && cut == 0);
  const json_t *step = json_array_get(list, 0);
  CHECK(record_get_int(step, "schema", 0) == RECORD_SCHEMA && record_get_int(step, "rank", -1) == 3);
  CHECK(strcmp(record_get_text(step, "kind"), "step") == 0 && strcmp(record_get_text(step, "case"), "dp2") == 0);
  CHECK(record_get_int(step, "step", -1) == 7 && json_object_get(step, "microbatch") == NULL);
  CHECK(record_get_real(step, "got.loss_sum", 0) == 0.1);
  CHECK(record_get_int(step, "got.valid_tokens", 0) == 9007199254740993);
  CHECK(record_get_real(step, "got.norm", 0) == 2);
  CHECK(isnan(record_get_real(step, "got.loss", 0)));
  CHECK(record_get_real(step, "got.clip_factor", 0) == INFINITY && record_get_real(step, "got.lr", 0) == -INFINITY);
  CHECK(record_get_real(step, "got.nothing", -5) == -5 && record_get_real(step, "kind", -5) == -5);
  CHECK(record_get_int(step, "got.norm", -5) == -5 && record_get_text(step, "rank") == NULL);
  const json_t *batch = json_array_get(list, 1);
  CHECK(record_get_int(batch, "microbatch", -1) == 2);
  CHECK(json_integer_value(json_array_get(json_object_get(batch, "got.samples"), 1)) == -6);
  CHECK(strcmp(record_get_text(batch, "got.hash"), "0000000000000abc") == 0);
  const json_t *time = json_array_get(list, 2);
  CHECK(strcmp(json_string_value(json_array_get(json_object_get(time, "got.calls_ready_ms"), 1)), "nan") == 0);
  CHECK(json_array_size(json_object_get(time, "got.calls_end_ms")) == 0);
  CHECK(strcmp(json_string_value(json_array_get(json_object_get(json_array_get(list, 3), "got.calls"), 1)), "b?\n") == 0);
  const json_t *parameter = json_array_get(list, 4);
  CHECK(json_is_true(json_object_get(parameter, "got.decay")) && json_object_get(parameter, "step") == NULL);
  json_decref(list);
}

static void every_setting_fits_its_key(void)
{
  unlink(path);
  struct run_config c;
  config_default(&c);
  struct record_file *f;
  if (!CHECK_OK(record_open(path, "dp2", -1, &f))) return;
  record_begin(f, "run", -1, -1);
  for (int i = 0; i < run_options_count; i++) {
    char key[64];
    snprintf(key, sizeof key, "set.%s", run_options[i].key);
    record_json(f, key, opt_json(&run_options[i], &c));
  }
  record_text(f, "env.host", "h");
  CHECK_OK(record_end(f));
  record_close(f);
  json_t *list;
  int cut;
  if (!CHECK_OK(record_read(path, &list, &cut))) return;
  CHECK(record_get_int(json_array_get(list, 0), "set.global_batch", 0) == 12);
  CHECK(record_get_real(json_array_get(list, 0), "set.eps", 0) == 1e-8);
  CHECK(json_object_get(json_array_get(list, 0), "rank") == NULL);
  json_decref(list);
}

static void a_line_cut_by_a_kill_is_dropped_and_counted(void)
{
  unlink(path);
  CHECK_OK(write_step(0, 0));
  write_raw("{\"schema\":1,\"kind\":\"step\",\"case\":\"dp2\",\"got.lo");
  json_t *list;
  int cut;
  if (CHECK_OK(record_read(path, &list, &cut))) CHECK(json_array_size(list) == 1 && cut == 1);
  json_decref(list);
  CHECK_OK(write_step(0, 1)); /* goes on in the same file: the piece is gone, not glued */
  if (CHECK_OK(record_read(path, &list, &cut))) CHECK(json_array_size(list) == 2 && cut == 0);
  json_decref(list);

  unlink(path);
  write_raw("{\"schema\":1,\"kin"); /* nothing but a piece */
  CHECK_OK(write_step(0, 1));
  if (CHECK_OK(record_read(path, &list, &cut))) CHECK(json_array_size(list) == 1 && cut == 0);
  json_decref(list);
}

static void a_long_piece_is_dropped_too(void)
{
  unlink(path);
  CHECK_OK(write_step(0, 0));
  static char piece[10000];
  memset(piece, 'x', sizeof piece - 1);
  write_raw(piece);
  CHECK_OK(write_step(0, 1));
  json_t *list;
  int cut;
  if (CHECK_OK(record_read(path, &list, &cut))) CHECK(json_array_size(list) == 2 && cut == 0);
  json_decref(list);
}

static void what_is_no_record_is_refused_with_its_line(void)
{
  static const char *const bad[] = {
    "{\"schema\":1,\"kind\":\"step\",\n", "{}\n", "\n", "[1]\n", "3\n",
    "{\"schema\":2,\"kind\":\"step\",\"case\":\"a\"}\n", "{\"schema\":1,\"kind\":\"step\"}\n",
    "{\"schema\":1,\"kind\":\"step\",\"case\":\"a\",\"got.loss\":NaN}\n",
    "{\"schema\":1,\"kind\":\"step\",\"case\":\"a\",\"case\":\"a\"}\n",
    "{\"schema\":1,\"kind\":\"step\",\"case\":\"a\"}{}\n",
  };
  for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
    unlink(path);
    CHECK_OK(write_step(0, 0));
    write_raw(bad[i]);
    json_t *list = (json_t *)&i;
    int cut;
    CHECK_ERR(record_read(path, &list, &cut), ERR_FORMAT);
    CHECK(list == NULL);
    CHECK_TEXT_HAS(err_text(), path);
    CHECK_TEXT_HAS(err_text(), ":2: ");
  }
  json_t *list;
  int cut;
  CHECK_ERR(record_read("/nonexistent/records.jsonl", &list, &cut), ERR_IO);
  CHECK_ERR(record_read("/tmp", &list, &cut), ERR_IO);
}

/* A limit on the file's size stands for a full disk. */
static void a_full_disk_is_heard_of_and_what_came_before_is_kept(void)
{
  unlink(path);
  signal(SIGXFSZ, SIG_IGN);
  struct rlimit before, small;
  getrlimit(RLIMIT_FSIZE, &before);
  small = before;
  small.rlim_cur = 200;
  struct record_file *f;
  if (!CHECK_OK(record_open(path, "dp2", 0, &f))) return;
  setrlimit(RLIMIT_FSIZE, &small);
  enum err err = ERR_OK;
  int written = 0;
  for (; !err && written < 100; written++) {
    record_begin(f, "step", written, -1);
    record_real(f, "got.loss", 1);
    err = record_end(f);
  }
  setrlimit(RLIMIT_FSIZE, &before);
  CHECK(err == ERR_IO);
  CHECK_TEXT_HAS(err_text(), ": File too large");
  record_begin(f, "step", 0, -1);
  CHECK_ERR(record_end(f), ERR_IO); /* there is room again, but the file ends in half a line */
  record_close(f);
  json_t *list;
  int cut;
  if (CHECK_OK(record_read(path, &list, &cut))) CHECK((int)json_array_size(list) == written - 1 && cut == 1);
  json_decref(list);
  CHECK_ERR(record_open("/nonexistent/r.jsonl", "dp2", 0, &f), ERR_IO);
}

static void say_unknown_kind(struct record_file *f) { record_begin(f, "stpe", 0, -1); }
static void say_unknown_key(struct record_file *f) { record_begin(f, "step", 0, -1), record_real(f, "got.lossy", 1); }
static void say_other_kinds_key(struct record_file *f) { record_begin(f, "step", 0, -1), record_int(f, "got.pid", 1); }
static void say_unknown_setting(struct record_file *f) { record_begin(f, "run", 0, -1), record_int(f, "set.ranks", 1); }
static void say_unlisted_environment(struct record_file *f) { record_begin(f, "run", 0, -1), record_text(f, "env.PATH", "x"); }
static void say_other_type(struct record_file *f) { record_begin(f, "step", 0, -1), record_text(f, "got.loss", "1.5"); }
static void say_twice(struct record_file *f)
{
  record_begin(f, "step", 0, -1);
  record_real(f, "got.loss", 1);
  record_real(f, "got.loss", 1);
}
static void begin_twice(struct record_file *f) { record_begin(f, "step", 0, -1), record_begin(f, "step", 0, -1); }
static void end_without_begin(struct record_file *f) { (void)!record_end(f); }

static void end_quietly(void) { _exit(77); }

/* In a child: a bug ends the process through the hook. */
static void what_the_tables_do_not_know_is_a_bug(void)
{
  static void (*const say[])(struct record_file *) = {say_unknown_kind, say_unknown_key, say_other_kinds_key, say_unknown_setting,
                                                      say_unlisted_environment, say_other_type, say_twice, begin_twice, end_without_begin};
  for (size_t i = 0; i < sizeof say / sizeof *say; i++) {
    fflush(NULL);
    const pid_t child = fork();
    if (child == 0) {
      if (freopen("/dev/null", "w", stderr) == NULL) _exit(1);
      struct record_file *f;
      err_on_bug(end_quietly);
      if (record_open(path, "dp2", 0, &f) != ERR_OK) _exit(1);
      say[i](f);
      _exit(0);
    }
    int status = 0;
    CHECK(waitpid(child, &status, 0) == child);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 77);
  }
}

static void the_schema_lists_every_kind_and_key(void)
{
  char *text;
  size_t bytes;
  FILE *out = open_memstream(&text, &bytes);
  CHECK_OK(record_schema_markdown(out));
  fclose(out);
  static const char *const names[] = {
#define KIND(kind, who, meaning) "### `" kind "` (" who ")\n",
#define KEY(key, type, unit, meaning) "| `" key "` | " type " | " unit " | ",
#define ENV(key, type, unit, meaning) "| `" key "` | " type " | " unit " | ",
#include "base/env.def"
#include "base/keys.def"
#undef KIND
#undef KEY
#undef ENV
  };
  for (size_t i = 0; i < sizeof names / sizeof *names; i++) CHECK_TEXT_HAS(text, names[i]);
  CHECK_TEXT_HAS(text, "| `global_batch` |");
  free(text);
  out = fopen("/dev/full", "w");
  CHECK_ERR(record_schema_markdown(out), ERR_IO);
  fclose(out);
}

static void types_of_the_tables_are_known(void)
{
  static const char *const types[] = {
#define KIND(kind, who, meaning)
#define KEY(key, type, unit, meaning) type,
#define ENV(key, type, unit, meaning) type,
#include "base/env.def"
#include "base/keys.def"
#undef KIND
#undef KEY
#undef ENV
  };
  json_t *object = json_object(); /* fits "json" alone; an unknown type would be a bug */
  for (size_t i = 0; i < sizeof types / sizeof *types; i++) CHECK(record_type_fits(types[i], object) == (strcmp(types[i], "json") == 0));
  json_decref(object);
}

static void no_memory_is_told(void)
{
  struct record_file *f = NULL;
  bool failed = true;
  for (long k = 1; failed && k < 100; k++) {
    check_fail_allocation(k);
    const enum err err = record_open(path, "dp2", 0, &f);
    failed = check_allocation_failed();
    check_fail_allocation(0);
    CHECK(err == (failed ? ERR_MEMORY : ERR_OK) && (f == NULL) == failed);
  }
  CHECK(!failed);
  record_close(f);
}

int main(void)
{
  static const struct test tests[] = {
    TEST(what_is_said_is_read),
    TEST(every_setting_fits_its_key),
    TEST(a_line_cut_by_a_kill_is_dropped_and_counted),
    TEST(a_long_piece_is_dropped_too),
    TEST(what_is_no_record_is_refused_with_its_line),
    TEST(a_full_disk_is_heard_of_and_what_came_before_is_kept),
    TEST(what_the_tables_do_not_know_is_a_bug),
    TEST(the_schema_lists_every_kind_and_key),
    TEST(types_of_the_tables_are_known),
    TEST(no_memory_is_told),
  };
  strcpy(path, "/tmp/record_test.XXXXXX");
  close(mkstemp(path));
  const int status = test_main("record", tests, sizeof tests / sizeof *tests);
  unlink(path);
  return status;
}
