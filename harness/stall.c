/* stall.c - reads slots that ranks left in a case's directory, and compares them. */
#include "harness/stall.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* State of a process of this host; '-' when there is none. */
static char process_state(long pid)
{
  char path[64], text[512];
  snprintf(path, sizeof path, "/proc/%ld/stat", pid);
  const int fd = open(path, O_RDONLY | O_CLOEXEC);
  if (fd < 0) return '-';
  const ssize_t n = read(fd, text, sizeof text - 1);
  close(fd);
  if (n <= 0) return '-';
  text[n] = '\0';
  const char *paren = strrchr(text, ')'); /* the name may hold blanks and parentheses */
  return paren && paren[1] == ' ' ? paren[2] : '-';
}

static int by_rank(const void *a, const void *b)
{
  return ((const struct stall_rank *)a)->rank - ((const struct stall_rank *)b)->rank;
}

static void take(const struct slot *s, bool here, struct stall_rank *out)
{
  *out = (struct stall_rank){.rank = (int)s->rank, .pid = (long)s->pid, .step = s->step, .beat = s->beat};
  memcpy(out->phase, s->phase, sizeof out->phase);
  memcpy(out->comms, s->comms, sizeof out->comms);
  out->phase[SLOT_NAME - 1] = '\0';
  for (int k = 0; k < SLOT_COMMS; k++) out->comms[k].name[SLOT_NAME - 1] = out->comms[k].op[SLOT_NAME - 1] = '\0';
  out->state = here ? process_state(out->pid) : '?';
}

int stall_read(const char *dir, struct stall_rank **out)
{
  int count = 0;
  char host[256] = "", path[4096];
  struct slot s;
  *out = NULL;
  gethostname(host, sizeof host - 1);
  DIR *d = opendir(dir);
  for (struct dirent *e; d && (e = readdir(d));) {
    if (strncmp(e->d_name, "state.", 6) != 0) continue;
    snprintf(path, sizeof path, "%s/%s", dir, e->d_name);
    const int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) continue;
    const bool here = strcmp(e->d_name + 6, host) == 0;
    while (count < STALL_RANKS && read(fd, &s, sizeof s) == (ssize_t)sizeof s) {
      if (s.rank < 0 || s.pid <= 0) continue;
      struct stall_rank *more = realloc(*out, (size_t)(count + 1) * sizeof *more);
      if (more == NULL) break;
      *out = more;
      take(&s, here, &more[count++]);
    }
    close(fd);
  }
  if (d) closedir(d);
  if (count) qsort(*out, (size_t)count, sizeof **out, by_rank);
  return count;
}

int64_t stall_beats(const char *dir)
{
  struct stall_rank *ranks;
  int64_t sum = 0;
  const int n = stall_read(dir, &ranks);
  for (int i = 0; i < n; i++) sum += ranks[i].beat;
  free(ranks);
  return sum;
}

/* --- sentences ------------------------------------------------------------------- */

static void say(char *out, size_t bytes, const char *format, ...) __attribute__((format(printf, 3, 4)));
static void say(char *out, size_t bytes, const char *format, ...)
{
  const size_t used = strlen(out);
  va_list a;
  va_start(a, format);
  vsnprintf(out + used, bytes - used, format, a);
  va_end(a);
}

/* The collective that the rank waits in: queued on that stream and not done. */
static const struct slot_comm *waits_in(const struct stall_rank *r)
{
  for (int k = 0; k < SLOT_COMMS; k++)
    if (r->comms[k].name[0] && r->comms[k].started > r->comms[k].done) return &r->comms[k];
  return NULL;
}

/* The collective it did last. */
static const struct slot_comm *last_of(const struct stall_rank *r)
{
  const struct slot_comm *last = NULL;
  for (int k = 0; k < SLOT_COMMS; k++)
    if (r->comms[k].name[0] && (last == NULL || r->comms[k].started > last->started)) last = &r->comms[k];
  return last;
}

static int64_t reached(const struct stall_rank *r, const char *name)
{
  for (int k = 0; k < SLOT_COMMS; k++)
    if (strcmp(r->comms[k].name, name) == 0) return r->comms[k].started;
  return 0;
}

static const char *condition(const struct stall_rank *r)
{
  switch (r->state) {
  case 'T':
  case 't': return "is stopped (SIGSTOP)";
  case 'Z':
  case '-': return strcmp(r->phase, "done") == 0 ? "has finished" : "is gone";
  default: return strcmp(r->phase, "done") == 0 ? "has finished" : NULL;
  }
}

void stall_where(const struct stall_rank *r, char *out, size_t bytes)
{
  const struct slot_comm *c = last_of(r);
  out[0] = '\0';
  if (r->step >= 0) say(out, bytes, "rank %d in step %lld", r->rank, (long long)r->step);
  else say(out, bytes, "rank %d before its first step", r->rank);
  if (c) say(out, bytes, ", last collective %s #%lld %s", c->name, (long long)c->started, c->op);
  else say(out, bytes, ", no collective yet");
}

void stall_sentence(const struct stall_rank *ranks, int n, char *out, size_t bytes)
{
  out[0] = '\0';
  if (n == 0) return;
  /* The furthest collective that someone waits in; whoever has not reached it is behind. */
  const struct slot_comm *far = NULL;
  for (int i = 0; i < n; i++) {
    const struct slot_comm *c = waits_in(&ranks[i]);
    if (c && (far == NULL || c->started > far->started)) far = c;
  }
  int behind = 0, said = 0, waiting = 0;
  for (int i = 0; i < n; i++) {
    const char *what = condition(&ranks[i]);
    const bool late = far && waits_in(&ranks[i]) == NULL && reached(&ranks[i], far->name) < far->started;
    if (what == NULL && !late) continue;
    behind++;
    if (++said > 4) continue;
    const struct slot_comm *c = last_of(&ranks[i]);
    say(out, bytes, "%srank %d %s", said > 1 ? "; " : "", ranks[i].rank, what ? what : "is behind");
    if (c) say(out, bytes, " at %s #%lld", c->name, (long long)c->started);
    if (ranks[i].step >= 0) say(out, bytes, " in step %lld", (long long)ranks[i].step);
  }
  if (said > 4) say(out, bytes, "; and %d more", said - 4);
  /* Who waits, grouped by the collective. */
  bool *told = calloc(STALL_RANKS, sizeof *told);
  if (told == NULL) return;
  for (int i = 0; i < n; i++) {
    const struct slot_comm *c = condition(&ranks[i]) ? NULL : waits_in(&ranks[i]);
    if (c == NULL || told[i]) continue;
    int same = 0;
    for (int k = i; k < n; k++) {
      const struct slot_comm *o = condition(&ranks[k]) ? NULL : waits_in(&ranks[k]);
      if (o && strcmp(o->name, c->name) == 0 && o->started == c->started && strcmp(o->op, c->op) == 0) told[k] = true, same++;
    }
    say(out, bytes, "%s", waiting++ || behind ? "; " : "");
    if (behind && same == n - behind && same > 1) say(out, bytes, "the others wait in ");
    else if (same == n) say(out, bytes, "all %d ranks wait in ", n);
    else if (same == 1) say(out, bytes, "rank %d waits in ", ranks[i].rank);
    else say(out, bytes, "%d ranks (first %d) wait in ", same, ranks[i].rank);
    say(out, bytes, "%s #%lld %s, step %lld", c->name, (long long)c->started, c->op, (long long)c->step);
  }
  free(told);
  if (out[0] == '\0') {
    char where[256];
    stall_where(&ranks[0], where, sizeof where);
    say(out, bytes, "no rank waits in a collective; %s", where);
  }
}
