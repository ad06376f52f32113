/* comm_np1_test.c - the contract of collectives on 1 rank. */
#include "comm/comm_cases.h"
