/* suite_test.c - what a suite file may say, and where its mistakes are. */
#include "harness/suite.h"
#include "testing/check.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static char path[64];
static enum suite_form form = SUITE_FULL;

static enum err read_text(const char *text, struct suite **out)
{
  FILE *f = fopen(path, "w");
  if (f == NULL || fputs(text, f) == EOF || fclose(f) != 0) abort();
  return suite_read(path, form, out);
}

/* Reads what must be refused; true if the message has both parts. */
static void refused(const char *text, const char *place, const char *part)
{
  struct suite *s = NULL;
  CHECK_ERR(read_text(text, &s), ERR_CONFIG);
  CHECK_TEXT_HAS(err_text(), place);
  CHECK_TEXT_HAS(err_text(), part);
  CHECK(s == NULL);
}

#define HEAD "question: does it?\nkind: conformance\n"

static void levels_override_in_order(void)
{
  struct suite *s;
  if (!CHECK_OK(read_text(HEAD "every_case: {steps: 3, dp: 2, seconds: 7.5}\n"
                               "cases:\n  a: {}\n  b: {steps: 5, quick: true, priority: 1, checks: [ends, loss]}\n",
                          &s)))
    return;
  CHECK(s->n == 2 && s->kind == KIND_CONFORMANCE);
  const struct suite_case *a = suite_find(s, "a"), *b = suite_find(s, "b");
  CHECK(a && a->config.steps == 3 && a->config.dp == 2 && !a->quick && a->priority == 5);
  CHECK(b && b->config.steps == 5 && b->config.dp == 2 && b->quick && b->priority == 1 && b->n_checks == 2);
  CHECK_NEAR(b ? b->seconds : 0, 7.5, 0);
  CHECK(b && strcmp(b->checks[1]->name, "loss") == 0);
  CHECK(suite_find(s, "c") == NULL);
  suite_free(s);
}

static void sweep_is_the_product_with_zip_walked_along(void)
{
  struct suite *s;
  if (!CHECK_OK(read_text(
          HEAD "sweeps:\n  - name: dp{dp}-b{bucket}-{precision}\n    vary: {dp: [1, 2, 3], bucket: [0, 500]}\n"
               "    zip: {precision: [float64, float32], seed: [7, 8]}\n    except: [{dp: 1, bucket: 500}]\n"
               "    set: {quick: true}\n",
          &s)))
    return;
  CHECK(s->n == 3 * 2 * 2 - 2);
  CHECK(suite_find(s, "dp1-b500-float64") == NULL);
  const struct suite_case *c = suite_find(s, "dp3-b500-float32");
  CHECK(c && c->config.dp == 3 && c->config.bucket == 500 && c->config.precision == PRECISION_F32 && c->config.seed == 8 &&
        c->quick);
  suite_free(s);
}

/* Two values of different keys that meet in a case, given that they can. */
static bool meet(const struct suite *s, int64_t dp, int64_t bucket, int64_t seed)
{
  for (int i = 0; i < s->n; i++) {
    const struct run_config *c = &s->cases[i].config;
    if ((dp < 0 || c->dp == dp) && (bucket < 0 || c->bucket == bucket) && (seed < 0 || c->seed == seed)) return true;
  }
  return false;
}

static void pairs_meet_in_few_cases(void)
{
  struct suite *s;
  if (!CHECK_OK(read_text(HEAD "sweeps:\n  - name: dp{dp}-{row}\n    vary: {dp: [1, 2, 3]}\n    pairs: {bucket: [0, "
                               "500, 501], seed: [7, 8, 9], tied: [true, false]}\n"
                               "    except: [{dp: 3, bucket: 500}, {bucket: 501, seed: 9}]\n",
                          &s)))
    return;
  for (int64_t a = 0; a < 3; a++)
    for (int64_t b = 0; b < 3; b++) {
      static const int64_t buckets[] = {0, 500, 501};
      CHECK(meet(s, a + 1, buckets[b], -1) == !(a == 2 && b == 1));
      CHECK(meet(s, a + 1, -1, 7 + b));
      CHECK(meet(s, -1, buckets[a], 7 + b) == !(a == 2 && b == 2));
    }
  CHECK(s->n <= 13); /* of 42 */
  CHECK(suite_find(s, "dp2-1") && suite_find(s, "dp2-2") && suite_find(s, "dp2-3"));
  suite_free(s);
}

