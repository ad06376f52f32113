/* foreign_records.c - another program's lines. */
#include "harness/foreign_records.h"
#include "harness/results.h"

#include "base/record.h"
#include "base/record_keys.h"
#include "suites/checks/evidence.h"
#include "suites/checks/verdict.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum err foreign_records_read(const char *dir, json_t **out)
{
  int files;
  errno = 0;
  TRY(results_read_by(record_read_foreign, dir, &files, out));
  const int why = errno;
  if (files > 0) return ERR_OK;
  json_decref(*out);
  *out = NULL;
  if (files < 0) FAIL(ERR_CONFIG, "%s: %s; valid: a directory with records*.jsonl", dir, strerror(why));
  FAIL(ERR_CONFIG, "%s: no records*.jsonl there", dir);
}

/* --- a look at each --------------------------------------------------------------------------- */

/* Which places a kind has, and what makes two of its records one told twice. */
static const struct {
  const char *kind;
  bool rank, step, microbatch; /* must be there                                  */
  bool any_rank;               /* told once by the whole run, by whichever rank  */
  const char *key;             /* part of what is told, NULL: nothing more       */
} kinds[] = {
  {"run", false, false, false, false, NULL},      {"done", true, false, false, false, NULL},     {"step", true, true, false, false, NULL},
  {"microbatch", false, true, true, true, NULL},  {"batch", true, true, true, false, NULL},      {"trace", true, true, false, false, NULL},
  {"tensors", false, true, false, true, "got.what"}, {"replica", true, false, false, false, "got.of"},
};
enum { KINDS = sizeof kinds / sizeof *kinds };

static int kind_of(const json_t *record)
{
  for (int k = 0; k < KINDS; k++)
    if (evidence_is(record, kinds[k].kind)) return k;
  return -1;
}

static void describe(const json_t *record, char *out, size_t bytes)
{
  char *text = json_dumps(record, JSON_COMPACT);
  snprintf(out, bytes, "%.160s%s", text ? text : "?", text && strlen(text) > 160 ? "..." : "");
  free(text);
}

/* An integer in 0 .. most, or absent where it may be. */
static bool is_place(const json_t *record, const char *key, int64_t most, bool needed)
{
  const json_t *value = json_object_get(record, key);
  if (value == NULL) return !needed;
  return json_is_integer(value) && json_integer_value(value) >= 0 && json_integer_value(value) <= most;
}

/* What is wrong with it alone; NULL: nothing.  *most: largest value that a place may have; -1: it is not about a place. */
static const char *fault_of(const struct run_data *run, const json_t *record, int k, int64_t *most)
{
  const char *key;
  json_t *value;
  const struct {
    const char *key;
    int64_t most;
    bool needed;
  } places[] = {{"rank", config_ranks(&run->config) - 1, kinds[k].rank},
                {"step", run->config.steps - (kinds[k].microbatch || strcmp(kinds[k].kind, "step") == 0 || strcmp(kinds[k].kind, "trace") == 0), kinds[k].step},
                {"microbatch", evidence_microbatches(&run->config) - 1, kinds[k].microbatch}};
  for (int i = 0; i < 3; i++) {
    *most = places[i].most;
    if (!is_place(record, places[i].key, places[i].most, places[i].needed)) return places[i].key;
  }
  *most = -1;
  json_object_foreach((json_t *)record, key, value)
  {
    char whole[80];
    snprintf(whole, sizeof whole, "got.%.70s", key);
    if (record_key_type(kinds[k].kind, whole) != NULL) return key; /* its prefix is missing */
    const char *type = strncmp(key, "got.", 4) == 0 ? record_key_type(kinds[k].kind, key) : NULL;
    if (type != NULL && !record_type_fits(type, value)) return key;
  }
  return NULL;
}

