/* fitting_test.c - a run too large for its card is told what would fit. */
#include "fabricate_test.h"
#include "fitting.h"

static struct run_config model(const char *name, const char *micro_batch)
{
  struct run_config c;
  config_default(&c);
  CHECK_OK(config_set(&c, "model", name));
  CHECK_OK(config_set(&c, "precision", "bf16"));
  CHECK_OK(config_set(&c, "global_batch", "32"));
  CHECK_OK(config_set(&c, "micro_batch", micro_batch));
  CHECK_OK(config_finish(&c));
  return c;
}

static double needed(const struct run_config *c)
{
  struct predicted p;
  predict(c, &p);
  return p.total_bytes;
}

static void what_fits_stays_as_it_is(void)
{
  const struct run_config c = model("gpt2-124m", "4");
  struct run_config x;
  CHECK(fitting_layout(&c, needed(&c), &x));
  CHECK(x.micro_batch == 4 && x.tp == 1 && x.pp == 1);
}

static void a_smaller_micro_batch_comes_before_more_ranks(void)
{
  const struct run_config c = model("gpt2-124m", "4");
  struct run_config x, half = c;
  half.micro_batch = 2;
  CHECK(fitting_layout(&c, needed(&c) - 1, &x));
  CHECK(x.micro_batch == 2 && x.tp == 1 && x.pp == 1 && needed(&x) <= needed(&c) - 1);
  CHECK(fitting_layout(&c, needed(&half) - 1, &x));
  CHECK(x.micro_batch == 1 && config_ranks(&x) == 1);
}

static void then_ranks_share_the_model(void)
{
  const struct run_config c = model("gpt2-124m", "4");
  struct run_config x, least = c;
  char text[100];
  least.micro_batch = 1;
  const double bytes = needed(&least) - 1;
  CHECK(fitting_layout(&c, bytes, &x));
  CHECK(config_ranks(&x) == 2 && needed(&x) <= bytes);
  fitting_text(&c, bytes, text, sizeof text);
  CHECK_TEXT_HAS(text, "on 2 ranks");
  CHECK_TEXT_HAS(text, "on such a card would fit: micro_batch: ");
}

static void what_would_fit_alone_is_not_told_to_shrink(void)
{
  const struct run_config c = model("gpt2-124m", "4");
  char text[160], want[80];
  fitting_text(&c, needed(&c), text, sizeof text);
  snprintf(want, sizeof want, "with %.0f of %.0f bytes", needed(&c), needed(&c));
  CHECK_TEXT_HAS(text, want);
  CHECK_TEXT_HAS(text, "what else is there?");
  CHECK(strstr(text, "micro_batch") == NULL);
}

static void none_is_said_as_nothing(void)
{
  const struct run_config c = model("gpt2-124m", "1");
  struct run_config x;
  char text[100] = "x";
  CHECK(!fitting_layout(&c, 1e6, &x));
  fitting_text(&c, 1e6, text, sizeof text);
  CHECK(text[0] == '\0');
  CHECK(err_text()[0] == '\0');
}

int main(void)
{
  static const struct test tests[] = {
      TEST(what_fits_stays_as_it_is),
      TEST(a_smaller_micro_batch_comes_before_more_ranks),
      TEST(then_ranks_share_the_model),
      TEST(what_would_fit_alone_is_not_told_to_shrink),
      TEST(none_is_said_as_nothing),
  };
  return test_main("fitting", tests, sizeof tests / sizeof *tests);
}
