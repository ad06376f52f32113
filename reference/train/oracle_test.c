/* oracle_test.c - the float64 run gives PyTorch's numbers.
 *
 * The fixture in reference/train/oracle was written by ci/oracle from torch.optim.AdamW,
 * clip_grad_norm_ and transformers' GPT2LMHeadModel in float64: gradients of the first
 * step, weights after three updates, losses, norms.  Bound 1e-10, floored as
 * ||G - R|| / max(||R||, 0.01 rms sqrt(n)).
 */
#include "testing/check.h"

#include "base/record.h"
#include "base/safetensors.h"

#include <glob.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static const double bound = 1e-10;
static const char fixture[] = SHARDMARK_SOURCE "/reference/train/oracle";

/* Runs the trainer on one run file, from the source tree, with records in `dir`. */
static bool train(const char *run, const char *dir)
{
  char file[1024], out[1100];
  snprintf(file, sizeof file, "reference/train/oracle/%s.yaml", run);
  snprintf(out, sizeof out, "out=%s", dir);
  const pid_t child = fork();
  if (child == 0) {
    if (chdir(SHARDMARK_SOURCE) == 0)
      execl(SHARDMARK_BUILD "/shardmark-train", "shardmark-train", file, "--set", out, (char *)NULL);
    _exit(127);
  }
  int status = -1;
  return CHECK(child > 0) && CHECK(waitpid(child, &status, 0) == child) && CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

static double sum_squares(const struct tensor *t)
{
  const double *x = t->at;
  double sum = 0.0;
  for (int64_t i = 0; i < tensor_count(t); i++) sum += x[i] * x[i];
  return sum;
}

/* Every tensor of the fixture whose name starts with `prefix`, against ours. */
static void compare(const struct safetensors *want, const char *prefix, const char *path)
{
  struct safetensors *got = NULL;
  double squares = 0.0, count = 0.0;
  int compared = 0;
  if (!CHECK_OK(safetensors_open(path, &got))) return;
  for (int pass = 0; pass < 2; pass++)
    for (int i = 0; i < safetensors_count(want); i++) {
      const struct safetensor *w = safetensors_get(want, i);
      if (strncmp(w->name, prefix, strlen(prefix)) != 0) continue;
      if (pass == 0) {
        squares += sum_squares(&w->data);
        count += (double)tensor_count(&w->data);
        continue;
      }
      const struct safetensor *g = safetensors_find(got, w->name + strlen(prefix));
      if (!CHECK(g != NULL) || !CHECK(g->data.type == DTYPE_F64 && w->data.type == DTYPE_F64) ||
          !CHECK(tensor_count(&g->data) == tensor_count(&w->data)))
        continue;
      const double *x = g->data.at, *y = w->data.at;
      double distance = 0.0;
      for (int64_t k = 0; k < tensor_count(&w->data); k++) distance += (x[k] - y[k]) * (x[k] - y[k]);
      const double floor = 0.01 * sqrt(squares / count) * sqrt((double)tensor_count(&w->data));
      const double error = sqrt(distance) / fmax(sqrt(sum_squares(&w->data)), floor);
      if (!CHECK(error <= bound)) fprintf(stderr, "  %s: %.3e\n", w->name, error);
      compared++;
    }
  CHECK(compared == safetensors_count(got));
  safetensors_close(got);
}

static void compare_steps(const struct safetensors *want, const char *dir)
{
  char path[1200];
  json_t *records = NULL, *record;
  int cut, steps = 0;
  size_t i;
  const struct safetensor *losses = safetensors_find(want, "losses"), *norms = safetensors_find(want, "norms");
  glob_t found;
  snprintf(path, sizeof path, "%s/records.*.jsonl", dir); /* one file a node */
  if (!CHECK(losses != NULL && norms != NULL) || !CHECK(glob(path, 0, NULL, &found) == 0)) return;
  const bool read = CHECK_OK(record_read(found.gl_pathv[0], &records, &cut));
  globfree(&found);
  if (!read) return;
  json_array_foreach(records, i, record) {
    if (strcmp(record_get_text(record, "kind"), "step") != 0) continue;
    const int64_t step = record_get_int(record, "step", -1);
    if (!CHECK(step >= 0 && step < tensor_count(&losses->data))) continue;
    const double loss = ((const double *)losses->data.at)[step], norm = ((const double *)norms->data.at)[step];
    CHECK_NEAR(record_get_real(record, "got.loss", NAN), loss, bound * loss);
    CHECK_NEAR(record_get_real(record, "got.norm", NAN), norm, bound * norm);
    steps++;
  }
  CHECK(steps == tensor_count(&losses->data));
  json_decref(records);
}

static void against(const char *run)
{
  char dir[] = "/tmp/shardmark-oracle-XXXXXX", path[1200], command[1200];
  struct safetensors *want = NULL;
  snprintf(path, sizeof path, "%s/%s.safetensors", fixture, run);
  if (!CHECK(mkdtemp(dir) != NULL) || !CHECK_OK(safetensors_open(path, &want))) return;
  if (train(run, dir)) {
    snprintf(path, sizeof path, "%s/gradients.step0.safetensors", dir);
    compare(want, "gradients.", path);
    snprintf(path, sizeof path, "%s/weights.step3.safetensors", dir);
    compare(want, "weights.", path);
    compare_steps(want, dir);
  }
  safetensors_close(want);
  snprintf(command, sizeof command, "rm -rf %s", dir);
  CHECK(system(command) == 0);
}

static void tied_head_gives_pytorchs_numbers(void) { against("tied"); }
static void untied_head_gives_pytorchs_numbers(void) { against("untied"); }

int main(void)
{
  static const struct test tests[] = {
    TEST(tied_head_gives_pytorchs_numbers),
    TEST(untied_head_gives_pytorchs_numbers),
  };
  return test_main("oracle", tests, sizeof tests / sizeof *tests);
}
