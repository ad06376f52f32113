/* fault_test.c - the registry of faults plants what it names and nothing else. */
#include "base/fault.h"
#include "base/nearest.h"
#include "testing/check.h"

#include <string.h>

static void nothing_is_planted_unless_asked(void)
{
  for (int i = 1; i < FAULT_COUNT; i++) CHECK(!fault_is((enum fault)i));
}

static void each_planted_fault_is_on_alone(void)
{
  for (int i = 1; i < FAULT_COUNT; i++) {
    const struct fault_row *row = &fault_rows[i];
    if (row->status != FAULT_PLANTED) continue;
    CHECK_OK(fault_plant(row->name, 0.25, 2));
    CHECK(fault_strength == 0.25 && fault_rank == 2);
    for (int j = 1; j < FAULT_COUNT; j++) CHECK(fault_is((enum fault)j) == (i == j));
  }
  CHECK_OK(fault_plant("", 1, 0));
  CHECK(fault_is(FAULT_NONE));
  CHECK_OK(fault_plant("cl-ll128-corruption", 1, 0));
  CHECK_OK(fault_plant("none", 1, 0));
  CHECK(fault_is(FAULT_NONE));
}

static void what_is_not_planted_is_unavailable_with_its_note(void)
{
  for (int i = 1; i < FAULT_COUNT; i++) {
    if (fault_rows[i].status == FAULT_PLANTED) continue;
    CHECK_ERR(fault_plant(fault_rows[i].name, 1, 0), ERR_UNAVAILABLE);
    CHECK_TEXT_HAS(err_text(), fault_rows[i].note);
    CHECK(fault_is(FAULT_NONE));
  }
}

static void a_misspelt_name_is_refused_with_the_nearest(void)
{
  enum fault found = FAULT_CLIP_INF_HANDLING;
  CHECK_ERR(fault_find("clip-max-form-in", &found), ERR_CONFIG);
  CHECK(found == FAULT_CLIP_INF_HANDLING);
  CHECK_TEXT_HAS(err_text(), "clip-max-form-in");
  CHECK_TEXT_HAS(err_text(), "nearest: clip-max-for-min");
  CHECK_ERR(fault_plant("CLIP-MAX-FOR-MIN", 1, 0), ERR_CONFIG);
}

static void senseless_strengths_and_ranks_are_refused(void)
{
  CHECK_ERR(fault_plant("clip-max-for-min", 0, 0), ERR_CONFIG);
  CHECK_ERR(fault_plant("clip-max-for-min", 0.0 / 0.0, 0), ERR_CONFIG);
  CHECK_ERR(fault_plant("clip-max-for-min", 1, -1), ERR_CONFIG);
  CHECK(fault_is(FAULT_NONE));
}

static void rows_are_complete_and_distinct(void)
{
  for (int i = 1; i < FAULT_COUNT; i++) {
    const struct fault_row *row = &fault_rows[i];
    CHECK(row->suite[0] && row->cause[0] && row->observable[0] == 'O');
    CHECK(row->status == FAULT_PLANTED || row->note[0]);
    for (int j = 0; j < i; j++) CHECK(strcmp(row->name, fault_rows[j].name) != 0);
  }
}

static void distance_counts_single_edits(void)
{
  CHECK(nearest_distance("bucket", "bucket") == 0);
  CHECK(nearest_distance("bucket", "Bucket") == 0);
  CHECK(nearest_distance("bukcet", "bucket") == 1); /* neighbours swapped */
  CHECK(nearest_distance("buckt", "bucket") == 1);
  CHECK(nearest_distance("bucketts", "bucket") == 2);
  CHECK(nearest_distance("", "lr") == 2);
  CHECK(nearest_distance("kitten", "sitting") == 3);
}

static void nearest_keeps_the_closest_in_order(void)
{
  static const char *const names[] = {"steps", "seed", "sequence", "stage", "step"};
  struct nearest n = nearest_to("stpes");
  for (int i = 0; i < 5; i++) nearest_offer(&n, names[i]);
  char text[64];
  CHECK(strcmp(nearest_text(&n, text, sizeof text), "steps, step, seed") == 0);
  struct nearest cut = nearest_to("clip-max");
  nearest_offer(&cut, "clip-inf");
  nearest_offer(&cut, "clip-max-for-min");
  CHECK(strcmp(nearest_text(&cut, text, sizeof text), "clip-max-for-min, clip-inf") == 0);
  char small[8];
  CHECK(strcmp(nearest_text(&n, small, sizeof small), "steps, ") == 0); /* cut, not overrun */
}

int main(void)
{
  static const struct test tests[] = {
    TEST(nothing_is_planted_unless_asked),
    TEST(each_planted_fault_is_on_alone),
    TEST(what_is_not_planted_is_unavailable_with_its_note),
    TEST(a_misspelt_name_is_refused_with_the_nearest),
    TEST(senseless_strengths_and_ranks_are_refused),
    TEST(rows_are_complete_and_distinct),
    TEST(distance_counts_single_edits),
    TEST(nearest_keeps_the_closest_in_order),
  };
  return test_main("fault", tests, sizeof tests / sizeof *tests);
}
