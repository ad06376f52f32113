/* env.c - /proc and /sys, read once a run. */
#include "harness/env.h"

#include "base/available.h"
#include "base/clock.h"

#include <math.h>
#include <sched.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>
#include <time.h>
#include <unistd.h>

static double meminfo(const char *key)
{
  char line[256];
  double kib = 0;
  FILE *f = fopen("/proc/meminfo", "r");
  const size_t n = strlen(key);
  while (f && fgets(line, sizeof line, f))
    if (strncmp(line, key, n) == 0 && line[n] == ':') kib = strtod(line + n + 1, NULL);
  if (f) fclose(f);
  return kib * 1024;
}

static void first_line(const char *path, char *out, size_t bytes)
{
  out[0] = '\0';
  FILE *f = fopen(path, "r");
  if (f == NULL) return;
  if (fgets(out, (int)bytes, f) == NULL) out[0] = '\0';
  fclose(f);
  out[strcspn(out, "\n")] = '\0';
}

static void cpu_name(char *out, size_t bytes)
{
  char line[512];
  snprintf(out, bytes, "unknown");
  FILE *f = fopen("/proc/cpuinfo", "r");
  while (f && fgets(line, sizeof line, f)) {
    const char *colon = strchr(line, ':');
    if (strncmp(line, "model name", 10) != 0 || colon == NULL) continue;
    snprintf(out, bytes, "%.*s", (int)strcspn(colon + 2, "\n"), colon + 2);
    break;
  }
  if (f) fclose(f);
}

/* Busy and all jiffies of the machine. */
static bool jiffies(double *busy, double *all)
{
  double v[10] = {0};
  FILE *f = fopen("/proc/stat", "r");
  const int n = f ? fscanf(f, "cpu %lf %lf %lf %lf %lf %lf %lf %lf", v, v + 1, v + 2, v + 3, v + 4, v + 5, v + 6, v + 7) : 0;
  if (f) fclose(f);
  *all = 0;
  for (int i = 0; i < n; i++) *all += v[i];
  *busy = *all - v[3] - v[4];
  return n >= 5;
}

static void doubt(struct env *e, const char *format, ...) __attribute__((format(printf, 2, 3)));
static void doubt(struct env *e, const char *format, ...)
{
  if (e->n_doubts == ENV_DOUBTS) return;
  va_list a;
  va_start(a, format);
  vsnprintf(e->doubts[e->n_doubts++], sizeof e->doubts[0], format, a);
  va_end(a);
}

/* A fifth of a core used by others moves a two-core median by more than we claim to see. */
static const double quiet_cores = 0.2;

void env_look(double look_ms, struct env *out)
{
  struct env e = {.busy_elsewhere = NAN};
  struct utsname u;
  cpu_set_t set;
  gethostname(e.host, sizeof e.host - 1);
  if (uname(&u) == 0) snprintf(e.kernel, sizeof e.kernel, "%s %s", u.sysname, u.release);
  cpu_name(e.cpu, sizeof e.cpu);
  e.cores = sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 1;
  e.memory_bytes = meminfo("MemTotal");
  e.available_bytes = (double)available_bytes();
  getloadavg(&e.load1, 1);
  double busy0, all0, busy1, all1;
  if (look_ms > 0 && jiffies(&busy0, &all0)) {
    clock_sleep_ms(look_ms);
    if (jiffies(&busy1, &all1) && all1 > all0)
      e.busy_elsewhere = (busy1 - busy0) / (all1 - all0) * (double)sysconf(_SC_NPROCESSORS_ONLN);
    if (e.busy_elsewhere > quiet_cores) doubt(&e, "other processes use %.1f cores", e.busy_elsewhere);
  }
  char governor[64];
  first_line("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor", governor, sizeof governor);
  if (*governor && strcmp(governor, "performance") != 0) doubt(&e, "the clock governor is '%s', not 'performance'", governor);
  *out = e;
}

enum err env_record(const struct env *e, const struct launch_world *w, const struct results *r)
{
  struct record_file *f;
  const char *doubts[ENV_DOUBTS];
  char date[64];
  const time_t now = time(NULL);
  struct tm tm;
  gmtime_r(&now, &tm);
  strftime(date, sizeof date, "%Y-%m-%dT%H:%M:%SZ", &tm);
  for (int i = 0; i < e->n_doubts; i++) doubts[i] = e->doubts[i];
  TRY(record_open(r->records, "machine", -1, &f));
  record_begin(f, "machine", -1, -1);
  record_text(f, "env.date", date);
  record_text(f, "env.host", e->host);
  record_text(f, "env.kernel", e->kernel);
  record_text(f, "env.cpu", e->cpu);
  record_int(f, "env.cores", e->cores);
  record_int(f, "env.memory_bytes", (int64_t)e->memory_bytes);
  record_text(f, "env.launcher", w->version);
  record_int(f, "got.cores", w->cores);
  record_int(f, "got.memory_bytes", (int64_t)e->available_bytes);
  record_real(f, "got.load", e->load1);
  record_text(f, "got.launcher", w->version);
  record_texts(f, "got.doubts", doubts, e->n_doubts);
  const enum err err = record_end(f);
  record_close(f);
  return err ? err_trace(err, __FILE__, __LINE__) : ERR_OK;
}
