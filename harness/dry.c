/* dry.c */
#include "harness/dry.h"
#include "harness/cut.h"
#include "harness/memory.h"
#include "harness/timing.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void size_text(double bytes, char *out, size_t room)
{
  const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB"};
  int u = 0;
  while (bytes >= 1024 && u < 5) bytes /= 1024, u++;
  snprintf(out, room, u ? "%.2f %s" : "%.0f %s", bytes, units[u]);
}

/* Work of distinct runs that this trial is the first to need, on all cores. */
static double own_seconds(const struct plan *p, const struct trial *t, bool *counted, int cores)
{
  int needed[SUITE_CHECKS_MAX * JUDGE_COMPANIONS_MAX + 1];
  const int n = plan_runs_of(t, needed, (int)(sizeof needed / sizeof *needed));
  double sum = 0;
  const int times = t->part == PART_POINT ? 2 * TIMING_REPEATS : 1; /* a point's copies take as long as the point */
  for (int i = 0; i < n; i++) {
    const struct run *r = &p->runs[needed[i]];
    if (counted[needed[i]]) continue;
    counted[needed[i]] = true;
    const double width = (double)(r->ranks * r->config.threads);
    if (r->config.compute == COMPUTE_SLEEP) sum += times * r->estimate_s; /* whatever the cores */
    else sum += times * r->estimate_s * width / cores; /* core seconds over cores */
  }
  return sum;
}

/* Below its case: what the verifier said of the schedule. */
static enum err print_pipeline(const struct run_config *c)
{
  struct cut_pipeline x;
  char layout[CONFIG_NAME];
  TRY(cut_verify(c, &x));
  if (x.stages == 0) return ERR_OK;
  cut_text(c, layout, sizeof layout);
  printf("  %s: verified; at equal times a bubble of %.1f %% of ideal time, %.1f %% of total time; at most %d of %lld micro-batches live on a stage\n",
         layout, 100 * x.of_ideal, 100 * x.of_total, x.live, (long long)(config_accumulation(c) * c->chunks));
  return ERR_OK;
}

enum err dry_print(const struct plan *p, double available_bytes, int ranks_a_host, double disk_bytes, double budget_s, int cores,
                   enum status *status)
{
  enum err err = ERR_OK;
  double total = 0;
  int refused = 0, left_out = 0;
  bool *counted = calloc((size_t)p->n_runs + 1, sizeof *counted);
  if (counted == NULL) {
    free(counted);
    FAIL(ERR_MEMORY, "a list of %d cases", p->n_trials);
  }
  printf("%-40s %6s %10s %12s %12s  %s\n", "case", "ranks", "time", "memory/rank", "memory/host", "");
  for (int64_t priority = 1; priority <= 9; priority++)
    for (int i = 0; i < p->n_trials; i++) {
      const struct trial *t = &p->trials[i];
      if (t->priority != priority) continue;
      if (t->run < 0) {
        printf("%-40s %6s  skipped: %s\n", t->name, "-", t->sentence);
        continue;
      }
      const struct run *r = &p->runs[t->run];
      struct predicted x;
      char rank[32], host[32];
      predict(&r->config, &x);
      const double needed = memory_needed(&r->config, ranks_a_host), seconds = own_seconds(p, t, counted, cores);
      size_text(x.total_bytes, rank, sizeof rank);
      size_text(needed, host, sizeof host);
      const bool fits = r->foreign || needed <= available_bytes, late = budget_s > 0 && total + seconds > budget_s;
      if (fits && !late) total += seconds;
      if (r->foreign) snprintf(rank, sizeof rank, "-"), snprintf(host, sizeof host, "-");
      refused += !fits;
      left_out += fits && late;
      printf("%-40s %6d %8.1f s %12s %12s  %s\n", t->name, r->ranks, seconds, rank, host,
             !fits ? "refused: does not fit" : late ? "left out: budget" : "");
      if (!fits) {
        char why[700];
        memory_refusal(&r->config, ranks_a_host, available_bytes, why, sizeof why);
        printf("  %s\n", why);
      }
      TRY_TO(done, print_pipeline(&r->config));
    }
  char disk[32], there[32];
  size_text(disk_bytes, disk, sizeof disk);
  size_text(available_bytes, there, sizeof there);
  printf("%d cases, %d distinct runs, about %.0f s on %d cores, at most %s on disk; memory available: %s; nothing was launched\n",
         p->n_trials, p->n_runs, total, cores, disk, there);
  if (left_out) printf("%d left out by the budget of %.0f s\n", left_out, budget_s);
  if (refused) printf("%d refused: they do not fit in this machine's memory\n", refused);
  *status = refused ? STATUS_INVALID : STATUS_PASS;
done:
  free(counted);
  return err;
}
