/* model_test.c - order of `ready`, tied uses, precision, dropout, kept outputs, refusals. */
#include "model/model_fixture.h"

struct told {
  int n, rows[128];
};
static void note(void *arg, int row)
{
  struct told *t = arg;
  if (t->n < 128) t->rows[t->n++] = row;
}

static void rows_are_told_once_from_the_last_to_the_first_in_the_last_backward_or_at_its_finish(void)
{
  for (int tied = 0; tied < 2; tied++) {
    struct run_config c = tiny(PRECISION_F64);
    struct rig r;
    struct told told = {0};
    c.tied = tied;
    c.layers = 4;
    c.reused = 1;
    c.unused = true;
    strcpy(c.frozen, "wpe");
    if (rig_open(&r, &c, &cpu)) {
      const struct model_pass first = pass_of(&r, 0), second = pass_of(&r, 1);
      CHECK_OK(model_forward(r.model, &first, true, &r.loss));
      CHECK_OK(model_backward(r.model, &first, &r.scale, false, note, &told));
      CHECK(told.n == 0);
      CHECK_OK(model_forward(r.model, &second, true, &r.loss));
      CHECK_OK(model_backward(r.model, &second, &r.scale, true, note, &told));
      const int in_backward = told.n;
      CHECK_OK(model_finish(r.model, note, &told));
      CHECK_OK(dev_sync(r.dev));
      int k = 0;
      for (int row = r.table->n - 2; row >= tied; row--) /* the last is unused, the first may be tied */
        if (r.table->rows[row].shared_with < 0) {
          CHECK(k < told.n && told.rows[k] == row);
          k++;
        }
      CHECK(in_backward == k && told.rows[k] == r.table->n - 1 && told.n == k + 1 + tied);
      CHECK(!tied || told.rows[k + 1] == 0);
    }
    rig_close(&r);
  }
}

static void tied_gradient_is_the_embeddings_use_plus_the_heads_in_bits(void)
{
  struct run_config c = tiny(PRECISION_F32);
  struct rig tied, untied;
  double *sum = NULL, *parts = NULL;
  c.dropout = 0.1;
  const bool a = rig_open(&tied, &c, &cpu);
  c.tied = false;
  const bool b = rig_open(&untied, &c, &cpu);
  if (!a || !b) goto close;

  /* the same weights: the untied head is a copy of the embedding */
  const int head = params_find(untied.table, "lm_head.weight");
  const struct tensor copy = tensor_at((float *)untied.weights + untied.flat->offset[head], DTYPE_F32, V, 6);
  const struct tensor wte = tensor_at(untied.weights, DTYPE_F32, V, 6);
  CHECK_OK(op_copy(untied.compute, &copy, &wte));
  if (!one_step(&tied, NULL, NULL) || !one_step(&untied, NULL, NULL)) goto close;
  sum = gradients_of(&tied);
  parts = gradients_of(&untied);
  if (sum == NULL || parts == NULL) goto close;
  int rounded = 0;
  for (int k = 0; k < V * 6; k++) {
    const float added = (float)parts[k] + (float)parts[untied.flat->offset[head] + k];
    CHECK((float)sum[k] == added);
    rounded += parts[k] != 0.0 && parts[untied.flat->offset[head] + k] != 0.0;
  }
  CHECK(rounded > V);
close:
  free(sum);
  free(parts);
  rig_close(&tied);
  rig_close(&untied);
}

static void the_heads_accumulator_starts_each_step_empty(void)
{
  struct run_config c = tiny(PRECISION_F64);
  struct rig r;
  double *first = NULL, *second = NULL;
  if (rig_open(&r, &c, &cpu) && one_step(&r, NULL, NULL) && (first = gradients_of(&r)) != NULL) {
    const struct tensor g = tensor_at(r.gradients, r.state, 1, r.count);
    CHECK_OK(op_fill(r.compute, &g, 0.0));
    if (one_step(&r, NULL, NULL) && (second = gradients_of(&r)) != NULL)
      CHECK_SAME_BITS(first, second, (size_t)r.count * sizeof *first);
  }
  free(first);
  free(second);
  rig_close(&r);
}

