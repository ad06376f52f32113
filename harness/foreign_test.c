/* foreign_test.c - a foreign run against a case, both made by hand: green at each level, and each twist red at those that can see it. */
#include "harness/foreign.h"

#include "base/fault.h"
#include "suites/checks/fabricate_test.h"
#include "suites/checks/noise.h"

#include <sys/stat.h>

static char root[64], against[96];
static struct run_config config;

/* --- the case ------------------------------------------------------------------------------------ */

static void add(json_t *list, int64_t step, int64_t m, const char *name, double q)
{
  json_t *entry = json_pack("{s:I, s:f}", "step", (json_int_t)step, "q", q);
  if (m >= 0) json_object_set_new(entry, "microbatch", json_integer(m));
  if (name) json_object_set_new(entry, "name", json_string(name));
  json_array_append_new(list, entry);
}

static void write_json(json_t *j, const char *format, const char *dir)
{
  char path[200];
  snprintf(path, sizeof path, format, dir);
  CHECK(json_dump_file(j, path, JSON_REAL_PRECISION(17)) == 0);
  json_decref(j);
}

static void write_bounds(const struct run_data *truth, const struct noise *noise)
{
  json_t *loss = json_array(), *sums = json_array(), *norm = json_array(), *gradients = json_array();
  for (int64_t step = 0; step < config.steps; step++) {
    struct gaps rows;
    double q[2 * MADE_ROWS];
    add(loss, step, -1, NULL, noise_of(noise, truth, "step", step, -1, "got.loss"));
    add(norm, step, -1, NULL, noise_of(noise, truth, "step", step, -1, "got.norm"));
    for (int64_t m = 0; m < evidence_microbatches(&config); m++)
      add(sums, step, m, NULL, noise_of(noise, truth, "microbatch", step, m, "got.loss_sum"));
    CHECK_OK(gap_measure(truth, truth, step, &rows));
    CHECK_OK(noise_gradients(noise, truth, step, &rows, q));
    for (int p = 0; p < rows.n; p++) add(gradients, step, -1, rows.rows[p].name, q[p]);
    gap_free(&rows);
  }
  write_json(json_pack("{s:o, s:o, s:o, s:o}", "loss", loss, "loss_sum", sums, "norm", norm, "gradients", gradients), "%s/bounds.float32.json", against);
}

static void write_records(const struct run_data *run, const char *dir)
{
  char path[CONFIG_PATH + 32];
  snprintf(path, sizeof path, "%s/records.jsonl", dir);
  FILE *f = fopen(path, "w");
  if (!CHECK(f != NULL)) return;
  for (size_t i = 0; i < json_array_size(run->records); i++) {
    json_dumpf(json_array_get(run->records, i), f, JSON_COMPACT | JSON_REAL_PRECISION(17));
    fputc('\n', f);
  }
  fclose(f);
}

static void write_case_json(const struct run_config *c, int version)
{
  json_t *set = json_object();
  for (int i = 0; i < run_options_count; i++)
    if (strcmp(run_options[i].key, "name") != 0 && strcmp(run_options[i].key, "out") != 0)
      json_object_set_new(set, run_options[i].key, opt_json(&run_options[i], c));
  write_json(json_pack("{s:s, s:i, s:s, s:o}", "format", "shardmark-case", "version", version, "model", "made", "set", set), "%s/case.json", against);
}

/* For all tests: the truth's folder becomes that of the case. */
static void a_case_is_made(void)
{
  static struct made made[COMPANIONS_NOISE + 1];
  struct companion wanted[JUDGE_COMPANIONS_MAX];
  struct noise noise = {0};
  char command[CONFIG_PATH + 200];
  config = made_config(2);
  config.unused = false;
  config.evaluate_each = 0;
  config.steps = 3;
  snprintf(root, sizeof root, "/tmp/foreign_test.XXXXXX");
  CHECK(mkdtemp(root) != NULL);
  snprintf(against, sizeof against, "%s/case", root);
  CHECK(mkdir(against, 0777) == 0);
  const int n = companions_noise(&config, wanted, JUDGE_COMPANIONS_MAX);
  for (int i = 0; i < n; i++) made_run(&made[i], &wanted[i].config, i);
  for (int i = 1; i < n; i++) noise.runs[i - 1] = &made[i].data;
  write_bounds(&made[0].data, &noise);
  write_case_json(&wanted[0].config, 1);
  write_records(&made[0].data, made[0].dir);
  snprintf(command, sizeof command, "cp -r '%s' '%s/truth'", made[0].dir, against);
  CHECK(system(command) == 0);
  for (int i = 0; i < n; i++) made_free(&made[i]);
}

/* --- a run ----------------------------------------------------------------------------------------- */

static struct made run;
static struct foreign said;

/* As the adapter of a right framework that tells all. */
static void make_run(void)
{
  made_moments = true;
  made_run(&run, &config, 20);
  made_moments = false;
  json_t *r = made_record(&run, "run", 0, -1, -1);
  json_object_set_new(r, "set.precision", json_string("float32"));
  json_object_set_new(r, "set.dp", json_integer(2));
  json_object_set_new(r, "got.framework", json_string("Made"));
  json_object_set_new(r, "got.versions", json_string("made 1.0"));
}

