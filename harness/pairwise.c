/* pairwise.c - greedy over all legal rows of one leading value at a time. */
#include "harness/pairwise.h"

#include <stdlib.h>
#include <string.h>

/* Which pairs (value x of axis a, value y of axis b > a, a > 0) have met, and which of the leading value's. */
struct cover {
  struct pairwise *p;
  int first[PAIRWISE_AXES + 1]; /* number of an axis' first value among all values */
  int values;                   /* of all axes but the leading one                 */
  bool *met;                    /* [values][values]                                */
  bool *met_here, *possible_here; /* [values], with the leading value at hand        */
  int *legal, n_legal, room_legal; /* rows of the leading value at hand              */
  int room;                     /* rows that p->rows has place for                 */
};

struct score {
  int here, pairs, alike;
};

static int value(const struct cover *c, int axis, int number) { return c->first[axis] + number; }

static bool is_better(struct score a, struct score b)
{
  if (a.here != b.here) return a.here > b.here;
  if (a.pairs != b.pairs) return a.pairs > b.pairs;
  return a.alike > b.alike;
}

static int alike(const struct cover *c, const int *row)
{
  int most = 0;
  for (int i = 0; i < c->p->n; i++) {
    int same = 0;
    for (int a = 1; a < c->p->axes; a++) same += c->p->rows[i * c->p->axes + a] == row[a];
    if (same > most) most = same;
  }
  return most;
}

static struct score score_of(const struct cover *c, const int *row)
{
  struct score s = {0};
  for (int a = 1; a < c->p->axes; a++) {
    const int x = value(c, a, row[a]);
    s.here += !c->met_here[x];
    for (int b = a + 1; b < c->p->axes; b++) s.pairs += !c->met[x * c->values + value(c, b, row[b])];
  }
  s.alike = alike(c, row);
  return s;
}


static enum err grow(int **list, int n, int *room, int axes)
{
  if (n < *room) return ERR_OK;
  const int wanted = *room ? 2 * *room : 64;
  int *more = realloc(*list, (size_t)wanted * (size_t)axes * sizeof *more);
  if (more == NULL) FAIL(ERR_MEMORY, "%d rows of %d values", wanted, axes);
  *list = more;
  *room = wanted;
  return ERR_OK;
}

static enum err take(struct cover *c, const int *row)
{
  struct pairwise *p = c->p;
  TRY(grow(&p->rows, p->n, &c->room, p->axes));
  memcpy(p->rows + p->n++ * p->axes, row, (size_t)p->axes * sizeof *row);
  for (int a = 1; a < p->axes; a++) {
    const int x = value(c, a, row[a]);
    c->met_here[x] = true;
    for (int b = a + 1; b < p->axes; b++) c->met[x * c->values + value(c, b, row[b])] = true;
  }
  return ERR_OK;
}

/* All legal rows of one leading value, and what they can meet. */
static enum err list_legal(struct cover *c, int leading)
{
  const struct pairwise *p = c->p;
  int row[PAIRWISE_AXES] = {leading};
  c->n_legal = 0;
  memset(c->met_here, 0, (size_t)c->values * sizeof *c->met_here);
  memset(c->possible_here, 0, (size_t)c->values * sizeof *c->possible_here);
  for (;;) {
    if (p->legal == NULL || p->legal(p->arg, row)) {
      TRY(grow(&c->legal, c->n_legal, &c->room_legal, p->axes));
      memcpy(c->legal + c->n_legal++ * p->axes, row, (size_t)p->axes * sizeof *row);
      for (int a = 1; a < p->axes; a++) c->possible_here[value(c, a, row[a])] = true;
    }
    int a = p->axes - 1; /* an odometer: the last axis turns fastest */
    while (a > 0 && ++row[a] == p->size[a]) row[a--] = 0;
    if (a == 0) return ERR_OK;
  }
}

static bool is_met_here(const struct cover *c)
{
  for (int x = 0; x < c->values; x++)
    if (c->possible_here[x] && !c->met_here[x]) return false;
  return true;
}

static enum err take_best(struct cover *c)
{
  const int *best = NULL;
  struct score high = {-1, -1, -1};
  for (int i = 0; i < c->n_legal; i++) {
    const int *row = c->legal + i * c->p->axes;
    const struct score s = score_of(c, row);
    if (is_better(s, high)) high = s, best = row;
  }
  return take(c, best);
}

/* Pairs that could have met and did not, as each leading value had all it needed: one more row for each. */
static enum err take_rest(struct cover *c)
{
  for (int leading = 0; leading < c->p->size[0]; leading++) {
    TRY(list_legal(c, leading));
    for (int i = 0; i < c->n_legal; i++) {
      const int *row = c->legal + i * c->p->axes;
      if (score_of(c, row).pairs > 0) TRY(take(c, row));
    }
  }
  return ERR_OK;
}

static enum err make(struct cover *c)
{
  for (int leading = 0; leading < c->p->size[0]; leading++) {
    TRY(list_legal(c, leading));
    if (c->n_legal == 0) continue;
    do TRY(take_best(c));
    while (!is_met_here(c));
  }
  return take_rest(c);
}

enum err pairwise_make(struct pairwise *p)
{
  enum err err = ERR_OK;
  struct cover c = {.p = p};
  p->rows = NULL;
  p->n = 0;
  if (p->axes < 1 || p->axes > PAIRWISE_AXES) FAIL(ERR_ARG, "%d axes; valid: 1..%d", p->axes, PAIRWISE_AXES);
  for (int a = 0; a < p->axes; a++) {
    if (p->size[a] < 1) FAIL(ERR_ARG, "axis %d has %d values", a, p->size[a]);
    c.first[a] = c.values;
    if (a > 0) c.values += p->size[a];
  }
  const size_t n = (size_t)c.values;
  c.met = calloc(n * n + 1, sizeof *c.met);
  c.met_here = calloc(n + 1, sizeof *c.met_here);
  c.possible_here = calloc(n + 1, sizeof *c.possible_here);
  if (!c.met || !c.met_here || !c.possible_here) FAIL_TO(release, ERR_MEMORY, "pairs of %zu values", n);
  TRY_TO(release, make(&c));
release:
  free(c.met);
  free(c.met_here);
  free(c.possible_here);
  free(c.legal);
  if (err) {
    free(p->rows);
    p->rows = NULL;
    p->n = 0;
  }
  return err;
}
