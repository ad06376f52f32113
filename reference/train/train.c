/* train.c - the loop over steps; what is recorded when. */
#include "train/train.h"

#include "base/clock.h"
#include "base/fault.h"
#include "base/log.h"
#include "comm/pmpi_shim.h"
#include "train/dump.h"
#include "train/dump_batches.h"
#include "train/meters.h"
#include "train/plant.h"
#include "train/say.h"
#include "train/threads.h"
#include "train/warm.h"

#include <inttypes.h>

enum { TELL_EACH_MS = 1000 };

struct loop {
  const struct output *output;
  const struct run_config *run;
  struct trainer *t;
  struct dumper *dump;
  struct batch_rows *batches; /* NULL: not kept */
  struct say_memory memory;
  struct dev_health health; /* of the card, before the first step */
  struct span_marks marks;  /* of the host, since the last step */
  double told_ms; /* when a person last heard of it */
};

static bool recorded(const struct run_config *run, int64_t step)
{
  return step % run->records_each == 0 || step == run->steps - 1;
}

/* What was queued between steps is nobody's time; weights that are still being gathered are the next step's. */
static enum err forget(struct loop *l)
{
  const struct dev_interval *list;
  int64_t n, lost;
  TRY(trainer_sync(l->t));
  TRY(dev_trace_take(l->t->dev, &list, &n, &lost));
  comm_trace_restart(l->t->world);
  pmpi_restart();
  return ERR_OK;
}

/* Hashing costs a pass over all state: with tensors dumped at every recorded step, else at the end. */
static enum err record_step(struct loop *l, int64_t step, const struct step_clock *clock)
{
  TRY(say_batches(l->t, l->output, step));
  TRY(say_step(l->t, l->output, step));
  /* What MPI was asked for is counted when it was.  A run that dumps is for what it computes, not for its time. */
  if (l->run->dump != DUMP_NONE) TRY(dev_sync(l->t->dev));
  TRY(say_calls(l->t, l->output, step));
  TRY(say_time(l->t, l->output, step, clock, &l->marks));
  if (l->run->dump != DUMP_NONE || step == l->run->steps - 1) TRY(say_replicas(l->t, l->output, step));
  spans_restart(&l->marks, clock->end_ms);
  spans_mark(&l->marks, "log", clock_ms());
  TRY(dump_after(l->dump, step));
  if (l->run->dump != DUMP_NONE) spans_mark(&l->marks, "dump", clock_ms());
  return ERR_OK;
}

/* For a person: now and then, first and last.  No speed: that comes with a verdict, from the harness. */
static void tell(struct loop *l, int64_t step)
{
  const bool ends = step == 0 || step == l->run->steps - 1;
  if (!ends && clock_ms() - l->told_ms < TELL_EACH_MS) return;
  l->told_ms = clock_ms();
  log_info("%s: step %" PRId64 " of %" PRId64 ", loss %.4f", l->run->name, step + 1, l->run->steps, l->t->now.all[1]);
}

static enum err one_step(struct loop *l, int64_t step)
{
  struct step_clock clock;
  struct dev_usage usage;
  slots_say(l->output->slots, "step", step);
  if (recorded(l->run, step)) TRY(dump_before(l->dump, step));
  TRY(forget(l));
  if (step > 0) spans_mark(&l->marks, l->run->dump != DUMP_NONE ? "dump" : "log", clock_ms());
  TRY(step_run(l->t, step, &clock));
  dump_batches_take(l->batches, step);
  if (step == 0) {
    dev_usage(l->t->dev, &usage);
    l->memory.allocations_first = usage.allocations + usage.host_allocations;
    dev_usage_restart(l->t->dev);
  }
  if (recorded(l->run, step)) TRY(record_step(l, step, &clock));
  else spans_restart(&l->marks, clock.end_ms);
  tell(l, step);
  plant_log(l->t, step);
  spans_mark(&l->marks, "log", clock_ms());
  return ERR_OK;
}

static enum err evaluate_after(struct loop *l, int64_t updates)
{
  struct evaluation e;
  if (l->run->evaluate_each == 0 || updates % l->run->evaluate_each != 0) return ERR_OK;
  slots_say(l->output->slots, "evaluate", updates);
  TRY(evaluate(l->t, &e));
  TRY(say_evaluation(l->output, updates, &e));
  spans_mark(&l->marks, "evaluate", clock_ms());
  return ERR_OK;
}

