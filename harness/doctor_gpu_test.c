/* doctor_gpu_test.c - every finding about GPUs, each with the command that mends it. */
#include "harness/doctor_gpu.h"
#include "testing/check.h"

#include <string.h>

static void expect(void (*look)(const struct doctor_gpu *g, struct doctor_line *out), const struct doctor_gpu *g, enum doctor_level level,
                   const char *found, const char *mend)
{
  struct doctor_line l;
  look(g, &l);
  CHECK(l.level == level);
  CHECK_TEXT_HAS(l.found, found);
  CHECK(mend[0] ? strstr(l.mend, mend) != NULL : l.mend[0] == '\0');
}

static const struct doctor_gpu fit = {DOCTOR_CUDA, "NVIDIA driver 580.65", 13.0, 13.0, "/usr/lib/libnccl.so.2", 8};

static void a_fit_machine_is_good(void)
{
  expect(doctor_gpu_driver, &fit, DOCTOR_GOOD, "580.65, 8 GPUs", "");
  expect(doctor_gpu_toolkit, &fit, DOCTOR_GOOD, "CUDA 13.0, and this program was built with CUDA", "");
  expect(doctor_gpu_nccl, &fit, DOCTOR_GOOD, "libnccl.so.2", "");
}

static void what_a_cuda_build_lacks_is_named(void)
{
  struct doctor_gpu g = fit;
  g.driver[0] = g.nccl[0] = '\0';
  g.gpus = 0;
  expect(doctor_gpu_driver, &g, DOCTOR_WARNING, "cannot be opened", "nvidia-driver");
  expect(doctor_gpu_nccl, &g, DOCTOR_WARNING, "staged", "libnccl2");
  g = fit;
  g.gpus = 0;
  expect(doctor_gpu_driver, &g, DOCTOR_WARNING, "shows no GPU", "nvidia-smi -L");
  g = fit;
  g.driver_cuda = 12.4;
  expect(doctor_gpu_driver, &g, DOCTOR_WARNING, "runs CUDA up to 12.4, the toolkit is 13.0", "upgrade");
  g.toolkit = 12.8; /* the same major version: compatible by CUDA's own promise */
  expect(doctor_gpu_driver, &g, DOCTOR_GOOD, "580.65", "");
  g.toolkit = 0;
  expect(doctor_gpu_toolkit, &g, DOCTOR_GOOD, "none here", "");
}

static void a_build_without_cuda_asks_for_one_only_beside_a_gpu(void)
{
  struct doctor_gpu g = fit;
  g.build = DOCTOR_NO_CUDA;
  expect(doctor_gpu_toolkit, &g, DOCTOR_WARNING, "built without it", "--preset cuda");
  g.toolkit = 0;
  expect(doctor_gpu_toolkit, &g, DOCTOR_WARNING, "a GPU is here", "cuda-toolkit");
  g.driver[0] = '\0';
  expect(doctor_gpu_driver, &g, DOCTOR_GOOD, "devices cpu and lazy", "");
  expect(doctor_gpu_toolkit, &g, DOCTOR_GOOD, "none, and no GPU", "");
  expect(doctor_gpu_nccl, &g, DOCTOR_GOOD, "none needed", "");
  g.toolkit = 13.0;
  expect(doctor_gpu_toolkit, &g, DOCTOR_GOOD, "CUDA 13.0, not used", "");
}

static void the_host_build_says_that_it_is_no_gpu(void)
{
  struct doctor_gpu g = {.build = DOCTOR_CUDA_HOST};
  expect(doctor_gpu_driver, &g, DOCTOR_GOOD, "not a GPU; it shows no speed", "");
  expect(doctor_gpu_toolkit, &g, DOCTOR_GOOD, "host build", "");
  expect(doctor_gpu_nccl, &g, DOCTOR_GOOD, "none needed", "");
}

static void versions_are_read_from_what_tools_print(void)
{
  CHECK(doctor_gpu_smi_cuda("| NVIDIA-SMI 550.54    Driver Version: 550.54    CUDA Version: 12.4     |") == 12.4);
  CHECK(doctor_gpu_nvcc("Cuda compilation tools, release 13.0, V13.0.88\n") == 13.0);
  CHECK(doctor_gpu_smi_cuda("") == 0 && doctor_gpu_nvcc("nvcc: not found") == 0);
}

int main(void)
{
  static const struct test tests[] = {
    TEST(a_fit_machine_is_good),
    TEST(what_a_cuda_build_lacks_is_named),
    TEST(a_build_without_cuda_asks_for_one_only_beside_a_gpu),
    TEST(the_host_build_says_that_it_is_no_gpu),
    TEST(versions_are_read_from_what_tools_print),
  };
  return test_main("doctor_gpu", tests, sizeof tests / sizeof *tests);
}
