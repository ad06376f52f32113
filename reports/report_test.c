/* report_test.c - a report from hand-made records says what they say, in every form. */
#include "testing/check.h"

#include "reports/report.h"
#include "reports/table.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static const char summary[] =
  "{\"schema\":1,\"verdict\":\"FAIL\",\"cases\":["
  "{\"name\":\"good\",\"verdict\":\"PASS\",\"reason\":\"\",\"sentence\":\"all checks hold\"},"
  "{\"name\":\"bad\",\"verdict\":\"FAIL\",\"reason\":\"gradients\",\"sentence\":\"wte is off by 2 <times> & more\"},"
  "{\"name\":\"unfit\",\"verdict\":\"INVALID\",\"reason\":\"ends\",\"sentence\":\"rank 1 was killed\"},"
  "{\"name\":\"noisy\",\"verdict\":\"INCONCLUSIVE\",\"reason\":\"spread\",\"sentence\":\"interval too wide\"},"
  "{\"name\":\"later\",\"verdict\":\"SKIPPED\",\"reason\":\"\",\"sentence\":\"not on this machine\"}]}";

#define R(kind, of, rest) "{\"schema\":1,\"kind\":\"" kind "\",\"case\":\"" of "\"," rest "}\n"
#define JUDGED(of, outcome, reason, sentence)                                                                              \
  R("judged", of, "\"got.suite\":\"conformance\",\"got.suite_kind\":\"conformance\",\"got.outcome\":\"" outcome             \
    "\",\"got.reason\":\"" reason "\",\"got.sentence\":\"" sentence "\",\"got.run\":\"" of "\",\"got.layout\":\"dp2\",\"got.companions\":[\"truth=t\",\"noise0=s\"]")
#define STEP(of, step, loss) R("step", of, "\"rank\":0,\"step\":" #step ",\"got.loss\":" #loss)
#define TIME(of, rank, forward)                                                                                            \
  R("time", of, "\"rank\":" #rank ",\"step\":1,\"got.step_ms\":20,\"got.data_ms\":1,\"got.forward_ms\":" #forward          \
    ",\"got.backward_ms\":6,\"got.optimizer_ms\":1,\"got.other_ms\":0,\"got.exposed_ms\":2")
