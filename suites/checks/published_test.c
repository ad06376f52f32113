/* published_test.c - the formulas against the figures that their papers print; ours against them, term by term. */
#include "fabricate_test.h"
#include "predict.h"
#include "published.h"

/* Rajbhandari et al. 2019, table 1: GB a device.  Their last digit is rounded in some places and cut off in others. */
static void model_states_are_zeros_table_1(void)
{
  static const double devices[] = {1, 4, 16, 64, 256, 1024}, parameters[] = {7.5, 128, 1000}; /* in 10^9 */
  static const struct {
    double gb, digit; /* as printed; one unit of its last digit */
  } table[3][6][3] = {
    {{{120, 1}, {120, 1}, {120, 1}},
     {{52.5, .1}, {41.3, .1}, {30, 1}},
     {{35.6, .1}, {21.6, .1}, {7.5, .1}},
     {{31.4, .1}, {16.6, .1}, {1.88, .01}},
     {{30.4, .1}, {15.4, .1}, {0.47, .01}},
     {{30.1, .1}, {15.1, .1}, {0.12, .01}}},
    {{{2048, 1}, {2048, 1}, {2048, 1}},
     {{896, 1}, {704, 1}, {512, 1}},
     {{608, 1}, {368, 1}, {128, 1}},
     {{536, 1}, {284, 1}, {32, 1}},
     {{518, 1}, {263, 1}, {8, 1}},
     {{513, 1}, {257, 1}, {2, 1}}},
    {{{16000, 1}, {16000, 1}, {16000, 1}},
     {{7000, 1}, {5500, 1}, {4000, 1}},
     {{4750, 1}, {2875, 1}, {1000, 1}},
     {{4187, 1}, {2218, 1}, {250, 1}},
     {{4046, 1}, {2054, 1}, {62.5, .1}},
     {{4011, 1}, {2013, 1}, {15.6, .1}}},
  };
  for (int m = 0; m < 3; m++)
    for (int n = 0; n < 6; n++)
      for (int stage = 1; stage <= 3; stage++) {
        const double got = published_states_bytes(&published_mixed, parameters[m], stage, devices[n]); /* 10^9 bytes */
        const double want = table[m][n][stage - 1].gb, digit = table[m][n][stage - 1].digit;
        if (!CHECK(fabs(got - want) < digit)) fprintf(stderr, "  %g, %g devices, stage %d: %g, printed %g\n", parameters[m], devices[n], stage, got, want);
      }
  CHECK(published_states_bytes(&published_mixed, 7.5, 0, 64) == 120.0);
  CHECK_NEAR(published_states_bytes(&published_mixed, 7.5, 1, 64), 4 * 7.5 + 12 * 7.5 / 64, 1e-12);
  CHECK_NEAR(published_states_bytes(&published_mixed, 7.5, 2, 64), 2 * 7.5 + 14 * 7.5 / 64, 1e-12);
}

static const struct published_layer gpt3 = {2048, 1, 12288, 96, 1, false, RECOMPUTE_NONE, 2, 1, 1},
                                    mt_nlg = {2048, 1, 20480, 128, 1, false, RECOMPUTE_NONE, 2, 1, 1};

/* Korthikanti et al. 2022, table 2, in s b h. */
static void a_layers_activations_are_korthikantis_table_2(void)
{
  const struct published_layer models[] = {gpt3, mt_nlg};
  for (int k = 0; k < 2; k++)
    for (int t = 1; t <= 8; t *= 8) {
      struct published_layer l = models[k];
      const double sbh = l.s * l.b * l.h, scores = 5 * l.a * l.s / l.h;
      l.t = t;
      CHECK_NEAR(published_layer_bytes(&l) / sbh, 10 + 24.0 / t + scores / t, 1e-12);
      l.sequence_parallel = true;
      CHECK_NEAR(published_layer_bytes(&l) / sbh, (34 + scores) / t, 1e-12);
      l.recompute = RECOMPUTE_SELECTIVE;
      CHECK_NEAR(published_layer_bytes(&l) / sbh, 34.0 / t, 1e-12);
      l.sequence_parallel = false;
      CHECK_NEAR(published_layer_bytes(&l) / sbh, 10 + 24.0 / t, 1e-12);
      l.recompute = RECOMPUTE_FULL;
      CHECK_NEAR(published_layer_bytes(&l) / sbh, 2, 1e-12);
    }
}

