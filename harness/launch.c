/* launch.c - words for mpirun.  What each option is for stands beside it. */
#include "harness/launch.h"
#include "harness/place.h"

#include <errno.h>
#include <sched.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

enum launch_mpi launch_which(const char *text)
{
  if (strcasestr(text, "open mpi") || strcasestr(text, "open-rte") || strcasestr(text, "prrte")) return LAUNCH_OPENMPI;
  if (strcasestr(text, "hydra") || strcasestr(text, "mpich")) return LAUNCH_MPICH;
  return LAUNCH_OTHER;
}

/* One line of a host file: `name`, `name:n` or `name slots=n`.  *slots 0: it names no host. */
static enum err read_host(const char *path, int number, char *line, char host[256], int *slots)
{
  *slots = 0;
  line[strcspn(line, "#\r\n")] = '\0';
  if (sscanf(line, "%255s", host) != 1) return ERR_OK;
  char *colon = strchr(host, ':');
  const char *key = strstr(line, "slots="), *text = key ? key + 6 : colon ? colon + 1 : "1";
  char *end;
  errno = 0;
  const long n = strtol(text, &end, 10);
  if (end == text || (*end && !strchr(" \t", *end)) || errno || n < 1 || n > 1000000)
    FAIL(ERR_CONFIG, "host file %s:%d: '%s' is no number of slots; valid: 1..1000000", path, number, text);
  if (colon) *colon = '\0';
  *slots = (int)n;
  return ERR_OK;
}

enum err launch_hosts_read(const char *path, struct launch_hosts *out)
{
  enum err err = ERR_OK;
  char line[1024], host[256];
  FILE *f = fopen(path, "r");
  if (f == NULL) FAIL(ERR_CONFIG, "host file %s: %s", path, strerror(errno));
  struct launch_hosts *h = out;
  *h = (struct launch_hosts){0};
  for (int number = 1, slots; fgets(line, sizeof line, f); number++) {
    TRY_TO(close, read_host(path, number, line, host, &slots));
    if (slots == 0) continue;
    int i = 0;
    while (i < h->n && strcmp(h->names[i], host) != 0) i++; /* named again: more slots of it */
    if (i == LAUNCH_HOSTS) FAIL_TO(close, ERR_CONFIG, "host file %s names more than %d hosts", path, LAUNCH_HOSTS);
    if (i == h->n) memcpy(h->names[h->n++], host, sizeof host);
    h->slots[i] += slots;
    h->total += slots;
  }
  if (h->n == 0) FAIL_TO(close, ERR_CONFIG, "host file %s names no host", path);
close:
  fclose(f);
  return err;
}

int launch_host_of(const struct launch_hosts *h, int rank)
{
  int i = 0;
  for (; i + 1 < h->n && rank >= h->slots[i]; i++) rank -= h->slots[i];
  return i;
}

static void read_version(struct launch_world *w)
{
  char command[LAUNCH_PATH + 64], text[4096];
  snprintf(command, sizeof command, "'%s' --version 2>/dev/null </dev/null", w->launcher);
  FILE *f = popen(command, "r");
  if (f == NULL) return;
  const size_t n = fread(text, 1, sizeof text - 1, f);
  pclose(f);
  text[n] = '\0';
  w->mpi = launch_which(text);
  const char *line = w->mpi == LAUNCH_MPICH && strstr(text, "Version:") ? strstr(text, "Version:") : text;
  if (w->mpi == LAUNCH_MPICH) {
    char number[64] = "";
    sscanf(line, "Version: %63s", number);
    snprintf(w->version, sizeof w->version, "MPICH (Hydra) %s", number);
  } else {
    snprintf(w->version, sizeof w->version, "%.*s", (int)strcspn(line, "\n"), line);
  }
}

enum err launch_look(const char *hosts, struct launch_world *out)
{
  struct launch_world w = {.mpi = LAUNCH_OTHER, .root = geteuid() == 0};
  TRY(place_trainer(w.trainer, sizeof w.trainer));
  if (place_without_launcher()) {
    w.mpi = LAUNCH_ALONE;
    snprintf(w.version, sizeof w.version, "none (built without MPI)");
  } else {
    TRY(place_launcher(w.launcher, sizeof w.launcher));
    read_version(&w);
  }
  cpu_set_t set;
  if (sched_getaffinity(0, sizeof set, &set) != 0) FAIL(ERR_UNAVAILABLE, "sched_getaffinity: %s", strerror(errno));
  for (int c = 0; c < CPU_SETSIZE && w.cores < LAUNCH_CORES; c++)
    if (CPU_ISSET(c, &set)) w.core[w.cores++] = c;
  w.slots = w.cores;
  if (hosts && *hosts) {
    TRY(launch_hosts_read(hosts, &w.on));
    w.slots = w.on.total;
    snprintf(w.hosts, sizeof w.hosts, "%s", hosts);
  }
  *out = w;
  return ERR_OK;
}

