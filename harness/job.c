/* job.c - starts, listens, watches the clock, and leaves no process behind. */
#include "harness/job.h"
#include "harness/ending.h"
#include "harness/results.h"
#include "harness/stall.h"

#include "base/clock.h"
#include <jansson.h>

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

enum { TAIL = 8192 };
static const double start_seconds = 30;
static const double look_each_ms = 100, grace_ms = 5000; /* Open MPI takes 2 s to end its ranks one way or another */

struct job {
  pid_t pid;
  char mark[64]; /* "SHARDMARK_JOB=..." stands in the environment of all its processes */
  int pipe;
  const struct job_case *cases;
  int n, current;
  double case_start_ms, progress_ms, looked_ms;
  int64_t progress;
  int output;     /* output.txt of the current case; -1: not open */
  size_t written; /* bytes of it                                  */
  char tail[TAIL];
  size_t tail_used;
  int errors;     /* ranks of finished cases that told of one */
  bool stopping, over;
  double kill_at_ms;
  struct job_end end;
};

/* --- what stands in the files of a case ---------------------------------------- */

/* Counts `done` records among the last lines of one file. */
static int done_in(const char *path, int most, int *errors)
{
  char *text;
  int count = 0;
  const int fd = open(path, O_RDONLY | O_CLOEXEC);
  struct stat st;
  if (fd < 0) return 0;
  if (fstat(fd, &st) == 0 && st.st_size > 0) {
    const off_t want = st.st_size < 4096 * (off_t)most ? st.st_size : 4096 * (off_t)most;
    text = malloc((size_t)want + 1);
    const ssize_t n = text ? pread(fd, text, (size_t)want, st.st_size - want) : -1;
    if (n > 0) {
      text[n] = '\0';
      char *rest = text;
      for (char *line; (line = strsep(&rest, "\n")) != NULL && rest != NULL;) { /* a line not ended yet does not count */
        json_t *r = strstr(line, "\"done\"") ? json_loads(line, 0, NULL) : NULL;
        const char *kind = json_string_value(json_object_get(r, "kind"));
        const char *error = json_string_value(json_object_get(r, "got.error"));
        if (kind && strcmp(kind, "done") == 0 && !ending_is_last_words(r)) {
          count++;
          *errors += error == NULL || *error != '\0';
        }
        json_decref(r);
      }
    }
    free(text);
  }
  close(fd);
  return count;
}

bool job_case_done(const char *dir, int ranks, int *errors)
{
  *errors = 0;
  char path[LAUNCH_PATH];
  int done = 0;
  DIR *d = opendir(dir);
  for (struct dirent *e; d && (e = readdir(d));) {
    if (!results_is_records(e->d_name)) continue;
    snprintf(path, sizeof path, "%s/%s", dir, e->d_name);
    done += done_in(path, ranks, errors);
  }
  if (d) closedir(d);
  return done >= ranks;
}

static int64_t progress_of(const char *dir)
{
  char path[LAUNCH_PATH];
  int64_t sum = stall_beats(dir);
  struct stat st;
  DIR *d = opendir(dir);
  for (struct dirent *e; d && (e = readdir(d));) {
    if (!results_is_records(e->d_name)) continue;
    snprintf(path, sizeof path, "%s/%s", dir, e->d_name);
    if (stat(path, &st) == 0) sum += (int64_t)st.st_size;
  }
  if (d) closedir(d);
  return sum;
}

/* --- start ----------------------------------------------------------------------- */

/* In the child: only calls that are safe after fork. */
static void become(const struct launch_command *c, const struct launch_world *w, const struct launch_wish *wish, char **environment,
                   int out, pid_t parent)
{
  setpgid(0, 0);
  prctl(PR_SET_PDEATHSIG, SIGTERM);
  if (getppid() != parent) _exit(127);
  if (wish->cores_each > 0 && wish->ranks == 1) { /* one rank: bound by inheritance, under any MPI */
    cpu_set_t set;
    CPU_ZERO(&set);
    for (int i = 0; i < wish->cores_each; i++) CPU_SET(w->core[(wish->first_core + i) % w->cores], &set);
    sched_setaffinity(0, sizeof set, &set);
  }
  signal(SIGINT, SIG_DFL);
  signal(SIGTERM, SIG_DFL);
  signal(SIGPIPE, SIG_DFL);
  const int null = open("/dev/null", O_RDONLY);
  if (null < 0 || dup2(null, 0) < 0 || dup2(out, 1) < 0 || dup2(out, 2) < 0) _exit(127);
  execve(c->words[0], c->words, environment);
  dprintf(2, "%s: %s\n", c->words[0], strerror(errno));
  _exit(127);
}

/* This process's environment with the settings and the mark laid over it. */
static char **environment_of(const struct launch_command *c, char *mark)
{
  int n = 0, used = 0;
  while (environ[n]) n++;
  char **e = calloc((size_t)(n + c->n_settings + 2), sizeof *e);
  if (e == NULL) return NULL;
  for (int i = 0; i < c->n_settings; i++) { /* what a person set wins over our defaults */
    const size_t key = strcspn(c->settings[i], "=") + 1;
    bool set = false;
    for (int k = 0; k < n; k++) set = set || strncmp(environ[k], c->settings[i], key) == 0;
    if (!set) e[used++] = c->settings[i];
  }
  for (int i = 0; i < n; i++)
    if (strncmp(environ[i], "SHARDMARK_JOB=", 14) != 0) e[used++] = environ[i];
  e[used++] = mark;
  return e;
}

