/* shapes.c - the rows of GPT-2 by number. */
#include "shapes.h"

#include <stdio.h>

/* Dimensions in multiples of the hidden size C; 0 rows: a vector. */
static const struct {
  const char *name;
  int rows, cols;
} block[SHAPES_A_BLOCK] = {
  {"ln_1.weight", 0, 1},    {"ln_1.bias", 0, 1},     {"attn.c_attn.weight", 1, 3}, {"attn.c_attn.bias", 0, 3},
  {"attn.c_proj.weight", 1, 1}, {"attn.c_proj.bias", 0, 1}, {"ln_2.weight", 0, 1}, {"ln_2.bias", 0, 1},
  {"mlp.c_fc.weight", 1, 4}, {"mlp.c_fc.bias", 0, 4}, {"mlp.c_proj.weight", 4, 1}, {"mlp.c_proj.bias", 0, 1},
};

enum { UNUSED_ELEMENTS = 7 }; /* a vector whose length divides nothing */

int64_t shapes_blocks(const struct run_config *c) { return c->layers - c->reused; }

int shapes_count(const struct run_config *c)
{
  return (int)(2 + SHAPES_A_BLOCK * shapes_blocks(c) + 2 + !c->tied + c->unused);
}

static bool is(struct shape *out, const char *name, int64_t rows, int64_t cols, bool unused)
{
  snprintf(out->name, sizeof out->name, "%s", name);
  out->rows = rows;
  out->cols = cols;
  out->unused = unused;
  return true;
}

bool shapes_at(const struct run_config *c, int i, struct shape *out)
{
  const int64_t C = c->hidden;
  const int blocks = (int)(SHAPES_A_BLOCK * shapes_blocks(c));
  if (i < 0 || i >= shapes_count(c)) return false;
  if (i == 0) return is(out, "transformer.wte.weight", c->vocab, C, false);
  if (i == 1) return is(out, "transformer.wpe.weight", c->positions, C, false);
  if (i < 2 + blocks) {
    const int row = (i - 2) % SHAPES_A_BLOCK;
    char name[96];
    snprintf(name, sizeof name, "transformer.h.%d.%s", (i - 2) / SHAPES_A_BLOCK, block[row].name);
    return is(out, name, block[row].rows ? block[row].rows * C : 1, block[row].cols * C, false);
  }
  i -= 2 + blocks;
  if (i == 0) return is(out, "transformer.ln_f.weight", 1, C, false);
  if (i == 1) return is(out, "transformer.ln_f.bias", 1, C, false);
  if (i == 2 && !c->tied) return is(out, "lm_head.weight", c->vocab, C, false);
  return is(out, "extra.unused", 1, UNUSED_ELEMENTS, true);
}

double shapes_elements(const struct run_config *c)
{
  double elements = 0.0;
  struct shape s;
  for (int i = 0; shapes_at(c, i, &s); i++)
    if (!s.unused) elements += (double)s.rows * (double)s.cols;
  return elements;
}
