/* staging_np2_test.c - staged gradients over 2 ranks. */
#include "parallel/staging_cases.h"
