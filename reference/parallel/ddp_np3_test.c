/* ddp_np3_test.c - gradient buckets over 3 ranks. */
#include "parallel/ddp_cases.h"
