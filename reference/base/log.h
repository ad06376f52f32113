/* log.h - lines for a person, on standard error; programs read records instead.
 *
 * Each call is one line and one write(), so lines of several ranks never mix.
 * Callable from any thread once log_setup() has been called.
 */
#ifndef BASE_LOG_H
#define BASE_LOG_H

#ifdef __cplusplus
extern "C" {
#endif

enum log_level { LOG_QUIET, LOG_NORMAL, LOG_VERBOSE };

/* rank -1: not in a job.  Until called: LOG_NORMAL, -1. */
void log_setup(enum log_level level, int rank);

/* Spoken by rank 0 or outside a job, unless quiet.  No newline at the end of the format. */
void log_info(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* Spoken by each rank that calls, "rank 3: ..." in front, unless quiet. */
void log_rank(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* As log_rank, only when verbose. */
void log_detail(const char *format, ...) __attribute__((format(printf, 1, 2)));

#ifdef __cplusplus
}
#endif
#endif
