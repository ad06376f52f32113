/* framework_curve.c - for the report: the verdict is the check's. */
#include "harness/framework_curve.h"
#include "harness/results.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { STEPS_MAX = 1024 };

/* Loss of each step as rank 0 tells it, NaN where it does not.  Returns how many steps, at most STEPS_MAX. */
static int losses_of(const char *dir, double out[STEPS_MAX])
{
  json_t *records, *r;
  size_t i;
  int n = 0;
  for (int s = 0; s < STEPS_MAX; s++) out[s] = NAN;
  if (results_read_run(dir, &records) != ERR_OK) {
    err_clear();
    return 0;
  }
  json_array_foreach(records, i, r)
  {
    const char *kind = json_string_value(json_object_get(r, "kind"));
    const int64_t step = record_get_int(r, "step", -1);
    if (kind == NULL || strcmp(kind, "step") != 0 || step < 0 || step >= STEPS_MAX || record_get_int(r, "rank", 0) != 0) continue;
    out[step] = record_get_real(r, "got.loss", NAN);
    if (isnan(out[step])) out[step] = record_get_real(r, "got.loss_sum", NAN) / record_get_real(r, "got.valid_tokens", NAN);
    if (step >= n) n = (int)step + 1;
  }
  json_decref(records);
  return n;
}

/* q and bound of each step's loss. */
static void bounds_of(const char *against, const char *precision, double q[STEPS_MAX], double bound[STEPS_MAX])
{
  char path[CONFIG_PATH + 64];
  json_t *row;
  size_t i;
  for (int s = 0; s < STEPS_MAX; s++) q[s] = bound[s] = NAN;
  snprintf(path, sizeof path, "%s/bounds.%s.json", against, precision);
  json_t *all = json_load_file(path, 0, NULL);
  json_array_foreach(json_object_get(all, "loss"), i, row)
  {
    const json_int_t step = json_integer_value(json_object_get(row, "step"));
    if (step < 0 || step >= STEPS_MAX) continue;
    q[step] = record_get_real(row, "q", NAN);
    bound[step] = record_get_real(row, "bound", NAN);
  }
  json_decref(all);
}

void framework_curve(struct record_file *f, const char *dir, const char *against, const char *precision)
{
  double truth[STEPS_MAX], loss[STEPS_MAX], off[STEPS_MAX], q[STEPS_MAX], bound[STEPS_MAX];
  char path[CONFIG_PATH + 16];
  snprintf(path, sizeof path, "%s/truth", against);
  const int n = losses_of(path, truth);
  losses_of(dir, loss);
  bounds_of(against, precision, q, bound);
  for (int s = 0; s < n; s++) off[s] = fabs(loss[s] - truth[s]) / fabs(truth[s]);
  if (n == 0) return;
  record_reals(f, "got.loss", loss, n);
  record_reals(f, "got.loss_truth", truth, n);
  record_reals(f, "got.loss_off", off, n);
  record_reals(f, "got.loss_serial", q, n);
  record_reals(f, "got.loss_bound", bound, n);
}
