/* suite.h - a suite file: a question, cases, named checks.
 *
 *   question: does any cut of the model change what it learns?
 *   kind: conformance             # or another of suite_kind_names
 *   every_case: {model: tiny, steps: 2}
 *   evidence: {model: tiny, checks: [loss]}   # scaling, pipeline, overlap, imbalance: laid over what is measured, gives its conformance case
 *   cases:
 *     m1-dp2: {quick: true, priority: 1, seconds: 20, checks: [loss, gradients], dp: 2, bucket: 500}
 *   sweeps:                       # vary: all combinations; zip: lists walked together, crossed with vary
 *     - name: dp{dp}-b{bucket}-{precision}
 *       vary: {dp: [1, 2, 3], bucket: [0, 500]}
 *       zip: {precision: [f64, f32], seed: [1, 2]}
 *       except: [{dp: 1, bucket: 500}]
 *       set: {checks: [loss], quick: false}
 *     - name: dp{dp}-{row}          # pairs: covered pairwise, with the combinations and with each other (sweep.h)
 *       vary: {dp: [1, 2, 3]}
 *       pairs: {tied: [true, false], clip: [0, 0.1, 1000]}
 *
 * Keys of a case are those of run_options (but name and out) and of suite_options below;
 * a later level overrides an earlier one: every_case, then set, then vary, zip and pairs; or
 * every_case, then the case.  In a suite of kind `faults` the planted cases come from the
 * rows of the fault registry (which name suite and case); its own cases are more of the
 * clean set, where any red is a false alarm.  In a suite of kind `frameworks` a case is one run of an adapter
 * (frameworks.h).  Errors are ERR_CONFIG "file:line:column: ...".
 */
#ifndef HARNESS_SUITE_H
#define HARNESS_SUITE_H

#include "base/config.h"
#include "suites/checks/judge.h"

enum suite_kind { KIND_CONFORMANCE, KIND_SCALING, KIND_MEMORY, KIND_FAULTS, KIND_PIPELINE, KIND_OVERLAP, KIND_IMBALANCE, KIND_BLAME, KIND_FRAMEWORKS, KIND_COUNT };
enum suite_scale { SCALE_NONE, SCALE_STRONG, SCALE_WEAK, SCALE_LAYOUT };
enum { SUITE_CHECKS_MAX = 32, SUITE_NOTE = 512 };
/* Cases are judged by their checks from runs that have the machine to themselves (timed.h). */
static inline bool suite_is_timed(enum suite_kind k) { return k == KIND_PIPELINE || k == KIND_OVERLAP || k == KIND_IMBALANCE || k == KIND_BLAME; }
/* They show speeds, or shares of a step, of a run whose settings are proved by conformance first; blame shows who is late. */
static inline bool suite_has_evidence(enum suite_kind k) { return k == KIND_SCALING || (suite_is_timed(k) && k != KIND_BLAME); }
/* Of training on cores of its own, to losses that are numbers. */
static inline bool suite_shows_speed(enum suite_kind k) { return k == KIND_OVERLAP || k == KIND_IMBALANCE; }

struct suite_case {
  char name[CONFIG_NAME];
  char where[CONFIG_PATH]; /* "file:line:column" of its definition                      */
  struct run_config config; /* as written: config_finish() is the plan's                */
  bool quick;              /* belongs to the quick form                                 */
  bool correctness_only;   /* may share cores; never gives a speed                      */
  int64_t priority;        /* 1 first; what --budget leaves out comes from the other end */
  int64_t scale;           /* enum suite_scale: global batch fixed, grown with ranks, or one layout beside one rank */
  int64_t hosts;           /* that its ranks have to stand on, as many on each           */
  double seconds;          /* without progress for so long it is stopped                */
  const struct check *checks[SUITE_CHECKS_MAX];
  int n_checks;
  /* Of kind frameworks: which program in which environment; what it is told to do wrong ("": nothing), and the cause
   * that this, or the version itself, has to be taken for ("": the case has to be green). */
  char adapter[CONFIG_NAME], environment[CONFIG_NAME], plant[CONFIG_NAME], cause[CONFIG_NAME];
  char note[SUITE_NOTE]; /* for the report */
};

struct suite {
  char name[CONFIG_NAME], path[CONFIG_PATH], question[512];
  enum suite_kind kind;
  struct suite_case *cases;
  int n;
  struct suite_case evidence; /* scaling, pipeline, overlap, imbalance: its checks and limit; n_checks 0: none given   */
  struct yaml *tree;          /* the file as read                                       */
};

/* Keys of a case that are the harness's, not the trainer's (`checks` is a list beside them). */
extern const struct opt suite_options[];
extern const int suite_options_count;
extern const char *const suite_kind_names[KIND_COUNT];

/* SUITE_QUICK: without the cases of sweeps that have none of the quick form, which may take seconds to combine; their
 * keys and values are read all the same.  Owner of *out: the caller, until suite_free().  Fails: ERR_IO, ERR_CONFIG, ERR_MEMORY. */
enum suite_form { SUITE_QUICK, SUITE_FULL };
enum err suite_read(const char *path, enum suite_form form, struct suite **out);
void suite_free(struct suite *s); /* NULL is allowed */
/* NULL: no such case. */
const struct suite_case *suite_find(const struct suite *s, const char *name);

/* The suite's `evidence` settings laid over c, for the conformance case of a scaled point. */
enum err suite_lay_evidence(const struct suite *s, struct run_config *c);

/* "conformance" or a path that ends in .yaml; unknown: ERR_CONFIG with the nearest names. */
enum err suite_path(const char *name, char *out, size_t bytes);

#endif
