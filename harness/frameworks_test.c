/* frameworks_test.c - `shardmark run` of a suite of kind frameworks, with an environment whose Python is a shell and
 * adapters that are scripts: what they do well is green, and what they do badly costs no other row its verdict.
 *
 * Launcher and trainer are the real ones: the case is exported, ranks are started, and one of them is killed.
 */
#include "testing/check.h"

#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static char root[64];
static char said[32768]; /* stdout and stderr of the last run of the program */

static void put(const char *name, const char *text, int mode)
{
  char path[256];
  snprintf(path, sizeof path, "%s/%s", root, name);
  FILE *f = fopen(path, "w");
  if (f == NULL || fputs(text, f) == EOF || fclose(f) != 0 || chmod(path, (mode_t)mode) != 0) abort();
}

static void folder(const char *name)
{
  char path[256];
  snprintf(path, sizeof path, "%s/%s", root, name);
  if (mkdir(path, 0700) != 0 && errno != EEXIST) abort();
}

/* Begins every adapter: what the run file says, and records at level 1 that are the truth's own. */
#define BEGIN                                                                                                          \
  "get() { sed -n \"s/^$1: //p\" $file; }\n"                                                                           \
  "file=$1; out=$(get out); rank=${OMPI_COMM_WORLD_RANK:-${PMI_RANK:-0}}; records=$out/records.$rank.jsonl\n"          \
  "echo $(basename $out) $rank >>$ROOT/launched\n"                                                                     \
  "start() { [ $rank != 0 ] || echo '{\"schema\":1,\"kind\":\"run\",\"case\":\"x\",\"rank\":0,\"set.precision\":\"'$(get precision)'\",\"set.dp\":'$(get dp)"  \
  "',\"set.tp\":1,\"set.pp\":1,\"got.framework\":\"Fake\",\"got.versions\":\"fake 1.0\"}' >>$records; }\n"              \
  "steps() { [ $rank != 0 ] || grep '\"kind\":\"step\"' $(get case)/truth/records.jsonl >>$records; }\n"               \
  "end() { echo '{\"schema\":1,\"kind\":\"done\",\"case\":\"x\",\"rank\":'$rank',\"got.error\":\"'\"$1\"'\"}' >>$records; }\n"

static const struct {
  const char *name, *does;
} adapters[] = {
  {"green", "start; steps; end\n"},
  {"red", "start; steps; [ \"$(get plant)\" != more ] || sed -i 's/\"got.loss\":5/\"got.loss\":6/; s/\"got.loss\":4/\"got.loss\":6/' $records; end\n"},
  {"crash", "start; [ $rank = 0 ] || { echo 'ValueError: no such thing' >&2; exit 1; }; sleep 30\n"},
  {"tells", "start; end 'the loss is not finite'; exit 1\n"},
  {"killed", "start; [ $rank = 0 ] || kill -KILL $$; sleep 30\n"},
  {"hang", "start; [ $rank != 0 ] || echo '{\"schema\":1,\"kind\":\"step\",\"case\":\"x\",\"rank\":0,\"step\":0}' >>$records; sleep 1000\n"},
  {"away", "echo 'not run: needs a GPU'; exit 77\n"},
  {"mute", "exit 77\n"},
  {"garbage", "echo 'no json at all' >$records; echo '{\"kind\":\"judged\",\"case\":\"a\"}' >>$records; end\n"},
  {"talks", "for i in 1 2 3 4 5 6 7 8; do echo loading; sleep 1; done; start; steps; end\n"},
  {"empty", "exit 0\n"},
  {"stop", "start; [ $(get plant) != stop ] || { kill -INT $(cat $ROOT/pid); sleep 1000; }; steps; end\n"},
};