enum err job_start(const struct launch_world *w, const struct launch_wish *wish, const struct job_case *cases, int n,
                   struct job **out)
{
  enum err err;
  int ends[2] = {-1, -1};
  char **environment = NULL;
  struct launch_command c;
  *out = NULL;
  TRY(launch_make(w, wish, &c));
  struct job *j = calloc(1, sizeof *j);
  if (j == NULL) FAIL_TO(free_command, ERR_MEMORY, "a job: %zu bytes", sizeof *j);
  *j = (struct job){.cases = cases, .n = n, .output = -1, .pipe = -1};
  snprintf(j->mark, sizeof j->mark, "SHARDMARK_JOB=%ld-%p", (long)getpid(), (void *)j);
  environment = environment_of(&c, j->mark);
  if (environment == NULL) FAIL_TO(free_job, ERR_MEMORY, "environment of a job");
  if (pipe2(ends, O_CLOEXEC) != 0) FAIL_TO(free_job, ERR_IO, "pipe: %s", strerror(errno));
  const pid_t parent = getpid();
  j->pid = fork();
  if (j->pid < 0) FAIL_TO(free_job, ERR_IO, "fork: %s", strerror(errno));
  if (j->pid == 0) become(&c, w, wish, environment, ends[1], parent);
  setpgid(j->pid, j->pid); /* both sides do it: whoever comes first */
  close(ends[1]);
  j->pipe = ends[0];
  fcntl(j->pipe, F_SETFL, O_NONBLOCK);
  j->case_start_ms = j->progress_ms = j->looked_ms = clock_ms();
  free(environment);
  launch_free(&c);
  *out = j;
  return ERR_OK;

free_job:
  free(environment);
  if (ends[0] >= 0) close(ends[0]), close(ends[1]);
  free(j);
free_command:
  launch_free(&c);
  return err;
}

/* --- output ------------------------------------------------------------------------ */

static void keep_tail(struct job *j, const char *text, size_t n)
{
  if (n >= TAIL - 1) text += n - (TAIL - 1), n = TAIL - 1;
  if (j->tail_used + n > TAIL - 1) {
    const size_t drop = j->tail_used + n - (TAIL - 1);
    memmove(j->tail, j->tail + drop, j->tail_used - drop);
    j->tail_used -= drop;
  }
  memcpy(j->tail + j->tail_used, text, n);
  j->tail_used += n;
  j->tail[j->tail_used] = '\0';
}

static void put(struct job *j, const char *text, size_t n)
{
  while (n > 0) {
    const ssize_t wrote = write(j->output, text, n);
    if (wrote < 0 && errno == EINTR) continue;
    if (wrote <= 0) return; /* a full disk is heard of by the records; output is for people */
    text += wrote;
    n -= (size_t)wrote;
  }
}

static void output_close(struct job *j)
{
  if (j->output < 0) return;
  if (j->written > JOB_OUTPUT_BYTES) {
    char note[128];
    const int n = snprintf(note, sizeof note, "\n[cut: %zu bytes in all, the first %d are kept; the last are:]\n", j->written,
                           JOB_OUTPUT_BYTES);
    put(j, note, (size_t)n);
    put(j, j->tail, j->tail_used);
  }
  close(j->output);
  j->output = -1;
  j->written = 0;
}

static void take_output(struct job *j, const char *text, size_t n)
{
  keep_tail(j, text, n);
  if (j->output < 0) {
    char path[LAUNCH_PATH];
    const int at = j->current < j->n ? j->current : j->n - 1;
    snprintf(path, sizeof path, "%s/output.txt", j->cases[at].dir);
    j->output = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
    if (j->output < 0) return;
  }
  const size_t room = j->written < JOB_OUTPUT_BYTES ? JOB_OUTPUT_BYTES - j->written : 0;
  put(j, text, n < room ? n : room);
  j->written += n;
}

/* Reads what is there, at most `most` bytes so that a flood does not keep us from the clock. */
static void listen(struct job *j, size_t most)
{
  char text[65536];
  for (size_t total = 0; j->pipe >= 0 && total < most;) {
    const ssize_t n = read(j->pipe, text, sizeof text);
    if (n > 0) {
      take_output(j, text, (size_t)n);
      total += (size_t)n;
    } else if (n < 0 && errno == EINTR) {
      continue;
    } else {
      if (n == 0) close(j->pipe), j->pipe = -1;
      return;
    }
  }
}

/* --- end --------------------------------------------------------------------------- */

