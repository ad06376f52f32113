/* main.c - the command line of `shardmark`, and the only place of it that prints an error. */
#include "harness/asked.h"
#include "harness/check.h"
#include "harness/doctor.h"
#include "harness/export.h"
#include "harness/list.h"
#include "harness/measured.h"
#include "harness/place.h"
#include "harness/run.h"

#include "base/nearest.h"
#include "build_info.h"
#include "reports/report.h"

#include <argp.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static enum status say_error(const char *verb, enum err err)
{
  fflush(stdout);
  fprintf(stderr, "shardmark %s: %s\n", verb, err_text());
  if (getenv("SHARDMARK_TRAIL")) fprintf(stderr, "  at %s\n", err_trail());
  return err == ERR_FORMAT ? STATUS_INVALID : err_status(err); /* a damaged file says nothing of the checks */
}

/* Words to argp as "shardmark VERB"; usage errors end with status 2. */
static error_t parse(const struct argp *argp, int argc, char **argv, const char *verb, void *input)
{
  char name[64];
  snprintf(name, sizeof name, "shardmark %s", verb);
  argv[0] = name;
  argp_err_exit_status = STATUS_USAGE;
  return argp_parse(argp, argc, argv, 0, NULL, input);
}

/* --- run ------------------------------------------------------------------------------- */

enum { KEY_RANKS = 256, KEY_BASE, KEY_MODEL, KEY_LAYOUT, KEY_HOSTS, KEY_DEVICE, KEY_SEED, KEY_OUT, KEY_QUICK, KEY_FULL, KEY_BUDGET,
       KEY_DRY, KEY_RESUME, KEY_FAULT, KEY_ONLY, KEY_LAZY_SEED, KEY_FAIL_FAST, KEY_TRANSPORT, KEY_POLICY, KEY_KEEP, KEY_SET, KEY_STEPS };

static const struct argp_option run_words[] = {
  {"ranks", KEY_RANKS, "1,2,4", 0, "rank counts: points of a scaling curve; of other suites only the cases with these", 0},
  {"base", KEY_BASE, "N0", 0, "rank count that efficiency refers to (default: the smallest)", 0},
  {"model", KEY_MODEL, "NAME", 0, "another model in every case (see list models)", 0},
  {"layout", KEY_LAYOUT, "dp=2,tp=2,pp=2", 0, "another layout in every case; also schedule, chunks, stages, sequence_parallel, mesh_order, tp_across_nodes", 0},
  {"hosts", KEY_HOSTS, "FILE", 0, "host file for the launcher", 0},
  {"device", KEY_DEVICE, "cpu|lazy|cuda", 0, "where tensors live", 0},
  {"transport", KEY_TRANSPORT, "nccl|staged", 0, "with --device cuda: how ranks exchange in every case; staged lets them share a GPU", 0},
  {"policy", KEY_POLICY, "NAME", 0, "batch policy of every case that is `padded`: chunked, bucketed, packed or balanced", 0},
  {"seed", KEY_SEED, "N", 0, "seed of weights, dropout and data in every case", 0},
  {"lazy-seed", KEY_LAZY_SEED, "N", 0, "with --device lazy: order of its choices in every case", 0},
  {"out", KEY_OUT, "DIR", 0, "results directory (default: results/runs/<date>-<suite>-<host>)", 0},
  {"quick", KEY_QUICK, NULL, 0, "the quick form, at most 90 s a suite on 2 cores (default)", 0},
  {"full", KEY_FULL, NULL, 0, "every case", 0},
  {"budget", KEY_BUDGET, "30m", 0, "cases by priority until this time is spent; what was left out is listed", 0},
  {"dry-run", KEY_DRY, NULL, 0, "cases, ranks, time, disk and predicted memory; nothing is launched", 0},
  {"resume", KEY_RESUME, "DIR", 0, "go on with an earlier run: only what has no verdict yet", 0},
  {"fault", KEY_FAULT, "NAME", 0, "plant this fault in every case (see list faults)", 0},
  {"only", KEY_ONLY, "TEXT", 0, "only cases whose name contains this", 0},
  {"fail-fast", KEY_FAIL_FAST, NULL, 0, "start nothing more after the first FAIL", 0},
  {"keep", KEY_KEEP, NULL, 0, "keep the tensors of passed cases, too", 0},
  {0}};