static bool stays(const json_t *r, int level)
{
  static const char *const told[] = {"run", "done", "step", "microbatch", "batch", "tensors", "replica"};
  const int kinds = level == 1 ? 3 : level == 2 ? 6 : 7;
  bool kind = false;
  for (int i = 0; i < kinds; i++) kind = kind || evidence_is(r, told[i]);
  const bool rank = level > 1 || !evidence_is(r, "step") || evidence_rank(r) == 0;
  return kind && rank && !(level == 2 && strcmp(evidence_text(r, "got.what"), "gradients") == 0);
}

/* What a run of that level shows. */
static void strip(int level)
{
  for (size_t i = json_array_size(run.records); i > 0; i--) {
    json_t *r = json_array_get(run.records, i - 1);
    json_object_del(r, "case");
    if (!stays(r, level)) json_array_remove(run.records, i - 1);
  }
}

static enum outcome check_as_it_is(int level)
{
  write_records(&run.data, run.dir);
  foreign_release(&said);
  if (!CHECK_OK(foreign_check(run.dir, against, &said))) return OUTCOME_INVALID;
  CHECK(said.level == level);
  return said.outcome;
}

static enum outcome check(int level)
{
  strip(level);
  return check_as_it_is(level);
}

static const struct verdict *verdict_of(const char *name)
{
  for (int i = 0; i < said.n_verdicts; i++)
    if (strcmp(said.verdicts[i].check, name) == 0) return &said.verdicts[i];
  return NULL;
}
static enum outcome outcome_of(const char *name) { return verdict_of(name)->outcome; }

/* --- green ------------------------------------------------------------------------------------------- */

static void a_right_run_passes_at_the_level_of_what_it_shows(void)
{
  static const struct {
    int level;
    const char *skipped;
  } levels[] = {{1, " initial batch gradients replicas trace "}, {2, " replicas trace "}, {3, " trace "}};
  for (int i = 0; i < 3; i++) {
    char text[32], name[40];
    make_run();
    CHECK(check(levels[i].level) == OUTCOME_PASS);
    snprintf(text, sizeof text, "PASS at level %d", levels[i].level);
    CHECK_TEXT_HAS(said.sentence, text);
    for (int k = 0; k < said.n_verdicts; k++) {
      const struct verdict *v = &said.verdicts[k];
      snprintf(name, sizeof name, " %s ", v->check);
      if (v == verdict_of(v->check)) CHECK((v->outcome == OUTCOME_SKIPPED) == (strstr(levels[i].skipped, name) != NULL));
      if (v->outcome == OUTCOME_SKIPPED) CHECK_TEXT_HAS(v->sentence, "not judged: ");
    }
    CHECK_TEXT_HAS(said.unseen, "could not be seen");
    CHECK(said.first[0] == '\0' && said.diagnosis.fault[0] == '\0');
    CHECK(strcmp(said.framework, "Made") == 0 && strcmp(said.versions, "made 1.0") == 0);
    CHECK(said.value_over_bound > 0.0 && said.value_over_bound < 1.0);
    made_free(&run);
  }
}

/* --- twists -------------------------------------------------------------------------------------------- */

static void scale_one(void)
{
  for (int64_t step = 0; step < config.steps; step++) made_bend(&run, "gradients", step, "mlp.c_proj.weight", 1.001, 0.0);
  made_bend(&run, "moments1", 1, "mlp.c_proj.weight", 1.001, 0.0);
}
static void halve_all(void)
{
  for (int64_t step = 0; step < config.steps; step++) {
    made_bend(&run, "gradients", step, "", 0.5, 0.0);
    for (int rank = 0; rank < 2; rank++) {
      const double norm = 0.5 * made_get(&run, "step", rank, step, -1, "got.norm");
      made_set(&run, "step", rank, step, -1, "got.norm", json_real(norm));
      made_set(&run, "step", rank, step, -1, "got.clip_factor", json_real(schedule_clip(&config, norm)));
    }
  }
}
static void omit_one(void)
{
  made_omit(&run, "weights", 0, "ln_f.bias");
  made_omit(&run, "gradients", 0, "ln_f.bias");
}
static void lose_count(void)
{
  for (int rank = 0; rank < 2; rank++) {
    const double told = made_get(&run, "step", rank, 0, -1, "got.valid_tokens") - made_tokens(0, 2);
    made_set(&run, "step", rank, 0, -1, "got.valid_tokens", json_integer((json_int_t)told));
  }
}
static void swap_moments(void)
{
  for (int64_t step = 1; step <= config.steps; step++) {
    json_t *both[2] = {NULL};
    for (size_t i = 0; i < json_array_size(run.records); i++) {
      json_t *r = json_array_get(run.records, i);
      const char *what = evidence_text(r, "got.what");
      if (evidence_is(r, "tensors") && evidence_step(r) == step && strncmp(what, "moments", 7) == 0) both[what[7] - '1'] = r;
    }
    for (int i = 0; i < 2; i++) json_object_set_new(both[i], "got.what", json_string(i == 0 ? "moments2" : "moments1"));
  }
}
static void drift(void)
{
  for (size_t i = 0; i < json_array_size(run.records); i++) {
    json_t *r = json_array_get(run.records, i);
    if (evidence_is(r, "replica") && evidence_rank(r) == 1 && evidence_step(r) == 1 && strcmp(evidence_text(r, "got.what"), "weights") == 0)
      json_object_set_new(r, "got.hash", json_string("another"));
  }
}
static void transpose(void) { made_transpose(&run, "weights", 0, "mlp.c_fc.weight"); }
static void not_finite(void) { made_bend(&run, "weights", 2, "ln_f.bias", NAN, 0.0); }
/* These are made with another rule: make_run asks. */
static void clip_none(void)
{
  for (int64_t step = 0; step < config.steps; step++)
    for (int rank = 0; rank < 2; rank++)
      made_set(&run, "step", rank, step, -1, "got.clip_factor", json_real(schedule_clip(&config, made_get(&run, "step", rank, step, -1, "got.norm"))));
}

