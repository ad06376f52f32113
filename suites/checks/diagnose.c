/* diagnose.c - from what all checks of a case say together to the likeliest cause.
 *
 * Each rule is a signature: a pure function of the evidence that answers whether this run looks like
 * that fault.  Rules stand in order, the most telling first; the first that matches speaks.  The name of a
 * planted fault is never read; fault_rows gives only the sentence.
 */
#include "base/fault.h"
#include "bound.h"
#include "losses.h"
#include "predict.h"
#include "schedule.h"
#include "signs.h"

#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* --- hangs and order -------------------------------------------------------------------- */

/* Its last word: memory is told once all steps are done. */
static bool said_its_end(const struct run_data *run, int rank) { return evidence_count(run, "memory", rank, -1, -1) > 0; }

static bool rank_ended_early(const struct signs *s)
{
  if (signs_failed(s, "ends") == NULL || strcmp(s->run->end, "timeout") != 0) return false;
  int ended = 0, most = 0, least = INT_MAX;
  for (int rank = 0; rank < evidence_ranks(s->run); rank++) {
    const int told = evidence_count(s->run, "step", rank, -1, -1);
    ended += said_its_end(s->run, rank);
    if (told > most) most = told;
    if (told < least) least = told;
  }
  return (ended > 0 && ended < evidence_ranks(s->run)) || most > least;
}

static bool order_differs(const struct signs *s)
{
  const struct verdict *trace = signs_failed(s, "trace");
  return trace != NULL && strstr(trace->worst, "order") != NULL;
}

/* --- not a number ------------------------------------------------------------------------ */

static bool infinite_norm(const struct signs *s)
{
  const struct verdict *finite = signs_failed(s, "finite");
  if (s->run->foreign && (finite == NULL || strstr(finite->worst, "norm of") == NULL)) return false;
  return finite != NULL && strcmp(finite->observable, "O4") != 0 && strcmp(finite->observable, "O3") != 0 && signs_count_off(s, &s->first) == 0;
}

static bool poison_read(const struct signs *s)
{
  const struct verdict *finite = signs_failed(s, "finite");
  return finite != NULL && !s->run->foreign && strcmp(finite->observable, "O4") == 0; /* losses before them were finite */
}

/* --- self-test ---------------------------------------------------------------------------- */

/* Wrong elements in measurements whose name has `part`, and in no other; part "": in any. */
static bool wrong_elements(const struct signs *s, const char *part)
{
  bool inside = false, outside = false;
  if (signs_failed(s, "collectives") == NULL) return false;
  for (size_t i = 0; i < json_array_size(s->run->records); i++) {
    const json_t *record = json_array_get(s->run->records, i);
    if (!evidence_is(record, "measure") || !(evidence_real(record, "got.wrong") > 0.0)) continue;
    if (strstr(evidence_text(record, "got.what"), part)) inside = true;
    else outside = true;
  }
  return inside && !outside;
}
static bool far_rows_wrong(const struct signs *s) { return wrong_elements(s, "copy.far"); }
static bool strides_ignored(const struct signs *s) { return wrong_elements(s, "strided"); }
/* In the self-test; or in training: every gradient that is off is so in one element or a few alone. */
static bool bits_changed(const struct signs *s)
{
  const struct verdict *finite = signs_failed(s, "finite");
  const bool numbers = finite == NULL || strcmp(finite->observable, "O4") != 0; /* poison is no changed bit */
  const bool training = numbers && s->clean_loss && signs_count_off(s, &s->first) > 0;
  for (int i = 0; training && i < s->first.n; i++) {
    const struct gap *row = &s->first.rows[i];
    const json_t *facts = evidence_parameter(s->run, row->name);
    const double elements = facts ? evidence_real(facts, "got.rows") * evidence_real(facts, "got.cols") : 0.0;
    if (signs_is_off(s, row) && row->touched * elements > fmax(1.0, elements / 32.0)) return false;
  }
  return training || wrong_elements(s, "");
}

