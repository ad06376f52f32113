/* model_split_test.c - backward in two passes, several micro-batches in flight, sums from parts: on one rank. */
#include "model/model_fixture.h"

static bool open_with(struct rig *r, const struct run_config *c, const struct dev_config *d, int slots,
                      int weight_slots, bool separate)
{
  if (!rig_prepare(r, c, d, &params_place_alone)) return false;
  r->part.slots = slots;
  r->part.split = weight_slots > 0;
  r->part.weight_slots = weight_slots;
  r->part.separate = separate;
  return CHECK_OK(model_create(&r->part, &r->model));
}

struct told {
  int n, rows[128];
};
static void note(void *arg, int row)
{
  struct told *t = arg;
  if (t->n < 128) t->rows[t->n++] = row;
}

/* All forwards, then backwards, each weight pass `late` backwards after its input pass; late < 0: backward whole. */
static bool step_in_flight(struct rig *r, int late, struct told *told)
{
  struct model_pass p[BATCHES];
  for (int k = 0; k < BATCHES; k++) {
    p[k] = (struct model_pass){.slot = k, .weight_slot = k, .in = &r->in[k]};
    CHECK_OK(model_forward(r->model, &p[k], true, &r->loss));
  }
  for (int k = 0; k < BATCHES + (late > 0 ? late : 0); k++) {
    if (k < BATCHES && late < 0) CHECK_OK(model_backward(r->model, &p[k], &r->scale, k == BATCHES - 1, note, told));
    if (k < BATCHES && late >= 0)
      CHECK_OK(model_backward_input(r->model, &p[k], &r->scale, k == BATCHES - 1, note, told));
    if (late >= 0 && k >= late)
      CHECK_OK(model_backward_weight(r->model, &p[k - late], k - late == BATCHES - 1, note, told));
  }
  return CHECK_OK(model_finish(r->model, note, told)) && CHECK_OK(dev_sync(r->dev));
}

static void any_order_of_passes_has_the_bits_of_one_after_another(void)
{
  for (int number = 0; number < 32; number++) {
    const int variant = number % 24; /* the last eight in bf16 */
    struct run_config c = tiny(number >= 24 ? PRECISION_BF16 : variant % 2 ? PRECISION_F32 : PRECISION_F64);
    struct rig plain, flight;
    struct told told = {0};
    double *x = NULL, *y = NULL;
    const int late = variant / 2 % 4 - 1;
    const struct dev_config d = {
        .kind = variant / 8 == 1 ? DEV_LAZY : DEV_CPU, .threads = 1, .lazy_seed = 4, .poison_end = true};
    c.layers = 3;
    c.schedule = SCHEDULE_GPIPE;
    c.dropout = variant % 3 ? 0.1 : 0.0;
    c.tied = variant / 8 < 2;
    c.reused = variant / 8 == 2;
    const bool a = rig_open(&plain, &c, &cpu),
               b = open_with(&flight, &c, &d, BATCHES, late < 0 ? 0 : BATCHES, variant / 8 == 2);
    if (CHECK(a && b) && one_step(&plain, NULL, NULL) && step_in_flight(&flight, late, &told)) {
      x = gradients_of(&plain);
      y = gradients_of(&flight);
      if (x && y) CHECK_SAME_BITS(x, y, (size_t)plain.count * sizeof *x);
      int owned = 0;
      for (int row = 0; row < plain.table->n; row++) owned += plain.table->rows[row].shared_with < 0;
      CHECK(told.n == owned);
    }
    free(x);
    free(y);
    rig_close(&plain);
    rig_close(&flight);
  }
}

/* With places of their own no region's end hides behind another's: after a step nothing is left but kept inputs. */
static void every_activation_of_a_split_backward_is_begun_and_retired(void)
{
  const struct run_config c = tiny(PRECISION_F32);
  struct rig r;
  const struct dev_config d = {.kind = DEV_CPU, .threads = 1, .poison_end = true};
  if (open_with(&r, &c, &d, 1, 1, true) && CHECK_OK(dev_trace(r.dev, 10000))) {
    const struct dev_interval *list;
    int64_t n = 0, lost = 0, begun = 0;
    for (int k = 0; k < BATCHES; k++) {
      const struct model_pass p = pass_of(&r, k);
      CHECK_OK(model_forward(r.model, &p, true, &r.loss));
      CHECK_OK(model_backward_input(r.model, &p, &r.scale, k == BATCHES - 1, NULL, NULL));
      CHECK_OK(model_backward_weight(r.model, &p, k == BATCHES - 1, NULL, NULL));
    }
    CHECK_OK(dev_sync(r.dev));
    CHECK_OK(dev_trace_take(r.dev, &list, &n, &lost));
    for (int64_t i = 0; i < n; i++) begun += strcmp(list[i].kernel, "begin") == 0;
    CHECK(lost == 0 && begun == BATCHES * (9 * c.layers + 5)); /* stash 3, saved 4, work 2 a block; the ends' 5 */
    check_all_retired(&r);
  }
  rig_close(&r);
}

static void create_with_places_survives_every_failed_allocation(void)
{
  struct run_config c = tiny(PRECISION_F32);
  struct rig r;
  c.dump = DUMP_ALL;
  if (open_with(&r, &c, &cpu, 2, 3, false)) {
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
    CHECK(done && failures > 12);
  }
  rig_close(&r);
}

/* --- tp_sums ------------------------------------------------------------------------------------ */

/* Norm of the difference to the plain run's gradients, relative. */
static double off_with_sums(enum precision precision, int64_t sums)
{
  struct run_config c = tiny(precision), parts;
  double off = 0.0, size = 0.0;
  int64_t n = 0, m = 0;
  c.heads = 4;
  c.hidden = 16;
  parts = c;
  parts.tp_sums = sums;
  double *x = gradients_with(&c, &cpu, &n), *y = gradients_with(&parts, &cpu, &m);
  if (CHECK(x && y && n == m))
    for (int64_t i = 0; i < n; i++) {
      off += (x[i] - y[i]) * (x[i] - y[i]);
      size += x[i] * x[i];
    }
  free(x);
  free(y);
  return sqrt(off / size);
}

static void sums_from_parts_round_otherwise_and_no_more(void)
{
  for (int64_t n = 2; n <= 4; n++) {
    const double wide = off_with_sums(PRECISION_F64, n), narrow = off_with_sums(PRECISION_F32, n);
    CHECK(wide > 0.0 && wide < 1e-14);
    CHECK(narrow > 1e-9 && narrow < 1e-5);
    const double half = off_with_sums(PRECISION_BF16, n);
    CHECK(half > 1e-4 && half < 0.02);
  }
}

int main(void)
{
  static const struct test tests[] = {
      TEST(any_order_of_passes_has_the_bits_of_one_after_another),
      TEST(every_activation_of_a_split_backward_is_begun_and_retired),
      TEST(create_with_places_survives_every_failed_allocation),
      TEST(sums_from_parts_round_otherwise_and_no_more),
  };
  return test_main("model_split", tests, sizeof tests / sizeof *tests);
}
