/* tasks_overlap_test.c - the bare program makes the products and sums of a step, all of them, and tells how long. */
#include "train/train_fixture.h"

static const char *const what[] = {"overlap.both", "overlap.products", "overlap.sums"};

/* tiny with two layers: 2 x (48 x 144 + 48 x 48 + 2 x 48 x 192) weights in blocks, 131 x 48 of the head; three
 * micro-batches of 2 x 24 tokens a rank; 6 FLOP a weight and token. */
static void products_and_sums_are_those_of_a_step(void)
{
  static const char *const settings[] = {"dp: 2\ntask: overlap\nbucket: 5000\nsteps: 3", "dp: 2\ntask: overlap\nbucket: 0\nsteps: 3\ntied: false"};
  for (int i = 0; i < 2; i++) {
    const char *name = i ? "untied" : "tied";
    fixture_run(name, settings[i]);
    if (!CHECK(TRAIN(2, name) == 0)) continue;
    json_t *r = fixture_records(name);
    for (int rank = 0; rank < 2; rank++)
      for (int k = 0; k < 3; k++) {
        const json_t *m = fixture_find(r, "measure", rank, -1, k);
        if (!CHECK(m != NULL)) continue;
        CHECK_TEXT_HAS(record_get_text(m, "got.what"), what[k]);
        CHECK(json_array_size(json_object_get(m, "got.seconds")) == 3);
        for (size_t s = 0; s < 3; s++) CHECK(json_number_value(json_array_get(json_object_get(m, "got.seconds"), s)) > 0);
        CHECK(record_get_int(m, "got.wrong", -1) == 0);
        CHECK(record_get_real(m, "got.flops", -1) == (k == 2 ? 0 : 6.0 * (2 * 27648 + 6288) * 144));
        CHECK((record_get_int(m, "got.bytes", 0) > 4 * (2 * 27648 + 6288)) == (k != 1));
      }
    json_decref(r);
  }
}

static void what_has_no_bare_program_is_refused(void)
{
  static const char *const settings[] = {"task: overlap\nprecision: float64", "task: overlap\ndevice: lazy", "task: overlap\npp: 2"};
  static const char *const said[] = {"valid: precision float32", "device cpu", "pp 1"};
  for (int i = 0; i < 3; i++) {
    char name[16];
    snprintf(name, sizeof name, "refused%d", i);
    fixture_run(name, settings[i]);
    CHECK(TRAIN(i == 2 ? 2 : 1, name) == 2);
    CHECK_TEXT_HAS(fixture_output(), said[i]);
  }
}

int main(void)
{
  static const struct test tests[] = {
    TEST(products_and_sums_are_those_of_a_step),
    TEST(what_has_no_bare_program_is_refused),
  };
  return fixture_main("task overlap", tests, sizeof tests / sizeof *tests);
}
