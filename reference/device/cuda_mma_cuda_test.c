/* cuda_mma_cuda_test.c - each instruction of cuda_mma.cuh gives each lane what its header says, on a GPU and
 * in the host build alike. */
#include "device/cuda_mma_testing.h"
#include "device/dev_testing.h"

#include "base/bf16.h"
#include "base/f16.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static struct lanes_out *run(const struct lanes_in *in)
{
  static const struct dev_kernel kernel = {.name = "lanes", .cuda = lanes_cuda};
  struct dev *d = open_kind(DEV_CUDA);
  struct dev_stream *s = stream(d, "compute", DEV_COMPUTE);
  struct lanes_out *out = malloc(sizeof *out);
  void *there_in = NULL, *there_out = NULL;
  CHECK_OK(dev_alloc(d, sizeof *in, DEV_OTHER, "in", &there_in));
  CHECK_OK(dev_alloc(d, sizeof *out, DEV_OTHER, "out", &there_out));
  CHECK_OK(dev_copy_in(s, there_in, in, sizeof *in));
  const struct lanes_args args = {there_in, there_out};
  CHECK_OK(dev_submit(s, &kernel, &args, sizeof args, NULL, 0));
  CHECK_OK(dev_copy_out(s, out, there_out, sizeof *out));
  CHECK_OK(dev_sync(d));
  dev_close(d);
  return out;
}

/* Small whole numbers, all products and sums exact; no two rows or columns alike. */
static float left_at(int row, int k) { return (float)((row * 7 + k * 3) % 23 - 11); }
static float right_at(int k, int col) { return (float)((k * 5 + col * 11) % 19 - 9); }
static uint32_t pair(float low, float high) { return bf16_round(low) | (uint32_t)bf16_round(high) << 16; }
static uint32_t pair16(float low, float high) { return f16_round(low) | (uint32_t)f16_round(high) << 16; }

static struct lanes_in some_lanes(void)
{
  struct lanes_in in;
  memset(&in, 0, sizeof in);
  for (int lane = 0; lane < 32; lane++) {
    const int g = lane / 4, t = lane % 4;
    for (int i = 0; i < 4; i++) {
      const int row = g + i % 2 * 8, k = 2 * t + i / 2 * 8;
      in.a[lane][i] = pair(left_at(row, k), left_at(row, k + 1));
      in.a16[lane][i] = pair16(left_at(row, k), left_at(row, k + 1));
      in.d[lane][i] = (float)(1000 * (g + i / 2 * 8) + 2 * t + i % 2);
    }
    for (int i = 0; i < 2; i++) {
      in.b[lane][i] = pair(right_at(2 * t + 8 * i, g), right_at(2 * t + 8 * i + 1, g));
      in.b16[lane][i] = pair16(right_at(2 * t + 8 * i, g), right_at(2 * t + 8 * i + 1, g));
    }
    for (int i = 0; i < 8; i++) in.rows[lane][i] = (uint16_t)(lane * 8 + i + 1);
    for (int c = 0; c < 3; c++) in.valid[c][lane] = 16;
  }
  return in;
}

static void a_product_of_fragments_is_the_product_of_matrices(void)
{
  const struct lanes_in in = some_lanes();
  struct lanes_out *out = run(&in);
  for (int row = 0; row < 16; row++)
    for (int col = 0; col < 8; col++) {
      float want = (float)(1000 * row + col);
      for (int k = 0; k < 16; k++) want += 2 * left_at(row, k) * right_at(k, col);
      CHECK_NEAR(out->d[row % 8 * 4 + col / 2][row / 8 * 2 + col % 2], want, 0);
      CHECK_NEAR(out->d16[row % 8 * 4 + col / 2][row / 8 * 2 + col % 2], want, 0);
    }
  free(out);
}

static void lanes_get_their_words_of_four_matrices(void)
{
  const struct lanes_in in = some_lanes();
  struct lanes_out *out = run(&in);
  for (int lane = 0; lane < 32; lane++)
    for (int m = 0; m < 4; m++) {
      const int g = lane / 4, t = lane % 4;
      const uint16_t(*matrix)[8] = in.rows + 8 * m;
      CHECK(out->plain[lane][m] == (matrix[g][2 * t] | (uint32_t)matrix[g][2 * t + 1] << 16));
      CHECK(out->trans[lane][m] == (matrix[2 * t][g] | (uint32_t)matrix[2 * t + 1][g] << 16));
    }
  free(out);
}

static void a_copy_takes_what_is_valid_and_zeros(void)
{
  struct lanes_in in = some_lanes();
  for (int c = 0; c < 3; c++)
    for (int lane = 0; lane < 32; lane++) in.valid[c][lane] = 2 * ((lane + 3 * c) % 9);
  struct lanes_out *out = run(&in);
  for (int c = 0; c < 3; c++)
    for (int lane = 0; lane < 32; lane++)
      for (int i = 0; i < 8; i++) CHECK(out->copied[c][lane][i] == (2 * i < in.valid[c][lane] ? in.rows[lane][i] : 0));
  free(out);
}

static void pairs_are_rounded_and_the_first_is_low(void)
{
  struct lanes_in in = some_lanes();
  for (int lane = 0; lane < 32; lane++) {
    in.x[lane][0] = 1.0f + (float)lane * 0x1p-9f + (float)lane * 0x1p-11f; /* of ties every second goes up */
    in.x[lane][1] = lane < 16 ? -3.0f - (float)lane * 0x1p-10f : ldexpf(-1.5f, 6 - lane); /* down to f16's least and to 0 */
  }
  struct lanes_out *out = run(&in);
  for (int lane = 0; lane < 32; lane++) {
    CHECK(out->pair[lane] == pair(in.x[lane][0], in.x[lane][1]));
    CHECK(out->pair16[lane] == pair16(in.x[lane][0], in.x[lane][1]));
  }
  free(out);
}

static void powers_of_two_are_near_and_small_ones_are_zero(void)
{
  struct lanes_in in = some_lanes();
  for (int lane = 0; lane < 30; lane++) in.x[lane][0] = 3.0f - (float)lane * 4.21f;
  in.x[30][0] = -INFINITY;
  in.x[31][0] = -127.5f;
  struct lanes_out *out = run(&in);
  for (int lane = 0; lane < 30; lane++) CHECK_NEAR(out->exp2[lane] / exp2((double)in.x[lane][0]), 1, 0x1p-22);
  CHECK(out->exp2[30] == 0 && out->exp2[31] == 0);
  free(out);
}

int main(void)
{
  static const struct test tests[] = {
      TEST(a_product_of_fragments_is_the_product_of_matrices),
      TEST(lanes_get_their_words_of_four_matrices),
      TEST(a_copy_takes_what_is_valid_and_zeros),
      TEST(pairs_are_rounded_and_the_first_is_low),
      TEST(powers_of_two_are_near_and_small_ones_are_zero),
  };
  return test_main("cuda_mma", tests, sizeof tests / sizeof *tests);
}
