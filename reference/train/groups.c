/* groups.c - communicators of a rank.  Every rank makes its own of each kind in this file's order. */
#include "train/groups.h"

#include "base/fault.h"
#include "train/device.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { HOST_NAME = 64 };

/* host_of[r]: the same number for ranks of one host. */
static void number_hosts(const char (*names)[HOST_NAME], int n, int *host_of)
{
  for (int r = 0; r < n; r++) {
    host_of[r] = r;
    for (int before = 0; before < r && host_of[r] == r; before++)
      if (strcmp(names[before], names[r]) == 0) host_of[r] = host_of[before];
  }
}

static enum err check_hosts(struct trainer *t)
{
  enum err err;
  const int n = comm_size(t->world);
  char mine[HOST_NAME] = "";
  gethostname(mine, sizeof mine - 1);
  char(*names)[HOST_NAME] = calloc((size_t)n, sizeof *names);
  int *host_of = calloc((size_t)n, sizeof *host_of);
  if (names == NULL || host_of == NULL) FAIL_TO(free_lists, ERR_MEMORY, "hosts of %d ranks", n);
  TRY_TO(free_lists, comm_host_gather(t->world, mine, sizeof mine, names));
  TRY_TO(free_lists, comm_host_bcast(t->world, names, (size_t)n * sizeof *names, 0));
  number_hosts(names, n, host_of);
  TRY_TO(free_lists, mesh_check_hosts(&t->mesh, &t->run, host_of));

free_lists:
  free(host_of);
  free(names);
  return err;
}

static int ascending(const void *a, const void *b) { return *(const int *)a - *(const int *)b; }

/* First and last stage with this rank's other coordinates; 0 ranks if this is neither. */
static int tied_ranks(const struct mesh *m, int *ranks)
{
  if (m->pp_rank != 0 && m->pp_rank != m->pp - 1) return 0;
  ranks[0] = mesh_rank(m, 0, m->dp_rank, m->tp_rank);
  ranks[1] = mesh_rank(m, m->pp - 1, m->dp_rank, m->tp_rank);
  qsort(ranks, 2, sizeof *ranks, ascending);
  return 2;
}

static int64_t larger(int64_t a, int64_t b) { return a > b ? a : b; }

static enum err create(struct trainer *t, const char *name, struct dev_stream *s, const int *ranks, int n, size_t bytes, struct comm **out)
{
  const struct comm_config config = device_comm_config(&t->run, name);
  TRY(comm_create(t->world, s, ranks, n, bytes, &config, out));
  return ERR_OK;
}

/* Planted: what each reduction of this rank over replicas takes longer. */
static double hold_ms(const struct trainer *t, const char *name)
{
  const struct run_config *run = &t->run;
  if (run->slow_phase != SLOW_LINK || comm_rank(t->world) != run->slow_rank || strcmp(name, "dp") != 0) return 0;
  return run->slow_ms / (double)(t->flat->n_buckets * (run->reduce_each == REDUCE_MICROBATCH ? t->accumulation : 1));
}

/* What replicas exchange of the model: silent without communication, and then buffers keep what they have. */
static enum err create_over_replicas(struct trainer *t, const char *name, struct dev_stream *s, const int *ranks, int n, size_t bytes,
                                     struct comm **out)
{
  struct comm_config config = device_comm_config(&t->run, name);
  config.silent = !t->run.communicate;
  config.aligned = t->run.align;
  config.hold_ms = hold_ms(t, name);
  TRY(comm_create(t->world, s, ranks, n, bytes, &config, out));
  return ERR_OK;
}

static struct dev_stream *reductions(const struct trainer *t)
{
  return fault_is(FAULT_OV_SERIALISED_BY_CONNECTIONS) ? t->compute : t->transfer;
}
static struct dev_stream *gathers(const struct trainer *t)
{
  return fault_is(FAULT_OV_ALLGATHER_NOT_OVERLAPPED) ? t->transfer : t->gather;
}

/* Consecutive replicas share; the n-th of each group are replicas of one shard. */
static enum err create_shards(struct trainer *t, const int *replicas, int n)
{
  const int shards = t->flat->shards, *mine = replicas + t->mesh.dp_rank / shards * shards, groups = n / shards;
  const size_t bytes = (size_t)flat_largest_bucket(t->flat) * dtype_bytes(run_reduce_type(&t->run));
  TRY(create_over_replicas(t, "dp", reductions(t), mine, shards, bytes, &t->groups.dp));
  TRY(create_over_replicas(t, "gather", gathers(t), mine, shards, 0, &t->groups.gather)); /* in place: no scratch */
  TRY(create(t, "shards", t->compute, mine, shards, (size_t)t->table->n * sizeof(double), &t->groups.shards)); /* numbers, as "sums" */
  if (groups == 1) return ERR_OK;
  int *same = malloc((size_t)groups * sizeof *same);
  if (same == NULL) FAIL(ERR_MEMORY, "list of %d ranks", groups);
  for (int g = 0; g < groups; g++) same[g] = replicas[g * shards + t->shard];
  const enum err err = create_over_replicas(t, "replicas", reductions(t), same, groups, bytes / (size_t)shards, &t->groups.replicas);
  free(same);
  return err;
}

