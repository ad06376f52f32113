/* runner.c - which runs share a job, and what becomes of them. */
#include "harness/runner.h"
#include "harness/ending.h"
#include "harness/interrupt.h"
#include "harness/job.h"

#include "base/clock.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { BATCH_MAX = 48, BAD_MAX = 4, JOBS_MAX = 6 };
/* Under a budget: few runs a job, and none from far down the list. */
enum { BATCH_BUDGET = 6, REACH_BUDGET = 24 };

struct active {
  struct job *job;
  int n, told; /* runs in it; of them, taken over as ended */
  int *runs;
  struct job_case *cases;
  const char **files;
  char (*paths)[CONFIG_PATH];
  double started_ms;
};

static void active_free(struct active *a)
{
  job_close(a->job);
  free(a->runs);
  free(a->cases);
  free(a->files);
  free(a->paths);
  *a = (struct active){0};
}

/* --- one job ------------------------------------------------------------------------- */

static enum err active_start(const struct runner *r, const struct runner_timed *wanted, struct active *out)
{
  const int *runs = wanted->runs, n = wanted->n;
  enum err err;
  struct active a = {.n = n, .started_ms = clock_ms()};
  a.runs = malloc((size_t)n * sizeof *a.runs);
  a.cases = malloc((size_t)n * sizeof *a.cases);
  a.files = malloc((size_t)n * sizeof *a.files);
  a.paths = malloc((size_t)n * sizeof *a.paths);
  if (!a.runs || !a.cases || !a.files || !a.paths) FAIL_TO(free_active, ERR_MEMORY, "a job of %d runs", n);
  for (int i = 0; i < n; i++) {
    const struct run *run = &r->plan->runs[runs[i]];
    a.runs[i] = runs[i];
    a.cases[i] = (struct job_case){.name = run->name, .dir = run->dir, .ranks = run->ranks, .seconds = run->seconds, .foreign = run->foreign};
    TRY_TO(free_active, results_clean_run(run->dir));
    if (snprintf(a.paths[i], sizeof a.paths[i], "%s/run.yaml", run->dir) >= (int)sizeof a.paths[i])
      FAIL_TO(free_active, ERR_CONFIG, "path too long: %s", run->dir);
    a.files[i] = wanted->program ? wanted->file : a.paths[i];
    TRY_TO(free_active, config_write(&run->config, a.paths[i]));
  }
  const struct launch_wish wish = {.ranks = r->plan->runs[runs[0]].ranks, .cores_each = wanted->cores_each, .first_core = wanted->first_core, .hosts = wanted->hosts,
                                   .files = a.files, .n_files = n, .program = wanted->program, .settings = wanted->settings};
  TRY_TO(free_active, job_start(r->world, &wish, a.cases, n, &a.job));
  *out = a;
  return ERR_OK;

free_active:
  active_free(&a);
  return err;
}

void runner_make_blind(struct run_data *d)
{
  size_t i;
  json_t *record;
  d->config.fault[0] = '\0';
  d->config.fault_rank = 0;
  d->config.fault_strength = 1;
  json_array_foreach(d->records, i, record)
  {
    json_object_del(record, "set.fault");
    json_object_del(record, "set.fault_rank");
    json_object_del(record, "set.fault_strength");
  }
}

static enum err record_end_of(const struct runner *r, const struct run *run, double seconds)
{
  struct record_file *f;
  TRY(record_open(r->results->records, run->name, -1, &f));
  record_begin(f, "case", -1, -1);
  record_text(f, "got.end", run->data.end);
  record_int(f, "got.status", run->data.status);
  record_real(f, "got.seconds", seconds);
  record_text(f, "got.text", run->data.text);
  const enum err err = record_end(f);
  record_close(f);
  return err ? err_trace(err, __FILE__, __LINE__) : ERR_OK;
}

static enum err take_over(struct runner *r, int index, const struct job_end *end, double seconds)
{
  struct run *run = &r->plan->runs[index];
  json_t *records;
  bool merges = false;
  run->data = (struct run_data){.config = run->config, .status = end->status};
  snprintf(run->data.dir, sizeof run->data.dir, "%s", run->dir);
  snprintf(run->data.end, sizeof run->data.end, "%s", end->end);
  snprintf(run->data.text, sizeof run->data.text, "%s", end->text);
  if (run->foreign) {
    records = json_array();
    if (records == NULL) FAIL(ERR_MEMORY, "records of %s", run->name);
  } else if (results_read_run(run->dir, &records) != ERR_OK) { /* what a trainer wrote is no reason to end: its case is judged by it */
    snprintf(run->data.text, sizeof run->data.text, "records cannot be read: %s", err_text());
    snprintf(run->data.end, sizeof run->data.end, "unreadable");
    records = json_array();
    if (records == NULL) FAIL(ERR_MEMORY, "records of %s", run->name);
  } else {
    merges = true;
  }
  run->data.records = records; /* from here on the plan's to release */
  if (merges) TRY(results_merge(r->results, run->dir));
  runner_make_blind(&run->data);
  TRY(record_end_of(r, run, seconds));
  run->ended = true;
  r->done++;
  r->estimated_s += run->estimate_s;
  return r->on_ended ? r->on_ended(r->context, index) : ERR_OK;
}