/* The distance of a precision's gradients from those of float64, both from weights that it holds; NaN: there are none. */
static double off_float64(enum precision precision, enum dtype held)
{
  struct run_config wide = tiny(PRECISION_F64), narrow = tiny(precision);
  int64_t n = 0, m = 0;
  double off = 0.0, size = 0.0;
  wide.weights_as = held;
  double *x = gradients_with(&wide, &cpu, &n), *y = gradients_with(&narrow, &cpu, &m);
  const bool both = CHECK(x != NULL && y != NULL && n == m);
  for (int64_t i = 0; both && i < n; i++) {
    off += (x[i] - y[i]) * (x[i] - y[i]);
    size += x[i] * x[i];
  }
  free(x);
  free(y);
  return both ? sqrt(off / size) : NAN;
}

static void float32_is_near_float64(void)
{
  const double off = off_float64(PRECISION_F32, DTYPE_F32);
  CHECK_NEAR(off, 0.0, 1e-5);
  CHECK(off > 0.0);
}

/* About ten roundings of 2^-9 a layer and pass: 0.02 of two layers; worst seen
 * 0.0083. Without float32 sums of gradients and statistics it would be several times that. */
static void bfloat16_is_near_float64(void)
{
  const double off = off_float64(PRECISION_BF16, DTYPE_BF16);
  CHECK_NEAR(off, 0.0, 0.02);
  CHECK(off > 0x1p-10); /* it is bf16 */
}

/* The same roundings, of 2^-12; losses are not scaled here, so that gradients below 2^-14 lose some more. */
static void float16_is_near_float64(void)
{
  const double off = off_float64(PRECISION_F16, DTYPE_F16);
  CHECK_NEAR(off, 0.0, 0.0025);
  CHECK(off > 0x1p-13); /* it is fp16 */
}

static void evaluation_has_no_dropout(void)
{
  struct run_config with = tiny(PRECISION_F64), without = with;
  struct rig a, b;
  with.dropout = 0.5;
  const bool ok = rig_open(&a, &with, &cpu);
  if (rig_open(&b, &without, &cpu) && ok) {
    const double eval = loss_of(&a, false), plain = loss_of(&b, true), dropped = loss_of(&a, true);
    CHECK(eval == plain);
    CHECK(fabs(dropped - plain) > 1e-3);
  }
  rig_close(&a);
  rig_close(&b);
}

static void masks_follow_the_step(void)
{
  struct run_config c = tiny(PRECISION_F64);
  struct rig r;
  c.dropout = 0.5;
  if (rig_open(&r, &c, &cpu)) {
    const double now = loss_of(&r, true), again = loss_of(&r, true);
    const int32_t step = 4;
    CHECK_OK(dev_copy_in(r.compute, r.step.at, &step, sizeof step));
    const double next = loss_of(&r, true);
    CHECK(now == again && next != now);
  }
  rig_close(&r);
}

/* Ones through every site: no two masks are equal, and the embedding's is the operation's own. */
static void each_site_draws_its_own_mask(void)
{
  enum { SITES = 5, COUNT = B * T * 6 };
  struct run_config c = tiny(PRECISION_F64);
  struct rig r;
  void *at = NULL;
  c.dropout = 0.5;
  if (rig_open(&r, &c, &cpu) &&
      CHECK_OK(dev_alloc(r.dev, (SITES + 2) * COUNT * sizeof(double), DEV_OTHER, "masks", &at))) {
    const struct {
      int layer;
      enum stage_site site;
    } sites[SITES] = {{-1, STAGE_SITE_EMBEDDING},
                      {0, STAGE_SITE_ATTENTION},
                      {0, STAGE_SITE_MLP},
                      {1, STAGE_SITE_ATTENTION},
                      {1, STAGE_SITE_MLP}};
    struct tensor mask[SITES + 2];
    for (int i = 0; i < SITES + 2; i++) mask[i] = tensor_at((double *)at + i * COUNT, DTYPE_F64, B * T, 6);
    const struct tensor ones = mask[SITES + 1];
    CHECK_OK(op_fill(r.compute, &ones, 1.0));
    const struct model_pass pass = pass_of(&r, 1);
    r.model->now = (struct walk){.chunk = &r.model->chunk[0], .pass = &pass};
    for (int i = 0; i < SITES; i++) CHECK_OK(stage_dropout(r.model, sites[i].layer, sites[i].site, &mask[i], &ones));
    const struct rng_key key = {(uint64_t)c.seed, RNG_DROPOUT, 0};
    CHECK_OK(op_dropout(r.compute, &mask[SITES], &ones, 0.5, key, &r.step, &r.in[1].samples, c.positions, T, 0));
    CHECK_OK(dev_sync(r.dev));
    double *seen = mirror_read(r.compute, at, (SITES + 1) * COUNT * sizeof *seen);
    CHECK_SAME_BITS(seen, seen + SITES * COUNT, COUNT * sizeof *seen);
    for (int i = 0; i < SITES; i++)
      for (int k = 0; k < i; k++) CHECK(memcmp(seen + i * COUNT, seen + k * COUNT, COUNT * sizeof *seen) != 0);
    free(seen);
  }
  if (r.dev) dev_free(r.dev, at);
  rig_close(&r);
}

