/* collect_np2_test.c - parts of a model over 2 ranks. */
#include "parallel/collect_cases.h"
