/* tensor_np2_test.c - the edges of tensor parallelism over 2 ranks. */
#include "parallel/tensor_cases.h"
