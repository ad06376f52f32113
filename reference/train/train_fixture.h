/* train_fixture.h - runs the trainer as its users do, and looks at what it left behind. */
#ifndef TRAIN_TRAIN_FIXTURE_H
#define TRAIN_TRAIN_FIXTURE_H

#include "base/record.h"
#include "testing/check.h"

#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

/* All of a test's files lie in here; removed at the end. */
static char fixture_dir[64];

static inline int fixture_main(const char *suite, const struct test *tests, size_t n)
{
  char command[128];
  strcpy(fixture_dir, "/tmp/train_test.XXXXXX");
  if (mkdtemp(fixture_dir) == NULL) {
    perror(fixture_dir);
    return 1;
  }
  const int status = test_main(suite, tests, n);
  snprintf(command, sizeof command, "rm -rf %s", fixture_dir);
  return system(command) == 0 ? status : 1;
}

/* The device that the test is run for is cuda, and the ranks exchange by NCCL: MPI sees nothing of it. */
static inline bool fixture_nccl(void)
{
  return getenv("SHARDMARK_TEST_DEVICE") != NULL && getenv("SHARDMARK_TEST_TRANSPORT") == NULL;
}

/* settings, and of the lines ("key: value") those whose key it has not. */
static inline void fixture_settings(char *out, size_t bytes, const char *settings, const char *const *lines, size_t n)
{
  int used = snprintf(out, bytes, "%s\n", settings);
  for (size_t i = 0; i < n; i++) {
    char key[32];
    snprintf(key, sizeof key, "%.*s:", (int)strcspn(lines[i], ":"), lines[i]);
    if (strstr(settings, key) == NULL) used += snprintf(out + used, bytes - (size_t)used, "%s\n", lines[i]);
  }
}

/* A run file of a small model: three micro-batches a rank at dp 2, records of `name` in fixture_dir/name.
 * What settings say goes before what stands here.  On the device and by the transport that the test is run for, unless
 * they name one. */
static inline void fixture_run(const char *name, const char *settings)
{
  static const char *const lines[] = {"model: tiny", "layers: 2", "global_batch: 12", "micro_batch: 2", "steps: 2", "revealing: true"};
  char path[256], text[2048];
  snprintf(path, sizeof path, "%s/%s.yaml", fixture_dir, name);
  FILE *f = fopen(path, "w");
  if (!CHECK(f != NULL)) return;
  fixture_settings(text, sizeof text, settings, lines, sizeof lines / sizeof *lines);
  fprintf(f, "name: %s\nout: %s/%s\n%s", name, fixture_dir, name, text);
  const char *device = getenv("SHARDMARK_TEST_DEVICE"), *transport = getenv("SHARDMARK_TEST_TRANSPORT");
  if (device && strstr(settings, "device:") == NULL) fprintf(f, "device: %s\n", device);
  if (device && transport && strstr(settings, "device:") == NULL) fprintf(f, "transport: %s\n", transport);
  fclose(f);
}

enum { FIXTURE_WORDS = 24 };
/* Starts `ranks` processes of the trainer on the run files named (without .yaml), its words in
 * fixture_dir/output.  Returns its process. */
static inline pid_t fixture_start(int ranks, const char *const *names)
{
  char words[FIXTURE_WORDS][256], output[128], *argv[FIXTURE_WORDS + 1];
  int n = 0;
  if (ranks > 1) {
    snprintf(words[n++], sizeof *words, "%s/ci/mpirun", SHARDMARK_SOURCE);
    snprintf(words[n++], sizeof *words, "%d", ranks);
  }
  snprintf(words[n++], sizeof *words, "%s/shardmark-train", SHARDMARK_BUILD);
  for (; *names; names++)
    if (**names == '-') snprintf(words[n++], sizeof *words, "%s", *names);
    else snprintf(words[n++], sizeof *words, "%s/%s.yaml", fixture_dir, *names);
  for (int i = 0; i < n; i++) argv[i] = words[i];
  argv[n] = NULL;
  snprintf(output, sizeof output, "%s/output", fixture_dir);
  const pid_t child = fork();
  if (child != 0) return child;
  const int to = open(output, O_WRONLY | O_CREAT | O_TRUNC, 0644);
  dup2(to, 1);
  dup2(to, 2);
  execv(argv[0], argv);
  _exit(127);
}

/* Exit status; 128 + signal. */
static inline int fixture_wait(pid_t child)
{
  int status = -1;
  if (!CHECK(child > 0) || !CHECK(waitpid(child, &status, 0) == child)) return -1;
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

static inline int fixture_train(int ranks, const char *const *names) { return fixture_wait(fixture_start(ranks, names)); }
#define TRAIN(ranks, ...) fixture_train((ranks), (const char *const[]){__VA_ARGS__, NULL})

/* What it said: static, until the next call. */
static inline const char *fixture_output(void)
{
  static char text[1 << 14];
  char path[128];
  snprintf(path, sizeof path, "%s/output", fixture_dir);
  FILE *f = fopen(path, "r");
  const size_t n = f ? fread(text, 1, sizeof text - 1, f) : 0;
  text[n] = '\0';
  if (f) fclose(f);
  return text;
}

/* All records of a run; new reference. */
static inline json_t *fixture_records(const char *name)
{
  char path[512], host[256] = "";
  json_t *records = NULL;
  int cut = 0;
  gethostname(host, sizeof host - 1);
  snprintf(path, sizeof path, "%s/%s/records.%s.jsonl", fixture_dir, name, host);
  if (!CHECK_OK(record_read(path, &records, &cut))) return json_array();
  CHECK(cut == 0);
  return records;
}

/* The i-th record of a kind, of a rank and step (-1: any); NULL: none. */
static inline const json_t *fixture_find(const json_t *records, const char *kind, int64_t rank, int64_t step, int i)
{
  size_t at;
  json_t *r;
  json_array_foreach(records, at, r)
    if (strcmp(record_get_text(r, "kind"), kind) == 0 && (rank < 0 || record_get_int(r, "rank", -1) == rank) &&
        (step < 0 || record_get_int(r, "step", -1) == step) && i-- == 0)
      return r;
  return NULL;
}

static inline double fixture_real(const json_t *records, const char *kind, int64_t rank, int64_t step, const char *key)
{
  const json_t *r = fixture_find(records, kind, rank, step, 0);
  return CHECK(r != NULL) ? record_get_real(r, key, 0.0) : 0.0;
}

/* A file that two runs left, byte for byte. */
static inline bool fixture_same_file(const char *a, const char *b, const char *file)
{
  char command[512];
  snprintf(command, sizeof command, "cmp -s %s/%s/%s %s/%s/%s", fixture_dir, a, file, fixture_dir, b, file);
  return system(command) == 0;
}

/* Weights before each step and at the end, gradients of each step; every dump has two steps. */
static inline bool fixture_same_bits(const char *a, const char *b)
{
  static const char *const files[] = {"weights.step0.safetensors", "weights.step1.safetensors", "weights.step2.safetensors",
                                      "gradients.step0.safetensors", "gradients.step1.safetensors"};
  bool same = true;
  for (size_t i = 0; i < sizeof files / sizeof *files; i++) same = fixture_same_file(a, b, files[i]) && same;
  return same;
}

#endif
