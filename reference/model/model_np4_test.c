/* model_np4_test.c - tensor parts and stages together; four of each. */
#include "model/model_cases.h"

static struct run_config fourfold(enum precision precision)
{
  struct run_config c = tiny(precision);
  c.layers = 5;
  c.heads = 4;
  c.hidden = 12;
  c.vocab = 131;
  c.dropout = 0.1;
  c.unused = true;
  return c;
}

static void parts_of_stages_give_the_gradients_of_the_whole(void)
{
  for (int variant = 0; variant < 8; variant++) {
    struct run_config c = fourfold(PRECISION_F64);
    const struct layout l = {.tp = 2,
                             .pp = 2,
                             .chunks = 1 + variant / 4,
                             .sequence = variant % 2,
                             .split = variant / 2 % 2,
                             .order = ORDER_AHEAD};
    const struct dev_config d = {
        .kind = variant % 3 ? DEV_CPU : DEV_LAZY, .threads = 1, .lazy_seed = 11, .poison_end = true};
    c.tied = variant != 5;
    check_cut(&c, &l, &d, 1e-12);
  }
}

static void stages_of_parts_have_the_bits_of_the_parts(void)
{
  for (int variant = 0; variant < 12; variant++) {
    const struct run_config c = fourfold(variant % 2 ? PRECISION_F32 : PRECISION_F64);
    const struct layout l = {.tp = 2,
                             .pp = 2,
                             .chunks = 1 + variant / 6,
                             .sequence = variant / 2 % 2,
                             .split = variant % 3 == 0,
                             .order = variant < 6 ? (enum order)(variant / 2 % 3) : ORDER_AHEAD};
    check_stages_of_parts(&c, &l, &cpu);
  }
}

static void four_parts_and_four_stages_do_too(void)
{
  for (int split = 0; split < 2; split++) {
    const struct run_config c = fourfold(PRECISION_F64);
    const struct layout parts = {.tp = 4, .pp = 1, .chunks = 1, .split = split};
    const struct layout stages = {
        .tp = 1, .pp = 4, .chunks = 1, .stages = "1,1,1,2", .split = split, .order = ORDER_AHEAD};
    check_cut(&c, &parts, &cpu, 1e-12);
    check_cut(&c, &stages, &cpu, 0.0);
  }
}

int main(void)
{
  static const struct test tests[] = {
      TEST(parts_of_stages_give_the_gradients_of_the_whole),
      TEST(stages_of_parts_have_the_bits_of_the_parts),
      TEST(four_parts_and_four_stages_do_too),
  };
  return run_cut("model_np4", tests, sizeof tests / sizeof *tests);
}