static const char *name_of(int key)
{
  int i = 0;
  while (run_words[i].key != key) i++;
  return run_words[i].name;
}

static enum err run_word(struct asked *a, int key, const char *text)
{
  char *end;
  switch (key) {
  case KEY_RANKS: return asked_ranks(text, a);
  case KEY_BASE: {
    const long n = strtol(text, &end, 10);
    if (*text < '0' || *text > '9' || *end || n < 1 || n > 65536) FAIL(ERR_CONFIG, "--base %s; valid: 1..65536", text);
    a->base = (int)n;
    return ERR_OK;
  }
  case KEY_BUDGET: return asked_budget(text, &a->budget_s);
  case KEY_QUICK: a->full = false; return ERR_OK;
  case KEY_FULL: a->full = true; return ERR_OK;
  case KEY_DRY: a->dry_run = true; return ERR_OK;
  case KEY_KEEP: a->keep = true; return ERR_OK;
  case KEY_FAIL_FAST: a->fail_fast = true; return ERR_OK;
  default: break;
  }
  const struct {
    int key;
    char *at;
    size_t room;
  } texts[] = {{KEY_MODEL, a->model, sizeof a->model},    {KEY_LAYOUT, a->layout, sizeof a->layout}, {KEY_HOSTS, a->hosts, sizeof a->hosts},
               {KEY_DEVICE, a->device, sizeof a->device}, {KEY_SEED, a->seed, sizeof a->seed},       {KEY_LAZY_SEED, a->lazy_seed, sizeof a->lazy_seed},
               {KEY_TRANSPORT, a->transport, sizeof a->transport}, {KEY_POLICY, a->policy, sizeof a->policy}, {KEY_OUT, a->out, sizeof a->out},
               {KEY_RESUME, a->resume, sizeof a->resume}, {KEY_FAULT, a->fault, sizeof a->fault},    {KEY_ONLY, a->only, sizeof a->only}};
  for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
    if (texts[i].key != key) continue;
    if (strlen(text) >= texts[i].room || *text == '\0')
      FAIL(ERR_CONFIG, "--%s: %zu bytes '%.40s'; valid: 1 to %zu bytes", name_of(key), strlen(text), text, texts[i].room - 1);
    snprintf(texts[i].at, texts[i].room, "%s", text);
    return ERR_OK;
  }
  FAIL(ERR_CONFIG, "unknown option");
}

static error_t on_run(int key, char *text, struct argp_state *state)
{
  struct asked *a = state->input;
  if (key == ARGP_KEY_ARG) {
    if (a->n_suites == ASKED_SUITES || strlen(text) >= sizeof a->suites[0]) argp_error(state, "too many suites, or too long a name");
    snprintf(a->suites[a->n_suites++], sizeof a->suites[0], "%s", text);
    return 0;
  }
  if (key == ARGP_KEY_END && a->n_suites == 0 && *a->resume == '\0') argp_error(state, "which suite? `shardmark list suites` names them");
  if (key == ARGP_KEY_END && a->n_suites && *a->resume) argp_error(state, "--resume asks what was asked before: name no suite");
  if (key < KEY_RANKS || key > KEY_KEEP) return ARGP_ERR_UNKNOWN;
  if (run_word(a, key, text) != ERR_OK) argp_error(state, "%s", err_text());
  return 0;
}

static enum status verb_run(int argc, char **argv)
{
  static const struct argp argp = {run_words, on_run, "SUITE...\n--resume DIR",
                                   "Runs suites, writes records, prints the verdict, writes the report.\v"
                                   "Exit status: 0 PASS, 1 FAIL, 2 usage or configuration, 3 INVALID, 4 INCONCLUSIVE, 130 interrupted.",
                                   NULL, NULL, NULL};
  struct asked *a = calloc(1, sizeof *a);
  enum status status = STATUS_FAIL;
  if (a == NULL) return STATUS_INVALID;
  parse(&argp, argc, argv, "run", a);
  const enum err err = run_suites(a, &status);
  free(a);
  return err ? say_error("run", err) : status;
}