enum rule { RIGHT, UNCLIPPED, DECAY_ALL, AHEAD };
/* red: what goes red at levels 1, 2 and 3; "": green. */
static const struct {
  const char *name;
  enum rule rule;
  void (*twist)(void);
  const char *red[3];
  const char *cause[3], *first;
} twists[] = {
  {"one gradient", RIGHT, scale_one, {"", "gradients", "gradients"}, {"", "gradient-scaled", "gradient-scaled"}, "step 0, gradients"},
  {"all gradients", RIGHT, halve_all, {"norm", "norm", "gradients"}, {"gradients-divided-by-replicas", NULL, "gradients-divided-by-replicas"}, "step 0"},
  {"a parameter", RIGHT, omit_one, {"", "initial", "initial"}, {"", "parameters-differ", "parameters-differ"}, "before step 0, initial"},
  {"transposed", RIGHT, transpose, {"", "initial", "initial"}, {"", "matrix-transposed", "matrix-transposed"}, "before step 0, initial"},
  {"a count", RIGHT, lose_count, {"loss", "loss", "loss"}, {"microbatch-left-out", "microbatch-left-out", "microbatch-left-out"}, "step 0, loss"},
  {"clip", UNCLIPPED, clip_none, {"", "gradients", "update"}, {"", "gradients-not-clipped", "gradients-not-clipped"}, "step 0"},
  {"decay", DECAY_ALL, NULL, {"", "update", "update"}, {"", "decay-on-all", "decay-on-all"}, "step 0, update"},
  {"rate", AHEAD, NULL, {"update", "update", "update"}, {"lr-off-by-one", "lr-off-by-one", "lr-off-by-one"}, "step 0, update"},
  {"moments", RIGHT, swap_moments, {"", "gradients", "update"}, {"", "moments-swapped", "moments-swapped"}, "step 0"},
  {"a replica", RIGHT, drift, {"", "", "replicas"}, {"", "", "replicas-differ"}, "step 1, replicas"},
  {"a number", RIGHT, not_finite, {"", "finite", "finite"}, {"", "", ""}, "step 1, update"},
};

static void make_by(enum rule rule)
{
  const struct run_config asked = config;
  if (rule == UNCLIPPED) config.clip = 0.0;
  made_decay_all = rule == DECAY_ALL;
  made_shift = rule == AHEAD;
  make_run();
  made_decay_all = false;
  made_shift = 0;
  config = asked;
  run.data.config = config;
}

static void a_twist_is_red_where_it_can_be_seen_and_named(void)
{
  for (size_t t = 0; t < sizeof twists / sizeof *twists; t++)
    for (int level = 1; level <= 3; level++) {
      const char *red = twists[t].red[level - 1], *cause = twists[t].cause[level - 1];
      make_by(twists[t].rule);
      if (twists[t].twist) twists[t].twist();
      const enum outcome outcome = check(level);
      const bool as_wanted = outcome == (*red ? OUTCOME_FAIL : OUTCOME_PASS) && (!*red || outcome_of(red) == OUTCOME_FAIL || level < 0) &&
                             (cause == NULL || strcmp(said.diagnosis.fault, cause) == 0) && (!*red || strncmp(said.first, twists[t].first, strlen(twists[t].first)) == 0);
      CHECK(as_wanted);
      if (!as_wanted) fprintf(stderr, "%s at level %d: %s; cause '%s'; first '%s'\n", twists[t].name, level, said.sentence, said.diagnosis.fault, said.first);
      made_free(&run);
    }
}

/* --- what is no evidence of an update ---------------------------------------------------------------- */

/* Rewrites a dump in bf16, cut. */
static void narrow(const char *what, int64_t step)
{
  static uint16_t values[MADE_ROWS][MADE_ELEMENTS];
  struct safetensor list[MADE_ROWS];
  struct safetensors *f;
  char path[CONFIG_PATH + 64];
  if (!CHECK_OK(evidence_tensors(&run.data, what, step, &f))) return;
  for (int i = 0; i < safetensors_count(f); i++) {
    const struct safetensor *t = safetensors_get(f, i);
    double x[MADE_ELEMENTS];
    CHECK_OK(evidence_elements(&t->data, x));
    for (int64_t k = 0; k < tensor_count(&t->data); k++) {
      const float of = (float)x[k];
      uint32_t bits;
      memcpy(&bits, &of, sizeof bits);
      values[i][k] = (uint16_t)(bits >> 16);
    }
    list[i] = (struct safetensor){t->name, tensor_at(values[i], DTYPE_BF16, t->data.rows, t->data.cols), t->rank};
  }
  snprintf(path, sizeof path, "%s/%s.step%lld.safetensors", run.dir, what, (long long)step);
  CHECK_OK(safetensors_write(path, list, safetensors_count(f), NULL));
  safetensors_close(f);
}

static void leave_out(const char *what, int64_t from, int64_t to)
{
  for (size_t i = json_array_size(run.records); i > 0; i--) {
    const json_t *r = json_array_get(run.records, i - 1);
    if (evidence_is(r, "tensors") && evidence_step(r) >= from && evidence_step(r) <= to && strcmp(evidence_text(r, "got.what"), what) == 0)
      json_array_remove(run.records, i - 1);
  }
}

