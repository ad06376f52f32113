/* world.c - all processes of the job, and the calls of the host among them. */
#include "comm/comm_state.h"

#include "base/clock.h"

#include <inttypes.h>
#include <malloc.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>

/* --- life ---------------------------------------------------------------------------- */

/* What launchers tell their processes about their number.  Slurm: that of the step, which
 * srun sets; inside an allocation but outside a step there is no such variable. */
static const char *const launcher_sizes[] = {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "PMIX_SIZE", "SLURM_STEP_NUM_TASKS"};

enum err world_check_launcher(int size)
{
  for (size_t i = 0; i < sizeof launcher_sizes / sizeof *launcher_sizes && size == 1; i++) {
    const char *text = getenv(launcher_sizes[i]);
    const long told = text ? strtol(text, NULL, 10) : 0;
    if (told > 1)
      FAIL(ERR_INVALID,
           "the launcher started %ld processes (%s), but %s sees each of them as a world of one: start with the mpirun of the MPI "
           "that this program was built with (under Slurm: srun --mpi=pmix or --mpi=pmi2)",
           told, launcher_sizes[i], comm_library());
  }
  return ERR_OK;
}

/* Fresh memory is slow to touch, and MPI takes scratch for each collective: with malloc
 * keeping what it once had, a 64 MiB all-reduce over 2 ranks went from 0.3 to 6.3 GB/s.  One
 * arena, since those of threads give their memory back whatever the threshold says: 16,385
 * page faults and 92 ms of processor time each such all-reduce on a stream, 0 and 44 with one. */
static void keep_memory(void)
{
  mallopt(M_MMAP_MAX, 0);
  mallopt(M_TRIM_THRESHOLD, -1);
  mallopt(M_ARENA_MAX, 1);
}

/* Is rank 0 on this host? */
static enum err find_root_host(struct comm_world *w)
{
  int32_t lowest = -link_rank(w->all);
  TRY(link_allreduce(w->node, &lowest, 1, DTYPE_I32, COMM_MAX));
  TRY(link_wait(w->node));
  w->on_root_host = lowest == 0;
  return ERR_OK;
}

enum err comm_world_open(struct comm_world **out)
{
  enum err err = ERR_OK;
  *out = NULL;
  struct comm_world *w = calloc(1, sizeof *w);
  if (w == NULL) FAIL(ERR_MEMORY, "world: %zu bytes", sizeof *w);
  keep_memory();
  TRY_TO(free_world, link_init());
  TRY_TO(finalize, link_world(&w->all));
  TRY_TO(drop_all, world_check_launcher(link_size(w->all)));
  TRY_TO(drop_all, link_node(w->all, &w->node));
  TRY_TO(drop_node, find_root_host(w));
  pthread_mutex_init(&w->lock, NULL);
  w->microbatch = -1;
  *out = w;
  return ERR_OK;

drop_node:
  link_destroy(w->node);
drop_all:
  link_destroy(w->all);
finalize:
  link_finalize();
free_world:
  free(w);
  return err;
}

void comm_world_close(struct comm_world *w)
{
  if (w == NULL) return;
  for (int i = 0; i < COMMS_MAX; i++) BUG_IF(w->comms[i] != NULL);
  link_destroy(w->node);
  link_destroy(w->all);
  link_finalize();
  pthread_mutex_destroy(&w->lock);
  free(w->calls);
  free(w);
}

void comm_world_abort(struct comm_world *w, int status)
{
  (void)w;
  link_abort(status);
}

int comm_rank(const struct comm_world *w) { return link_rank(w->all); }
int comm_size(const struct comm_world *w) { return link_size(w->all); }
int comm_node_rank(const struct comm_world *w) { return link_rank(w->node); }
int comm_node_size(const struct comm_world *w) { return link_size(w->node); }
const char *comm_library(void) { return link_library(); }

/* --- host calls ------------------------------------------------------------------------ */

/* Starts, then waits sleeping: no rank burns a core that another's compute needs. */
#define HOST(w, start)           \
  do {                           \
    TRY(start);                  \
    TRY(link_wait((w)->all));    \
  } while (0)