/* --- lists of words ------------------------------------------------------------ */

static enum err add(char ***list, int *n, const char *format, ...) __attribute__((format(printf, 3, 4)));
static enum err add(char ***list, int *n, const char *format, ...)
{
  char **more = realloc(*list, (size_t)(*n + 2) * sizeof *more);
  if (more == NULL) FAIL(ERR_MEMORY, "%d words of a command", *n + 2);
  *list = more;
  more[*n] = more[*n + 1] = NULL;
  va_list a;
  va_start(a, format);
  const int wrote = vasprintf(&more[*n], format, a);
  va_end(a);
  if (wrote < 0) {
    more[*n] = NULL;
    FAIL(ERR_MEMORY, "a word of a command");
  }
  ++*n;
  return ERR_OK;
}
#define WORD(...) TRY(add(&c->words, &c->n_words, __VA_ARGS__))
#define SETTING(...) TRY(add(&c->settings, &c->n_settings, __VA_ARGS__))

static enum err words_openmpi(const struct launch_world *w, const struct launch_wish *wish, struct launch_command *c)
{
  if (w->root) { /* containers and CI run as root; Open MPI refuses unless told twice */
    SETTING("OMPI_ALLOW_RUN_AS_ROOT=1");
    SETTING("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1");
  }
  const bool emulated = wish->hosts > 1 && !w->hosts[0];
  if (emulated) {
    WORD("%s", w->cluster);
    WORD("run");
  }
  WORD("%s", w->launcher);
  WORD("-np");
  WORD("%d", wish->ranks);
  if (w->hosts[0]) {
    WORD("--hostfile");
    WORD("%s", w->hosts);
  } else if (!emulated) { /* one machine: no TCP to set up, and no ptrace right needed for single copies */
    SETTING("OMPI_MCA_btl=self,vader");
    SETTING("OMPI_MCA_btl_vader_single_copy_mechanism=none");
    /* Without them, fragments of 32 KiB, few at a time: an all-reduce of 16 MiB beside busy compute, whose
     * poller looks once in a while, took 400 ms; with larger ones 35. */
    SETTING("OMPI_MCA_btl_vader_max_send_size=262144");
    if (wish->ranks > w->cores) {
      WORD("--oversubscribe");
      SETTING("OMPI_MCA_mpi_yield_when_idle=1");
    }
  }
  if (wish->cores_each > 0 && wish->ranks > 1 && !emulated) { /* an emulated host has processors of its own */
    WORD("--map-by");
    if (wish->hosts > 1) WORD("ppr:%d:node:PE=%d", wish->ranks / wish->hosts, wish->cores_each);
    else WORD("slot:PE=%d", wish->cores_each);
    WORD("--bind-to");
    WORD("core");
  } else {
    WORD("--bind-to");
    WORD("none");
  }
  return ERR_OK;
}

static enum err words_other(const struct launch_world *w, const struct launch_wish *wish, struct launch_command *c)
{
  WORD("%s", w->launcher);
  WORD("-n");
  WORD("%d", wish->ranks);
  if (w->hosts[0]) {
    WORD("-f");
    WORD("%s", w->hosts);
  }
  if (w->mpi == LAUNCH_MPICH && wish->hosts > 1) {
    WORD("-ppn");
    WORD("%d", wish->ranks / wish->hosts);
  }
  if (w->mpi == LAUNCH_MPICH) {
    WORD("-bind-to");
    if (wish->cores_each > 0 && wish->ranks > 1) WORD("core:%d", wish->cores_each);
    else WORD("none");
  }
  return ERR_OK;
}

