/* params_io_test.c - what is written reads back; what does not belong is named. */
#include "params/params_io.h"

#include "base/safetensors.h"
#include "base/bf16.h"
#include "testing/check.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct rig {
  struct param_table *table;
  struct flat *flat;
  double *w; /* initial contents, padding 0 */
  char dir[64], path[96];
};

static struct run_config small(void)
{
  struct run_config c = {.layers = 2, .heads = 2, .hidden = 6, .positions = 5, .vocab = 11, .tied = true, .tp = 1};
  return c;
}

static bool rig_open(struct rig *r, const struct run_config *c)
{
  memset(r, 0, sizeof *r);
  strcpy(r->dir, "/tmp/params_io_test.XXXXXX");
  if (!CHECK(mkdtemp(r->dir) != NULL)) return false;
  snprintf(r->path, sizeof r->path, "%s/weights.safetensors", r->dir);
  if (!CHECK_OK(params_create(c, &r->table)) || !CHECK_OK(flat_create(r->table, &params_place_alone, 16, 1, false, 0, &r->flat))) return false;
  r->w = calloc((size_t)r->flat->count, sizeof *r->w);
  if (!CHECK(r->w != NULL)) return false;
  for (int i = 0; i < r->table->n; i++)
    params_initial(r->table, i, 4, true, DTYPE_F64, DTYPE_F64, 0, r->flat->length[i], r->w + r->flat->offset[i]);
  return true;
}

static void rig_close(struct rig *r)
{
  unlink(r->path);
  rmdir(r->dir);
  flat_destroy(r->flat);
  params_destroy(r->table);
  free(r->w);
}

static void what_is_written_reads_back_in_bits(void)
{
  for (int variant = 0; variant < 4; variant++) {
    struct run_config c = small();
    struct rig r;
    c.tied = variant & 1;
    c.unused = variant & 1;
    c.reused = variant / 2;
    if (rig_open(&r, &c)) {
      double *back = calloc((size_t)r.flat->count, sizeof *back);
      const char *meta[] = {"step", "3", NULL};
      CHECK_OK(params_write(r.path, r.table, r.flat, DTYPE_F64, r.w, meta));
      if (CHECK(back != NULL) && CHECK_OK(params_read(r.path, r.table, r.flat, DTYPE_F64, DTYPE_F64, back)))
        CHECK_SAME_BITS(back, r.w, (size_t)r.flat->count * sizeof *back);
      free(back);

      struct safetensors *file = NULL;
      if (CHECK_OK(safetensors_open(r.path, &file))) {
        CHECK(safetensors_count(file) == r.table->n - (int)c.reused * 12);
        const struct safetensor *s = safetensors_find(file, "transformer.h.0.mlp.c_fc.weight");
        CHECK(s != NULL && s->rank == 2 && s->data.rows == 6 && s->data.cols == 24);
        s = safetensors_find(file, "transformer.ln_f.bias");
        CHECK(s != NULL && s->rank == 1 && s->data.cols == 6);
        CHECK((safetensors_find(file, "lm_head.weight") != NULL) == !c.tied);
        CHECK(strcmp(safetensors_meta(file, "step"), "3") == 0);
      }
      safetensors_close(file);
    }
    rig_close(&r);
  }
}

static void weights_are_rounded_as_asked_and_widened(void)
{
  struct run_config c = small();
  struct rig r;
  if (rig_open(&r, &c)) {
    double *wide = calloc((size_t)r.flat->count, sizeof *wide);
    float *narrow = calloc((size_t)r.flat->count, sizeof *narrow);
    CHECK_OK(params_write(r.path, r.table, r.flat, DTYPE_F64, r.w, NULL));
    if (CHECK(wide && narrow) && CHECK_OK(params_read(r.path, r.table, r.flat, DTYPE_F32, DTYPE_F64, wide)) &&
        CHECK_OK(params_read(r.path, r.table, r.flat, DTYPE_F32, DTYPE_F32, narrow))) {
      int rounded = 0;
      for (int64_t i = 0; i < r.flat->count; i++) {
        CHECK(wide[i] == (double)(float)r.w[i] && narrow[i] == (float)r.w[i]);
        rounded += wide[i] != r.w[i];
      }
      CHECK(rounded > 0);
      CHECK_OK(params_write(r.path, r.table, r.flat, DTYPE_F32, narrow, NULL));
      memset(r.w, 0, (size_t)r.flat->count * sizeof *r.w);
      CHECK_OK(params_read(r.path, r.table, r.flat, DTYPE_F64, DTYPE_F64, r.w));
      CHECK_SAME_BITS(r.w, wide, (size_t)r.flat->count * sizeof *wide);
    }
    free(wide);
    free(narrow);
  }
  rig_close(&r);
}

static void bfloat16_is_read_and_widened(void)
{
  struct run_config c = small();
  struct rig r;
  struct safetensor list[64];
  if (rig_open(&r, &c)) {
    const int64_t count = r.flat->count;
    uint16_t *half = calloc((size_t)count, sizeof *half);
    float *back = calloc((size_t)count, sizeof *back);
    int n = 0;
    if (CHECK(half && back)) {
      for (int64_t i = 0; i < count; i++) half[i] = bf16_round_f64(r.w[i]);
      for (int i = 0; i < r.table->n; i++)
        if (r.table->rows[i].shared_with < 0)
          list[n++] = (struct safetensor){r.table->rows[i].name,
                                          tensor_at(half + r.flat->offset[i], DTYPE_BF16, r.table->rows[i].rows, r.table->rows[i].cols),
                                          r.table->rows[i].rank};
      CHECK_OK(safetensors_write(r.path, list, n, NULL));
      CHECK_OK(params_read(r.path, r.table, r.flat, DTYPE_F32, DTYPE_F32, back));
      for (int64_t i = 0; i < count; i++) CHECK(back[i] == bf16_widen(half[i]));
    }
    free(half);
    free(back);
  }
  rig_close(&r);
}

