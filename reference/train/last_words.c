/* last_words.c - waits for a signal beside the main thread. */
#include "train/last_words.h"

#include "base/clock.h"
#include "base/record.h"

#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct last_words {
  const struct comm_world *world;
  pthread_t thread;
  pthread_mutex_t lock; /* all below */
  bool over;            /* the signal is last_words_stop's */
  char path[2048], name[256];
  double start_ms;
};

static void signals(sigset_t *out)
{
  sigemptyset(out);
  sigaddset(out, SIGTERM);
  sigaddset(out, SIGINT);
}

void last_words_block(void)
{
  sigset_t set;
  signals(&set);
  pthread_sigmask(SIG_BLOCK, &set, NULL);
}

static void speak(const struct last_words *l, int signal_number)
{
  struct record_file *f;
  char where[512], text[640];
  if (l->path[0] == '\0' || record_open(l->path, l->name, comm_rank(l->world), &f) != ERR_OK) return;
  comm_last_call(l->world, where, sizeof where);
  snprintf(text, sizeof text, "ended by signal %d; last collectives: %s", signal_number, where);
  record_begin(f, "finding", -1, -1);
  record_text(f, "got.text", text);
  record_end(f);
  record_begin(f, "done", -1, -1);
  record_text(f, "got.error", text);
  record_text(f, "got.error_kind", "interrupted");
  record_real(f, "got.seconds", (clock_ms() - l->start_ms) / 1000.0);
  record_end(f);
}

static void *wait_for_signal(void *arg)
{
  struct last_words *l = arg;
  sigset_t set;
  int signal_number;
  signals(&set);
  if (sigwait(&set, &signal_number) != 0) return NULL;
  pthread_mutex_lock(&l->lock);
  if (l->over) {
    pthread_mutex_unlock(&l->lock);
    return NULL;
  }
  speak(l, signal_number);
  _exit(128 + signal_number); /* the lock stays held: nobody else writes a last record */
}

enum err last_words_start(const struct comm_world *w, struct last_words **out)
{
  *out = NULL;
  struct last_words *l = calloc(1, sizeof *l);
  if (l == NULL) FAIL(ERR_MEMORY, "last words: %zu bytes", sizeof *l);
  l->world = w;
  pthread_mutex_init(&l->lock, NULL);
  const int failed = pthread_create(&l->thread, NULL, wait_for_signal, l);
  if (failed) {
    free(l);
    FAIL(ERR_MEMORY, "last words: thread: %s", strerror(failed));
  }
  *out = l;
  return ERR_OK;
}

void last_words_stop(struct last_words *l)
{
  if (l == NULL) return;
  pthread_mutex_lock(&l->lock);
  l->over = true;
  pthread_mutex_unlock(&l->lock);
  pthread_kill(l->thread, SIGTERM);
  pthread_join(l->thread, NULL);
  pthread_mutex_destroy(&l->lock);
  free(l);
}

void last_words_about(struct last_words *l, const char *path, const char *name)
{
  if (l == NULL) return;
  pthread_mutex_lock(&l->lock);
  snprintf(l->path, sizeof l->path, "%s", path ? path : "");
  snprintf(l->name, sizeof l->name, "%s", name ? name : "");
  l->start_ms = clock_ms();
  pthread_mutex_unlock(&l->lock);
}
