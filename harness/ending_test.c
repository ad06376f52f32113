/* ending_test.c - what launchers print when a rank is gone, and whose word counts. */
#include "harness/ending.h"
#include "harness/results.h"
#include "testing/check.h"

#include "base/slot.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static char dir[64];

static void write_file(const char *name, const void *bytes, size_t n)
{
  char path[512];
  snprintf(path, sizeof path, "%s/%s", dir, name);
  FILE *f = fopen(path, "wb");
  if (f == NULL || fwrite(bytes, 1, n, f) != n || fclose(f) != 0) abort();
}

/* Two ranks, pids 4242 and 4243, the second in step 3 at collective 11 of group dp. */
static void two_slots(void)
{
  static struct slot s[2];
  memset(s, 0, sizeof s);
  for (int i = 0; i < 2; i++) {
    s[i].rank = i;
    s[i].pid = 4242 + i;
    s[i].step = 3;
    snprintf(s[i].comms[0].name, SLOT_NAME, "dp");
    snprintf(s[i].comms[0].op, SLOT_NAME, "allreduce");
    s[i].comms[0].started = 11 + (i == 0);
    s[i].comms[0].done = 11;
  }
  write_file("state.elsewhere", s, sizeof s);
}

static void exited(int status, const char *tail, struct job_end *out)
{
  *out = (struct job_end){0};
  ending_of_exit(status << 8, tail, dir, out);
}

/* The text of Open MPI 4.1.4 for kill -9 of a rank. */
static void open_mpi_names_the_rank(void)
{
  struct job_end e;
  CHECK_OK(results_clean_run(dir));
  two_slots();
  exited(137, "--------------------\nmpirun noticed that process rank 1 with PID 0 on node vm exited on signal 9 (Killed).\n------\n", &e);
  CHECK(strcmp(e.end, "killed") == 0 && e.status == SIGKILL);
  CHECK_TEXT_HAS(e.text, "rank 1 was ended by signal 9");
  CHECK_TEXT_HAS(e.text, "rank 1 in step 3, last collective dp #11 allreduce");
}

/* The same for kill -15, which the rank turns into an exit of its own, after last words. */
static void a_rank_that_ended_itself_on_a_signal_is_named(void)
{
  struct job_end e;
  CHECK_OK(results_clean_run(dir));
  two_slots();
  exited(143, "mpirun detected that one or more processes exited with non-zero status, thus causing\n"
              "the job to be terminated. The first process to do so was:\n\n  Process name: [[6126,1],1]\n  Exit code:    143\n-----\n", &e);
  CHECK(strcmp(e.end, "killed") == 0 && e.status == SIGTERM);
  CHECK_TEXT_HAS(e.text, "rank 1 was ended by signal 15");
}

/* The text of MPICH 4.0.2 (Hydra): it names the process, the slots know its rank. */
static void mpich_names_the_process(void)
{
  struct job_end e;
  CHECK_OK(results_clean_run(dir));
  two_slots();
  exited(9, "=   BAD TERMINATION OF ONE OF YOUR APPLICATION PROCESSES\n=   PID 4243 RUNNING AT vm\n=   EXIT CODE: 9\n"
            "YOUR APPLICATION TERMINATED WITH THE EXIT STRING: Killed (signal 9)\n", &e);
  CHECK(strcmp(e.end, "killed") == 0 && e.status == SIGKILL);
  CHECK_TEXT_HAS(e.text, "rank 1 was ended by signal 9");
}

static const char told[] = "{\"schema\":1,\"kind\":\"done\",\"case\":\"x\",\"rank\":1,\"got.error\":\"corpus: no such directory\","
                           "\"got.error_kind\":\"config\"}\n";
static const char last_words[] = "{\"schema\":1,\"kind\":\"done\",\"case\":\"x\",\"rank\":0,\"got.error\":\"ended by signal 15\","
                                 "\"got.error_kind\":\"interrupted\"}\n";

static void a_ranks_own_reason_comes_first(void)
{
  struct job_end e;
  CHECK_OK(results_clean_run(dir));
  write_file("rank0.jsonl", last_words, sizeof last_words - 1);
  write_file("rank1.jsonl", told, sizeof told - 1);
  exited(1, "mpirun noticed that process rank 0 with PID 4242 on node vm exited on signal 15 (Terminated).\n", &e);
  CHECK(strcmp(e.end, "exited") == 0 && e.status == STATUS_USAGE);
  CHECK_TEXT_HAS(e.text, "rank 1: corpus: no such directory");
}

