/* available.c - /proc/meminfo, and the limits of control groups from this process's up to the root. */
#include "base/available.h"

#include <limits.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

static size_t least(size_t a, size_t b) { return a < b ? a : b; }

/* The number behind `key` at the start of a line, or with key "" of the first line; SIZE_MAX: none. */
static size_t number_in(const char *path, const char *key)
{
  char line[512], *end;
  size_t found = SIZE_MAX;
  const size_t n = strlen(key);
  FILE *f = fopen(path, "r");
  while (f && found == SIZE_MAX && fgets(line, sizeof line, f)) {
    if (strncmp(line, key, n) != 0) continue;
    const unsigned long long x = strtoull(line + n, &end, 10);
    if (end == line + n) break; /* "max" */
    found = (size_t)x;
  }
  if (f) fclose(f);
  return found;
}

/* --- control groups ----------------------------------------------------------------------- */

/* Where a version keeps its groups, and its names of files. */
struct version {
  const char *mount, *limit, *usage, *inactive;
};
static const struct version v1 = {"/sys/fs/cgroup/memory", "memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file "},
                            v2 = {"/sys/fs/cgroup", "memory.max", "memory.current", "inactive_file "};

static size_t left_in(const char *root, const struct version *v, const char *group)
{
  char path[PATH_MAX];
  snprintf(path, sizeof path, "%s%s%s/%s", root, v->mount, group, v->limit);
  const size_t limit = number_in(path, "");
  snprintf(path, sizeof path, "%s%s%s/%s", root, v->mount, group, v->usage);
  const size_t usage = number_in(path, "");
  snprintf(path, sizeof path, "%s%s%s/memory.stat", root, v->mount, group);
  const size_t inactive = number_in(path, v->inactive);
  if (limit == SIZE_MAX || usage == SIZE_MAX) return SIZE_MAX;
  const size_t kept = inactive == SIZE_MAX || inactive > usage ? usage : usage - inactive;
  return limit > kept ? limit - kept : 0;
}

/* Of the group and all above it: the namespace's root is asked too, for what /proc says may not be visible from here. */
static size_t left_above(const char *root, const struct version *v, char *group)
{
  size_t left = left_in(root, v, "");
  for (char *slash = strrchr(group, '/'); slash != NULL; slash = strrchr(group, '/')) {
    if (group[1] != '\0') left = least(left, left_in(root, v, group));
    *slash = '\0';
  }
  return left;
}

/* Lines "0::/group" (version 2) and "7:memory:/group" (version 1). */
static size_t left_in_groups(const char *root)
{
  char line[PATH_MAX];
  size_t left = SIZE_MAX;
  snprintf(line, sizeof line, "%s/proc/self/cgroup", root);
  FILE *f = fopen(line, "r");
  while (f && fgets(line, sizeof line, f)) {
    char *names = strchr(line, ':'), *group = names ? strchr(names + 1, ':') : NULL;
    if (group == NULL) continue;
    *group++ = '\0';
    group[strcspn(group, "\n")] = '\0';
    if (names[1] == '\0') left = least(left, left_above(root, &v2, group));
    else if (strcmp(names + 1, "memory") == 0) left = least(left, left_above(root, &v1, group));
  }
  if (f) fclose(f);
  return left;
}

/* --- all ------------------------------------------------------------------------------------- */

size_t available_under(const char *root)
{
  char path[PATH_MAX];
  snprintf(path, sizeof path, "%s/proc/meminfo", root);
  const size_t kib = number_in(path, "MemAvailable:");
  return least(kib > SIZE_MAX / 1024 ? SIZE_MAX : kib * 1024, left_in_groups(root));
}

size_t available_bytes(void) { return available_under(""); }

size_t available_to_map(void)
{
  struct rlimit r;
  const size_t host = available_bytes(), mapped = number_in("/proc/self/status", "VmSize:");
  if (getrlimit(RLIMIT_AS, &r) != 0 || r.rlim_cur == RLIM_INFINITY || mapped > SIZE_MAX / 1024) return host;
  return least(host, r.rlim_cur > mapped * 1024 ? (size_t)r.rlim_cur - mapped * 1024 : 0);
}
