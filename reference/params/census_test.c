/* census_test.c - every named model has the count of parameters that its source prints. */
#include "params/params.h"

#include "testing/check.h"

#include <math.h>
#include <stdio.h>

/* Half of the last digit printed, and never more than 5 %: a count of one digit says little. */
static double rounding(double published)
{
  double unit = 1.0;
  while (fmod(published, unit * 10.0) == 0.0) unit *= 10.0;
  return fmin(unit / 2.0, 0.05 * published);
}

static void counts_agree_with_the_published_ones(void)
{
  int compared = 0;
  for (int i = 0; i < model_shapes_count; i++) {
    const struct model_shape *shape = &model_shapes[i];
    struct run_config c;
    struct param_table *t = NULL;
    config_default(&c);
    snprintf(c.model, sizeof c.model, "%s", shape->name);
    if (!CHECK_OK(config_finish(&c)) || !CHECK_OK(params_create(&c, &t))) continue;
    CHECK(c.hidden % c.heads == 0);
    if (shape->published_parameters > 0) {
      CHECK_NEAR((double)params_count(t), shape->published_parameters, rounding(shape->published_parameters));
      compared++;
    }
    params_destroy(t);
  }
  CHECK(compared == 22);
}

static void gpt2_counts_are_exact(void)
{
  /* elements of the released checkpoints: openai-community/gpt2, -medium, -large, -xl */
  static const struct { const char *name; int64_t count; } released[] = {
    {"gpt2-124m", 124439808}, {"gpt2-355m", 354823168}, {"gpt2-774m", 774030080}, {"gpt2-1558m", 1557611200}};
  for (int i = 0; i < 4; i++) {
    struct run_config c;
    struct param_table *t = NULL;
    config_default(&c);
    CHECK_OK(config_set(&c, "model", released[i].name));
    if (!CHECK_OK(config_finish(&c)) || !CHECK_OK(params_create(&c, &t))) continue;
    CHECK(params_count(t) == released[i].count);
    params_destroy(t);
  }
}

int main(void)
{
  static const struct test tests[] = {TEST(counts_agree_with_the_published_ones), TEST(gpt2_counts_are_exact)};
  return test_main("census", tests, sizeof tests / sizeof *tests);
}
