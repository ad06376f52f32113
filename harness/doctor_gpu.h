/* doctor_gpu.h - what `doctor` says of GPUs: pure, from facts that doctor.c looked up. */
#ifndef HARNESS_DOCTOR_GPU_H
#define HARNESS_DOCTOR_GPU_H

#include "base/err.h"

enum doctor_build { DOCTOR_NO_CUDA, DOCTOR_CUDA, DOCTOR_CUDA_HOST }; /* what this program was built with */
struct doctor_gpu {
  enum doctor_build build;
  char driver[128];       /* "" = none                                            */
  double driver_cuda;     /* the newest CUDA that the driver runs, 13.0; 0: not said */
  double toolkit;         /* nvcc's version, 13.0; 0: none                        */
  char nccl[256];         /* path of its library; "" = none                       */
  int gpus;
};
enum doctor_level { DOCTOR_GOOD, DOCTOR_WARNING, DOCTOR_BAD };
/* What was found, and the command that mends it; "" where nothing is to be mended. */
struct doctor_line {
  enum doctor_level level;
  char found[512], mend[512];
};
/* Nothing of these is BAD: without a GPU the other devices run all the same. */
void doctor_gpu_driver(const struct doctor_gpu *g, struct doctor_line *out);
void doctor_gpu_toolkit(const struct doctor_gpu *g, struct doctor_line *out);
void doctor_gpu_nccl(const struct doctor_gpu *g, struct doctor_line *out);

/* From the output of `nvidia-smi` and of `nvcc --version`; 0: not in there. */
double doctor_gpu_smi_cuda(const char *text);
double doctor_gpu_nvcc(const char *text);

#endif
