/* dev_versions_cuda_test.c - each machine that cannot run this build is told why. */
#include "device/dev_versions_cuda.h"

#include "testing/check.h"

#include <stdlib.h>
#include <string.h>

static void check_refused(struct dev_versions v, const char *text)
{
  CHECK_ERR(dev_versions_check(&v), ERR_UNAVAILABLE);
  CHECK_TEXT_HAS(err_text(), text);
}

static void no_driver(void)
{
  check_refused((struct dev_versions){0, 13000, cudaErrorInsufficientDriver, 0}, "no NVIDIA driver; available: cpu, lazy");
}

static void a_driver_of_an_older_major_version(void)
{
  check_refused((struct dev_versions){12080, 13010, cudaSuccess, 1},
                "the driver is for CUDA 12.8 and this build for CUDA 13.1: install a driver for CUDA 13.0 or later, "
                "or build with a toolkit of CUDA 12");
  check_refused((struct dev_versions){13000, 13010, cudaErrorInsufficientDriver, 0}, "the driver is for CUDA 13.0");
}

static void an_older_minor_version_serves(void)
{
  const struct dev_versions v = {13000, 13010, cudaSuccess, 1}, newer = {14000, 13010, cudaSuccess, 1};
  CHECK_OK(dev_versions_check(&v));
  CHECK_OK(dev_versions_check(&newer));
}

static void no_card(void)
{
  unsetenv("CUDA_VISIBLE_DEVICES");
  check_refused((struct dev_versions){13000, 13000, cudaErrorNoDevice, 0}, "no GPU is visible here; available");
  check_refused((struct dev_versions){13000, 13000, cudaSuccess, 0}, "no GPU is visible here");
  setenv("CUDA_VISIBLE_DEVICES", "7", 1);
  check_refused((struct dev_versions){13000, 13000, cudaErrorNoDevice, 0}, "CUDA_VISIBLE_DEVICES is '7'; available");
  setenv("CUDA_VISIBLE_DEVICES", "", 1);
  check_refused((struct dev_versions){13000, 13000, cudaErrorNoDevice, 0}, "CUDA_VISIBLE_DEVICES is ''; available");
  unsetenv("CUDA_VISIBLE_DEVICES");
}

static void another_reason_is_passed_on(void)
{
  check_refused((struct dev_versions){13000, 13000, cudaErrorSystemDriverMismatch, 0}, cudaGetErrorString(cudaErrorSystemDriverMismatch));
}

static void a_card_that_is_too_old(void)
{
  CHECK_ERR(dev_capability_check(1, "Tesla V100", 70), ERR_UNAVAILABLE);
  CHECK_TEXT_HAS(err_text(), "device cuda 1, Tesla V100: compute capability 7.0; this build needs 8.0");
  CHECK_OK(dev_capability_check(0, "A100", 80));
}

int main(void)
{
  static const struct test tests[] = {
      TEST(no_driver),
      TEST(a_driver_of_an_older_major_version),
      TEST(an_older_minor_version_serves),
      TEST(no_card),
      TEST(another_reason_is_passed_on),
      TEST(a_card_that_is_too_old),
  };
  return test_main("dev_versions_cuda", tests, sizeof tests / sizeof *tests);
}
