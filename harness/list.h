/* list.h - `shardmark list`: what exists, for people and as JSON. */
#ifndef HARNESS_LIST_H
#define HARNESS_LIST_H
#include "base/err.h"

/* what: suites, faults, options, checks, models, or NULL for all of them as text.  markdown: the table of options for README.
 * schema: keys of records, as results/schema.md has them.  Fails: ERR_CONFIG with the valid ones. */
enum list_form { LIST_TEXT, LIST_JSON, LIST_MARKDOWN };
enum err list_print(const char *what, enum list_form form);
/* what: options (README's table) or schema (results/schema.md).  Fails: ERR_CONFIG. */
enum err list_print_markdown(const char *what);
#endif
