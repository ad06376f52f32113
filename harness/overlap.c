/* overlap.c - the figure of hidden communication with its parts, as a record. */
#include "harness/overlap.h"
#include "harness/cut.h"

#include "suites/checks/hidden.h"

#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

static const struct {
  const char *key;
  size_t offset;
  bool bare;
} figures[] = {
    {"got.step_ms", offsetof(struct hidden, step_ms), false},
    {"got.silent_ms", offsetof(struct hidden, silent_ms), false},
    {"got.compute_ms", offsetof(struct hidden, compute_ms), false},
    {"got.alone_ms", offsetof(struct hidden, alone_ms), false},
    {"got.exposed_ms", offsetof(struct hidden, exposed_ms), false},
    {"got.traced_ms", offsetof(struct hidden, traced_ms), false},
    {"got.coverable_ms", offsetof(struct hidden, coverable_ms), false},
    {"got.hidden", offsetof(struct hidden, hidden), false},
    {"got.compute_slowdown", offsetof(struct hidden, compute_slowdown), false},
    {"got.transfer_slowdown", offsetof(struct hidden, transfer_slowdown), false},
    {"got.bare_alone_ms", offsetof(struct hidden, bare_alone_ms), true},
    {"got.bare_products_ms", offsetof(struct hidden, bare_products_ms), true},
    {"got.bare_hidden", offsetof(struct hidden, bare_hidden), true},
    {"got.bare_slowdown", offsetof(struct hidden, bare_slowdown), true},
    {"got.bare_processor_ms", offsetof(struct hidden, bare_processor_ms), true},
    {"got.bare_most", offsetof(struct hidden, bare_most), true},
};

static const struct hidden_figure *figure_of(const struct hidden *h, size_t i)
{
  return (const struct hidden_figure *)((const char *)h + figures[i].offset);
}

static bool measured(const struct plan *p, const struct trial *t, struct hidden *out)
{
  struct companion wanted[JUDGE_COMPANIONS_MAX];
  const struct run_data *have[JUDGE_COMPANIONS_MAX];
  for (int c = 0; c < t->n_checks; c++) {
    if (strcmp(t->checks[c]->name, "overlap") != 0) continue;
    hidden_companions(&p->runs[t->run].config, wanted, JUDGE_COMPANIONS_MAX);
    for (int i = 0; i < t->n_companions[c]; i++) have[i] = p->runs[t->companions[c][i]].ended ? &p->runs[t->companions[c][i]].data : NULL;
    return hidden_measure(&p->runs[t->run].data, wanted, have, t->n_companions[c], out) == ERR_OK;
  }
  return false;
}

static enum err record(struct record_file *f, const struct trial *t, const struct trial *proof, const struct run_config *c,
                       const struct hidden *h)
{
  char layout[CONFIG_NAME];
  cut_text(c, layout, sizeof layout);
  record_begin(f, "hidden", -1, -1);
  record_text(f, "got.suite", t->suite->name);
  record_text(f, "got.layout", layout);
  record_text(f, "got.evidence", proof->name);
  record_int(f, "got.ranks", config_ranks(c));
  record_int(f, "got.hosts", t->of->hosts);
  record_int(f, "got.bucket", c->bucket);
  record_int(f, "got.transfers", h->calls);
  record_int(f, "got.repeats", h->repeats);
  record_bool(f, "got.agrees", hidden_agrees(h));
  for (size_t i = 0; i < sizeof figures / sizeof *figures; i++) {
    char key[64];
    const struct hidden_figure *x = figure_of(h, i);
    if ((figures[i].bare && !h->has_bare) || isnan(x->value)) continue;
    record_real(f, figures[i].key, x->value);
    snprintf(key, sizeof key, "%s_repeats", figures[i].key);
    record_reals(f, key, x->each, h->repeats);
  }
  return record_end(f);
}

enum err overlap_record(const struct plan *p, const struct trial *t, const struct results *r)
{
  struct record_file *f;
  struct hidden h;
  const bool shown = t->outcome == OUTCOME_PASS || t->outcome == OUTCOME_INCONCLUSIVE || strcmp(t->reason, "bare") == 0;
  if (t->run < 0 || t->part != PART_TIMED || t->state != TRIAL_JUDGED || !shown || !p->runs[t->run].ended) return ERR_OK;
  if (!measured(p, t, &h)) return ERR_OK; /* its check says why */
  TRY(record_open(r->records, t->name, -1, &f));
  const enum err err = record(f, t, &p->trials[t->twin], &p->runs[t->run].config, &h);
  record_close(f);
  return err ? err_trace(err, __FILE__, __LINE__) : ERR_OK;
}
