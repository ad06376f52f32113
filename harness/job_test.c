/* job_test.c - real processes that behave badly, each held to its case.
 *
 * The launcher here is a script that starts the trainer once; the trainer is a script
 * that does what the words in its run file say.
 */
#include "harness/job.h"
#include "harness/results.h"
#include "testing/check.h"

#include "base/clock.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { CASES = 3 };
static char root[128];

static void write_file(const char *path, const char *text, int mode)
{
  FILE *f = fopen(path, "w");
  if (f == NULL || fputs(text, f) == EOF || fclose(f) != 0 || chmod(path, (mode_t)mode) != 0) abort();
}

/* Each run file is a piece of shell; `dir` is where its records go. */
static const char trainer[] = "#!/bin/sh\n"
                              "done_() { for r in 0 1; do echo '{\"schema\":1,\"kind\":\"done\",\"case\":\"x\",\"rank\":'$r',"
                              "\"got.error\":\"'\"$1\"'\",\"got.error_kind\":\"'${2:-ok}'\"}' >>$dir/records.$r.jsonl; done; }\n"
                              "for f in \"$@\"; do dir=$(dirname $f); . $f; done\n";
static const char launcher[] = "#!/bin/sh\nshift 4\nexec \"$@\"\n"; /* -n 2 and, for MPICH, -bind-to none */

static struct launch_world world(void)
{
  struct launch_world w = {.mpi = LAUNCH_MPICH, .cores = 2, .slots = 2, .core = {0, 1}};
  snprintf(w.launcher, sizeof w.launcher, "%s/launcher", root);
  snprintf(w.trainer, sizeof w.trainer, "%s/trainer", root);
  return w;
}

/* Runs one job of up to three cases given as shell; returns how it ended. */
static struct job_end run(const char *const *scripts, int n, double seconds)
{
  static char dirs[CASES][160], paths[CASES][192];
  const char *files[CASES];
  struct job_case cases[CASES];
  struct job_end end = {0};
  struct job *j;
  for (int i = 0; i < n; i++) {
    snprintf(dirs[i], sizeof dirs[i], "%s/case%d", root, i);
    snprintf(paths[i], sizeof paths[i], "%s/run.yaml", dirs[i]);
    CHECK_OK(results_clean_run(dirs[i]));
    write_file(paths[i], scripts[i], 0644);
    files[i] = paths[i];
    cases[i] = (struct job_case){.name = "x", .dir = dirs[i], .ranks = 2, .seconds = seconds};
  }
  const struct launch_world w = world();
  if (!CHECK_OK(job_start(&w, &(struct launch_wish){.ranks = 2, .files = files, .n_files = n}, cases, n, &j))) return end;
  while (!job_step(j, 20, &end)) continue;
  job_close(j);
  return end;
}

/* The same as another framework's: a job of one case, whose output counts. */
static struct job_end run_foreign(const char *script, double seconds)
{
  char path[192], folder[160];
  struct job_end end = {0};
  struct job *j;
  snprintf(folder, sizeof folder, "%s/foreign", root);
  snprintf(path, sizeof path, "%s/run.yaml", folder);
  CHECK_OK(results_clean_run(folder));
  write_file(path, script, 0644);
  const char *const files[] = {path};
  const struct job_case one = {.name = "x", .dir = folder, .ranks = 2, .seconds = seconds, .foreign = true};
  const struct launch_world w = world();
  if (!CHECK_OK(job_start(&w, &(struct launch_wish){.ranks = 2, .files = files, .n_files = 1}, &one, 1, &j))) return end;
  while (!job_step(j, 20, &end)) continue;
  job_close(j);
  return end;
}

static size_t size_of(const char *name)
{
  char path[192];
  struct stat st;
  snprintf(path, sizeof path, "%s/%s", root, name);
  return stat(path, &st) == 0 ? (size_t)st.st_size : 0;
}

/* A zombie, whose reaper is somebody else, is not alive. */
static bool runs(long pid)
{
  char path[64], state = 'Z';
  snprintf(path, sizeof path, "/proc/%ld/stat", pid);
  FILE *f = fopen(path, "r");
  if (f == NULL) return false;
  if (fscanf(f, "%*d %*s %c", &state) != 1) state = 'Z';
  fclose(f);
  return state != 'Z' && state != 'X';
}

static bool alive(const char *pid_file)
{
  char path[192];
  long pid = 0;
  snprintf(path, sizeof path, "%s/%s", root, pid_file);
  FILE *f = fopen(path, "r");
  if (f == NULL || fscanf(f, "%ld", &pid) != 1) pid = 0;
  if (f) fclose(f);
  CHECK(pid > 1);
  for (int i = 0; i < 100 && runs(pid); i++) clock_sleep_ms(10);
  return runs(pid);
}

static void clean_cases_are_all_finished(void)
{
  const char *const s[] = {"echo hello; done_ ''\n", "done_ ''\n", "done_ ''\n"};
  const struct job_end e = run(s, 3, 30);
  CHECK(e.finished == 3 && e.status == 0 && strcmp(e.end, "exited") == 0);
  CHECK(e.text[0] == '\0');
  CHECK(size_of("case0/output.txt") == 6);
}

static void a_crash_is_the_case_it_happened_in(void)
{
  const char *const s[] = {"done_ ''\n", "echo 'something broke' >&2; exit 7\n", "done_ ''\n"};
  const struct job_end e = run(s, 3, 30);
  CHECK(e.finished == 1 && e.status == 7 && strcmp(e.end, "exited") == 0);
  CHECK_TEXT_HAS(e.text, "something broke");
}