static void moments_below_the_smallest_normal_number_are_zero(void)
{
  for (int flushed = 0; flushed < 2; flushed++) {
    make_run();
    for (int64_t step = 0; step <= config.steps; step++) made_bend(&run, "weights", step, "ln_f.bias", 0.0, 0.5);
    for (int64_t step = 1; step <= config.steps; step++) {
      made_bend(&run, "moments1", step, "ln_f.bias", 0.0, 1e-22);
      made_bend(&run, "moments2", step, "ln_f.bias", 0.0, flushed ? 0.0 : 1e-43);
    }
    check(2); /* red elsewhere: these are not the case's gradients */
    CHECK(outcome_of("update") == OUTCOME_PASS);
    made_bend(&run, "moments2", 1, "ln_f.bias", 0.0, 1e-37);
    check(2);
    CHECK(outcome_of("update") == OUTCOME_FAIL);
    made_free(&run);
  }
}

/* The check of updates, or a part of it, is SKIPPED with that text. */
static bool update_lacks(const char *part)
{
  for (int i = 0; i < said.n_verdicts; i++)
    if (strcmp(said.verdicts[i].check, "update") == 0 && said.verdicts[i].outcome == OUTCOME_SKIPPED && strstr(said.verdicts[i].sentence, part)) return true;
  return false;
}

static void narrow_dumps_and_gaps_are_no_evidence_of_updates(void)
{
  make_run(); /* masters as bf16 */
  for (int64_t step = 1; step <= config.steps; step++) narrow("weights", step);
  CHECK(check(3) == OUTCOME_PASS);
  CHECK(update_lacks("weights are told in a type narrower than float32"));
  made_free(&run);
  make_run(); /* a wrong rule behind them is not seen, and not told to be right */
  made_bend(&run, "weights", 1, "ln_f.bias", 1.0, 5e-5);
  for (int64_t step = 1; step <= config.steps; step++) narrow("weights", step);
  strip(2);
  CHECK(check_as_it_is(1) == OUTCOME_PASS);
  CHECK_TEXT_HAS(said.sentence, "PASS at level 1");
  CHECK_TEXT_HAS(said.unseen, "masters that are rounded");
  made_free(&run);
  make_run();
  for (int64_t step = 1; step <= config.steps; step++) narrow("moments2", step);
  CHECK(check(3) == OUTCOME_PASS);
  CHECK(update_lacks("moments are told in a type narrower"));
  made_free(&run);
  make_run(); /* no moments beside gradients */
  leave_out("moments1", 0, config.steps);
  leave_out("moments2", 0, config.steps);
  CHECK(check(3) == OUTCOME_PASS);
  CHECK(update_lacks("no moments"));
  made_free(&run);
}

/* The files' own type is named, not what it resembles. */
static void a_narrow_file_is_its_own_cause(void)
{
  make_run();
  for (int64_t step = 0; step < config.steps; step++) narrow("gradients", step);
  CHECK(check(3) == OUTCOME_FAIL);
  CHECK(strcmp(said.diagnosis.fault, "tensors-told-narrow") == 0);
  made_free(&run);
  make_run();
  narrow("weights", 0);
  CHECK(check(3) == OUTCOME_FAIL);
  CHECK(strcmp(said.diagnosis.fault, "tensors-told-narrow") == 0);
  made_free(&run);
}

static void counted_padding_and_a_short_run_are_named(void)
{
  make_run();
  strip(3);
  for (int64_t step = 0; step < config.steps; step++) {
    for (int64_t m = 0; m < 6; m++)
      for (int rank = 0; rank < 2; rank++) {
        if (evidence_record(&run.data, "batch", rank, step, m)) made_set(&run, "batch", rank, step, m, "got.valid_tokens", json_integer(config.sequence));
        if (evidence_record(&run.data, "microbatch", rank, step, m)) made_set(&run, "microbatch", rank, step, m, "got.valid_tokens", json_integer(config.sequence));
      }
    for (int rank = 0; rank < 2; rank++) made_set(&run, "step", rank, step, -1, "got.valid_tokens", json_integer(6 * config.sequence));
  }
  CHECK(check(3) == OUTCOME_FAIL);
  if (!CHECK(strcmp(said.diagnosis.fault, "padding-counted") == 0)) fprintf(stderr, "'%s'\n", said.diagnosis.fault);
  CHECK_TEXT_HAS(verdict_of("loss")->sentence, "micro-batch 0 of step 0 counts 8 valid tokens");
  made_free(&run);
  make_run();
  made_drop(&run, "step", -1, 2, -1);
  CHECK(check(3) == OUTCOME_FAIL);
  CHECK_TEXT_HAS(said.sentence, "the run ended after 2 of 3 steps");
  made_free(&run);
}

