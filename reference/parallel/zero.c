/* zero.c - weights by unit. */
#include "parallel/zero.h"

#include <stdlib.h>

struct zero {
  struct zero_config given;
  size_t element; /* bytes */
};

enum err zero_create(const struct zero_config *c, struct zero **out)
{
  *out = NULL;
  struct zero *z = calloc(1, sizeof *z);
  if (z == NULL) FAIL(ERR_MEMORY, "zero: %zu bytes", sizeof *z);
  z->given = *c;
  z->element = dtype_bytes(run_work_type(c->run));
  *out = z;
  return ERR_OK;
}

void zero_destroy(struct zero *z) { free(z); }

static enum err expect_unit(const struct zero *z, int unit)
{
  if (unit < 0 || unit >= z->given.flat->n_units) FAIL(ERR_ARG, "unit %d of %d", unit, z->given.flat->n_units);
  return ERR_OK;
}

enum err zero_need(struct zero *z, int unit, enum zero_pass pass)
{
  (void)pass;
  return expect_unit(z, unit);
}

void *zero_weights(const struct zero *z, int unit)
{
  return (char *)z->given.weights + (size_t)z->given.flat->units[unit].first * z->element;
}

enum err zero_done(struct zero *z, int unit) { return expect_unit(z, unit); }
