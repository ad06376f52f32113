/* dump.c - canonical tensors into safetensors files. */
#include "train/dump.h"

#include "params/params_io.h"
#include "train/canonical.h"
#include "train/dump_blocks.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

struct dumper {
  struct trainer *t;
  const struct output *output;
  struct canonical *whole; /* NULL: nothing is written */
};

/* The same on every rank, for all take part in collecting. */
static bool wanted(const struct trainer *t) { return t->run.dump != DUMP_NONE && t->run.out[0] != '\0'; }

enum err dump_create(struct trainer *t, const struct output *o, struct dumper **out)
{
  enum err err;
  *out = NULL;
  struct dumper *d = calloc(1, sizeof *d);
  if (d == NULL) FAIL(ERR_MEMORY, "dump: %zu bytes", sizeof *d);
  d->t = t;
  d->output = o;
  if (wanted(t)) TRY_TO(destroy_dump, canonical_create(t, &d->whole));
  *out = d;
  return ERR_OK;

destroy_dump:
  dump_destroy(d);
  return err;
}

void dump_destroy(struct dumper *d)
{
  if (d == NULL) return;
  canonical_destroy(d->whole);
  free(d);
}

void dump_name(const char *what, int64_t step, char *out, size_t bytes)
{
  snprintf(out, bytes, "%s.step%" PRId64 ".safetensors", what, step);
}

enum err dump_say(const struct output *o, const char *what, int64_t step, const char *file)
{
  record_begin(o->records, "tensors", step, -1);
  record_text(o->records, "got.what", what);
  record_text(o->records, "got.file", file);
  TRY(record_end(o->records));
  return ERR_OK;
}

static enum err write_flat(const struct dumper *d, const char *what, int64_t step, const struct flat_buffer *buffer)
{
  struct trainer *t = d->t;
  char file[64], path[CONFIG_PATH + 72];
  TRY(canonical_take(d->whole, buffer));
  if (comm_rank(t->world) != 0) return ERR_OK;
  dump_name(what, step, file, sizeof file);
  snprintf(path, sizeof path, "%s/%s", t->run.out, file);
  TRY(params_write(path, t->table, canonical_flat(d->whole), run_state_type(&t->run), canonical_host(d->whole), NULL));
  TRY(dump_say(d->output, what, step, file));
  return ERR_OK;
}

enum err dump_before(struct dumper *d, int64_t step)
{
  struct trainer *t = d->t;
  const struct flat_buffer first = optim_moments1(t->optim), second = optim_moments2(t->optim);
  if (d->whole == NULL) return ERR_OK;
  TRY(write_flat(d, "weights", step, &t->weights));
  if (t->run.dump != DUMP_ALL || first.at == NULL) return ERR_OK;
  TRY(write_flat(d, "moments1", step, &first));
  TRY(write_flat(d, "moments2", step, &second));
  return ERR_OK;
}

enum err dump_after(struct dumper *d, int64_t step)
{
  if (d->whole == NULL) return ERR_OK;
  TRY(write_flat(d, "gradients", step, &d->t->gradients));
  if (d->t->run.dump == DUMP_ALL) TRY(dump_blocks(d->t, d->output, step));
  return ERR_OK;
}