static double *host_copy(struct rig *r, const struct tensor *t)
{
  double *out = malloc((size_t)tensor_count(t) * sizeof *out);
  if (out) {
    CHECK_OK(dev_copy_out(r->compute, out, t->at, (size_t)tensor_count(t) * sizeof *out));
    CHECK_OK(dev_sync(r->dev));
  }
  return out;
}

/* A bias that is added to what a block puts out has the column sums of the gradient there. */
static void check_bias_is_the_sum_of(struct rig *r, int layer, const char *bias)
{
  struct tensor t;
  const int row = params_find(r->table, bias);
  double *g = gradients_of(r);
  if (!CHECK_OK(model_block(r->model, layer, true, &t)) || g == NULL) return;
  double *d = host_copy(r, &t);
  if (d) {
    CHECK(t.rows == B * T && t.cols == r->run.hidden);
    for (int c = 0; c < t.cols; c++) {
      double sum = 0.0;
      for (int64_t n = 0; n < t.rows; n++) sum += d[n * t.cols + c];
      CHECK_NEAR(g[r->flat->offset[row] + c], sum, 1e-13);
    }
  }
  free(d);
  free(g);
}

static void kept_outputs_and_gradients_are_those_of_their_blocks(void)
{
  struct run_config c = tiny(PRECISION_F64);
  struct rig r;
  struct tensor t;
  c.dump = DUMP_ALL;
  if (rig_open(&r, &c, &(struct dev_config){.kind = DEV_CPU, .threads = 1, .poison_end = true})) {
    double loss = NAN, sum = 0.0;
    const struct model_pass pass = pass_of(&r, 0);
    CHECK_OK(model_forward(r.model, &pass, true, &r.loss));
    CHECK_OK(model_backward(r.model, &pass, &r.scale, true, NULL, NULL));
    CHECK_OK(model_finish(r.model, NULL, NULL));
    CHECK_OK(dev_copy_out(r.compute, &loss, r.loss.at, sizeof loss));
    CHECK_OK(model_block(r.model, 3, false, &t));
    double *losses = host_copy(&r, &t);
    for (int64_t n = 0; losses && n < t.rows; n++) sum += losses[n];
    CHECK(t.rows == B * T && t.cols == 1 && loss > 0.0);
    CHECK(mirror_cuda() ? fabs(sum - loss) <= 1e-14 * loss : sum == loss); /* it adds in another order */
    free(losses);

    check_bias_is_the_sum_of(&r, 2, "transformer.ln_f.bias");
    check_bias_is_the_sum_of(&r, 1, "transformer.h.1.mlp.c_proj.bias");
    check_bias_is_the_sum_of(&r, 0, "transformer.h.0.mlp.c_proj.bias");

    /* the embedding's output is wte[token] + wpe[position]; its gradient summed over all is wpe's */
    double *w = host_copy(&r, &(struct tensor){r.weights, DTYPE_F64, 1, r.count, r.count}), *g = gradients_of(&r);
    CHECK_OK(model_block(r.model, -1, false, &t));
    double *x = host_copy(&r, &t);
    CHECK_OK(model_block(r.model, -1, true, &t));
    double *d = host_copy(&r, &t);
    int32_t tokens[B * T], targets[B * T], positions[B * T], documents[B * T], samples[B];
    fill_batch(r.run.seed, V, 0, tokens, targets, positions, documents, samples);
    for (int k = 0; w && g && x && d && k < 6; k++) {
      double over_positions = 0.0, over_rows = 0.0;
      const int64_t wpe = r.flat->offset[1];
      for (int n = 0; n < B * T; n++) {
        CHECK(x[n * 6 + k] == w[tokens[n] * 6 + k] + w[wpe + positions[n] * 6 + k]);
        over_rows += d[n * 6 + k];
      }
      for (int p = 0; p < c.positions; p++) over_positions += g[wpe + p * 6 + k];
      CHECK_NEAR(over_positions, over_rows, 1e-13);
    }
    free(w);
    free(g);
    free(x);
    free(d);

    /* an evaluation leaves the last backward's gradients */
    CHECK_OK(model_block(r.model, 0, true, &t));
    double *before = host_copy(&r, &t);
    loss_of(&r, false);
    double *after = host_copy(&r, &t);
    if (before && after) CHECK_SAME_BITS(before, after, (size_t)tensor_count(&t) * sizeof *before);
    free(before);
    free(after);

    CHECK_ERR(model_block(r.model, 3, true, &t), ERR_ARG);
    CHECK_ERR(model_block(r.model, -2, false, &t), ERR_ARG);
    CHECK_ERR(model_block(r.model, 4, false, &t), ERR_ARG);
  }
  rig_close(&r);
  c.dump = DUMP_NONE;
  if (rig_open(&r, &c, &cpu)) {
    CHECK_ERR(model_block(r.model, 0, false, &t), ERR_ARG);
    CHECK_TEXT_HAS(err_text(), "dump");
  }
  rig_close(&r);
}

