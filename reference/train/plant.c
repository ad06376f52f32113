/* plant.c - wrong numbers and lost time, on purpose. */
#include "train/plant.h"

#include "base/clock.h"
#include "base/fault.h"
#include "ops/ops.h"

#include <math.h>
#include <time.h>

enum err plant_scale(struct trainer *t, int64_t i, double wrong, struct tensor *scale)
{
  double *host = t->planted + 2 * i; /* [keep, add]; each its own, for the copies run later */
  host[0] = 1.0 - fault_strength;
  host[1] = wrong * fault_strength;
  TRY(dev_copy_in(t->compute, t->at.planted.at, host, 2 * sizeof *host));
  const struct tensor keep = trainer_scalar(&t->at.planted, 0, 0), add = trainer_scalar(&t->at.planted, 0, 1);
  TRY(op_scale(t->compute, &keep, &t->at.scale, &keep));
  TRY(op_accumulate(t->compute, &keep, &add));
  *scale = keep;
  return ERR_OK;
}

enum err plant_infinity(struct trainer *t, int r)
{
  const int mine = t->run.replicas > 1 ? r : comm_rank(t->world);
  int row = t->table->n - 1;
  if (t->tagged_step != t->run.inf_step || mine != t->run.inf_rank) return ERR_OK;
  for (; row >= 0; row--) {
    const struct param *p = &t->table->rows[row];
    if (t->flat->length[row] > 0 && p->shared_with < 0 && !p->frozen && p->cut != PARAM_WHOLE) break;
  }
  if (row < 0) FAIL(ERR_CONFIG, "inf_rank: %d trains no parameter", mine);
  const enum dtype type = t->gradients.type; /* the buffer that backward adds to is whole where zero is below 2 */
  const struct tensor one = tensor_at((char *)t->gradients.at + (size_t)t->flat->offset[row] * dtype_bytes(type), type, 1, 1);
  TRY(op_fill(t->compute, &one, INFINITY));
  return ERR_OK;
}

/* --- slowness ------------------------------------------------------------------------ */

struct slow_args {
  double *since_ms, percent;
};

/* In the stream's own thread's time: what others took of its core is not its work. */
static enum err mark_time(void *args)
{
  *((struct slow_args *)args)->since_ms = clock_thread_ms();
  return ERR_OK;
}

static enum err drag(void *args)
{
  const struct slow_args *a = args;
  clock_sleep_ms((clock_thread_ms() - *a->since_ms) * a->percent / 100.0);
  return ERR_OK;
}

static bool is_slow(const struct trainer *t, enum slow_phase part)
{
  const bool pass = part == SLOW_FORWARD || part == SLOW_BACKWARD;
  return comm_rank(t->world) == t->run.slow_rank && (t->run.slow_phase == (int64_t)part || (t->run.slow_phase == SLOW_COMPUTE && pass));
}

/* Of slow_ms: what one of this step's parts takes more. */
static double share_ms(const struct trainer *t)
{
  const double forwards = (double)(t->n_micro * t->run.chunks), backwards = forwards * (t->training->splits ? 2 : 1);
  switch (t->run.slow_phase) {
  case SLOW_FORWARD: return t->run.slow_ms / forwards;
  case SLOW_BACKWARD: return t->run.slow_ms / backwards;
  case SLOW_COMPUTE: return t->run.slow_ms / (forwards + backwards);
  default: return t->run.slow_ms;
  }
}

static enum err submit(struct trainer *t, enum slow_phase part, const struct dev_kernel *kernel, bool write)
{
  if (t->run.slow_percent == 0 || !is_slow(t, part)) return ERR_OK;
  const struct slow_args args = {t->at.since.at, t->run.slow_percent};
  const struct dev_range range = write ? dev_writes(&t->at.since) : dev_reads(&t->at.since);
  TRY(dev_submit(t->compute, kernel, &args, sizeof args, &range, 1));
  return ERR_OK;
}

enum err plant_slow_start(struct trainer *t, enum slow_phase part)
{
  static const struct dev_kernel kernel = {.name = "slow.mark", .run = mark_time};
  TRY(submit(t, part, &kernel, true));
  return ERR_OK;
}

enum err plant_slow_finish(struct trainer *t, enum slow_phase part)
{
  static const struct dev_kernel kernel = {.name = "slow.drag", .run = drag};
  TRY(submit(t, part, &kernel, false));
  if (t->run.slow_ms > 0 && is_slow(t, part)) TRY(op_sleep(t->compute, share_ms(t)));
  return ERR_OK;
}

double plant_slow_sleep(const struct trainer *t, enum slow_phase part, double ms)
{
  return is_slow(t, part) ? ms * (1 + t->run.slow_percent / 100) + share_ms(t) : ms;
}

void plant_log(const struct trainer *t, int64_t step)
{
  const struct run_config *run = &t->run;
  if (run->slow_phase == SLOW_LOG && comm_rank(t->world) == run->slow_rank && (step + 1) % run->slow_every == 0) clock_sleep_ms(run->slow_ms);
}
