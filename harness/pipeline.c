/* pipeline.c - what a pipeline's stages did in time, as records. */
#include "harness/pipeline.h"
#include "harness/cut.h"

#include "suites/checks/idle.h"

#include <stddef.h>
#include <stdio.h>


static void record_parts(struct record_file *f, const struct idle *x)
{
  static const struct {
    const char *key;
    size_t offset;
  } parts[] = {{"got.stage_idle_ms", offsetof(struct idle_stage, idle_ms)},
               {"got.stage_schedule_ms", offsetof(struct idle_stage, schedule_ms)},
               {"got.stage_imbalance_ms", offsetof(struct idle_stage, imbalance_ms)},
               {"got.stage_transfer_ms", offsetof(struct idle_stage, transfer_ms)}};
  for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
    double list[SCHEDULE_RANKS_MAX];
    for (int k = 0; k < x->stages; k++) list[k] = *(const double *)((const char *)&x->stage[k] + parts[i].offset);
    record_reals(f, parts[i].key, list, x->stages);
  }
}

static enum err record_bubble(struct record_file *f, const struct trial *t, const struct run_config *c,
                              const struct idle *x)
{
  struct cut_pipeline equal;
  char layout[CONFIG_NAME];
  TRY(cut_verify(c, &equal));
  cut_text(c, layout, sizeof layout);
  record_begin(f, "bubble", -1, -1);
  record_text(f, "got.suite", t->suite->name);
  record_text(f, "got.layout", layout);
  record_text(f, "got.schedule", schedule_name((enum schedule_kind)c->schedule));
  record_text(f, "got.compute", c->compute == COMPUTE_SLEEP ? "sleep" : "real");
  record_int(f, "got.stages", x->stages);
  record_int(f, "got.chunks", c->chunks);
  record_int(f, "got.microbatches", config_accumulation(c));
  record_int(f, "got.steps", x->steps);
  record_real(f, "got.window_ms", x->total_ms);
  record_real(f, "got.bubble_ms", x->bubble_ms);
  record_real(f, "got.of_ideal", x->bubble_ms / x->busy_ms);
  record_real(f, "got.of_total", x->bubble_ms / x->total_ms);
  record_real(f, "got.simulated_window_ms", x->simulated_total_ms);
  record_real(f, "got.simulated_bubble_ms", x->simulated_bubble_ms);
  record_real(f, "got.equal_of_ideal", equal.of_ideal);
  record_real(f, "got.equal_of_total", equal.of_total);
  record_real(f, "got.forward_ms", x->forward_ms);
  record_real(f, "got.input_ms", x->input_ms);
  record_real(f, "got.weight_ms", x->weight_ms);
  record_real(f, "got.transfer_ms", x->transfer_ms);
  record_real(f, "got.late_ms", x->late_ms);
  record_int(f, "got.live", equal.live);
  record_parts(f, x);
  return record_end(f);
}

/* Compute and transfers of one stage, in the order of its list. */
static enum err record_timeline(struct record_file *f, const struct idle *x, int stage)
{
  enum { ACTIONS = 4096, TEXT = 32 };
  const struct idle_stage *of = &x->stage[stage];
  const char *passes[ACTIONS];
  char texts[ACTIONS][TEXT];
  const int n = of->n < ACTIONS ? of->n : ACTIONS; /* more than that nobody can see in a figure */
  for (int i = 0; i < n; i++) {
    const struct schedule_action *a = &x->schedule->list[stage][i];
    snprintf(texts[i], TEXT, "%s %d %d", schedule_pass_name(a->pass), a->microbatch, a->chunk);
    passes[i] = texts[i];
  }
  record_begin(f, "timeline", x->shown, -1);
  record_int(f, "got.stage", stage);
  record_texts(f, "got.passes", passes, n);
  record_reals(f, "got.start_ms", of->start_ms, n);
  record_reals(f, "got.end_ms", of->end_ms, n);
  record_reals(f, "got.simulated_start_ms", of->simulated_start_ms, n);
  record_reals(f, "got.simulated_end_ms", of->simulated_end_ms, n);
  return record_end(f);
}

enum err pipeline_record(const struct plan *p, const struct trial *t, const struct results *r)
{
  enum err err;
  struct record_file *f;
  struct idle x;
  if (t->run < 0 || t->part != PART_TIMED || t->state != TRIAL_JUDGED) return ERR_OK;
  const struct run *run = &p->runs[t->run];
  if (!run->ended || idle_measure(&run->data, 0, 0, &x) != ERR_OK) return ERR_OK; /* its check says why */
  TRY_TO(free_idle, record_open(r->records, t->name, -1, &f));
  err = record_bubble(f, t, &run->config, &x);
  for (int stage = 0; !err && stage < x.stages; stage++) err = record_timeline(f, &x, stage);
  record_close(f);
free_idle:
  idle_free(&x);
  return err ? err_trace(err, __FILE__, __LINE__) : ERR_OK;
}
