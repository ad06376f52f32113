/* corpus_map.c - a file as memory. */
#include "data/corpus_source.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

enum err corpus_map_open(const char *path, struct corpus_map *out)
{
  enum err err = ERR_OK;
  struct stat s;
  const int fd = open(path, O_RDONLY | O_CLOEXEC);
  if (fd < 0) FAIL(ERR_CONFIG, "corpus: %s: %s", path, strerror(errno));
  if (fstat(fd, &s) != 0) FAIL_TO(close_file, ERR_CONFIG, "corpus: %s: %s", path, strerror(errno));
  if (!S_ISREG(s.st_mode)) FAIL_TO(close_file, ERR_CONFIG, "corpus: %s is no regular file", path);
  if (s.st_size == 0) FAIL_TO(close_file, ERR_CONFIG, "corpus: %s is empty", path);
  const void *at = mmap(NULL, (size_t)s.st_size, PROT_READ, MAP_SHARED, fd, 0);
  if (at == MAP_FAILED) FAIL_TO(close_file, ERR_CONFIG, "corpus: %s: no memory map of %lld bytes: %s", path, (long long)s.st_size, strerror(errno));
  *out = (struct corpus_map){at, s.st_size};

close_file:
  close(fd);
  return err;
}

void corpus_map_close(struct corpus_map *m)
{
  if (m->at != NULL) munmap((void *)m->at, (size_t)m->bytes);
  *m = (struct corpus_map){0};
}
