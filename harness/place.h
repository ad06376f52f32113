/* place.h - where things lie: this program, its trainer, the checkout's folders. */
#ifndef HARNESS_PLACE_H
#define HARNESS_PLACE_H
#include "base/err.h"
#include <stddef.h>

/* A folder of the checkout ("suites", "results"): beside the folder of the running
 * program, else where the program was built from.  Fails: ERR_UNAVAILABLE. */
enum err place_source(const char *folder, char *out, size_t bytes);
/* SHARDMARK_TRAINER, else shardmark-train beside the running program.  Fails: ERR_UNAVAILABLE. */
enum err place_trainer(char *out, size_t bytes);
/* SHARDMARK_FRAMEWORKS, else the folder frameworks beside the running program: where other frameworks' Python environments
 * are, if there are any.  Fails: ERR_CONFIG (path too long). */
enum err place_environments(char *out, size_t bytes);
/* Built without MPI, and SHARDMARK_MPIEXEC names no launcher. */
bool place_without_launcher(void);
/* SHARDMARK_MPIEXEC, else the first mpirun or mpiexec of PATH.  Fails: ERR_UNAVAILABLE. */
enum err place_launcher(char *out, size_t bytes);
/* `name` as PATH finds it.  Fails: ERR_UNAVAILABLE. */
enum err place_program(const char *name, char *out, size_t bytes);
/* Every folder of path that is missing.  Fails: ERR_IO. */
enum err place_make(const char *path);
#endif