#define LAYOUT(of, ranks, rate)                                                                                             \
  R("point", of, "\"got.suite\":\"scaling\",\"got.curve\":\"" of "\",\"got.scale\":\"layout\",\"got.layout\":\"" of "\",\"got.ranks\":" #ranks  \
    ",\"got.base_ranks\":1,\"got.tokens_per_s\":" #rate ",\"got.efficiency\":0.5")
#define LINE(stage)                                                                                                         \
  R("timeline", "pipe", "\"step\":2,\"got.stage\":" #stage ",\"got.passes\":[\"F 0 0\",\"send-output 0 0\",\"B 0 0\"],\"got.start_ms\":[0,10,40],"         \
    "\"got.end_ms\":[10,11,60],\"got.simulated_start_ms\":[0,10,39],\"got.simulated_end_ms\":[10,10,59]")
#define POINT(n, rate, e)                                                                                                  \
  R("point", "p", "\"got.suite\":\"scaling\",\"got.curve\":\"bench\",\"got.scale\":\"weak\",\"got.ranks\":" #n              \
    ",\"got.base_ranks\":1,\"got.threads\":1,\"got.tokens_per_s\":" #rate ",\"got.efficiency\":" #e                       \
    ",\"got.efficiency_low\":0.9,\"got.efficiency_high\":1.1,\"got.copies\":0.97,\"got.withheld\":\"\",\"got.evidence\":\"good\"")

/* Of one rank: `start` and `end` of its wait for data, its step's end, forward, backward and a reduction. */
#define SPANS(rank, step, start, end)                                                                                       \
  R("span", "good", "\"rank\":" #rank ",\"step\":" #step ",\"got.streams\":[\"host\",\"compute\",\"transfer\"],"             \
    "\"got.phases\":[\"data\",\"forward\",\"backward\",\"other\"],\"got.kernels\":[\"k\"],\"got.kernel\":[0,0,0,0,0],"       \
    "\"got.stream\":[0,0,1,1,2],\"got.phase\":[0,3,1,2,2],\"got.call\":[-1,-1,-1,-1,0],\"got.start_ms\":[" start "],\"got.end_ms\":[" end "]")
static const char records[] =
  R("run", "good", "\"rank\":0,\"set.dp\":2,\"set.steps\":2,\"set.precision\":\"float32\",\"env.mpi\":\"Open MPI\"")
  JUDGED("good", "PASS", "", "all checks hold") JUDGED("bad", "FAIL", "gradients", "wte is off by 2 <times> & more")
  JUDGED("unfit", "INVALID", "ends", "rank 1 was killed") JUDGED("noisy", "INCONCLUSIVE", "spread", "interval too wide")
  JUDGED("later", "SKIPPED", "", "not on this machine")
  R("case", "bad", "\"got.seconds\":0.00001")
  R("verdict", "bad", "\"got.check\":\"gradients\",\"got.observable\":\"O4\",\"got.outcome\":\"FAIL\",\"got.cause\":\"divided twice\",\"got.value\":1.0,\"got.bound\":\"nan\"")
  R("bound", "good", "\"got.check\":\"gradients\",\"got.what\":\"transformer.wte.weight\",\"got.value\":1e-6,\"got.bound\":4e-6")
  R("bound", "good", "\"step\":0,\"got.check\":\"loss\",\"got.what\":\"loss\",\"got.value\":1e-7,\"got.bound\":1e-6")
  STEP("good", 0, 4.9) STEP("good", 1, 4.8) STEP("t", 0, 4.9000001) STEP("t", 1, 4.8) STEP("s", 0, 4.9) STEP("s", 1, 4.8000001)
  TIME("p-r1", 0, 10) TIME("p-r2", 1, 12) TIME("p-rough", 1, 99) TIME("good", 1, 50) POINT(1, 1000, 1.0) POINT(2, 1900, 0.95)
  R("memory_point", "mem-dp2", "\"got.ranks\":2,\"got.peak_bytes\":1100,\"got.predicted_bytes\":1000,\"got.parameters_bytes\":500,\"got.predicted_parameters_bytes\":480")
  R("fault", "f", "\"got.fault\":\"clip-max-for-min\",\"got.observable\":\"O6\",\"got.caught\":true,\"got.seen_by\":[\"O6\"],\"got.cause\":\"c\",\"got.diagnosed\":\"clip-max-for-min\",\"got.twin\":\"PASS\"")
  R("faults", "f", "\"got.planted\":1,\"got.caught\":1,\"got.clean_runs\":9,\"got.false_alarms\":0,\"got.false_alarm_bound\":0.283")
  LAYOUT("tp2", 2, 500) LAYOUT("dp2", 2, 1000) LAYOUT("tp4", 4, null)
  R("bubble", "pipe", "\"got.layout\":\"pp2 gpipe\",\"got.schedule\":\"gpipe\",\"got.compute\":\"sleep\",\"got.stages\":2,\"got.chunks\":1,\"got.microbatches\":1,"
    "\"got.window_ms\":60,\"got.bubble_ms\":30,\"got.of_ideal\":1.0,\"got.of_total\":0.5,\"got.simulated_window_ms\":59,\"got.simulated_bubble_ms\":29,"
    "\"got.stage_idle_ms\":[30,30],\"got.stage_schedule_ms\":[20,20],\"got.stage_imbalance_ms\":[9,9],\"got.stage_transfer_ms\":[1,1]")
  LINE(0) LINE(1)
  R("hidden", "seen", "\"got.layout\":\"dp2\",\"got.hosts\":2,\"got.bucket\":512,\"got.transfers\":3,\"got.agrees\":true,\"got.alone_ms\":80,\"got.exposed_ms\":20,"
    "\"got.traced_ms\":19,\"got.coverable_ms\":60,\"got.hidden\":0.75,\"got.hidden_repeats\":[0.7,0.75,0.78],\"got.compute_slowdown\":1.21,"
    "\"got.bare_hidden\":0.8,\"got.bare_hidden_repeats\":[0.79,0.8,0.81],\"got.evidence\":\"good\"")
  R("hidden", "doubted", "\"got.agrees\":false,\"got.alone_ms\":80,\"got.exposed_ms\":1,\"got.hidden\":0.99,\"got.compute_slowdown\":1")
  SPANS(0, 0, "0,400,1,11,21", "1,400,11,21,23") SPANS(0, 1, "410,433,411,421,431", "411,433,421,431,433")
  SPANS(1, 1, "410,455,412,422,452", "412,455,422,452,455") SPANS(0, 2, "460,483,461,471,481", "461,483,471,481,483")
  "{\"schema\":1,\"kind\":\"ste"; /* a kill cut this one short */

static char dir[64];

static void put(const char *name, const char *text)
{
  char path[128];
  snprintf(path, sizeof path, "%s/%s", dir, name);
  FILE *out = fopen(path, "w");
  if (!CHECK(out != NULL)) return;
  fputs(text, out);
  CHECK(fclose(out) == 0);
}

static char *get(const char *name)
{
  char path[128];
  snprintf(path, sizeof path, "%s/%s", dir, name);
  FILE *in = fopen(path, "r");
  char *text = calloc(1, 1 << 20);
  if (CHECK(in != NULL && text != NULL)) {
    const size_t n = fread(text, 1, (1 << 20) - 1, in);
    text[n] = '\0';
    fclose(in);
  }
  return text;
}

static bool has(const char *name, const char *part)
{
  char *text = get(name);
  const bool found = strstr(text, part) != NULL;
  free(text);
  return found;
}

static void fresh(void)
{
  snprintf(dir, sizeof dir, "/tmp/shardmark-report-XXXXXX");
  CHECK(mkdtemp(dir) != NULL);
}

static void remove_all(void)
{
  char command[128];
  snprintf(command, sizeof command, "rm -rf %s", dir);
  CHECK(system(command) == 0);
}

/* On the build of the CUDA device for the host, first of all. */
static void a_host_build_is_called_no_gpu(void)
{
  fresh();
  put("summary.json", summary);
  put("records.jsonl", R("run", "good", "\"rank\":0,\"env.gpu\":\"NVIDIA H200, driver 580\""));
  CHECK_OK(report_write(dir));
  CHECK(!has("report.html", "not a GPU") && !has("report.md", "not a GPU"));
  put("records.jsonl", R("run", "good", "\"rank\":0,\"env.gpu\":\"NVIDIA H200, driver 580\"")
                         R("run", "bad", "\"rank\":0,\"env.gpu\":\"host build (not a GPU), driver unknown\""));
  CHECK_OK(report_write(dir));
  CHECK(has("report.html", "which is not a GPU") && has("report.md", "which is not a GPU"));
  remove_all();
}

static void every_form_says_what_the_records_say(void)
{
  fresh();
  put("summary.json", summary);
  put("records.jsonl", records);
  CHECK_OK(report_write(dir));
  CHECK(has("report.html", "<div class=\"verdict FAIL\"><b>FAIL</b>"));
  CHECK(has("report.html", "wte is off by 2 &lt;times&gt; &amp; more"));
  CHECK(has("report.html", "Likely cause: divided twice"));
  CHECK(has("report.html", "cut short"));
  CHECK(!has("report.html", "<times>"));
  CHECK(has("report.md", "1 passed, 1 failed, 1 invalid, 1 inconclusive, 1 skipped, 0 not run"));
  CHECK(has("report.md", "rank 1 is busy 20 ms a step, 11 % longer"));
  CHECK(has("report.md", "2 ranks keep 95 % of the rate a rank has at N0 = 1; copies without communication keep 97 %"));
  CHECK(has("report.md", "Compute hides up to 75 % of the transfers over replicas (seen), and takes 1.21 times as long meanwhile"));
  CHECK(has("report.md", "Where it hides most (seen) the trainer hides 75 %, the bare program 80 %"));
  CHECK(has("report.md", "| doubted |") && has("report.md", "| no |"));
  CHECK(has("report.md", "within 10.0 % of the closed formula (farthest: mem-dp2)"));
  CHECK(has("report.md", "caught 1 of 1, 0 false alarms in 9 clean runs"));
  CHECK(has("report.md", "good: the sharded loss stays within the bound; nearest at step 0, 10.0 times below it"));
  CHECK(has("report.md", "nearest is transformer.wte.weight at 25 % of it"));
  CHECK(has("results.csv", "point,scaling,p,,,,bench,weak,,2,1,1,,,1900,"));
  CHECK(has("report.md", "1 layout in 5 cases, 1 of them passed"));
  CHECK(has("report.md", "| dp2 | 2 | 5 | 1 | 4 | float32 |"));
  CHECK(has("report.md", "Of 2 layouts of 2 ranks with the same global batch dp2 is fastest, 1000 tokens/s (E = 0.50); tp2 keeps 50 % of that"));
  CHECK(has("report.md", "Measured bubbles are within 3.4 % of their lists (farthest: pipe); most of the idle time is the schedule itself"));
  CHECK(has("report.md", "pipe (pp2 gpipe): stages idle 50.0 % of the time, 49.2 % by their list"));
  CHECK(has("report.md", "| pipe | 1 | 30.00 | 20.00 | 9.00 | 1.00 |"));
  CHECK(has("report.md", "good: the longest step, 1, took 45.0 ms, the median 34.0 ms"));
  CHECK(has("report.html", "rank 1 transfer") && has("report.html", "collectives and messages"));
  CHECK(has("results.csv", "case,conformance,bad,FAIL,gradients,wte is off by 2 <times> & more"));
  CHECK(has("junit.xml", "tests=\"5\" failures=\"1\" errors=\"1\" skipped=\"2\""));
  CHECK(has("junit.xml", "<failure message=\"wte is off by 2 &lt;times&gt; &amp; more\" type=\"gradients\"/>"));
  CHECK(has("junit.xml", "<error message=\"rank 1 was killed\" type=\"ends\"/>"));
  CHECK(has("junit.xml", "time=\"0.000\""));
  remove_all();
}

#define STAGE(name, dp, zero, peak) \
  R("memory_point", name, "\"got.precision\":\"float32\",\"got.tp\":1,\"got.pp\":1,\"got.dp\":" #dp ",\"got.zero\":" #zero \
    ",\"got.peak_bytes\":" #peak ",\"got.predicted_bytes\":1000,\"got.published_states_bytes\":2147483648")

/* Stages beside the plain run of their layout, by layout; the others apart, so many that they take two figures. */
static void memory_is_shown_by_stage_and_layout(void)
{
  char many[8192] = "";
  fresh();
  put("summary.json", summary);
  snprintf(many, sizeof many, "%s", STAGE("two-z3", 2, 3, 1100) STAGE("four-z2", 4, 2, 500) STAGE("four-z1", 4, 1, 900) STAGE("four-plain", 4, 0, 1000)
           STAGE("alone", 1, 0, 1020) STAGE("eight-plain", 8, 0, 990));
  for (int i = 0; i < 18; i++) strcat(many, STAGE("another", 3, 0, 1000));
  put("records.jsonl", many);
  CHECK_OK(report_write(dir));
  CHECK(has("report.md", "At dp 4: 90 % (ZeRO-1), 50 % (ZeRO-2) of plain memory a rank; within 50.0 % of the formula (farthest: four-z2)"));
  CHECK(has("report.md", "within 10.0 % of the closed formula (farthest: two-z3)"));
  CHECK(has("report.md", "within 0.0 % of the closed formula (farthest: another)"));
  CHECK(has("report.md", "| four-z2 |") && has("report.md", "2.0000")); /* ZeRO's own figure, GiB */
  remove_all();
}

#define UNEVEN(policy, lost, more) \
  R("imbalance", "uneven", "\"got.ranks\":2,\"got.policy\":\"" policy "\",\"got.repeats\":5,\"got.lost\":" #lost ",\"got.lost_repeats\":[" #lost ",0.25,0.3]," \
    "\"got.padding\":0.3,\"got.tokens_per_s\":700,\"got.computed_per_s\":1000,\"got.worst_rank\":1,\"got.worst_phase\":\"backward\"" more)
#define BUSY(policy, rank, ms) \
  R("busy", "uneven", "\"got.policy\":\"" policy "\",\"got.of_rank\":" #rank ",\"got.busy_ms\":[" ms "],\"got.forward_ms\":10,\"got.backward_ms\":20," \
    "\"got.optimizer_ms\":1,\"got.other_ms\":1,\"got.exposed_ms\":8,\"got.step_ms\":40")
static void uneven_ranks_are_shown_by_policy(void)
{
  static const char uneven[] =
    UNEVEN("padded", 0.2, ",\"got.predicted_lost\":0.19,\"got.cost_a\":0.5,\"got.cost_b\":0.1,\"got.cost_c\":0.001") UNEVEN("balanced", 0.01, "") UNEVEN("packed", 0.02, "")
    UNEVEN("fixed", 0.005, "") BUSY("padded", 0, "30,50,20") BUSY("padded", 1, "50,30,40")
    R("lengths", "uneven", "\"got.from\":[1,33,65],\"got.sequences\":[5,3,2],\"got.batch_least\":[10,40],\"got.batch_most\":[20,90]")
    R("imbalance", "heavy", "\"got.ranks\":4,\"got.policy\":\"padded\",\"got.repeats\":1,\"got.lost\":0.1,\"got.worst_rank\":3");
  fresh();
  put("summary.json", summary);
  put("records.jsonl", uneven);
  CHECK_OK(report_write(dir));
  CHECK(has("report.md", "uneven: padded in order loses 20.0 % of the step to waiting, balanced 1.0 %, packed 2.0 %"));
  CHECK(has("report.md", "uneven: fixed trains 1.00 times as many tokens a second as fixed, of which 30 % is padding"));
  CHECK(has("report.md", "uneven: the longest is rank 0 under padded, busy 50 ms in measured step 1"));
  CHECK(has("report.md", "uneven: rank 0 under padded waits longest, 20 % of its step"));
  CHECK(has("report.md", "uneven: a bucketed batch spans 32 % of the lengths on the mean"));
  CHECK(has("report.md", "| uneven | 0.5 | 0.1 | 0.001 |") && has("report.md", "| heavy | padded |"));
  remove_all();
}

/* A row of a suite of kind frameworks, and its losses: the second is off by this, and by its bound of 5e-7 or not. */
#define FRAMEWORK(of, layout, rest)                                                                                          \
  R("framework", of, "\"got.adapter\":\"ddp\",\"got.environment\":\"torch\",\"got.framework\":\"PyTorch <DDP>\",\"got.versions\":\"torch 9\","     \
    "\"got.layout\":\"" layout "\",\"got.precision\":\"float32\"," rest)
#define CURVE(off, loss)                                                                                                     \
  "\"got.loss\":[5.0," loss "],\"got.loss_truth\":[5.0,4.0],\"got.loss_off\":[0," off "],\"got.loss_serial\":[1e-8,2e-8],\"got.loss_bound\":[5e-7,5e-7]"
static void frameworks_are_shown_beside_the_truth(void)
{
  static const char rows[] =
    FRAMEWORK("ddp-dp2", "dp2", "\"got.level\":3,\"got.outcome\":\"PASS\",\"got.expected\":\"\"," CURVE("1e-8", "4.0000004"))
    FRAMEWORK("ddp-dp4", "dp4", "\"got.level\":1,\"got.outcome\":\"PASS\",\"got.expected\":\"\",\"got.why\":\"not judged: no gradients\"," CURVE("4e-7", "4.0000001"))
    FRAMEWORK("ddp-away", "tp2", "\"got.outcome\":\"SKIPPED\",\"got.expected\":\"\",\"got.why\":\"not run: needs a GPU\"")
    FRAMEWORK("ddp-mean", "dp2", "\"got.level\":3,\"got.outcome\":\"FAIL\",\"got.planted\":\"local-mean\",\"got.expected\":\"ln-rank-token-imbalance\",\"got.diagnosed\":\"\",\"got.caught\":true,\"got.named\":false");
  fresh();
  put("summary.json", summary);
  put("records.jsonl", rows);
  CHECK_OK(report_write(dir));
  CHECK(has("report.md", "2 of 2 clean rows held; of 1 planted faults 1 were caught and 0 named by their cause; rows not run: 1."));
  CHECK(has("report.md", "float32: every loss stays within the bound; nearest: PyTorch <DDP> dp4 at step 1, 1.2 times below it"));
  CHECK(has("report.md", "float32: the truth's loss goes from 5.000 to 4.000 nats in 2 steps"));
  CHECK(has("report.md", "| PyTorch <DDP> | dp4 | float32 | 1 | PASS | not judged: no gradients |")); /* nothing was worst, first, diagnosed or noted */
  CHECK(has("report.md", "| tp2 | float32 | - | not run | not run: needs a GPU |"));
  CHECK(has("report.md", "| local-mean | caught | ln-rank-token-imbalance | unknown |"));
  CHECK(has("report.md", "- torch: torch 9") && has("report.html", "PyTorch &lt;DDP&gt;") && !has("report.html", "<DDP>"));
  put("records.jsonl", FRAMEWORK("ddp-off", "dp2", "\"got.level\":1,\"got.outcome\":\"FAIL\",\"got.expected\":\"\"," CURVE("1e-6", "4.000004")));
  CHECK_OK(report_write(dir));
  CHECK(has("report.md", "0 of 1 clean rows held; of 0 planted"));
  CHECK(has("report.md", "float32: PyTorch <DDP> dp2 leaves the bound; worst at step 1, 2.0 times above it"));
  remove_all();
}

static void the_same_records_give_the_same_page(void)
{
  fresh();
  put("summary.json", summary);
  put("records.jsonl", records);
  CHECK_OK(report_write(dir));
  char *first = get("report.html");
  CHECK_OK(report_write(dir));
  char *second = get("report.html");
  CHECK(strcmp(first, second) == 0);
  free(first);
  free(second);
  remove_all();
}

static void a_run_stopped_before_its_first_record_still_has_a_report(void)
{
  fresh();
  put("summary.json", "{\"schema\":1,\"verdict\":\"INVALID\",\"cases\":[]}");
  CHECK_OK(report_write(dir));
  CHECK(has("report.html", "INVALID"));
  remove_all();
}

static void what_is_no_results_directory_is_named(void)
{
  fresh();
  CHECK_ERR(report_write(dir), ERR_CONFIG);
  CHECK_TEXT_HAS(err_text(), "summary.json");
  put("summary.json", "{\"verdict\": ");
  CHECK_ERR(report_write(dir), ERR_FORMAT);
  static const char *const others[] = {"[1, 2]", "{}", "{\"schema\":1,\"cases\":{}}", "{\"schema\":\"1\",\"cases\":[]}"};
  for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
    put("summary.json", others[i]);
    CHECK_ERR(report_write(dir), ERR_FORMAT);
    CHECK_TEXT_HAS(err_text(), "not a summary");
  }
  put("summary.json", "{\"schema\":99,\"verdict\":\"PASS\",\"cases\":[]}");
  CHECK_ERR(report_write(dir), ERR_FORMAT);
  CHECK_TEXT_HAS(err_text(), "schema 99 is another version's; valid: 1");
  put("summary.json", summary);
  put("records.jsonl", "not json\n{}\n");
  CHECK_ERR(report_write(dir), ERR_FORMAT);
  CHECK_TEXT_HAS(err_text(), "records.jsonl:1");
  CHECK(access(dir, F_OK) == 0);
  remove_all();
}

/* A trainer that is not ours, or a damaged file, may have anything in a record. */
static void a_value_of_another_type_ends_no_report(void)
{
  static const char *const junk[] = {"null", "[null, \"F\", \"F -1 -1\", 9]", "\"\"", "-1", "1e308", "[]", "{}", "true"};
  const int kinds = sizeof junk / sizeof *junk;
  int turn = 0;
  char *path = strdup(getenv("PATH"));
  fresh();
  put("summary.json", summary);
  CHECK(setenv("PATH", "/nowhere", 1) == 0); /* hundreds of reports: none needs gnuplot */
  char *line[64], *text = strdup(records);
  int lines = 0;
  for (char *rest = text, *at; text && (at = strsep(&rest, "\n")) != NULL && rest != NULL && lines < 64;) line[lines++] = at;
  for (int i = 0; i < lines; i++) {
    json_t *one = json_loads(line[i], 0, NULL), *whole = json_deep_copy(one), *value;
    const char *key;
    void *next;
    json_object_foreach_safe(whole, next, key, value)
    {
      if (strncmp(key, "got.", 4) != 0) continue;
      for (int k = 0; k < 2; k++) { /* nothing at all, and one of the others in turn */
        const int which = k == 0 ? 0 : 1 + turn++ % (kinds - 1);
        char *all = calloc(1, sizeof records + 4096), *changed;
        json_object_set_new(one, key, json_loads(junk[which], JSON_DECODE_ANY, NULL));
        changed = json_dumps(one, 0);
        for (int other = 0; all && other < lines; other++) {
          strcat(all, other == i ? changed : line[other]);
          strcat(all, "\n");
        }
        put("records.jsonl", all ? all : "");
        CHECK_OK(report_write(dir));
        free(changed);
        free(all);
      }
      json_object_set(one, key, value);
    }
    json_decref(one);
    json_decref(whole);
  }
  CHECK(lines > 20);
  CHECK(setenv("PATH", path, 1) == 0);
  free(path);
  free(text);
  remove_all();
}

/* Chunks beyond those that have a series each; stages more than a small figure has. */
static void many_chunks_and_stages_are_drawn(void)
{
  fresh();
  put("summary.json", summary);
  put("records.jsonl",
      R("bubble", "pipe", "\"got.layout\":\"pp8\",\"got.schedule\":\"interleaved\",\"got.compute\":\"sleep\",\"got.stages\":8,\"got.chunks\":20,"
        "\"got.window_ms\":60,\"got.bubble_ms\":30,\"got.simulated_window_ms\":59,\"got.simulated_bubble_ms\":29,\"got.stage_idle_ms\":[30]")
      R("timeline", "pipe", "\"step\":2,\"got.stage\":0,\"got.passes\":[\"F 0 0\",\"F 0 19\"],\"got.start_ms\":[0,10],\"got.end_ms\":[10,20],"
        "\"got.simulated_start_ms\":[0,10],\"got.simulated_end_ms\":[10,20]"));
  CHECK_OK(report_write(dir));
  CHECK(has("report.html", "forward, even chunks") && has("report.html", "forward, odd chunks"));
  remove_all();
}

static void a_bar_or_a_quote_stays_in_its_cell(void)
{
  static const struct column columns[] = {{"a", "a", "ms", NULL}, {"b", "b", "", "%.2f"}};
  json_t *rows = json_pack("[{s:s, s:f}]", "a", "x|y, \"z\"", "b", 1.25);
  const struct table t = {"t", columns, 2, rows};
  char *text;
  size_t bytes;
  FILE *out = open_memstream(&text, &bytes);
  table_markdown(&t, out);
  table_csv(&t, out);
  fclose(out);
  CHECK_TEXT_HAS(text, "| x\\|y, \"z\" | 1.25 |");
  CHECK_TEXT_HAS(text, "\"x|y, \"\"z\"\"\",1.25\r\n");
  free(text);
  json_decref(rows);
}

int main(void)
{
  static const struct test tests[] = {
    TEST(every_form_says_what_the_records_say),
    TEST(a_host_build_is_called_no_gpu),
    TEST(memory_is_shown_by_stage_and_layout),
    TEST(uneven_ranks_are_shown_by_policy),
    TEST(frameworks_are_shown_beside_the_truth),
    TEST(the_same_records_give_the_same_page),
    TEST(a_run_stopped_before_its_first_record_still_has_a_report),
    TEST(what_is_no_results_directory_is_named),
    TEST(a_value_of_another_type_ends_no_report),
    TEST(many_chunks_and_stages_are_drawn),
    TEST(a_bar_or_a_quote_stays_in_its_cell),
  };
  return test_main("report", tests, sizeof tests / sizeof *tests);
}