static void layouts_that_the_options_refuse_are_left_out_if_asked(void)
{
  struct suite *s;
  if (!CHECK_OK(read_text(HEAD "sweeps:\n  - name: dp{dp}-b{micro_batch}-{row}\n    vary: {dp: [1, 2, 4, 5, 12], "
                               "micro_batch: [1, 2]}\n    pairs: {heads: [0, 7]}\n    legal: 5\n    most_ranks: 4\n",
                          &s)))
    return;
  CHECK(s->n == 5); /* dp 4 of 12 sequences in twos: refused; dp 5: too; 7 heads: in no case; 12 ranks: too many */
  for (int i = 0; i < s->n; i++) CHECK(s->cases[i].config.heads == 0 && s->cases[i].config.dp <= 4);
  suite_free(s);
}

static void mistakes_are_named_with_their_place(void)
{
  refused(HEAD "cases:\n  a: {stepss: 3}\n", ":4:7: ", "nearest: steps");
  refused(HEAD "cases:\n  a: {steps: 3x}\n", ":4:", "3x");
  refused(HEAD "cases:\n  a: {checks: [losss]}\n", ":4:16: ", "nearest: loss");
  refused(HEAD "cases:\n  a: {checks: [loss, loss]}\n", ":4:", "twice");
  refused(HEAD "cases:\n  a: {name: x}\n", ":4:7: ", "harness");
  refused(HEAD "cases:\n  ../a: {}\n", ":4:3: ", "folder");
  refused(HEAD "cases:\n  a: {steps: [1]}\n", ":4:", "a list, expected a single value");
  refused(HEAD "cases: {}\n", ":1:", "no case");
  refused(HEAD "casse:\n  a: {}\n", ":3:1: ", "nearest: cases");
  refused("question: x\nkind: conform\ncases:\n  a: {}\n", ":2:7: ", "nearest: conformance");
  refused("kind: conformance\ncases:\n  a: {}\n", ":1:", "question");
  refused(HEAD "cases:\n  a: {scale: strong}\n", ":4:3", "scale");
  refused("question: x\nkind: scaling\ncases:\n  a: {scale: strong}\n", ":1:", "evidence");
  refused("question: x\nkind: pipeline\ncases:\n  a: {pp: 2}\n", ":1:", "evidence");
}

static void mistakes_of_sweeps_are_named(void)
{
  refused(HEAD "sweeps:\n  - name: x\n    vary: {dp: [1, 2]}\n", ":4:", "stands already at");
  refused(HEAD "sweeps:\n  - name: x{tp}\n    vary: {dp: [1, 2]}\n", ":4:", "not in vary, zip or pairs");
  refused(HEAD "sweeps:\n  - name: x{dp\n    vary: {dp: [1, 2]}\n", ":4:", "without '}'");
  refused(HEAD "sweeps:\n  - name: x{dp}\n    zip: {dp: [1, 2], seed: [1]}\n", ":5:", "equal lengths");
  refused(HEAD "sweeps:\n  - name: x{dp}\n    vary: {dp: []}\n", ":5:", "empty list");
  refused(HEAD "sweeps:\n  - name: x{dp}\n    vary: {dp: [1]}\n    except: [{tp: 1}]\n", ":6:", "neither");
  refused(HEAD "sweeps:\n  - vary: {dp: [1]}\n", ":4:", "needs a name");
  refused(HEAD "sweeps:\n  - name: x{dp}\n    vary: {dp: [1]}\n    sett: {}\n", ":6:", "a sweep has");
  refused(HEAD "sweeps:\n  - name: x{dp}-{row}\n    vary: {dp: [1]}\n    pairs: {seed: []}\n", ":6:", "empty list");
  refused(HEAD "sweeps:\n  - name: x{dp}\n    vary: {dp: [1]}\n    legal: 0\n", ":6:12", "legal");
  refused(HEAD "sweeps:\n  - name: x{dp}\n    vary: {dp: [1, 5]}\n    legal: 2\n", ":6:12",
          "2 combinations were said to be left, 1 are");
  refused(HEAD "sweeps:\n  - name: x{dp}\n    vary: {dp: [2, 5]}\n    most_ranks: 1\n",
          ":4:", "no combination is left");
}

