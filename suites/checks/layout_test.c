/* layout_test.c - ranks and places, and what a rank has of each parameter. */
#include "layout.h"
#include "shapes.h"
#include "testing/check.h"

#include <string.h>

static struct run_config a_case(void)
{
  struct run_config c;
  config_default(&c);
  c.layers = 5;
  c.heads = 6;
  c.hidden = 12;
  c.vocab = 11;
  c.positions = c.sequence = 8;
  c.dp = 2;
  c.tp = 3;
  c.pp = 2;
  c.global_batch = 12;
  c.unused = true;
  return c;
}

static void rank_and_place_are_one_to_one_in_every_order(void)
{
  struct run_config c = a_case();
  for (int64_t order = 0; order < 6; order++) {
    c.mesh_order = order;
    for (int rank = 0; rank < 12; rank++) {
      const struct layout at = layout_of(&c, rank);
      CHECK(at.pp < 2 && at.dp < 2 && at.tp < 3);
      CHECK(layout_rank(&c, at) == rank);
    }
  }
}

static void the_first_axis_named_varies_fastest(void)
{
  struct run_config c = a_case();
  CHECK_OK(config_set(&c, "mesh_order", "tp-dp-pp"));
  CHECK(layout_of(&c, 1).tp == 1 && layout_of(&c, 3).dp == 1 && layout_of(&c, 6).pp == 1);
  CHECK_OK(config_set(&c, "mesh_order", "pp-tp-dp"));
  CHECK(layout_of(&c, 1).pp == 1 && layout_of(&c, 2).tp == 1 && layout_of(&c, 6).dp == 1);
  CHECK_OK(config_set(&c, "mesh_order", "dp-pp-tp"));
  CHECK(layout_of(&c, 1).dp == 1 && layout_of(&c, 2).pp == 1 && layout_of(&c, 4).tp == 1);
}

static void micro_batches_belong_to_replicas_in_order(void)
{
  const struct run_config c = a_case();
  CHECK(layout_each(&c) == 6);
  CHECK(layout_replica(&c, 5) == 0 && layout_replica(&c, 6) == 1);
}

static struct shape part(const struct run_config *c, const char *name, struct layout at)
{
  struct partition stages;
  struct shape s = {.rows = -1};
  CHECK_OK(partition_make(c, &stages));
  for (int i = 0; shapes_part(c, &stages, &at, i, &s); i++)
    if (strstr(s.name, name)) return s;
  CHECK(false);
  return s;
}
static bool is(struct shape s, int64_t rows, int64_t cols) { return s.rows == rows && s.cols == cols; }

static void rows_are_cut_as_the_architecture_allows(void)
{
  const struct run_config c = a_case(); /* layers 0..2 and 3, 4 */
  const struct layout first = {.pp = 0, .tp = 2}, last = {.pp = 1, .tp = 2};
  CHECK(is(part(&c, "wte", first), 4, 12)); /* 11 over 3: padded */
  CHECK(is(part(&c, "wte", last), 4, 12));
  CHECK(is(part(&c, "wpe", first), 8, 12) && is(part(&c, "wpe", last), 0, 0));
  CHECK(is(part(&c, "h.0.attn.c_attn.weight", first), 12, 12) && is(part(&c, "h.0.attn.c_attn.weight", last), 0, 0));
  CHECK(is(part(&c, "h.4.attn.c_attn.bias", last), 1, 12) && is(part(&c, "h.4.attn.c_attn.bias", first), 0, 0));
  CHECK(is(part(&c, "h.2.attn.c_proj.weight", first), 4, 12) && is(part(&c, "h.2.attn.c_proj.bias", first), 1, 12));
  CHECK(is(part(&c, "h.3.mlp.c_fc.weight", last), 12, 16) && is(part(&c, "h.3.mlp.c_fc.bias", last), 1, 16));
  CHECK(is(part(&c, "h.3.mlp.c_proj.weight", last), 16, 12) && is(part(&c, "h.3.ln_1.weight", last), 1, 12));
  CHECK(is(part(&c, "ln_f.bias", last), 1, 12) && is(part(&c, "ln_f.bias", first), 0, 0));
  CHECK(is(part(&c, "unused", first), 1, 7) && is(part(&c, "unused", last), 0, 0));
}

static void an_untied_head_is_in_the_last_stage_alone(void)
{
  struct run_config c = a_case();
  c.tied = false;
  CHECK(is(part(&c, "lm_head", (struct layout){.pp = 1}), 4, 12) &&
        is(part(&c, "lm_head", (struct layout){.pp = 0}), 0, 0));
  CHECK(is(part(&c, "wte", (struct layout){.pp = 1}), 0, 0));
}

static void chunks_take_turns(void)
{
  struct run_config c = a_case();
  c.chunks = 2;
  c.schedule = SCHEDULE_INTERLEAVED;
  struct partition stages;
  CHECK_OK(partition_make(&c, &stages)); /* 2, 1, 1, 1 layers: rank 0 has chunks 0 and 2 */
  const struct layout first = {.pp = 0}, last = {.pp = 1};
  static const bool on_first[] = {true, true, false, true, false};
  for (int64_t l = 0; l < 5; l++) {
    CHECK(layout_has_layer(&c, &stages, &first, l) == on_first[l]);
    CHECK(layout_has_layer(&c, &stages, &last, l) == !on_first[l]);
  }
}

int main(void)
{
  static const struct test tests[] = {
    TEST(rank_and_place_are_one_to_one_in_every_order),
    TEST(the_first_axis_named_varies_fastest),
    TEST(micro_batches_belong_to_replicas_in_order),
    TEST(rows_are_cut_as_the_architecture_allows),
    TEST(an_untied_head_is_in_the_last_stage_alone),
    TEST(chunks_take_turns),
  };
  return test_main("layout", tests, sizeof tests / sizeof *tests);
}