/* --- the same twice ----------------------------------------------------------------------- */

/* Bits that differ between runs that should be equal, first in an embedding's gradient, with all gradients
 * within their bounds: the same terms were added in another order. */
static bool embedding_only_differs(const struct signs *s)
{
  static const char *const checks[] = {"rerun", "overlap_off", "twin"};
  for (size_t i = 0; i < sizeof checks / sizeof *checks; i++) {
    const struct verdict *v = signs_failed(s, checks[i]);
    const bool embedding = v != NULL && strstr(v->worst, "(gradients)") && (strstr(v->worst, "wte") || strstr(v->worst, "wpe"));
    if (embedding) return s->first.n > 0 && signs_failed(s, "gradients") == NULL;
  }
  return false;
}

/* Bits change with recompute alone.  Selective makes nothing with a mask in it again. */
static bool masks_are_drawn_anew(const struct signs *s)
{
  const struct run_config *c = &s->run->config;
  return signs_failed(s, "recompute_off") != NULL && s->clean_loss && c->recompute == RECOMPUTE_FULL && c->dropout > 0.0;
}
static bool recompute_reads_another_block(const struct signs *s)
{
  return signs_failed(s, "recompute_off") != NULL && s->clean_loss;
}

/* Overlap on and off differ, or lazy saw gradients touched while their reduction may still be under way. */
static bool overlap_is_unordered(const struct signs *s)
{
  if (signs_failed(s, "overlap_off") != NULL || signs_failed(s, "undelayed") != NULL) return true;
  const json_t *finding = evidence_record(s->run, "finding", -1, -1, -1);
  const char *text = finding ? evidence_text(finding, "got.text") : "";
  return strstr(text, "unordered") && strstr(text, "gradients") && strstr(text, "allreduce");
}

/* --- losses ------------------------------------------------------------------------------- */

/* Foreign sums are carried in float32, or are the truth's; these are as near as the type allows. */
static double same_loss(const struct signs *s)
{
  if (!s->run->foreign) return 1e-9;
  const bool own = evidence_tells(s->run, "microbatch", NULL);
  return bound_is_narrow((enum precision)s->run->config.precision) && !own ? 1e-3 : 2e-6;
}

/* What rank 0 reports of a step is the run's own whole sum: it is no mean of parts that happens to be near, as with as many tokens in each. */
static bool loss_is_whole(const struct signs *s, int64_t step)
{
  const struct loss_sums all = losses_shown(s->run, s->truth, step, -1);
  const double sum = evidence_value(s->run, "step", 0, step, -1, "got.loss_sum");
  return signs_near(evidence_value(s->run, "step", 0, step, -1, "got.loss"), all.sum / all.tokens, same_loss(s)) &&
         (isnan(sum) || signs_near(sum, all.sum, same_loss(s)));
}

static double reported_loss(const struct signs *s, int rank) { return evidence_value(s->run, "step", rank, 0, -1, "got.loss"); }

static bool evaluation_scaled(const struct signs *s)
{
  if (signs_failed(s, "loss") == NULL) return false;
  const json_t *eval = evidence_record(s->run, "eval", 0, -1, -1);
  if (eval == NULL) return false;
  const double loss = evidence_real(eval, "got.loss"), train = evidence_real(eval, "got.train_loss");
  return isfinite(loss) && isfinite(train) && !signs_near(loss, train, 1e-9);
}

static bool loss_is_local(const struct signs *s)
{
  const int replicas = (int)s->run->config.dp;
  if (signs_failed(s, "loss") == NULL || replicas == 1 || signs_count_off(s, &s->first) > 0 || (s->run->foreign && loss_is_whole(s, 0))) return false;
  for (int rank = 0; rank < evidence_ranks(s->run); rank++) {
    const double got = reported_loss(s, rank);
    for (int other = 0; other < replicas; other++) {
      const struct loss_sums local = losses_shown(s->run, s->truth, 0, other);
      const double sum = s->run->foreign ? evidence_value(s->run, "step", rank, 0, -1, "got.loss_sum") : NAN;
      if (signs_near(got, local.sum / local.tokens, same_loss(s)) || signs_near(sum, local.sum, same_loss(s))) return true;
    }
  }
  return false;
}