/* Samples of two micro-batches of step 1: changed for each other, and one of them read twice. */
static void samples_read_twice_or_never_are_said(void)
{
  for (int twice = 0; twice < 2; twice++) {
    json_t *rows[2] = {NULL, NULL};
    make_run();
    strip(3);
    for (int rank = 0; rank < 2; rank++)
      for (int64_t m = 1; m < 3; m++) {
        json_t *r = (json_t *)evidence_record(&run.data, "batch", rank, 1, m);
        if (r && rows[m - 1] == NULL) rows[m - 1] = json_deep_copy(json_object_get(r, "got.samples"));
      }
    if (!CHECK(rows[0] != NULL && rows[1] != NULL && !json_equal(rows[0], rows[1]))) return;
    for (int rank = 0; rank < 2; rank++)
      for (int64_t m = 1; m < 3; m++) {
        json_t *r = (json_t *)evidence_record(&run.data, "batch", rank, 1, m);
        if (r) json_object_set(r, "got.samples", twice || m == 2 ? rows[0] : rows[1]);
      }
    CHECK(check(3) == OUTCOME_FAIL);
    CHECK_TEXT_HAS(verdict_of("batch")->sentence, "micro-batch ");
    CHECK_TEXT_HAS(verdict_of("batch")->sentence, twice ? " is read 2 times, for 1 in the case; sample " : "they are the case's, in another order");
    if (twice) CHECK_TEXT_HAS(verdict_of("batch")->sentence, " 0 times, for 1");
    json_decref(rows[0]);
    json_decref(rows[1]);
    made_free(&run);
  }
}

/* Weights and moments at the ends alone show no update; they must be what updates can make. */
static void ends_alone_are_no_level_and_no_garbage(void)
{
  for (int twist = 0; twist < 4; twist++) {
    make_run();
    strip(2);
    leave_out("weights", 1, config.steps - 1);
    leave_out("moments1", 1, config.steps - 1);
    leave_out("moments2", 1, config.steps - 1);
    if (twist == 1) made_bend(&run, "weights", config.steps, "ln_f.bias", 0.0, 7.0);
    if (twist == 2) made_bend(&run, "moments2", config.steps, "ln_f.bias", -1.0, -1e-9);
    if (twist == 3) narrow("weights", config.steps);
    CHECK(check_as_it_is(1) == (twist == 1 || twist == 2 ? OUTCOME_FAIL : OUTCOME_PASS));
    if (twist == 1) CHECK_TEXT_HAS(said.sentence, "updates of Adam reach");
    if (twist == 2) CHECK_TEXT_HAS(said.sentence, "a mean of squares is never negative");
    made_free(&run);
  }
}

/* --- micro-batches ------------------------------------------------------------------------------------- */

enum { M = 6 };

/* What micro-batch m contributes to element k of a vector whose whole gradient is g: any numbers that sum up to it. */
static double part(double g, int64_t k, int m) { return g / M + (m < M - 1 ? 1e-2 * sin((1.0 + 2.3 * (double)k) * (m + 1)) : 0.0); }
static double last_part(double g, int64_t k)
{
  double rest = g;
  for (int m = 0; m < M - 1; m++) rest -= part(g, k, m);
  return rest;
}
static double part_of(double g, int64_t k, int m) { return m < M - 1 ? part(g, k, m) : last_part(g, k); }

/* Of the truth's vectors: its parts, or the run's gradients made of them with weights a. */
static void write_vectors(const char *path, const struct safetensors *truth, const struct safetensors *all, const double *a)
{
  static double values[MADE_ROWS][M * MADE_ELEMENTS];
  struct safetensor list[MADE_ROWS];
  int n = 0;
  for (int i = 0; i < safetensors_count(truth); i++) {
    const struct safetensor *t = safetensors_get(truth, i);
    const int64_t cols = tensor_count(&t->data);
    double g[MADE_ELEMENTS];
    if (t->rank != 1 && all) list[n++] = *safetensors_find(all, t->name);
    if (t->rank != 1) continue;
    CHECK_OK(evidence_elements(&t->data, g));
    for (int64_t k = 0; k < cols; k++) {
      if (a) values[n][k] = 0.0;
      for (int m = 0; m < M; m++)
        if (a) values[n][k] += a[m] * part_of(g[k], k, m);
        else values[n][m * cols + k] = part_of(g[k], k, m);
    }
    list[n] = (struct safetensor){t->name, tensor_at(values[n], DTYPE_F64, a ? 1 : M, cols), a ? 1 : 2};
    n++;
  }
  CHECK_OK(safetensors_write(path, list, n, NULL));
}

static void weights_of_micro_batches_name_the_cause(void)
{
  char path[200], truth_path[200], mine_path[CONFIG_PATH + 64];
  struct safetensors *truth, *mine;
  const double n[M] = {made_tokens(0, 0), made_tokens(0, 1), made_tokens(0, 2), made_tokens(0, 3), made_tokens(0, 4), made_tokens(0, 5)};
  const double first = n[0] + n[1] + n[2], second = n[3] + n[4] + n[5], all = first + second;
  double ranks[M], means[M];
  for (int m = 0; m < M; m++) {
    ranks[m] = all / 2.0 / (m < 3 ? first : second);
    means[m] = all / M / n[m];
  }
  const struct {
    double a[M];
    const char *cause;
  } rows[] = {{{1, 1, 1, 1, 0, 1}, "microbatch-left-out"},
              {{2, 2, 2, 0, 0, 0}, "gradients-never-reduced"},
              {{ranks[0], ranks[1], ranks[2], ranks[3], ranks[4], ranks[5]}, "ln-rank-token-imbalance"},
              {{means[0], means[1], means[2], means[3], means[4], means[5]}, "ln-ga-mean-of-means"}};
  snprintf(truth_path, sizeof truth_path, "%s/truth/gradients.step0.safetensors", against);
  snprintf(path, sizeof path, "%s/truth/parts.safetensors", against);
  if (!CHECK_OK(safetensors_open(truth_path, &truth))) return;
  write_vectors(path, truth, NULL, NULL);
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    make_run();
    CHECK_OK(evidence_tensors(&run.data, "gradients", 0, &mine));
    snprintf(mine_path, sizeof mine_path, "%s/gradients.step0.safetensors", run.dir);
    write_vectors(mine_path, truth, mine, rows[i].a);
    safetensors_close(mine);
    CHECK(check(3) == OUTCOME_FAIL);
    if (!CHECK(strcmp(said.diagnosis.fault, rows[i].cause) == 0)) fprintf(stderr, "'%s', expected '%s'\n", said.diagnosis.fault, rows[i].cause);
    made_free(&run);
  }
  safetensors_close(truth);
  CHECK(unlink(path) == 0);
}

