/* err_test.c - the reason once, the way up, and both across threads. */
#include "base/err.h"
#include "testing/check.h"

#include <pthread.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#include <stdio.h>

static enum err origin(int n) { FAIL(ERR_FORMAT, "byte %d", n); }
static enum err middle(int n)
{
  TRY(origin(n));
  return ERR_OK;
}
static enum err ladder(int *undone, int fail_at)
{
  enum err err = ERR_OK;
  if (fail_at == 0) FAIL(ERR_MEMORY, "first");
  if (fail_at == 1) FAIL_TO(undo_first, ERR_IO, "second");
  if (fail_at == 2) TRY_TO(undo_second, middle(3));
  return ERR_OK;
undo_second:
  *undone += 10;
undo_first:
  *undone += 1;
  return err;
}

static void the_reason_is_the_origins_and_the_trail_goes_up(void)
{
  err_clear();
  CHECK(strcmp(err_text(), "") == 0 && strcmp(err_trail(), "") == 0);
  CHECK(middle(7) == ERR_FORMAT);
  CHECK(strcmp(err_text(), "byte 7") == 0);
  CHECK_TEXT_HAS(err_trail(), "err_test.c:");
  CHECK_TEXT_HAS(err_trail(), " <- err_test.c:");
  CHECK(strchr(err_trail(), '/') == NULL);
  CHECK(origin(8) == ERR_FORMAT);
  CHECK(strstr(err_trail(), "<-") == NULL); /* a new reason, a new trail */
}

static void a_ladder_undoes_what_was_done(void)
{
  int undone = 0;
  CHECK(ladder(&undone, 0) == ERR_MEMORY && undone == 0);
  CHECK(ladder(&undone, 1) == ERR_IO && undone == 1);
  undone = 0;
  CHECK(ladder(&undone, 2) == ERR_FORMAT && undone == 11);
  CHECK(strcmp(err_text(), "byte 3") == 0);
  CHECK(ladder(&undone, 3) == ERR_OK);
}

static void the_old_reason_may_be_part_of_the_new(void)
{
  CHECK(origin(9) == ERR_FORMAT);
  CHECK(err_set(ERR_IO, "a/b.c", 5, "while opening: %s", err_text()) == ERR_IO);
  CHECK(strcmp(err_text(), "while opening: byte 9") == 0);
  CHECK(strcmp(err_trail(), "b.c:5") == 0);
}

static void long_texts_and_trails_are_cut(void)
{
  char text[5000];
  memset(text, 'x', sizeof text - 1);
  text[sizeof text - 1] = '\0';
  CHECK(err_set(ERR_IO, "f.c", 1, "%s", text) == ERR_IO);
  CHECK(strlen(err_text()) == 1023);
  for (int i = 0; i < 200; i++) err_trace(ERR_IO, "some_file.c", i);
  CHECK(strlen(err_trail()) == 511);
}

static void *fail_in_a_thread(void *out)
{
  err_save(out, middle(4));
  return NULL;
}

static void a_reason_belongs_to_its_thread_until_carried(void)
{
  struct err_saved saved;
  pthread_t thread;
  CHECK(err_set(ERR_IO, "f.c", 1, "mine") == ERR_IO);
  pthread_create(&thread, NULL, fail_in_a_thread, &saved);
  pthread_join(thread, NULL);
  CHECK(strcmp(err_text(), "mine") == 0);
  CHECK(err_restore(&saved) == ERR_FORMAT);
  CHECK(strcmp(err_text(), "byte 4") == 0);
  CHECK_TEXT_HAS(err_trail(), " <- err_test.c:");
}

static void every_code_has_a_name_and_a_status(void)
{
  for (int a = ERR_OK; a <= ERR_INVALID; a++) {
    CHECK(strcmp(err_name((enum err)a), "unknown") != 0);
    for (int b = ERR_OK; b < a; b++) CHECK(strcmp(err_name((enum err)a), err_name((enum err)b)) != 0);
    CHECK((err_status((enum err)a) == STATUS_PASS) == (a == ERR_OK));
  }
  CHECK(err_status(ERR_CONFIG) == STATUS_USAGE && err_status(ERR_UNAVAILABLE) == STATUS_INVALID);
  CHECK(err_status(ERR_IO) == STATUS_INVALID && err_status(ERR_NUMERIC) == STATUS_FAIL && err_status(ERR_COMM) == STATUS_FAIL);
  CHECK(strcmp(err_name((enum err)99), "unknown") == 0);
}

static void end_with_9(void) { _exit(9); }

static void a_bug_ends_through_the_hook(void)
{
  int ends[2], status = 0;
  char said[256] = "";
  CHECK(pipe(ends) == 0);
  fflush(NULL);
  const pid_t child = fork();
  if (child == 0) {
    dup2(ends[1], STDERR_FILENO);
    err_on_bug(end_with_9);
    BUG_IF(1 + 1 == 2);
    _exit(0);
  }
  close(ends[1]);
  CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 9);
  CHECK(read(ends[0], said, sizeof said - 1) > 0);
  CHECK_TEXT_HAS(said, "shardmark: bug at err_test.c:");
  CHECK_TEXT_HAS(said, "1 + 1 == 2");
  close(ends[0]);
}

int main(void)
{
  static const struct test tests[] = {
    TEST(the_reason_is_the_origins_and_the_trail_goes_up),
    TEST(a_ladder_undoes_what_was_done),
    TEST(the_old_reason_may_be_part_of_the_new),
    TEST(long_texts_and_trails_are_cut),
    TEST(a_reason_belongs_to_its_thread_until_carried),
    TEST(every_code_has_a_name_and_a_status),
    TEST(a_bug_ends_through_the_hook),
  };
  return test_main("err", tests, sizeof tests / sizeof *tests);
}
