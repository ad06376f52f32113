/* train_gpu_cuda_test.c - what a machine's cards can do wrong: each run ends in time, with the reason and the right status.
 * The stand-in is told by its environment (cuda_host.h). */
#include "train/train_fixture.h"

struct machine {
  const char *variable, *value;
};

/* A run of `ranks` on device cuda of such a machine ends with `status` and says `words`; of its records too, if it has any. */
static void on(struct machine a, struct machine b, int ranks, const char *settings, int status, const char *words)
{
  char text[1024], command[128];
  snprintf(text, sizeof text, "device: cuda\n%s", settings);
  setenv(a.variable, a.value, 1);
  if (b.variable) setenv(b.variable, b.value, 1);
  fixture_run("bad", text);
  CHECK(TRAIN(ranks, "bad") == status);
  CHECK_TEXT_HAS(fixture_output(), words);
  unsetenv(a.variable);
  if (b.variable) unsetenv(b.variable);
  snprintf(command, sizeof command, "rm -rf %s/bad", fixture_dir);
  CHECK(system(command) == 0);
}
static const struct machine none, one_card = {"CUDA_VISIBLE_DEVICES", "0"};

static void no_card_that_is_visible(void)
{
  on((struct machine){"CUDA_VISIBLE_DEVICES", ""}, none, 1, "", 3, "no GPU is visible here; CUDA_VISIBLE_DEVICES is ''; available: cpu, lazy");
}

static void ranks_share_a_card_only_when_asked_to(void)
{
  on(one_card, none, 2, "dp: 2", 3, "ranks 0 and 1 share the device GPU-");
  on(one_card, none, 2, "dp: 2\ntransport: staged", 0, "");
}

static void no_driver_or_an_old_one(void)
{
  on((struct machine){"CUDA_HOST_DRIVER", "0"}, none, 1, "", 3, "this machine has no NVIDIA driver; available: cpu, lazy");
  on((struct machine){"CUDA_HOST_DRIVER", "12080"}, none, 2, "dp: 2", 3,
     "install a driver for CUDA 13.0 or later, or build with a toolkit of CUDA 12");
}

static void an_nccl_that_is_not_there_or_not_the_same(void)
{
  const struct machine two_cards = {"CUDA_HOST_DEVICES", "2"};
  on(two_cards, (struct machine){"CUDA_HOST_NCCL_VERSION", "0@1"}, 2, "dp: 2", 3, "rank 1: NCCL is missing");
  on(two_cards, (struct machine){"CUDA_HOST_NCCL_VERSION", "22602@1"}, 2, "dp: 2", 3, "and 2.26.2 on rank 1: all ranks need one version");
  on(two_cards, (struct machine){"CUDA_HOST_NCCL_VERSION", "0"}, 2, "dp: 2\ntransport: staged", 0, "");
}

static void a_card_that_is_too_small(void)
{
  on((struct machine){"CUDA_HOST_MEMORY_MIB", "2"}, none, 1, "vocab: 32768", 3, "(device cuda 0, ");
}

/* A run that is for what it computes is not judged by its time. */
static void a_card_that_is_held_back_or_loses_data(void)
{
  const struct machine heat = {"CUDA_HOST_HEAT_MS", "250"};
  on(heat, none, 1, "", 3, "the card was held back by heat for 0.250 s of the timed steps (now 88 C)");
  on(heat, none, 1, "dump: gradients", 0, "");
  on((struct machine){"CUDA_HOST_REASONS", "0x48"}, none, 1, "", 3,
     "the card is held back by hardware slowdown, heat (hardware) at the end of the timed steps (1500 of 1980 MHz)");
  on((struct machine){"CUDA_HOST_REASONS", "0x4"}, (struct machine){"CUDA_HOST_POWER_MS", "9"}, 1, "", 0, ""); /* the power limit is the card's own */
  on((struct machine){"CUDA_HOST_ECC", "2"}, none, 1, "dump: gradients", 3, "the card lost data: 2 uncorrected ECC errors during the run");
  on((struct machine){"CUDA_HOST_ECC_AT", "300"}, none, 1, "", 3, ": uncorrectable ECC error encountered (");
}

static void clocks_power_and_energy_are_recorded(void)
{
  setenv("CUDA_HOST_POWER_MS", "5", 1);
  fixture_run("healthy", "device: cuda");
  CHECK(TRAIN(1, "healthy") == 0);
  unsetenv("CUDA_HOST_POWER_MS");
  json_t *r = fixture_records("healthy");
  CHECK(fixture_real(r, "gpu", -1, -1, "got.clock_mhz") == 1500 && fixture_real(r, "gpu", -1, -1, "got.power_mw") == 700000);
  CHECK(fixture_real(r, "gpu", -1, -1, "got.energy_mj") == 7000 && fixture_real(r, "gpu", -1, -1, "got.held_by_power_ns") == 5e6);
  json_decref(r);
}

int main(void)
{
  static const struct test tests[] = {
    TEST(no_card_that_is_visible),
    TEST(ranks_share_a_card_only_when_asked_to),
    TEST(no_driver_or_an_old_one),
    TEST(an_nccl_that_is_not_there_or_not_the_same),
    TEST(a_card_that_is_too_small),
    TEST(a_card_that_is_held_back_or_loses_data),
    TEST(clocks_power_and_energy_are_recorded),
  };
  return fixture_main("train on bad machines", tests, sizeof tests / sizeof *tests);
}