static void an_error_told_by_ranks_does_not_stop_the_others(void)
{
  const char *const s[] = {"done_ 'no such model' config\n", "done_ ''\n", "exit 2\n"};
  const struct job_end e = run(s, 2, 30);
  CHECK(e.finished == 2);
  const struct job_end last = run(s, 3, 30); /* the third dies on its own */
  CHECK(last.finished == 2 && last.status == 2);
}

static void a_hang_ends_after_its_limit_and_leaves_nothing(void)
{
  const char *const s[] = {"done_ ''\n", "echo $$ >$dir/../pid; sleep 1000\n", "done_ ''\n"};
  const double start = clock_ms();
  const struct job_end e = run(s, 3, 0.5);
  CHECK(e.finished == 1 && strcmp(e.end, "timeout") == 0);
  CHECK_TEXT_HAS(e.text, "no progress for");
  CHECK(clock_ms() - start < 30000);
  CHECK(!alive("pid"));
}

static void a_child_that_left_the_group_is_found(void)
{
  const char *const s[] = {"setsid sleep 1000 >/dev/null 2>&1 & echo $! >$dir/../pid; done_ ''\n"};
  const struct job_end e = run(s, 1, 30);
  CHECK(e.finished == 1 && e.status == 0);
  CHECK(!alive("pid"));
}

static void a_flood_is_cut_and_stopped(void)
{
  const char *const s[] = {"yes 0123456789012345678901234567890123456789\n"};
  const struct job_end e = run(s, 1, 0.5);
  CHECK(e.finished == 0 && strcmp(e.end, "timeout") == 0);
  CHECK(size_of("case0/output.txt") >= JOB_OUTPUT_BYTES && size_of("case0/output.txt") < JOB_OUTPUT_BYTES + 20000);
}

static void success_without_records_is_no_success(void)
{
  const char *const s[] = {"exit 0\n"};
  const struct job_end e = run(s, 1, 30);
  CHECK(e.finished == 0 && e.status == 0);
  CHECK_TEXT_HAS(e.text, "before every rank had finished");
}

static void one_rank_is_not_both(void)
{
  const char *const s[] = {"done_ ''; rm $dir/records.1.jsonl; exit 0\n"};
  CHECK(run(s, 1, 30).finished == 0);
}

static void a_signal_is_named(void)
{
  const char *const s[] = {"kill -SEGV $$\n"};
  const struct job_end e = run(s, 1, 30);
  CHECK(e.finished == 0 && strcmp(e.end, "killed") == 0 && e.status == SIGSEGV);
  CHECK_TEXT_HAS(e.text, "signal 11");
}

static void a_teardown_that_fails_is_the_last_cases(void)
{
  const char *const s[] = {"done_ ''\n", "done_ ''; exit 9\n"};
  const struct job_end e = run(s, 2, 30);
  CHECK(e.finished == 1 && e.status == 9);
  CHECK_TEXT_HAS(e.text, "after its last case");
}

static void a_job_that_does_not_end_is_ended(void)
{
  const char *const s[] = {"done_ ''; sleep 1000\n"};
  const struct job_end e = run(s, 1, 0.5);
  CHECK(e.finished == 0 && strcmp(e.end, "timeout") == 0);
  CHECK_TEXT_HAS(e.text, "did not end");
}

static void progress_keeps_a_slow_case_alive(void)
{
  const char *const s[] = {"for i in 1 2 3 4 5 6 7 8; do echo '{\"kind\":\"step\"}' >>$dir/records.0.jsonl; sleep 0.2; done; done_ ''\n"};
  CHECK(run(s, 1, 1.0).finished == 1);
}

static void a_foreign_case_lives_by_its_output_and_not_by_silence(void)
{
  static const char loading[] = "i=0; while [ $i -lt 8 ]; do echo loading; sleep 0.5; i=$((i + 1)); done; done_ ''\n";
  CHECK(run_foreign(loading, 2.5).finished == 1);
  const struct job_end e = run_foreign("echo '{\"schema\":1,\"kind\":\"step\",\"case\":\"x\",\"rank\":0,\"step\":1}' >>$dir/records.0.jsonl; sleep 1000\n", 2.5);
  CHECK(e.finished == 0 && strcmp(e.end, "timeout") == 0);
  CHECK_TEXT_HAS(e.text, "rank 1 told of no step, rank 0 last told of step 1");
  const double began = clock_ms();
  CHECK(strcmp(run_foreign("sleep 1000\n", 0.5).end, "timeout") == 0); /* its limit holds from the start */
  CHECK(clock_ms() - began < 20000);
}

int main(void)
{
  static const struct test tests[] = {
    TEST(clean_cases_are_all_finished),
    TEST(a_crash_is_the_case_it_happened_in),
    TEST(an_error_told_by_ranks_does_not_stop_the_others),
    TEST(a_hang_ends_after_its_limit_and_leaves_nothing),
    TEST(a_child_that_left_the_group_is_found),
    TEST(a_flood_is_cut_and_stopped),
    TEST(success_without_records_is_no_success),
    TEST(one_rank_is_not_both),
    TEST(a_signal_is_named),
    TEST(a_teardown_that_fails_is_the_last_cases),
    TEST(a_job_that_does_not_end_is_ended),
    TEST(progress_keeps_a_slow_case_alive),
    TEST(a_foreign_case_lives_by_its_output_and_not_by_silence),
  };
  char path[192];
  snprintf(root, sizeof root, "/tmp/job_test.%d", (int)getpid());
  if (mkdir(root, 0700) != 0) return 1;
  snprintf(path, sizeof path, "%s/trainer", root);
  write_file(path, trainer, 0755);
  snprintf(path, sizeof path, "%s/launcher", root);
  write_file(path, launcher, 0755);
  const int status = test_main("job", tests, sizeof tests / sizeof *tests);
  snprintf(path, sizeof path, "rm -rf %s", root);
  return system(path) == 0 ? status : 1;
}
