/* place.c - the only file that looks at the environment and at the program's own path. */
#include "harness/place.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { PATH_BYTES = 4096 };

static bool is_folder(const char *path)
{
  struct stat st;
  return stat(path, &st) == 0 && S_ISDIR(st.st_mode);
}

static bool beside(const char *name, char *out, size_t bytes)
{
  char self[PATH_BYTES];
  const ssize_t n = readlink("/proc/self/exe", self, sizeof self - 1);
  if (n <= 0) return false;
  self[n] = '\0';
  char *slash = strrchr(self, '/');
  if (slash == NULL) return false;
  *slash = '\0';
  return snprintf(out, bytes, "%s/%s", self, name) < (int)bytes;
}

enum err place_source(const char *folder, char *out, size_t bytes)
{
  char up[128], resolved[PATH_BYTES];
  snprintf(up, sizeof up, "../%s", folder);
  if (beside(up, out, bytes) && is_folder(out)) {
    if (realpath(out, resolved) && strlen(resolved) < bytes) memcpy(out, resolved, strlen(resolved) + 1);
    return ERR_OK;
  }
  snprintf(out, bytes, "%s/%s", SHARDMARK_SOURCE, folder);
  if (is_folder(out)) return ERR_OK;
  FAIL(ERR_UNAVAILABLE, "folder '%s' is neither beside the program's folder nor in %s", folder, SHARDMARK_SOURCE);
}

enum err place_program(const char *name, char *out, size_t bytes)
{
  if (strchr(name, '/')) {
    if (access(name, X_OK) != 0) FAIL(ERR_UNAVAILABLE, "%s: %s", name, strerror(errno));
    snprintf(out, bytes, "%s", name);
    return ERR_OK;
  }
  const char *path = getenv("PATH");
  for (const char *at = path; at && *at;) {
    const size_t length = strcspn(at, ":");
    snprintf(out, bytes, "%.*s/%s", (int)length, at, name);
    if (access(out, X_OK) == 0 && !is_folder(out)) return ERR_OK;
    at += length + (at[length] == ':');
  }
  FAIL(ERR_UNAVAILABLE, "no program '%s' in PATH", name);
}

enum err place_trainer(char *out, size_t bytes)
{
  const char *other = getenv("SHARDMARK_TRAINER");
  if (other && *other) return place_program(other, out, bytes);
  if (beside("shardmark-train", out, bytes) && access(out, X_OK) == 0) return ERR_OK;
  FAIL(ERR_UNAVAILABLE, "%s is not there: build it with ./ci/build", out);
}

enum err place_environments(char *out, size_t bytes)
{
  const char *other = getenv("SHARDMARK_FRAMEWORKS");
  const bool fits = other && *other ? snprintf(out, bytes, "%s", other) < (int)bytes : beside("frameworks", out, bytes);
  if (!fits) FAIL(ERR_CONFIG, "path of frameworks' environments too long: %.80s...", out);
  return ERR_OK;
}

bool place_without_launcher(void)
{
  const char *other = getenv("SHARDMARK_MPIEXEC");
  return !SHARDMARK_MPI && !(other && *other);
}

enum err place_launcher(char *out, size_t bytes)
{
  const char *other = getenv("SHARDMARK_MPIEXEC");
  if (other && *other) return place_program(other, out, bytes);
  if (place_program("mpirun", out, bytes) == ERR_OK || place_program("mpiexec", out, bytes) == ERR_OK) return ERR_OK;
  FAIL(ERR_UNAVAILABLE, "neither mpirun nor mpiexec in PATH: install Open MPI or MPICH, or load its module");
}

enum err place_make(const char *path)
{
  char part[PATH_BYTES];
  if (snprintf(part, sizeof part, "%s", path) >= (int)sizeof part) FAIL(ERR_CONFIG, "path too long: %.80s...", path);
  for (char *s = part + 1; *s; s++) {
    if (*s != '/') continue;
    *s = '\0';
    if (mkdir(part, 0777) != 0 && errno != EEXIST) FAIL(ERR_IO, "%s: %s", part, strerror(errno));
    *s = '/';
  }
  if (mkdir(part, 0777) != 0 && errno != EEXIST) FAIL(ERR_IO, "%s: %s", part, strerror(errno));
  if (!is_folder(part)) FAIL(ERR_IO, "%s: is not a folder", path);
  return ERR_OK;
}
