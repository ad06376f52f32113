/* diagnose_shares_test.c - evidence bent as faults of shared state bend it is named by its cause. */
#include "whole_test.h"

static struct whole w;

static void setup(void)
{
  struct run_config c = made_config(2);
  c.zero = 1;
  whole_setup(&w, &c);
}
static void teardown(void) { whole_teardown(&w); }

static void a_clean_run_has_no_diagnosis(void)
{
  setup();
  CHECK(strcmp(whole_diagnose(&w), "") == 0);
  for (int i = 0; i < w.n; i++)
    if (!CHECK(w.list[i].outcome == OUTCOME_PASS)) fprintf(stderr, "%s: %s\n", w.checks[i], w.list[i].sentence);
  teardown();
}

/* 3-4-5: the squares of the shards' norms are those of the whole. */
static void norms_of_shards_make_the_whole_together(void)
{
  setup();
  const double norm = made_get(&w.b.run, "step", 0, 0, -1, "got.norm");
  for (int rank = 0; rank < 2; rank++) made_set(&w.b.run, "step", rank, 0, -1, "got.norm", json_real(norm * (rank ? 0.8 : 0.6)));
  CHECK(whole_named(&w, FAULT_CLIP_LOCAL_NORM));
  made_set(&w.b.run, "step", 1, 0, -1, "got.norm", json_real(norm * 0.7));
  CHECK(strcmp(whole_diagnose(&w), "clip-local-norm") != 0);
  teardown();
}

static void other_weights_of_equal_gradients_were_handed_on_stale(void)
{
  setup();
  for (size_t i = 0; i < json_array_size(w.b.run.records); i++) {
    json_t *r = json_array_get(w.b.run.records, i);
    if (evidence_is(r, "replica") && evidence_rank(r) == 1 && strcmp(evidence_text(r, "got.what"), "weights") == 0)
      json_object_set_new(r, "got.hash", json_string("feed"));
  }
  CHECK(whole_named(&w, FAULT_GR_BCAST_UNCAST_BUFFER));
  teardown();
}

/* The weights after the first update alone; with replicas that differ it is something else. */
static void an_update_of_other_elements_was_walked_wrongly(void)
{
  setup();
  made_bend(&w.b.run, "weights", 1, "c_fc.weight", 1.5, 0.0);
  CHECK(whole_named(&w, FAULT_Z_PADDING_STRIDE));
  for (size_t i = 0; i < json_array_size(w.b.run.records); i++) {
    json_t *r = json_array_get(w.b.run.records, i);
    if (evidence_is(r, "replica") && evidence_rank(r) == 1 && strcmp(evidence_text(r, "got.what"), "scalars") == 0)
      json_object_set_new(r, "got.hash", json_string("feed"));
  }
  CHECK(strcmp(whole_diagnose(&w), "z-padding-stride") != 0);
  teardown();
}

/* Weights that are no numbers after a step whose norm is one, where what ends is poisoned. */
static void an_update_that_made_no_numbers_read_what_is_dead(void)
{
  setup();
  w.b.run.data.config.poison_end = true;
  made_bend(&w.b.run, "weights", 1, "c_fc.weight", 1.0, NAN);
  CHECK(whole_named(&w, FAULT_Z_FOREIGN_PIECE));
  made_set(&w.b.run, "step", 0, 0, -1, "got.norm", json_null()); /* no number */
  CHECK(strcmp(whole_diagnose(&w), "z-foreign-piece") != 0);
  teardown();
  setup();
  made_bend(&w.b.run, "weights", 1, "c_fc.weight", 1.0, NAN);
  CHECK(strcmp(whole_diagnose(&w), "z-foreign-piece") != 0);
  teardown();
}

/* A loss that overlap changes; gradients that it changes are not weights read too early. */
static void a_loss_that_overlap_changes_read_weights_early(void)
{
  setup();
  for (int rank = 0; rank < 2; rank++) made_set(&w.b.other[w.b.n - 1], "eval", rank, 1, -1, "got.loss_sum", json_real(41.0));
  CHECK(whole_named(&w, FAULT_OV_PARAM_GATHER_READ_TOO_EARLY));
  teardown();
  setup();
  made_bend(&w.b.other[w.b.n - 1], "gradients", 1, "c_fc.weight", 0.7, 0.0);
  CHECK(whole_named(&w, FAULT_OV_BUFFER_OVERWRITTEN_WHILE_IN_FLIGHT));
  teardown();
}

int main(void)
{
  static const struct test tests[] = {
    TEST(a_clean_run_has_no_diagnosis),
    TEST(norms_of_shards_make_the_whole_together),
    TEST(other_weights_of_equal_gradients_were_handed_on_stale),
    TEST(an_update_of_other_elements_was_walked_wrongly),
    TEST(an_update_that_made_no_numbers_read_what_is_dead),
    TEST(a_loss_that_overlap_changes_read_weights_early),
  };
  return test_main("diagnose_shares", tests, sizeof tests / sizeof *tests);
}