/* Combinations that nobody asked for are not made; what they are made of is read. */
static void the_quick_form_has_no_sweeps_but_its_own(void)
{
  struct suite *s;
  form = SUITE_QUICK;
  if (CHECK_OK(read_text(HEAD "cases:\n  a: {}\nsweeps:\n  - {name: x, vary: {dp: [1, 2]}}\n" /* two cases of one name */
                              "  - name: y{dp}\n    vary: {dp: [1, 2]}\n    set: {quick: true}\n"
                              "  - name: z{quick}\n    vary: {quick: [true, false]}\n",
                         &s))) {
    CHECK(s->n == 5 && suite_find(s, "x") == NULL && suite_find(s, "y2") && suite_find(s, "ztrue"));
    suite_free(s);
  }
  if (CHECK_OK(read_text(HEAD "sweeps:\n  - {name: 'x{dp}', vary: {dp: [1, 2]}}\n", &s))) {
    CHECK(s->n == 0);
    suite_free(s);
  }
  refused(HEAD "cases: {}\n", ":1:", "no case");
  refused(HEAD "sweeps:\n  - name: x{dp}\n    vary: {dp: [1, two]}\n", ":5:", "two");
  refused(HEAD "sweeps:\n  - name: x{dp}\n    zip: {dpp: [1]}\n", ":5:", "nearest: dp");
  refused(HEAD "sweeps:\n  - name: x{dp}\n    vary: {dp: [1]}\n    pairs: {seed: [1, [2]]}\n", ":6:", "a list, expected a single value");
  form = SUITE_FULL;
}

static void evidence_is_laid_over_a_point(void)
{
  struct suite *s;
  if (!CHECK_OK(read_text("question: x\nkind: scaling\nevidence: {model: tiny, steps: 2, checks: [ends]}\n"
                          "cases:\n  a: {scale: weak, model: gpt2-124m, bucket: 77}\n", &s))) return;
  struct run_config c = s->cases[0].config;
  CHECK_OK(suite_lay_evidence(s, &c));
  CHECK(strcmp(c.model, "tiny") == 0 && c.steps == 2 && c.bucket == 77);
  CHECK(s->evidence.n_checks == 1 && s->cases[0].scale == SCALE_WEAK);
  suite_free(s);
}

static void unknown_suite_is_answered_with_a_path_or_names(void)
{
  char out[256];
  CHECK_OK(suite_path("./x.yaml", out, sizeof out));
  CHECK(strcmp(out, "./x.yaml") == 0);
  CHECK_ERR(suite_path("conformanze", out, sizeof out), ERR_CONFIG);
  CHECK_TEXT_HAS(err_text(), "no suite is named 'conformanze'");
}