enum err comm_agree(struct comm_world *w, enum err mine)
{
  const int n = comm_size(w);
  int64_t worst = (int64_t)mine * n + (n - 1 - comm_rank(w)); /* the largest code; of those who have it the lowest rank */
  HOST(w, link_allreduce(w->all, &worst, 1, DTYPE_I64, COMM_MAX));
  const enum err code = (enum err)(worst / n);
  if (code == ERR_OK) return ERR_OK;
  struct err_saved saved;
  err_save(&saved, mine);
  HOST(w, link_broadcast(w->all, &saved, sizeof saved, DTYPE_U8, (int)(n - 1 - worst % n)));
  return err_restore(&saved);
}

enum err comm_host_barrier(struct comm_world *w)
{
  HOST(w, link_barrier(w->all));
  return ERR_OK;
}

static enum err check_bytes(size_t bytes, int64_t most)
{
  if (bytes > (size_t)most) FAIL(ERR_ARG, "%zu bytes in one call of the host; at most %" PRId64, bytes, most);
  return ERR_OK;
}

enum err comm_host_gather(struct comm_world *w, const void *mine, size_t bytes, void *all)
{
  TRY(check_bytes(bytes, LINK_PIECE / comm_size(w)));
  HOST(w, link_gather(w->all, mine, all, (int64_t)bytes, DTYPE_U8, 0));
  return ERR_OK;
}

enum err comm_host_bcast(struct comm_world *w, void *at, size_t bytes, int root)
{
  TRY(check_bytes(bytes, LINK_PIECE));
  if (root < 0 || root >= comm_size(w)) FAIL(ERR_ARG, "host broadcast from rank %d; valid: 0..%d", root, comm_size(w) - 1);
  HOST(w, link_broadcast(w->all, at, (int64_t)bytes, DTYPE_U8, root));
  return ERR_OK;
}

/* --- clocks ------------------------------------------------------------------------------ */

enum { ROUND_TRIPS = 20 };

/* Asks without sleeping: the time of the round trip bounds the error. */
static enum err spin(struct link *l)
{
  bool done = false;
  while (!done) {
    TRY(link_test(l, &done));
    if (!done) sched_yield();
  }
  return ERR_OK;
}

static enum err answer(struct link *l, int peer)
{
  for (int i = 0; i < ROUND_TRIPS; i++) {
    double time_ms = 0;
    TRY(link_recv(l, &time_ms, 1, DTYPE_F64, peer, false));
    TRY(spin(l));
    time_ms = clock_ms();
    TRY(link_send(l, &time_ms, 1, DTYPE_F64, peer, false));
    TRY(spin(l));
  }
  return ERR_OK;
}

/* Cristian 1989: rank 0 read its clock between our two readings, so halfway is wrong by at
 * most half the round trip; the shortest of several says most. */
static enum err ask(struct link *l, double *offset_ms, double *error_ms)
{
  *error_ms = -1;
  for (int i = 0; i < ROUND_TRIPS; i++) {
    double before = clock_ms(), theirs = 0;
    TRY(link_send(l, &before, 1, DTYPE_F64, 0, false));
    TRY(spin(l));
    TRY(link_recv(l, &theirs, 1, DTYPE_F64, 0, false));
    TRY(spin(l));
    const double after = clock_ms(), half = (after - before) / 2;
    if (*error_ms >= 0 && half >= *error_ms) continue;
    *error_ms = half;
    *offset_ms = theirs - (before + half);
  }
  return ERR_OK;
}

/* One rank after the other, the rest asleep in the barrier. */
enum err world_measure_clock(struct comm_world *w, double *offset_ms, double *error_ms)
{
  *offset_ms = *error_ms = 0;
  for (int r = 1; r < comm_size(w); r++) {
    if (comm_rank(w) == 0) TRY(answer(w->all, r));
    if (comm_rank(w) == r) TRY(ask(w->all, offset_ms, error_ms));
    TRY(comm_host_barrier(w));
  }
  return ERR_OK;
}

enum err comm_clock_offset(struct comm_world *w, double *offset_ms, double *error_ms)
{
  *offset_ms = *error_ms = 0;
  if (comm_node_size(w) == comm_size(w)) return ERR_OK; /* one clock, on all ranks alike */
  TRY(world_measure_clock(w, offset_ms, error_ms));
  if (w->on_root_host) *offset_ms = *error_ms = 0;
  return ERR_OK;
}
