/* costs.c - normal equations of each set of unknowns, columns scaled to 1; the best that has none below 0. */
#include "costs.h"

#include <math.h>
#include <stdbool.h>

enum { UNKNOWNS = 3, LEAST = 8 };

struct sums {
  double xx[UNKNOWNS][UNKNOWNS], xy[UNKNOWNS], yy, y;
};

/* Gauss with the largest pivot over the unknowns of the set; false: they depend on each other. */
static bool solve(const struct sums *s, int set, double out[UNKNOWNS])
{
  double m[UNKNOWNS][UNKNOWNS + 1];
  int of[UNKNOWNS], n = 0;
  for (int i = 0; i < UNKNOWNS; i++) {
    out[i] = 0;
    if (set >> i & 1) of[n++] = i;
  }
  for (int i = 0; i < n; i++) {
    for (int j = 0; j < n; j++) m[i][j] = s->xx[of[i]][of[j]];
    m[i][n] = s->xy[of[i]];
  }
  for (int k = 0; k < n; k++) {
    int pivot = k;
    for (int i = k + 1; i < n; i++)
      if (fabs(m[i][k]) > fabs(m[pivot][k])) pivot = i;
    if (fabs(m[pivot][k]) < 1e-10) return false; /* of columns scaled to 1 */
    for (int j = 0; j <= n; j++) {
      const double was = m[k][j];
      m[k][j] = m[pivot][j];
      m[pivot][j] = was;
    }
    for (int i = 0; i < n; i++) {
      const double factor = i == k ? 0 : m[i][k] / m[k][k];
      for (int j = k; j <= n; j++) m[i][j] -= factor * m[k][j];
    }
  }
  for (int k = 0; k < n; k++) out[of[k]] = m[k][n] / m[k][k];
  return true;
}

static double left_over(const struct sums *s, const double x[UNKNOWNS])
{
  double sum = s->yy;
  for (int i = 0; i < UNKNOWNS; i++) {
    sum -= 2 * x[i] * s->xy[i];
    for (int j = 0; j < UNKNOWNS; j++) sum += x[i] * x[j] * s->xx[i][j];
  }
  return fmax(sum, 0);
}

enum err costs_fit(const double *ms, const double *tokens, const double *pairs, int n, struct costs *out)
{
  struct sums s = {0};
  double scale[UNKNOWNS] = {1, 0, 0}, least = INFINITY, most = 0, best = INFINITY, x[UNKNOWNS] = {0};
  for (int i = 0; i < n; i++) {
    scale[1] = fmax(scale[1], tokens[i]);
    scale[2] = fmax(scale[2], pairs[i]);
    least = fmin(least, tokens[i]);
    most = fmax(most, tokens[i]);
  }
  if (n < LEAST || least >= most)
    FAIL(ERR_UNAVAILABLE, "no cost by length: %d micro-batches of %g to %g tokens; wanted: %d or more, of several lengths", n, least, most, LEAST);
  for (int k = 0; k < n; k++) {
    const double row[UNKNOWNS] = {1, tokens[k] / scale[1], scale[2] > 0 ? pairs[k] / scale[2] : 0};
    for (int i = 0; i < UNKNOWNS; i++) {
      for (int j = 0; j < UNKNOWNS; j++) s.xx[i][j] += row[i] * row[j] / n;
      s.xy[i] += row[i] * ms[k] / n;
    }
    s.yy += ms[k] * ms[k] / n;
    s.y += ms[k] / n;
  }
  for (int set = 1; set < 1 << UNKNOWNS; set++) {
    double try[UNKNOWNS];
    if (!solve(&s, set, try) || try[0] < 0 || try[1] < 0 || try[2] < 0) continue;
    const double left = left_over(&s, try);
    if (left >= best) continue;
    best = left;
    for (int i = 0; i < UNKNOWNS; i++) x[i] = try[i];
  }
  const double variance = s.yy - s.y * s.y;
  *out = (struct costs){.a = x[0], .b = x[1] / scale[1], .c = scale[2] > 0 ? x[2] / scale[2] : 0, .residual_ms = sqrt(best),
                        .explained = variance > 1e-12 * s.yy ? 1 - best / variance : 0, .n = n};
  return ERR_OK;
}