/* What may be told once. */
static void name_of(const json_t *record, int k, char *out, size_t bytes)
{
  const bool replica = strcmp(kinds[k].kind, "replica") == 0;
  snprintf(out, bytes, "%s %lld %lld %lld %s %s %s", kinds[k].kind, kinds[k].any_rank ? -1LL : (long long)evidence_rank(record),
           (long long)evidence_step(record), (long long)evidence_microbatch(record), kinds[k].key ? evidence_text(record, kinds[k].key) : "",
           replica ? evidence_text(record, "got.what") : "", replica ? evidence_text(record, "got.group") : "");
}

/* A kind that nobody knows may be a slip of the pen, and what it tells would go unseen.  False: a verdict is said. */
static bool judge_kind(const json_t *record, struct verdict *out)
{
  const char *kind = record_get_text(record, "kind");
  char valid[160] = "";
  if (record_kind_known(kind)) return true;
  for (int k = 0; k < KINDS; k++) snprintf(valid + strlen(valid), sizeof valid - strlen(valid), "%s%s", k ? ", " : "", kinds[k].kind);
  verdict_say(out, OUTCOME_INVALID, "kind '%.40s' of a record is not known; valid: %s, or another of the schema's", kind, valid);
  return false;
}

/* The run's own count of its ranks.  False: a verdict is said. */
static bool judge_ranks(const struct run_data *run, const json_t *record, struct verdict *out)
{
  const struct run_config *c = &run->config;
  const int64_t told = record_get_int(record, "got.ranks", config_ranks(c));
  if (told == config_ranks(c)) return true;
  verdict_say(out, OUTCOME_INVALID, "got.ranks %lld of the run record; set.dp %lld, set.tp %lld and set.pp %lld make %lld", (long long)told,
              (long long)c->dp, (long long)c->tp, (long long)c->pp, (long long)config_ranks(c));
  return false;
}

/* False: a verdict is said. */
static bool judge_record(const struct run_data *run, const json_t *record, int k, json_t *told, struct verdict *out)
{
  char text[200], name[512];
  int64_t most = -1;
  const char *fault = fault_of(run, record, k, &most);
  describe(record, text, sizeof text);
  if (fault != NULL && most >= 0)
    verdict_say(out, OUTCOME_INVALID, "%s of a %s record; valid: a whole number in 0..%lld: %s", fault, kinds[k].kind, (long long)most, text);
  else if (fault != NULL && strncmp(fault, "got.", 4) != 0)
    verdict_say(out, OUTCOME_INVALID, "%s of a %s record; valid: got.%s: %s", fault, kinds[k].kind, fault, text);
  else if (fault != NULL)
    verdict_say(out, OUTCOME_INVALID, "%s of a %s record; valid: %s: %s", fault, kinds[k].kind, record_key_type(kinds[k].kind, fault), text);
  if (fault != NULL) return false;
  name_of(record, k, name, sizeof name);
  const json_t *before = json_object_get(told, name);
  const long long rank = (long long)evidence_rank(record), other = (long long)json_integer_value(before);
  if (before != NULL && other != rank)
    verdict_say(out, OUTCOME_INVALID, "a %s record is told twice, by ranks %lld and %lld; one is to tell of it (a micro-batch belongs to one replica): %s",
                kinds[k].kind, other, rank, text);
  else if (before != NULL)
    verdict_say(out, OUTCOME_INVALID, "a %s record is told twice; are there two runs in the directory? %s", kinds[k].kind, text);
  if (before != NULL) return false;
  json_object_set_new(told, name, json_integer(rank));
  return true;
}

void foreign_records_judge(const struct run_data *run, struct verdict *out)
{
  const size_t n = json_array_size(run->records);
  json_t *told = json_object();
  bool good = true;
  verdict_start(out, "records", "O14");
  for (size_t i = 0; good && i < n; i++) {
    const json_t *record = json_array_get(run->records, i);
    const int k = kind_of(record);
    if (k >= 0) good = judge_record(run, record, k, told, out);
    else good = judge_kind(record, out);
    if (good && evidence_is(record, "run")) good = judge_ranks(run, record, out);
  }
  json_decref(told);
  if (good) verdict_say(out, OUTCOME_PASS, "%zu records, each in its place, none told twice", n);
}