/* Takes over what is finished; at the job's end also the run it died in.  The last run waits for the job's end, which is its own: a
 * job that does not end, or fails in its teardown, fails the run that it did last. */
static enum err active_step(struct runner *r, struct active *a, double wait_ms, bool *over)
{
  struct job_end end;
  *over = job_step(a->job, wait_ms, &end);
  const int told = job_finished(a->job), finished = *over ? end.finished : told < a->n ? told : a->n - 1;
  for (; a->told < finished && a->told < a->n; a->told++) {
    const double now = clock_ms(), seconds = (now - a->started_ms) / 1e3;
    a->started_ms = now;
    struct job_end own = {.end = "exited"};
    enum status status = STATUS_PASS;
    ending_error(a->cases[a->told].dir, own.text, sizeof own.text, &status);
    own.status = (int)status;
    TRY(take_over(r, a->runs[a->told], &own, seconds));
    r->bad_in_a_row = 0;
  }
  if (!*over || finished >= a->n || strcmp(end.end, "interrupted") == 0) return ERR_OK;
  if (strcmp(end.end, "exited") == 0 && (end.status == 126 || end.status == 127)) snprintf(end.end, sizeof end.end, "not_started");
  const bool exited = strcmp(end.end, "exited") == 0;
  const bool unfit = strcmp(end.end, "not_started") == 0 || (exited && (end.status == STATUS_INVALID || end.status == STATUS_USAGE));
  const bool bad = unfit && !r->plan->runs[a->runs[a->told]].foreign; /* says nothing of our own jobs */
  r->bad_in_a_row = bad ? r->bad_in_a_row + 1 : 0;
  if (r->bad_in_a_row >= BAD_MAX) {
    r->unusable = true;
    snprintf(r->why_unusable, sizeof r->why_unusable, "%d jobs in a row ended before a case was finished: %.400s", BAD_MAX, end.text);
  }
  return take_over(r, a->runs[a->told], &end, (clock_ms() - a->started_ms) / 1e3);
}

void runner_phase(struct runner *r, int total, bool timing)
{
  r->done = 0;
  r->total = total;
  r->timing = timing;
  r->phase_ms = clock_ms();
  r->estimated_s = 0;
}

/* What a guessed second has taken so far, on the clock of the person who waits. */
static double stretch(const struct runner *r)
{
  return r->estimated_s > 0 ? (clock_ms() - r->phase_ms) / 1e3 / r->estimated_s : 1;
}

static void show(struct runner *r, const char *what)
{
  double left = 0;
  for (int i = 0; i < r->plan->n_runs; i++)
    if (!r->plan->runs[i].ended && r->plan->runs[i].users > 0) left += r->plan->runs[i].estimate_s;
  if (r->timing) left = (r->total - r->done) * (r->done ? (clock_ms() - r->phase_ms) / 1e3 / r->done : 0);
  else left *= stretch(r);
  progress_show(r->progress, what, r->done, r->total, r->done ? left : -1);
}

/* --- correctness: many jobs -------------------------------------------------------------- */

static double expected_s(const struct runner *r, int run)
{
  return r->plan->runs[run].estimate_s * stretch(r);
}

/* A run that is expected to hang mostly waits. */
static int cores_of(const struct runner *r, int run)
{
  return r->plan->runs[run].alone ? 0 : r->plan->runs[run].ranks * (int)r->plan->runs[run].config.threads;
}

/* The next batch of waiting runs: the first of the list that `room` cores are enough for, and others with its rank count.  A run
 * with no users left is not run: whoever wanted it is judged without. */
static int next_batch(struct runner *r, const int *runs, int n, const bool *taken, int room, int share, int *out)
{
  const struct run *lead = NULL;
  int waiting = 0, count = 0, first = 0;
  for (int pass = 0; pass < 2; pass++) {
    int most = r->budget_s > 0 ? BATCH_BUDGET : (waiting + share - 1) / share; /* jobs side by side share the work */
    if (most > BATCH_MAX) most = BATCH_MAX;
    if (lead && lead->alone) most = 1;
    for (int i = 0; i < n && (pass == 0 || count < most); i++) {
      const struct run *x = &r->plan->runs[runs[i]];
      if (x->ended || taken[i] || x->users == 0 || (x->after >= 0 && !r->plan->runs[x->after].ended)) continue;
      if (lead == NULL && cores_of(r, runs[i]) > room) continue;
      if (lead == NULL) lead = x, first = i;
      if (r->budget_s > 0 && i - first > REACH_BUDGET) break;
      if (x != lead && (x->ranks != lead->ranks || x->alone)) continue;
      if (pass == 0) waiting++;
      else out[count++] = i;
    }
  }
  return count;
}

