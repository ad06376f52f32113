/* collect_np1_test.c - parts of a model over 1 rank. */
#include "parallel/collect_cases.h"
