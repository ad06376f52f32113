/* run_test.c - the program as it is used, with a launcher and a trainer that are scripts.
 *
 * The trainer does what the seed of each run file says: 1 trains, 2 crashes, 3 says that
 * this machine is unfit, 4 hangs, 5 sends the harness an interrupt and hangs, 6 fills its records with rubbish,
 * 7 trains slowly, 8 removes the results, 9 trains, and some time after fails in its teardown.
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
static char said[16384]; /* stdout and stderr of the last run of the program */

static void put(const char *name, const char *text, int mode)
{
  char path[256];
  snprintf(path, sizeof path, "%s/%s", root, name);
  FILE *f = fopen(path, "w");
  if (f == NULL || fputs(text, f) == EOF || fclose(f) != 0 || chmod(path, (mode_t)mode) != 0) abort();
}

static const char trainer[] =
  "#!/bin/bash\n"
  "for f in \"$@\"; do\n"
  "  dir=$(dirname $f); ranks=$(($(sed -n 's/^[dtp]p: //p' $f | paste -sd '*'))); echo $(basename $dir) >>$ROOT/launched\n"
  "  case $(sed -n 's/^seed: //p' $f) in\n"
  "  2) echo 'it broke' >&2; exit 1;;\n"
  "  3) exit 3;;\n"
  "  4) sleep 1000;;\n"
  "  5) kill -INT $(cat $ROOT/pid); sleep 1000;;\n"
  "  7) sleep 0.7;;\n"
  "  8) rm -rf $(dirname $(dirname $dir)); exit 0;;\n"
  "  6) echo 'no json' >$dir/rank0.jsonl; echo '{}' >>$dir/rank0.jsonl; exit 0;;\n"
  "  esac\n"
  "  for ((r = 0; r < ranks; r++)); do for s in 0 1; do echo '{\"schema\":1,\"kind\":\"step\",\"case\":\"x\",\"rank\":'$r',\"step\":'$s'}'; done; echo '{\"schema\":1,\"kind\":\"done\",\"case\":\"x\",\"rank\":'$r',\"got.error\":\"\",\"got.error_kind\":\"ok\"}'; done"
  " >$dir/records.here.jsonl\n"
  "  if grep -q '^seed: 9$' $f; then sleep 0.7; exit 1; fi\n"
  "done\n";
/* The last of its own words is the trainer's first: -n K, and -bind-to none for MPICH. */
static const char launcher[] = "#!/bin/sh\nif [ \"$1\" = --version ]; then echo 'HYDRA build details:'; exit 0; fi\nshift 4\nexec \"$@\"\n";