static enum err create_replicas(struct trainer *t, int *ranks)
{
  int n = mesh_group(&t->mesh, MESH_DP, ranks);
  if (trainer_shares(t)) TRY(create_shards(t, ranks, n));
  else
    TRY(create_over_replicas(t, "dp", reductions(t), ranks, n, (size_t)flat_largest_bucket(t->flat) * dtype_bytes(run_reduce_type(&t->run)),
                             &t->groups.dp));
  n = mesh_group(&t->mesh, MESH_PP | MESH_DP, ranks);
  TRY(create(t, "sums", t->scalar, ranks, n, 2 * sizeof(double), &t->groups.sums));
  return ERR_OK;
}

static enum err create_model_groups(struct trainer *t, int *ranks)
{
  const struct run_config *run = &t->run;
  const struct mesh *m = &t->mesh;
  const int64_t edge = (run->micro_batch * run->sequence * run->hidden) * (int64_t)dtype_bytes(run_work_type(run));
  const int64_t sums = 2 * run->micro_batch * run->sequence * (int64_t)sizeof(double);
  const int64_t norms = run->sequence_parallel ? 2 * run->hidden * (int64_t)dtype_bytes(run_state_type(run)) : 0;
  int n = mesh_group(m, MESH_TP, ranks);
  if (n > 1) TRY(create(t, "tp", t->compute, ranks, n, (size_t)larger(larger(edge, sums), norms), &t->groups.tp));
  n = mesh_group(m, MESH_PP | MESH_TP, ranks);
  if (n > 1) TRY(create(t, "norm", t->compute, ranks, n, (size_t)t->table->n * sizeof(double), &t->groups.norm));
  if (m->pp == 1) return ERR_OK;
  n = mesh_group(m, MESH_PP, ranks); /* what stages send is dense: no scratch */
  TRY(create(t, "outputs", t->outputs, ranks, n, 0, &t->groups.outputs));
  TRY(create(t, "gradients", t->input_gradients, ranks, n, 0, &t->groups.gradients));
  n = run->tied ? tied_ranks(m, ranks) : 0;
  if (n > 0) TRY(create(t, "tied", t->compute, ranks, n, 0, &t->groups.tied));
  return ERR_OK;
}

/* Every rank has a say in whether a step is skipped. */
static enum err create_scale(struct trainer *t, int *ranks)
{
  const int n = comm_size(t->world);
  if (t->run.loss_scale == 0 || n == 1) return ERR_OK;
  for (int i = 0; i < n; i++) ranks[i] = i;
  TRY(create_over_replicas(t, "scale", t->compute, ranks, n, sizeof(double), &t->groups.scale));
  return ERR_OK;
}

enum err groups_create(struct trainer *t)
{
  enum err err;
  TRY(check_hosts(t));
  if (t->run.device == DEVICE_CUDA && t->run.transport == TRANSPORT_NCCL && comm_size(t->world) > 1) TRY(comm_check_nccl(t->world, t->dev));
  int *ranks = malloc((size_t)comm_size(t->world) * sizeof *ranks);
  if (ranks == NULL) FAIL(ERR_MEMORY, "list of %d ranks", comm_size(t->world));
  TRY_TO(free_ranks, create_replicas(t, ranks));
  TRY_TO(free_ranks, create_model_groups(t, ranks));
  TRY_TO(free_ranks, create_scale(t, ranks));
  t->tp = (struct tp){.comm = t->groups.tp, .size = t->mesh.tp, .rank = t->mesh.tp_rank, .sequence = t->run.sequence_parallel};

free_ranks:
  free(ranks);
  return err;
}

void groups_destroy(struct trainer *t)
{
  comm_destroy(t->groups.scale);
  comm_destroy(t->groups.tied);
  comm_destroy(t->groups.gradients);
  comm_destroy(t->groups.outputs);
  comm_destroy(t->groups.norm);
  comm_destroy(t->groups.tp);
  comm_destroy(t->groups.sums);
  comm_destroy(t->groups.replicas);
  comm_destroy(t->groups.shards);
  comm_destroy(t->groups.gather);
  comm_destroy(t->groups.dp);
}