/* "" if it can; else why not, in one line. */
static void try_cluster(const char *program, char *why, size_t bytes)
{
  char command[LAUNCH_PATH + 64];
  why[0] = '\0';
  snprintf(command, sizeof command, "'%s' check 2>&1 </dev/null", program);
  FILE *f = popen(command, "r");
  if (f == NULL || fgets(why, (int)bytes, f) == NULL) why[0] = '\0';
  for (char rest[256]; f && fgets(rest, sizeof rest, f);) continue; /* it ends when it has said all */
  const int status = f ? pclose(f) : -1;
  why[strcspn(why, "\n")] = '\0';
  if (status == 0) why[0] = '\0';
  else if (why[0] == '\0') snprintf(why, bytes, "%s check failed", program);
}

enum err launch_check_hosts(struct launch_world *w, int hosts, int ranks)
{
  char folder[LAUNCH_PATH - 16], why[256];
  if (hosts <= 1) return ERR_OK;
  if (ranks % hosts != 0) FAIL(ERR_UNAVAILABLE, "%d ranks do not share %d hosts evenly", ranks, hosts);
  if (w->hosts[0] && w->on.n != hosts) FAIL(ERR_UNAVAILABLE, "needs %d hosts, host file %s names %d", hosts, w->hosts, w->on.n);
  if (w->hosts[0] || w->cluster[0]) return ERR_OK;
  if (w->mpi != LAUNCH_OPENMPI) FAIL(ERR_UNAVAILABLE, "needs %d hosts (--hosts); ci/cluster emulates two for Open MPI only", hosts);
  if (hosts != 2 || ranks != 2) FAIL(ERR_UNAVAILABLE, "needs %d hosts for %d ranks (--hosts); ci/cluster emulates two for two", hosts, ranks);
  TRY(place_source("ci", folder, sizeof folder));
  char program[LAUNCH_PATH];
  snprintf(program, sizeof program, "%s/cluster", folder);
  try_cluster(program, why, sizeof why);
  if (*why) FAIL(ERR_UNAVAILABLE, "needs two hosts, which cannot be emulated here: %s", why);
  memcpy(w->cluster, program, sizeof w->cluster);
  return ERR_OK;
}

enum err launch_check(const struct launch_world *w, int ranks)
{
  if (w->mpi == LAUNCH_ALONE && ranks > 1)
    FAIL(ERR_UNAVAILABLE, "%d ranks: this program was built without MPI (SHARDMARK_MPI=OFF) and starts one; valid: --ranks 1, or build with MPI",
         ranks);
  return ERR_OK;
}

/* What every rank executes: the trainer or a foreign program, then its run files. */
static enum err words_program(const struct launch_world *w, const struct launch_wish *wish, struct launch_command *c)
{
  if (wish->program == NULL) WORD("%s", w->trainer);
  for (int i = 0; wish->program && wish->program[i]; i++) WORD("%s", wish->program[i]);
  for (int i = 0; i < wish->n_files; i++) WORD("%s", wish->files[i]);
  for (int i = 0; wish->settings && wish->settings[i]; i++) SETTING("%s", wish->settings[i]);
  return ERR_OK;
}

enum err launch_make(const struct launch_world *w, const struct launch_wish *wish, struct launch_command *out)
{
  enum err err = ERR_OK;
  TRY(launch_check(w, wish->ranks));
  if (wish->ranks < 1) FAIL(ERR_CONFIG, "ranks %d; valid: 1 or more", wish->ranks);
  if (w->hosts[0] && wish->ranks > w->slots)
    FAIL(ERR_CONFIG, "%d ranks wanted, host file %s offers %d; valid: 1..%d", wish->ranks, w->hosts, w->slots, w->slots);
  if (!w->hosts[0] && wish->cores_each > 0 && wish->ranks * wish->cores_each > w->cores)
    FAIL(ERR_CONFIG, "%d ranks of %d cores wanted, this machine has %d cores", wish->ranks, wish->cores_each, w->cores);
  struct launch_command made = {0}, *c = &made;
  if (w->mpi != LAUNCH_ALONE) TRY_TO(free_lists, w->mpi == LAUNCH_OPENMPI ? words_openmpi(w, wish, c) : words_other(w, wish, c));
  TRY_TO(free_lists, words_program(w, wish, c));
  *out = made;
  return ERR_OK;

free_lists:
  launch_free(&made);
  return err;
}

void launch_free(struct launch_command *c)
{
  for (int i = 0; i < c->n_words; i++) free(c->words[i]);
  for (int i = 0; i < c->n_settings; i++) free(c->settings[i]);
  free(c->words);
  free(c->settings);
  *c = (struct launch_command){0};
}