static bool may_start(struct runner *r, const int *runs, const int *batch, int n)
{
  if (interrupt_seen() || r->unusable || r->enough) return false;
  if (r->budget_s <= 0) return true;
  double wanted = 0.6;
  for (int i = 0; i < n; i++) wanted += expected_s(r, runs[batch[i]]);
  if ((clock_ms() - r->started_ms) / 1e3 + wanted <= r->budget_s) return true;
  r->out_of_budget = true;
  return false;
}

/* Cores for one more job.  The first may be wider than the machine; within a budget what is first in the list is next. */
static int room_of(const struct runner *r, int busy) { return busy == 0 || r->budget_s > 0 ? INT_MAX : r->world->cores - busy; }

enum err runner_all(struct runner *r, const int *runs, int n)
{
  enum err err = ERR_OK;
  struct active active[JOBS_MAX] = {0};
  int jobs = 0, busy = 0, batch[BATCH_MAX];
  bool more = true;
  bool *taken = calloc((size_t)n + 1, sizeof *taken);
  int *list = malloc(((size_t)n + 1) * sizeof *list);
  if (taken == NULL || list == NULL) FAIL_TO(stop, ERR_MEMORY, "a list of %d runs", n);
  for (;;) {
    while (more && jobs < JOBS_MAX) { /* of jobs that wait, too, not too many */
      int share = 1;
      const int room = room_of(r, busy), lead = next_batch(r, runs, n, taken, room, 1, batch) ? batch[0] : -1;
      if (lead < 0) break;
      const int cores = cores_of(r, runs[lead]);
      if (busy > 0 && busy + cores > r->world->cores) break;
      if (cores > 0 && cores < r->world->cores) share = r->world->cores / cores;
      const int count = next_batch(r, runs, n, taken, room, share, batch);
      if (!may_start(r, runs, batch, count)) {
        more = false;
        break;
      }
      for (int i = 0; i < count; i++) list[i] = runs[batch[i]];
      const struct runner_timed unbound = {.runs = list, .n = count};
      TRY_TO(stop, active_start(r, &unbound, &active[jobs]));
      for (int i = 0; i < count; i++) taken[batch[i]] = true;
      busy += cores;
      jobs++;
    }
    if (jobs == 0) break;
    for (int k = 0; k < jobs; k++) {
      bool over;
      if (interrupt_seen() || r->enough) job_stop(active[k].job, "interrupted");
      TRY_TO(stop, active_step(r, &active[k], 100.0 / jobs, &over));
      show(r, r->plan->runs[active[k].runs[active[k].told < active[k].n ? active[k].told : active[k].n - 1]].name);
      if (!over) continue;
      busy -= cores_of(r, active[k].runs[0]);
      for (int i = 0; i < n; i++) /* what did not get its turn waits again */
        for (int m = 0; m < active[k].n; m++)
          if (active[k].runs[m] == runs[i]) taken[i] = false;
      active_free(&active[k]);
      active[k--] = active[--jobs];
    }
  }
stop:
  for (int k = 0; k < jobs; k++) active_free(&active[k]);
  free(taken);
  free(list);
  return err;
}

/* --- measurements: jobs that have the machine to themselves -------------------------------- */

enum err runner_timed(struct runner *r, const struct runner_timed *jobs, int n)
{
  enum err err = ERR_OK;
  struct active *active = calloc((size_t)n, sizeof *active);
  int started = 0, open = 0;
  if (active == NULL) FAIL(ERR_MEMORY, "%d jobs", n);
  for (; started < n; started++)
    TRY_TO(stop, active_start(r, &jobs[started], &active[started]));
  for (open = n; open > 0;) {
    open = 0;
    for (int k = 0; k < n; k++) {
      bool over;
      if (active[k].job == NULL) continue;
      if (interrupt_seen() || r->enough) job_stop(active[k].job, "interrupted");
      TRY_TO(stop, active_step(r, &active[k], 200.0 / n, &over));
      show(r, r->plan->runs[active[k].runs[0]].name);
      if (over) active_free(&active[k]);
      else open++;
    }
  }
stop:
  for (int k = 0; k < started; k++) active_free(&active[k]);
  free(active);
  return err;
}
