/* tensor_test.c - views show the elements they say, and wrong shapes are named. */
#include "base/tensor.h"
#include "testing/check.h"

#include <string.h>

static void a_part_shows_the_same_elements(void)
{
  float at[5][8];
  for (int r = 0; r < 5; r++)
    for (int c = 0; c < 8; c++) at[r][c] = (float)(10 * r + c);
  const struct tensor whole = {at, DTYPE_F32, 5, 6, 8};
  CHECK(tensor_count(&whole) == 30 && !tensor_contiguous(&whole));
  const struct tensor part = tensor_part(&whole, 2, 3, 1, 4), again = tensor_part(&part, 1, 1, 2, 2);
  CHECK(part.rows == 3 && part.cols == 4 && part.stride == 8 && part.type == DTYPE_F32);
  CHECK(*(float *)tensor_row(&part, 1) == 31);
  CHECK(((float *)again.at)[0] == 33 && ((float *)again.at)[1] == 34);
  CHECK(tensor_contiguous(&again)); /* one row has no gap */
  const struct tensor nothing = tensor_part(&whole, 5, 0, 6, 0);
  CHECK(tensor_count(&nothing) == 0);
}

static void rows_past_2_31_elements_are_found(void)
{
  const struct tensor t = tensor_at((void *)16, DTYPE_F32, 3, (int64_t)1 << 31);
  CHECK((uintptr_t)tensor_row(&t, 2) == 16 + ((uintptr_t)1 << 34));
}

static void wrong_shapes_and_types_are_named(void)
{
  float at[6];
  struct tensor t = tensor_at(at, DTYPE_F32, 2, 3);
  CHECK_OK(tensor_expect("x", &t, 2, 3));
  CHECK_OK(tensor_expect("x", &t, -1, 3));
  CHECK_OK(tensor_expect("x", &t, 2, -1));
  CHECK_ERR(tensor_expect("x", &t, 3, 2), ERR_ARG);
  CHECK_TEXT_HAS(err_text(), "x is [2, 3], expected [3, 2]");
  CHECK_ERR(tensor_expect("x", &t, 2, 4), ERR_ARG);
  t.stride = 2;
  CHECK_ERR(tensor_expect("x", &t, 2, 3), ERR_ARG);
  CHECK_TEXT_HAS(err_text(), "stride 2");
  CHECK_OK(tensor_expect_type("x", &t, DTYPE_F32));
  CHECK_ERR(tensor_expect_type("x", &t, DTYPE_F64), ERR_ARG);
  CHECK_TEXT_HAS(err_text(), "x is float32, expected float64");
}

static void both_spellings_of_a_type_are_read(void)
{
  static const size_t bytes[] = {[DTYPE_F64] = 8, [DTYPE_F32] = 4, [DTYPE_BF16] = 2, [DTYPE_F16] = 2,
                                 [DTYPE_I32] = 4, [DTYPE_U8] = 1,  [DTYPE_I64] = 8};
  for (int i = 0; i < DTYPE_COUNT; i++) {
    enum dtype found = DTYPE_COUNT;
    CHECK_OK(dtype_parse(dtype_name((enum dtype)i), &found));
    CHECK((int)found == i);
    found = DTYPE_COUNT;
    CHECK_OK(dtype_parse(dtype_safetensors((enum dtype)i), &found));
    CHECK((int)found == i && dtype_bytes((enum dtype)i) == bytes[i]);
  }
  enum dtype found = DTYPE_U8;
  CHECK_ERR(dtype_parse("float8", &found), ERR_FORMAT);
  CHECK(found == DTYPE_U8);
  CHECK_TEXT_HAS(err_text(), "'float8'; valid: float64, float32");
}

int main(void)
{
  static const struct test tests[] = {
    TEST(a_part_shows_the_same_elements),
    TEST(rows_past_2_31_elements_are_found),
    TEST(wrong_shapes_and_types_are_named),
    TEST(both_spellings_of_a_type_are_read),
  };
  return test_main("tensor", tests, sizeof tests / sizeof *tests);
}
