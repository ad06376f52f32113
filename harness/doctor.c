/* doctor.c - each look is one function: what was found, and the command that would help. */
#include "harness/doctor.h"
#include "harness/doctor_gpu.h"
#include "harness/env.h"
#include "harness/place.h"
#include "harness/results.h"

#include <math.h>
#include <stdarg.h>
#include <string.h>
#include <sys/statvfs.h>
#include <sys/wait.h>
#include <unistd.h>

struct patient {
  struct env env;
  char launcher[LAUNCH_PATH], trainer[LAUNCH_PATH];
  struct doctor_gpu gpu;
  bool has_launcher, has_trainer, alone; /* alone: built without MPI, needs no launcher */
};

static void say(struct doctor_line *l, enum doctor_level level, const char *mend, const char *format, ...) __attribute__((format(printf, 4, 5)));
static void say(struct doctor_line *l, enum doctor_level level, const char *mend, const char *format, ...)
{
  va_list a;
  va_start(a, format);
  vsnprintf(l->found, sizeof l->found, format, a);
  va_end(a);
  l->level = level;
  snprintf(l->mend, sizeof l->mend, "%s", mend);
}

/* Output of a command, cut; its exit status. */
static int run(const char *command, char *out, size_t bytes)
{
  out[0] = '\0';
  FILE *f = popen(command, "r");
  if (f == NULL) return -1;
  const size_t n = fread(out, 1, bytes - 1, f);
  out[n] = '\0';
  char rest[4096];
  while (fread(rest, 1, sizeof rest, f) > 0) continue;
  const int status = pclose(f);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static void look_launcher(struct patient *p, struct doctor_line *l)
{
  if (p->alone) say(l, DOCTOR_GOOD, "", "none needed: built without MPI, every run has one rank");
  else if (!p->has_launcher) say(l, DOCTOR_BAD, "sudo apt-get install openmpi-bin", "%s", "neither mpirun nor mpiexec in PATH");
  else say(l, DOCTOR_GOOD, "", "%s", p->launcher);
}

static void look_trainer(struct patient *p, struct doctor_line *l)
{
  if (!p->has_trainer) say(l, DOCTOR_BAD, "./ci/build", "shardmark-train is not beside this program");
  else say(l, DOCTOR_GOOD, "", "%s", p->trainer);
}

static void look_libraries(struct patient *p, struct doctor_line *l)
{
  char command[LAUNCH_PATH + 64], text[16384];
  if (!p->has_trainer) {
    say(l, DOCTOR_BAD, "./ci/build", "no trainer to look at");
    return;
  }
  snprintf(command, sizeof command, "ldd '%s' 2>&1", p->trainer);
  run(command, text, sizeof text);
  const char *missing = strstr(text, "not found");
  if (missing) {
    const char *start = missing;
    while (start > text && start[-1] != '\n') start--;
    say(l, DOCTOR_BAD, "./ci/build", "library missing: %.*s", (int)strcspn(start, "\n"), start + strspn(start, " \t"));
  } else {
    say(l, DOCTOR_GOOD, "", "all of the trainer's libraries are found");
  }
}

/* The launcher must be of the MPI that the trainer was linked with: otherwise every process is its own rank 0. */
static void look_match(struct patient *p, struct doctor_line *l)
{
  char command[LAUNCH_PATH + 64], text[16384], version[4096];
  if (p->alone) {
    say(l, DOCTOR_GOOD, "", "none: built without MPI");
    return;
  }
  if (!p->has_launcher || !p->has_trainer) {
    say(l, DOCTOR_BAD, "./ci/build", "nothing to compare");
    return;
  }
  snprintf(command, sizeof command, "ldd '%s' 2>/dev/null", p->trainer);
  run(command, text, sizeof text);
  snprintf(command, sizeof command, "'%s' --version 2>/dev/null", p->launcher);
  run(command, version, sizeof version);
  const enum launch_mpi mpi = launch_which(version);
  const bool open = strstr(text, "libopen-rte") || strstr(text, "libopen-pal") || strstr(text, "libmpi.so.40");
  const bool mpich = strstr(text, "libmpich") || strstr(text, "libmpi.so.12");
  if ((open && mpi == LAUNCH_MPICH) || (mpich && mpi == LAUNCH_OPENMPI))
    say(l, DOCTOR_BAD, open ? "export SHARDMARK_MPIEXEC=mpirun.openmpi" : "export SHARDMARK_MPIEXEC=mpirun.mpich",
        "the launcher is %s, the trainer is linked with %s", mpi == LAUNCH_MPICH ? "MPICH" : "Open MPI", open ? "Open MPI" : "MPICH");
  else say(l, DOCTOR_GOOD, "", "launcher and trainer are of one MPI");
}

static void look_cores(struct patient *p, struct doctor_line *l)
{
  if (p->env.cores < 2) say(l, DOCTOR_WARNING, "", "%d core: every run of 2 ranks is correctness only", p->env.cores);
  else say(l, DOCTOR_GOOD, "", "%d cores, %s", p->env.cores, p->env.cpu);
}

static void look_memory(struct patient *p, struct doctor_line *l)
{
  const double gib = p->env.available_bytes / 1073741824;
  say(l, gib < 1 ? DOCTOR_BAD : gib < 4 ? DOCTOR_WARNING : DOCTOR_GOOD, gib < 4 ? "ps aux --sort=-rss | head" : "", "%.1f GiB available", gib);
}

static void look_disk(struct patient *p, struct doctor_line *l)
{
  (void)p;
  char folder[4096];
  struct statvfs fs;
  if (place_source("results", folder, sizeof folder) != ERR_OK && place_source("suites", folder, sizeof folder) != ERR_OK) {
    say(l, DOCTOR_WARNING, "", "no folder for results beside the program: give --out");
    return;
  }
  if (statvfs(folder, &fs) != 0) {
    say(l, DOCTOR_BAD, "df -h", "%s cannot be asked for its free space", folder);
    return;
  }
  const double gib = (double)fs.f_bavail * (double)fs.f_frsize / 1073741824;
  const bool writable = access(folder, W_OK) == 0;
  say(l, !writable || gib < 0.25 ? DOCTOR_BAD : gib < 2 ? DOCTOR_WARNING : DOCTOR_GOOD, !writable ? "shardmark run SUITE --out DIR" : gib < 2 ? "df -h" : "",
      "%s: %.1f GiB free%s", folder, gib, writable ? "" : ", not writable");
}

static void look_quiet(struct patient *p, struct doctor_line *l)
{
  if (p->env.n_doubts == 0) {
    say(l, DOCTOR_GOOD, "", "quiet: others use %.2f cores, load %.1f", p->env.busy_elsewhere, p->env.load1);
    return;
  }
  say(l, DOCTOR_WARNING, strstr(p->env.doubts[0], "governor") ? "sudo cpupower frequency-set -g performance" : "top -o %CPU", "%s",
      p->env.doubts[0]);
}

static void look_gnuplot(struct patient *p, struct doctor_line *l)
{
  char path[LAUNCH_PATH], text[256], command[LAUNCH_PATH + 64];
  (void)p;
  if (place_program("gnuplot", path, sizeof path) != ERR_OK) {
    say(l, DOCTOR_WARNING, "sudo apt-get install gnuplot-nox", "no gnuplot: reports have tables and no plots");
    return;
  }
  snprintf(command, sizeof command, "'%s' --version 2>&1", path);
  run(command, text, sizeof text);
  say(l, DOCTOR_GOOD, "", "%.*s", (int)strcspn(text, "\n"), text);
}

static void look_start(struct patient *p, struct doctor_line *l)
{
  char command[2 * LAUNCH_PATH], text[4096];
  if (p->alone) {
    say(l, DOCTOR_GOOD, "", "the trainer is started as it is");
    return;
  }
  if (!p->has_launcher) {
    say(l, DOCTOR_BAD, "sudo apt-get install openmpi-bin", "nothing to start with");
    return;
  }
  snprintf(command, sizeof command,
           "OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 timeout 20 '%s' -n 1 /bin/echo started 2>&1 </dev/null", p->launcher);
  const int status = run(command, text, sizeof text);
  if (status == 0 && strstr(text, "started")) say(l, DOCTOR_GOOD, "", "the launcher starts a process");
  else say(l, DOCTOR_BAD, command, "the launcher ends with status %d: %.*s", status, (int)strcspn(text, "\n"), text);
}

/* What tools of the GPU say; they are not there, or say nothing, where there is none. */
static void find_gpu(struct doctor_gpu *g)
{
  char text[16384];
#if defined SHARDMARK_CUDA_HOST
  g->build = DOCTOR_CUDA_HOST;
#elif defined SHARDMARK_HAS_CUDA
  g->build = DOCTOR_CUDA;
#else
  g->build = DOCTOR_NO_CUDA;
#endif
  if (run("timeout 20 nvidia-smi 2>/dev/null", text, sizeof text) == 0) g->driver_cuda = doctor_gpu_smi_cuda(text);
  run("timeout 20 nvidia-smi -L 2>/dev/null", text, sizeof text);
  for (const char *at = text; (at = strstr(at, "GPU ")) != NULL; at++) g->gpus += at == text || at[-1] == '\n';
  run("head -n 1 /proc/driver/nvidia/version 2>/dev/null", text, sizeof text);
  snprintf(g->driver, sizeof g->driver, "%.*s", (int)strcspn(text, "\n"), text);
  run("PATH=$PATH:/usr/local/cuda/bin nvcc --version 2>/dev/null", text, sizeof text);
  g->toolkit = doctor_gpu_nvcc(text);
  run("PATH=$PATH:/sbin ldconfig -p 2>/dev/null | sed -n 's/.*libnccl.so.2 .*=> //p' | head -n 1", text, sizeof text);
  snprintf(g->nccl, sizeof g->nccl, "%.*s", (int)strcspn(text, "\n"), text);
}

static void look_driver(struct patient *p, struct doctor_line *l) { doctor_gpu_driver(&p->gpu, l); }
static void look_toolkit(struct patient *p, struct doctor_line *l) { doctor_gpu_toolkit(&p->gpu, l); }
static void look_nccl(struct patient *p, struct doctor_line *l) { doctor_gpu_nccl(&p->gpu, l); }

enum status doctor_print(FILE *out)
{
  static const struct {
    const char *name;
    void (*look)(struct patient *p, struct doctor_line *l);
  } looks[] = {{"launcher", look_launcher}, {"start", look_start},   {"trainer", look_trainer}, {"libraries", look_libraries},
               {"one MPI", look_match},     {"cores", look_cores},   {"memory", look_memory},   {"disk", look_disk},
               {"quiet", look_quiet},       {"gnuplot", look_gnuplot},
               {"GPU driver", look_driver}, {"toolkit", look_toolkit}, {"NCCL", look_nccl}};
  static const char *const words[] = {"good", "doubtful", "BAD"};
  enum status status = STATUS_PASS;
  struct patient p = {.has_launcher = false};
  env_look(500, &p.env);
  find_gpu(&p.gpu);
  p.alone = place_without_launcher();
  p.has_launcher = !p.alone && place_launcher(p.launcher, sizeof p.launcher) == ERR_OK;
  p.has_trainer = place_trainer(p.trainer, sizeof p.trainer) == ERR_OK;
  for (size_t i = 0; i < sizeof looks / sizeof *looks; i++) {
    struct doctor_line l = {.level = DOCTOR_BAD};
    looks[i].look(&p, &l);
    fprintf(out, "%-9s %-10s %s\n", words[l.level], looks[i].name, l.found);
    if (l.level != DOCTOR_GOOD && l.mend[0]) fprintf(out, "%-20s   mend: %s\n", "", l.mend);
    if (l.level == DOCTOR_BAD) status = STATUS_INVALID;
  }
  fprintf(out, "%s\n", status == STATUS_PASS ? "fit to run" : "not fit to run");
  return status;
}
