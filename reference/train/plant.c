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

/* Of the stream's own thread: what others took of its core is not its work. */
static double processor_ms(void)
{
  struct timespec t;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return 1e3 * (double)t.tv_sec + 1e-6 * (double)t.tv_nsec;
}

static enum err mark_time(void *args)
{
  *((struct slow_args *)args)->since_ms = processor_ms();
  return ERR_OK;
}

static enum err drag(void *args)
{
  const struct slow_args *a = args;
  clock_sleep_ms((processor_ms() - *a->since_ms) * a->percent / 100.0);
  return ERR_OK;
}

static enum err submit(struct trainer *t, const struct dev_kernel *kernel, bool write)
{
  if (t->run.slow_percent == 0 || comm_rank(t->world) != t->run.slow_rank) return ERR_OK;
  const struct slow_args args = {t->at.since.at, t->run.slow_percent};
  const struct dev_range range = write ? dev_writes(&t->at.since) : dev_reads(&t->at.since);
  TRY(dev_submit(t->compute, kernel, &args, sizeof args, &range, 1));
  return ERR_OK;
}

enum err plant_slow_start(struct trainer *t)
{
  static const struct dev_kernel kernel = {.name = "slow.mark", .run = mark_time};
  TRY(submit(t, &kernel, true));
  return ERR_OK;
}

enum err plant_slow_finish(struct trainer *t)
{
  static const struct dev_kernel kernel = {.name = "slow.drag", .run = drag};
  TRY(submit(t, &kernel, false));
  return ERR_OK;
}
