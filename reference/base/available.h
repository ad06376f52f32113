/* available.h - memory that may still be taken on this host. */
#ifndef BASE_AVAILABLE_H
#define BASE_AVAILABLE_H
#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Bytes that the system could give without taking them from others, and no more than the control groups of this process are
 * let (cgroups(7), version 1 or 2; what they hold of files' inactive pages can be had).  SIZE_MAX where nothing is said. */
size_t available_bytes(void);
/* The same, and no more than this process may still map (RLIMIT_AS). */
size_t available_to_map(void);

/* As available_bytes(), with another root than "" of /proc and /sys: for tests. */
size_t available_under(const char *root);

#ifdef __cplusplus
}
#endif
#endif
