/* params_test.c - the table's rows and their initial contents. */
#include "params/params.h"

#include "base/rng.h"
#include "base/bf16.h"
#include "testing/check.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static struct run_config small(void)
{
  struct run_config c = {.layers = 3, .heads = 2, .hidden = 6, .positions = 5, .vocab = 11, .tied = true, .tp = 1};
  return c;
}

static void gpt2_124m_has_its_published_count(void)
{
  struct run_config c = {.layers = 12, .heads = 12, .hidden = 768, .positions = 1024, .vocab = 50257, .tied = true, .tp = 1};
  struct param_table *t = NULL;
  if (!CHECK_OK(params_create(&c, &t))) return;
  CHECK(params_count(t) == 124439808);
  CHECK(t->n == 2 + 12 * 12 + 2);
  params_destroy(t);
  c.tied = false;
  if (!CHECK_OK(params_create(&c, &t))) return;
  CHECK(params_count(t) == 124439808 + 50257 * 768);
  params_destroy(t);
}

static void a_table_of_175_billion_counts_in_64_bits(void)
{
  struct run_config c = {.layers = 96, .heads = 96, .hidden = 12288, .positions = 2048, .vocab = 50257, .tied = true, .tp = 1};
  struct param_table *t = NULL;
  if (!CHECK_OK(params_create(&c, &t))) return;
  const int64_t C = 12288, block = 12 * C * C + 13 * C;
  CHECK(params_count(t) == 96 * block + (50257 + 2048 + 2) * C);
  params_destroy(t);
}

static void rows_have_the_names_and_shapes_of_hugging_face(void)
{
  static const struct { const char *name; int64_t rows, cols; int rank; bool decay; } want[] = {
    {"transformer.wte.weight", 11, 6, 2, true},
    {"transformer.wpe.weight", 5, 6, 2, true},
    {"transformer.h.0.ln_1.weight", 1, 6, 1, false},
    {"transformer.h.0.ln_1.bias", 1, 6, 1, false},
    {"transformer.h.0.attn.c_attn.weight", 6, 18, 2, true},
    {"transformer.h.0.attn.c_attn.bias", 1, 18, 1, false},
    {"transformer.h.0.attn.c_proj.weight", 6, 6, 2, true},
    {"transformer.h.0.attn.c_proj.bias", 1, 6, 1, false},
    {"transformer.h.0.ln_2.weight", 1, 6, 1, false},
    {"transformer.h.0.ln_2.bias", 1, 6, 1, false},
    {"transformer.h.0.mlp.c_fc.weight", 6, 24, 2, true},
    {"transformer.h.0.mlp.c_fc.bias", 1, 24, 1, false},
    {"transformer.h.0.mlp.c_proj.weight", 24, 6, 2, true},
    {"transformer.h.0.mlp.c_proj.bias", 1, 6, 1, false},
    {"transformer.h.1.ln_1.weight", 1, 6, 1, false},
  };
  struct run_config c = small();
  struct param_table *t = NULL;
  c.tied = false;
  c.unused = true;
  if (!CHECK_OK(params_create(&c, &t))) return;
  for (int i = 0; i < (int)(sizeof want / sizeof *want); i++) {
    CHECK(strcmp(t->rows[i].name, want[i].name) == 0);
    CHECK(t->rows[i].rows == want[i].rows && t->rows[i].cols == want[i].cols && t->rows[i].rank == want[i].rank);
    CHECK(t->rows[i].decay == want[i].decay && t->rows[i].shared_with == -1 && !t->rows[i].frozen);
    CHECK(params_find(t, want[i].name) == i);
  }
  CHECK(strcmp(t->rows[t->n - 4].name, "transformer.ln_f.weight") == 0);
  CHECK(strcmp(t->rows[t->n - 3].name, "transformer.ln_f.bias") == 0);
  CHECK(strcmp(t->rows[t->n - 2].name, "lm_head.weight") == 0);
  CHECK(strcmp(t->rows[t->n - 1].name, "extra.unused") == 0 && t->rows[t->n - 1].unused && !t->rows[t->n - 1].decay);
  CHECK(params_find(t, "transformer.h.3.ln_1.weight") == -1);
  int zero_gradient = 0;
  for (int i = 0; i < t->n; i++) zero_gradient += t->rows[i].zero_gradient;
  CHECK(zero_gradient == 3 && t->rows[params_find(t, "transformer.h.2.attn.c_attn.bias")].zero_gradient);
  params_destroy(t);
}