/* Runs `shardmark ARGUMENTS`; %s stands for the test's folder.  Returns the exit status. */
static int shardmark(const char *arguments)
{
  char command[2048], filled[1024];
  snprintf(filled, sizeof filled, arguments, root, root, root);
  snprintf(command, sizeof command, "cd %s; ROOT=%s SHARDMARK_FRAMEWORKS=%s/environments sh -c 'echo $$ >%s/pid; exec %s/shardmark %s' 2>&1 </dev/null",
           root, root, root, root, SHARDMARK_BUILD, filled);
  FILE *p = popen(command, "r");
  if (p == NULL) return -1;
  const size_t n = fread(said, 1, sizeof said - 1, p);
  said[n] = '\0';
  const int status = pclose(p);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

/* A case of summary.json, NULL: the whole; new reference. */
static json_t *told(const char *dir, const char *name)
{
  char path[256];
  size_t i;
  json_t *c;
  snprintf(path, sizeof path, "%s/%s/summary.json", root, dir);
  json_t *summary = json_load_file(path, 0, NULL), *found = NULL;
  if (name == NULL) return summary;
  json_array_foreach(json_object_get(summary, "cases"), i, c)
    if (strcmp(json_string_value(json_object_get(c, "name")), name) == 0) found = json_incref(c);
  json_decref(summary);
  return found;
}

/* Its verdict, and a part of its sentence. */
static bool is(const char *dir, const char *name, const char *verdict, const char *part)
{
  json_t *c = told(dir, name);
  const char *is = json_string_value(json_object_get(c, "verdict")), *sentence = json_string_value(json_object_get(c, "sentence"));
  const bool ok = is && strcmp(is, verdict) == 0 && (part == NULL || (sentence && strstr(sentence, part)));
  if (!ok) fprintf(stderr, "  %s %s: %s: %s\n%s\n", dir, name ? name : "", is ? is : "none", sentence ? sentence : "", said);
  json_decref(c);
  return ok;
}

/* The last record of kind framework of a row; new reference. */
static json_t *record_of(const char *dir, const char *name)
{
  char path[256], line[65536];
  json_t *found = NULL;
  snprintf(path, sizeof path, "%s/%s/records.jsonl", root, dir);
  FILE *f = fopen(path, "r");
  while (f && fgets(line, sizeof line, f)) {
    json_t *r = json_loads(line, 0, NULL);
    const char *kind = json_string_value(json_object_get(r, "kind")), *of = json_string_value(json_object_get(r, "case"));
    if (kind && of && strcmp(kind, "framework") == 0 && strcmp(of, name) == 0) {
      json_decref(found);
      found = json_incref(r);
    }
    json_decref(r);
  }
  if (f) fclose(f);
  return found;
}

static bool says(const json_t *r, const char *key, const char *want)
{
  const char *text = json_string_value(json_object_get(r, key));
  return text && strcmp(text, want) == 0;
}

static int launches(const char *name)
{
  char path[128], line[256];
  int n = 0;
  snprintf(path, sizeof path, "%s/launched", root);
  FILE *f = fopen(path, "r");
  while (f && fgets(line, sizeof line, f)) n += strncmp(line, name, strlen(name)) == 0 && line[strlen(name)] == ' ';
  if (f) fclose(f);
  return n;
}

#define SUITE(name, cases)                                                                                                       \
  put(name, "question: x\nkind: frameworks\nevery_case: {layers: 1, steps: 2, quick: true, seconds: 20, environment: shell}\ncases:\n" cases, 0644)

static void what_goes_wrong_in_one_row_is_its_own(void)
{
  SUITE("bad.yaml", "  first: {adapter: green, dp: 2, priority: 1}\n"
                    "  crash: {adapter: crash, dp: 2}\n  tells: {adapter: tells}\n  killed: {adapter: killed, dp: 2}\n"
                    "  hang: {adapter: hang, dp: 2, seconds: 5}\n  away: {adapter: away, dp: 2}\n  mute: {adapter: mute}\n"
                    "  garbage: {adapter: garbage}\n  empty: {adapter: empty}\n  talks: {adapter: talks, seconds: 6}\n"
                    "  last: {adapter: green, precision: bf16, priority: 9, note: the end}\n");
  CHECK(shardmark("run %s/bad.yaml --out %s/bad") == 1);
  CHECK(is("bad", "first", "PASS", "level 1") && is("bad", "last", "PASS", "level 1"));
  CHECK(is("bad", "crash", "FAIL", "rank 1: exit status 1: ValueError: no such thing"));
  CHECK(is("bad", "tells", "FAIL", "rank 0: the loss is not finite"));
  CHECK(is("bad", "killed", "FAIL", "rank 1 was ended by signal 9"));
  CHECK(is("bad", "hang", "FAIL", "rank 1 told of no step"));
  CHECK(is("bad", "away", "SKIPPED", "not run: needs a GPU"));
  CHECK(is("bad", "mute", "INVALID", "exit status 77 without"));
  CHECK(is("bad", "garbage", "FAIL", NULL) && is("bad", "empty", "FAIL", "before every rank had finished"));
  CHECK(is("bad", "talks", "PASS", NULL)); /* eight seconds of output alone, with a limit of six */
  json_t *last = record_of("bad", "last"), *away = record_of("bad", "away");
  CHECK(says(last, "got.framework", "Fake"));
  CHECK(says(last, "got.versions", "fake 1.0"));
  CHECK(says(last, "got.precision", "bf16"));
  CHECK(says(last, "got.note", "the end"));
  CHECK(json_integer_value(json_object_get(last, "got.level")) == 1 && json_array_size(json_object_get(last, "got.loss")) == 2);
  CHECK_TEXT_HAS(json_string_value(json_object_get(away, "got.why")), "needs a GPU");
  json_decref(last);
  json_decref(away);
  CHECK_TEXT_HAS(said, "3 of 10 clean rows held");
  CHECK(shardmark("report %s/bad") == 0);
}

static void one_case_serves_all_rows_and_a_verdict_that_stands_is_kept(void)
{
  SUITE("twice.yaml", "  a: {adapter: green}\n  b: {adapter: green, dp: 2, precision: bf16}\n");
  CHECK(shardmark("run %s/twice.yaml --out %s/twice") == 0);
  char *first = strstr(said, "exporting");
  CHECK(first && strstr(first + 1, "exporting") == NULL);
  CHECK(launches("a") == 1 && launches("b") == 2);
  SUITE("twice.yaml", "  a: {adapter: green}\n  b: {adapter: red, dp: 2, precision: bf16}\n");
  CHECK(shardmark("run --resume %s/twice") == 0);
  CHECK(launches("a") == 1 && launches("b") == 4); /* what it is told has changed */
  CHECK(strstr(said, "exporting") == NULL);
}

static void a_planted_row_has_to_go_red(void)
{
  SUITE("planted.yaml", "  clean: {adapter: red, dp: 2}\n"
                        "  more: {adapter: red, dp: 2, plant: more, cause: ln-rank-token-imbalance}\n"
                        "  nothing: {adapter: red, plant: nothing, cause: ln-rank-token-imbalance}\n"
                        "  gone: {adapter: crash, dp: 2, plant: x, cause: ln-rank-token-imbalance}\n"
                        "  bad: {adapter: red, precision: bf16, plant: more, cause: ln-rank-token-imbalance}\n"
                        "  bad-clean: {adapter: red, precision: bf16, environment: broken}\n");
  CHECK(shardmark("run %s/planted.yaml --out %s/planted") == 1);
  CHECK(is("planted", "clean", "PASS", "level 1") && is("planted", "more", "PASS", "caught by O"));
  CHECK(is("planted", "nothing", "FAIL", "not caught: has to go red (ln-rank-token-imbalance)"));
  CHECK(is("planted", "gone", "FAIL", "not caught")); /* a crash is not what that fault does */
  CHECK(is("planted", "bad-clean", "FAIL", NULL) && is("planted", "bad", "FAIL", "went red, but bad-clean, the same without its fault, did not pass"));
  CHECK_TEXT_HAS(said, "planted: caught 1 of 4, named ");
  CHECK_TEXT_HAS(said, "; 1 of 2 clean rows held");
  json_t *more = record_of("planted", "more"), *nothing = record_of("planted", "nothing");
  CHECK(says(more, "got.outcome", "FAIL") && json_is_true(json_object_get(more, "got.caught")));
  CHECK(says(nothing, "got.outcome", "PASS") && json_is_false(json_object_get(nothing, "got.caught")));
  json_decref(more);
  json_decref(nothing);
}

static void an_interrupt_leaves_the_row_to_be_resumed(void)
{
  SUITE("stop.yaml", "  a: {adapter: stop, plant: stop, cause: ln-rank-token-imbalance, priority: 1, seconds: 100}\n  b: {adapter: green}\n");
  CHECK(shardmark("run %s/stop.yaml --out %s/stop") == 130);
  CHECK(is("stop", "a", "NOT_RUN", "interrupted") && is("stop", "b", "NOT_RUN", "interrupted"));
  SUITE("stop.yaml", "  a: {adapter: green, priority: 1}\n  b: {adapter: green}\n");
  CHECK(shardmark("run --resume %s/stop") == 0);
  CHECK(is("stop", "a", "PASS", NULL) && is("stop", "b", "PASS", NULL) && strstr(said, "exporting") == NULL);
}

static void without_a_case_no_row_is_started(void)
{
  SUITE("nocase.yaml", "  c: {adapter: green, lr: 1000, steps: 3}\n  d: {adapter: green, lr: 1000, steps: 3, dp: 2}\n  e: {adapter: green}\n");
  CHECK(shardmark("run %s/nocase.yaml --out %s/nocase") == 3);
  CHECK(is("nocase", "c", "INVALID", "no case to be judged against") && is("nocase", "d", "INVALID", "no case to be judged against"));
  CHECK(is("nocase", "e", "PASS", NULL) && launches("c") == 0 && launches("d") == 0);
  const char *first = strstr(said, "exporting"), *second = first ? strstr(first + 1, "exporting") : NULL;
  CHECK(second && strstr(second + 1, "exporting") == NULL); /* one for the first two, one for the third */
}

static void what_is_missing_is_named(void)
{
  SUITE("none.yaml", "  a: {adapter: green, environment: other}\n  b: {adapter: green, environment: third}\n");
  CHECK(shardmark("run %s/none.yaml --out %s/none") == 3);
  CHECK_TEXT_HAS(said, "make it: ci/frameworks other");
  CHECK_TEXT_HAS(said, "make it: ci/frameworks third");
  CHECK_TEXT_HAS(said, "none of its cases can run here");
  CHECK(is("none", NULL, "INVALID", NULL) && is("none", "a", "SKIPPED", NULL) && strstr(said, "exporting") == NULL);
  SUITE("some.yaml", "  a: {adapter: green, environment: other}\n  b: {adapter: green}\n");
  CHECK(shardmark("run %s/some.yaml --out %s/some") == 0);
  CHECK(is("some", "a", "SKIPPED", "ci/frameworks other") && is("some", "b", "PASS", NULL));
  CHECK(shardmark("run %s/some.yaml --dry-run") == 0);
  CHECK_TEXT_HAS(said, "skipped: environment 'other' is not there");
  CHECK_TEXT_HAS(said, "            -            -"); /* nobody predicts a foreign program's memory */
  CHECK(shardmark("run %s/some.yaml --device lazy") == 2 && strstr(said, "chooses its device itself") != NULL);
  CHECK(shardmark("run %s/some.yaml --fault clip-max-for-min") == 2 && strstr(said, "plants faults by its rows") != NULL);
}

int main(void)
{
  static const struct test tests[] = {
    TEST(what_goes_wrong_in_one_row_is_its_own),
    TEST(one_case_serves_all_rows_and_a_verdict_that_stands_is_kept),
    TEST(a_planted_row_has_to_go_red),
    TEST(an_interrupt_leaves_the_row_to_be_resumed),
    TEST(without_a_case_no_row_is_started),
    TEST(what_is_missing_is_named),
  };
  char text[4096];
  snprintf(root, sizeof root, "/tmp/frameworks_test.%d", (int)getpid());
  if (mkdir(root, 0700) != 0) return 1;
  folder("frameworks");
  folder("environments");
  folder("environments/shell");
  folder("environments/shell/bin");
  put("environments/shell/bin/python", "#!/bin/sh\nexec bash \"$@\"\n", 0755);
  for (size_t i = 0; i < sizeof adapters / sizeof *adapters; i++) {
    char name[128];
    snprintf(name, sizeof name, "frameworks/%s.py", adapters[i].name);
    snprintf(text, sizeof text, "%s%s", BEGIN, adapters[i].does);
    put(name, text, 0644);
  }
  folder("environments/broken");
  folder("environments/broken/bin");
  put("environments/broken/bin/python", "#!/bin/sh\necho 'no module named torch'; exit 1\n", 0755);
  put("frameworks/shell.txt", "", 0644);
  put("frameworks/broken.txt", "", 0644);
  put("frameworks/other.txt", "", 0644);
  put("frameworks/third.txt", "", 0644);
  const int status = test_main("frameworks", tests, sizeof tests / sizeof *tests);
  snprintf(text, sizeof text, "rm -rf %s", root);
  return system(text) == 0 ? status : 1;
}
