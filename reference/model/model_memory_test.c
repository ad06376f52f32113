/* model_memory_test.c - lifetimes, sharing and poison change no bit; what is allocated. */
#include "model/model_fixture.h"

static void check_equal_runs(const struct run_config *a, const struct dev_config *on_a, const struct run_config *b,
                             const struct dev_config *on_b)
{
  int64_t n = 0, m = 0;
  double *x = gradients_with(a, on_a, &n), *y = gradients_with(b, on_b, &m);
  if (CHECK(x != NULL && y != NULL && n == m)) CHECK_SAME_BITS(x, y, (size_t)n * sizeof *x);
  free(x);
  free(y);
}

static void poison_at_the_end_of_lifetimes_changes_no_bit(void)
{
  struct run_config c = tiny(PRECISION_F32);
  struct dev_config poison = cpu;
  poison.poison_end = true;
  c.dropout = 0.1;
  c.layers = 4;
  c.reused = 1;
  check_equal_runs(&c, &cpu, &c, &poison);
}

/* The bytes of output `layer`, or of its gradient; the caller frees. */
static char *block_bytes(struct rig *r, int layer, bool gradient, size_t *bytes)
{
  struct tensor t;
  if (!CHECK_OK(model_block(r->model, layer, gradient, &t))) return NULL;
  *bytes = (size_t)tensor_count(&t) * dtype_bytes(t.type);
  char *out = malloc(*bytes);
  if (out) {
    CHECK_OK(dev_copy_out(r->compute, out, t.at, *bytes));
    CHECK_OK(dev_sync(r->dev));
  }
  return out;
}

static void check_equal_blocks(struct rig *a, struct rig *b)
{
  for (int layer = -1; layer <= a->run.layers + 1; layer++)
    for (int gradient = 0; gradient < 2; gradient++) {
      size_t n = 0, m = 1;
      if (gradient && layer == a->run.layers + 1) continue;
      char *x = block_bytes(a, layer, gradient, &n), *y = block_bytes(b, layer, gradient, &m);
      if (CHECK(x && y && n == m)) CHECK_SAME_BITS(x, y, n);
      free(x);
      free(y);
    }
}

/* Every shape of the plan: few and many blocks, the peak at the head or not, outputs kept or not. */
static void sharing_memory_changes_no_bit(void)
{
  for (int variant = 0; variant < 24; variant++) {
    struct run_config c = tiny(variant % 4 < 2 ? PRECISION_F32 : PRECISION_BF16);
    struct rig shared, separate;
    double *x = NULL, *y = NULL;
    const struct dev_config d = {.kind = DEV_CPU, .threads = 1, .poison_end = variant % 2};
    c.layers = 1 + variant / 2 % 3 * 2;
    c.vocab = variant / 6 % 2 ? 300 : V;
    c.dump = variant / 12 ? DUMP_ALL : DUMP_NONE;
    c.dropout = 0.1;
    const bool a = rig_open_as(&shared, &c, &d, false), b = rig_open_as(&separate, &c, &cpu, true);
    if (a && b && one_step(&shared, NULL, NULL) && one_step(&separate, NULL, NULL)) {
      CHECK(model_activation_bytes(shared.model) < model_activation_bytes(separate.model));
      x = gradients_of(&shared);
      y = gradients_of(&separate);
      if (x && y) CHECK_SAME_BITS(x, y, (size_t)shared.count * sizeof *x);
      if (x) CHECK(isfinite(x[0]));
      if (c.dump == DUMP_ALL) check_equal_blocks(&shared, &separate);
    }
    free(x);
    free(y);
    rig_close(&shared);
    rig_close(&separate);
  }
}

/* With places of their own no region's end hides behind another's. */
static void every_activation_is_begun_and_retired(void)
{
  for (int separate = 0; separate < 2; separate++) {
    struct run_config c = tiny(PRECISION_F32);
    struct rig r;
    const struct dev_config poison = {.kind = DEV_CPU, .threads = 1, .poison_end = true};
    c.layers = 3;
    if (rig_open_as(&r, &c, &poison, separate) && CHECK_OK(dev_trace(r.dev, 4096)) && one_step(&r, NULL, NULL)) {
      const struct dev_interval *list;
      int64_t n = 0, lost = 0, begun = 0;
      CHECK_OK(dev_trace_take(r.dev, &list, &n, &lost));
      for (int64_t i = 0; i < n; i++) begun += strcmp(list[i].kernel, "begin") == 0;
      CHECK(lost == 0 && begun == BATCHES * (5 * c.layers + 5)); /* regions of activations.h */

      check_all_retired(&r);
    }
    rig_close(&r);
  }
}

