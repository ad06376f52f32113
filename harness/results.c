/* results.c - files of a run, and of a run of runs. */
#include "harness/results.h"
#include "harness/place.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <time.h>
#include <unistd.h>

enum { PATH_BYTES = 4096 };

static bool exists(const char *dir, const char *name)
{
  char path[PATH_BYTES];
  struct stat st;
  snprintf(path, sizeof path, "%s/%s", dir, name);
  return stat(path, &st) == 0;
}

static enum err set_paths(const char *dir, struct results *r)
{
  char full[PATH_BYTES];
  if (realpath(dir, full) == NULL) FAIL(ERR_IO, "%s: %s", dir, strerror(errno));
  /* Names of runs and files must fit behind it. */
  if (strlen(full) + 160 >= sizeof r->dir) FAIL(ERR_CONFIG, "results directory: path too long: %.80s...", full);
  memcpy(r->dir, full, strlen(full) + 1);
  snprintf(r->records, sizeof r->records, "%s/records.jsonl", r->dir);
  return ERR_OK;
}

static enum err check_writable(const char *dir, double bytes_wanted)
{
  char path[PATH_BYTES];
  struct statvfs fs;
  snprintf(path, sizeof path, "%s/.probe.tmp", dir);
  const int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
  if (fd < 0) FAIL(ERR_IO, "results directory %s: %s", dir, strerror(errno));
  const ssize_t n = write(fd, "probe\n", 6);
  const int why = errno;
  close(fd);
  unlink(path);
  if (n != 6) FAIL(ERR_IO, "results directory %s: %s", dir, n < 0 ? strerror(why) : "no space left");
  if (statvfs(dir, &fs) != 0) FAIL(ERR_IO, "results directory %s: %s", dir, strerror(errno));
  const double free_bytes = (double)fs.f_bavail * (double)fs.f_frsize;
  if (free_bytes < bytes_wanted)
    FAIL(ERR_IO, "results directory %s has %.1f MiB free, the run is expected to write %.1f MiB", dir, free_bytes / 1048576,
         bytes_wanted / 1048576);
  return ERR_OK;
}

enum err results_create(const char *out, const char *suite, double bytes_wanted, struct results *r)
{
  char dir[PATH_BYTES];
  snprintf(dir, sizeof dir, "%s", out);
  if (*out == '\0') {
    char folder[CONFIG_PATH], stamp[64], host[64] = "host";
    const time_t now = time(NULL);
    struct tm tm;
    localtime_r(&now, &tm);
    strftime(stamp, sizeof stamp, "%Y%m%d-%H%M%S", &tm);
    gethostname(host, sizeof host - 1);
    TRY(place_source("results", folder, sizeof folder));
    for (int i = 0; i == 0 || access(dir, F_OK) == 0; i++) /* two runs of one second */
      snprintf(dir, sizeof dir, i ? "%s/runs/%s-%s-%s-%d" : "%s/runs/%s-%s-%s", folder, stamp, suite, host, i);
  }
  if (exists(dir, "summary.json") || exists(dir, "records.jsonl"))
    FAIL(ERR_CONFIG, "%s holds results already: choose another --out; an interrupted `shardmark run` goes on with --resume %s", dir, dir);
  TRY(place_make(dir));
  TRY(check_writable(dir, bytes_wanted));
  snprintf(dir + strlen(dir), sizeof dir - strlen(dir), "/cases");
  TRY(place_make(dir));
  dir[strlen(dir) - 6] = '\0';
  return set_paths(dir, r);
}

/* A line cut short by a kill or a full disk is taken off, so that what follows stays readable. */
static enum err trim_records(const char *path)
{
  const int fd = open(path, O_RDWR | O_CLOEXEC);
  if (fd < 0) {
    if (errno == ENOENT) return ERR_OK;
    FAIL(ERR_IO, "%s: %s", path, strerror(errno));
  }
  off_t size = lseek(fd, 0, SEEK_END);
  char c = '\n';
  while (size > 0 && pread(fd, &c, 1, size - 1) == 1 && c != '\n') size--;
  const int failed = ftruncate(fd, size);
  close(fd);
  if (failed) FAIL(ERR_IO, "%s: %s", path, strerror(errno));
  return ERR_OK;
}

