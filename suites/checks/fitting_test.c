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

static double needed(const struct run_config *c) { return fitting_needed(c, 1); }
static struct fitting_room card(double bytes) { return (struct fitting_room){bytes, 1}; }

static void what_fits_stays_as_it_is(void)
{
  const struct run_config c = model("gpt2-124m", "4");
  struct run_config x;
  CHECK(fitting_layout(&c, card(needed(&c)), &x));
  CHECK(x.micro_batch == 4 && x.tp == 1 && x.pp == 1);
}

static void a_smaller_micro_batch_comes_before_more_ranks(void)
{
  const struct run_config c = model("gpt2-124m", "4");
  struct run_config x, half = c;
  half.micro_batch = 2;
  CHECK(fitting_layout(&c, card(needed(&c) - 1), &x));
  CHECK(x.micro_batch == 2 && x.tp == 1 && x.pp == 1 && needed(&x) <= needed(&c) - 1);
  CHECK(fitting_layout(&c, card(needed(&half) - 1), &x));
  CHECK(x.micro_batch == 1 && config_ranks(&x) == 1);
}

static void then_ranks_share_the_model(void)
{
  const struct run_config c = model("gpt2-124m", "4");
  struct run_config x, least = c;
  char text[100];
  least.micro_batch = 1;
  const double bytes = needed(&least) - 1;
  CHECK(fitting_layout(&c, card(bytes), &x));
  CHECK(config_ranks(&x) == 2 && needed(&x) <= bytes);
  fitting_text(&c, card(bytes), text, sizeof text);
  CHECK_TEXT_HAS(text, "on 2 ranks");
  CHECK_TEXT_HAS(text, "p: 2, not 1; ");
}

static void what_would_fit_alone_is_not_told_to_shrink(void)
{
  const struct run_config c = model("gpt2-124m", "4");
  char text[160], want[80];
  fitting_text(&c, card(needed(&c)), text, sizeof text);
  snprintf(want, sizeof want, "with %.0f of %.0f bytes", needed(&c), needed(&c));
  CHECK_TEXT_HAS(text, want);
  CHECK_TEXT_HAS(text, "what else is there?");
  CHECK(strstr(text, "micro_batch") == NULL);
}

/* Of stage 3, where each unit gathered ahead is a block's memory. */
static void the_largest_prefetch_that_fits_comes_first(void)
{
  struct run_config c = model("gpt2-124m", "1"), x;
  char text[160];
  c.dp = 2;
  c.zero = 3;
  c.prefetch = 9;
  CHECK_OK(config_finish(&c));
  for (int64_t most = 8; most >= 0; most -= 4) {
    struct run_config fewer = c;
    fewer.prefetch = most;
    CHECK(fitting_layout(&c, card(needed(&fewer)), &x) && x.prefetch == most && config_ranks(&x) == 2);
    fitting_text(&c, card(needed(&fewer)), text, sizeof text);
    char want[80];
    snprintf(want, sizeof want, "on such a card would fit: prefetch: %d, not 9", (int)most);
    CHECK(strcmp(text, want) == 0);
  }
  struct run_config none = c;
  none.prefetch = 0;
  CHECK(fitting_layout(&c, card(needed(&none) - 1), &x) && config_ranks(&x) > 2);
}

/* Before more ranks are asked for, replicas share more. */
static void then_replicas_share(void)
{
  struct run_config c = model("gpt2-124m", "1"), x;
  char text[160];
  c.dp = 4;
  for (int64_t zero = 1; zero <= 3; zero++) {
    struct run_config less = c;
    less.zero = zero;
    less.reduce_each = REDUCE_AUTO;
    CHECK_OK(config_finish(&less));
    CHECK(fitting_layout(&c, card(needed(&less)), &x) && x.zero == zero && config_ranks(&x) == 4);
  }
  fitting_text(&c, (struct fitting_room){4 * needed(&x), 8}, text, sizeof text);
  CHECK(strcmp(text, "here would fit: zero: 3, not 0") == 0);
}

/* Ranks of one host share it: what is there for each is less the more there are. */
static void ranks_of_a_host_share_its_memory(void)
{
  struct run_config c = model("gpt2-124m", "2"), x;
  c.dp = 4;
  CHECK(fitting_needed(&c, 8) == 4 * needed(&c) && fitting_needed(&c, 2) == 2 * needed(&c));
  CHECK(fitting_layout(&c, (struct fitting_room){4 * needed(&c), 8}, &x) && x.micro_batch == 2);
  CHECK(fitting_layout(&c, (struct fitting_room){4 * needed(&c) - 1, 8}, &x) && x.micro_batch == 1 && config_ranks(&x) == 4);
}

static void none_is_said_as_nothing(void)
{
  const struct run_config c = model("gpt2-124m", "1");
  struct run_config x;
  char text[100] = "x";
  CHECK(!fitting_layout(&c, card(1e6), &x));
  fitting_text(&c, card(1e6), text, sizeof text);
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
      TEST(the_largest_prefetch_that_fits_comes_first),
      TEST(then_replicas_share),
      TEST(ranks_of_a_host_share_its_memory),
      TEST(none_is_said_as_nothing),
  };
  return test_main("fitting", tests, sizeof tests / sizeof *tests);
}