/* All rows of the table as tensors of a file, to be bent. */
static int list_all(const struct rig *r, struct safetensor *list)
{
  int n = 0;
  for (int i = 0; i < r->table->n; i++)
    if (r->table->rows[i].shared_with < 0)
      list[n++] = (struct safetensor){r->table->rows[i].name,
                                      tensor_at(r->w + r->flat->offset[i], DTYPE_F64, r->table->rows[i].rows, r->table->rows[i].cols),
                                      r->table->rows[i].rank};
  return n;
}

static enum err read_back(struct rig *r, const struct safetensor *list, int n, double *back)
{
  CHECK_OK(safetensors_write(r->path, list, n, NULL));
  return params_read(r->path, r->table, r->flat, DTYPE_F64, DTYPE_F64, back);
}

static void files_of_other_writers_are_read(void)
{
  struct run_config c = small();
  struct rig r;
  struct safetensor list[64];
  if (rig_open(&r, &c)) {
    double *back = calloc((size_t)r.flat->count, sizeof *back), mask[25] = {0};
    int n = list_all(&r, list);
    for (int i = 0; i < n; i++) list[i].name += strlen("transformer.");
    list[n++] = (struct safetensor){"h.0.attn.bias", tensor_at(mask, DTYPE_F64, 5, 5), 2};
    list[n++] = (struct safetensor){"h.0.attn.masked_bias", tensor_at(mask, DTYPE_F64, 1, 1), 1};
    list[n++] = (struct safetensor){"lm_head.weight", tensor_at(r.w, DTYPE_F64, 11, 6), 2};
    if (CHECK(back != NULL) && CHECK_OK(read_back(&r, list, n, back)))
      CHECK_SAME_BITS(back, r.w, (size_t)r.flat->count * sizeof *back);

    double other[66];
    memcpy(other, r.w, sizeof other);
    other[65] += 1.0;
    list[n - 1].data.at = other;
    CHECK_ERR(read_back(&r, list, n, back), ERR_CONFIG);
    CHECK_TEXT_HAS(err_text(), "lm_head.weight");
    free(back);
  }
  rig_close(&r);
}

static void what_does_not_belong_is_named(void)
{
  struct run_config c = small();
  struct rig r;
  struct safetensor list[64];
  int32_t whole[6] = {0};
  c.reused = 1;
  if (rig_open(&r, &c)) {
    double *back = calloc((size_t)r.flat->count, sizeof *back);
    const int n = list_all(&r, list);
    CHECK_ERR(read_back(&r, list + 1, n - 1, back), ERR_CONFIG);
    CHECK_TEXT_HAS(err_text(), "'transformer.wte.weight' is missing");

    const struct safetensor last = list[n - 1]; /* ln_f.bias */
    list[n - 1].name = "transformer.ln_f.bais";
    CHECK_ERR(read_back(&r, list, n, back), ERR_CONFIG);
    CHECK_TEXT_HAS(err_text(), "transformer.ln_f.bais");
    CHECK_TEXT_HAS(err_text(), "transformer.ln_f.bias");

    list[n - 1] = last;
    list[n - 1].data.cols = 5;
    CHECK_ERR(read_back(&r, list, n, back), ERR_CONFIG);
    CHECK_TEXT_HAS(err_text(), "transformer.ln_f.bias");
    CHECK_TEXT_HAS(err_text(), "[1, 5]");

    list[n - 1] = last;
    list[n - 1].rank = 2; /* [1, 6] is not [6] */
    CHECK_ERR(read_back(&r, list, n, back), ERR_CONFIG);

    list[n - 1] = last;
    list[n - 1].data = tensor_at(whole, DTYPE_I32, 1, 6);
    CHECK_ERR(read_back(&r, list, n, back), ERR_FORMAT);
    CHECK_TEXT_HAS(err_text(), "transformer.ln_f.bias");
    CHECK_TEXT_HAS(err_text(), "int32");

    list[n - 1] = last;
    list[n] = last;
    list[n].name = "ln_f.bias";
    CHECK_ERR(read_back(&r, list, n + 1, back), ERR_CONFIG);
    CHECK_TEXT_HAS(err_text(), "twice");

    list[n].name = "transformer.h.1.ln_1.bias"; /* block 1 is block 0 */
    CHECK_ERR(read_back(&r, list, n + 1, back), ERR_CONFIG);
    CHECK_TEXT_HAS(err_text(), "shares");

    CHECK_ERR(params_read("/nowhere/at/all", r.table, r.flat, DTYPE_F64, DTYPE_F64, back), ERR_IO);
    CHECK_ERR(params_write("/nowhere/at/all", r.table, r.flat, DTYPE_F64, back, NULL), ERR_IO);
    free(back);
  }
  rig_close(&r);
}

int main(void)
{
  static const struct test tests[] = {
    TEST(what_is_written_reads_back_in_bits),
    TEST(weights_are_rounded_as_asked_and_widened),
    TEST(bfloat16_is_read_and_widened),
    TEST(files_of_other_writers_are_read),
    TEST(what_does_not_belong_is_named),
  };
  return test_main("params_io", tests, sizeof tests / sizeof *tests);
}
