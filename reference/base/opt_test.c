/* opt_test.c - text becomes the value it spells or is refused with what would do. */
#include "base/opt.h"
#include "testing/check.h"

#include <stddef.h>
#include <stdlib.h>
#include <string.h>

struct thing {
  int64_t ranks, kind;
  double rate, tiny;
  bool on;
  char name[8];
};
#define AT(field) offsetof(struct thing, field), sizeof(((struct thing *)0)->field)
static const struct opt table[] = {
  {"ranks", OPT_INT, AT(ranks), "4", "-2..64", "ranks", "how many"},
  {"kind", OPT_NAME, AT(kind), "slow", "fast|slow|faster", "", "which"},
  {"rate", OPT_REAL, AT(rate), "0.5", "0.5..1", "", "how much"},
  {"tiny", OPT_REAL, AT(tiny), "1e-8", "1e-30..1e30", "", "how little"},
  {"on", OPT_BOOL, AT(on), "false", "", "", "whether"},
  {"name", OPT_TEXT, AT(name), "", "a word", "", "what to call it"},
};
enum { N = sizeof table / sizeof *table };

static enum err set(struct thing *t, const char *key, const char *text)
{
  return opt_set_key(table, N, t, key, text, "run.yaml:3");
}

static void defaults_are_those_of_the_table(void)
{
  struct thing t;
  opt_defaults(table, N, &t);
  CHECK(t.ranks == 4 && t.kind == 1 && t.rate == 0.5 && t.tiny == 1e-8 && !t.on && strcmp(t.name, "") == 0);
}

static void values_inside_their_range_are_taken(void)
{
  struct thing t;
  opt_defaults(table, N, &t);
  CHECK_OK(set(&t, "ranks", "-2"));
  CHECK(t.ranks == -2);
  CHECK_OK(set(&t, "ranks", "64"));
  CHECK(t.ranks == 64);
  CHECK_OK(set(&t, "kind", "faster"));
  CHECK(t.kind == 2);
  CHECK_OK(set(&t, "kind", "fast"));
  CHECK(t.kind == 0);
  CHECK_OK(set(&t, "rate", "1"));
  CHECK(t.rate == 1);
  CHECK_OK(set(&t, "rate", ".75e0"));
  CHECK(t.rate == 0.75);
  CHECK_OK(set(&t, "on", "true"));
  CHECK(t.on);
  CHECK_OK(set(&t, "name", "sieben7"));
  CHECK(strcmp(t.name, "sieben7") == 0);
}

/* Each is refused, changes nothing, and says where, key, value and what is valid. */
static void what_does_not_spell_a_valid_value_is_refused(void)
{
  static const struct {
    const char *key, *text, *valid;
  } bad[] = {
    {"ranks", "3x", "a whole number -2..64 (ranks)"},
    {"ranks", "", "-2..64"},
    {"ranks", " 3", "-2..64"},
    {"ranks", "3 ", "-2..64"},
    {"ranks", "+3", "-2..64"},
    {"ranks", "3.0", "-2..64"},
    {"ranks", "0x3", "-2..64"},
    {"ranks", "1e1", "-2..64"},
    {"ranks", "-", "-2..64"},
    {"ranks", "65", "-2..64"},
    {"ranks", "-3", "-2..64"},
    {"ranks", "9223372036854775808", "-2..64"},
    {"rate", "0.4999", "a number 0.5..1"},
    {"rate", "1.0000001", "0.5..1"},
    {"rate", "nan", "0.5..1"},
    {"rate", "inf", "0.5..1"},
    {"rate", "1e999", "0.5..1"},
    {"rate", "0x1p-1", "0.5..1"},
    {"rate", "0,7", "0.5..1"},
    {"rate", "", "0.5..1"},
    {"rate", "0.7 ", "0.5..1"},
    {"rate", "e", "0.5..1"},
    {"kind", "fas", "fast|slow|faster"},
    {"kind", "fast|slow", "fast|slow|faster"},
    {"kind", "", "fast|slow|faster"},
    {"kind", "Fast", "fast|slow|faster"},
    {"on", "yes", "true|false"},
    {"on", "1", "true|false"},
    {"on", "", "true|false"},
    {"name", "eightlet", "at most 7"},
    {"name", "a\tb", "UTF-8 without control"},
    {"name", "\xff", "UTF-8"},
    {"name", "\xc0\xaf", "UTF-8"},         /* overlong */
    {"name", "\xed\xa0\x80", "UTF-8"},     /* a surrogate */
    {"name", "\xe2\x80", "UTF-8"},         /* cut */
    {"name", "\xf4\x90\x80\x80", "UTF-8"}, /* past the last code point */
    {"name", "\xe2\x80\xa8", "UTF-8"},     /* a line separator: YAML would fold it */
  };
  for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
    struct thing t, before;
    memset(&t, 0, sizeof t);
    opt_defaults(table, N, &t);
    before = t;
    CHECK_ERR(set(&t, bad[i].key, bad[i].text), ERR_CONFIG);
    CHECK_TEXT_HAS(err_text(), "run.yaml:3: ");
    CHECK_TEXT_HAS(err_text(), bad[i].key);
    CHECK_TEXT_HAS(err_text(), bad[i].valid);
    if (strcmp(bad[i].key, "name") != 0) CHECK_TEXT_HAS(err_text(), bad[i].text);
    CHECK_SAME_BITS(&t, &before, sizeof t);
  }
}

