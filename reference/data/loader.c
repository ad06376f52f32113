/* loader.c - a thread that fills sets of batches, and the one that takes them. */
#include "data/loader.h"

#include "base/clock.h"
#include "base/rank_list.h"
#include "base/rng.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { SITE_READ = 1 }; /* low bits of RNG_DELAY; 0 is the device's */
static const int64_t NONE = INT64_MIN; /* no step: below any of evaluation */

struct set {
  int64_t step;
  struct batch *batches;
  struct err_saved failure; /* code ERR_OK: it was read */
};

struct loader {
  struct loader_config config;
  struct run_config run;
  int64_t *numbers;
  void *block;             /* all batches */
  struct batch *batches;   /* views of it, set by set */
  struct set *sets;        /* step i of those asked for in a row is in set i % n_sets */
  int64_t n_sets;
  struct set *held;        /* by the caller, or NULL */
  bool threaded, locks;    /* what there is to be undone */

  pthread_t thread;
  pthread_mutex_t lock;    /* of all that follows */
  pthread_cond_t wanted;   /* there may be room for another set, or the end is asked for */
  pthread_cond_t read;     /* a set was read, or one that nobody wants any more was given up */
  bool ends, busy;
  int64_t next;            /* to be read, NONE: nothing                             */
  int64_t trained, trained_taken; /* training steps up to the last that was read, and that was taken */
  int64_t filled, taken;   /* sets, since reading began                            */
};

double loader_planted_ms(const struct run_config *run, int rank, int64_t step)
{
  if (step < 0 || !rank_list_has(run->read_ranks, rank)) return 0;
  const struct rng_key key = {(uint64_t)run->delay_seed, RNG_DELAY + SITE_READ, (uint32_t)step};
  double ms = run->read_delay_ms;
  if (run->read_jitter_ms > 0) ms += run->read_jitter_ms * rng_uniform(key, (uint64_t)rank);
  if (step == run->read_stall_step) ms += run->read_stall_ms;
  return ms;
}

/* --- reading ------------------------------------------------------------------------------ */

/* The step after `step`, which is one of `trained` training steps, or of an evaluation after them. */
static int64_t step_after(const struct run_config *run, int64_t step, int64_t trained)
{
  const bool evaluates = run->evaluate_each > 0 && trained % run->evaluate_each == 0;
  if (step >= 0 && evaluates) return -1;
  if (step < 0 && -step < run->evaluate_batches) return step - 1;
  return trained < run->steps ? trained : NONE;
}

static enum err read_set(const struct loader *l, int64_t step, struct set *s)
{
  s->step = step;
  for (int64_t i = 0; i < l->config.n; i++) TRY(l->config.read(l->config.arg, step, l->numbers[i], &s->batches[i]));
  return ERR_OK;
}

/* Under the lock, which others have meanwhile.  False: the step is not wanted any more, which ends it at once. */
static bool wait_planted(struct loader *l, int64_t step)
{
  const double ms = loader_planted_ms(&l->run, l->config.rank, step);
  struct timespec until;
  clock_gettime(CLOCK_MONOTONIC, &until);
  const double ns = (double)until.tv_nsec + ms * 1e6;
  const time_t seconds = (time_t)(ns / 1e9);
  until.tv_sec += seconds;
  until.tv_nsec = (long)(ns - (double)seconds * 1e9);
  int over = ms > 0 ? 0 : ETIMEDOUT;
  while (!l->ends && l->next == step && over != ETIMEDOUT) over = pthread_cond_timedwait(&l->wanted, &l->lock, &until);
  return !l->ends && l->next == step;
}

/* Under the lock, but for the reading itself. */
static void read_next(struct loader *l)
{
  const int64_t step = l->next;
  struct set *s = &l->sets[l->filled % l->n_sets];
  if (!wait_planted(l, step)) return;
  pthread_mutex_unlock(&l->lock);
  err_save(&s->failure, read_set(l, step, s));
  pthread_mutex_lock(&l->lock);
  if (l->next != step) return;
  if (step >= 0) l->trained = step + 1;
  l->next = s->failure.code == ERR_OK ? step_after(&l->run, step, l->trained) : NONE;
  l->filled++;
}

static void *read_ahead(void *arg)
{
  struct loader *l = arg;
  pthread_mutex_lock(&l->lock);
  while (!l->ends) {
    l->busy = l->next != NONE && l->filled - l->taken < l->run.read_ahead;
    if (l->busy) read_next(l);
    else pthread_cond_wait(&l->wanted, &l->lock);
    l->busy = false;
    pthread_cond_signal(&l->read);
  }
  pthread_mutex_unlock(&l->lock);
  return NULL;
}

/* --- taking --------------------------------------------------------------------------------- */

/* What the thread is at is given up, what it has read forgotten. */
static void begin_at(struct loader *l, int64_t step)
{
  l->next = NONE;
  pthread_cond_signal(&l->wanted);
  while (l->busy) pthread_cond_wait(&l->read, &l->lock);
  l->filled = l->taken = 0;
  l->trained = l->trained_taken;
  l->next = step;
  pthread_cond_signal(&l->wanted);
}

