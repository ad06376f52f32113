/* collect_np4_test.c - parts of a model over 4 ranks. */
#include "parallel/collect_cases.h"