/* What the card did over the steps.  A run that dumps tensors is for what it computes, not for its time. */
static enum err judge_health(struct loop *l)
{
  struct dev_health after;
  if (l->run->device != DEV_CUDA) return ERR_OK;
  TRY(dev_sync(l->t->dev));
  dev_health(l->t->dev, &after);
  TRY(say_health(l->output, l->t->dev, &l->health, &after));
  return dev_health_judge(&l->health, &after, l->run->dump == DUMP_NONE);
}

/* The most memory that was held, as somebody else counts: of a card its driver, for whom all ranks on it are one. */
static enum err take_mark(struct loop *l)
{
  struct say_memory *m = &l->memory;
  if (l->run->device != DEVICE_CUDA) {
    TRY(meters_memory_peak(&m->os_peak));
    TRY(meters_memory_others(&m->others));
    return ERR_OK;
  }
  struct dev_driver_usage u;
  m->os_base = m->others_base = 0;
  m->os_peak = -1;
  if (!dev_driver_usage(l->t->dev, &u) || (l->run->transport == TRANSPORT_STAGED && comm_size(l->t->world) > 1)) return ERR_OK;
  m->os_peak = u.bytes;
  m->others = u.spare_bytes;
  return ERR_OK;
}

static enum err steps(struct loop *l)
{
  int64_t n = l->run->steps;
  if (fault_is(FAULT_HG_UNEVEN_STEPS) && comm_rank(l->t->world) == fault_rank) n--;
  for (int64_t step = 0; step < n; step++) {
    TRY(one_step(l, step));
    TRY(evaluate_after(l, step + 1));
  }
  slots_say(l->output->slots, "end", l->run->steps);
  TRY(judge_health(l));
  TRY(dump_before(l->dump, l->run->steps));
  TRY(dev_sync(l->t->dev)); /* lazy tells here what it found last */
  TRY(take_mark(l));
  TRY(dump_batches_write(l->batches));
  TRY(say_data(l->t, l->output));
  TRY(say_memory(l->t, l->output, &l->memory));
  if (l->run->trace_time || l->run->trace_spans) TRY(say_clock(l->output));
  return ERR_OK;
}

/* What is there before a run: its memory is counted from here. */
static enum err before(const struct output *o, struct say_memory *m)
{
  TRY(warm_libraries(o->run, o->world));
  TRY(meters_memory_restart(&m->os_base));
  TRY(meters_memory_others(&m->others_base));
  return ERR_OK;
}

static enum err start(struct loop *l)
{
  int threads;
  int64_t after_start; /* the mark is set again: what setting up took and gave back is not training's */
  TRY(dump_create(l->t, l->output, &l->dump));
  TRY(dump_batches_create(l->t, &l->batches));
  TRY(threads_count(l->t->compute, &threads));
  TRY(say_parameters(l->t, l->output));
  TRY(say_rank(l->output, l->t->dev, threads, &l->t->mesh));
  TRY(meters_memory_restart(&after_start));
  dev_health(l->t->dev, &l->health);
  return ERR_OK;
}

/* An unordered access that lazy saw is a record of its own, whatever else went wrong. */
static void say_findings(const struct loop *l)
{
  if (dev_findings(l->t->dev)[0] == '\0') return;
  struct err_saved saved;
  err_save(&saved, ERR_DEVICE);
  say_finding(l->output, dev_findings(l->t->dev));
  err_restore(&saved);
}

enum err train_run(const struct output *o, bool *fatal)
{
  enum err err;
  struct loop l = {.output = o, .run = o->run};
  *fatal = false;
  TRY(comm_agree(o->world, before(o, &l.memory)));
  TRY(trainer_create(o->world, o->run, &l.t, fatal));
  TRY_TO(destroy_loop, comm_agree(o->world, start(&l)));

  err = steps(&l);
  if (err) {
    say_findings(&l);
    *fatal = comm_size(o->world) > 1; /* others may be in a collective that this rank will not join */
    TRY_TO(destroy_loop, err);
  }
  TRY_TO(destroy_loop, comm_agree(o->world, ERR_OK));

destroy_loop:
  if (!*fatal) {
    dump_batches_destroy(l.batches);
    dump_destroy(l.dump);
    trainer_destroy(l.t);
  }
  return err;
}
