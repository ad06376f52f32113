/* dump_blocks.c - every rank sends what it has in places that are the same on all; rank 0 takes each
 * tensor from the stage of the last replica that has it, shards in the order of tp_rank.  The last replica's last
 * micro-batch is that of the step, and so the last one of a serial run, however a policy deals. */
#include "train/dump_blocks.h"

#include "base/safetensors.h"
#include "train/dump.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { BLOCK_NAME = 48 };

/* Tensor i: outputs of -1 .. L + 1, then gradients of -1 .. L. */
static int outputs(const struct trainer *t) { return (int)t->run.layers + 3; }
static int tensors(const struct trainer *t) { return 2 * (int)t->run.layers + 5; }
static bool is_gradient(const struct trainer *t, int i) { return i >= outputs(t); }
static int layer_of(const struct trainer *t, int i) { return (is_gradient(t, i) ? i - outputs(t) : i) - 1; }
static bool is_losses(const struct trainer *t, int i) { return layer_of(t, i) > t->run.layers; }

static int64_t rows(const struct trainer *t) { return t->run.micro_batch * t->run.sequence; }
static size_t place_bytes(const struct trainer *t) { return (size_t)(rows(t) * t->run.hidden) * sizeof(double); }

static int stage_of(const struct trainer *t, int i)
{
  const struct partition *p = &t->place.partition;
  const int layer = layer_of(t, i);
  int k = 0;
  if (layer >= t->run.layers) k = p->stages - 1;
  else
    while (layer >= p->first[k + 1]) k++;
  return k % t->mesh.pp;
}

static void name_of(const struct trainer *t, int i, char *name)
{
  const int layer = layer_of(t, i), L = (int)t->run.layers;
  if (layer < 0) snprintf(name, BLOCK_NAME, "embedding");
  else if (layer < L) snprintf(name, BLOCK_NAME, "h.%d", layer);
  else snprintf(name, BLOCK_NAME, layer == L ? "ln_f" : "losses");
  if (is_gradient(t, i)) strncat(name, ".gradient", BLOCK_NAME - strlen(name) - 1);
}

/* What this rank has, each in its place of `mine`. */
static enum err copy_out(struct trainer *t, char *mine)
{
  for (int i = 0; i < tensors(t); i++) {
    struct tensor x;
    if (stage_of(t, i) != t->mesh.pp_rank) continue;
    TRY(model_block(t->model, layer_of(t, i), is_gradient(t, i), &x));
    TRY(dev_copy_out(t->compute, mine + (size_t)i * place_bytes(t), x.at, (size_t)tensor_count(&x) * dtype_bytes(x.type)));
  }
  TRY(dev_sync_stream(t->compute));
  TRY(dev_host_touch(t->dev, mine, (size_t)tensors(t) * place_bytes(t), false));
  return ERR_OK;
}

/* Shards, if sequences are cut, put together in the place of the group's first rank. */
static struct tensor join(const struct trainer *t, char *all, int i)
{
  const size_t rank_bytes = (size_t)tensors(t) * place_bytes(t), at = (size_t)i * place_bytes(t);
  const int stage = stage_of(t, i), last = t->mesh.dp - 1;
  const enum dtype type = is_losses(t, i) ? DTYPE_F64 : run_work_type(&t->run);
  const int64_t cols = is_losses(t, i) ? 1 : t->run.hidden;
  char *const first = all + (size_t)mesh_rank(&t->mesh, stage, last, 0) * rank_bytes + at;
  const bool shards = t->tp.sequence && !is_losses(t, i);
  const size_t shard_bytes = (size_t)(rows(t) / t->mesh.tp * cols) * dtype_bytes(type);
  for (int r = 1; shards && r < t->mesh.tp; r++)
    memcpy(first + (size_t)r * shard_bytes, all + (size_t)mesh_rank(&t->mesh, stage, last, r) * rank_bytes + at, shard_bytes);
  return tensor_at(first, type, rows(t), cols);
}

static enum err write_file(const struct trainer *t, const struct output *o, int64_t step, char *all)
{
  enum err err = ERR_OK;
  const int n = tensors(t);
  char file[64], path[CONFIG_PATH + 72];
  struct safetensor *list = calloc((size_t)n, sizeof *list);
  char(*names)[BLOCK_NAME] = calloc((size_t)n, sizeof *names);
  if (list == NULL || names == NULL) FAIL_TO(free_list, ERR_MEMORY, "dump: list of %d blocks", n);
  for (int i = 0; i < n; i++) {
    name_of(t, i, names[i]);
    list[i] = (struct safetensor){.name = names[i], .rank = 2, .data = join(t, all, i)};
  }
  dump_name("blocks", step, file, sizeof file);
  snprintf(path, sizeof path, "%s/%s", t->run.out, file);
  TRY_TO(free_list, safetensors_write(path, list, n, NULL));
  TRY_TO(free_list, dump_say(o, "blocks", step, file));

free_list:
  free(names);
  free(list);
  return err;
}

enum err dump_blocks(struct trainer *t, const struct output *o, int64_t step)
{
  enum err err = ERR_OK, late;
  const size_t bytes = (size_t)tensors(t) * place_bytes(t);
  const bool first = comm_rank(t->world) == 0;
  char *mine = calloc(1, bytes), *all = first ? malloc((size_t)comm_size(t->world) * bytes) : NULL;
  if (mine == NULL || (first && all == NULL)) FAIL_TO(free_places, ERR_MEMORY, "dump: blocks of %d ranks", comm_size(t->world));
  TRY_TO(free_places, copy_out(t, mine));
  TRY_TO(free_places, comm_host_gather(t->world, mine, bytes, all));
  if (first) TRY_TO(free_places, write_file(t, o, step, all));

free_places:
  late = dev_sync_stream(t->compute); /* a copy may still be on its way */
  free(all);
  free(mine);
  return err ? err : late;
}
