/* staging_np3_test.c - staged gradients over 3 ranks. */
#include "parallel/staging_cases.h"
