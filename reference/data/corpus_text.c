/* corpus_text.c - lists a directory once; reads a document's bytes when they are asked for. */
#include "data/corpus_source.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

struct corpus_text {
  char *root;
  int64_t n, room, left_out;
  struct corpus_file {
    char *path; /* whole */
    int64_t bytes;
  } *files;     /* ordered by path */
};

static bool compressed(const char *name)
{
  static const char *const endings[] = {".gz", ".xz", ".bz2", ".zst"};
  const size_t n = strlen(name);
  for (size_t i = 0; i < sizeof endings / sizeof *endings; i++) {
    const size_t e = strlen(endings[i]);
    if (n >= e && strcmp(name + n - e, endings[i]) == 0) return true;
  }
  return false;
}

static enum err add_file(struct corpus_text *t, char *path, int64_t bytes)
{
  if (t->n == t->room) {
    const int64_t room = t->room ? 2 * t->room : 256;
    struct corpus_file *files = realloc(t->files, (size_t)room * sizeof *files);
    if (files == NULL) FAIL(ERR_MEMORY, "corpus: list of %lld files", (long long)room);
    t->files = files;
    t->room = room;
  }
  t->files[t->n++] = (struct corpus_file){path, bytes};
  return ERR_OK;
}

static enum err list_directory(struct corpus_text *t, const char *directory);

/* One entry: a directory is entered, a document kept, anything else passed over.  Links are
 * not followed: the same text twice would be two documents, and a loop no end. */
static enum err list_entry(struct corpus_text *t, const char *directory, const char *name)
{
  enum err err;
  char *path = NULL;
  if (asprintf(&path, "%s/%s", directory, name) < 0) FAIL(ERR_MEMORY, "corpus: path of %s", name);

  struct stat s;
  const bool known = lstat(path, &s) == 0;
  if (known && S_ISDIR(s.st_mode)) {
    TRY_TO(free_path, list_directory(t, path));
  } else if (known && S_ISREG(s.st_mode) && s.st_size > 1 && !compressed(name) && access(path, R_OK) == 0) {
    TRY_TO(free_path, add_file(t, path, s.st_size));
    return ERR_OK;
  } else if (known && S_ISREG(s.st_mode)) {
    t->left_out++;
  }
  err = ERR_OK;

free_path:
  free(path);
  return err;
}

static enum err list_directory(struct corpus_text *t, const char *directory)
{
  DIR *d = opendir(directory);
  if (d == NULL && strcmp(directory, t->root) != 0) return ERR_OK; /* unreadable: no documents of ours */
  if (d == NULL)
    FAIL(ERR_CONFIG, "corpus: '%s': %s", directory, strerror(errno));
  enum err err = ERR_OK;
  for (const struct dirent *e = readdir(d); e != NULL && err == ERR_OK; e = readdir(d))
    if (strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0) err = list_entry(t, directory, e->d_name);
  closedir(d);
  return err;
}

static int by_path(const void *a, const void *b)
{
  const struct corpus_file *x = a, *y = b;
  return strcmp(x->path, y->path);
}

static void close_text(void *self)
{
  struct corpus_text *t = self;
  for (int64_t i = 0; i < t->n; i++) free(t->files[i].path);
  free(t->files);
  free(t->root);
  free(t);
}

static int64_t length(const void *self, int64_t document) { return ((const struct corpus_text *)self)->files[document].bytes; }

/* Opened and closed each time: a directory may hold more files than a process may map or open. */
static enum err tokens(const void *self, int64_t document, int64_t first, int64_t n, int32_t *out)
{
  const struct corpus_file *file = &((const struct corpus_text *)self)->files[document];
  const int fd = open(file->path, O_RDONLY | O_CLOEXEC);
  if (fd < 0) FAIL(ERR_IO, "corpus: %s: %s", file->path, strerror(errno));

  unsigned char bytes[4096];
  int64_t done = 0;
  while (done < n) {
    const size_t want = (size_t)(n - done) < sizeof bytes ? (size_t)(n - done) : sizeof bytes;
    const ssize_t got = pread(fd, bytes, want, first + done);
    if (got <= 0) break;
    for (ssize_t i = 0; i < got; i++) out[done + i] = bytes[i];
    done += got;
  }
  close(fd);
  if (done < n)
    FAIL(ERR_IO, "corpus: %s: %lld bytes when listed, now %lld", file->path, (long long)file->bytes,
         (long long)(first + done));
  return ERR_OK;
}

enum err corpus_text_open(const struct run_config *c, struct corpus_source *out)
{
  enum err err;
  TRY(corpus_needs_bytes(c));
  struct corpus_text *t = calloc(1, sizeof *t);
  if (t == NULL) FAIL(ERR_MEMORY, "corpus: %zu bytes", sizeof *t);
  t->root = strdup(c->corpus);
  if (t->root == NULL) FAIL_TO(close_directory, ERR_MEMORY, "corpus: path of %s", c->corpus);
  TRY_TO(close_directory, list_directory(t, c->corpus));
  if (t->n == 0)
    FAIL_TO(close_directory, ERR_CONFIG, "corpus: '%s' holds no readable, uncompressed, non-empty file of two bytes or more", c->corpus);
  qsort(t->files, (size_t)t->n, sizeof *t->files, by_path);
  *out = (struct corpus_source){t, t->n, t->left_out, length, tokens, close_text};
  return ERR_OK;

close_directory:
  close_text(t);
  return err;
}