enum err results_resume(const char *dir, struct results *r, json_t **asked)
{
  char path[PATH_BYTES];
  json_error_t why;
  if (!exists(dir, "summary.json")) FAIL(ERR_CONFIG, "%s: no summary.json there: not a results directory to resume", dir);
  TRY(set_paths(dir, r));
  TRY(check_writable(dir, 0));
  snprintf(path, sizeof path, "%s/summary.json", r->dir);
  json_t *summary = json_load_file(path, 0, &why);
  if (summary == NULL) FAIL(ERR_FORMAT, "%s:%d: %s", path, why.line, why.text);
  const json_int_t schema = json_integer_value(json_object_get(summary, "schema"));
  if (schema != RECORD_SCHEMA) {
    json_decref(summary);
    FAIL(ERR_FORMAT, "%s: schema %lld is another version's; valid: %d", path, (long long)schema, RECORD_SCHEMA);
  }
  *asked = json_incref(json_object_get(summary, "asked"));
  json_decref(summary);
  if (!json_is_object(*asked)) {
    json_decref(*asked);
    *asked = NULL;
    FAIL(ERR_FORMAT, "%s: no object `asked`", path);
  }
  return trim_records(r->records);
}

void results_latest(const struct results *r)
{
  char link[PATH_BYTES], tmp[PATH_BYTES + 8];
  const char *runs = strstr(r->dir, "/results/runs/");
  if (runs == NULL) return;
  snprintf(link, sizeof link, "%.*s/results/latest", (int)(runs - r->dir), r->dir);
  snprintf(tmp, sizeof tmp, "%s.tmp", link);
  unlink(tmp);
  if (symlink(runs + strlen("/results/"), tmp) != 0 || rename(tmp, link) != 0) unlink(tmp); /* a convenience: not needed */
}

/* --- records ------------------------------------------------------------------------ */

bool results_is_records(const char *name)
{
  const size_t n = strlen(name);
  return (strncmp(name, "records", 7) == 0 || strncmp(name, "rank", 4) == 0) && n > 6 && strcmp(name + n - 6, ".jsonl") == 0;
}

static int by_rank_number(const struct dirent **a, const struct dirent **b) { return strverscmp((*a)->d_name, (*b)->d_name); }
static int only_records(const struct dirent *e) { return results_is_records(e->d_name); }

/* The whole lines of all record files of a directory as one text.  Owner: the caller, free(). */
static enum err whole_lines(const char *dir, char **out, size_t *bytes)
{
  struct dirent **list = NULL;
  enum err err = ERR_OK;
  char *text = NULL;
  size_t used = 0;
  const int n = scandir(dir, &list, only_records, by_rank_number);
  if (n < 0) FAIL(ERR_IO, "%s: %s", dir, strerror(errno));
  for (int i = 0; i < n && !err; i++) {
    char path[PATH_BYTES];
    struct stat st;
    snprintf(path, sizeof path, "%s/%s", dir, list[i]->d_name);
    const int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0 || fstat(fd, &st) != 0) {
      err = err_set(ERR_IO, __FILE__, __LINE__, "%s: %s", path, strerror(errno));
      if (fd >= 0) close(fd);
      break;
    }
    char *more = realloc(text, used + (size_t)st.st_size + 1);
    if (more == NULL) err = err_set(ERR_MEMORY, __FILE__, __LINE__, "records of %s: %zu bytes", dir, used + (size_t)st.st_size);
    else {
      text = more;
      ssize_t got = read(fd, text + used, (size_t)st.st_size);
      while (got > 0 && text[used + (size_t)got - 1] != '\n') got--;
      if (got > 0) used += (size_t)got;
    }
    close(fd);
  }
  for (int i = 0; i < n; i++) free(list[i]);
  free(list);
  if (err) {
    free(text);
    return err;
  }
  *out = text;
  *bytes = used;
  return ERR_OK;
}

static enum err append(const char *path, const char *text, size_t bytes)
{
  const int fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
  if (fd < 0) FAIL(ERR_IO, "%s: %s", path, strerror(errno));
  while (bytes > 0) {
    const ssize_t n = write(fd, text, bytes);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) {
      const int why = n == 0 ? ENOSPC : errno;
      close(fd);
      const enum err trimmed = trim_records(path); /* a cut line would spoil what follows */
      FAIL(ERR_IO, "%s: %s%s", path, strerror(why), trimmed ? " (and its last line is cut)" : "");
    }
    text += n;
    bytes -= (size_t)n;
  }
  if (close(fd) != 0) FAIL(ERR_IO, "%s: %s", path, strerror(errno));
  return ERR_OK;
}

enum err results_merge(const struct results *r, const char *run_dir)
{
  char *text;
  size_t bytes;
  TRY(whole_lines(run_dir, &text, &bytes));
  const enum err err = append(r->records, text, bytes);
  free(text);
  return err ? err_trace(err, __FILE__, __LINE__) : ERR_OK;
}

