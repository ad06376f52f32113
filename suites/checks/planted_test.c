/* planted_test.c - what planted slowness costs of a step, by the configuration. */
#include "testing/check.h"

#include "planted.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* "key=value key=value" over a run of four layers that sleep 2 ms each, forward and each part of backward. */
static struct run_config config_of(const char *settings)
{
  static const char *const common = "layers=4 global_batch=8 micro_batch=1 steps=14 compute=sleep sleep_forward_ms=2 sleep_input_ms=2 sleep_weight_ms=2 bucket=0 ";
  struct run_config c;
  char text[512], *save = NULL;
  config_default(&c);
  snprintf(text, sizeof text, "%s%s", common, settings);
  for (char *word = strtok_r(text, " ", &save); word; word = strtok_r(NULL, " ", &save)) {
    char *value = strchr(word, '=');
    *value++ = '\0';
    CHECK_OK(config_set(&c, word, value));
  }
  CHECK_OK(config_finish(&c));
  return c;
}

static struct planted of(const char *settings)
{
  const struct run_config c = config_of(settings);
  struct planted p = {0};
  CHECK_OK(planted_of(&c, &p));
  return p;
}

static void nothing_is_planted_by_default(void)
{
  CHECK(!of("dp=2").any);
  CHECK(!of("dp=2 slow_phase=forward").any);
}

static void among_replicas_the_cost_is_what_was_asked(void)
{
  static const struct {
    const char *settings;
    enum graph_phase phase;
    double cost_ms;
  } all[] = {{"dp=2 slow_rank=1 slow_ms=10 slow_phase=forward", GRAPH_FORWARD, 10},
             {"dp=2 slow_rank=1 slow_ms=10 slow_phase=backward", GRAPH_BACKWARD, 10},
             {"dp=2 slow_rank=1 slow_percent=25 slow_phase=forward", GRAPH_FORWARD, 0.25 * 4 * 8}, /* 4 micro-batches of 4 layers */
             {"dp=2 slow_rank=1 slow_percent=25 slow_phase=backward", GRAPH_BACKWARD, 0.25 * 4 * 16},
             {"dp=2 slow_rank=1 slow_ms=10 slow_phase=optimizer", GRAPH_OPTIMIZER, 10},
             {"dp=2 slow_rank=1 slow_ms=10 slow_phase=link", GRAPH_LINK, 10},
             {"dp=2 slow_rank=1 slow_ms=12 slow_every=3 slow_phase=log", GRAPH_BETWEEN, 4},
             {"dp=2 slow_rank=1 slow_ms=10 slow_phase=forward compute=real", GRAPH_FORWARD, 10},
             {"tp=2 dp=2 slow_rank=1 slow_ms=10 slow_phase=forward", GRAPH_FORWARD, 10}};
  for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
    const struct planted p = of(all[i].settings);
    CHECK(p.any && p.rank == 1 && p.phase == all[i].phase);
    CHECK_NEAR(p.cost_ms, all[i].cost_ms, 1e-9);
  }
  CHECK(of("dp=2 slow_rank=1 slow_ms=12 slow_every=3 slow_phase=log").period == 3);
}

/* 1F1B: the last stage has no pause, so it costs all that it takes more; the first is waited for as its passes fill and drain. */
static void late_reads_cost_what_they_take_where_nothing_is_read_ahead(void)
{
  const struct planted p = of("dp=2 read_ahead=0 read_delay_ms=7 read_ranks=1");
  CHECK(p.any && p.rank == 1 && p.phase == GRAPH_DATA);
  CHECK_NEAR(p.cost_ms, 7, 1e-9);
  CHECK_NEAR(of("dp=2 read_ahead=0 read_delay_ms=7 read_jitter_ms=2 read_ranks=0").cost_ms, 8, 1e-9);
  CHECK(isnan(of("dp=2 read_ahead=2 read_delay_ms=7 read_ranks=1").cost_ms));
  CHECK(!of("dp=2 read_ahead=0 read_delay_ms=7").any && !of("dp=2 read_ahead=0 read_delay_ms=7 read_ranks=0,1").any);
  const struct run_config c = config_of("dp=2 tp=2 read_ahead=0 read_delay_ms=7 read_ranks=1,2");
  struct planted two;
  CHECK_OK(planted_of(&c, &two));
  CHECK(planted_is(&c, &two, 1, GRAPH_DATA) && planted_is(&c, &two, 2, GRAPH_DATA) && !planted_is(&c, &two, 0, GRAPH_DATA));
}

