/* ending.c - launchers say in their own words which rank a signal hit; both are read here. */
#include "harness/ending.h"
#include "harness/results.h"
#include "harness/stall.h"

#include "base/record.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

/* The number after the last `mark` of text; -1: none. */
static long number_after(const char *text, const char *mark)
{
  long found = -1;
  for (const char *at = text; (at = strstr(at, mark)) != NULL; at += strlen(mark)) {
    char *end;
    const long n = strtol(at + strlen(mark), &end, 10);
    if (end != at + strlen(mark)) found = n;
  }
  return found;
}

static void last_line(const char *text, char *out, size_t bytes)
{
  const char *end = text + strlen(text);
  while (end > text && strchr(" \t\r\n-=", end[-1])) end--;
  const char *start = end;
  while (start > text && start[-1] != '\n') start--;
  snprintf(out, bytes, "%.*s", (int)(end - start), start);
}

/* The last line before Open MPI's own account of a job that did not end well. */
static void own_words(const char *tail, char *out, size_t bytes)
{
  char own[8192];
  const char *account = strstr(tail, "Primary job  terminated"), *other = strstr(tail, "mpirun detected");
  if (account == NULL || (other && other < account)) account = other;
  snprintf(own, sizeof own, "%.*s", account ? (int)(account - tail) : (int)strlen(tail), tail);
  last_line(own, out, bytes);
}

static enum status status_of(const char *kind)
{
  for (int e = ERR_OK + 1; kind && e <= ERR_INVALID; e++)
    if (strcmp(err_name((enum err)e), kind) == 0) return err_status((enum err)e);
  return STATUS_FAIL;
}

bool ending_is_last_words(const json_t *done)
{
  const char *kind = record_get_text(done, "got.error_kind");
  return kind && strcmp(kind, "interrupted") == 0;
}

bool ending_error(const char *dir, char *text, size_t bytes, enum status *status)
{
  json_t *records;
  size_t i;
  json_t *r;
  bool found = false;
  if (results_read_run(dir, &records) != ERR_OK) return false;
  json_array_foreach(records, i, r)
  {
    const char *kind = json_string_value(json_object_get(r, "kind")), *error = record_get_text(r, "got.error");
    if (found || kind == NULL || strcmp(kind, "done") != 0 || error == NULL || *error == '\0' || ending_is_last_words(r)) continue;
    if (strncmp(error, "rank ", 5) == 0) snprintf(text, bytes, "%s", error); /* which all ranks were told */
    else snprintf(text, bytes, "rank %lld: %s", (long long)record_get_int(r, "rank", -1), error);
    *status = status_of(record_get_text(r, "got.error_kind"));
    found = true;
  }
  json_decref(records);
  return found;
}

void ending_last_told(const char *dir, int ranks, char *out, size_t bytes)
{
  enum { TOLD_MAX = 4 };
  json_t *records = NULL, *r;
  size_t i, used = 0;
  int64_t last[TOLD_MAX], rank;
  out[0] = '\0';
  for (int k = 0; k < TOLD_MAX; k++) last[k] = -1;
  if (results_read_run(dir, &records) != ERR_OK) return;
  json_array_foreach(records, i, r)
  {
    rank = record_get_int(r, "rank", -1);
    const int64_t step = record_get_int(r, "step", -1);
    if (rank >= 0 && rank < TOLD_MAX && step > last[rank]) last[rank] = step;
  }
  json_decref(records);
  const int n = ranks < TOLD_MAX ? ranks : TOLD_MAX;
  for (int64_t step = -1; used < bytes; step++) { /* those that are behind first */
    int left = 0;
    for (int k = 0; k < n && used < bytes; k++) {
      left += last[k] > step;
      if (last[k] != step) continue;
      if (step < 0) used += (size_t)snprintf(out + used, bytes - used, "%srank %d told of no step", used ? ", " : "", k);
      else used += (size_t)snprintf(out + used, bytes - used, "%srank %d last told of step %lld", used ? ", " : "", k, (long long)step);
    }
    if (left == 0) break;
  }
}

/* Of "Process name: [[job,1],rank]": Open MPI's words for the first process that ended with another status than 0. */
static int rank_exited(const char *tail)
{
  const char *name = strstr(tail, "Process name: [[");
  int rank;
  return name && sscanf(name, "Process name: [[%*d,%*d],%d]", &rank) == 1 ? rank : -1;
}

/* Which rank a signal took: named by the launcher, or by the process id that it names. */
static int rank_hit(const char *tail, const struct stall_rank *ranks, int n)
{
  const long named = number_after(tail, "process rank ");
  if (named >= 0) return (int)named;
  if (rank_exited(tail) >= 0) return rank_exited(tail);
  const long pid = number_after(tail, "PID ");
  for (int i = 0; i < n; i++)
    if (pid > 0 && ranks[i].pid == pid) return ranks[i].rank;
  return -1;
}

static void say_killed(int signal, const char *tail, const char *dir, struct job_end *out)
{
  struct stall_rank *ranks = NULL;
  const int n = dir ? stall_read(dir, &ranks) : 0;
  const int hit = rank_hit(tail, ranks, n);
  char where[256] = "";
  for (int i = 0; i < n; i++)
    if (ranks[i].rank == hit) stall_where(&ranks[i], where, sizeof where);
  free(ranks);
  if (hit >= 0)
    snprintf(out->text, sizeof out->text, "rank %d was ended by signal %d (%s)%s%s", hit, signal, strsignal(signal),
             where[0] ? "; " : "", where);
  else snprintf(out->text, sizeof out->text, "the job was ended by signal %d (%s)", signal, strsignal(signal));
  snprintf(out->end, sizeof out->end, "killed");
  out->status = signal;
}

void ending_of_exit(int wait_status, const char *tail, const char *dir, struct job_end *out)
{
  if (WIFSIGNALED(wait_status)) {
    say_killed(WTERMSIG(wait_status), tail, dir, out);
    return;
  }
  const int status = WEXITSTATUS(wait_status);
  snprintf(out->end, sizeof out->end, "exited");
  out->status = status;
  out->text[0] = '\0';
  if (dir == NULL && status == 0) return;
  enum status told;
  if (dir && ending_error(dir, out->text, sizeof out->text, &told)) {
    out->status = told;
    return;
  }
  long signal = number_after(tail, "exited on signal "); /* Open MPI */
  if (signal < 0) signal = number_after(tail, "(signal "); /* MPICH */
  if (signal < 0 && status > 128 && status < 128 + 65) signal = status - 128;
  if (signal > 0 && signal < 65 && status != 0) {
    say_killed((int)signal, tail, dir, out);
    return;
  }
  char line[256], who[32] = "";
  last_line(tail, line, sizeof line);
  if (dir && status != 0 && rank_exited(tail) >= 0) {
    own_words(tail, line, sizeof line);
    snprintf(who, sizeof who, "rank %d: ", rank_exited(tail));
  }
  if (dir == NULL) snprintf(out->text, sizeof out->text, "status %d after its last case was finished: %s", status, line);
  else if (status == 0) snprintf(out->text, sizeof out->text, "the job ended with status 0 before every rank had finished the case");
  else snprintf(out->text, sizeof out->text, "%sexit status %d: %s", who, status, line[0] ? line : "no output");
}
