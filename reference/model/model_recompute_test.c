/* model_recompute_test.c - what backward makes again instead of keeping it: no bit changes, less memory, on one rank. */
#include "model/model_fixture.h"

#include "base/fault.h"

static const enum recompute levels[] = {RECOMPUTE_NONE, RECOMPUTE_SELECTIVE, RECOMPUTE_FULL};

/* A device, and how passes follow one another. */
struct way {
  struct dev_config dev;
  int slots; /* 1: a micro-batch after another; BATCHES: all forwards first */
  bool split, separate;
};

static bool open_as(struct rig *r, const struct run_config *c, const struct way *w)
{
  if (!rig_prepare(r, c, &w->dev, &params_place_alone)) return false;
  r->part.slots = w->slots;
  r->part.split = w->split;
  r->part.weight_slots = w->split ? w->slots : 0;
  r->part.separate = w->separate;
  return CHECK_OK(model_create(&r->part, &r->model));
}

static bool step(struct rig *r, const struct way *w)
{
  struct model_pass p[BATCHES];
  for (int first = 0; first < BATCHES; first += w->slots) {
    for (int k = first; k < first + w->slots; k++) {
      p[k] = (struct model_pass){.slot = k - first, .weight_slot = k - first, .in = &r->in[k]};
      CHECK_OK(model_forward(r->model, &p[k], true, &r->loss));
    }
    for (int k = first; k < first + w->slots; k++) {
      if (!w->split) CHECK_OK(model_backward(r->model, &p[k], &r->scale, k == BATCHES - 1, NULL, NULL));
      if (w->split) CHECK_OK(model_backward_input(r->model, &p[k], &r->scale, k == BATCHES - 1, NULL, NULL));
    }
    for (int k = first; w->split && k < first + w->slots; k++)
      CHECK_OK(model_backward_weight(r->model, &p[k], k == BATCHES - 1, NULL, NULL));
  }
  return CHECK_OK(model_finish(r->model, NULL, NULL)) && CHECK_OK(dev_sync(r->dev));
}

/* Gradients of a step in this way; the caller frees.  bytes: of the activations. */
static double *gradients_in(const struct run_config *c, const struct way *w, int64_t *count, size_t *bytes)
{
  struct rig r;
  double *g = NULL;
  if (open_as(&r, c, w) && step(&r, w)) {
    g = gradients_of(&r);
    *bytes = model_activation_bytes(r.model);
  }
  *count = r.count;
  rig_close(&r);
  return g;
}

static struct run_config deep(enum precision precision)
{
  struct run_config c = tiny(precision);
  c.layers = 3;
  c.dropout = 0.1;
  c.schedule = SCHEDULE_GPIPE; /* as many places for the head as micro-batches */
  return c;
}

/* Every level against none, in each type, way, device and kind of model. */
static void no_level_changes_a_bit(void)
{
  static const enum precision precisions[] = {PRECISION_F64, PRECISION_F32, PRECISION_BF16};
  for (int variant = 0; variant < 24; variant++) {
    struct run_config c = deep(precisions[variant % 3]);
    const struct way w = {.dev = {.kind = variant / 6 % 2 ? DEV_LAZY : DEV_CPU, .threads = 1, .lazy_seed = 7, .poison_end = true},
                          .slots = variant / 3 % 2 ? BATCHES : 1,
                          .split = variant / 12,
                          .separate = variant % 5 == 4};
    const struct way plain = {.dev = cpu, .slots = 1};
    int64_t n = 0, m = 0;
    size_t none = 0, less = 0;
    c.tied = variant % 4 > 0;
    c.reused = variant % 7 == 3;
    c.tp_sums = variant % 8 == 5 ? 2 : 1;
    double *want = gradients_in(&c, &plain, &n, &none);
    for (int level = 0; level < 3; level++) {
      c.recompute = levels[level];
      double *got = gradients_in(&c, &w, &m, &less);
      if (CHECK(want && got && n == m)) CHECK_SAME_BITS(got, want, (size_t)n * sizeof *got);
      if (level > 0 && !w.separate && !w.split) CHECK(less < none); /* split: with few slots what passes need weighs more */
      none = less;
      free(got);
    }
    free(want);
  }
}

