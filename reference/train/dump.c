/* dump.c - device buffers through one host copy into safetensors files. */
#include "train/dump.h"

#include "base/safetensors.h"
#include "params/params_io.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct dumper {
  struct trainer *t;
  const struct output *output;
  void *host; /* as large as a flat buffer */
};

static bool wanted(const struct trainer *t, const struct output *o)
{
  return t->run.dump != DUMP_NONE && o->run->out[0] != '\0' && comm_rank(t->world) == 0;
}

enum err dump_create(struct trainer *t, const struct output *o, struct dumper **out)
{
  enum err err;
  *out = NULL;
  struct dumper *d = calloc(1, sizeof *d);
  if (d == NULL) FAIL(ERR_MEMORY, "dump: %zu bytes", sizeof *d);
  d->t = t;
  d->output = o;
  if (wanted(t, o)) {
    const size_t bytes = (size_t)t->flat->count * dtype_bytes((enum dtype)t->run.precision);
    d->host = malloc(bytes);
    if (d->host == NULL) FAIL_TO(destroy_dump, ERR_MEMORY, "dump: %zu bytes for a host copy", bytes);
  }
  *out = d;
  return ERR_OK;

destroy_dump:
  dump_destroy(d);
  return err;
}

void dump_destroy(struct dumper *d)
{
  if (d == NULL) return;
  free(d->host);
  free(d);
}

static void name_file(const char *what, int64_t step, char *out, size_t bytes)
{
  snprintf(out, bytes, "%s.step%" PRId64 ".safetensors", what, step);
}

static enum err say_file(const struct dumper *d, const char *what, int64_t step, const char *file)
{
  record_begin(d->output->records, "tensors", step, -1);
  record_text(d->output->records, "got.what", what);
  record_text(d->output->records, "got.file", file);
  TRY(record_end(d->output->records));
  return ERR_OK;
}

static enum err write_flat(const struct dumper *d, const char *what, int64_t step, void *buffer)
{
  struct trainer *t = d->t;
  char file[64], path[CONFIG_PATH + 72];
  name_file(what, step, file, sizeof file);
  snprintf(path, sizeof path, "%s/%s", t->run.out, file);
  TRY(dev_copy_out(t->compute, d->host, buffer, (size_t)t->flat->count * dtype_bytes((enum dtype)t->run.precision)));
  TRY(dev_sync_stream(t->compute));
  TRY(params_write(path, t->table, t->flat, (enum dtype)t->run.precision, d->host, NULL));
  TRY(say_file(d, what, step, file));
  return ERR_OK;
}

enum err dump_before(struct dumper *d, int64_t step)
{
  struct trainer *t = d->t;
  if (!wanted(t, d->output)) return ERR_OK;
  TRY(write_flat(d, "weights", step, t->weights));
  if (t->run.dump != DUMP_ALL || optim_moments1(t->optim) == NULL) return ERR_OK;
  TRY(write_flat(d, "moments1", step, optim_moments1(t->optim)));
  TRY(write_flat(d, "moments2", step, optim_moments2(t->optim)));
  return ERR_OK;
}

/* --- blocks (O15) ------------------------------------------------------------------------ */

enum { BLOCK_NAME = 48 };

/* Tensor `i` of the file: outputs of -1 .. L + 1, then gradients of -1 .. L. */
static enum err take_block(const struct trainer *t, int i, struct safetensor *out, char *name)
{
  const int L = (int)t->run.layers, outputs = L + 3;
  const bool gradient = i >= outputs;
  const int layer = (gradient ? i - outputs : i) - 1;
  if (layer < 0) snprintf(name, BLOCK_NAME, "embedding");
  else if (layer < L) snprintf(name, BLOCK_NAME, "h.%d", layer);
  else snprintf(name, BLOCK_NAME, layer == L ? "ln_f" : "losses");
  if (gradient) strncat(name, ".gradient", BLOCK_NAME - strlen(name) - 1);
  *out = (struct safetensor){.name = name, .rank = 2};
  TRY(model_block(t->model, layer, gradient, &out->data));
  return ERR_OK;
}

static enum err copy_block(struct trainer *t, struct safetensor *s)
{
  const size_t bytes = (size_t)tensor_count(&s->data) * dtype_bytes(s->data.type);
  void *host = malloc(bytes);
  if (host == NULL) FAIL(ERR_MEMORY, "dump: %zu bytes of a block", bytes);
  const void *device = s->data.at;
  s->data.at = host; /* the list owns it from here on */
  TRY(dev_copy_out(t->compute, host, device, bytes));
  return ERR_OK;
}

static enum err write_blocks(const struct dumper *d, int64_t step)
{
  enum err err = ERR_OK;
  struct trainer *t = d->t;
  const int n = 2 * (int)t->run.layers + 5;
  char file[64], path[CONFIG_PATH + 72];
  int copied = 0;
  struct safetensor *list = calloc((size_t)n, sizeof *list);
  char(*names)[BLOCK_NAME] = calloc((size_t)n, sizeof *names);
  if (list == NULL || names == NULL) FAIL_TO(free_list, ERR_MEMORY, "dump: list of %d blocks", n);
  for (int i = 0; i < n; i++) TRY_TO(free_list, take_block(t, i, &list[i], names[i]));
  for (; copied < n; copied++) TRY_TO(free_list, copy_block(t, &list[copied]));
  TRY_TO(free_list, dev_sync_stream(t->compute));
  name_file("blocks", step, file, sizeof file);
  snprintf(path, sizeof path, "%s/%s", t->run.out, file);
  TRY_TO(free_list, safetensors_write(path, list, n, NULL));
  TRY_TO(free_list, say_file(d, "blocks", step, file));

free_list:
  dev_sync_stream(t->compute); /* a copy may still be on its way; its error is the caller's next one */
  for (int i = 0; i < copied; i++) free(list[i].data.at);
  free(names);
  free(list);
  return err;
}

enum err dump_after(struct dumper *d, int64_t step)
{
  if (!wanted(d->t, d->output)) return ERR_OK;
  TRY(write_flat(d, "gradients", step, d->t->gradients));
  if (d->t->run.dump == DUMP_ALL) TRY(write_blocks(d, step));
  return ERR_OK;
}
