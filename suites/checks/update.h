/* update.h - what a diagnosis asks of a run's updates. */
#ifndef CHECKS_UPDATE_H
#define CHECKS_UPDATE_H

#include "base/safetensors.h"
#include "verdict.h"

/* Each update of the run is, within the bound of the check, the rule's with moments of zero before it.  False where that
 * cannot be told: no dumps, or a single step, whose moments were zero. */
bool update_forgets(const struct run_data *run);

/* What another rule than the one asked for does; all zeros: that one. */
struct update_rule {
  enum { UPDATE_DECAYS_AS_ASKED, UPDATE_DECAYS_ALL, UPDATE_DECAYS_NONE } decays;
  bool coupled;     /* decay is added to the gradient, as in L2 regularisation, not taken off the weight */
  bool uncorrected; /* moments are used as they are, without bias correction */
  bool unclipped;   /* gradients as they came                                */
  int64_t shift;    /* updates by which the schedule is ahead                */
};

/* Every update that a foreign run shows is that of this rule, within the bound of the check.  False if one is not, and where no weight
 * could be compared. */
bool update_explains(const struct run_data *run, const struct update_rule *rule);

/* The part of the check that moments show (update_moments.c): each of them from the one before it and the gradient, where there is one, and
 * the weight after from the moments after it.  Adds to *w what it compared.  Fails: ERR_FORMAT (names, shapes), ERR_MEMORY, ERR_IO. */
enum err update_by_moments(const struct run_data *run, const struct update_rule *rule, struct worst *w);

/* By what step 0's gradients were multiplied before they went into the first moments; false: not both are shown, or moments are no
 * multiple of gradients. */
bool update_factor_seen(const struct run_data *run, double *factor);

/* Which share of step 0's weight decay is in the first moments beside the gradients; false: as above. */
bool update_decay_seen(const struct run_data *run, double *share);

/* One element: gradient times factor g into moments and weight.  decay: of the parameter, as asked. */
struct schedule_element;
void update_apply(const struct run_config *c, const struct update_rule *rule, int64_t number, double lr, bool decay, double g,
                  struct schedule_element *e);
/* The weight after, from moments that are what they are after the update. */
double update_weight(const struct run_config *c, const struct update_rule *rule, int64_t number, double lr, bool decay, double weight,
                     double m, double v);
/* Weight decay of a parameter by that rule. */
double update_decay(const struct run_config *c, const struct update_rule *rule, bool asked);
/* The rate that the run tells, or else the schedule's; with the rule's shift always the schedule's. */
double update_rate(const struct run_data *run, const struct update_rule *rule, int64_t step);
/* Relative rounding of elements as stored, beyond float32's. */
double update_stored(const struct safetensor *t);

/* --- what a foreign run shows of its updates (update_shown.c) ---
 *
 * Weights, moments and gradients in a type narrower than float32, that of the state, are no evidence of an update: that type rounds away
 * what one does. */

/* Every tensor of that dump is float32 or wider; true too where it cannot be read, which whoever reads it says. */
bool update_wide(const struct run_data *run, const char *what, int64_t step);
/* Weights before and after the step are named, and what explains them: moments after it, or the gradients of all steps.  wide: in types that
 * are evidence. */
bool update_shown(const struct run_data *run, int64_t step, bool wide);
/* The latter: gradients from the first step on, and no moments. */
bool update_by_gradients(const struct run_data *run, bool wide);

/* Second moments as shown are not negative.  False: *out says which is. */
bool update_squares(const struct run_data *run, struct verdict *out);
/* Of updates that are not shown: the weights shown before and after are no farther apart than any gradients could move them.  False: *out
 * says which are, or what cannot be read. */
bool update_reaches(const struct run_data *run, struct verdict *out);

#endif
