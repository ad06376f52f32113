/* params_part_test.c - who has which elements of each row, under every cut. */
#include "params/params.h"

#include "testing/check.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* 8 layers, 12 heads of 1, a vocabulary that nothing divides. */
static struct run_config layout(int64_t tp, int64_t pp, const char *stages, bool tied)
{
  struct run_config c = {.layers = 8, .heads = 12, .hidden = 12, .positions = 5, .vocab = 131, .tied = tied, .unused = true,
                         .tp = tp, .pp = pp, .chunks = 1};
  strcpy(c.stages, stages);
  return c;
}

static bool ends_with(const char *name, const char *end) { return strcmp(name + strlen(name) - strlen(end), end) == 0; }

/* The tensor rank that has element (r, c) of a row; -1: every one.  By names, not by the table. */
static int tensor_rank_of(const struct run_config *run, const char *name, int64_t r, int64_t c)
{
  const int64_t C = run->hidden, tp = run->tp;
  if (ends_with(name, "attn.c_attn.weight") || ends_with(name, "attn.c_attn.bias")) return (int)(c % C / (C / tp));
  if (ends_with(name, "mlp.c_fc.weight") || ends_with(name, "mlp.c_fc.bias")) return (int)(c / (4 * C / tp));
  if (ends_with(name, "attn.c_proj.weight")) return (int)(r / (C / tp));
  if (ends_with(name, "mlp.c_proj.weight")) return (int)(r / (4 * C / tp));
  if (ends_with(name, "wte.weight") || ends_with(name, "lm_head.weight")) return (int)(r / ((run->vocab + tp - 1) / tp));
  return -1;
}

/* Whether a pipeline rank has the row.  `layers`: of each virtual stage. */
static bool on_stage(const struct run_config *run, const struct param *row, int pp_rank, const int *layers)
{
  if (run->pp == 1) return true;
  if (strstr(row->name, "wte")) return pp_rank == 0 || (run->tied && pp_rank == run->pp - 1);
  if (strstr(row->name, "wpe") || strstr(row->name, "unused")) return pp_rank == 0;
  if (strstr(row->name, "ln_f") || strstr(row->name, "lm_head")) return pp_rank == run->pp - 1;
  int k = 0;
  for (int left = row->layer; left >= layers[k]; k++) left -= layers[k];
  return k % run->pp == pp_rank;
}

/* One row over all ranks: each element is where it must be, and nowhere else. */
static void check_row(const struct run_config *run, const struct param_table *t, int i, const int *layers)
{
  const struct param *row = &t->rows[i];
  const int64_t n = row->rows * row->cols;
  double *full = malloc((size_t)n * sizeof *full), *back = malloc((size_t)n * sizeof *back), *whole = malloc((size_t)n * sizeof *whole);
  int *counted = calloc((size_t)n, sizeof *counted);
  if (!CHECK(full && back && whole && counted)) return;
  for (int64_t k = 0; k < n; k++) {
    full[k] = (double)(k + 1);
    back[k] = -1;
  }
  params_initial(t, i, 7, true, DTYPE_F32, DTYPE_F64, 0, n, whole);
  for (int rank = 0; rank < (int)(run->pp * run->tp); rank++) {
    struct params_place place;
    struct param_part part;
    const int stage = rank / (int)run->tp, tensor = rank % (int)run->tp;
    CHECK_OK(params_place_of(run, stage, tensor, &place));
    params_part(t, i, &place, &part);
    const int64_t size = part.rows * part.cols;
    CHECK(params_here(t, i, &place) == on_stage(run, row, stage, layers) && (size > 0) == params_here(t, i, &place));
    CHECK(size > 0 || (part.rows == 0 && part.cols == 0));
    double *local = malloc((size_t)(size + 1) * sizeof *local), *drawn = malloc((size_t)(size + 1) * sizeof *drawn);
    if (!CHECK(local && drawn)) return;
    for (int64_t k = 0; k <= size; k++) local[k] = drawn[k] = NAN;
    params_take(t, i, &place, DTYPE_F64, full, local);
    params_initial_part(t, i, &place, 7, true, DTYPE_F32, DTYPE_F64, drawn);
    CHECK(isnan(local[size]) && isnan(drawn[size]));

    int64_t mine = 0, last = 0;
    for (int64_t k = 0; k < n; k++) {
      const int owner = tensor_rank_of(run, row->name, k / row->cols, k % row->cols);
      mine += on_stage(run, row, stage, layers) && (owner < 0 || owner == tensor);
    }
    for (int64_t k = 0; k < size; k++) {
      if (local[k] == 0.0) { /* padding, at the end */
        CHECK(strstr(row->name, "wte") || strstr(row->name, "lm_head"));
        CHECK(drawn[k] == 0.0 && !signbit(drawn[k]));
        continue;
      }
      const int64_t at = (int64_t)local[k] - 1;
      const int owner = tensor_rank_of(run, row->name, at / row->cols, at % row->cols);
      CHECK(at >= last && at < n && (owner < 0 || owner == tensor)); /* in the order of the whole */
      CHECK_SAME_BITS(&drawn[k], &whole[at], sizeof(double));
      last = at + 1;
      mine--;
      counted[at] += params_counts(t, i, &place);
    }
    CHECK(mine == 0);
    params_put(t, i, &place, DTYPE_F64, local, back);
    free(local);
    free(drawn);
  }
  CHECK_SAME_BITS(back, full, (size_t)n * sizeof *full);
  for (int64_t k = 0; k < n; k++) CHECK(counted[k] == 1);
  free(full);
  free(back);
  free(whole);
  free(counted);
}