enum err results_read_by(results_reader *read, const char *dir, int *files, json_t **out)
{
  struct dirent **list = NULL;
  enum err err = ERR_OK;
  *out = NULL;
  json_t *all = json_array();
  if (all == NULL) FAIL(ERR_MEMORY, "records of %s", dir);
  *files = scandir(dir, &list, only_records, by_rank_number);
  for (int i = 0; i < *files && !err; i++) {
    char path[PATH_BYTES];
    json_t *some = NULL;
    int cut;
    snprintf(path, sizeof path, "%s/%s", dir, list[i]->d_name);
    err = read(path, &some, &cut);
    if (!err && json_array_extend(all, some) != 0) err = err_set(ERR_MEMORY, __FILE__, __LINE__, "records of %s", dir);
    json_decref(some);
  }
  for (int i = 0; i < *files; i++) free(list[i]);
  free(list);
  if (err) {
    json_decref(all);
    return err_trace(err, __FILE__, __LINE__);
  }
  *out = all;
  return ERR_OK;
}

enum err results_read_run(const char *run_dir, json_t **out)
{
  int files;
  return results_read_by(record_read, run_dir, &files, out);
}

enum err results_filter(const struct results *r, bool (*keep)(const json_t *, void *), void *context)
{
  char tmp[PATH_BYTES];
  json_t *all, *record;
  size_t i;
  int cut;
  if (access(r->records, F_OK) != 0) return ERR_OK;
  TRY(record_read(r->records, &all, &cut));
  snprintf(tmp, sizeof tmp, "%s.tmp", r->records);
  FILE *f = fopen(tmp, "w");
  if (f == NULL) {
    json_decref(all);
    FAIL(ERR_IO, "%s: %s", tmp, strerror(errno));
  }
  bool ok = true;
  json_array_foreach(all, i, record)
  {
    if (!keep(record, context)) continue;
    ok = ok && json_dumpf(record, f, JSON_COMPACT | JSON_REAL_PRECISION(17)) == 0 && fputc('\n', f) != EOF;
  }
  json_decref(all);
  ok = fclose(f) == 0 && ok;
  if (!ok || rename(tmp, r->records) != 0) {
    const int why = errno;
    unlink(tmp);
    FAIL(ERR_IO, "%s: %s", r->records, strerror(why));
  }
  return ERR_OK;
}

enum err results_summary(const struct results *r, json_t *summary)
{
  char path[PATH_BYTES], tmp[PATH_BYTES + 8];
  snprintf(path, sizeof path, "%s/summary.json", r->dir);
  snprintf(tmp, sizeof tmp, "%s.tmp", path);
  errno = 0;
  const bool wrote = summary && json_dump_file(summary, tmp, JSON_INDENT(1) | JSON_REAL_PRECISION(17)) == 0;
  json_decref(summary);
  if (!wrote || rename(tmp, path) != 0) {
    const int why = errno ? errno : ENOSPC;
    unlink(tmp);
    FAIL(ERR_IO, "%s: %s", path, strerror(why));
  }
  return ERR_OK;
}

/* --- directories of runs -------------------------------------------------------------- */

static bool is_tensors(const char *name)
{
  const char *dot = strrchr(name, '.');
  return dot && strcmp(dot, ".safetensors") == 0;
}

static bool is_of_a_run(const char *name)
{
  return results_is_records(name) || is_tensors(name) || strncmp(name, "state.", 6) == 0 || strcmp(name, "output.txt") == 0 ||
         strcmp(name, "run.yaml") == 0 || strcmp(name, "trace.json") == 0;
}

static void remove_files(const char *dir, bool (*which)(const char *name))
{
  char path[PATH_BYTES];
  DIR *d = opendir(dir);
  for (struct dirent *e; d && (e = readdir(d));) {
    if (!which(e->d_name)) continue;
    snprintf(path, sizeof path, "%s/%s", dir, e->d_name);
    unlink(path);
  }
  if (d) closedir(d);
}

enum err results_clean_run(const char *run_dir)
{
  TRY(place_make(run_dir));
  remove_files(run_dir, is_of_a_run);
  return ERR_OK;
}

void results_drop_tensors(const char *run_dir) { remove_files(run_dir, is_tensors); }

bool results_tensors_there(const char *run_dir, const json_t *records)
{
  size_t i;
  json_t *record;
  json_array_foreach(records, i, record)
  {
    const char *kind = json_string_value(json_object_get(record, "kind")), *file = record_get_text(record, "got.file");
    if (kind && file && strcmp(kind, "tensors") == 0 && !exists(run_dir, file)) return false;
  }
  return true;
}