/* Sec. 5: 5 a s / h is 80 and 64, so selective recompute saves 70 % and 65 %. */
static void selective_recompute_saves_what_the_paper_says(void)
{
  const struct published_layer models[] = {gpt3, mt_nlg};
  const double scores[] = {80, 64}, saved[] = {0.70, 0.65};
  for (int k = 0; k < 2; k++) {
    struct published_layer l = models[k];
    const double all = published_layer_bytes(&l);
    CHECK(5 * l.a * l.s / l.h == scores[k]);
    l.recompute = RECOMPUTE_SELECTIVE;
    CHECK_NEAR(1 - published_layer_bytes(&l) / all, saved[k], 0.005);
  }
}

/* Sec. 5 prints 2.7 % and 1.6 % for selective recompute: what s/(3h) in place of s/(6h) adds to the model's FLOPs, which is
 * attention's forward and backward once more.  Ours counts what is made again, the forward: a third of it. */
static void attention_again_costs_a_third_of_what_the_paper_says(void)
{
  static const struct {
    int64_t layers, heads, hidden;
    double more;
  } models[] = {{96, 96, 12288, 0.027}, {105, 128, 20480, 0.016}};
  for (int k = 0; k < 2; k++) {
    struct run_config c;
    struct predicted p;
    config_default(&c);
    c.layers = models[k].layers;
    c.heads = models[k].heads;
    c.hidden = models[k].hidden;
    c.positions = c.sequence = 2048;
    c.vocab = 51200;
    c.recompute = RECOMPUTE_SELECTIVE;
    CHECK_OK(config_finish(&c));
    predict(&c, &p);
    CHECK_NEAR(3 * p.again_full / p.flops_full, models[k].more, 0.0005);
  }
}

static struct run_config cut(int64_t layers, int64_t tp, int64_t pp, bool sequence, enum precision precision)
{
  struct run_config c;
  config_default(&c);
  CHECK_OK(config_set(&c, "model", "tiny"));
  c.layers = layers;
  c.hidden = 192;
  c.heads = 12;
  c.tp = tp;
  c.pp = pp;
  c.sequence_parallel = sequence;
  c.precision = precision;
  c.global_batch = 16;
  c.micro_batch = 2;
  if (pp > 1) c.vocab = 16; /* the first stage's the largest */
  return c;
}

static double activations(struct run_config c)
{
  CHECK_OK(config_finish(&c));
  const struct layout first = {.pp = 0};
  return predict_activations(&c, &first);
}

/* What eight more layers add: the papers' elements at our size, no mask and no scores; and what a flash-like attention
 * stores instead: two statistics a norm, a log-sum a head. */
static void ours_is_the_published_without_masks_and_scores_but_with_statistics(void)
{
  static const struct {
    int64_t tp, pp;
    bool sequence;
    enum recompute recompute;
  } rows[] = {{1, 1, false, RECOMPUTE_NONE}, {2, 1, false, RECOMPUTE_NONE}, {2, 1, true, RECOMPUTE_NONE}, {1, 1, false, RECOMPUTE_FULL},
              {2, 1, false, RECOMPUTE_FULL}, {1, 4, false, RECOMPUTE_NONE}, {4, 2, true, RECOMPUTE_NONE}};
  for (int p = 0; p < 2; p++)
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
      struct run_config less = cut(8, rows[i].tp, rows[i].pp, rows[i].sequence, p ? PRECISION_BF16 : PRECISION_F32), more;
      less.recompute = rows[i].recompute;
      more = less;
      more.layers = 16;
      const double s = 24, b = 2, N = s * b, t = (double)rows[i].tp, n = rows[i].sequence ? N / t : N;
      const struct published_layer l = {s, b, 192, 12, t, rows[i].sequence, rows[i].recompute, p ? 2 : 4, 0, 0};
      const double statistics = rows[i].recompute == RECOMPUTE_FULL ? 0 : 4 * (4 * n + N * 12 / t);
      CHECK_NEAR(activations(more) - activations(less), 8 * (published_layer_bytes(&l) + statistics), 1e-6);
    }
}

