/* log_test.c - who speaks, and that a line is whole. */
#include "base/log.h"
#include "testing/check.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* What `speak` puts on standard error, which is put back afterwards. */
static const char *heard(void (*speak)(void))
{
  static char text[8192];
  int ends[2];
  if (!CHECK(pipe(ends) == 0)) return "";
  const int keep = dup(STDERR_FILENO);
  dup2(ends[1], STDERR_FILENO);
  speak();
  dup2(keep, STDERR_FILENO);
  close(keep);
  close(ends[1]);
  size_t used = 0;
  for (ssize_t n; (n = read(ends[0], text + used, sizeof text - 1 - used)) > 0;) used += (size_t)n;
  text[used] = '\0';
  close(ends[0]);
  return text;
}

static void all_three(void)
{
  log_info("step %d", 4);
  log_rank("ready");
  log_detail("fine");
}

static void a_long_line(void)
{
  static char text[5000];
  memset(text, 'x', sizeof text - 1);
  log_rank("%s", text);
}

static void rank_0_informs_and_every_rank_may_speak(void)
{
  log_setup(LOG_NORMAL, -1);
  CHECK(strcmp(heard(all_three), "step 4\nready\n") == 0);
  log_setup(LOG_NORMAL, 0);
  CHECK(strcmp(heard(all_three), "step 4\nrank 0: ready\n") == 0);
  log_setup(LOG_NORMAL, 3);
  CHECK(strcmp(heard(all_three), "rank 3: ready\n") == 0);
}

static void the_level_decides(void)
{
  log_setup(LOG_QUIET, 0);
  CHECK(strcmp(heard(all_three), "") == 0);
  log_setup(LOG_VERBOSE, 1);
  CHECK(strcmp(heard(all_three), "rank 1: ready\nrank 1: fine\n") == 0);
}

static void a_long_line_is_cut_and_still_ends(void)
{
  log_setup(LOG_NORMAL, 12);
  const char *text = heard(a_long_line);
  CHECK(strncmp(text, "rank 12: xxx", 12) == 0);
  CHECK(strlen(text) < 2049 && strlen(text) > 2000);
  CHECK(text[strlen(text) - 1] == '\n');
}

int main(void)
{
  static const struct test tests[] = {
    TEST(rank_0_informs_and_every_rank_may_speak),
    TEST(the_level_decides),
    TEST(a_long_line_is_cut_and_still_ends),
  };
  return test_main("log", tests, sizeof tests / sizeof *tests);
}