/* Runs `shardmark ARGUMENTS`; %s stands for the test's folder.  Returns the exit status. */
static int shardmark(const char *arguments)
{
  char command[2048], filled[1024];
  snprintf(filled, sizeof filled, arguments, root, root, root);
  snprintf(command, sizeof command, "cd %s; ROOT=%s SHARDMARK_MPIEXEC=%s/launcher SHARDMARK_TRAINER=%s/trainer sh -c 'echo $$ >%s/pid; exec %s/shardmark %s' 2>&1 </dev/null",
           root, root, root, root, root, SHARDMARK_BUILD, filled);
  FILE *p = popen(command, "r");
  if (p == NULL) return -1;
  const size_t n = fread(said, 1, sizeof said - 1, p);
  said[n] = '\0';
  const int status = pclose(p);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

/* "verdict" of a results directory, or of one of its cases. */
static void verdict_of(const char *dir, const char *name, char *out, size_t bytes)
{
  char path[256];
  size_t i;
  json_t *c;
  snprintf(path, sizeof path, "%s/%s/summary.json", root, dir);
  snprintf(out, bytes, "no summary");
  json_t *summary = json_load_file(path, 0, NULL);
  const char *text = json_string_value(json_object_get(summary, "verdict"));
  if (name == NULL && text) snprintf(out, bytes, "%s", text);
  json_array_foreach(json_object_get(summary, "cases"), i, c)
    if (name && strcmp(json_string_value(json_object_get(c, "name")), name) == 0)
      snprintf(out, bytes, "%s", json_string_value(json_object_get(c, "verdict")));
  json_decref(summary);
}

static bool verdict_is(const char *dir, const char *name, const char *want)
{
  char got[64];
  verdict_of(dir, name, got, sizeof got);
  if (strcmp(got, want) != 0) fprintf(stderr, "  %s %s: %s\n%s\n", dir, name ? name : "", got, said);
  return strcmp(got, want) == 0;
}

/* How often it was launched; *last: its place among all launches, -1: none. */
static int launches_of(const char *name, int *last)
{
  char path[128], line[256];
  int n = 0;
  *last = -1;
  snprintf(path, sizeof path, "%s/launched", root);
  FILE *f = fopen(path, "r");
  for (int i = 0; f && fgets(line, sizeof line, f); i++)
    if (strncmp(line, name, strlen(name)) == 0 && line[strlen(name)] == '\n') n++, *last = i;
  if (f) fclose(f);
  return n;
}
static int launches(const char *name)
{
  int unused;
  return launches_of(name, &unused);
}
static int launched_at(const char *name)
{
  int last;
  launches_of(name, &last);
  return last;
}

#define SUITE(name, cases) put(name, "question: x\nkind: conformance\nevery_case: {model: tiny, steps: 2, quick: true, seconds: 1}\ncases:\n" cases, 0644)

static void all_good_is_a_pass(void)
{
  SUITE("good.yaml", "  a: {}\n  b: {dp: 2, seed: 1}\n");
  CHECK(shardmark("run %s/good.yaml --out %s/good") == 0);
  CHECK(verdict_is("good", NULL, "PASS"));
  CHECK_TEXT_HAS(said, "PASS: 2 passed, 0 failed, 0 invalid, 0 inconclusive, 0 skipped, 0 not run");
  CHECK(shardmark("run %s/good.yaml --out %s/good") == 2); /* never overwritten */
  CHECK_TEXT_HAS(said, "holds results already");
  CHECK(shardmark("report %s/good") == 0);
}

/* Behind one that needs all cores and waits, what one core is enough for is started. */
static void cores_do_not_wait_for_a_wide_job(void)
{
  const int cores = (int)sysconf(_SC_NPROCESSORS_ONLN);
  char suite[512];
  if (cores < 2) return;
  snprintf(suite, sizeof suite,
           "question: x\nkind: conformance\nevery_case: {model: tiny, steps: 2, quick: true, seconds: 9}\ncases:\n"
           "  slow: {seed: 7}\n  broad: {dp: %d, global_batch: %d}\n  small: {}\n", cores, cores);
  put("fill.yaml", suite, 0644);
  CHECK(shardmark("run %s/fill.yaml --out %s/fill") == 0);
  CHECK(launched_at("slow") >= 0 && launched_at("small") >= 0); /* of these two either may be the first to say so */
  CHECK(launched_at("slow") < launched_at("broad") && launched_at("small") < launched_at("broad"));
}

static void a_crash_fails_its_case_and_no_other(void)
{
  SUITE("crash.yaml", "  a: {}\n  b: {seed: 2}\n  c: {dropout: 0.1}\n");
  CHECK(shardmark("run %s/crash.yaml --out %s/crash") == 1);
  CHECK(verdict_is("crash", NULL, "FAIL") && verdict_is("crash", "b", "FAIL"));
  CHECK(verdict_is("crash", "a", "PASS") && verdict_is("crash", "c", "PASS"));
  CHECK_TEXT_HAS(said, "it broke");
}

/* Though its records were whole long before. */
static void a_failed_teardown_fails_the_last_case_of_its_job(void)
{
  SUITE("late.yaml", "  a: {}\n  b: {seed: 9}\n");
  CHECK(shardmark("run %s/late.yaml --out %s/late") == 1);
  CHECK(verdict_is("late", "a", "PASS") && verdict_is("late", "b", "FAIL"));
}

static void a_hang_fails_its_case_in_bounded_time(void)
{
  SUITE("hang.yaml", "  a: {}\n  b: {seed: 4, seconds: 0.5}\n  c: {dropout: 0.1}\n");
  CHECK(shardmark("run %s/hang.yaml --out %s/hang") == 1);
  CHECK(verdict_is("hang", "b", "FAIL") && verdict_is("hang", "a", "PASS") && verdict_is("hang", "c", "PASS"));
  CHECK_TEXT_HAS(said, "no progress for");
}

static void an_unfit_machine_is_invalid(void)
{
  SUITE("unfit.yaml", "  a: {}\n  b: {seed: 3}\n");
  CHECK(shardmark("run %s/unfit.yaml --out %s/unfit") == 3);
  CHECK(verdict_is("unfit", NULL, "INVALID") && verdict_is("unfit", "b", "INVALID") && verdict_is("unfit", "a", "PASS"));
}

static void records_that_are_no_records_fail_their_case(void)
{
  SUITE("rubbish.yaml", "  a: {seed: 6}\n  b: {}\n");
  CHECK(shardmark("run %s/rubbish.yaml --out %s/rubbish") == 1);
  CHECK(verdict_is("rubbish", "a", "FAIL") && verdict_is("rubbish", "b", "PASS"));
  CHECK(shardmark("report %s/rubbish") == 0);
}

static void results_that_vanish_make_no_verdict(void)
{
  SUITE("vanish.yaml", "  a: {seed: 8, priority: 1}\n  b: {dp: 2, priority: 2}\n");
  CHECK(shardmark("run %s/vanish.yaml --out %s/vanish") == 3);
  CHECK_TEXT_HAS(said, "INVALID: 0 passed");
  CHECK(strstr(said, "report:") == NULL); /* there is none */
}

static void an_interrupt_keeps_what_there_is_and_can_be_resumed(void)
{
  char link[256];
  SUITE("stop.yaml", "  once: {priority: 1}\n  b: {seed: 5, seconds: 60, dp: 2, priority: 2}\n  c: {dp: 3, priority: 3}\n");
  CHECK(shardmark("run %s/stop.yaml --out %s/stop") == 130);
  CHECK(verdict_is("stop", NULL, "INVALID") && verdict_is("stop", "once", "PASS"));
  CHECK(verdict_is("stop", "b", "NOT_RUN") && verdict_is("stop", "c", "NOT_RUN"));
  CHECK_TEXT_HAS(said, "INTERRUPTED: 1 passed");
  SUITE("stop.yaml", "  once: {priority: 1}\n  b: {seed: 7, seconds: 60, dp: 2, priority: 2}\n  c: {dp: 3, priority: 3}\n");
  const int before = launches("once");
  CHECK(shardmark("run --resume %s/stop") == 0);
  CHECK(verdict_is("stop", NULL, "PASS") && verdict_is("stop", "b", "PASS") && verdict_is("stop", "c", "PASS"));
  CHECK(launches("once") == before && before == 1); /* a verdict that stands is not made again */
  SUITE("stop.yaml", "  once: {priority: 1, clip: 2}\n  b: {seed: 7, seconds: 60, dp: 2, priority: 2}\n  c: {dp: 3, priority: 3}\n");
  CHECK(shardmark("run --resume %s/stop") == 0);
  CHECK_TEXT_HAS(said, "once: its settings are not those of its verdict");
  CHECK(launches("once") == before + 1 && verdict_is("stop", "once", "PASS"));
  snprintf(link, sizeof link, "run %s/stop.yaml --resume %s/stop", root, root);
  CHECK(shardmark(link) == 2);
}

static void a_spent_budget_lists_what_it_left_out(void)
{
  SUITE("budget.yaml", "  a: {priority: 1}\n  b: {dp: 2, priority: 2}\n  c: {dp: 3, priority: 3}\n");
  CHECK(shardmark("run %s/budget.yaml --budget 0.01s --out %s/budget") == 3); /* nothing was shown */
  CHECK_TEXT_HAS(said, "left out by the budget");
  CHECK(verdict_is("budget", "c", "NOT_RUN"));
  CHECK(shardmark("run --resume %s/budget") == 0);
}

#define SCALING(name, evidence)                                                                                              \
  put(name, "question: x\nkind: scaling\nevery_case: {model: tiny, steps: 2, quick: true, seconds: 9}\nevidence: {checks: [ends], " \
      evidence "}\ncases:\n  up: {scale: weak, global_batch: 2}\n", 0644)

static void more_ranks_than_cores_have_no_speed(void)
{
  SCALING("over.yaml", "clip: 2");
  CHECK(shardmark("run %s/over.yaml --ranks 512 --out %s/over") == 0);
  CHECK(verdict_is("over", "up-n512", "PASS") && verdict_is("over", "up-n512-evidence", "PASS"));
  CHECK(launches("up-n512-r1") == 0 && launches("up-n512-evidence") == 1);
}

static void no_speed_without_its_conformance_case(void)
{
  SCALING("wrong.yaml", "seed: 2");
  CHECK(shardmark("run %s/wrong.yaml --ranks 1 --out %s/wrong") == 1);
  CHECK(verdict_is("wrong", "up-n1-evidence", "FAIL") && verdict_is("wrong", "up-n1", "INVALID"));
  CHECK_TEXT_HAS(said, "its conformance case up-n1-evidence is FAIL");
  CHECK(launches("up-n1-r1") == 0);
}

#define PIPELINE(name, evidence, cases)                                                                                       \
  put(name, "question: x\nkind: pipeline\nevery_case: {model: tiny, steps: 2, quick: true, seconds: 9, pp: 2, checks: [ends, bubble]}\n" \
      "evidence: {compute: real, checks: [ends], " evidence "}\ncases:\n" cases, 0644)

static void stages_are_timed_after_their_conformance_case(void)
{
  PIPELINE("pipe.yaml", "clip: 2", "  asleep: {compute: sleep}\n  wide: {pp: 8, dp: 64, global_batch: 64}\n");
  CHECK(shardmark("run %s/pipe.yaml --out %s/pipe") == 3);
  CHECK(verdict_is("pipe", "asleep-evidence", "PASS") && verdict_is("pipe", "asleep", "INVALID")); /* this trainer tells no actions */
  CHECK_TEXT_HAS(said, "no rank says that it is stage 0");
  CHECK(verdict_is("pipe", "wide-evidence", "PASS") && verdict_is("pipe", "wide", "SKIPPED"));
  CHECK_TEXT_HAS(said, "not timed: 512 ranks of 1 threads need cores of their own");
  CHECK(launches("asleep") == 1 && launches("wide") == 0 && launches("wide-evidence") == 1);
  PIPELINE("pipe2.yaml", "seed: 2", "  blind: {compute: sleep}\n");
  CHECK(shardmark("run %s/pipe2.yaml --out %s/pipe2") == 1);
  CHECK(verdict_is("pipe2", "blind-evidence", "FAIL") && verdict_is("pipe2", "blind", "INVALID"));
  CHECK_TEXT_HAS(said, "its conformance case blind-evidence is FAIL");
  CHECK(launches("blind") == 0);
}

static void a_layout_is_one_point_beside_one_rank(void)
{
  put("layouts.yaml", "question: x\nkind: scaling\nevery_case: {model: tiny, steps: 2, quick: true, seconds: 9, scale: layout}\n"
      "evidence: {checks: [ends]}\ncases:\n  many: {dp: 32, tp: 2, pp: 8, global_batch: 64}\n  two: {tp: 2, global_batch: 64}\n", 0644);
  CHECK(shardmark("run %s/layouts.yaml --ranks 512 --out %s/layouts") == 0);
  CHECK(verdict_is("layouts", "many", "PASS") && launches("many-evidence") == 1 && launches("two-evidence") == 0);
  CHECK(shardmark("run %s/layouts.yaml --layout dp=1,tp=4,pp=1 --dry-run") == 0);
  CHECK_TEXT_HAS(said, "2 cases"); /* one layout and its conformance case: the other case became the same */
}

static void a_dry_run_launches_nothing(void)
{
  SUITE("dry.yaml", "  drycase: {}\n");
  CHECK(shardmark("run %s/dry.yaml --dry-run --out %s/dry") == 0);
  CHECK_TEXT_HAS(said, "nothing was launched");
  CHECK(launches("drycase") == 0 && access("dry", F_OK) != 0);
  CHECK(shardmark("run %s/dry.yaml --dry-run --model gpt3-175b") == 3);
  CHECK_TEXT_HAS(said, "does not fit");
  CHECK_TEXT_HAS(said, "most on rank 0, "); /* and its bytes, by category, the largest three */
  CHECK_TEXT_HAS(said, " bytes: optimizer ");
  CHECK_TEXT_HAS(said, " bytes, parameters ");
  CHECK_TEXT_HAS(said, " bytes, gradients ");
  CHECK(shardmark("run %s/dry.yaml --model gpt3-175b --out %s/dry") == 3);
  CHECK_TEXT_HAS(said, "of memory here");
  CHECK_TEXT_HAS(said, "most on rank 0, ");
}

static void mistakes_are_usage_with_the_nearest_valid(void)
{
  static const struct {
    const char *words, *part;
  } bad[] = {{"run", "which suite"},
             {"run %s/good.yaml --ranks 0", "valid: 1..65536"},
             {"run %s/good.yaml --budget never", "--budget never"},
             {"run %s/good.yaml --model gpt2-125m", "--model gpt2-125m: not known; nearest: gpt2-124m"},
             {"run %s/good.yaml --fault clip-max-for-mim", "nearest: clip-max-for-min"},
             {"run %s/good.yaml --layout dp=x", "dp"},
             {"run %s/good.yaml --layout tp=5", "tp: 5 does not divide heads = 12; nearest valid: 4, 6"},
             {"run %s/good.yaml --layout pp=99", "pp: 99"},
             {"run %s/good.yaml --layout dp=2,tp=2 --ranks 2", "valid: --ranks 4"},
             {"run %s/good.yaml --layout tp=2,sequence_parallel=perhaps --dry-run", "sequence_parallel"},
             {"run %s/good.yaml --policy stacked", "padded|chunked|bucketed|packed|balanced"},
             {"run imbalance --policy packed", "no case of suite imbalance is `padded`"},
             {"run %s/good.yaml --hosts %s/nohosts", "host file"},
             {"run %s/good.yaml --only nothing-like-this", "no case that fits"},
             {"run %s/good.yaml --layout dp=2 --only nothing", "--only nothing, --layout dp=2"},
             {"run %s/good.yaml --frobnicate", "frobnicate"},
             {"run %s/nosuch.yaml", "nosuch.yaml: No such file"},
             {"run nosuchsuite", "no suite is named 'nosuchsuite'"},
             {"list cheks", "nearest: checks"},
             {"rum", "nearest: run"},
             {"report", "which results directory"}};
  for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
    if (!CHECK(shardmark(bad[i].words) == 2)) fprintf(stderr, "  %s\n", bad[i].words);
    CHECK_TEXT_HAS(said, bad[i].part);
  }
}