/* Means over micro-batches, averaged. */
static bool loss_is_mean_of_means(const struct signs *s)
{
  const struct loss_sums all = losses_shown(s->run, s->truth, 0, -1);
  if (all.microbatches < 2 || signs_failed(s, "loss") == NULL || loss_is_whole(s, 0)) return false;
  return signs_near(reported_loss(s, 0), all.mean_of_means, same_loss(s));
}

static double mean_over_replicas(const struct signs *s, int64_t step)
{
  double mean = 0.0;
  for (int replica = 0; replica < s->run->config.dp; replica++) {
    const struct loss_sums local = losses_shown(s->run, s->truth, step, replica);
    mean += local.sum / local.tokens / (double)s->run->config.dp;
  }
  return mean;
}

/* In the first step whose replicas do not count alike: where they do, the mean is the whole. */
static bool loss_is_mean_over_replicas(const struct signs *s)
{
  int64_t step = 0;
  if (s->run->config.dp == 1 || signs_failed(s, "loss") == NULL) return false;
  while (step < s->run->config.steps && loss_is_whole(s, step)) step++;
  return step < s->run->config.steps &&
         signs_near(evidence_value(s->run, "step", 0, step, -1, "got.loss"), mean_over_replicas(s, step), same_loss(s));
}

/* --- gradients ---------------------------------------------------------------------------- */

/* Off everywhere, in direction too: the parts of the batch are weighted wrongly. */
static bool weights_of_parts_differ(const struct signs *s)
{
  return s->clean_loss && s->first.n > 0 && 2 * signs_count_off(s, &s->first) > s->first.n;
}
static bool weighted_by_microbatch(const struct signs *s)
{
  return weights_of_parts_differ(s) && evidence_microbatches(&s->run->config) > s->run->config.dp &&
         (config_ranks(&s->run->config) == 1 || loss_is_mean_of_means(s));
}
static bool weighted_by_replica(const struct signs *s) { return weights_of_parts_differ(s) && s->run->config.dp > 1; }

/* Gradient reductions of step 0 that rank 0 queued; -1: no trace. */
static int64_t reductions(const struct signs *s)
{
  const json_t *calls = json_object_get(evidence_record(s->run, "trace", 0, 0, -1), "got.calls");
  int64_t n = 0;
  if (!json_is_array(calls)) return -1;
  for (size_t i = 0; i < json_array_size(calls); i++) n += strstr(json_string_value(json_array_get(calls, i)), " dp ") != NULL;
  return n;
}

/* As many reductions of gradients as planned, of the elements that were planned, in another type. */
static bool reduced_in_another_type(const struct signs *s)
{
  const struct verdict *trace = signs_failed(s, "trace");
  const enum dtype type = run_reduce_type(&s->run->config);
  if (trace == NULL || strstr(trace->worst, "group dp") == NULL || type == DTYPE_BF16) return false;
  return strstr(trace->sentence, " dp transfer bfloat16 ") != NULL;
}

/* Reductions are missing, and every parameter that is off has exactly as many elements as a bucket. */
static bool exact_fits_are_off(const struct signs *s)
{
  if (s->run->config.bucket == 0 || signs_count_off(s, &s->first) == 0) return false;
  struct predicted planned;
  const struct layout at = layout_of(&s->run->config, 0);
  predict_at(&s->run->config, &at, &planned);
  if ((double)reductions(s) >= planned.allreduce_calls) return false;
  for (int i = 0; i < s->first.n; i++) {
    const char *name = s->first.rows[i].name;
    const json_t *facts = evidence_parameter(s->run, name);
    if (s->first.rows[i].zero || facts == NULL) continue;
    const double elements = evidence_real(facts, "got.rows") * evidence_real(facts, "got.cols");
    if (signs_is_off(s, &s->first.rows[i]) && elements != (double)s->run->config.bucket) return false;
  }
  return true;
}