static void an_unknown_key_is_refused_with_the_nearest(void)
{
  struct thing t;
  opt_defaults(table, N, &t);
  CHECK_ERR(set(&t, "rnaks", "3"), ERR_CONFIG);
  CHECK_TEXT_HAS(err_text(), "run.yaml:3: ");
  CHECK_TEXT_HAS(err_text(), "'rnaks'");
  CHECK_TEXT_HAS(err_text(), "nearest: ranks");
  CHECK_ERR(opt_set_key(table, N, &t, "Ranks", "3", NULL), ERR_CONFIG);
  CHECK(err_text()[0] == 'n'); /* no place in front when there is none */
  CHECK(opt_find(table, N, "rank") == NULL);
  CHECK(opt_find(table, N, "rate") == &table[2]);
}

static void text_reads_back_equal(void)
{
  static const double reals[] = {0.1, 1.0 / 3, 2.5e-17, 1e22, 6.02214076e23, 1e-30, 5e29};
  struct thing t, back;
  memset(&t, 0, sizeof t);
  opt_defaults(table, N, &t);
  for (size_t i = 0; i < sizeof reals / sizeof *reals; i++) {
    t.tiny = reals[i];
    t.kind = (int64_t)i % 3;
    t.on = i % 2;
    t.ranks = (int64_t)i - 2;
    strcpy(t.name, i % 2 ? "\xc3\xa4:#" : "");
    memset(&back, 0, sizeof back);
    for (int o = 0; o < N; o++) {
      char text[64];
      opt_text(&table[o], &t, text, sizeof text);
      CHECK_OK(opt_set(&table[o], &back, text, NULL));
    }
    CHECK(back.tiny == t.tiny && back.kind == t.kind && back.on == t.on && back.ranks == t.ranks);
    CHECK(strcmp(back.name, t.name) == 0);
  }
  char text[64];
  t.tiny = 0.1;
  opt_text(&table[3], &t, text, sizeof text);
  CHECK(strcmp(text, "0.1") == 0); /* not 0.10000000000000001 */
}

static void json_has_the_type_of_the_value(void)
{
  struct thing t;
  opt_defaults(table, N, &t);
  strcpy(t.name, "n");
  json_t *values[N];
  for (int o = 0; o < N; o++) values[o] = opt_json(&table[o], &t);
  CHECK(json_is_integer(values[0]) && json_integer_value(values[0]) == 4);
  CHECK(json_is_string(values[1]) && strcmp(json_string_value(values[1]), "slow") == 0);
  CHECK(json_is_real(values[2]) && json_real_value(values[2]) == 0.5);
  CHECK(json_is_false(values[4]));
  CHECK(json_is_string(values[5]) && strcmp(json_string_value(values[5]), "n") == 0);
  for (int o = 0; o < N; o++) json_decref(values[o]);
}

static void every_form_of_the_table_lists_every_option(void)
{
  json_t *json = opt_table_json(table, N);
  CHECK(json_array_size(json) == N);
  CHECK(strcmp(json_string_value(json_object_get(json_array_get(json, 4), "valid")), "true|false") == 0);
  json_decref(json);

  char *text;
  size_t bytes;
  FILE *out = open_memstream(&text, &bytes);
  opt_table_markdown(table, N, out);
  opt_table_help(table, N, out);
  fclose(out);
  CHECK_TEXT_HAS(text, "| `kind` | slow | fast\\|slow\\|faster |  | which |\n");
  CHECK_TEXT_HAS(text, "| `ranks` | 4 | -2..64 | ranks | how many |\n");
  CHECK_TEXT_HAS(text, "  ranks              how many [ranks]; -2..64; default 4\n");
  CHECK_TEXT_HAS(text, "  on                 whether; true|false; default false\n");
  free(text);
}

int main(void)
{
  static const struct test tests[] = {
    TEST(defaults_are_those_of_the_table),
    TEST(values_inside_their_range_are_taken),
    TEST(what_does_not_spell_a_valid_value_is_refused),
    TEST(an_unknown_key_is_refused_with_the_nearest),
    TEST(text_reads_back_equal),
    TEST(json_has_the_type_of_the_value),
    TEST(every_form_of_the_table_lists_every_option),
  };
  return test_main("opt", tests, sizeof tests / sizeof *tests);
}