/* Every process that carries the job's mark, also one that left the process group. */
static void sweep(const struct job *j)
{
  char path[300], text[65536];
  DIR *d = opendir("/proc");
  for (struct dirent *e; d && (e = readdir(d));) {
    const long pid = strtol(e->d_name, NULL, 10);
    if (pid <= 1 || pid == (long)getpid()) continue;
    snprintf(path, sizeof path, "/proc/%ld/environ", pid);
    const int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) continue;
    const ssize_t n = read(fd, text, sizeof text - 1);
    close(fd);
    for (ssize_t at = 0; at < n;) {
      text[n] = '\0';
      if (strcmp(text + at, j->mark) == 0) {
        kill((pid_t)pid, SIGKILL);
        break;
      }
      at += (ssize_t)strlen(text + at) + 1;
    }
  }
  if (d) closedir(d);
}

/* Goes on to the first case that not every rank has finished. */
static void advance(struct job *j)
{
  int errors;
  while (j->current < j->n && job_case_done(j->cases[j->current].dir, j->cases[j->current].ranks, &errors)) {
    j->errors += errors;
    j->current++;
  }
}

static void finish(struct job *j, int wait_status)
{
  sweep(j);
  listen(j, SIZE_MAX);
  if (j->end.end[0] == '\0') {
    advance(j);
    ending_of_exit(wait_status, j->tail, j->current < j->n ? j->cases[j->current].dir : NULL, &j->end);
    /* A job that fails in its teardown fails the case it ran last; one whose cases told of errors has said why. */
    if (j->current == j->n && j->errors == 0 && (j->end.status != 0 || strcmp(j->end.end, "exited") != 0)) j->current--;
  }
  j->end.finished = j->current;
  output_close(j);
  j->over = true;
}

void job_stop(struct job *j, const char *why)
{
  if (j->over || j->stopping) return;
  j->stopping = true;
  j->kill_at_ms = clock_ms() + grace_ms;
  snprintf(j->end.end, sizeof j->end.end, "%s", why);
  kill(-j->pid, SIGTERM); /* a launcher passes it on and tidies up */
  kill(-j->pid, SIGCONT);
}

static void say_stalled(struct job *j, double quiet_ms)
{
  const struct job_case *c = &j->cases[j->current];
  struct stall_rank *ranks;
  char who[400];
  const int n = stall_read(c->dir, &ranks);
  if (c->foreign) ending_last_told(c->dir, c->ranks, who, sizeof who);
  else stall_sentence(ranks, n, who, sizeof who);
  free(ranks);
  snprintf(j->end.text, sizeof j->end.text, "no progress for %.1f s: %s", quiet_ms / 1e3,
           who[0] ? who : "no rank has said where it is");
}

/* Time of the current case: its progress, its limit. */
static void look(struct job *j)
{
  const double now = clock_ms();
  if (now - j->looked_ms < look_each_ms) return;
  j->looked_ms = now;
  const int before = j->current;
  advance(j);
  const struct job_case *c = &j->cases[j->current < j->n ? j->current : j->n - 1];
  const int64_t progress = progress_of(c->dir) + (c->foreign ? (int64_t)j->written : 0);
  if (j->current != before) {
    output_close(j);
    j->case_start_ms = j->progress_ms = now;
  } else if (progress != j->progress) {
    j->progress_ms = now;
  }
  j->progress = progress;
  const double quiet = now - j->progress_ms, spent = now - j->case_start_ms;
  const bool started = j->current > 0 || progress > 0; /* until then it is the launcher and the libraries that take their time */
  const double limit_ms = 1e3 * (started || c->foreign || c->seconds > start_seconds ? c->seconds : start_seconds);
  if (j->current == j->n && quiet > limit_ms) {
    j->current--; /* all is done but the job does not end */
    snprintf(j->end.text, sizeof j->end.text, "every rank finished, but the job did not end for %.1f s", quiet / 1e3);
    job_stop(j, "timeout");
  } else if (quiet > limit_ms) {
    say_stalled(j, quiet);
    job_stop(j, "timeout");
  } else if (spent > JOB_PATIENCE * limit_ms) {
    snprintf(j->end.text, sizeof j->end.text, "still going after %.1f s, %d times its limit", spent / 1e3, JOB_PATIENCE);
    job_stop(j, "slow");
  }
}

bool job_step(struct job *j, double wait_ms, struct job_end *out)
{
  int status;
  if (!j->over) {
    struct pollfd p = {.fd = j->pipe, .events = POLLIN};
    if (j->pipe >= 0) poll(&p, 1, (int)wait_ms);
    else clock_sleep_ms(wait_ms < 10 ? wait_ms : 10);
    listen(j, 8 << 20);
    if (waitpid(j->pid, &status, WNOHANG) == j->pid) {
      finish(j, status);
    } else if (!j->stopping) {
      look(j);
    } else if (clock_ms() > j->kill_at_ms) {
      kill(-j->pid, SIGKILL);
    }
  }
  if (j->over && out) *out = j->end;
  return j->over;
}

int job_finished(const struct job *j) { return j->current; }

void job_close(struct job *j)
{
  if (j == NULL) return;
  job_stop(j, "interrupted");
  while (!job_step(j, 20, NULL)) continue;
  if (j->pipe >= 0) close(j->pipe);
  free(j);
}
