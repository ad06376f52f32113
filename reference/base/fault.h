/* fault.h - the registry of planted faults: real faults of real trainers.
 *
 * Off by default.  A fault is one line at its site, `if (fault_is(FAULT_X)) ...`, on
 * the ordinary path; there is never a second code path.  One may be on at a time.
 * The rows, with what each is about, are faults.def.
 */
#ifndef BASE_FAULT_H
#define BASE_FAULT_H

#include "base/err.h"

#ifdef __cplusplus
extern "C" {
#endif

enum fault {
  FAULT_NONE,
#define FAULT(id, name, status, suite, observable, smallest, cause, note) FAULT_##id,
#include "base/faults.def"
#undef FAULT
  FAULT_COUNT
};

enum fault_status { FAULT_PLANTED, FAULT_IMPOSSIBLE, FAULT_LATER };

struct fault_row {
  const char *name;           /* as in the public catalogue, stable                      */
  enum fault_status status;
  const char *suite;          /* whose cases show it                                      */
  const char *observable;     /* "O4 O7": one of these must go red, no other counts       */
  const char *smallest;       /* name of the smallest case of that suite that shows it    */
  const char *cause;          /* the diagnosis, as a sentence for a person                */
  const char *note;           /* impossible: the test that proves it; later: with what    */
};
extern const struct fault_row fault_rows[FAULT_COUNT]; /* [FAULT_NONE] is empty */

extern enum fault fault_now;    /* read through fault_is only */
extern double fault_strength;   /* 1 = as in the report; smaller finds the threshold */
extern int fault_rank;          /* rank that misbehaves, where only one does         */

static inline bool fault_is(enum fault f) { return __builtin_expect(fault_now == f, 0); }

/* "" or "none" switches off.  Unknown: ERR_CONFIG with the nearest names; impossible or
 * later: ERR_UNAVAILABLE with the row's note. */
enum err fault_plant(const char *name, double strength, int rank);
enum err fault_find(const char *name, enum fault *out);

#ifdef __cplusplus
}
#endif
#endif
