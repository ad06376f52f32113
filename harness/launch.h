/* launch.h - the command that starts K ranks of a trainer, for either MPI.
 *
 * Pure: a world and a wish become a list of words and of environment settings; job.c
 * executes it.  A launcher that is neither Open MPI nor MPICH is asked in MPICH's way,
 * which the MPI standard proposes (-n).
 */
#ifndef HARNESS_LAUNCH_H
#define HARNESS_LAUNCH_H

#include "base/err.h"

/* ALONE: built without MPI and no launcher is named, so the trainer is started as it is, as one rank. */
enum launch_mpi { LAUNCH_OPENMPI, LAUNCH_MPICH, LAUNCH_OTHER, LAUNCH_ALONE };
enum { LAUNCH_PATH = 4096, LAUNCH_CORES = 1024, LAUNCH_HOSTS = 1024 };

/* A host file: `name`, `name:n` or `name slots=n` a line; 1 slot where none is told. */
struct launch_hosts {
  int n, total; /* hosts, slots of all */
  int slots[LAUNCH_HOSTS];
  char names[LAUNCH_HOSTS][256];
};
/* Fails: ERR_CONFIG path:line. */
enum err launch_hosts_read(const char *path, struct launch_hosts *out);
/* Where the launcher puts a rank: hosts in the file's order, each filled before the next. */
int launch_host_of(const struct launch_hosts *h, int rank);

/* What there is. */
struct launch_world {
  char launcher[LAUNCH_PATH], trainer[LAUNCH_PATH], version[128];
  enum launch_mpi mpi;
  bool root;
  int cores;             /* that this process may use                        */
  int core[LAUNCH_CORES]; /* their numbers                                    */
  char hosts[LAUNCH_PATH]; /* a host file, "" = this machine alone            */
  struct launch_hosts on;  /* what it names; n 0 without one                   */
  int slots;             /* ranks that the host file offers; else `cores`     */
  char cluster[LAUNCH_PATH]; /* program that emulates two hosts of one slot each; "" = not looked for */
};
/* Looks at this machine; hosts NULL: none.  Fails: ERR_UNAVAILABLE (no launcher or trainer), ERR_CONFIG (host file). */
enum err launch_look(const char *hosts, struct launch_world *out);
/* Can ranks stand on so many hosts: by the host file, or, without one, on two that ci/cluster emulates (then it is
 * looked for and tried, and *w knows it)?  Fails: ERR_UNAVAILABLE with the reason. */
enum err launch_check_hosts(struct launch_world *w, int hosts, int ranks);
/* May so many ranks be started at all?  Fails: ERR_UNAVAILABLE for more than one without MPI. */
enum err launch_check(const struct launch_world *w, int ranks);
/* From the first lines of `launcher --version`. */
enum launch_mpi launch_which(const char *text);

/* What is wanted. */
struct launch_wish {
  int ranks;
  int cores_each;  /* > 0: every rank gets its own so many cores, none shared; 0: not bound */
  int hosts;       /* > 1: the ranks stand on so many, as many on each; else wherever the launcher puts them */
  int first_core;  /* with ranks == 1 and cores_each > 0: index into world.core; else 0     */
  const char *const *program;  /* words of a foreign program in place of world.trainer, ended by NULL; NULL: the trainer */
  const char *const *settings; /* KEY=VALUE more for it, ended by NULL, unless a person set KEY; NULL: none          */
  const char *const *files; /* run files, in order */
  int n_files;
};

/* Words and KEY=VALUE settings, each list ended by NULL. */
struct launch_command {
  char **words, **settings;
  int n_words, n_settings;
};
/* Owner of *out's lists: the caller, until launch_free().  Fails: ERR_CONFIG when the ranks do not
 * fit (host file's slots; bound ranks beyond the cores), with the numbers; ERR_UNAVAILABLE as launch_check(); ERR_MEMORY. */
enum err launch_make(const struct launch_world *w, const struct launch_wish *wish, struct launch_command *out);
void launch_free(struct launch_command *c);

#endif
