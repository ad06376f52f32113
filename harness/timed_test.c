/* timed_test.c - when a red check of time is no failure. */
#include "harness/proof.h"
#include "harness/timed.h"
#include "testing/check.h"

#include <math.h>
#include <string.h>

/* A trial of blame that is red, on a machine of which others used so much. */
static enum outcome settled(const char *device, const char *check, double value, double elsewhere, char *sentence)
{
  static const struct suite suite = {.kind = KIND_BLAME};
  struct run run = {.ranks = 2};
  struct plan p = {.runs = &run, .n_runs = 1};
  struct trial t = {.suite = &suite, .run = 0, .twin = -1, .elsewhere = elsewhere, .outcome = OUTCOME_FAIL, .reason = "blame", .sentence = "rank 1 was last", .n_verdicts = 1};
  config_default(&run.config);
  CHECK_OK(config_set(&run.config, "device", device));
  t.verdicts[0] = (struct verdict){.outcome = OUTCOME_FAIL, .value = value};
  strcpy(t.verdicts[0].check, check);
  timed_settle(&p, &t);
  strcpy(sentence, t.sentence);
  return t.outcome;
}

static void on_a_loud_machine_a_red_time_is_inconclusive(void)
{
  char said[640];
  CHECK(settled("cpu", "blame", 3, 0, said) == OUTCOME_FAIL && strcmp(said, "rank 1 was last") == 0);
  CHECK(settled("cpu", "blame", 3, 1.5, said) == OUTCOME_INCONCLUSIVE);
  CHECK_TEXT_HAS(said, "others used 1.5 cores when it began: rank 1 was last");
  CHECK(settled("cpu", "blame", NAN, 1.5, said) == OUTCOME_FAIL); /* without a value it is not of time */
  CHECK(settled("cpu", "ends", 3, 1.5, said) == OUTCOME_FAIL);
}

/* The host build's stand-in for a GPU runs what it is given when it is waited for: its times are nobody's. */
static void a_device_without_a_time_of_its_own_fails_no_time(void)
{
  struct run_config c;
  char said[640];
  config_default(&c);
  CHECK(proof_no_time(&c) == NULL);
  c.device = DEVICE_CUDA;
  const bool no_time = proof_no_time(&c) != NULL;
#ifdef SHARDMARK_CUDA_HOST
  CHECK(no_time && proof_no_speed(&c) != NULL);
#endif
  CHECK(settled("cuda", "blame", 3, 0, said) == (no_time ? OUTCOME_INCONCLUSIVE : OUTCOME_FAIL));
  CHECK_TEXT_HAS(said, no_time ? "the cuda device of this build is no GPU: rank 1 was last" : "rank 1 was last");
  CHECK(settled("cuda", "ends", 3, 0, said) == OUTCOME_FAIL);
}

int main(void)
{
  static const struct test tests[] = {
    TEST(on_a_loud_machine_a_red_time_is_inconclusive),
    TEST(a_device_without_a_time_of_its_own_fails_no_time),
  };
  return test_main("timed", tests, sizeof tests / sizeof *tests);
}