/* Right at step 0, wrong from step 1 on, though the update was right: what is too much at step 1 is a multiple
 * of step 0's gradient. */
static bool leftover_of_step_before(const struct signs *s)
{
  return s->first.n > 0 && signs_count_off(s, &s->first) == 0 && 2 * signs_count_off(s, &s->second) > s->second.n && signs_failed(s, "update") == NULL &&
         (s->leftover > 0.99 || (s->run->foreign && s->leftovers > 0.9));
}

/* --- update ------------------------------------------------------------------------------- */

static bool factor_above_one(const struct signs *s)
{
  const double norm = evidence_value(s->run, "step", 0, 0, -1, "got.norm"), factor = evidence_value(s->run, "step", 0, 0, -1, "got.clip_factor");
  if (signs_failed(s, "update") == NULL || s->run->config.clip <= 0.0) return false;
  return factor > 1.0 || (norm > s->run->config.clip && factor == 1.0);
}

/* The rate of update k is the closed form's at m * k, m = ranks, micro-batches of a rank, or of all. */
static bool schedule_runs_ahead(const struct signs *s)
{
  if (signs_failed(s, "update") == NULL) return false;
  const int64_t all = evidence_microbatches(&s->run->config), ranks = config_ranks(&s->run->config), steps = evidence_steps(s->run);
  const int64_t factors[] = {all, ranks, all / ranks};
  for (size_t i = 0; i < sizeof factors / sizeof *factors; i++) {
    bool fits = factors[i] > 1 && steps > 0, differs = false;
    for (int64_t step = 0; step < steps; step++) {
      const double lr = evidence_value(s->run, "step", 0, step, -1, "got.lr");
      fits = fits && fabs(lr - schedule_lr(&s->run->config, (step + 1) * factors[i])) <= (s->run->foreign ? 1e-6 : 1e-12) * s->run->config.lr;
      differs = differs || !signs_near(lr, schedule_lr(&s->run->config, step + 1), s->run->foreign ? 1e-6 : 1e-12);
    }
    if (fits && differs) return true;
  }
  return false;
}

/* What was measured and what was predicted of a category or of the whole: not what no category holds. */
static bool memory_is_off(const struct signs *s)
{
  const struct verdict *memory = signs_failed(s, "memory");
  return memory != NULL && strstr(memory->worst, "formula") != NULL;
}

static bool step_is_shorter_than_its_parts(const struct signs *s)
{
  const struct verdict *clock = signs_failed(s, "clock");
  return clock != NULL && strstr(clock->worst, "parts of step") != NULL;
}