static void in_a_pipeline_the_cost_is_that_of_its_list(void)
{
  CHECK_NEAR(of("pp=4 slow_rank=3 slow_ms=16 slow_phase=forward").cost_ms, 16, 1e-9);
  CHECK_NEAR(of("pp=4 slow_rank=3 slow_ms=16 slow_phase=backward").cost_ms, 16, 1e-9);
  const double first = of("pp=4 slow_rank=0 slow_ms=16 slow_phase=backward").cost_ms;
  CHECK(first > 8 && first <= 16);
  CHECK_NEAR(of("pp=4 slow_rank=2 slow_ms=16 slow_phase=optimizer").cost_ms, 16, 1e-9);
  CHECK_NEAR(of("tp=2 pp=2 dp=2 slow_rank=7 slow_ms=16 slow_phase=forward").cost_ms, 16, 1e-9);
}

static void what_nobody_can_know_is_not_known(void)
{
  CHECK(isnan(of("dp=2 slow_rank=1 slow_ms=10 slow_phase=link bucket=100").cost_ms)); /* some of it is hidden */
  CHECK(isnan(of("dp=2 slow_rank=1 slow_percent=10 slow_phase=forward compute=real").cost_ms));
  CHECK(isnan(of("dp=2 slow_rank=1 slow_percent=10 slow_phase=optimizer").cost_ms));
}

static void both_parts_of_compute_are_right(void)
{
  const struct run_config c = config_of("dp=2 slow_rank=1 slow_percent=10");
  const struct planted p = of("dp=2 slow_rank=1 slow_percent=10");
  CHECK(planted_is(&c, &p, 1, GRAPH_FORWARD) && planted_is(&c, &p, 1, GRAPH_BACKWARD));
  CHECK(!planted_is(&c, &p, 0, GRAPH_FORWARD) && !planted_is(&c, &p, 1, GRAPH_OPTIMIZER));
  const struct run_config one = config_of("dp=2 slow_rank=1 slow_percent=10 slow_phase=backward");
  const struct planted backward = of("dp=2 slow_rank=1 slow_percent=10 slow_phase=backward");
  CHECK(!planted_is(&one, &backward, 1, GRAPH_FORWARD));
}

static double sleep_of(const char *settings, int rank)
{
  const struct run_config c = config_of(settings);
  double ms = -1;
  CHECK_OK(planted_sleep(&c, rank, &ms));
  return ms;
}

static void passes_are_asked_to_sleep_so_long(void)
{
  CHECK_NEAR(sleep_of("dp=2", 0), 4 * 4 * 6, 1e-9);
  CHECK_NEAR(sleep_of("dp=2 slow_rank=1 slow_ms=10 slow_phase=forward", 1), 4 * 4 * 6 + 10, 1e-9);
  CHECK_NEAR(sleep_of("dp=2 slow_rank=1 slow_ms=10 slow_phase=backward", 1), 4 * 4 * 6 + 10, 1e-9);
  CHECK_NEAR(sleep_of("dp=2 slow_rank=1 slow_ms=10", 1), 4 * 4 * 6 + 10, 1e-9);
  CHECK_NEAR(sleep_of("dp=2 slow_rank=1 slow_ms=10 slow_phase=forward", 0), 4 * 4 * 6, 1e-9);
  CHECK_NEAR(sleep_of("dp=2 slow_rank=1 slow_ms=10 slow_phase=optimizer", 1), 4 * 4 * 6, 1e-9);
  CHECK_NEAR(sleep_of("pp=4 sleep_head_ms=3", 3), 8 * (6 + 9), 1e-9);
  CHECK_NEAR(sleep_of("pp=4 schedule=zb-h1 slow_rank=1 slow_ms=8 slow_phase=backward", 1), 8 * 6 + 8, 1e-9);
}

int main(void)
{
  static const struct test tests[] = {
    TEST(nothing_is_planted_by_default),
    TEST(among_replicas_the_cost_is_what_was_asked),
    TEST(late_reads_cost_what_they_take_where_nothing_is_read_ahead),
    TEST(in_a_pipeline_the_cost_is_that_of_its_list),
    TEST(what_nobody_can_know_is_not_known),
    TEST(both_parts_of_compute_are_right),
    TEST(passes_are_asked_to_sleep_so_long),
  };
  return test_main("planted", tests, sizeof tests / sizeof *tests);
}
