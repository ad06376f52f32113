/* doctor_gpu.c - driver, toolkit and NCCL beside what this program was built with. */
#include "harness/doctor_gpu.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void say(struct doctor_line *l, enum doctor_level level, const char *mend, const char *format, ...)
  __attribute__((format(printf, 4, 5)));
static void say(struct doctor_line *l, enum doctor_level level, const char *mend, const char *format, ...)
{
  va_list a;
  va_start(a, format);
  vsnprintf(l->found, sizeof l->found, format, a);
  va_end(a);
  snprintf(l->mend, sizeof l->mend, "%s", mend);
  l->level = level;
}

static double after(const char *text, const char *word)
{
  const char *at = strstr(text, word);
  return at ? strtod(at + strlen(word), NULL) : 0;
}
double doctor_gpu_smi_cuda(const char *text) { return after(text, "CUDA Version: "); }
double doctor_gpu_nvcc(const char *text) { return after(text, "release "); }

void doctor_gpu_driver(const struct doctor_gpu *g, struct doctor_line *out)
{
  if (g->build == DOCTOR_CUDA_HOST) say(out, DOCTOR_GOOD, "", "none needed: host build, not a GPU; it shows no speed");
  else if (g->driver[0] == '\0' && g->build == DOCTOR_CUDA)
    say(out, DOCTOR_WARNING, "sudo apt-get install nvidia-driver", "none: device cuda cannot be opened");
  else if (g->driver[0] == '\0') say(out, DOCTOR_GOOD, "", "none: devices cpu and lazy");
  else if (g->gpus == 0) say(out, DOCTOR_WARNING, "nvidia-smi -L", "%s, but it shows no GPU", g->driver);
  else if (g->build == DOCTOR_CUDA && g->driver_cuda > 0 && (int)g->driver_cuda < (int)g->toolkit)
    say(out, DOCTOR_WARNING, "sudo apt-get install --only-upgrade nvidia-driver", "%s runs CUDA up to %.1f, the toolkit is %.1f", g->driver,
        g->driver_cuda, g->toolkit);
  else say(out, DOCTOR_GOOD, "", "%s, %d GPU%s", g->driver, g->gpus, g->gpus == 1 ? "" : "s");
}

void doctor_gpu_toolkit(const struct doctor_gpu *g, struct doctor_line *out)
{
  const bool gpu = g->driver[0] != '\0' && g->gpus > 0;
  if (g->build == DOCTOR_CUDA_HOST) say(out, DOCTOR_GOOD, "", "none needed: host build");
  else if (g->build == DOCTOR_CUDA && g->toolkit > 0) say(out, DOCTOR_GOOD, "", "CUDA %.1f, and this program was built with CUDA", g->toolkit);
  else if (g->build == DOCTOR_CUDA) say(out, DOCTOR_GOOD, "", "none here, but this program was built with CUDA");
  else if (gpu && g->toolkit == 0)
    say(out, DOCTOR_WARNING, "sudo apt-get install cuda-toolkit, then ./ci/build --preset cuda", "none: a GPU is here, and this program was built without CUDA");
  else if (gpu) say(out, DOCTOR_WARNING, "./ci/build --preset cuda", "CUDA %.1f, but this program was built without it", g->toolkit);
  else say(out, DOCTOR_GOOD, "", g->toolkit > 0 ? "CUDA %.1f, not used: no GPU is here" : "none, and no GPU is here", g->toolkit);
}

void doctor_gpu_nccl(const struct doctor_gpu *g, struct doctor_line *out)
{
  if (g->build != DOCTOR_CUDA) say(out, DOCTOR_GOOD, "", "none needed");
  else if (g->nccl[0]) say(out, DOCTOR_GOOD, "", "%s", g->nccl);
  else say(out, DOCTOR_WARNING, "sudo apt-get install libnccl2", "none: several GPUs exchange only by transport: staged (correctness only)");
}
