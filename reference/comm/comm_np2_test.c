/* comm_np2_test.c - the contract of collectives on 2 ranks. */
#include "comm/comm_cases.h"
