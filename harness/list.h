/* list.h - `shardmark list`: what exists, for people and as JSON. */
#ifndef HARNESS_LIST_H
#define HARNESS_LIST_H
#include "base/err.h"

/* what: suites, faults, options, checks, models, or NULL for all of them as text.  Fails: ERR_CONFIG with the valid ones. */
enum err list_print(const char *what, bool json);
#endif
