/* job.c - plants the fault, opens the output, runs the task, closes and clears again. */
#include "train/job.h"

#include "base/fault.h"
#include "train/output.h"
#include "train/say.h"
#include "train/tasks.h"
#include "train/train.h"

static enum err run_task(const struct output *o, bool *fatal)
{
  const bool first = comm_rank(o->world) == 0;
  TRY(comm_agree(o->world, fault_plant(o->run->fault, o->run->fault_strength, (int)o->run->fault_rank)));
  TRY(comm_agree(o->world, first ? say_run(o) : ERR_OK));
  if (o->run->task == TASK_TRAIN) TRY(train_run(o, fatal));
  else TRY(tasks_run(o, fatal));
  return ERR_OK;
}

enum err job_run(struct comm_world *w, const struct run_config *run, struct last_words *words, bool *fatal)
{
  struct output output;
  *fatal = false;
  TRY(output_open(w, run, words, &output));
  const enum err err = run_task(&output, fatal);
  fault_plant("", 1.0, 0);
  if (*fatal) {
    output_abandon(&output, err);
    return err_trace(err, __FILE__, __LINE__);
  }
  const enum err finished = output_finish(&output, err);
  if (err) return err_trace(err, __FILE__, __LINE__);
  TRY(finished);
  return ERR_OK;
}
