/* ddp_np1_test.c - gradient buckets over 1 rank. */
#include "parallel/ddp_cases.h"