static enum err take_read(struct loader *l, int64_t step, struct set **out)
{
  pthread_mutex_lock(&l->lock);
  const int64_t expected = l->filled > l->taken ? l->sets[l->taken % l->n_sets].step : l->next;
  if (step != expected) begin_at(l, step);
  while (l->filled == l->taken) pthread_cond_wait(&l->read, &l->lock);
  struct set *s = *out = &l->sets[l->taken++ % l->n_sets];
  if (step >= 0) l->trained_taken = step + 1;
  pthread_cond_signal(&l->wanted);
  pthread_mutex_unlock(&l->lock);
  if (s->failure.code != ERR_OK) TRY(err_restore(&s->failure));
  return ERR_OK;
}

enum err loader_take(struct loader *l, int64_t step, const struct batch **out)
{
  const struct batch *first = l->held ? l->held->batches : NULL;
  if (first) TRY(dev_host_touch(l->config.dev, first->tokens, (size_t)l->config.n * batch_bytes(first->B, first->T), true));
  struct set *s = &l->sets[0];
  if (l->threaded) {
    TRY(take_read(l, step, &s));
  } else {
    clock_sleep_ms(loader_planted_ms(&l->run, l->config.rank, step));
    TRY(read_set(l, step, s));
  }
  l->held = s;
  *out = s->batches;
  return ERR_OK;
}

int64_t loader_ahead(struct loader *l)
{
  if (!l->threaded) return 0;
  pthread_mutex_lock(&l->lock);
  const int64_t n = l->filled - l->taken;
  pthread_mutex_unlock(&l->lock);
  return n;
}

/* --- creating ----------------------------------------------------------------------------------- */

static enum err create_sets(struct loader *l)
{
  const int64_t n = l->config.n, sets = l->n_sets = l->run.read_ahead + 1;
  const size_t bytes = batch_bytes(l->run.micro_batch, l->run.sequence);
  l->numbers = malloc((size_t)n * sizeof *l->numbers);
  l->sets = calloc((size_t)sets, sizeof *l->sets);
  l->batches = calloc((size_t)(sets * n), sizeof *l->batches);
  if (l->numbers == NULL || l->sets == NULL || l->batches == NULL) FAIL(ERR_MEMORY, "loader: %lld x %lld micro-batches", (long long)sets, (long long)n);
  memcpy(l->numbers, l->config.numbers, (size_t)n * sizeof *l->numbers);
  TRY(dev_host_alloc(l->config.dev, (size_t)(sets * n) * bytes, "micro-batches read ahead", &l->block));
  for (int64_t i = 0; i < sets * n; i++) l->batches[i] = batch_at((char *)l->block + (size_t)i * bytes, l->run.micro_batch, l->run.sequence);
  for (int64_t i = 0; i < sets; i++) l->sets[i] = (struct set){.step = NONE, .batches = l->batches + i * n};
  return ERR_OK;
}

static enum err start(struct loader *l)
{
  pthread_condattr_t monotonic;
  sigset_t all, before; /* signals are for the host's thread */
  pthread_mutex_init(&l->lock, NULL);
  pthread_condattr_init(&monotonic);
  pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
  pthread_cond_init(&l->wanted, &monotonic);
  pthread_cond_init(&l->read, NULL);
  pthread_condattr_destroy(&monotonic);
  l->locks = true;
  l->next = l->run.steps > 0 ? 0 : NONE;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  const int failed = pthread_create(&l->thread, NULL, read_ahead, l);
  pthread_sigmask(SIG_SETMASK, &before, NULL);
  if (failed) FAIL(failed == EAGAIN ? ERR_MEMORY : ERR_DEVICE, "loader: no thread: %s", strerror(failed));
  l->threaded = true;
  pthread_setname_np(l->thread, "loader");
  return ERR_OK;
}

enum err loader_create(const struct loader_config *config, struct loader **out)
{
  enum err err;
  *out = NULL;
  struct loader *l = calloc(1, sizeof *l);
  if (l == NULL) FAIL(ERR_MEMORY, "loader: %zu bytes", sizeof *l);
  l->config = *config;
  l->run = *config->run;
  l->config.run = &l->run;
  TRY_TO(destroy_loader, create_sets(l));
  if (l->run.read_ahead > 0) TRY_TO(destroy_loader, start(l));
  *out = l;
  return ERR_OK;

destroy_loader:
  loader_destroy(l);
  return err;
}

void loader_destroy(struct loader *l)
{
  if (l == NULL) return;
  if (l->threaded) {
    pthread_mutex_lock(&l->lock);
    l->ends = true;
    pthread_cond_signal(&l->wanted);
    pthread_mutex_unlock(&l->lock);
    pthread_join(l->thread, NULL);
  }
  if (l->locks) {
    pthread_cond_destroy(&l->read);
    pthread_cond_destroy(&l->wanted);
    pthread_mutex_destroy(&l->lock);
  }
  dev_host_free(l->config.dev, l->block);
  free(l->batches);
  free(l->sets);
  free(l->numbers);
  free(l);
}
