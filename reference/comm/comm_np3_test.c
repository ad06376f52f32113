/* comm_np3_test.c - the contract of collectives on 3 ranks. */
#include "comm/comm_cases.h"