/* --- export ------------------------------------------------------------------------------ */

static const struct argp_option export_words[] = {
  {"model", KEY_MODEL, "NAME", 0, "what is trained (default: tiny; see list models)", 0},
  {"layout", KEY_LAYOUT, "dp=2,tp=2", 0, "what the case is meant for: told in case.json, and how the legal runs split their sums (default: dp=2)", 0},
  {"steps", KEY_STEPS, "N", 0, "updates (default: 3)", 0},
  {"set", KEY_SET, "KEY=VALUE", 0, "another setting of the training, as often as wanted (keys: below)", 0},
  {0}};

static enum err copy_word(const char *name, const char *text, char *out, size_t bytes)
{
  if (strlen(text) >= bytes || *text == '\0')
    FAIL(ERR_CONFIG, "%s: %zu bytes '%.40s'; valid: 1 to %zu bytes", name, strlen(text), text, bytes - 1);
  snprintf(out, bytes, "%s", text);
  return ERR_OK;
}

static enum err add_set(struct export_asked *a, const char *before, const char *text)
{
  char whole[CONFIG_PATH];
  if (a->n_sets == EXPORT_SETS) FAIL(ERR_CONFIG, "--set %.40s: the %dth; valid: up to %d", text, EXPORT_SETS + 1, EXPORT_SETS);
  if (snprintf(whole, sizeof whole, "%s%s", before, text) >= (int)sizeof whole) FAIL(ERR_CONFIG, "--set %.40s...: too long", text);
  return copy_word("--set", whole, a->sets[a->n_sets++], sizeof a->sets[0]);
}

static enum err export_word(struct export_asked *a, int key, const char *text)
{
  switch (key) {
  case KEY_MODEL: return copy_word("--model", text, a->model, sizeof a->model);
  case KEY_LAYOUT: return copy_word("--layout", text, a->layout, sizeof a->layout);
  case KEY_STEPS: return add_set(a, "steps=", text);
  case KEY_SET: return add_set(a, "", text);
  default: return copy_word("DIR", text, a->dir, sizeof a->dir);
  }
}

static error_t on_export(int key, char *text, struct argp_state *state)
{
  struct export_asked *a = state->input;
  if (key == ARGP_KEY_END && *a->dir == '\0') argp_error(state, "which directory?");
  if (key == ARGP_KEY_ARG && *a->dir) argp_error(state, "one directory at a time, not also %s", text);
  if (key != ARGP_KEY_ARG && (key < KEY_RANKS || key > KEY_STEPS)) return ARGP_ERR_UNKNOWN;
  if (export_word(a, key, text) != ERR_OK) argp_error(state, "%s", err_text());
  return 0;
}

static enum status verb_export(int argc, char **argv)
{
  char keys[1024], doc[2048];
  export_keys(keys, sizeof keys);
  snprintf(doc, sizeof doc,
           "Writes a case to DIR: initial weights, batches, the float64 truth of a few updates and the bounds of rounding, for a trainer of any "
           "kind to be checked against.\v"
           "DIR is new or empty. DIR/README.md says all that an adapter needs. The keys of --set, as `shardmark list options` explains them: %s.\n\n"
           "Exit status: 0 written, 2 usage or configuration, 3 INVALID, 130 interrupted; unless it is 0 nothing is left.",
           keys);
  const struct argp argp = {export_words, on_export, "DIR", doc, NULL, NULL, NULL};
  struct export_asked *a = calloc(1, sizeof *a);
  enum status status = STATUS_FAIL;
  if (a == NULL) return STATUS_INVALID;
  parse(&argp, argc, argv, "export", a);
  const enum err err = export_case(a, &status);
  free(a);
  return err ? say_error("export", err) : status;
}

/* --- check ------------------------------------------------------------------------------- */

