/* tensor.c - element types and the checks of a view's shape. */
#include "base/tensor.h"

#include <inttypes.h>
#include <string.h>

static const struct {
  const char *name, *safetensors;
  size_t bytes;
} types[DTYPE_COUNT] = {
  [DTYPE_F64] = {"float64", "F64", 8},  [DTYPE_F32] = {"float32", "F32", 4},
  [DTYPE_BF16] = {"bfloat16", "BF16", 2}, [DTYPE_F16] = {"float16", "F16", 2},
  [DTYPE_I32] = {"int32", "I32", 4},    [DTYPE_U8] = {"uint8", "U8", 1},
  [DTYPE_I64] = {"int64", "I64", 8},
};

size_t dtype_bytes(enum dtype type) { return types[type].bytes; }
const char *dtype_name(enum dtype type) { return types[type].name; }
const char *dtype_safetensors(enum dtype type) { return types[type].safetensors; }

enum err dtype_parse(const char *name, enum dtype *out)
{
  for (int i = 0; i < DTYPE_COUNT; i++)
    if (strcmp(name, types[i].name) == 0 || strcmp(name, types[i].safetensors) == 0) {
      *out = (enum dtype)i;
      return ERR_OK;
    }
  FAIL(ERR_FORMAT, "element type '%s'; valid: float64, float32, bfloat16, float16, int64, int32, uint8", name);
}

struct tensor tensor_part(const struct tensor *t, int64_t first, int64_t rows, int64_t col, int64_t cols)
{
  BUG_IF(first < 0 || rows < 0 || first + rows > t->rows || col < 0 || cols < 0 || col + cols > t->cols);
  struct tensor part = *t;
  part.at = tensor_row(t, first) + (size_t)col * dtype_bytes(t->type);
  part.rows = rows;
  part.cols = cols;
  return part;
}

enum err tensor_expect(const char *name, const struct tensor *t, int64_t rows, int64_t cols)
{
  if ((rows >= 0 && t->rows != rows) || (cols >= 0 && t->cols != cols))
    FAIL(ERR_ARG, "%s is [%" PRId64 ", %" PRId64 "], expected [%" PRId64 ", %" PRId64 "]", name, t->rows, t->cols,
         rows, cols);
  if (t->stride < t->cols) FAIL(ERR_ARG, "%s has stride %" PRId64 " below its %" PRId64 " columns", name, t->stride, t->cols);
  return ERR_OK;
}

enum err tensor_expect_type(const char *name, const struct tensor *t, enum dtype type)
{
  if (t->type != type) FAIL(ERR_ARG, "%s is %s, expected %s", name, dtype_name(t->type), dtype_name(type));
  return ERR_OK;
}