static void rows_say_how_tensor_and_pipeline_cuts_go(void)
{
  struct run_config c = small();
  struct param_table *t = NULL;
  c.tp = 2;
  if (!CHECK_OK(params_create(&c, &t))) return;
  const struct param *wte = &t->rows[0], *qkv = &t->rows[params_find(t, "transformer.h.1.attn.c_attn.weight")];
  const struct param *proj = &t->rows[params_find(t, "transformer.h.1.mlp.c_proj.weight")];
  CHECK(wte->cut == PARAM_CUT_ROWS && wte->pad == 2 && wte->stage == PARAM_FIRST_AND_LAST && wte->layer == -1);
  CHECK(qkv->cut == PARAM_CUT_COLS && qkv->blocks == 3 && qkv->stage == PARAM_BLOCK && qkv->layer == 1);
  CHECK(proj->cut == PARAM_CUT_ROWS && proj->blocks == 1 && proj->pad == 1);
  CHECK(t->rows[params_find(t, "transformer.ln_f.bias")].stage == PARAM_LAST);
  CHECK(t->rows[params_find(t, "transformer.h.1.mlp.c_proj.bias")].cut == PARAM_WHOLE);
  params_destroy(t);
}

static void reused_blocks_share_rows_and_count_once(void)
{
  struct run_config c = small();
  struct param_table *t = NULL, *plain = NULL;
  c.reused = 1;
  if (!CHECK_OK(params_create(&c, &t))) return;
  const int owner = params_find(t, "transformer.h.0.mlp.c_fc.bias"), user = params_find(t, "transformer.h.2.mlp.c_fc.bias");
  CHECK(t->rows[user].shared_with == owner && t->rows[owner].shared_with == -1);
  CHECK(t->rows[params_find(t, "transformer.h.1.mlp.c_fc.bias")].shared_with == -1);
  c.reused = 0;
  if (CHECK_OK(params_create(&c, &plain))) CHECK(params_count(plain) - params_count(t) == 12 * 36 + 13 * 6);
  params_destroy(plain);
  double a[24], b[24];
  params_initial(t, owner, 1, true, DTYPE_F64, DTYPE_F64, 0, 24, a);
  params_initial(t, user, 1, true, DTYPE_F64, DTYPE_F64, 0, 24, b);
  CHECK_SAME_BITS(a, b, sizeof a);
  params_destroy(t);

  c.reused = 2;
  CHECK_ERR(params_create(&c, &t), ERR_CONFIG);
  CHECK_TEXT_HAS(err_text(), "reused: 2");
  CHECK(t == NULL);
}

static void frozen_matches_by_part_of_the_name_and_follows_storage(void)
{
  struct run_config c = small();
  struct param_table *t = NULL;
  strcpy(c.frozen, "c_fc.b");
  if (!CHECK_OK(params_create(&c, &t))) return;
  int frozen = 0;
  for (int i = 0; i < t->n; i++) frozen += t->rows[i].frozen;
  CHECK(frozen == 3 && t->rows[params_find(t, "transformer.h.1.mlp.c_fc.bias")].frozen);
  params_destroy(t);

  strcpy(c.frozen, "h.2.ln_1.weight"); /* named by the user of a shared storage */
  c.reused = 1;
  if (!CHECK_OK(params_create(&c, &t))) return;
  CHECK(t->rows[params_find(t, "transformer.h.0.ln_1.weight")].frozen);
  CHECK(t->rows[params_find(t, "transformer.h.2.ln_1.weight")].frozen);
  CHECK(!t->rows[params_find(t, "transformer.h.1.ln_1.weight")].frozen);
  params_destroy(t);

  strcpy(c.frozen, "c_atn");
  CHECK_ERR(params_create(&c, &t), ERR_CONFIG);
  CHECK_TEXT_HAS(err_text(), "'c_atn'");
  CHECK_TEXT_HAS(err_text(), "c_attn");
}

static void initial_contents_do_not_depend_on_the_range_asked_for(void)
{
  struct run_config c = small();
  struct param_table *t = NULL;
  if (!CHECK_OK(params_create(&c, &t))) return;
  const int i = params_find(t, "transformer.h.1.attn.c_attn.weight");
  double whole[108], parts[108];
  params_initial(t, i, 9, true, DTYPE_F64, DTYPE_F64, 0, 108, whole);
  params_initial(t, i, 9, true, DTYPE_F64, DTYPE_F64, 0, 31, parts);
  params_initial(t, i, 9, true, DTYPE_F64, DTYPE_F64, 31, 77, parts + 31);
  CHECK_SAME_BITS(whole, parts, sizeof whole);
  params_initial(t, i, 10, true, DTYPE_F64, DTYPE_F64, 0, 108, parts);
  int equal = 0;
  for (int k = 0; k < 108; k++) equal += whole[k] == parts[k];
  CHECK(equal == 0);
  params_initial(t, i + 2, 9, true, DTYPE_F64, DTYPE_F64, 0, 36, parts);
  CHECK(parts[0] != whole[0] / sqrt(6.0)); /* another row, another stream */
  params_destroy(t);
}