/* Adapters and environments are files beside the suite file. */
static void rows_of_frameworks_name_what_is_there(void)
{
  static const char head[] = "question: x\nkind: frameworks\nevery_case: {environment: torch}\ncases:\n";
  static const struct {
    const char *row, *part;
  } bad[] = {{"  a: {dp: 2}\n", "case 'a' has no `adapter`"},
             {"  a: {adapter: dpd}\n", "adapter 'dpd': no dpd.py in /tmp/suite_test"},
             {"  a: {adapter: dpd}\n", "nearest: ddp"},
             {"  a: {adapter: ../frameworks/ddp}\n", "nearest: ddp"},
             {"  a: {adapter: ddp, environment: troch}\n", "environment 'troch': no troch.txt"},
             {"  a: {adapter: ddp, plant: local-mean}\n", "plant 'local-mean' without `cause`"},
             {"  a: {adapter: ddp, cause: clip-max-for-mim}\n", "nearest: clip-max-for-min"},
             {"  a: {adapter: ddp, checks: [loss]}\n", "name none in a suite of kind frameworks"},
             {"  a: {adapter: ddp, precision: float64}\n", "bounds for float32 and bf16 only"},
             {"  a: {adapter: ddp, dropout: 0.1}\n", "dropout: masks are drawn by each trainer in its own way"},
             {"  a: {adapter: ddp, bucket: 500}\n", "bucket: a case does not depend on it"},
             {"  a: {adapter: ddp, plan: x}\n", "nearest: plant"}};
  char folder[80], old[80], text[512], made[160];
  struct suite *s;
  memcpy(old, path, sizeof path);
  snprintf(folder, sizeof folder, "/tmp/suite_test.%d", (int)getpid());
  snprintf(text, sizeof text, "mkdir -p %s/frameworks && touch %s/frameworks/ddp.py %s/frameworks/torch.txt", folder, folder, folder);
  CHECK(system(text) == 0);
  snprintf(made, sizeof made, "%s/s.yaml", folder);
  memcpy(path, made, sizeof path);
  for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
    snprintf(text, sizeof text, "%s%s", head, bad[i].row);
    refused(text, "s.yaml:5:", bad[i].part);
  }
  snprintf(text, sizeof text, "%s  a: {adapter: ddp, dp: 2, precision: bf16, plant: local-mean, cause: ln-rank-token-imbalance, note: why}\n", head);
  if (CHECK_OK(read_text(text, &s))) {
    CHECK(s->kind == KIND_FRAMEWORKS && strcmp(s->cases->adapter, "ddp") == 0 && strcmp(s->cases->environment, "torch") == 0);
    CHECK(strcmp(s->cases->plant, "local-mean") == 0 && strcmp(s->cases->cause, "ln-rank-token-imbalance") == 0 && strcmp(s->cases->note, "why") == 0);
    suite_free(s);
  }
  refused(HEAD "cases:\n  a: {adapter: ddp}\n", "s.yaml:4:", "are keys of suites of kind frameworks");
  refused("question: x\nkind: framework\ncases: {}\n", "s.yaml:2:7", "kind 'framework' is not known; nearest: frameworks");
  snprintf(text, sizeof text, "rm -r %s", folder);
  CHECK(system(text) == 0);
  memcpy(path, old, sizeof path);
}

static void every_allocation_may_fail(void)
{
  struct suite *s;
  bool failed = true;
  for (long n = 1; failed && n < 1000; n++) {
    check_fail_allocation(n);
    const enum err err = read_text(HEAD "cases:\n  a: {checks: [ends]}\nsweeps:\n  - name: x{dp}-{row}\n    vary: {dp: "
                                        "[1, 2]}\n    pairs: {seed: [1, 2]}\n",
                                   &s);
    failed = check_allocation_failed();
    check_fail_allocation(0);
    CHECK(failed ? err == ERR_MEMORY && s == NULL : err == ERR_OK);
    suite_free(s);
  }
  CHECK(!failed);
}

int main(void)
{
  static const struct test tests[] = {
    TEST(levels_override_in_order),
    TEST(sweep_is_the_product_with_zip_walked_along),
    TEST(pairs_meet_in_few_cases),
    TEST(layouts_that_the_options_refuse_are_left_out_if_asked),
    TEST(mistakes_are_named_with_their_place),
    TEST(mistakes_of_sweeps_are_named),
    TEST(the_quick_form_has_no_sweeps_but_its_own),
    TEST(evidence_is_laid_over_a_point),
    TEST(unknown_suite_is_answered_with_a_path_or_names),
    TEST(rows_of_frameworks_name_what_is_there),
    TEST(every_allocation_may_fail),
  };
  snprintf(path, sizeof path, "/tmp/suite_test.%d.yaml", (int)getpid());
  const int status = test_main("suite", tests, sizeof tests / sizeof *tests);
  unlink(path);
  return status;
}
