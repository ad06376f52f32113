/* tasks.c - products and copies, timed on the compute stream. */
#include "train/tasks.h"

#include "ops/ops.h"
#include "train/device.h"
#include "train/say.h"
#include "train/tasks_comm.h"
#include "train/tasks_copy.h"
#include "train/tasks_overlap.h"
#include "train/threads.h"

#include <stdlib.h>

enum { TASK_INTERVALS = 1 << 14 };

enum err tasks_say(const struct output *o, struct dev *d, const struct tasks_measure *m)
{
  const struct dev_interval *list;
  int64_t n, lost, seen = 0;
  TRY(dev_trace_take(d, &list, &n, &lost));
  json_t *seconds = json_array();
  for (int64_t i = 0; i < n; i++)
    if (list[i].phase == (enum dev_phase)TASKS_TIMED && seen++ > 0)
      json_array_append_new(seconds, json_real((list[i].end_ms - list[i].start_ms) / 1000.0));
  if (lost > 0 || json_array_size(seconds) == 0) {
    json_decref(seconds);
    FAIL(ERR_ARG, "task %s: %lld intervals lost, %lld timed", m->what, (long long)lost, (long long)seen);
  }
  record_begin(o->records, "measure", -1, -1);
  record_text(o->records, "got.what", m->what);
  record_int(o->records, "got.size", m->size);
  record_json(o->records, "got.seconds", seconds);
  record_real(o->records, "got.flops", m->flops);
  record_int(o->records, "got.bytes", m->bytes);
  record_int(o->records, "got.wrong", m->wrong);
  TRY(record_end(o->records));
  return ERR_OK;
}

static enum err gemm_size(const struct output *o, struct dev *d, struct dev_stream *s, int64_t n)
{
  enum err err;
  const enum dtype type = run_work_type(o->run);
  const size_t bytes = (size_t)(n * n) * dtype_bytes(type);
  char *block = NULL;
  TRY(dev_alloc(d, 3 * bytes, DEV_OTHER, "products", (void **)&block));
  const struct tensor a = tensor_at(block, type, n, n), b = tensor_at(block + bytes, type, n, n);
  const struct tensor c = tensor_at(block + 2 * bytes, type, n, n);
  TRY_TO(free_block, tasks_fill(s, &a, 1));
  TRY_TO(free_block, tasks_fill(s, &b, 2));
  for (int64_t r = 0; r <= o->run->repeats; r++) {
    dev_set_phase(d, (enum dev_phase)TASKS_TIMED, r, -1);
    TRY_TO(free_block, op_matmul(s, &c, &a, false, &b, false, false));
    dev_set_phase(d, DEV_PHASE_OTHER, r, -1);
    TRY_TO(free_block, dev_sync_stream(s));
    slots_say(o->slots, "gemm", r);
  }
  const struct tasks_measure m = {.what = type == DTYPE_F64 ? "dgemm" : type == DTYPE_F32 ? "sgemm" : type == DTYPE_F16 ? "hgemm" : "bgemm", .size = n,
                                  .flops = 2.0 * (double)n * (double)n * (double)n, .bytes = 3 * (int64_t)bytes};
  TRY_TO(free_block, tasks_say(o, d, &m));

free_block:
  dev_sync_stream(s); /* also of what was queued before a failure */
  dev_free(d, block);
  return err;
}

static enum err measure(const struct output *o, struct dev *d, struct dev_stream *s, bool *fatal)
{
  int threads;
  TRY(threads_count(s, &threads));
  TRY(say_rank(o, d, threads, NULL));
  switch (o->run->task) {
  case TASK_GEMM:
    for (int64_t n = o->run->size; n <= 4 * o->run->size; n *= 2) TRY(gemm_size(o, d, s, n));
    return ERR_OK;
  case TASK_COPY: TRY(tasks_copy(o, d, s)); return ERR_OK;
  case TASK_COMM: TRY(tasks_comm(o, d, s, fatal)); return ERR_OK;
  case TASK_OVERLAP: TRY(tasks_overlap(o, s, fatal)); return ERR_OK;
  default: return ERR_OK;
  }
}

enum err tasks_run(const struct output *o, bool *fatal)
{
  enum err err;
  struct dev *d = NULL;
  struct dev_stream *s = NULL;
  const struct dev_config config = device_config(o->run, o->world);
  *fatal = false;
  TRY_TO(close_device, dev_open(&config, &d));
  TRY_TO(close_device, dev_stream_open(d, "compute", DEV_COMPUTE, &s));
  TRY_TO(close_device, dev_trace(d, TASK_INTERVALS));
  TRY_TO(close_device, measure(o, d, s, fatal));

close_device:
  if (*fatal) return err;
  dev_stream_close(s);
  dev_close(d);
  return comm_agree(o->world, err);
}
