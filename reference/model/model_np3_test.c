/* model_np3_test.c - three parts, whose vocabulary is padded and whose rows do not divide; three stages. */
#include "model/model_cases.h"

static struct run_config threefold(enum precision precision)
{
  struct run_config c = tiny(precision);
  c.layers = 4;
  c.heads = 6;
  c.hidden = 12;
  c.dropout = 0.1;
  return c;
}

static void three_tensor_parts_give_the_gradients_of_the_whole(void)
{
  for (int variant = 0; variant < 8; variant++) {
    struct run_config c = threefold(PRECISION_F64);
    const struct layout l = {.tp = 3, .pp = 1, .chunks = 1, .split = variant / 4};
    c.tied = variant % 2;
    c.vocab = variant / 2 % 2 ? 4 : 11; /* of 4 the last part has padding alone */
    check_cut(&c, &l, &cpu, 1e-12);
  }
}

static void three_stages_have_the_bits_of_the_whole(void)
{
  static const char *const stages[] = {"even", "1,1,2", "1,2,1"};
  for (int variant = 0; variant < 18; variant++) {
    struct run_config c = threefold(variant % 2 ? PRECISION_F32 : PRECISION_F64);
    const struct layout l = {.tp = 1,
                             .pp = 3,
                             .chunks = 1,
                             .stages = stages[variant / 6],
                             .split = variant % 2,
                             .order = (enum order)(variant / 2 % 3)};
    check_cut(&c, &l, &cpu, 0.0);
  }
}

int main(void)
{
  static const struct test tests[] = {
      TEST(three_tensor_parts_give_the_gradients_of_the_whole),
      TEST(three_stages_have_the_bits_of_the_whole),
  };
  return run_cut("model_np3", tests, sizeof tests / sizeof *tests);
}
