/* folder.c - walks of the file hierarchy by fts(3). */
#include "harness/folder.h"

#include <dirent.h>
#include <fts.h>
#include <stddef.h>
#include <stdio.h>
#include <sys/stat.h>

bool folder_is_empty(const char *path)
{
  int n = 0;
  DIR *d = opendir(path);
  if (d == NULL) return false;
  while (readdir(d)) n++;
  closedir(d);
  return n == 2; /* "." and ".." */
}

static FTS *open_walk(const char *path)
{
  char *const roots[] = {(char *)path, NULL}; /* only read: fts_open's type is older than const */
  return fts_open(roots, FTS_PHYSICAL | FTS_NOCHDIR, NULL);
}

double folder_bytes(const char *path)
{
  double bytes = 0;
  FTS *walk = open_walk(path);
  for (FTSENT *e; walk && (e = fts_read(walk));)
    if (e->fts_info == FTS_F) bytes += (double)e->fts_statp->st_size;
  if (walk) fts_close(walk);
  return bytes;
}

void folder_remove(const char *path)
{
  FTS *walk = open_walk(path);
  for (FTSENT *e; walk && (e = fts_read(walk));)
    if (e->fts_info != FTS_D) remove(e->fts_path);
  if (walk) fts_close(walk);
}
