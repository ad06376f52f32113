/* zero_np3_test.c - weights by unit over 3 ranks. */
#include "parallel/zero_cases.h"