static void initial_contents_are_rounded_as_asked_then_stored(void)
{
  struct run_config c = small();
  struct param_table *t = NULL;
  if (!CHECK_OK(params_create(&c, &t))) return;
  double exact[66], wide[66];
  float single[66], half[66];
  params_initial(t, 0, 5, true, DTYPE_F64, DTYPE_F64, 0, 66, exact);
  params_initial(t, 0, 5, true, DTYPE_F32, DTYPE_F64, 0, 66, wide);
  params_initial(t, 0, 5, true, DTYPE_F32, DTYPE_F32, 0, 66, single);
  params_initial(t, 0, 5, true, DTYPE_BF16, DTYPE_F32, 0, 66, half);
  int inexact = 0;
  for (int k = 0; k < 66; k++) {
    CHECK(half[k] == bf16_widen(bf16_round_f64(exact[k])));
    CHECK(wide[k] == (double)(float)exact[k] && single[k] == (float)exact[k]);
    inexact += wide[k] != exact[k];
  }
  CHECK(inexact > 0);
  params_destroy(t);
}

static void deviation(const struct param_table *t, const char *name, bool revealing, double *mean, double *dev)
{
  const int i = params_find(t, name);
  const int64_t n = t->rows[i].rows * t->rows[i].cols;
  double *x = malloc((size_t)n * sizeof *x), sum = 0.0, squares = 0.0;
  if (x == NULL) return;
  params_initial(t, i, 3, revealing, DTYPE_F64, DTYPE_F64, 0, n, x);
  for (int64_t k = 0; k < n; k++) sum += x[k];
  *mean = sum / (double)n;
  for (int64_t k = 0; k < n; k++) squares += (x[k] - *mean) * (x[k] - *mean);
  *dev = sqrt(squares / (double)n);
  free(x);
}

static void initial_state_follows_gpt2_or_reveals(void)
{
  struct run_config c = {.layers = 8, .heads = 2, .hidden = 64, .positions = 64, .vocab = 64, .tied = true, .tp = 1};
  struct param_table *t = NULL;
  double mean = NAN, dev = NAN;
  if (!CHECK_OK(params_create(&c, &t))) return;
  deviation(t, "transformer.h.0.mlp.c_fc.weight", false, &mean, &dev); /* 16384 draws: 6 deviations of the estimate */
  CHECK_NEAR(mean, 0.0, 6 * 0.02 / 128);
  CHECK_NEAR(dev, 0.02, 6 * 0.02 / 128 / sqrt(2.0));
  deviation(t, "transformer.h.0.mlp.c_proj.weight", false, &mean, &dev);
  CHECK_NEAR(dev, 0.02 / 4, 6 * 0.005 / 128 / sqrt(2.0)); /* sqrt(2 * 8) */
  deviation(t, "transformer.h.0.mlp.c_fc.bias", false, &mean, &dev);
  CHECK(mean == 0.0 && dev == 0.0);
  deviation(t, "transformer.ln_f.weight", false, &mean, &dev);
  CHECK(mean == 1.0 && dev == 0.0);
  deviation(t, "transformer.h.0.mlp.c_fc.bias", true, &mean, &dev); /* 256 draws */
  CHECK_NEAR(dev, 0.02, 6 * 0.02 / 16 / sqrt(2.0));
  deviation(t, "transformer.ln_f.weight", true, &mean, &dev); /* 64 draws */
  CHECK_NEAR(mean, 1.0, 6 * 0.1 / 8);
  CHECK_NEAR(dev, 0.1, 6 * 0.1 / 8 / sqrt(2.0));
  params_destroy(t);
}

static void create_survives_every_failed_allocation(void)
{
  struct run_config c = small();
  struct param_table *t = NULL;
  int failures = 0;
  for (long n = 1; n < 10; n++) {
    check_fail_allocation(n);
    const enum err e = params_create(&c, &t);
    const bool failed = check_allocation_failed();
    check_fail_allocation(0);
    if (!failed) {
      CHECK(e == ERR_OK);
      break;
    }
    failures++;
    CHECK(e == ERR_MEMORY && t == NULL);
  }
  CHECK(failures == 2 && t != NULL);
  params_destroy(t);
  params_destroy(NULL);
}

int main(void)
{
  static const struct test tests[] = {
    TEST(gpt2_124m_has_its_published_count),
    TEST(a_table_of_175_billion_counts_in_64_bits),
    TEST(rows_have_the_names_and_shapes_of_hugging_face),
    TEST(rows_say_how_tensor_and_pipeline_cuts_go),
    TEST(reused_blocks_share_rows_and_count_once),
    TEST(frozen_matches_by_part_of_the_name_and_follows_storage),
    TEST(initial_contents_do_not_depend_on_the_range_asked_for),
    TEST(initial_contents_are_rounded_as_asked_then_stored),
    TEST(initial_state_follows_gpt2_or_reveals),
    TEST(create_survives_every_failed_allocation),
  };
  return test_main("params", tests, sizeof tests / sizeof *tests);
}