/* Selective here stores less than the paper's: norms and GELU come again too, but still no product. */
static void ours_selective_is_at_most_the_published(void)
{
  struct run_config less = cut(8, 1, 1, false, PRECISION_BF16), more;
  less.recompute = RECOMPUTE_SELECTIVE;
  more = less;
  more.layers = 16;
  const struct published_layer l = {24, 2, 192, 12, 1, false, RECOMPUTE_SELECTIVE, 2, 1, 1};
  const double ours = (activations(more) - activations(less)) / 8, sbh = 24 * 2 * 192;
  CHECK(published_layer_bytes(&l) == 34 * sbh && ours == 18 * sbh);
}

/* Sec. 4.2.3: with v chunks the first stage has 1 + (p-1)/(p v) times all layers. */
static void the_first_stage_has_the_published_layers_in_flight(void)
{
  CHECK(published_first_stage_layers(SCHEDULE_1F1B, 96, 8, 1, 64) == 96);
  CHECK(published_first_stage_layers(SCHEDULE_1F1B, 96, 8, 1, 4) == 48);
  CHECK(published_first_stage_layers(SCHEDULE_GPIPE, 96, 8, 1, 64) == 768);
  CHECK_NEAR(published_first_stage_layers(SCHEDULE_INTERLEAVED, 96, 8, 3, 64), 96 * (1 + 7.0 / 24), 1e-12);
  for (int64_t v = 2; v <= 4; v += 2) {
    struct run_config less = cut(16, 1, 2, false, PRECISION_F32), more;
    less.schedule = SCHEDULE_INTERLEAVED;
    less.chunks = v;
    more = less;
    more.layers = 32;
    const double layer = activations(cut(32, 1, 1, false, PRECISION_F32)) - activations(cut(16, 1, 1, false, PRECISION_F32));
    CHECK_NEAR(activations(more) - activations(less), layer * published_first_stage_layers(SCHEDULE_INTERLEAVED, 16, 2, (double)v, 8) / 16, 1e-6);
  }
}

static void a_runs_are_in_its_own_sizes(void)
{
  struct run_config c = cut(8, 1, 1, false, PRECISION_BF16);
  c.dp = 4;
  CHECK_OK(config_finish(&c));
  c.zero = 1;
  struct predicted x;
  predict(&c, &x);
  CHECK_NEAR(published_states_of(&c), x.rank_parameters * (2 + 4 + 12 / 4.0), 1e-6);
  CHECK_NEAR(published_activations_of(&c), 8 * 24 * 2 * 192 * (34 + 5 * 12 * 24 / 192.0), 1e-6);
  c.optimizer = OPTIMIZER_SGD;
  c.precision = PRECISION_F32;
  CHECK_NEAR(published_states_of(&c), x.rank_parameters * (4 + 4 + 0 / 4.0), 1e-6);
}

int main(void)
{
  static const struct test tests[] = {
    TEST(model_states_are_zeros_table_1),
    TEST(a_layers_activations_are_korthikantis_table_2),
    TEST(selective_recompute_saves_what_the_paper_says),
    TEST(attention_again_costs_a_third_of_what_the_paper_says),
    TEST(ours_is_the_published_without_masks_and_scores_but_with_statistics),
    TEST(ours_selective_is_at_most_the_published),
    TEST(the_first_stage_has_the_published_layers_in_flight),
    TEST(a_runs_are_in_its_own_sizes),
  };
  return test_main("published", tests, sizeof tests / sizeof *tests);
}
