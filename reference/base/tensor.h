/* tensor.h - a view of a matrix: where it is, what it holds, its shape.
 *
 * A view owns nothing.  It is copied when an operation is queued; the memory it
 * points to must live until the stream has got there.  Row r, column c stands at
 * element r * stride + c; stride >= cols.  A vector is one row.
 */
#ifndef BASE_TENSOR_H
#define BASE_TENSOR_H

#include "base/err.h"

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum dtype { DTYPE_F64, DTYPE_F32, DTYPE_BF16, DTYPE_F16, DTYPE_I32, DTYPE_U8, DTYPE_I64, DTYPE_COUNT };

size_t dtype_bytes(enum dtype type);
const char *dtype_name(enum dtype type);               /* "float64", ...        */
const char *dtype_safetensors(enum dtype type);        /* "F64", "BF16", ...    */
enum err dtype_parse(const char *name, enum dtype *out); /* either spelling      */

struct tensor {
  void *at;
  enum dtype type;
  int64_t rows, cols, stride;
};

/* A contiguous view. */
static inline struct tensor tensor_at(void *at, enum dtype type, int64_t rows, int64_t cols)
{
  struct tensor t = {at, type, rows, cols, cols};
  return t;
}
static inline int64_t tensor_count(const struct tensor *t) { return t->rows * t->cols; }
static inline bool tensor_contiguous(const struct tensor *t) { return t->stride == t->cols || t->rows <= 1; }
static inline char *tensor_row(const struct tensor *t, int64_t row)
{
  return (char *)t->at + (size_t)(row * t->stride) * dtype_bytes(t->type);
}
/* Rows [first, first + rows) and columns [col, col + cols) of t, as a view. */
struct tensor tensor_part(const struct tensor *t, int64_t first, int64_t rows, int64_t col, int64_t cols);

/* ERR_ARG naming the tensor and both shapes unless t is [rows, cols]; a dimension
 * of -1 is not looked at.  tensor_expect_type does the same for the type. */
enum err tensor_expect(const char *name, const struct tensor *t, int64_t rows, int64_t cols);
enum err tensor_expect_type(const char *name, const struct tensor *t, enum dtype type);

#ifdef __cplusplus
}
#endif
#endif
