/* cluster_test.c - ci/cluster: two hosts with names of their own, of which nothing stays, also after a kill. */
#include "base/clock.h"
#include "testing/check.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define CLUSTER SHARDMARK_SOURCE "/ci/cluster"

static int status_of(const char *command)
{
  const int status = system(command);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

/* Where namespaces are not allowed the reason is told, and that is all there is to test. */
static bool allowed(void)
{
  static int known = -1;
  if (known < 0) {
    const int status = status_of(CLUSTER " check");
    known = status == 0;
    CHECK(status == 0 || status == 3);
    if (!known) CHECK(status_of("test -n \"$(" CLUSTER " check 2>&1)\"") == 0);
  }
  return known == 1;
}

/* Namespaces made by the process: its own are named after it. */
static bool are_left(long pid)
{
  char command[128];
  snprintf(command, sizeof command, "ls /run/netns 2>/dev/null | grep -q '^smk%ld[abn]$'", pid);
  return status_of(command) == 0;
}

static bool become(long pid, bool there)
{
  for (int i = 0; i < 600 && are_left(pid) != there; i++) clock_sleep_ms(50);
  return are_left(pid) == there;
}

static void ranks_stand_on_two_hosts(void)
{
  if (!allowed()) return;
  CHECK(status_of(CLUSTER " run mpirun -np 2 --bind-to none hostname 2>&1 | sort | tr '\\n' ' ' | grep -q 'shardmark-a shardmark-b'") == 0);
}

static void the_command_decides_the_status(void)
{
  if (!allowed()) return;
  CHECK(status_of(CLUSTER " run sh -c 'exit 7'") == 7);
  CHECK(status_of(CLUSTER " run --rate nonsense true 2>/dev/null") == 3);
  CHECK(status_of(CLUSTER " run 2>/dev/null") == 2);
  CHECK(status_of(CLUSTER " no-such-verb >/dev/null") == 2);
}

static void nothing_is_left_after_a_kill(void)
{
  static const int signals[] = {SIGKILL, SIGTERM};
  if (!allowed()) return;
  for (int i = 0; i < 2; i++) {
    int status;
    const pid_t child = fork();
    if (child == 0) {
      execl(CLUSTER, "cluster", "run", "sleep", "300", (char *)NULL);
      _exit(127);
    }
    if (!CHECK(child > 0)) return;
    CHECK(become(child, true));
    CHECK(kill(child, signals[i]) == 0 && waitpid(child, &status, 0) == child);
    CHECK(become(child, false));
  }
}

int main(void)
{
  static const struct test tests[] = {
    TEST(ranks_stand_on_two_hosts),
    TEST(the_command_decides_the_status),
    TEST(nothing_is_left_after_a_kill),
  };
  return test_main("two hosts on one machine", tests, sizeof tests / sizeof *tests);
}
