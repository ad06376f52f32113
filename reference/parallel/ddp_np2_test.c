/* ddp_np2_test.c - gradient buckets over 2 ranks. */
#include "parallel/ddp_cases.h"
