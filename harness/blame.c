/* blame.c - the lateness of a run's ranks, as one record. */
#include "harness/blame.h"
#include "harness/cut.h"

#include "suites/checks/lateness.h"
#include "suites/checks/planted.h"

#include <math.h>
#include <stddef.h>
#include <stdlib.h>

enum { SHOWN = 12 }; /* dearest costs */

static void record_costs(struct record_file *f, const struct lateness *x)
{
  const int n = x->n_costs < SHOWN ? x->n_costs : SHOWN;
  const char *phases[SHOWN];
  int64_t ranks[SHOWN], periods[SHOWN];
  double reals[SHOWN];
  static const struct {
    const char *key;
    size_t offset;
  } columns[] = {{"got.cost_ms", offsetof(struct lateness_cost, cost_ms)},
                 {"got.cost_low_ms", offsetof(struct lateness_cost, low_ms)},
                 {"got.cost_high_ms", offsetof(struct lateness_cost, high_ms)},
                 {"got.charge_ms", offsetof(struct lateness_cost, charge_ms)},
                 {"got.waits", offsetof(struct lateness_cost, waits)}};
  for (int i = 0; i < n; i++) {
    ranks[i] = x->costs[i].rank;
    phases[i] = graph_phase_name(x->costs[i].phase);
    periods[i] = x->costs[i].period;
  }
  record_ints(f, "got.cost_rank", ranks, n);
  record_texts(f, "got.cost_phase", phases, n);
  record_ints(f, "got.cost_period", periods, n);
  for (size_t k = 0; k < sizeof columns / sizeof *columns; k++) {
    for (int i = 0; i < n; i++) reals[i] = *(const double *)((const char *)&x->costs[i] + columns[k].offset);
    record_reals(f, columns[k].key, reals, n);
  }
}

static enum err record_parts(struct record_file *f, const struct lateness *x)
{
  static const struct {
    const char *key;
    size_t offset;
  } parts[] = {{"got.rank_data_ms", offsetof(struct lateness_parts, data_ms)},
               {"got.rank_forward_ms", offsetof(struct lateness_parts, forward_ms)},
               {"got.rank_backward_ms", offsetof(struct lateness_parts, backward_ms)},
               {"got.rank_optimizer_ms", offsetof(struct lateness_parts, optimizer_ms)},
               {"got.rank_other_ms", offsetof(struct lateness_parts, other_ms)},
               {"got.rank_transfer_ms", offsetof(struct lateness_parts, transfer_ms)},
               {"got.rank_waiting_ms", offsetof(struct lateness_parts, waiting_ms)},
               {"got.rank_bubble_ms", offsetof(struct lateness_parts, bubble_ms)},
               {"got.rank_between_ms", offsetof(struct lateness_parts, between_ms)},
               {"got.rank_step_ms", offsetof(struct lateness_parts, step_ms)}};
  double *list = malloc((size_t)x->ranks * sizeof *list);
  if (list == NULL) FAIL(ERR_MEMORY, "parts of %d ranks", x->ranks);
  for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
    for (int r = 0; r < x->ranks; r++) list[r] = *(const double *)((const char *)&x->parts[r] + parts[i].offset);
    record_reals(f, parts[i].key, list, x->ranks);
  }
  free(list);
  return ERR_OK;
}

static void record_named(struct record_file *f, const struct run_data *run, const struct lateness *x)
{
  const struct lateness_cost *c = lateness_named(run, x);
  char said[300] = "";
  const bool able = lateness_able(run, x, said, sizeof said);
  if (able && c) lateness_sentence(x, c, said, sizeof said);
  record_int(f, "got.blamed_rank", able && c ? c->rank : -1);
  record_text(f, "got.blamed_phase", able && c ? graph_phase_name(c->phase) : "");
  record_text(f, "got.sentence", able && c == NULL ? "nobody is to blame" : said);
}

static enum err record_planted(struct record_file *f, const struct run_config *c)
{
  struct planted p;
  TRY(planted_of(c, &p));
  record_int(f, "got.planted_rank", p.any ? p.rank : -1);
  record_text(f, "got.planted_phase", p.any ? graph_phase_name(p.phase) : "");
  record_real(f, "got.planted_ms", p.any ? p.cost_ms : 0);
  return ERR_OK;
}

static enum err record(struct record_file *f, const struct trial *t, const struct run_data *run, const struct lateness *x)
{
  char layout[CONFIG_NAME];
  cut_text(&run->config, layout, sizeof layout);
  record_begin(f, "blame", -1, -1);
  record_text(f, "got.suite", t->suite->name);
  record_text(f, "got.layout", layout);
  record_text(f, "got.compute", run->config.compute == COMPUTE_SLEEP ? "sleep" : "real");
  record_int(f, "got.steps", x->steps);
  record_real(f, "got.step_ms", x->step_ms);
  record_named(f, run, x);
  TRY(record_planted(f, &run->config));
  record_costs(f, x);
  record_real(f, "got.lost_ms", x->lost_ms);
  record_real(f, "got.charged_ms", x->charged_ms);
  record_real(f, "got.slowdown", x->step_ms / (x->step_ms - x->lost_ms));
  record_real(f, "got.unexplained", x->unexplained);
  record_real(f, "got.clock_error_ms", x->error_ms);
  record_real(f, "got.load_balance", x->load_balance);
  record_real(f, "got.serialisation", x->serialisation);
  record_real(f, "got.transfer", x->transfer);
  record_real(f, "got.efficiency", x->measured_busy);
  record_real(f, "got.remainder", x->load_balance * x->serialisation * x->transfer / x->measured_busy - 1);
  TRY(record_parts(f, x));
  return record_end(f);
}

enum err blame_record(const struct plan *p, const struct trial *t, const struct results *r)
{
  struct record_file *f;
  struct lateness x;
  if (t->run < 0 || t->part == PART_EVIDENCE || t->state != TRIAL_JUDGED) return ERR_OK;
  const struct run *run = &p->runs[t->run];
  if (!run->ended || lateness_measure(&run->data, &x) != ERR_OK) return ERR_OK;
  enum err err = record_open(r->records, t->name, -1, &f);
  if (!err) {
    err = record(f, t, &run->data, &x);
    record_close(f);
  }
  lateness_free(&x);
  return err ? err_trace(err, __FILE__, __LINE__) : ERR_OK;
}