static const char on_another[] = "{\"schema\":1,\"kind\":\"done\",\"case\":\"x\",\"rank\":0,\"got.error\":\"rank 1: no memory\",\"got.error_kind\":\"memory\"}\n";

static void a_reason_that_names_a_rank_names_it_once(void)
{
  char text[128];
  enum status status;
  CHECK_OK(results_clean_run(dir));
  write_file("rank0.jsonl", on_another, sizeof on_another - 1);
  CHECK(ending_error(dir, text, sizeof text, &status));
  CHECK(strcmp(text, "rank 1: no memory") == 0);
}

static void last_words_are_no_reason(void)
{
  struct job_end e;
  char text[128];
  enum status status;
  CHECK_OK(results_clean_run(dir));
  write_file("rank0.jsonl", last_words, sizeof last_words - 1);
  CHECK(!ending_error(dir, text, sizeof text, &status));
  exited(137, "mpirun noticed that process rank 1 with PID 7 on node vm exited on signal 9 (Killed).\n", &e);
  CHECK_TEXT_HAS(e.text, "rank 1 was ended by signal 9");
  CHECK(!job_case_done(dir, 1, &(int){0}));
}

static void without_any_word_the_last_line_is_quoted(void)
{
  struct job_end e;
  CHECK_OK(results_clean_run(dir));
  exited(13, "first\nlibfoo.so: cannot open\n-----\n", &e);
  CHECK(e.status == 13);
  CHECK_TEXT_HAS(e.text, "exit status 13: libfoo.so: cannot open");
  exited(5, "", &e);
  CHECK_TEXT_HAS(e.text, "no output");
}

/* The text of Open MPI 4.1.4 where a process that knows no MPI ended with status 1. */
static void a_rank_that_exited_is_named_with_its_own_last_line(void)
{
  struct job_end e;
  CHECK_OK(results_clean_run(dir));
  exited(1, "Traceback (most recent call last):\nValueError: no such thing\n"
            "--------------------------------------------------------------------------\n"
            "Primary job  terminated normally, but 1 process returned\na non-zero exit code. Per user-direction, the job has been aborted.\n"
            "--------------------------------------------------------------------------\n"
            "mpirun detected that one or more processes exited with non-zero status, thus causing\nthe job to be terminated. The first process to do so was:\n\n"
            "  Process name: [[16353,1],1]\n  Exit code:    1\n"
            "--------------------------------------------------------------------------\n", &e);
  CHECK(strcmp(e.end, "exited") == 0 && e.status == 1);
  CHECK(strcmp(e.text, "rank 1: exit status 1: ValueError: no such thing") == 0);
}

/* Without slots: by the records that each rank wrote. */
static void ranks_that_are_behind_come_first(void)
{
  char text[200];
  CHECK_OK(results_clean_run(dir));
  static const char steps[] = "{\"schema\":1,\"kind\":\"step\",\"case\":\"x\",\"rank\":0,\"step\":2}\n{\"schema\":1,\"kind\":\"step\",\"case\":\"x\",\"rank\":2,\"step\":0}\n{\"schema\":1,\"kind\":\"step\",\"case\":\"x\",\"rank\":2,\"step\":1}\n";
  write_file("records.jsonl", steps, sizeof steps - 1);
  ending_last_told(dir, 3, text, sizeof text);
  if (!CHECK(strcmp(text, "rank 1 told of no step, rank 2 last told of step 1, rank 0 last told of step 2") == 0)) fprintf(stderr, "%s\n", text);
  write_file("records.jsonl", "rubbish\n", 8);
  ending_last_told(dir, 2, text, sizeof text);
  CHECK(text[0] == '\0');
}

int main(void)
{
  static const struct test tests[] = {
    TEST(a_rank_that_exited_is_named_with_its_own_last_line), TEST(ranks_that_are_behind_come_first),
    TEST(open_mpi_names_the_rank),        TEST(mpich_names_the_process),
    TEST(a_ranks_own_reason_comes_first), TEST(last_words_are_no_reason),
    TEST(a_rank_that_ended_itself_on_a_signal_is_named), TEST(a_reason_that_names_a_rank_names_it_once),
    TEST(without_any_word_the_last_line_is_quoted),
  };
  snprintf(dir, sizeof dir, "/tmp/ending_test.%d", (int)getpid());
  const int status = test_main("ending", tests, sizeof tests / sizeof *tests);
  return results_clean_run(dir) == ERR_OK && rmdir(dir) == 0 ? status : 1;
}