static const struct argp_option check_words[] = {
  {"against", 'a', "CASE", 0, "directory that `shardmark export` wrote", 0},
  {"out", 'o', "DIR", 0, "write records and a report to this directory, new or without results", 0},
  {0}};

static error_t on_check(int key, char *text, struct argp_state *state)
{
  struct check_asked *a = state->input;
  char *const place = key == 'a' ? a->against : key == 'o' ? a->out : a->dir;
  if (key == ARGP_KEY_END && (*a->dir == '\0' || *a->against == '\0')) argp_error(state, "which run, against which case? `shardmark check DIR --against CASE`");
  if (key != 'a' && key != 'o' && key != ARGP_KEY_ARG) return ARGP_ERR_UNKNOWN;
  if (key == ARGP_KEY_ARG && *a->dir) argp_error(state, "one run at a time, not also %s", text);
  if (*text == '\0' || strlen(text) >= sizeof a->dir) argp_error(state, "'%.40s': valid: a path of 1 to %zu bytes", text, sizeof a->dir - 1);
  snprintf(place, sizeof a->dir, "%s", text);
  return 0;
}

static enum status verb_check(int argc, char **argv)
{
  static const struct argp argp = {check_words, on_check, "DIR --against CASE",
    "Judges a run of any trainer against a case that `shardmark export` wrote, by the checks that judge ours.\v"
    "DIR holds records*.jsonl and the tensors that they name, as CASE/README.md asks. What is there sets the level: 1 records of steps, "
    "2 weights and moments, 3 gradients, and hashes and collectives where these are told. Each check gives its verdict, or is SKIPPED with what could not be "
    "seen; then the first divergence and its likely cause.\n\n"
    "Exit status: 0 PASS (at its level), 1 FAIL, 2 usage, no case, or settings that the case has no bounds for, 3 INVALID, 4 INCONCLUSIVE.",
    NULL, NULL, NULL};
  struct check_asked a = {.out = ""};
  enum status status = STATUS_FAIL;
  parse(&argp, argc, argv, "check", &a);
  const enum err err = check_run(&a, &status);
  return err ? say_error("check", err) : status;
}

/* --- the other verbs ------------------------------------------------------------------------ */

static enum status verb_train(int argc, char **argv)
{
  char trainer[4096];
  if (argc < 2 || strcmp(argv[1], "--help") == 0) {
    fprintf(argc < 2 ? stderr : stdout, "Usage: shardmark train [--check] [--set KEY=VALUE]... FILE...\n"
                                        "Training runs, alone or under mpirun; --check validates the run files without MPI;\n"
                                        "--set goes over every run file (see list options).\n");
    return argc < 2 ? STATUS_USAGE : STATUS_PASS;
  }
  const enum err err = place_trainer(trainer, sizeof trainer);
  if (err) return say_error("train", err);
  argv[0] = trainer;
  execv(trainer, argv);
  fprintf(stderr, "shardmark train: %s: %s\n", trainer, strerror(errno));
  return STATUS_INVALID;
}

static error_t on_report(int key, char *text, struct argp_state *state)
{
  (void)text;
  if (key == ARGP_KEY_NO_ARGS) argp_error(state, "which results directory?");
  return ARGP_ERR_UNKNOWN; /* the directories are left to the caller */
}

static enum status verb_report(int argc, char **argv)
{
  static const struct argp argp = {NULL, on_report, "DIR...", "Rebuilds the report (HTML, plots, Markdown, CSV, JUnit) from records alone.",
                                   NULL, NULL, NULL};
  int first;
  char name[] = "shardmark report";
  argv[0] = name;
  argp_err_exit_status = STATUS_USAGE;
  argp_parse(&argp, argc, argv, 0, &first, NULL);
  if (first >= argc) return STATUS_USAGE;
  for (int i = first; i < argc; i++) {
    const enum err err = report_write(argv[i]);
    if (err) return say_error("report", err);
    printf("%s/report.html\n", argv[i]);
  }
  return STATUS_PASS;
}

