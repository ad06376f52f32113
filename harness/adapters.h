/* adapters.h - what a case of kind `frameworks` names: a program and a Python environment.
 *
 * Programs are ADAPTER.py in the folder `frameworks` beside the suite file; ENV.txt there lists what an environment holds,
 * with its versions, and `ci/frameworks ENV` makes it (build/frameworks/ENV).  How a program is called and what it writes:
 * frameworks.h.
 */
#ifndef HARNESS_ADAPTERS_H
#define HARNESS_ADAPTERS_H

#include "harness/suite.h"

/* What every row trains unless it says otherwise: what `shardmark export` does, on one rank. */
void adapters_default(struct run_config *c);
/* In a suite of kind frameworks: both are known, precision and cause are valid, no checks are named (what a run is judged
 * by is what it wrote), and all other keys are a case's (export.h) or an adapter's; in any other: none of these keys is
 * given.  Fails: ERR_CONFIG "file:line:column: ...". */
enum err adapters_check(const struct suite *s, const struct suite_case *c);
/* The program's path.  Fails: ERR_CONFIG. */
enum err adapters_program(const struct suite *s, const struct suite_case *c, char *out, size_t bytes);
/* The environment's Python.  Fails: ERR_UNAVAILABLE, with the command that makes it. */
enum err adapters_python(const struct suite_case *c, char *out, size_t bytes);

#endif
