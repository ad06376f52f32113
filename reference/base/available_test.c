/* available_test.c - what a host says of its memory, from files made here. */
#include "base/available.h"
#include "testing/check.h"

#include <limits.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

static char root[PATH_MAX];

/* The file of that path below the root, and the folders above it. */
static void put(const char *name, const char *text)
{
  char path[2 * PATH_MAX];
  snprintf(path, sizeof path, "%s%s", root, name);
  for (char *slash = path + strlen(root) + 1; (slash = strchr(slash, '/')) != NULL; *slash++ = '/') {
    *slash = '\0';
    mkdir(path, 0700);
  }
  FILE *f = fopen(path, "w");
  if (CHECK(f != NULL)) fputs(text, f), fclose(f);
}

static void begin(const char *groups)
{
  snprintf(root, sizeof root, "%s/available_XXXXXX", getenv("TMPDIR") ? getenv("TMPDIR") : "/tmp");
  CHECK(mkdtemp(root) != NULL);
  put("/proc/meminfo", "MemTotal:       2000 kB\nMemAvailable:   1000 kB\n");
  put("/proc/self/cgroup", groups);
}

static void end(void)
{
  char command[PATH_MAX + 16];
  snprintf(command, sizeof command, "rm -r '%s'", root);
  CHECK(system(command) == 0);
}

static void without_groups_it_is_what_the_system_says(void)
{
  begin("");
  CHECK(available_under(root) == 1000 * 1024);
  CHECK(available_under("/nothing/is/here") == SIZE_MAX);
  end();
}

static void a_group_of_version_2_and_those_above_it_count(void)
{
  begin("0::/one/two\n");
  CHECK(available_under(root) == 1000 * 1024);
  put("/sys/fs/cgroup/one/two/memory.max", "max\n");
  put("/sys/fs/cgroup/one/two/memory.current", "9000\n");
  CHECK(available_under(root) == 1000 * 1024);
  put("/sys/fs/cgroup/one/memory.max", "90000\n");
  put("/sys/fs/cgroup/one/memory.current", "30000\n");
  CHECK(available_under(root) == 60000);
  put("/sys/fs/cgroup/one/memory.stat", "anon 5\ninactive_file 10000\n");
  CHECK(available_under(root) == 70000);
  put("/sys/fs/cgroup/one/two/memory.max", "8000\n");
  CHECK(available_under(root) == 0);
  end();
}

static void version_1_has_a_line_of_its_own(void)
{
  begin("9:cpu,cpuacct:/helpers\n7:memory:/job\n0::/\n");
  put("/sys/fs/cgroup/memory/job/memory.limit_in_bytes", "500000\n");
  put("/sys/fs/cgroup/memory/job/memory.usage_in_bytes", "100000\n");
  CHECK(available_under(root) == 400000);
  put("/sys/fs/cgroup/memory/memory.limit_in_bytes", "300000\n"); /* of a container that sees its own group as the root */
  put("/sys/fs/cgroup/memory/memory.usage_in_bytes", "100000\n");
  put("/sys/fs/cgroup/memory/memory.stat", "total_inactive_file 50000\n");
  CHECK(available_under(root) == 250000);
  end();
}

static rlim_t mapped(void)
{
  unsigned long pages = 0;
  FILE *f = fopen("/proc/self/statm", "r");
  if (CHECK(f != NULL)) CHECK(fscanf(f, "%lu", &pages) == 1), fclose(f);
  return (rlim_t)pages * (rlim_t)sysconf(_SC_PAGESIZE);
}

static void here_something_is_available_and_no_more_than_may_be_mapped(void)
{
  enum { MORE = 4 << 20 };
  struct rlimit before, some;
  CHECK(available_bytes() > MORE && available_bytes() < SIZE_MAX);
  CHECK(getrlimit(RLIMIT_AS, &before) == 0);
  some = before;
  some.rlim_cur = mapped() + MORE;
  CHECK(setrlimit(RLIMIT_AS, &some) == 0);
  const size_t left = available_to_map();
  CHECK(setrlimit(RLIMIT_AS, &before) == 0);
  CHECK(left <= MORE);
  CHECK(available_to_map() > MORE);
}

int main(void)
{
  static const struct test tests[] = {
    TEST(without_groups_it_is_what_the_system_says),
    TEST(a_group_of_version_2_and_those_above_it_count),
    TEST(version_1_has_a_line_of_its_own),
    TEST(here_something_is_available_and_no_more_than_may_be_mapped),
  };
  return test_main("available", tests, sizeof tests / sizeof *tests);
}
