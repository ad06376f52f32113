/* diagnose_cuts.c - signatures of faults of tensor, sequence and pipeline cuts. */
#include "base/schedule.h"
#include "bound.h"
#include "losses.h"
#include "signs.h"

#include <math.h>
#include <string.h>

/* Stages wait for each other's messages. */
bool cuts_messages_wait_for_each_other(const struct signs *s)
{
  const char *text = s->run->text;
  if (signs_failed(s, "ends") == NULL || strcmp(s->run->end, "timeout") != 0 || s->run->config.pp == 1) return false;
  static const char *const elsewhere[] = {"is stopped", "is gone", "has finished", "is behind"}; /* that rank is what they wait for */
  for (size_t i = 0; i < sizeof elsewhere / sizeof *elsewhere; i++)
    if (strstr(text, elsewhere[i])) return false;
  return strstr(text, "wait") && (strstr(text, "outputs #") || strstr(text, "gradients #"));
}

/* The first thing that is not a number is a loss, with stages in a pipeline: what the last one received. */
bool cuts_stage_received_poison(const struct signs *s)
{
  const struct verdict *finite = signs_failed(s, "finite");
  return finite != NULL && strcmp(finite->observable, "O3") == 0 && s->run->config.pp > 1;
}

/* Ranks of one model replica tell of different contents under one micro-batch's number. */
bool cuts_replica_reads_different_data(const struct signs *s)
{
  const struct run_config *c = &s->run->config;
  if (signs_failed(s, "batch") == NULL || c->tp * c->pp == 1) return false;
  for (int64_t m = 0; m < evidence_microbatches(c); m++)
    for (int rank = 0; rank < evidence_ranks(s->run); rank++) {
      const json_t *first = evidence_record(s->run, "batch", -1, 0, m),
                   *other = evidence_record(s->run, "batch", rank, 0, m);
      if (first && other && !evidence_same_text(first, other, "got.hash")) return true;
    }
  return false;
}

/* Of micro-batch m of step 0, relative. */
static double loss_off(const struct signs *s, int64_t m)
{
  return bound_relative(evidence_value(s->run, "microbatch", -1, 0, m, "got.loss_sum"),
                        evidence_value(s->truth, "microbatch", -1, 0, m, "got.loss_sum"));
}

/* What a rank does to every pass alike; one micro-batch that is off alone had another's numbers, say. */
static bool most_losses_are_off(const struct signs *s)
{
  const int64_t M = evidence_microbatches(&s->run->config);
  int64_t off = 0;
  for (int64_t m = 0; m < M; m++) off += !(loss_off(s, m) <= bound_no_rounding(BOUND_LOSS, (enum precision)s->run->config.precision));
  return 2 * off > M;
}

/* Losses of step 0 are off before anything was learned, and the data is right. */
static bool forward_is_off(const struct signs *s)
{
  return s->truth != NULL && !s->clean_loss && signs_failed(s, "loss") != NULL && signs_failed(s, "batch") == NULL &&
         signs_failed(s, "finite") == NULL && most_losses_are_off(s);
}

static double evaluation_off(const struct signs *s)
{
  for (int64_t step = 0; step <= s->run->config.steps; step++) {
    const double got = evidence_value(s->run, "eval", 0, step, -1, "got.loss"),
                 want = evidence_value(s->truth, "eval", -1, step, -1, "got.loss");
    if (isfinite(got) && isfinite(want)) return bound_relative(got, want);
  }
  return NAN;
}

/* Root of the mean square, over micro-batches of step 0, of how far their losses are off. */
static double training_off(const struct signs *s)
{
  const int64_t M = evidence_microbatches(&s->run->config);
  double sum = 0.0;
  for (int64_t m = 0; m < M; m++) sum += loss_off(s, m) * loss_off(s, m);
  return sqrt(sum / (double)M);
}

/* Masks alone are wrong: evaluation, which has none, is off by what one wrong update does, and training by far more. */
static bool masks_are_off(const struct signs *s)
{
  return s->run->config.dropout > 0.0 && evaluation_off(s) < 0.2 * training_off(s);
}

bool cuts_masks_of_stages_differ(const struct signs *s)
{
  return forward_is_off(s) && s->run->config.pp > 1 && masks_are_off(s);
}

bool cuts_stages_see_other_inputs(const struct signs *s)
{
  return forward_is_off(s) && s->run->config.pp > 1 && s->run->config.tp == 1;
}

bool cuts_tensor_ranks_add_too_much(const struct signs *s) 
{
  return forward_is_off(s) && s->run->config.tp > 1 && !masks_are_off(s);
}

/* All that is off is gain or bias of one norm, computed on shards of the sequence. */
bool cuts_one_norm_is_off(const struct signs *s)
{
  const char *norm = NULL;
  if (!s->run->config.sequence_parallel) return false;
  for (int i = 0; i < s->first.n; i++) {
    const char *name = s->first.rows[i].name;
    if (!signs_is_off(s, &s->first.rows[i])) continue;
    if (strstr(name, "ln_") == NULL) return false;
    if (norm && strncmp(name, norm, (size_t)(strrchr(norm, '.') - norm)) != 0) return false;
    norm = name;
  }
  return norm != NULL;
}

/* Gradients are off though the forward pass is right; the head's own, which comes before any boundary, is the only one
 * that may not be.  The lists of calls tell a sum that is missing from one that was made of something else. */
static bool boundary_is_off(const struct signs *s)
{
  return s->run->config.tp > 1 && s->clean_loss && s->first.n > 0 && 2 * signs_count_off(s, &s->first) > s->first.n;
}
bool cuts_boundary_sum_is_missing(const struct signs *s)
{
  const struct verdict *trace = signs_failed(s, "trace");
  return boundary_is_off(s) && trace && strstr(trace->worst, "group tp");
}
bool cuts_boundary_sum_is_lost(const struct signs *s) { return boundary_is_off(s) && signs_failed(s, "trace") == NULL; }

bool cuts_tied_stages_differ(const struct signs *s) { return s->run->config.pp > 1 && signs_only_tied_is_off(s); }

/* Replicas differ in the linear layers' gradients, all of them, and not in the embedding's. */
bool cuts_late_gradients_are_local(const struct signs *s)
{
  const struct verdict *replicas = signs_failed(s, "replicas");
  if (s->run->config.schedule != SCHEDULE_ZB_H1 || s->run->config.dp == 1 || !replicas ||
      !strstr(replicas->worst, "group dp"))
    return false;
  for (int i = 0; i < s->first.n; i++) {
    const struct gap *row = &s->first.rows[i];
    const bool linear = (strstr(row->name, ".attn.") || strstr(row->name, ".mlp.")) && strstr(row->name, ".weight");
    if ((linear && !signs_is_off(s, row)) || (strstr(row->name, "wpe") && signs_is_off(s, row))) return false;
  }
  return s->first.n > 0 && s->clean_loss;
}

/* Right gradients at step 0, and a norm that is not theirs, where tensor ranks share the squares. */
bool cuts_norm_counts_otherwise(const struct signs *s)
{
  if (s->run->config.tp == 1 || s->truth == NULL || signs_failed(s, "norm") == NULL || s->first.n == 0) return false;
  const double got = evidence_value(s->run, "step", 0, 0, -1, "got.norm"),
               want = evidence_value(s->truth, "step", -1, 0, -1, "got.norm");
  return signs_count_off(s, &s->first) == 0 &&
         !signs_near(got, want, bound_no_rounding(BOUND_NORM, bound_precision(&s->run->config, BOUND_NORM, 0)));
}