static enum status verb_speed(int argc, char **argv)
{
  enum status status = STATUS_FAIL;
  if (argc < 2 || strcmp(argv[1], "--help") == 0) {
    fprintf(argc < 2 ? stderr : stdout, "Usage: shardmark speed DIR...\n"
                                        "Tokens a second, MFU, clocks and energy of training runs on a GPU, from the folders that they wrote.\n");
    return argc < 2 ? STATUS_USAGE : STATUS_PASS;
  }
  const enum err err = measured_print((const char *const *)argv + 1, argc - 1, stdout, &status);
  return err ? say_error("speed", err) : status;
}

struct list_asked {
  const char *what;
  enum list_form form;
};
static error_t on_list(int key, char *text, struct argp_state *state)
{
  struct list_asked *a = state->input;
  if (key == 'j') a->form = LIST_JSON;
  else if (key == 'm') a->form = LIST_MARKDOWN;
  else if (key == ARGP_KEY_ARG && a->what) argp_error(state, "one list at a time");
  else if (key == ARGP_KEY_ARG) a->what = text;
  else return ARGP_ERR_UNKNOWN;
  return 0;
}

static enum status verb_list(int argc, char **argv)
{
  static const struct argp_option words[] = {
    {"json", 'j', NULL, 0, "as JSON", 0}, {"markdown", 'm', NULL, 0, "the options as the README has them", 0}, {0}};
  static const struct argp argp = {words, on_list, "[suites|faults|causes|options|checks|models|schema]", "What exists.", NULL, NULL, NULL};
  struct list_asked a = {0};
  parse(&argp, argc, argv, "list", &a);
  const enum err err = list_print(a.what, a.form);
  return err ? say_error("list", err) : STATUS_PASS;
}

static enum status verb_doctor(int argc, char **argv)
{
  static const struct argp argp = {NULL, NULL, NULL, "Is this machine fit to run, and if not, the command that mends it.", NULL, NULL, NULL};
  parse(&argp, argc, argv, "doctor", NULL);
  return doctor_print(stdout);
}

static const struct {
  const char *name, *help;
  enum status (*run)(int argc, char **argv);
} verbs[] = {{"run", "runs suites, writes records, prints the verdict, writes the report", verb_run},
             {"train", "training runs, alone or under mpirun", verb_train},
             {"export", "a training's weights, batches, truth and bounds, for any trainer", verb_export},
             {"check", "judges another trainer's run against an exported case", verb_check},
             {"report", "rebuilds the report of a results directory from its records", verb_report},
             {"speed", "speed of training runs on a GPU, from their records", verb_speed},
             {"list", "suites, faults, causes, options, checks, models", verb_list},
             {"doctor", "is this machine fit to run", verb_doctor}};
enum { VERBS = sizeof verbs / sizeof *verbs };

static void usage(FILE *out)
{
  fprintf(out, "Usage: shardmark VERB ...\n\n");
  for (int i = 0; i < VERBS; i++) fprintf(out, "  %-8s %s\n", verbs[i].name, verbs[i].help);
  fprintf(out, "\n`shardmark VERB --help` says more, `shardmark --version` which build this is.\n");
}

int main(int argc, char **argv)
{
  if (argc < 2) {
    usage(stderr);
    return STATUS_USAGE;
  }
  if (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0) {
    usage(stdout);
    return STATUS_PASS;
  }
  if (strcmp(argv[1], "--version") == 0) {
    printf("shardmark %s, commit %s, %s, %s\n", BUILD_INFO_VERSION, BUILD_INFO_COMMIT, BUILD_INFO_COMPILER, BUILD_INFO_TYPE);
    return STATUS_PASS;
  }
  for (int i = 0; i < VERBS; i++)
    if (strcmp(argv[1], verbs[i].name) == 0) return (int)verbs[i].run(argc - 1, argv + 1);
  char near[128];
  struct nearest n = nearest_to(argv[1]);
  for (int i = 0; i < VERBS; i++) nearest_offer(&n, verbs[i].name);
  fprintf(stderr, "shardmark: no verb '%s'; nearest: %s\n", argv[1], nearest_text(&n, near, sizeof near));
  return STATUS_USAGE;
}