static void micro_batches_of_another_shape_are_refused_before_anything_is_queued(void)
{
  struct run_config c = tiny(PRECISION_F32);
  struct rig r;
  if (rig_open(&r, &c, &cpu) && CHECK_OK(dev_trace(r.dev, 100))) {
    static const char *const names[] = {"tokens", "targets", "positions", "documents", "samples"};
    for (int i = 0; i < 5; i++) {
      struct model_input in = r.in[0];
      struct tensor *const fields[] = {&in.tokens, &in.targets, &in.positions, &in.documents, &in.samples};
      fields[i]->rows--;
      const struct model_pass pass = {.in = &in};
      CHECK_ERR(model_forward(r.model, &pass, true, &r.loss), ERR_ARG);
      CHECK_TEXT_HAS(err_text(), names[i]);
      CHECK_ERR(model_backward(r.model, &pass, &r.scale, true, NULL, NULL), ERR_ARG);
    }
    const struct dev_interval *list;
    int64_t n = -1, lost = -1;
    CHECK_OK(dev_sync(r.dev));
    CHECK_OK(dev_trace_take(r.dev, &list, &n, &lost));
    CHECK(n == 0 && lost == 0);
  }
  rig_close(&r);
}

int main(void)
{
  static const struct test tests[] = {
      TEST(rows_are_told_once_from_the_last_to_the_first_in_the_last_backward_or_at_its_finish),
      TEST(tied_gradient_is_the_embeddings_use_plus_the_heads_in_bits),
      TEST(the_heads_accumulator_starts_each_step_empty),
      TEST(float32_is_near_float64),
      TEST(bfloat16_is_near_float64),
      TEST(float16_is_near_float64),
    TEST(evaluation_has_no_dropout),
      TEST(masks_follow_the_step),
      TEST(each_site_draws_its_own_mask),
      TEST(kept_outputs_and_gradients_are_those_of_their_blocks),
      TEST(micro_batches_of_another_shape_are_refused_before_anything_is_queued),
  };
  return test_main("model", tests, sizeof tests / sizeof *tests);
}
