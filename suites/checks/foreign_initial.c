/* foreign_initial.c - O1 of a foreign run: names, shapes and contents of its first weights. */
#include "foreign.h"
#include "observed.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>

/* Both tensors have one shape. */
struct pair {
  double *mine, *theirs; /* elements */
  int64_t rows, cols;
};

static int64_t first_difference(const struct pair *p)
{
  for (int64_t k = 0; k < p->rows * p->cols; k++)
    if (!(p->mine[k] == p->theirs[k])) return k;
  return -1;
}

static bool is_transposed(const struct pair *p)
{
  for (int64_t r = 0; p->rows == p->cols && r < p->rows; r++)
    for (int64_t c = 0; c < p->cols; c++)
      if (!(p->mine[r * p->cols + c] == p->theirs[c * p->cols + r])) return false;
  return p->rows == p->cols && p->rows > 1;
}

/* False: a verdict is said. */
static bool same(const char *name, const struct pair *p, struct verdict *out)
{
  const int64_t at = first_difference(p);
  if (at < 0) return true;
  verdict_first(out, -1, "%s[%" PRId64 "]", name, at);
  out->value = fabs(p->mine[at] - p->theirs[at]);
  out->bound = 0.0;
  if (is_transposed(p))
    verdict_say(out, OUTCOME_FAIL, "%s is the case's transposed; a case has matrices as Hugging Face's Conv1D, [in, out], torch.nn.Linear has [out, in]",
                name);
  else
    verdict_say(out, OUTCOME_FAIL, "%s starts from %.9g at element %" PRId64 ", the case from %.9g", name, p->mine[at], at, p->theirs[at]);
  return false;
}

/* name: in the run's file and in the case's. */
static enum err compare(const struct safetensors *mine, const char *name, const struct safetensors *theirs, const char *of, bool *equal,
                        struct verdict *out)
{
  const struct safetensor *a = safetensors_find(mine, name), *b = safetensors_find(theirs, of);
  struct pair p = {.rows = a->data.rows, .cols = a->data.cols};
  const int64_t n = p.rows * p.cols;
  enum err err = ERR_OK;
  p.mine = malloc((2 * (size_t)n + 1) * sizeof *p.mine);
  p.theirs = p.mine + n;
  if (p.mine == NULL) FAIL(ERR_MEMORY, "%" PRId64 " elements", n);
  TRY_TO(release, evidence_elements(&a->data, p.mine));
  TRY_TO(release, evidence_elements(&b->data, p.theirs));
  *equal = same(name, &p, out);
release:
  free(p.mine);
  return err;
}

static enum err judge(const struct safetensors *mine, const struct safetensors *theirs, struct verdict *out)
{
  double elements = 0.0;
  bool equal = true;
  if (observed_same_names(mine, theirs, "weights") != ERR_OK) {
    verdict_first(out, -1, "names and shapes");
    verdict_say(out, OUTCOME_FAIL, "%s", err_text());
    err_clear();
    return ERR_OK;
  }
  for (int i = 0; i < safetensors_count(theirs); i++) {
    const struct safetensor *t = safetensors_get(theirs, i);
    TRY(compare(mine, t->name, theirs, t->name, &equal, out));
    if (!equal) return ERR_OK;
    elements += (double)tensor_count(&t->data);
  }
  if (safetensors_find(mine, "lm_head.weight") != NULL && safetensors_find(theirs, "lm_head.weight") == NULL)
    TRY(compare(mine, "lm_head.weight", theirs, "transformer.wte.weight", &equal, out));
  if (equal) verdict_say(out, OUTCOME_PASS, "%d parameters, %.0f elements, contents equal to the case's", safetensors_count(theirs), elements);
  return ERR_OK;
}

void foreign_initial(const struct run_data *run, const struct run_data *truth, struct verdict *out)
{
  struct safetensors *mine = NULL, *theirs = NULL;
  enum err err = ERR_OK;
  if (!evidence_has_tensors(run, "weights", 0)) {
    verdict_unseen(out, "no weights of step 0", "another start, a parameter too few or too many, a transposed matrix");
    return;
  }
  TRY_TO(say, evidence_tensors(run, "weights", 0, &mine));
  TRY_TO(say, evidence_tensors(truth, "weights", 0, &theirs));
  TRY_TO(say, judge(mine, theirs, out));
say:
  if (err) verdict_say(out, OUTCOME_INVALID, "the first weights cannot be compared: %s", err_text());
  safetensors_close(mine);
  safetensors_close(theirs);
}
