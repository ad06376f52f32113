/* comm_np4_test.c - the contract of collectives on 4 ranks. */
#include "comm/comm_cases.h"
