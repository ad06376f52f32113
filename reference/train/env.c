/* env.c - looks at host, build and libraries. */
#include "train/env.h"

#include "base/log.h"
#include "build_info.h"
#include "comm/comm.h"
#include "ops/ops.h"
#include "train/device.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>
#include <time.h>
#include <unistd.h>

int env_cores(int64_t *out, int max)
{
  cpu_set_t set;
  int n = 0;
  if (sched_getaffinity(0, sizeof set, &set) != 0) return 0;
  for (int i = 0; i < CPU_SETSIZE && n < max; i++)
    if (CPU_ISSET(i, &set)) out[n++] = i;
  return n;
}

void env_cpu(char *out, size_t bytes)
{
  char line[512];
  snprintf(out, bytes, "unknown");
  FILE *f = fopen("/proc/cpuinfo", "r");
  while (f != NULL && fgets(line, sizeof line, f)) {
    const char *colon = strchr(line, ':');
    if (strncmp(line, "model name", 10) != 0 || colon == NULL) continue;
    line[strcspn(line, "\n")] = '\0';
    snprintf(out, bytes, "%s", colon + 2);
    break;
  }
  if (f != NULL) fclose(f);
}

static void record_variable(struct record_file *f, const char *key)
{
  const char *value = getenv(key + strlen("env."));
  if (value != NULL) record_text(f, key, value);
}

static enum err record_gpu(struct record_file *f, const struct output *o)
{
  const struct dev_config config = device_config(o->run, o->world);
  struct dev *d;
  char text[512];
  TRY(dev_open(&config, &d));
  dev_describe(d, text, sizeof text);
  record_int(f, "env.gpu_memory_bytes", (int64_t)dev_card_bytes(d));
  dev_close(d);
  record_text(f, "env.gpu", text);
  log_info("%s: on %s", o->run->name, text); /* a host build says here that it is no GPU */
  record_text(f, "env.nccl", comm_nccl(text, sizeof text) == ERR_OK ? text : err_text());
  TRY(comm_topology(text, sizeof text));
  record_text(f, "env.gpu_topology", text);
  return ERR_OK;
}

enum err env_record(struct record_file *f, const struct output *o)
{
  char text[512], date[32];
  int64_t cores[CPU_SETSIZE];
  struct utsname name;
  struct tm utc;
  const time_t now = time(NULL);

  record_text(f, "env.version", BUILD_INFO_VERSION);
  record_text(f, "env.commit", BUILD_INFO_COMMIT);
  record_text(f, "env.compiler", BUILD_INFO_COMPILER);
  record_text(f, "env.build", BUILD_INFO_TYPE);
  strftime(date, sizeof date, "%Y-%m-%dT%H:%M:%SZ", gmtime_r(&now, &utc));
  record_text(f, "env.date", date);
  if (uname(&name) == 0) {
    snprintf(text, sizeof text, "%s %s", name.sysname, name.release);
    record_text(f, "env.host", name.nodename);
    record_text(f, "env.kernel", text);
  }
  env_cpu(text, sizeof text);
  record_text(f, "env.cpu", text);
  record_int(f, "env.cores", env_cores(cores, CPU_SETSIZE));
  record_int(f, "env.memory_bytes", (int64_t)sysconf(_SC_PHYS_PAGES) * sysconf(_SC_PAGESIZE));
  record_text(f, "env.mpi", comm_library());
  record_text(f, "env.matmul", op_matmul_library(o->run->device));
  if (o->run->device == DEV_CUDA) TRY(record_gpu(f, o));
  record_variable(f, "env.OMP_NUM_THREADS");
  record_variable(f, "env.DNNL_MAX_CPU_ISA");
  record_variable(f, "env.OPENBLAS_CORETYPE");
  record_variable(f, "env.NCCL_ALGO");
  record_variable(f, "env.NCCL_PROTO");
  return ERR_OK;
}
