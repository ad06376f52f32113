/* model_recompute_np2_test.c - recompute under tensor parts and pipeline stages: the bits of keeping all, and the
 * collectives of forward once more. */
#include "model/model_cases.h"

static struct run_config deep(enum precision precision)
{
  struct run_config c = tiny(precision);
  c.layers = 3;
  c.dropout = 0.1;
  c.unused = true;
  return c;
}

static void check_same_gradients(const struct cut *a, const struct cut *b, double *x, double *y)
{
  for (int row = 0; x && y && row < a->rig.table->n; row++)
    CHECK_SAME_BITS(x + a->rig.flat->offset[row], y + b->rig.flat->offset[row], (size_t)a->rig.flat->length[row] * sizeof *x);
}

/* The same cut with all kept and with `level`. */
static void check_level(const struct run_config *run, const struct layout *l, const struct dev_config *d, enum recompute level)
{
  struct cut kept, again;
  struct run_config c = *run;
  c.recompute = level;
  const bool a = cut_open(&kept, run, l, &cpu), b = cut_open(&again, &c, l, d);
  if (CHECK(a && b) && cut_step(&kept) && cut_step(&again)) {
    double *x = gradients_of(&again.rig), *y = gradients_of(&kept.rig);
    check_same_gradients(&again, &kept, x, y);
    CHECK(memcmp(again.told, kept.told, sizeof kept.told) == 0);
    if (again.rig.model->ends) CHECK_SAME_BITS(again.losses, kept.losses, sizeof kept.losses);
    if (!l->split) CHECK(model_activation_bytes(again.rig.model) < model_activation_bytes(kept.rig.model));
    free(x);
    free(y);
  }
  cut_close(&again);
  cut_close(&kept);
}

static void tensor_parts_have_the_bits_of_keeping_all(void)
{
  for (int variant = 0; variant < 16; variant++) {
    struct run_config c = deep(variant % 3 == 0 ? PRECISION_BF16 : variant % 3 == 1 ? PRECISION_F32 : PRECISION_F64);
    const struct layout l = {.tp = 2, .pp = 1, .chunks = 1, .sequence = variant / 2 % 2, .split = variant / 4 % 2};
    const struct dev_config d = {.kind = variant / 8 ? DEV_LAZY : DEV_CPU, .threads = 1, .lazy_seed = 2, .poison_end = true};
    c.tied = variant % 5 != 0;
    check_level(&c, &l, &d, variant % 2 ? RECOMPUTE_FULL : RECOMPUTE_SELECTIVE);
  }
}

static void stages_have_the_bits_of_keeping_all(void)
{
  for (int variant = 0; variant < 24; variant++) {
    struct run_config c = deep(variant % 3 == 0 ? PRECISION_BF16 : variant % 3 == 1 ? PRECISION_F32 : PRECISION_F64);
    const int chunks = variant / 2 % 2 + 1;
    const struct layout l = {.tp = 1,
                             .pp = 2,
                             .chunks = chunks,
                             .split = variant / 4 % 2,
                             .order = (enum order)(variant / 8 % (chunks > 1 ? 2 : 3))};
    const struct dev_config d = {.kind = variant % 5 == 0 ? DEV_LAZY : DEV_CPU, .threads = 1, .lazy_seed = 2, .poison_end = true};
    c.layers = 5;
    check_level(&c, &l, &d, variant % 2 ? RECOMPUTE_FULL : RECOMPUTE_SELECTIVE);
  }
}

static void count_calls(const char *op, int64_t *calls, int64_t *elements)
{
  int64_t n;
  const struct comm_call *list = comm_trace(world, &n);
  *calls = *elements = 0;
  for (int64_t i = 0; i < n; i++) {
    if (strcmp(list[i].op, op) != 0) continue;
    ++*calls;
    *elements += list[i].count;
  }
}

/* Full: of forward's all but each block's last sum; selective: none. */
static void collectives_of_forward_come_once_more(void)
{
  for (int variant = 0; variant < 4; variant++) {
    struct run_config run = deep(PRECISION_F64);
    const bool sequence = variant % 2, full = variant / 2;
    const struct layout l = {.tp = 2, .pp = 1, .chunks = 1, .sequence = sequence};
    const int64_t N = B * T, C = run.hidden, L = run.layers, M = BATCHES;
    struct cut c;
    int64_t calls, elements;
    run.recompute = full ? RECOMPUTE_FULL : RECOMPUTE_SELECTIVE;
    if (cut_open(&c, &run, &l, &cpu)) {
      comm_trace_restart(world);
      cut_step(&c);
      count_calls("allreduce", &calls, &elements);
      if (sequence)
        CHECK(calls == M * 2 + 2 * L + 2);
      else
        CHECK(calls == M * ((full ? 5 : 4) * L + 4) && elements == M * (((full ? 5 : 4) * L + 2) * N * C + 3 * N));
      count_calls("allgather", &calls, &elements);
      CHECK(calls == (sequence ? M * ((full ? 8 : 6) * L + 3) : 0) && elements == calls * N * C);
      count_calls("reduce_scatter", &calls, &elements);
      CHECK(calls == (sequence ? M * ((full ? 5 : 4) * L + 2) : 0) && elements == calls * N * C);
    }
    cut_close(&c);
  }
}

/* After a step nothing is left but what a stage's neighbours share. */
static void what_is_made_again_of_a_shard_is_retired(void)
{
  for (int variant = 0; variant < 4; variant++) {
    struct run_config run = deep(PRECISION_F32);
    const struct layout l = {.tp = 2, .pp = 1, .chunks = 1, .sequence = true, .split = variant / 2, .separate = true};
    const struct dev_config d = {.kind = DEV_CPU, .threads = 1, .poison_end = true};
    struct cut c;
    run.recompute = variant % 2 ? RECOMPUTE_FULL : RECOMPUTE_SELECTIVE;
    if (cut_open(&c, &run, &l, &d) && cut_step(&c)) check_all_retired(&c.rig);
    cut_close(&c);
  }
}

int main(void)
{
  static const struct test tests[] = {
      TEST(tensor_parts_have_the_bits_of_keeping_all),
      TEST(stages_have_the_bits_of_keeping_all),
      TEST(collectives_of_forward_come_once_more),
      TEST(what_is_made_again_of_a_shard_is_retired),
  };
  return run_cut("model_recompute_np2", tests, sizeof tests / sizeof *tests);
}