/* --- what cannot be judged --------------------------------------------------------------------------- */

static void refuse(enum err code, const char *part)
{
  write_records(&run.data, run.dir);
  foreign_release(&said);
  CHECK_ERR(foreign_check(run.dir, against, &said), code);
  CHECK_TEXT_HAS(err_text(), part);
  err_clear();
}

static void set_run(const char *key, json_t *value) { made_set(&run, "run", 0, -1, -1, key, value); }

static void settings_that_the_case_cannot_judge_are_refused_with_what_is_valid(void)
{
  make_run();
  set_run("set.precision", json_string("bf16"));
  refuse(ERR_CONFIG, "valid: float32");
  set_run("set.precision", json_string("float23"));
  refuse(ERR_CONFIG, "set.precision");
  set_run("set.precision", json_string("float32"));
  set_run("set.dp", json_integer(5));
  refuse(ERR_CONFIG, "divides the case's batch of 6");
  set_run("set.dp", json_string("two"));
  refuse(ERR_CONFIG, "set.dp");
  set_run("set.dp", json_integer(2));
  set_run("set.steps", json_integer(4));
  refuse(ERR_CONFIG, "valid: 1..3");
  set_run("set.steps", json_integer(3));
  set_run("set.global_batch", json_integer(12));
  refuse(ERR_CONFIG, "valid: the case's 6");
  set_run("set.global_batch", json_integer(6));
  set_run("set.micro_batch", json_integer(4));
  refuse(ERR_CONFIG, "set.micro_batch 4");
  json_object_del(made_at(&run, "run", 0, -1, -1), "set.micro_batch");
  made_drop(&run, "run", 0, -1, -1);
  refuse(ERR_CONFIG, "no record of kind run");
  made_free(&run);
}

static void another_case_and_no_case_are_refused(void)
{
  char none[128];
  struct run_config truth = config;
  make_run();
  write_records(&run.data, run.dir);
  truth.dp = 1;
  truth.precision = PRECISION_F64;
  write_case_json(&truth, 2);
  refuse(ERR_CONFIG, "version 2 is another shardmark's; valid: 1");
  write_case_json(&truth, 1);
  CHECK(check(3) == OUTCOME_PASS);
  foreign_release(&said);
  snprintf(none, sizeof none, "%s/none", root);
  CHECK_ERR(foreign_check(run.dir, none, &said), ERR_CONFIG);
  CHECK_TEXT_HAS(err_text(), "shardmark export");
  CHECK_ERR(foreign_check(none, against, &said), ERR_CONFIG);
  CHECK_TEXT_HAS(err_text(), "none");
  err_clear();
  made_free(&run);
}

static void append(const char *text)
{
  char path[CONFIG_PATH + 32];
  snprintf(path, sizeof path, "%s/records.jsonl", run.dir);
  FILE *f = fopen(path, "a");
  fputs(text, f);
  fclose(f);
}

static void a_cut_last_line_is_dropped_and_garbage_is_named(void)
{
  make_run();
  strip(3);
  write_records(&run.data, run.dir);
  append("{\"schema\": 1, \"kind\": \"st");
  CHECK_OK(foreign_check(run.dir, against, &said));
  CHECK(said.outcome == OUTCOME_PASS);
  foreign_release(&said);
  append("\n");
  CHECK_ERR(foreign_check(run.dir, against, &said), ERR_FORMAT);
  CHECK_TEXT_HAS(err_text(), "records.jsonl:");
  err_clear();
  made_free(&run);
}

static void lines_of_other_programs_are_read_or_said_what_they_lack(void)
{
  static const struct {
    const char *line, *part;
  } lines[] = {{"{\"kind\":\"step\"}\n", "no schema"},
               {"{\"schema\":2,\"kind\":\"step\"}\n", "another schema"},
               {"{\"schema\":1}\n", "no kind"},
               {"[1]\n", "not an object"}};
  for (size_t i = 0; i < sizeof lines / sizeof *lines; i++) {
    make_run();
    strip(3);
    write_records(&run.data, run.dir);
    append(lines[i].line);
    CHECK_ERR(foreign_check(run.dir, against, &said), ERR_FORMAT);
    CHECK_TEXT_HAS(err_text(), lines[i].part);
    err_clear();
    made_free(&run);
  }
  make_run();
  strip(3);
  write_records(&run.data, run.dir);
  append("\n  \n{\"schema\": 1, \"kind\": \"time\", \"rank\": 0, \"step\": 1, \"own.text\": \"a NaN \\\" NaN\", \"own.value\": -Infinity}\n\n");
  CHECK_OK(foreign_check(run.dir, against, &said));
  CHECK(said.outcome == OUTCOME_PASS);
  foreign_release(&said);
  made_free(&run);
  make_run(); /* a loss as Python's json writes it */
  strip(1);
  made_drop(&run, "step", 0, 1, -1);
  write_records(&run.data, run.dir);
  append("{\"schema\": 1, \"kind\": \"step\", \"rank\": 0, \"step\": 1, \"got.loss_sum\": NaN, \"got.valid_tokens\": 35, \"got.loss\": NaN}\n");
  CHECK_OK(foreign_check(run.dir, against, &said));
  CHECK(said.outcome == OUTCOME_FAIL);
  CHECK_TEXT_HAS(verdict_of("finite")->sentence, "is not a finite number at step 1");
  CHECK_TEXT_HAS(said.first, "step 1, finite");
  foreign_release(&said);
  made_free(&run);
}