static const struct {
  enum fault cause;
  bool (*looks)(const struct signs *s);
} rules[] = {
  {FAULT_PP_INTERLEAVED_P2P_DEADLOCK, cuts_messages_wait_for_each_other},
  {FAULT_HG_UNEVEN_STEPS, rank_ended_early},
  {FAULT_MM_INT32_INDEX_OVERFLOW, far_rows_wrong},
  {FAULT_CL_NONCONTIGUOUS_TENSOR, strides_ignored},
  {FAULT_CL_LL128_CORRUPTION, bits_changed},
  {FAULT_DATA_SAMPLER_IGNORES_MODEL_PARALLEL, cuts_replica_reads_different_data},
  {FAULT_DATA_SAME_ORDER_EVERY_EPOCH, data_epochs_are_alike},
  {FAULT_DATA_POSITION_OFF_BY_SHARD, data_place_is_off_by_one},
  {FAULT_DATA_PACKED_POSITIONS, data_positions_go_on},
  {FAULT_PP_SEND_BUFFER_FREED_EARLY, cuts_stage_received_poison},
  {FAULT_PR_OVERFLOW_NOT_GLOBAL, precision_ranks_decide_apart},
  {FAULT_PR_GRAD_NORM_IN_FP16, precision_norm_is_a_half},
  {FAULT_Z_FOREIGN_PIECE, shares_update_read_what_is_dead},
  {FAULT_CLIP_INF_HANDLING, infinite_norm},
  {FAULT_OV_MEMORY_RECYCLED_BEFORE_USE, streams_staging_was_poisoned},
  {FAULT_Z_UNINITIALISED_COMM_BUFFER, poison_read},
  {FAULT_HG_CONCURRENT_COMMUNICATORS, order_differs},
  {FAULT_OV_SERIALISED_BY_CONNECTIONS, streams_reductions_are_in_compute},
  {FAULT_OV_ALLGATHER_NOT_OVERLAPPED, streams_gathers_are_with_reductions},
  {FAULT_PP_ALIGNED_GATHER_ONLY_FIRST, streams_later_chunks_are_not_gathered_ahead},
  {FAULT_LN_VAL_LOSS_RESCALED, evaluation_scaled},
  {FAULT_LN_LOGGED_LOSS_LOCAL_ONLY, loss_is_local},
  {FAULT_LN_GA_MEAN_OF_MEANS, loss_is_mean_of_means},
  {FAULT_LN_RANK_TOKEN_IMBALANCE, loss_is_mean_over_replicas},
  {FAULT_PR_OVERFLOW_RETURN_MISPLACED, precision_every_step_is_skipped},
  {FAULT_PR_BF16_DIVIDED_BY_FP16_SCALE, precision_divided_by_a_scale},
  {FAULT_OPT_OFFLOAD_NEVER_STORED, offload_moments_are_forgotten},
  {FAULT_OV_OFFLOAD_FETCHED_TOO_EARLY, offload_state_was_fetched_early},
  {FAULT_OV_OFFLOAD_PLACE_REUSED, offload_place_was_filled_early},
  {FAULT_CLIP_LOCAL_NORM, shares_norm_is_of_a_shard},
  {FAULT_GR_BCAST_UNCAST_BUFFER, shares_stale_weights_were_handed_on},
  {FAULT_CLIP_MAX_FOR_MIN, factor_above_one},
  {FAULT_OPT_LR_STEPS_BY_WORLD, schedule_runs_ahead},
  {FAULT_Z_PADDING_STRIDE, shares_shard_is_walked_wrongly},
  {FAULT_OV_PARAM_GATHER_READ_TOO_EARLY, shares_weights_were_read_early},
  {FAULT_RNG_RECOMPUTE_FRESH_MASK, masks_are_drawn_anew},
  {FAULT_MM_RECOMPUTE_BUFFER_ALIASED, recompute_reads_another_block},
  {FAULT_RNG_NONDETERMINISTIC_EMBEDDING_BWD, embedding_only_differs},
  {FAULT_PP_LAYER_NUMBER_LOCAL, cuts_masks_of_stages_differ},
  {FAULT_PP_META_SHAPES_OR_POSITIONS, cuts_stages_see_other_inputs},
  {FAULT_TP_ROW_BIAS_ADDED_PER_RANK, cuts_tensor_ranks_add_too_much},
  {FAULT_TP_SP_NORM_GRAD_NOT_REDUCED, cuts_one_norm_is_off},
  {FAULT_PP_TIED_EMBEDDING_NOT_SUMMED, cuts_tied_stages_differ},
  {FAULT_PP_ZB_BYPASSES_HOOKS, cuts_late_gradients_are_local},
  {FAULT_TP_MISSING_BWD_ALLREDUCE_AT_BOUNDARY, cuts_boundary_sum_is_missing},
  {FAULT_TP_NONCONTIGUOUS_INPLACE_ALLREDUCE, cuts_boundary_sum_is_lost},
  {FAULT_CLIP_TP_DUPLICATE_UNDER_OR_OVER_COUNT, cuts_norm_counts_otherwise},
  {FAULT_Z_REDUCE_DTYPE_SILENTLY_LOW, reduced_in_another_type},
  {FAULT_GR_BUCKET_EXACT_FIT_SKIPPED, exact_fits_are_off},
  {FAULT_GR_TIED_PARAM_ONE_SLOT, signs_only_tied_is_off},
  {FAULT_GR_STALE_GRAD_AFTER_WRITE, leftover_of_step_before},
  {FAULT_OV_BUFFER_OVERWRITTEN_WHILE_IN_FLIGHT, overlap_is_unordered},
  {FAULT_LN_GA_MEAN_OF_MEANS, weighted_by_microbatch},
  {FAULT_LN_RANK_TOKEN_IMBALANCE, weighted_by_replica},
  {FAULT_MM_RECORD_STREAM_OVERALLOCATION, streams_weights_are_gathered_without_limit},
  {FAULT_MM_WRONG_ESTIMATE, memory_is_off},
  {FAULT_PF_METRICS_WRONG, step_is_shorter_than_its_parts},
};