/* With places of their own no region's end hides behind another's, and each is begun as often as it lives. */
static void what_is_made_again_is_begun_and_retired(void)
{
  for (int variant = 0; variant < 4; variant++) {
    struct run_config c = deep(PRECISION_F32);
    const bool full = variant % 2, split = variant / 2;
    const struct way w = {.dev = {.kind = DEV_CPU, .threads = 1, .poison_end = true}, .slots = 1, .split = split, .separate = true};
    struct rig r;
    c.recompute = full ? RECOMPUTE_FULL : RECOMPUTE_SELECTIVE;
    if (open_as(&r, &c, &w) && CHECK_OK(dev_trace(r.dev, 1 << 14)) && step(&r, &w)) {
      const struct dev_interval *list;
      int64_t n = 0, lost = 0, begun = 0;
      CHECK_OK(dev_trace_take(r.dev, &list, &n, &lost));
      for (int64_t i = 0; i < n; i++) begun += strcmp(list[i].kernel, "begin") == 0;
      /* a block's kept 3 (full: 1), forward, two halves, full's attention; split: 4 for weights; the ends' 5 */
      const int64_t block = (full ? 1 : 3) + 1 + 2 + full + (split ? 4 : 0);
      CHECK(lost == 0 && begun == BATCHES * (block * c.layers + 5));
      check_all_retired(&r);
    }
    rig_close(&r);
  }
}

static size_t padded(int64_t elements, size_t each) { return ((size_t)elements * each + 255) / 256 * 256; }

/* The closed form of activations.h. */
static void activation_memory_follows_its_formula(void)
{
  for (int variant = 0; variant < 16; variant++) {
    const bool full = variant % 2, split = variant / 2 % 2, bf16 = variant / 8;
    const int slots = variant / 4 % 2 ? BATCHES : 1;
    struct run_config c = deep(bf16 ? PRECISION_BF16 : PRECISION_F32);
    const struct way w = {.dev = cpu, .slots = slots, .split = split};
    struct rig r;
    c.hidden = 48;
    c.recompute = full ? RECOMPUTE_FULL : RECOMPUTE_SELECTIVE;
    if (open_as(&r, &c, &w)) {
      const int64_t N = B * T, C = c.hidden, H = c.heads;
      const size_t L = (size_t)c.layers, s = bf16 ? 2 : 4, stream = padded(N * C, s), four = padded(4 * N * C, s), one = padded(N, 4);
      const size_t quick1 = 2 * one + padded(N * H, 4), quick2 = 2 * one, inputs1 = 2 * stream, inputs2 = stream + four;
      const size_t wide1 = padded(3 * N * C, s), wide2 = stream + four;
      const size_t stays = stream + (full ? 0 : wide1 + wide2);
      const size_t forward = quick1 + quick2 + inputs1 + inputs2 + (full ? wide1 + wide2 : 0);
      const size_t half = split ? 2 * stream : four + stream;
      const size_t half2 = (split ? stream : four + stream) + quick2 + (split ? 0 : inputs2), half1 = half + quick1 + (split ? 0 : inputs1);
      const size_t both = (split ? stream : four + stream) + quick1 + quick2 + wide1 + wide2 + (split ? 0 : inputs1 + inputs2);
      const size_t backward = full ? both : half2 > half1 ? half2 : half1;
      const size_t head = stream + 2 * one + padded(N * c.vocab, s) + one;
      size_t want = (size_t)slots * (L * stays + stream);
      if (slots == 1 && !split)
        want += forward > backward ? forward : backward; /* larger than the head's */
      else
        want += (size_t)slots * head + (forward > stream + backward ? forward : stream + backward);
      if (split) want += (size_t)slots * L * (inputs1 + inputs2 + wide1 + four + 2 * stream);
      const size_t got = model_activation_bytes(r.model);
      if (!CHECK(got >= want && got <= want + 1024)) fprintf(stderr, "  variant %d: %zu, formula %zu\n", variant, got, want);
    }
    rig_close(&r);
  }
}

static void create_survives_every_failed_allocation(void)
{
  struct run_config c = deep(PRECISION_F32);
  const struct way w = {.dev = cpu, .slots = 2, .split = true};
  struct rig r;
  c.recompute = RECOMPUTE_FULL;
  if (open_as(&r, &c, &w)) {
    struct dev_usage before, after;
    dev_usage(r.dev, &before);
    bool done = false;
    for (long n = 1; n < 200 && !done; n++) {
      struct model *m = NULL;
      check_fail_allocation(n);
      const enum err e = model_create(&r.part, &m);
      done = !check_allocation_failed();
      check_fail_allocation(0);
      CHECK(done ? e == ERR_OK && m != NULL : e == ERR_MEMORY && m == NULL);
      model_destroy(m);
      dev_usage(r.dev, &after);
      CHECK(after.now[DEV_ACTIVATIONS] == before.now[DEV_ACTIVATIONS]);
    }
    CHECK(done);
  }
  rig_close(&r);
}