/* Each output and each gradient of a block once, from 256 bytes to 256 bytes. */
static void what_is_kept_takes_its_own_bytes_alone(void)
{
  struct run_config c = tiny(PRECISION_F32);
  struct rig none, all;
  c.layers = 3;
  const bool a = rig_open(&none, &c, &cpu);
  c.dump = DUMP_ALL;
  const bool b = rig_open(&all, &c, &cpu);
  size_t bytes = 0;
  for (int gradient = 0; a && b && gradient < 2; gradient++)
    for (int layer = -1; layer <= c.layers + 1 - gradient; layer++) {
      struct tensor t;
      if (CHECK_OK(model_block(all.model, layer, gradient, &t))) bytes += ((size_t)tensor_count(&t) * dtype_bytes(t.type) + 255) / 256 * 256;
    }
  CHECK(!a || !b || model_activation_bytes(all.model) == model_activation_bytes(none.model) + bytes);
  rig_close(&none);
  rig_close(&all);
}

static void lazy_finds_nothing_and_gives_the_same_bits(void)
{
  struct run_config c = tiny(PRECISION_F32);
  c.dropout = 0.1;
  for (uint64_t seed = 1; seed <= 4; seed++) {
    const struct dev_config lazy = {.kind = DEV_LAZY, .threads = 1, .lazy_seed = seed, .poison_end = seed % 2};
    check_equal_runs(&c, &cpu, &c, &lazy); /* its syncs fail on a finding */
  }
}

static void nothing_is_allocated_after_create(void)
{
  struct run_config c = tiny(PRECISION_F32);
  struct rig r;
  struct dev_usage before, after;
  c.dump = DUMP_ALL;
  if (rig_open(&r, &c, &cpu)) {
    dev_usage(r.dev, &before);
    CHECK(before.now[DEV_ACTIVATIONS] == model_activation_bytes(r.model));
    one_step(&r, NULL, NULL);
    loss_of(&r, false);
    one_step(&r, NULL, NULL);
    dev_usage(r.dev, &after);
    CHECK(after.allocations == before.allocations);
  }
  rig_close(&r);
}

static size_t padded(int64_t elements, size_t each) { return ((size_t)elements * each + 255) / 256 * 256; }

/* The closed form of activations.h, at the head's backward and inside the last block's. */
static void activation_memory_follows_its_formula(void)
{
  for (int form = 0; form < 4; form++) {
    const int variant = form % 2;
    struct run_config c = tiny(form / 2 ? PRECISION_BF16 : PRECISION_F32); /* statistics are float32 in both */
    struct rig r;
    c.layers = 3;
    c.hidden = form / 2 ? 48 : 12;
    c.vocab = variant ? 20000 : V; /* the peak at the head, or in the last block */
    if (rig_open(&r, &c, &cpu)) {
      const int64_t N = B * T, C = c.hidden, H = c.heads, L = c.layers;
      const size_t s = form / 2 ? 2 : 4, stream = padded(N * C, s), one = padded(N, sizeof(float));
      const size_t attention = 2 * stream + padded(N * 3 * C, s) + 2 * one + padded(N * H, sizeof(float));
      const size_t mlp = 2 * stream + 2 * padded(N * 4 * C, s) + 2 * one;
      const size_t blocks = (size_t)L * (attention + mlp + stream) + stream;
      const size_t head = stream + 2 * one + padded(N * c.vocab, s) + one + stream;
      const size_t half = padded(N * 4 * C, s) + stream;
      const size_t at_head = blocks + head, at_block = blocks - stream + stream + half;
      CHECK(variant ? at_head > at_block : at_block > at_head);
      CHECK(model_activation_bytes(r.model) == (variant ? at_head : at_block));
    }
    rig_close(&r);
  }
}

static void create_survives_every_failed_allocation(void)
{
  struct run_config c = tiny(PRECISION_F32);
  struct rig r;
  if (rig_open(&r, &c, &cpu)) {
    struct dev_usage before, after;
    dev_usage(r.dev, &before);
    int failures = 0;
    bool done = false;
    for (long n = 1; n < 200 && !done; n++) {
      struct model *m = NULL;
      check_fail_allocation(n);
      const enum err e = model_create(&r.part, &m);
      done = !check_allocation_failed();
      check_fail_allocation(0);
      CHECK(done ? e == ERR_OK && m != NULL : e == ERR_MEMORY && m == NULL);
      failures += !done;
      model_destroy(m);
      dev_usage(r.dev, &after);
      CHECK(after.now[DEV_ACTIVATIONS] == before.now[DEV_ACTIVATIONS] &&
            after.now[DEV_GRADIENTS] == before.now[DEV_GRADIENTS]);
    }
    CHECK(done && failures > 4);
  }
  rig_close(&r);
}

int main(void)
{
  static const struct test tests[] = {
      TEST(poison_at_the_end_of_lifetimes_changes_no_bit),
      TEST(sharing_memory_changes_no_bit),
      TEST(every_activation_is_begun_and_retired),
      TEST(what_is_kept_takes_its_own_bytes_alone),
      TEST(lazy_finds_nothing_and_gives_the_same_bits),
      TEST(nothing_is_allocated_after_create),
      TEST(activation_memory_follows_its_formula),
      TEST(create_survives_every_failed_allocation),
  };
  return test_main("model_memory", tests, sizeof tests / sizeof *tests);
}
