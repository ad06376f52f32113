/* tensor_np4_test.c - the edges of tensor parallelism over 4 ranks. */
#include "parallel/tensor_cases.h"