static void a_host_file_bounds_the_ranks(void)
{
  SUITE("hosts.yaml", "  a: {dp: 2}\n");
  put("hosts", "here slots=1\n", 0644);
  CHECK(shardmark("run %s/hosts.yaml --hosts %s/hosts --out %s/hosted") == 2);
  CHECK_TEXT_HAS(said, "2 ranks wanted, host file");
  CHECK_TEXT_HAS(said, "offers 1");
}

static void a_layout_is_checked_before_anything_is_launched(void)
{
  SUITE("layout.yaml", "  layoutcase: {}\n");
  put("uneven", "here slots=1\nthere slots=3\n", 0644);
  CHECK(shardmark("run %s/layout.yaml --layout tp=2 --hosts %s/uneven --dry-run") == 2);
  CHECK_TEXT_HAS(said, "rank 0 on here, rank 1 on there");
  CHECK(shardmark("run %s/layout.yaml --layout tp=2 --hosts %s/uneven --out %s/never") == 2);
  CHECK(shardmark("run %s/layout.yaml --layout tp=2,tp_across_nodes=true --hosts %s/uneven --dry-run") == 0);
  CHECK(shardmark("run %s/layout.yaml --layout pp=2,schedule=gpipe --dry-run") == 0);
  CHECK_TEXT_HAS(said, "pp2 gpipe: verified; at equal times a bubble of 8.3 % of ideal time, 7.7 % of total time; at most 12 of 12");
  CHECK(launches("layoutcase") == 0);
}

