/* slots.c - one file a host, one slot a local rank, written without a system call. */
#include "train/slots.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

struct slots {
  struct comm_world *world;
  struct slot *all, *mine;
  size_t bytes;
  int count;
};

static enum err map_file(const char *path, size_t bytes, struct slot **out)
{
  const int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0644);
  if (fd < 0) FAIL(ERR_IO, "%s: %s", path, strerror(errno));
  const int full = posix_fallocate(fd, 0, (off_t)bytes);
  void *at = full ? MAP_FAILED : mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  const int reason = full ? full : errno;
  close(fd);
  if (at == MAP_FAILED) FAIL(ERR_IO, "%s: %s", path, strerror(reason));
  *out = at;
  return ERR_OK;
}

enum err slots_open(struct comm_world *w, const char *dir, const char *run, struct slots **out)
{
  enum err err;
  *out = NULL;
  struct slots *s = calloc(1, sizeof *s);
  if (s == NULL) FAIL(ERR_MEMORY, "slots: %zu bytes", sizeof *s);
  s->world = w;
  s->count = comm_node_size(w);
  s->bytes = (size_t)s->count * sizeof *s->all;
  if (dir[0]) {
    char path[4096 + 300], host[256] = "";
    gethostname(host, sizeof host - 1);
    snprintf(path, sizeof path, "%s/state.%s", dir, host);
    TRY_TO(free_slots, map_file(path, s->bytes, &s->all));
  } else {
    s->all = mmap(NULL, s->bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (s->all == MAP_FAILED) FAIL_TO(free_slots, ERR_MEMORY, "slots: %zu bytes", s->bytes);
  }
  s->mine = &s->all[comm_node_rank(w)];
  memset(s->mine, 0, sizeof *s->mine);
  snprintf(s->mine->run, sizeof s->mine->run, "%s", run);
  s->mine->rank = comm_rank(w);
  s->mine->pid = getpid();
  slots_say(s, "start", -1);
  comm_watch(w, s->mine);
  *out = s;
  return ERR_OK;

free_slots:
  free(s);
  return err;
}

void slots_close(struct slots *s)
{
  if (s == NULL) return;
  comm_watch(s->world, NULL);
  munmap(s->all, s->bytes);
  free(s);
}

void slots_say(struct slots *s, const char *phase, int64_t step)
{
  snprintf(s->mine->phase, sizeof s->mine->phase, "%s", phase);
  s->mine->step = step;
  s->mine->beat++;
}

int slots_rank(const struct slots *s, int i)
{
  return i < s->count && s->all[i].pid > 0 ? (int)s->all[i].rank : -1;
}