static void records_out_of_place_are_invalid(void)
{
  static const struct {
    const char *line, *part;
  } lines[] = {
    {"{\"schema\":1,\"kind\":\"step\",\"rank\":7,\"step\":0}", "rank of a step record; valid: a whole number in 0..1"},
    {"{\"schema\":1,\"kind\":\"step\",\"rank\":0,\"step\":\"0\"}", "step of a step record"},
    {"{\"schema\":1,\"kind\":\"step\",\"rank\":0,\"step\":3}", "valid: a whole number in 0..2"},
    {"{\"schema\":1,\"kind\":\"batch\",\"rank\":0,\"step\":0,\"microbatch\":6}", "microbatch of a batch record"},
    {"{\"schema\":1,\"kind\":\"step\",\"rank\":0,\"step\":0,\"got.norm\":1.0}", "told twice; are there two runs"},
    {"{\"schema\":1,\"kind\":\"tensors\",\"rank\":1,\"step\":0,\"got.what\":\"weights\",\"got.file\":\"x\"}", "told twice, by ranks 0 and 1"},
    {"{\"schema\":1,\"kind\":\"done\",\"rank\":0,\"error\":\"\"}", "error of a done record; valid: got.error"},
    {"{\"schema\":1,\"kind\":\"microbatch\",\"rank\":1,\"step\":0,\"microbatch\":0}", "told twice, by ranks 0 and 1"},
    {"{\"schema\":1,\"kind\":\"setp\",\"rank\":0,\"step\":0}", "kind 'setp' of a record is not known; valid: run, done, step"},
    {"{\"schema\":1,\"kind\":\"run\",\"got.ranks\":4}", "got.ranks 4 of the run record; set.dp 2"},
    {"{\"schema\":1,\"kind\":\"done\",\"rank\":0,\"got.error\":3}", "got.error of a done record; valid: text"},
  };
  for (size_t i = 0; i < sizeof lines / sizeof *lines; i++) {
    make_run();
    strip(3);
    write_records(&run.data, run.dir);
    append(lines[i].line);
    append("\n");
    if (CHECK_OK(foreign_check(run.dir, against, &said))) {
      CHECK(said.outcome != OUTCOME_PASS);
      CHECK(outcome_of("records") == OUTCOME_INVALID);
      CHECK_TEXT_HAS(verdict_of("records")->sentence, lines[i].part);
      CHECK_TEXT_HAS(said.sentence, lines[i].part);
    }
    foreign_release(&said);
    made_free(&run);
  }
}

static void holes_in_what_is_shown_never_pass(void)
{
  char command[CONFIG_PATH + 64];
  make_run(); /* a file that is named and not there */
  snprintf(command, sizeof command, "rm '%s/gradients.step1.safetensors'", run.dir);
  CHECK(system(command) == 0);
  CHECK(check(3) == OUTCOME_INVALID);
  CHECK_TEXT_HAS(verdict_of("gradients")->sentence, "step1");
  made_free(&run);
  make_run(); /* gradients of one step */
  for (size_t i = json_array_size(run.records); i > 0; i--) {
    json_t *r = json_array_get(run.records, i - 1);
    if (evidence_is(r, "tensors") && evidence_step(r) == 2 && strcmp(evidence_text(r, "got.what"), "gradients") == 0) json_array_remove(run.records, i - 1);
    if (evidence_is(r, "tensors") && evidence_step(r) == 3 && strcmp(evidence_text(r, "got.what"), "moments1") == 0) json_array_remove(run.records, i - 1);
  }
  CHECK(check(3) == OUTCOME_INVALID);
  made_free(&run);
  make_run(); /* a rank that ended */
  made_drop(&run, "done", 1, -1, -1);
  CHECK(check(2) == OUTCOME_FAIL);
  CHECK_TEXT_HAS(said.sentence, "rank 1 closed its records 0 times");
  made_free(&run);
  make_run(); /* a micro-batch that nobody tells of */
  made_drop(&run, "microbatch", -1, 1, 3);
  CHECK(check(2) == OUTCOME_INVALID);
  made_free(&run);
  make_run(); /* a damaged file */
  snprintf(command, sizeof command, "truncate -s 100 '%s/weights.step1.safetensors'", run.dir);
  CHECK(system(command) == 0);
  CHECK(check(3) == OUTCOME_INVALID);
  made_free(&run);
  make_run();
  made_drop(&run, "step", -1, -1, -1); /* nothing at all */
  strip(1);
  write_records(&run.data, run.dir);
  foreign_release(&said);
  CHECK_OK(foreign_check(run.dir, against, &said));
  CHECK(said.level == 0 && said.outcome != OUTCOME_PASS);
  foreign_release(&said);
  made_free(&run);
}

