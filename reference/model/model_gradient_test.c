/* model_gradient_test.c - gradients against central differences, and whose they are. */
#include "model/model_fixture.h"

/* Along two random directions of every row: (L(w + h v) - L(w - h v)) / 2h against g . v. */
static void check_against_differences(const struct run_config *c)
{
  struct rig r;
  double *g = NULL, *w = NULL, *moved = NULL;
  if (!rig_open(&r, c, &cpu) || !one_step(&r, NULL, NULL) || (g = gradients_of(&r)) == NULL) goto close;
  w = malloc(r.bytes);
  moved = malloc(r.bytes);
  if (w == NULL || moved == NULL || !CHECK_OK(dev_copy_out(r.compute, w, r.weights, r.bytes)) || !CHECK_OK(dev_sync(r.dev)))
    goto close;

  const double h = 1e-5;
  int moving = 0;
  for (int i = 0; i < r.table->n; i++) {
    if (r.table->rows[i].shared_with >= 0 || r.table->rows[i].frozen) continue;
    for (uint32_t direction = 0; direction < 2; direction++) {
      const struct rng_key key = {7, RNG_TEST + 1 + (uint32_t)i, direction};
      double side[2], along = 0.0, size = 0.0;
      for (int64_t k = 0; k < r.flat->length[i]; k++) {
        const double v = rng_normal(key, (uint64_t)k);
        along += g[r.flat->offset[i] + k] * v;
        size += fabs(g[r.flat->offset[i] + k] * v);
      }
      for (int sign = 0; sign < 2; sign++) {
        memcpy(moved, w, r.bytes);
        for (int64_t k = 0; k < r.flat->length[i]; k++)
          moved[r.flat->offset[i] + k] += (sign ? -h : h) * rng_normal(key, (uint64_t)k);
        CHECK_OK(dev_copy_in(r.compute, r.weights, moved, r.bytes));
        side[sign] = loss_of(&r, true);
      }
      if (!CHECK_NEAR(along, (side[0] - side[1]) / (2.0 * h), 1e-7 * (1.0 + size)))
        fprintf(stderr, "  %s\n", r.table->rows[i].name);
      if (size > 1e-3) moving++;
    }
  }
  CHECK(moving > r.table->n / 2); /* the gradients are far above the bound */
close:
  free(g);
  free(w);
  free(moved);
  rig_close(&r);
}

static void gradients_match_central_differences_tied(void)
{
  const struct run_config c = tiny(PRECISION_F64);
  check_against_differences(&c);
}

static void gradients_match_central_differences_untied_with_dropout(void)
{
  struct run_config c = tiny(PRECISION_F64);
  c.tied = false;
  c.dropout = 0.2;
  check_against_differences(&c);
}

static void gradients_match_central_differences_reused_frozen_unused(void)
{
  struct run_config c = tiny(PRECISION_F64);
  c.layers = 3;
  c.reused = 1;
  c.unused = true;
  c.dropout = 0.1;
  strcpy(c.frozen, "c_fc.bias");
  check_against_differences(&c);
}

static void gradients_match_central_differences_with_a_frozen_embedding(void)
{
  struct run_config c = tiny(PRECISION_F64);
  strcpy(c.frozen, "wte");
  check_against_differences(&c);
}

static void unused_and_frozen_parameters_get_no_gradient(void)
{
  static const struct { const char *pattern; int rows; } frozen[] = {{"ln_2", 4}, {"wte", 1}, {"wpe", 1}, {"lm_head", 1}, {"c_attn", 4}};
  for (int p = 0; p < 5; p++) {
    struct run_config c = tiny(PRECISION_F64);
    struct rig r;
    double *g = NULL;
    c.unused = true;
    c.tied = false;
    strcpy(c.frozen, frozen[p].pattern);
    if (rig_open(&r, &c, &cpu) && one_step(&r, NULL, NULL) && (g = gradients_of(&r)) != NULL) {
      int looked = 0;
      for (int i = 0; i < r.table->n; i++) {
        double size = 0.0;
        for (int64_t k = 0; k < r.flat->length[i]; k++) size += fabs(g[r.flat->offset[i] + k]);
        const bool none = r.table->rows[i].unused || r.table->rows[i].frozen;
        CHECK(none ? size == 0.0 : size > 0.0);
        looked += none;
      }
      CHECK(looked == 1 + frozen[p].rows);
    }
    free(g);
    rig_close(&r);
  }
}

static void a_frozen_tied_matrix_has_no_second_accumulator(void)
{
  struct run_config c = tiny(PRECISION_F64);
  struct rig r;
  struct dev_usage trained, frozen;
  if (rig_open(&r, &c, &cpu)) dev_usage(r.dev, &trained);
  rig_close(&r);
  strcpy(c.frozen, "wte");
  if (rig_open(&r, &c, &cpu)) {
    dev_usage(r.dev, &frozen);
    CHECK(trained.now[DEV_GRADIENTS] - frozen.now[DEV_GRADIENTS] >= V * 6 * sizeof(double));
  }
  rig_close(&r);
}

int main(void)
{
  static const struct test tests[] = {
    TEST(gradients_match_central_differences_tied),
    TEST(gradients_match_central_differences_untied_with_dropout),
    TEST(gradients_match_central_differences_reused_frozen_unused),
    TEST(gradients_match_central_differences_with_a_frozen_embedding),
    TEST(unused_and_frozen_parameters_get_no_gradient),
    TEST(a_frozen_tied_matrix_has_no_second_accumulator),
  };
  return test_main("model_gradient", tests, sizeof tests / sizeof *tests);
}