static bool loss_sums_agree(const struct run_data *run, const struct run_data *truth)
{
  struct loss_sums mine = losses_gather(run, 0, -1), theirs = losses_gather(truth, 0, -1);
  if (run->foreign && !evidence_tells(run, "microbatch", NULL)) { /* the step's own words, a loss alone perhaps */
    const double loss = evidence_value(run, "step", 0, 0, -1, "got.loss"), sum = evidence_value(run, "step", 0, 0, -1, "got.loss_sum");
    mine = (struct loss_sums){.sum = isnan(sum) ? loss * theirs.tokens : sum, .tokens = theirs.tokens};
  }
  return signs_near(mine.sum, theirs.sum, bound_no_rounding(BOUND_LOSS, (enum precision)run->config.precision)) && mine.tokens == theirs.tokens;
}

/* Gradients of a step that was skipped say nothing. */
static enum err measure_gaps(struct signs *s)
{
  TRY(gap_measure(s->run, s->truth, 0, &s->first));
  if (evidence_skipped(s->truth, 1)) return ERR_OK;
  TRY(gap_measure(s->run, s->truth, 1, &s->second));
  return gap_leftover(s->run, s->truth, &s->leftover, &s->leftovers);
}

static void name_cause(const struct signs *s, struct diagnosis *out)
{
  for (size_t i = 0; i < sizeof rules / sizeof *rules; i++)
    if (rules[i].looks(s)) {
      snprintf(out->fault, sizeof out->fault, "%s", fault_rows[rules[i].cause].name);
      snprintf(out->sentence, sizeof out->sentence, "%s", fault_rows[rules[i].cause].cause);
      return;
    }
}

void judge_diagnose(const struct run_data *run, const struct companion *wanted, const struct run_data *const *companions, int n,
                    struct verdict *list, int verdicts, struct diagnosis *out)
{
  struct signs s = {.run = run, .list = list, .n = verdicts, .leftover = NAN, .leftovers = NAN};
  memset(out, 0, sizeof *out);
  bool any = false;
  for (int i = 0; i < verdicts; i++) any = any || list[i].outcome == OUTCOME_FAIL;
  if (!any) return;

  s.truth = evidence_companion(wanted, companions, n, "truth");
  if (s.truth != NULL) {
    s.clean_loss = loss_sums_agree(run, s.truth);
    if (measure_gaps(&s) != ERR_OK) err_clear(); /* dumps that are absent leave the rules about gradients without evidence */
  }
  if (!run->foreign || !foreign_cause(&s, out)) name_cause(&s, out);
  gap_free(&s.first);
  gap_free(&s.second);
  for (int i = 0; i < verdicts; i++)
    if (list[i].outcome == OUTCOME_FAIL) snprintf(list[i].cause, sizeof list[i].cause, "%s", out->sentence);
}
