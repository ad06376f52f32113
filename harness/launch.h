/* launch.h - the command that starts K ranks of a trainer, for either MPI.
 *
 * Pure: a world and a wish become a list of words and of environment settings; job.c
 * executes it.  A launcher that is neither Open MPI nor MPICH is asked in MPICH's way,
 * which the MPI standard proposes (-n).
 */
#ifndef HARNESS_LAUNCH_H
#define HARNESS_LAUNCH_H

#include "base/err.h"

enum launch_mpi { LAUNCH_OPENMPI, LAUNCH_MPICH, LAUNCH_OTHER };
enum { LAUNCH_PATH = 4096, LAUNCH_CORES = 1024 };

/* What there is. */
struct launch_world {
  char launcher[LAUNCH_PATH], trainer[LAUNCH_PATH], version[128];
  enum launch_mpi mpi;
  bool root;
  int cores;             /* that this process may use                        */
  int core[LAUNCH_CORES]; /* their numbers                                    */
  char hosts[LAUNCH_PATH]; /* a host file, "" = this machine alone            */
  int slots;             /* ranks that the host file offers; else `cores`     */
};
/* Looks at this machine; hosts NULL: none.  Fails: ERR_UNAVAILABLE (no launcher or trainer), ERR_CONFIG (host file). */
enum err launch_look(const char *hosts, struct launch_world *out);
/* From the first lines of `launcher --version`. */
enum launch_mpi launch_which(const char *text);
/* Ranks that a host file offers: `slots=` or `:n`, else 1 a line.  Fails: ERR_CONFIG path:line. */
enum err launch_host_slots(const char *path, int *out);

/* What is wanted. */
struct launch_wish {
  int ranks;
  int cores_each;  /* > 0: every rank gets its own so many cores, none shared; 0: not bound */
  int first_core;  /* with ranks == 1 and cores_each > 0: index into world.core; else 0     */
  const char *const *files; /* run files, in order */
  int n_files;
};

/* Words and KEY=VALUE settings, each list ended by NULL. */
struct launch_command {
  char **words, **settings;
  int n_words, n_settings;
};
/* Owner of *out's lists: the caller, until launch_free().  Fails: ERR_CONFIG when the ranks do not
 * fit (host file's slots; bound ranks beyond the cores), with the numbers; ERR_MEMORY. */
enum err launch_make(const struct launch_world *w, const struct launch_wish *wish, struct launch_command *out);
void launch_free(struct launch_command *c);

#endif
