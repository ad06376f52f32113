/* zero_np2_test.c - weights by unit over 2 ranks. */
#include "parallel/zero_cases.h"
