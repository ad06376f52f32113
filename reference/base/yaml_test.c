/* yaml_test.c - a tree with places, and a refusal with a place for the rest. */
#include "base/yaml.h"
#include "testing/check.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void the_tree_has_kinds_texts_and_places(void)
{
  struct yaml *y;
  if (!CHECK_OK(yaml_parse("# a comment\nsteps: 3x\nlist: [a, 'b c', \"d\\te\"]\nmap:\n  empty:\n  deep: {k: v}\n", "f", &y))) return;
  CHECK(y->kind == YAML_MAP && y->n == 3 && y->line == 2 && y->column == 1);
  const struct yaml *steps = yaml_get(y, "steps");
  CHECK(steps->kind == YAML_SCALAR && strcmp(steps->text, "3x") == 0); /* stays text: not 3 */
  CHECK(steps->line == 2 && steps->column == 8);
  const struct yaml *list = yaml_get(y, "list");
  CHECK(list->kind == YAML_LIST && list->n == 3 && list->keys == NULL);
  CHECK(strcmp(list->values[1]->text, "b c") == 0 && strcmp(list->values[2]->text, "d\te") == 0);
  const struct yaml *map = yaml_get(y, "map");
  CHECK(map->kind == YAML_MAP && map->n == 2 && map->keys[1]->line == 6 && map->keys[1]->column == 3);
  CHECK(strcmp(yaml_get(map, "empty")->text, "") == 0);
  CHECK(strcmp(yaml_get(yaml_get(map, "deep"), "k")->text, "v") == 0);
  CHECK(yaml_get(y, "step") == NULL && yaml_get(list, "a") == NULL);
  yaml_destroy(y);
}

static void lists_and_maps_grow(void)
{
  char text[4096] = "";
  size_t used = 0;
  for (int i = 0; i < 100; i++) used += (size_t)snprintf(text + used, sizeof text - used, "k%d: [%d, %d, %d]\n", i, i, i, i);
  struct yaml *y;
  if (!CHECK_OK(yaml_parse(text, "f", &y))) return;
  CHECK(y->n == 100);
  for (int i = 0; i < 100; i++) CHECK(y->values[i]->n == 3 && atoi(y->values[i]->values[2]->text) == i && y->values[i]->line == i + 1);
  yaml_destroy(y);
}

static void what_has_no_use_here_is_refused_with_its_place(void)
{
  static const struct {
    const char *text, *said;
  } bad[] = {
    {"a: 1\nb: 2\na: 3\n", "f:3:1: repeated key 'a'"},
    {"m:\n  x: 1\n  x: 1\n", "f:3:3: repeated key 'x'"},
    {"a: &here 1\nb: *here\n", "f:1:4: anchors and aliases are not used here: anchor 'here'"},
    {"a: 1\nb: *here\n", "f:2:4: anchors and aliases are not used here: alias 'here'"},
    {"a: !!int 3\n", "f:1:4: tags are not used here"},
    {"a: ! 3\n", "f:1:4: tags are not used here"},
    {"a: !mine {b: c}\n", "f:1:4: tags"},
    {"a: 1\n---\nb: 2\n", "f:2:1: a second document"},
    {"? [a, b]\n: c\n", "f:1:3: a key must be plain text"},
    {"? {a: b}\n: c\n", "f:1:3: a key must be plain text"},
    {"a: [1, 2\n", "f:2:1: "},
    {"a: 'open\n", "f:"},
    {"\ta: 1\n", "f:1:1: "},
    {"a: b: c\n", "f:1:5: "},
    {"a: \"x\\0y\"\n", "f:1:4: a value holds a zero byte"},
    {"", "f:1:1: the file is empty"},
    {"# nothing\n", "f:1:1: the file is empty"},
    {"a: \xff\n", "f: byte 3: "},
    {"a: \x01\n", "f: byte 3: "},
  };
  for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
    struct yaml *y = (struct yaml *)&i;
    CHECK_ERR(yaml_parse(bad[i].text, "f", &y), ERR_CONFIG);
    CHECK_TEXT_HAS(err_text(), bad[i].said);
    CHECK(y == NULL);
  }
}

static void a_name_that_is_no_file_is_a_mistake(void)
{
  CHECK_ERR(yaml_look("run file", "/nowhere/at/all"), ERR_CONFIG);
  CHECK_TEXT_HAS(err_text(), "run file /nowhere/at/all: No such file");
  CHECK_ERR(yaml_look("suite", "/tmp"), ERR_CONFIG);
  CHECK_TEXT_HAS(err_text(), "suite /tmp: Is a directory");
  CHECK_OK(yaml_look("run file", "/dev/null"));
}

static void a_file_of_brackets_is_refused(void)
{
  char text[600];
  memset(text, '[', sizeof text - 1);
  text[sizeof text - 1] = '\0';
  struct yaml *y;
  CHECK_ERR(yaml_parse(text, "f", &y), ERR_CONFIG);
  CHECK_TEXT_HAS(err_text(), "nested too deeply");
}

static void a_file_is_read_or_the_reason_is_told(void)
{
  char path[] = "/tmp/yaml_test.XXXXXX";
  const int file = mkstemp(path);
  CHECK(write(file, "a: b\n", 5) == 5);
  close(file);
  struct yaml *y;
  if (CHECK_OK(yaml_read(path, &y))) CHECK(strcmp(yaml_get(y, "a")->text, "b") == 0);
  yaml_destroy(y);
  unlink(path);
  CHECK_ERR(yaml_read(path, &y), ERR_IO);
  CHECK_TEXT_HAS(err_text(), path);
  CHECK(y == NULL);
  CHECK_ERR(yaml_read("/tmp", &y), ERR_IO);
  CHECK(y == NULL);
}

/* Under ASan a leak on any of these ways out is an error as well. */
static void no_memory_is_told_and_leaks_nothing(void)
{
  struct yaml *y = NULL;
  bool failed = true;
  for (long n = 1; failed && n < 1000; n++) {
    check_fail_allocation(n);
    const enum err err = yaml_parse("a: 1\nb: [x, y, {c: d}]\n", "f", &y);
    failed = check_allocation_failed();
    check_fail_allocation(0);
    CHECK(err == (failed ? ERR_MEMORY : ERR_OK));
    CHECK((y == NULL) == failed);
  }
  CHECK(!failed);
  yaml_destroy(y);
}

int main(void)
{
  static const struct test tests[] = {
    TEST(the_tree_has_kinds_texts_and_places),
    TEST(lists_and_maps_grow),
    TEST(what_has_no_use_here_is_refused_with_its_place),
    TEST(a_name_that_is_no_file_is_a_mistake),
    TEST(a_file_of_brackets_is_refused),
    TEST(a_file_is_read_or_the_reason_is_told),
    TEST(no_memory_is_told_and_leaks_nothing),
  };
  return test_main("yaml", tests, sizeof tests / sizeof *tests);
}