static void lists_are_json(void)
{
  static const char *const lists[] = {"suites", "faults", "causes", "options", "checks", "models"};
  for (size_t i = 0; i < sizeof lists / sizeof *lists; i++) {
    char words[64];
    snprintf(words, sizeof words, "list %s --json >%%s/list.json", lists[i]);
    CHECK(shardmark(words) == 0);
    char path[128];
    snprintf(path, sizeof path, "%s/list.json", root);
    json_t *j = json_load_file(path, 0, NULL);
    CHECK(json_is_array(j) && json_array_size(j) > 0);
    json_decref(j);
  }
}

static void doctor_says_what_is_missing(void)
{
  const int status = shardmark("doctor");
  CHECK(status == 0 || status == 3);
  CHECK_TEXT_HAS(said, "launcher");
  CHECK_TEXT_HAS(said, status == 0 ? "fit to run" : "not fit to run");
}

int main(void)
{
  static const struct test tests[] = {
    TEST(all_good_is_a_pass),
    TEST(cores_do_not_wait_for_a_wide_job),
    TEST(a_crash_fails_its_case_and_no_other),
    TEST(a_failed_teardown_fails_the_last_case_of_its_job),
    TEST(a_hang_fails_its_case_in_bounded_time),
    TEST(an_unfit_machine_is_invalid),
    TEST(records_that_are_no_records_fail_their_case),
    TEST(results_that_vanish_make_no_verdict),
    TEST(an_interrupt_keeps_what_there_is_and_can_be_resumed),
    TEST(a_spent_budget_lists_what_it_left_out),
    TEST(more_ranks_than_cores_have_no_speed),
    TEST(no_speed_without_its_conformance_case),
    TEST(stages_are_timed_after_their_conformance_case),
    TEST(a_layout_is_one_point_beside_one_rank),
    TEST(a_dry_run_launches_nothing),
    TEST(mistakes_are_usage_with_the_nearest_valid),
    TEST(a_host_file_bounds_the_ranks),
    TEST(a_layout_is_checked_before_anything_is_launched),
    TEST(lists_are_json),
    TEST(doctor_says_what_is_missing),
  };
  char command[128];
  snprintf(root, sizeof root, "/tmp/run_test.%d", (int)getpid());
  if (mkdir(root, 0700) != 0) return 1;
  put("trainer", trainer, 0755);
  put("launcher", launcher, 0755);
  const int status = test_main("run", tests, sizeof tests / sizeof *tests);
  snprintf(command, sizeof command, "rm -rf %s", root);
  return system(command) == 0 ? status : 1;
}
