/* dev_health_test.c - which accounts of a card make a run unusable. */
#include "device/dev_testing.h"

static struct dev_health healthy(void)
{
  return (struct dev_health){.clock_mhz = 1900, .clock_max_mhz = 1980, .temperature_c = 60, .ecc_corrected = 3, .ecc_uncorrected = 0,
                             .held_by_power_ns = 5, .held_by_heat_ns = 0, .reasons = 0};
}

static void a_quiet_card_passes(void)
{
  const struct dev_health h = healthy();
  CHECK_OK(dev_health_judge(&h, &h, true));
}

static void lost_data_makes_any_run_invalid(void)
{
  const struct dev_health before = healthy();
  struct dev_health after = healthy();
  after.ecc_corrected = 9; /* was put right */
  CHECK_OK(dev_health_judge(&before, &after, false));
  after.ecc_uncorrected = 2;
  CHECK_ERR(dev_health_judge(&before, &after, false), ERR_INVALID);
  CHECK_TEXT_HAS(err_text(), "2 uncorrected ECC errors");
}

static void heat_makes_timed_steps_invalid(void)
{
  const struct dev_health before = healthy();
  struct dev_health after = healthy();
  after.held_by_heat_ns += 1500000000;
  CHECK_OK(dev_health_judge(&before, &after, false));
  CHECK_ERR(dev_health_judge(&before, &after, true), ERR_INVALID);
  CHECK_TEXT_HAS(err_text(), "by heat for 1.500 s");
  CHECK_TEXT_HAS(err_text(), "now 60 C");
}

static void the_power_limit_is_said_and_is_no_fault(void)
{
  const struct dev_health before = healthy();
  struct dev_health after = healthy();
  char text[100];
  after.held_by_power_ns += 1000000000;
  after.reasons = 0x01 | 0x02 | 0x04;
  CHECK_OK(dev_health_judge(&before, &after, true));
  dev_health_reasons(&after, text, sizeof text);
  CHECK(strcmp(text, "power limit") == 0);
}

static void each_fault_is_named(void)
{
  const struct dev_health before = healthy();
  const struct {
    int64_t bit;
    const char *text;
  } faults[] = {{0x08, "hardware slowdown"}, {0x20, "heat (driver)"}, {0x40, "heat (hardware)"}, {0x80, "power brake"}};
  for (size_t i = 0; i < sizeof faults / sizeof *faults; i++) {
    struct dev_health after = healthy();
    after.reasons = 0x04 | faults[i].bit;
    CHECK_ERR(dev_health_judge(&before, &after, true), ERR_INVALID);
    CHECK_TEXT_HAS(err_text(), faults[i].text);
    CHECK_TEXT_HAS(err_text(), "1900 of 1980 MHz");
    CHECK(strstr(err_text(), "power limit") == NULL);
  }
}

static void what_a_card_does_not_say_is_not_held_against_it(void)
{
  EACH_KIND(d) {
    struct dev_health h;
    char text[100] = "x";
    memset(&h, 1, sizeof h);
    dev_health(d, &h);
    CHECK(on_cuda() || (h.clock_mhz == -1 && h.energy_mj == -1 && h.ecc_uncorrected == -1 && h.reasons == -1));
    dev_health_reasons(&(struct dev_health){.reasons = -1}, text, sizeof text);
    CHECK(text[0] == '\0');
  }
  struct dev_health silent = healthy(), after = healthy();
  silent.ecc_uncorrected = silent.held_by_heat_ns = -1;
  after.reasons = -1;
  CHECK_OK(dev_health_judge(&silent, &after, true));
}

static void a_device_describes_itself(void)
{
  EACH_KIND(d) {
    char text[300] = "x";
    dev_describe(d, text, sizeof text);
    CHECK((text[0] == '\0') == !on_cuda());
    CHECK((dev_uuid(d)[0] == '\0') == !on_cuda());
    CHECK((dev_card_bytes(d) == 0) == !on_cuda());
    CHECK(dev_count(dev_kind_of(d)) >= 1);
  }
}

int main(void)
{
  static const struct test tests[] = {
      TEST(a_quiet_card_passes),
      TEST(lost_data_makes_any_run_invalid),
      TEST(heat_makes_timed_steps_invalid),
      TEST(the_power_limit_is_said_and_is_no_fault),
      TEST(each_fault_is_named),
      TEST(what_a_card_does_not_say_is_not_held_against_it),
      TEST(a_device_describes_itself),
  };
  return test_main("dev_health", tests, sizeof tests / sizeof *tests);
}