static void check_layout(const struct run_config *run, const int *layers)
{
  struct param_table *t = NULL;
  if (!CHECK_OK(params_create(run, &t))) return;
  for (int i = 0; i < t->n; i++) check_row(run, t, i, layers);
  params_destroy(t);
}

static const int64_t widths[] = {1, 2, 3, 4, 6};

static void every_element_is_on_the_ranks_that_need_it(void)
{
  static const struct { const char *stages; int64_t pp; int layers[8]; } pipelines[] = {
    {"even", 1, {8}}, {"even", 2, {4, 4}}, {"3,5", 2, {3, 5}}, {"even", 4, {2, 2, 2, 2}}, {"1,3,1,3", 4, {1, 3, 1, 3}}};
  for (size_t w = 0; w < sizeof widths / sizeof *widths; w++)
    for (size_t p = 0; p < sizeof pipelines / sizeof *pipelines; p++)
      for (int tied = 0; tied < 2; tied++) {
        const struct run_config run = layout(widths[w], pipelines[p].pp, pipelines[p].stages, tied);
        check_layout(&run, pipelines[p].layers);
      }
}

static void chunks_go_round_the_ranks(void)
{
  struct run_config run = layout(2, 2, "1,2,2,3", true);
  run.chunks = 2;
  check_layout(&run, (int[]){1, 2, 2, 3});
  struct param_table *t = NULL;
  struct params_place place;
  if (!CHECK_OK(params_create(&run, &t)) || !CHECK_OK(params_place_of(&run, 1, 0, &place))) return;
  int here[8];
  for (int l = 0; l < 8; l++) here[l] = params_here(t, 2 + 12 * l, &place);
  CHECK_SAME_BITS(here, ((int[]){0, 1, 1, 0, 0, 1, 1, 1}), sizeof here);
  params_destroy(t);
}

/* A rank has queries, keys and values of its heads side by side. */
static void a_part_of_qkv_is_whole_heads(void)
{
  struct run_config run = layout(2, 1, "even", true);
  struct param_table *t = NULL;
  struct params_place place;
  struct param_part part;
  run.heads = 2;
  run.hidden = 4;
  if (!CHECK_OK(params_create(&run, &t)) || !CHECK_OK(params_place_of(&run, 0, 1, &place))) return;
  const int bias = params_find(t, "transformer.h.0.attn.c_attn.bias");
  const float full[] = {0, 1, 2, 3, 10, 11, 12, 13, 20, 21, 22, 23};
  float local[6];
  params_part(t, bias, &place, &part);
  CHECK(part.rows == 1 && part.cols == 6);
  params_take(t, bias, &place, DTYPE_F32, full, local);
  CHECK_SAME_BITS(local, ((float[]){2, 3, 12, 13, 22, 23}), sizeof local);
  params_destroy(t);
}

static void pieces_of_a_part_are_the_part(void)
{
  const struct run_config run = layout(4, 1, "even", true);
  struct param_table *t = NULL;
  if (!CHECK_OK(params_create(&run, &t))) return;
  for (int i = 0; i < 14; i++)
    for (int rank = 0; rank < 4; rank++) {
      struct params_place place;
      struct param_part part;
      float whole[512], pieces[512];
      CHECK_OK(params_place_of(&run, 0, rank, &place));
      params_part(t, i, &place, &part);
      const int64_t n = part.rows * part.cols;
      if (!CHECK(n <= 512)) return;
      params_initial_part(t, i, &place, 5, true, DTYPE_F32, DTYPE_F32, whole);
      for (int64_t first = 0; first < n; first += 7)
        params_initial_piece(t, i, &place, 5, true, DTYPE_F32, DTYPE_F32, first, first + 7 < n ? 7 : n - first, pieces + first);
      CHECK_SAME_BITS(whole, pieces, (size_t)n * sizeof *whole);
    }
  params_destroy(t);
}

static void a_place_alone_has_all_and_rows_without_an_update_never_count(void)
{
  struct run_config run = layout(1, 1, "even", true);
  struct param_table *t = NULL;
  run.reused = 2;
  strcpy(run.frozen, "ln_2");
  if (!CHECK_OK(params_create(&run, &t))) return;
  int counts = 0;
  for (int i = 0; i < t->n; i++) {
    struct param_part part;
    params_part(t, i, &params_place_alone, &part);
    CHECK(part.rows == t->rows[i].rows && part.cols == t->rows[i].cols);
    CHECK(params_counts(t, i, &params_place_alone) == (t->rows[i].shared_with < 0 && !strstr(t->rows[i].name, "ln_2")));
    counts += params_counts(t, i, &params_place_alone);
  }
  CHECK(counts == 6 * 10 + 5); /* of 12 rows in 6 blocks two are frozen */
  params_destroy(t);
}

static void a_partition_that_cannot_be_is_refused(void)
{
  const struct run_config run = layout(1, 2, "3,4", true);
  struct params_place place;
  CHECK_ERR(params_place_of(&run, 0, 0, &place), ERR_CONFIG);
  CHECK_TEXT_HAS(err_text(), "stages: 3,4");
}

int main(void)
{
  static const struct test tests[] = {
    TEST(every_element_is_on_the_ranks_that_need_it),
    TEST(chunks_go_round_the_ranks),
    TEST(a_part_of_qkv_is_whole_heads),
    TEST(pieces_of_a_part_are_the_part),
    TEST(a_place_alone_has_all_and_rows_without_an_update_never_count),
    TEST(a_partition_that_cannot_be_is_refused),
  };
  return test_main("params_part", tests, sizeof tests / sizeof *tests);
}
