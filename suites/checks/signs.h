/* signs.h - the evidence of one case that signatures of faults are looked for in. */
#ifndef CHECKS_SIGNS_H
#define CHECKS_SIGNS_H

#include "evidence.h"
#include "gap.h"

struct signs {
  const struct run_data *run, *truth;
  const struct verdict *list;
  int n;
  struct gaps first, second; /* gradients of steps 0 and 1; n = 0: none */
  bool clean_loss;           /* the run's own sums agree with the truth's at step 0 */
  double leftover;           /* cosine of (G - R at step 1) and (G at step 0); NaN if not known */
  double leftovers;          /* share of parameters whose own such cosine is near 1; NaN       */
};

const struct verdict *signs_failed(const struct signs *s, const char *check); /* its FAIL, or NULL */
bool signs_near(double a, double b, double relative);
/* A gradient that no legal rounding explains, with room above every ceiling. */
bool signs_is_off(const struct signs *s, const struct gap *row);
int signs_count_off(const struct signs *s, const struct gaps *g);
/* The matrix that is both embedding and head, and no other. */
bool signs_only_tied_is_off(const struct signs *s);

/* --- diagnose_foreign.c: causes of foreign runs, before the rules that all runs share -------- */

/* True: *out is filled. */
bool foreign_cause(const struct signs *s, struct diagnosis *out);

/* --- diagnose_precision.c: does it look like that? ----------------------------------------- */

bool precision_ranks_decide_apart(const struct signs *s);
bool precision_every_step_is_skipped(const struct signs *s);
bool precision_divided_by_a_scale(const struct signs *s);
bool precision_norm_is_a_half(const struct signs *s);

/* --- diagnose_cuts.c: does it look like that? --------------------------------------------- */

bool cuts_messages_wait_for_each_other(const struct signs *s);
bool cuts_replica_reads_different_data(const struct signs *s);
bool cuts_stage_received_poison(const struct signs *s);
bool cuts_masks_of_stages_differ(const struct signs *s);
bool cuts_stages_see_other_inputs(const struct signs *s);
bool cuts_tensor_ranks_add_too_much(const struct signs *s);
bool cuts_one_norm_is_off(const struct signs *s);
bool cuts_tied_stages_differ(const struct signs *s);
bool cuts_late_gradients_are_local(const struct signs *s);
bool cuts_boundary_sum_is_missing(const struct signs *s);
bool cuts_boundary_sum_is_lost(const struct signs *s);
bool cuts_norm_counts_otherwise(const struct signs *s);

/* --- diagnose_data.c ------------------------------------------------------------------------ */

bool data_epochs_are_alike(const struct signs *s);
bool data_place_is_off_by_one(const struct signs *s);
bool data_positions_go_on(const struct signs *s);

/* --- diagnose_offload.c --------------------------------------------------------------------- */

bool offload_moments_are_forgotten(const struct signs *s);
bool offload_state_was_fetched_early(const struct signs *s);
bool offload_place_was_filled_early(const struct signs *s);

/* --- diagnose_shares.c ---------------------------------------------------------------------- */

bool shares_norm_is_of_a_shard(const struct signs *s);
bool shares_stale_weights_were_handed_on(const struct signs *s);
bool shares_update_read_what_is_dead(const struct signs *s);
bool shares_shard_is_walked_wrongly(const struct signs *s);
bool shares_weights_were_read_early(const struct signs *s);

/* --- diagnose_streams.c --------------------------------------------------------------------- */

bool streams_reductions_are_in_compute(const struct signs *s);
bool streams_gathers_are_with_reductions(const struct signs *s);
bool streams_later_chunks_are_not_gathered_ahead(const struct signs *s);
bool streams_staging_was_poisoned(const struct signs *s);
bool streams_weights_are_gathered_without_limit(const struct signs *s);

#endif
