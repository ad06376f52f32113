/* bare.c - one thread, one queue, one communicator. */
#include "comm/bare.h"

#include "base/clock.h"
#include "comm/comm_state.h"

#include <pthread.h>
#include <stdlib.h>
#include <sys/prctl.h>

/* Beside compute by the trainer's own rule, so that both look as often.  A caller that only waits has no compute to disturb. */
static const double short_nap_ms = 0.02;
static const double empty_look_ms = 0.005; /* of processor time; one that finds nothing takes 1 to 4 us */

struct sum {
  void *at;
  int64_t count;
  enum dtype type;
  bool aligned;
};

struct bare {
  struct link *link;
  pthread_t thread;
  bool started; /* the thread */
  pthread_mutex_t lock;
  pthread_cond_t changed;
  struct sum queue[BARE_ROOM];
  int given, done; /* of this round; bare_wait() starts another */
  bool waiting, ends;
  struct bare_times times;
  enum err err;
  struct err_saved failure;
};

static bool is_waiting(struct bare *b)
{
  pthread_mutex_lock(&b->lock);
  const bool waiting = b->waiting;
  pthread_mutex_unlock(&b->lock);
  return waiting;
}

/* One that moved something adds its processor time to *ms. */
static enum err look(struct bare *b, bool *done, double *ms, double *took_ms)
{
  const double start_ms = clock_thread_ms();
  TRY(link_test(b->link, done));
  *took_ms = clock_thread_ms() - start_ms;
  if (*took_ms > empty_look_ms) *ms += *took_ms;
  return ERR_OK;
}

static enum err until_done(struct bare *b, double *processor_ms)
{
  bool done = false;
  double took_ms = 0;
  long nap_us = 0;
  TRY(look(b, &done, processor_ms, &took_ms));
  while (!done) {
    nap_us = dev_cpu_nap_us(nap_us, 1e3 * took_ms);
    clock_sleep_ms(is_waiting(b) ? short_nap_ms : 1e-3 * (double)nap_us);
    TRY(look(b, &done, processor_ms, &took_ms));
  }
  return ERR_OK;
}

static enum err make(struct bare *b, const struct sum *s, struct bare_times *out)
{
  double of_barrier_ms = 0;
  *out = (struct bare_times){0};
  if (s->aligned) {
    TRY(link_barrier(b->link));
    TRY(until_done(b, &of_barrier_ms));
  }
  const double start_ms = clock_ms(), processor_ms = clock_thread_ms();
  TRY(link_allreduce(b->link, s->at, s->count, s->type, COMM_SUM));
  out->processor_ms = clock_thread_ms() - processor_ms;
  TRY(until_done(b, &out->processor_ms));
  out->ms = clock_ms() - start_ms;
  return ERR_OK;
}

static void *work(void *arg)
{
  struct bare *b = arg;
  prctl(PR_SET_TIMERSLACK, 1000UL); /* ns: naps are short */
  pthread_mutex_lock(&b->lock);
  for (;;) {
    while (b->done == b->given && !b->ends) pthread_cond_wait(&b->changed, &b->lock);
    if (b->done == b->given) break;
    const struct sum next = b->queue[b->done];
    pthread_mutex_unlock(&b->lock);
    struct bare_times times = {0};
    const enum err err = b->err ? b->err : make(b, &next, &times);
    pthread_mutex_lock(&b->lock);
    if (err && !b->err) err_save(&b->failure, err);
    b->err = err;
    b->times.ms += times.ms;
    b->times.processor_ms += times.processor_ms;
    b->done++;
    pthread_cond_broadcast(&b->changed);
  }
  pthread_mutex_unlock(&b->lock);
  return NULL;
}

enum err bare_create(struct comm_world *w, struct bare **out)
{
  enum err err = ERR_OK;
  *out = NULL;
  const int n = comm_size(w);
  int *ranks = malloc((size_t)n * sizeof *ranks);
  struct bare *b = calloc(1, sizeof *b);
  if (ranks == NULL || b == NULL) FAIL_TO(fail, ERR_MEMORY, "bare sums over %d ranks", n);
  pthread_mutex_init(&b->lock, NULL);
  pthread_cond_init(&b->changed, NULL);
  for (int i = 0; i < n; i++) ranks[i] = i;
  TRY_TO(fail, link_create(w->all, ranks, n, &b->link));
  if (pthread_create(&b->thread, NULL, work, b) != 0) FAIL_TO(fail, ERR_DEVICE, "no thread for bare sums");
  b->started = true;
  free(ranks);
  *out = b;
  return ERR_OK;

fail:
  free(ranks);
  bare_destroy(b);
  return err;
}

void bare_destroy(struct bare *b)
{
  if (b == NULL) return;
  if (b->started) {
    pthread_mutex_lock(&b->lock);
    b->ends = true;
    pthread_cond_broadcast(&b->changed);
    pthread_mutex_unlock(&b->lock);
    pthread_join(b->thread, NULL);
  }
  link_destroy(b->link);
  pthread_cond_destroy(&b->changed);
  pthread_mutex_destroy(&b->lock);
  free(b);
}

enum err bare_sum(struct bare *b, void *at, int64_t count, enum dtype type, bool aligned)
{
  if (count < 0 || count > LINK_PIECE) FAIL(ERR_ARG, "a bare sum of %lld elements; valid: 0..%d", (long long)count, LINK_PIECE);
  pthread_mutex_lock(&b->lock);
  const bool fits = b->given < BARE_ROOM;
  if (fits) b->queue[b->given++] = (struct sum){at, count, type, aligned};
  pthread_cond_broadcast(&b->changed);
  pthread_mutex_unlock(&b->lock);
  if (!fits) FAIL(ERR_ARG, "more than %d bare sums under way", BARE_ROOM);
  return ERR_OK;
}

enum err bare_wait(struct bare *b, struct bare_times *out)
{
  pthread_mutex_lock(&b->lock);
  b->waiting = true;
  while (b->done < b->given) pthread_cond_wait(&b->changed, &b->lock);
  *out = b->times;
  b->waiting = false;
  b->given = b->done = 0;
  b->times = (struct bare_times){0};
  const enum err err = b->err;
  b->err = ERR_OK;
  pthread_mutex_unlock(&b->lock);
  return err ? err_restore(&b->failure) : ERR_OK;
}

enum err bare_meet(struct bare *b)
{
  TRY(link_barrier(b->link));
  TRY(link_wait(b->link));
  return ERR_OK;
}
