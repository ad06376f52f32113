/* main.c - shardmark-train: run files in, records and tensors out. */
#include "base/config.h"
#include "base/log.h"
#include "base/yaml.h"
#include "data/data.h"
#include "params/params.h"
#include "train/job.h"

#include <argp.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct request {
  const char **files, **settings; /* settings: key=value */
  int n_files, n_settings;
  bool check;
};

static error_t parse(int key, char *arg, struct argp_state *state)
{
  struct request *r = state->input;
  switch (key) {
  case 'c': r->check = true; return 0;
  case 's': r->settings[r->n_settings++] = arg; return 0;
  case ARGP_KEY_ARG: r->files[r->n_files++] = arg; return 0;
  case ARGP_KEY_NO_ARGS: argp_error(state, "no run file"); return EINVAL;
  default: return ARGP_ERR_UNKNOWN;
  }
}

/* --- run files ------------------------------------------------------------------------ */

static enum err set(struct run_config *c, const char *setting)
{
  char key[128];
  const char *equals = strchr(setting, '=');
  if (equals == NULL || equals == setting || equals - setting >= (long)sizeof key)
    FAIL(ERR_CONFIG, "--set %s: valid: key=value", setting);
  memcpy(key, setting, (size_t)(equals - setting));
  key[equals - setting] = '\0';
  TRY(config_set(c, key, equals + 1));
  return ERR_OK;
}

static enum err read_run(const struct request *r, const char *file, struct run_config *out)
{
  config_default(out);
  TRY(yaml_look("run file", file));
  TRY(config_read(file, out));
  for (int i = 0; i < r->n_settings; i++) TRY(set(out, r->settings[i]));
  const enum err err = config_finish(out);
  if (err) FAIL(err, "%s: %s", file, err_text()); /* of several files, which */
  return ERR_OK;
}

static enum err read_runs(const struct request *r, struct run_config *out)
{
  for (int i = 0; i < r->n_files; i++) TRY(read_run(r, r->files[i], &out[i]));
  return ERR_OK;
}

/* What can be said of the runs without ranks: keys, names of parameters, and whether their data are there. */
static enum err check_data(const struct run_config *run)
{
  enum err err;
  struct param_table *table = NULL;
  struct corpus *corpus = NULL;
  struct data_plan *plan = NULL;
  if (run->task != TASK_TRAIN) return ERR_OK;
  TRY(params_create(run, &table));
  params_destroy(table);
  if (!run->batch_file[0]) TRY(corpus_open(run, &corpus));
  TRY_TO(close_corpus, data_plan_create(run, corpus, &plan));
close_corpus:
  data_plan_destroy(plan);
  corpus_close(corpus);
  return err;
}

static enum err check_runs(const struct request *r, struct run_config *runs)
{
  TRY(read_runs(r, runs));
  for (int i = 0; i < r->n_files; i++) {
    const enum err err = check_data(&runs[i]);
    if (err) FAIL(err, "%s: %s", r->files[i], err_text());
    printf("%s: ok, %lld ranks\n", r->files[i], (long long)config_ranks(&runs[i]));
  }
  return ERR_OK;
}

/* --- the job ---------------------------------------------------------------------------- */

/* rank: of the error; -1: all ranks have it, and its text says whose it is where that matters. */
static void print_error(int rank, const char *where)
{
  char whose[32] = "";
  if (rank >= 0 && strncmp(err_text(), "rank ", 5) != 0) snprintf(whose, sizeof whose, "rank %d: ", rank);
  fprintf(stderr, "shardmark-train: %s: %s%s (%s)\n", where, whose, err_text(), err_trail());
}

static void end_job(void) { abort(); } /* the launcher ends the other ranks */

/* Before any work: all ranks know the same of the runs and of each other. */
static enum err agree_on_runs(struct comm_world *w, const struct request *r, struct run_config *runs)
{
  TRY(comm_agree(w, read_runs(r, runs)));
  for (int i = 0; i < r->n_files; i++)
    if (config_ranks(&runs[i]) != comm_size(w))
      FAIL(ERR_CONFIG, "%s: dp * tp * pp = %lld ranks, the job has %d (%s)", r->files[i], (long long)config_ranks(&runs[i]), comm_size(w), comm_library());
  return ERR_OK;
}

/* All ranks: every run in turn.  Returns the worst code; does not return from a fatal one. */
static enum err run_all(struct comm_world *w, const struct run_config *runs, int n, struct last_words *words)
{
  enum err worst = ERR_OK;
  for (int i = 0; i < n; i++) {
    bool fatal;
    const enum err err = job_run(w, &runs[i], words, &fatal);
    if (err && (fatal || comm_rank(w) == 0)) print_error(fatal ? comm_rank(w) : -1, runs[i].name);
    if (fatal) comm_world_abort(w, err_status(err));
    if (err > worst) worst = err;
  }
  return worst;
}

static enum err run_job(const struct request *r, struct run_config *runs)
{
  struct comm_world *w = NULL;
  struct last_words *words = NULL;
  enum err err = comm_world_open(&w);
  if (err == ERR_OK) err = agree_on_runs(w, r, runs);
  if (err == ERR_OK) err = comm_agree(w, last_words_start(w, &words));
  if (err && (w == NULL || comm_rank(w) == 0)) print_error(-1, "start");
  if (err == ERR_OK) {
    log_setup(LOG_NORMAL, comm_rank(w));
    err = run_all(w, runs, r->n_files, words);
  }
  last_words_stop(words);
  comm_world_close(w);
  return err;
}

/* OpenMP reads how idle threads wait when it is loaded, before main: spinning ones would take the
 * cores from the transfer streams.  So the program starts itself again, once, with the answer. */
static void wait_passively(char **argv)
{
  char self[4096];
  if (getenv("OMP_WAIT_POLICY") || setenv("OMP_WAIT_POLICY", "passive", 0) != 0) return;
  const ssize_t n = readlink("/proc/self/exe", self, sizeof self - 1);
  if (n <= 0) return;
  self[n] = '\0';
  execv(self, argv); /* returns only if it cannot: then threads spin, and the run is right all the same */
}

int main(int argc, char **argv)
{
  wait_passively(argv);
  static const struct argp_option options[] = {
    {"check", 'c', NULL, 0, "validate the run files, without MPI, and end", 0},
    {"set", 's', "KEY=VALUE", 0, "over every run file; may be repeated", 0},
    {0},
  };
  static const struct argp argp = {options, parse, "FILE...", "Trains as each run file says, one after the other, under mpirun or alone.",
                                   NULL, NULL, NULL};
  argp_err_exit_status = STATUS_USAGE;
  err_on_bug(end_job);
  struct request r = {.files = calloc((size_t)argc, sizeof *r.files), .settings = calloc((size_t)argc, sizeof *r.settings)};
  struct run_config *runs = calloc((size_t)argc, sizeof *runs);
  if (r.files == NULL || r.settings == NULL || runs == NULL) return STATUS_INVALID;
  argp_parse(&argp, argc, argv, 0, NULL, &r);

  if (!r.check) last_words_block(); /* before MPI has threads; a check can be interrupted wherever it reads */
  const enum err err = r.check ? check_runs(&r, runs) : run_job(&r, runs);
  if (err && r.check) fprintf(stderr, "shardmark-train: %s\n", err_text()); /* no ranks, and a mistake in a file has no trail */
  free(runs);
  free(r.settings);
  free(r.files);
  return err_status(err);
}
