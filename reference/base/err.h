/* err.h - the one way a failure travels: a code up the stack, the reason once.
 *
 * A function that can fail returns enum err and leaves its outputs untouched or
 * NULL.  The reason is recorded where it arises, with the values in it; each
 * TRY on the way up adds a line to the trail.  Text and trail belong to the
 * thread; err_save()/err_restore() carry them from a stream's thread to the
 * thread that synchronises with it.  Only a main.c prints them.
 */
#ifndef BASE_ERR_H
#define BASE_ERR_H

#include <stdbool.h>
#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Ordered: of several ranks' codes the largest is the one that counts. */
enum err {
  ERR_OK = 0,
  ERR_UNAVAILABLE, /* not on this machine or not in this build               */
  ERR_CONFIG,      /* bad input: key, value and valid values are in the text */
  ERR_ARG,         /* a caller broke a contract                              */
  ERR_FORMAT,      /* a file is not what it says it is                       */
  ERR_IO,          /* the operating system refused: text has errno           */
  ERR_MEMORY,      /* text has the bytes wanted                              */
  ERR_NUMERIC,     /* a value that must be finite is not                     */
  ERR_DEVICE,      /* a device or stream failed                              */
  ERR_COMM,        /* MPI or NCCL failed, or a peer is gone                  */
  ERR_INVALID      /* the machine or the launch makes the result unusable    */
};

/* Exit status of every program of this project. */
enum status {
  STATUS_PASS = 0,
  STATUS_FAIL = 1,
  STATUS_USAGE = 2,
  STATUS_INVALID = 3,
  STATUS_INCONCLUSIVE = 4,
  STATUS_INTERRUPTED = 130
};

/* Record the reason and return `code`.  Replaces an earlier reason. */
enum err err_set(enum err code, const char *file, int line, const char *format, ...)
  __attribute__((format(printf, 4, 5)));
/* Add one line to the trail and return `code`. */
enum err err_trace(enum err code, const char *file, int line);

const char *err_text(void);  /* the last reason of this thread, "" if none     */
const char *err_trail(void); /* "file:line <- file:line ...", "" if none       */
void err_clear(void);
const char *err_name(enum err code); /* "config", "memory", ...                 */
enum status err_status(enum err code); /* the exit status that `code` stands for */

struct err_saved {
  enum err code;
  char text[1024];
  char trail[512];
};
void err_save(struct err_saved *out, enum err code);
enum err err_restore(const struct err_saved *saved); /* returns saved->code */

/* What cannot happen did: prints the values and ends through the hook, which a
 * program sets (MPI_Abort in a job); abort() when none is set. */
void err_bug(const char *file, int line, const char *condition)
#ifndef __cplusplus
  __attribute__((noreturn))
#endif
  ;
void err_on_bug(void (*hook)(void));

#define FAIL(code, ...) return err_set((code), __FILE__, __LINE__, __VA_ARGS__)
#define FAIL_TO(label, code, ...)                          \
  do {                                                     \
    err = err_set((code), __FILE__, __LINE__, __VA_ARGS__); \
    goto label;                                            \
  } while (0)
#define TRY(call)                                           \
  do {                                                      \
    enum err e_ = (call);                                   \
    if (e_) return err_trace(e_, __FILE__, __LINE__);       \
  } while (0)
#define TRY_TO(label, call)                                 \
  do {                                                      \
    err = (call);                                           \
    if (err) {                                              \
      err_trace(err, __FILE__, __LINE__);                   \
      goto label;                                           \
    }                                                       \
  } while (0)
#define BUG_IF(condition)                                   \
  do {                                                      \
    if (condition) err_bug(__FILE__, __LINE__, #condition); \
  } while (0)

#ifdef __cplusplus
}
#endif
#endif
