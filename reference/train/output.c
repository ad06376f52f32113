/* output.c - record files of a run, from the first line to the merge. */
#include "train/output.h"

#include "base/clock.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* The directory and what is missing above it; another rank may be making them too. */
static enum err make_directory(const char *path)
{
  char part[CONFIG_PATH];
  snprintf(part, sizeof part, "%s", path);
  for (char *at = part + 1; ; at++) {
    if (*at != '/' && *at != '\0') continue;
    const char end = *at;
    *at = '\0';
    if (mkdir(part, 0777) != 0 && errno != EEXIST) FAIL(ERR_IO, "out: %s: %s", part, strerror(errno));
    if (end == '\0') return ERR_OK;
    *at = end;
  }
}

static enum err open_here(struct output *o)
{
  const struct run_config *run = o->run;
  const int rank = comm_rank(o->world);
  char host[256] = "";
  gethostname(host, sizeof host - 1);
  strcpy(o->piece, "/dev/null");
  strcpy(o->merged, "/dev/null");
  if (run->out[0]) {
    TRY(make_directory(run->out));
    snprintf(o->piece, sizeof o->piece, "%s/rank%d.jsonl", run->out, rank);
    snprintf(o->merged, sizeof o->merged, "%s/records.%s.jsonl", run->out, host);
    if (access(o->piece, F_OK) == 0 || access(o->merged, F_OK) == 0)
      FAIL(ERR_CONFIG, "out: %s already holds records of a run; valid: a new or empty directory", run->out);
  }
  TRY(slots_open(o->world, run->out, run->name, &o->slots));
  TRY(record_open(o->piece, run->name, rank, &o->records));
  return ERR_OK;
}

static void close_here(struct output *o)
{
  last_words_about(o->last_words, NULL, NULL);
  record_close(o->records);
  slots_close(o->slots);
  o->records = NULL;
  o->slots = NULL;
}

enum err output_open(struct comm_world *w, const struct run_config *run, struct last_words *words, struct output *out)
{
  enum err err;
  *out = (struct output){.run = run, .world = w, .last_words = words, .start_ms = clock_ms()};
  TRY_TO(close_output, comm_agree(w, open_here(out)));
  TRY_TO(close_output, comm_clock_offset(w, &out->clock_offset_ms, &out->clock_error_ms));
  out->clock_at_ms = clock_ms();
  last_words_about(words, out->piece, run->name);
  return ERR_OK;

close_output:
  close_here(out);
  return err;
}

/* --- the end -------------------------------------------------------------------------- */

static enum err say_done(const struct output *o, struct record_file *f, enum err result)
{
  record_begin(f, "done", -1, -1);
  record_text(f, "got.error", result ? err_text() : "");
  record_text(f, "got.error_kind", err_name(result));
  record_real(f, "got.seconds", (clock_ms() - o->start_ms) / 1000.0);
  TRY(record_end(f));
  return ERR_OK;
}

static enum err append(const char *path, int to, const char *to_path)
{
  char bytes[1 << 16];
  const int from = open(path, O_RDONLY | O_CLOEXEC);
  if (from < 0) FAIL(ERR_IO, "%s: %s", path, strerror(errno));
  enum err err = ERR_OK;
  for (ssize_t n; err == ERR_OK && (n = read(from, bytes, sizeof bytes)) != 0;)
    for (ssize_t done = 0, put; err == ERR_OK && done < n; done += put) {
      put = write(to, bytes + done, (size_t)(n - done));
      if (put < 0) err = err_set(ERR_IO, __FILE__, __LINE__, "%s: %s", to_path, strerror(errno));
    }
  close(from);
  return err;
}

/* The host's first rank: all pieces into one file that appears whole, then the pieces go. */
static enum err merge(const struct output *o)
{
  enum err err = ERR_OK;
  char temporary[sizeof o->merged + 8], piece[CONFIG_PATH + 64];
  if (o->run->out[0] == '\0' || comm_node_rank(o->world) != 0) return ERR_OK;
  snprintf(temporary, sizeof temporary, "%s.tmp", o->merged);
  const int to = open(temporary, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  if (to < 0) FAIL(ERR_IO, "%s: %s", temporary, strerror(errno));
  for (int i = 0; err == ERR_OK && slots_rank(o->slots, i) >= 0; i++) {
    snprintf(piece, sizeof piece, "%s/rank%d.jsonl", o->run->out, slots_rank(o->slots, i));
    err = append(piece, to, temporary);
  }
  if (close(to) != 0 && err == ERR_OK) err = err_set(ERR_IO, __FILE__, __LINE__, "%s: %s", temporary, strerror(errno));
  if (err == ERR_OK && rename(temporary, o->merged) != 0)
    err = err_set(ERR_IO, __FILE__, __LINE__, "%s: %s", o->merged, strerror(errno));
  if (err) {
    unlink(temporary);
    return err_trace(err, __FILE__, __LINE__);
  }
  for (int i = 0; slots_rank(o->slots, i) >= 0; i++) {
    snprintf(piece, sizeof piece, "%s/rank%d.jsonl", o->run->out, slots_rank(o->slots, i));
    unlink(piece);
  }
  return ERR_OK;
}

enum err output_finish(struct output *o, enum err result)
{
  enum err err;
  struct err_saved saved; /* merging may fail with a reason of its own */
  struct record_file *f = NULL;
  err_save(&saved, result);
  slots_say(o->slots, "done", -1);
  record_close(o->records);
  o->records = NULL;
  TRY_TO(close_output, comm_host_barrier(o->world)); /* all pieces are whole */
  TRY_TO(close_output, comm_agree(o->world, merge(o)));
  TRY_TO(close_output, record_open(o->merged, o->run->name, comm_rank(o->world), &f));
  TRY_TO(close_output, comm_host_barrier(o->world)); /* opening looks for a line cut short: nobody writes meanwhile */
  err_restore(&saved);
  TRY_TO(close_output, say_done(o, f, result));

close_output:
  record_close(f);
  close_here(o);
  if (result) err_restore(&saved); /* why the run failed counts, not what that led to */
  return err;
}

void output_abandon(struct output *o, enum err result)
{
  struct err_saved saved;
  err_save(&saved, result);
  say_done(o, o->records, result); /* a full disk may refuse it; main says the reason anyway */
  close_here(o);
  err_restore(&saved);
}