/* A schedule that waits with weights has only the places that wait; more passes than that are refused. */
static void places_for_weights_are_those_between_the_two_backwards(void)
{
  struct run_config c = deep(PRECISION_F32);
  const struct way w = {.dev = cpu, .slots = BATCHES, .split = true};
  struct rig r;
  c.recompute = RECOMPUTE_FULL;
  c.schedule = SCHEDULE_ZB_H1; /* of one stage: W follows I */
  if (open_as(&r, &c, &w)) {
    const struct model_pass a = {.in = &r.in[0]}, b = {.slot = 1, .weight_slot = 1, .in = &r.in[1]};
    CHECK(r.model->memory.n_saved == 1);
    CHECK_ERR(model_backward_weight(r.model, &a, false, NULL, NULL), ERR_ARG);
    CHECK_OK(model_forward(r.model, &a, true, &r.loss));
    CHECK_OK(model_backward_input(r.model, &a, &r.scale, false, NULL, NULL));
    CHECK_OK(model_forward(r.model, &b, true, &r.loss));
    CHECK_ERR(model_backward_input(r.model, &b, &r.scale, false, NULL, NULL), ERR_ARG);
    CHECK_TEXT_HAS(err_text(), "all that this schedule needs");
    CHECK_OK(model_backward_weight(r.model, &a, false, NULL, NULL));
    CHECK_OK(model_backward_input(r.model, &b, &r.scale, false, NULL, NULL));
    CHECK_OK(model_backward_weight(r.model, &b, false, NULL, NULL));
    CHECK_OK(dev_sync(r.dev));
  }
  rig_close(&r);
}

/* Rows whose gradients a planted fault changes. */
static int rows_changed(const char *fault, enum recompute level)
{
  struct run_config c = deep(PRECISION_F64);
  const struct way w = {.dev = cpu, .slots = 1};
  int64_t n = 0;
  size_t bytes;
  int changed = 0;
  double *want = gradients_in(&c, &w, &n, &bytes);
  c.recompute = level;
  CHECK_OK(fault_plant(fault, 1.0, 0));
  double *got = gradients_in(&c, &w, &n, &bytes);
  CHECK_OK(fault_plant("", 1.0, 0));
  struct rig r;
  if (CHECK(want && got) && rig_open(&r, &c, &cpu)) {
    for (int row = 0; row < r.table->n; row++)
      changed += memcmp(want + r.flat->offset[row], got + r.flat->offset[row], (size_t)r.flat->length[row] * sizeof *got) != 0;
    rig_close(&r);
  }
  free(want);
  free(got);
  return changed;
}

static void other_masks_and_shared_places_show_at_their_level_alone(void)
{
  CHECK(rows_changed("rng-recompute-fresh-mask", RECOMPUTE_FULL) > 30);
  CHECK(rows_changed("rng-recompute-fresh-mask", RECOMPUTE_SELECTIVE) == 0); /* no dropout inside */
  CHECK(rows_changed("rng-recompute-fresh-mask", RECOMPUTE_NONE) == 0);
  CHECK(rows_changed("mm-recompute-buffer-aliased", RECOMPUTE_SELECTIVE) > 20);
  CHECK(rows_changed("mm-recompute-buffer-aliased", RECOMPUTE_FULL) == 0);
  CHECK(rows_changed("mm-recompute-buffer-aliased", RECOMPUTE_NONE) == 0);
}

int main(void)
{
  static const struct test tests[] = {
      TEST(no_level_changes_a_bit),
      TEST(what_is_made_again_is_begun_and_retired),
      TEST(activation_memory_follows_its_formula),
      TEST(create_survives_every_failed_allocation),
      TEST(places_for_weights_are_those_between_the_two_backwards),
      TEST(other_masks_and_shared_places_show_at_their_level_alone),
  };
  return test_main("model_recompute", tests, sizeof tests / sizeof *tests);
}
