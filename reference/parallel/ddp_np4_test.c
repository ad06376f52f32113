/* ddp_np4_test.c - gradient buckets over 4 ranks. */
#include "parallel/ddp_cases.h"