static void larger_micro_batches_are_judged_by_sums(void)
{
  make_run();
  strip(1);
  set_run("set.micro_batch", json_integer(3));
  for (int64_t step = 0; step < config.steps; step++)
    for (int64_t m = 0; m < 2; m++) {
      double sum = 0.0, tokens = 0.0;
      for (int64_t k = 3 * m; k < 3 * m + 3; k++) sum += made_loss(step, k, 20), tokens += made_tokens(step, k);
      json_t *r = made_record(&run, "microbatch", 0, step, m);
      json_object_set_new(r, "got.loss_sum", json_real(m == 1 && step == 2 ? 1.001 * sum : sum));
      json_object_set_new(r, "got.valid_tokens", json_integer((json_int_t)tokens));
    }
  write_records(&run.data, run.dir);
  CHECK_OK(foreign_check(run.dir, against, &said));
  CHECK(outcome_of("loss") == OUTCOME_FAIL);
  CHECK_TEXT_HAS(verdict_of("loss")->first, "step 2");
  made_set(&run, "microbatch", 0, 2, 1, "got.loss_sum", json_real(made_loss(2, 3, 20) + made_loss(2, 4, 20) + made_loss(2, 5, 20)));
  foreign_release(&said);
  write_records(&run.data, run.dir);
  CHECK_OK(foreign_check(run.dir, against, &said));
  CHECK(said.outcome == OUTCOME_PASS);
  foreign_release(&said);
  made_free(&run);
}

/* --- collectives -------------------------------------------------------------------------------------- */

static void tell_calls(int64_t step, const char *zero, const char *one)
{
  const char *const texts[] = {zero, one};
  for (int rank = 0; rank < 2; rank++)
    json_object_set_new(made_record(&run, "trace", rank, step, -1), "got.calls", json_pack("[s, s]", "allreduce world float32 8", texts[rank]));
}

static void orders_of_collectives_are_compared_within_a_group(void)
{
  static const struct {
    const char *zero, *one;
    enum outcome outcome;
    const char *cause;
  } pairs[] = {{"allreduce dp float32 4", "allreduce dp float32 4", OUTCOME_PASS, ""},
               {"allreduce dp float32 4", "allreduce dp float32 5", OUTCOME_FAIL, "collectives-differ"},
               {"allreduce dp float32 4", "allgather dp float32 4", OUTCOME_FAIL, "collectives-differ"},
               {"send pp float32 4", "recv pp float32 4", OUTCOME_PASS, ""},
               {"allreduce dp0 float32 4", "allreduce dp1 float32 9", OUTCOME_PASS, ""},
               {"allreduce world float32 9", "3 allreduce dp host float32 4 16 3", OUTCOME_FAIL, "collectives-differ"},
               {"3 allreduce dp host float32 4 16 0", "3 allreduce dp host float32 4 16 3", OUTCOME_PASS, ""}};
  for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++) {
    make_run();
    strip(3);
    for (int64_t step = 0; step < config.steps; step++) tell_calls(step, pairs[i].zero, pairs[i].one);
    write_records(&run.data, run.dir);
    CHECK_OK(foreign_check(run.dir, against, &said));
    CHECK(outcome_of("trace") == pairs[i].outcome);
    CHECK(strcmp(said.diagnosis.fault, pairs[i].cause) == 0);
    foreign_release(&said);
    made_free(&run);
  }
}

static void every_cause_has_a_name_of_its_own(void)
{
  enum fault f;
  for (int i = 0; i < judge_causes_count; i++) {
    CHECK(fault_find(judge_causes[i].name, &f) != ERR_OK);
    CHECK(strlen(judge_causes[i].name) < sizeof said.diagnosis.fault && strlen(judge_causes[i].sentence) < sizeof said.diagnosis.sentence);
    for (int k = 0; k < i; k++) CHECK(strcmp(judge_causes[i].name, judge_causes[k].name) != 0);
  }
  err_clear();
}

int main(void)
{
  static const struct test tests[] = {
    TEST(a_case_is_made),
    TEST(a_right_run_passes_at_the_level_of_what_it_shows),
    TEST(a_twist_is_red_where_it_can_be_seen_and_named),
    TEST(moments_below_the_smallest_normal_number_are_zero),
    TEST(narrow_dumps_and_gaps_are_no_evidence_of_updates),
    TEST(a_narrow_file_is_its_own_cause),
    TEST(samples_read_twice_or_never_are_said),
    TEST(counted_padding_and_a_short_run_are_named),
    TEST(ends_alone_are_no_level_and_no_garbage),
    TEST(weights_of_micro_batches_name_the_cause),
    TEST(settings_that_the_case_cannot_judge_are_refused_with_what_is_valid),
    TEST(another_case_and_no_case_are_refused),
    TEST(a_cut_last_line_is_dropped_and_garbage_is_named),
    TEST(lines_of_other_programs_are_read_or_said_what_they_lack),
    TEST(records_out_of_place_are_invalid),
    TEST(holes_in_what_is_shown_never_pass),
    TEST(larger_micro_batches_are_judged_by_sums),
    TEST(orders_of_collectives_are_compared_within_a_group),
    TEST(every_cause_has_a_name_of_its_own),
  };
  char command[128];
  const int status = test_main("foreign", tests, sizeof tests / sizeof *tests);
  snprintf(command, sizeof command, "rm -rf '%s'", root);
  return system(command) == 0 ? status : 1;
}
