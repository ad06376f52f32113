/* meters.c - sums over intervals, and /proc. */
#include "train/meters.h"

#include <errno.h>
#include <malloc.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Tensor parallelism's collectives are on the compute stream: a pass cannot go on without them. */
static bool is_collective(const char *kernel)
{
  static const char *const names[] = {"allreduce", "reduce_scatter", "allgather", "broadcast", "send", "recv", "group", "barrier"};
  for (size_t i = 0; i < sizeof names / sizeof *names; i++)
    if (strcmp(kernel, names[i]) == 0) return true;
  return false;
}

/* Streams whose transfers are between replicas. */
static bool is_over_replicas(const char *stream) { return stream && (strcmp(stream, "transfer") == 0 || strcmp(stream, "gather") == 0); }

struct meters_time meters_split(const struct dev_interval *list, int64_t n)
{
  struct meters_time t = {.backward_end_ms = NAN};
  for (int64_t i = 0; i < n; i++) {
    const struct dev_interval *x = &list[i];
    const double busy_ms = x->end_ms - x->start_ms;
    if (strcmp(x->stream, "compute") != 0) {
      t.comm_ms += busy_ms;
      continue;
    }
    t.exposed_ms += x->waited_ms;
    if (is_over_replicas(x->waited_for)) t.replicas_ms += x->waited_ms;
    if (x->phase == DEV_PHASE_BACKWARD) t.backward_end_ms = fmax(t.backward_end_ms, x->end_ms);
    if (is_collective(x->kernel)) {
      t.comm_ms += busy_ms;
      t.exposed_ms += busy_ms;
      continue;
    }
    switch (x->phase) {
    case DEV_PHASE_FORWARD: t.forward_ms += busy_ms; break;
    case DEV_PHASE_BACKWARD: t.backward_ms += busy_ms; break;
    case DEV_PHASE_OPTIMIZER: t.optimizer_ms += busy_ms; break;
    default: t.other_ms += busy_ms;
    }
  }
  return t;
}

void meters_microbatches(const struct dev_interval *list, int64_t n, int64_t first, int64_t n_micro, double *ms)
{
  for (int64_t i = 0; i < n_micro; i++) ms[i] = 0;
  for (int64_t i = 0; i < n; i++) {
    const struct dev_interval *x = &list[i];
    const int64_t at = x->microbatch - first;
    const bool passes = x->phase == DEV_PHASE_FORWARD || x->phase == DEV_PHASE_BACKWARD;
    if (strcmp(x->stream, "compute") != 0 || is_collective(x->kernel) || !passes || at < 0 || at >= n_micro) continue;
    ms[at] += x->end_ms - x->start_ms;
  }
}

enum { STREAMS = 8 };

/* Calls of one stream are done in the order in which they were queued, so each stream's
 * search goes on where its last one ended.  Some of `gather` may not be done yet, and what it did in this
 * step may be the last step's. */
enum err meters_calls(const struct dev_interval *list, int64_t n, const struct comm_call *calls, int64_t n_calls,
                      double offset_ms, double *ready_ms, double *end_ms)
{
  struct { const char *stream; int64_t next; } places[STREAMS] = {{0}};
  for (int64_t c = 0; c < n_calls; c++) {
    int s = 0;
    while (s < STREAMS && places[s].stream && strcmp(places[s].stream, calls[c].stream) != 0) s++;
    if (s == STREAMS) FAIL(ERR_ARG, "collectives on more than %d streams", STREAMS);
    places[s].stream = calls[c].stream;
    int64_t i = places[s].next;
    while (i < n && (list[i].step != calls[c].step || strcmp(list[i].stream, calls[c].stream) != 0 || strcmp(list[i].kernel, calls[c].op) != 0)) i++;
    if (i == n && strcmp(calls[c].stream, "gather") == 0) {
      ready_ms[c] = end_ms[c] = -1;
      continue;
    }
    if (i == n)
      FAIL(ERR_ARG, "%s #%d of %s left no interval on stream %s", calls[c].op, calls[c].sequence, calls[c].group, calls[c].stream);
    ready_ms[c] = list[i].ready_ms + offset_ms;
    end_ms[c] = list[i].end_ms + offset_ms;
    places[s].next = i + 1;
  }
  return ERR_OK;
}

double meters_matmul_flops(const struct run_config *run, const struct params_place *place, double valid_tokens)
{
  const struct partition *p = &place->partition;
  const double C = (double)run->hidden;
  int64_t layers = 0;
  for (int k = place->pp_rank; k < p->stages; k += place->pp) layers += p->first[k + 1] - p->first[k];
  const double head = place->pp_rank == place->pp - 1 ? (double)run->vocab * C : 0.0;
  return 6.0 * valid_tokens * ((double)layers * 12.0 * C * C + head) / place->tp;
}

/* A line "name:  123 kB" of the file; -1: it has none. */
static enum err proc_bytes(const char *path, const char *name, int64_t *bytes)
{
  char line[256];
  long long kib = -1;
  FILE *f = fopen(path, "r");
  if (f == NULL) FAIL(ERR_IO, "%s: %s", path, strerror(errno));
  while (kib < 0 && fgets(line, sizeof line, f))
    if (strncmp(line, name, strlen(name)) == 0) kib = strtoll(line + strlen(name), NULL, 10);
  fclose(f);
  *bytes = kib < 0 ? -1 : (int64_t)kib * 1024;
  return ERR_OK;
}

static enum err status_bytes(const char *name, int64_t *bytes)
{
  TRY(proc_bytes("/proc/self/status", name, bytes));
  if (*bytes < 0) FAIL(ERR_UNAVAILABLE, "/proc/self/status has no %s", name);
  return ERR_OK;
}

enum err meters_memory_restart(int64_t *bytes)
{
  malloc_trim(0);
  FILE *f = fopen("/proc/self/clear_refs", "w");
  if (f == NULL) FAIL(ERR_UNAVAILABLE, "/proc/self/clear_refs: %s", strerror(errno));
  const bool written = fputs("5", f) >= 0; /* 5: the mark becomes the present size (proc(5)) */
  if (fclose(f) != 0 || !written) FAIL(ERR_UNAVAILABLE, "/proc/self/clear_refs: %s", strerror(errno));
  TRY(status_bytes("VmHWM:", bytes));
  return ERR_OK;
}

enum err meters_memory_others(int64_t *bytes)
{
  int64_t mapped, mine; /* proc(5): each page divided by the processes that map it */
  TRY(status_bytes("RssShmem:", &mapped));
  TRY(proc_bytes("/proc/self/smaps_rollup", "Pss_Shmem:", &mine));
  *bytes = mine < 0 || mine > mapped ? 0 : mapped - mine;
  return ERR_OK;
}

enum err meters_memory_peak(int64_t *bytes)
{
  TRY(status_bytes("VmHWM:", bytes));
  return ERR_OK;
}
