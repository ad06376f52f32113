/* files.c - write beside, then rename. */
#include "reports/files.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

enum err files_open(const char *dir, const char *name, FILE **out)
{
  char path[1200];
  snprintf(path, sizeof path, "%s/%s.tmp", dir, name);
  *out = fopen(path, "w");
  if (*out == NULL) FAIL(ERR_IO, "%s: %s", path, strerror(errno));
  return ERR_OK;
}

enum err files_close(FILE *file, const char *dir, const char *name, bool keep)
{
  char from[1200], to[1200];
  snprintf(from, sizeof from, "%s/%s.tmp", dir, name);
  snprintf(to, sizeof to, "%s/%s", dir, name);
  errno = 0;
  const bool bad = fflush(file) != 0 || ferror(file) != 0;
  const int why = errno;
  const bool closed = fclose(file) == 0;
  if (bad || !closed) {
    unlink(from);
    FAIL(ERR_IO, "%s: %s", to, strerror(bad ? why : errno));
  }
  if (keep && rename(from, to) != 0) {
    const int refused = errno;
    unlink(from);
    FAIL(ERR_IO, "%s: %s", to, strerror(refused));
  }
  if (!keep) unlink(from);
  return ERR_OK;
}
