/* memory.c - the worst rank decides; what no category holds is named unaccounted. */
#include "harness/memory.h"

#include "suites/checks/fitting.h"
#include "suites/checks/predict.h"
#include "suites/checks/published.h"

#include <stdio.h>
#include <string.h>

static const char *const categories[] = {"parameters", "gradients", "optimizer", "activations", "communication", "host", "other"};
enum { CATEGORIES = 7 };

double memory_needed(const struct run_config *c, int ranks_a_host) { return fitting_needed(c, ranks_a_host); }

/* Bytes of the rank that needs most, the first of them. */
static int worst_predicted(const struct run_config *c, struct predicted *out)
{
  struct predicted worst;
  const int64_t ranks = config_ranks(c);
  predict(c, &worst);
  for (int rank = 0; rank < ranks; rank++) {
    const struct layout at = layout_of(c, rank);
    predict_at(c, &at, out);
    if (out->total_bytes >= worst.total_bytes) return rank;
  }
  *out = worst;
  return 0;
}

void memory_refusal(const struct run_config *c, int ranks_a_host, double available_bytes, char *out, size_t room)
{
  struct predicted x;
  char nearest[200];
  const double needed_bytes = memory_needed(c, ranks_a_host);
  const int rank = worst_predicted(c, &x);
  double left[] = {x.parameters_bytes, x.gradients_bytes, x.optimizer_bytes, x.activations_bytes, x.communication_bytes, x.host_bytes};
  size_t used = (size_t)snprintf(out, room, "%lld ranks of model %s need %.2f GiB of memory here, %.2f GiB are available; most on rank %d, %.0f bytes",
                                 (long long)config_ranks(c), c->model, needed_bytes / 1073741824, available_bytes / 1073741824, rank, x.total_bytes);
  for (int k = 0; k < 3 && used < room; k++) {
    int largest = 0;
    for (int i = 1; i < CATEGORIES - 1; i++)
      if (left[i] > left[largest]) largest = i;
    used += (size_t)snprintf(out + used, room - used, "%s%s %.0f bytes", k ? ", " : ": ", categories[largest], left[largest]);
    left[largest] = -1;
  }
  fitting_text(c, (struct fitting_room){available_bytes, ranks_a_host}, nearest, sizeof nearest);
  if (used < room) snprintf(out + used, room - used, nearest[0] ? "; %s" : "; no smaller micro-batch, no larger zero and no layout fits%s", nearest);
}

/* The system's, without what is other ranks'. */
static int64_t mark_of(const json_t *record) { return record_get_int(record, "got.os_peak_bytes", 0) - record_get_int(record, "got.os_others_bytes", 0); }

/* Largest over smallest mark, and the record of the largest; each rank's last record counts. */
static const json_t *worst_rank(const json_t *records, double *spread)
{
  const json_t *worst = NULL;
  double largest = 0, smallest = 0;
  size_t i;
  json_t *r;
  json_array_foreach(records, i, r)
  {
    const char *kind = json_string_value(json_object_get(r, "kind"));
    if (kind == NULL || strcmp(kind, "memory") != 0) continue;
    if (record_get_int(r, "got.os_peak_bytes", -1) < 0) continue; /* ranks that share a card: no mark of its own */
    const double peak = (double)mark_of(r);
    if (worst == NULL || peak > largest) worst = r, largest = peak;
    if (smallest == 0 || peak < smallest) smallest = peak;
  }
  *spread = smallest > 0 ? largest / smallest : 1;
  return worst;
}

enum err memory_record(const struct plan *p, const struct trial *t, const struct results *r)
{
  double spread, planned = 0;
  struct predicted x;
  struct record_file *f;
  char key[64];
  if (t->run < 0) return ERR_OK;
  const struct run *run = &p->runs[t->run];
  const json_t *worst = worst_rank(run->data.records, &spread);
  if (worst == NULL) return ERR_OK;
  predict(&run->config, &x);
  const double predicted[] = {x.parameters_bytes, x.gradients_bytes, x.optimizer_bytes, x.activations_bytes, x.communication_bytes, x.host_bytes};
  const int64_t peak = mark_of(worst);
  char precision[CONFIG_NAME], offload[CONFIG_NAME];
  opt_text(opt_find(run_options, run_options_count, "precision"), &run->config, precision, sizeof precision);
  opt_text(opt_find(run_options, run_options_count, "offload"), &run->config, offload, sizeof offload);
  TRY(record_open(r->records, t->name, -1, &f));
  record_begin(f, "memory_point", -1, -1);
  record_text(f, "got.suite", t->suite->name);
  record_int(f, "got.ranks", run->ranks);
  record_text(f, "got.precision", precision);
  record_int(f, "got.dp", run->config.dp);
  record_int(f, "got.tp", run->config.tp);
  record_int(f, "got.pp", run->config.pp);
  record_int(f, "got.zero", run->config.zero);
  record_text(f, "got.offload", offload);
  record_int(f, "got.rank_parameters", (int64_t)x.rank_parameters);
  record_int(f, "got.worst_rank", record_get_int(worst, "rank", -1));
  record_int(f, "got.peak_bytes", peak);
  for (int i = 0; i < CATEGORIES; i++) {
    snprintf(key, sizeof key, "got.%s_bytes", categories[i]);
    const int64_t bytes = record_get_int(worst, key, 0);
    planned += (double)bytes;
    record_int(f, key, bytes);
  }
  record_int(f, "got.planned_bytes", (int64_t)planned);
  record_int(f, "got.others_bytes", record_get_int(worst, "got.os_others_bytes", 0));
  record_int(f, "got.unaccounted_bytes", peak - (int64_t)planned);
  record_real(f, "got.mean_bytes", record_get_real(worst, "got.mean_bytes", 0));
  record_real(f, "got.largest_over_smallest", spread);
  record_real(f, "got.predicted_bytes", x.total_bytes);
  for (int i = 0; i < CATEGORIES - 1; i++) {
    snprintf(key, sizeof key, "got.predicted_%s_bytes", categories[i]);
    record_real(f, key, predicted[i]);
  }
  record_real(f, "got.published_states_bytes", published_states_of(&run->config));
  record_real(f, "got.published_activations_bytes", published_activations_of(&run->config));
  const enum err err = record_end(f);
  record_close(f);
  return err ? err_trace(err, __FILE__, __LINE__) : ERR_OK;
}
