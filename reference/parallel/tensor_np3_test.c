/* tensor_np3_test.c - the edges of tensor parallelism over 3 ranks. */
#include "parallel/tensor_cases.h"
