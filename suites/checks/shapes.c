/* shapes.c - the rows of GPT-2 by number. */
#include "shapes.h"

#include <stdio.h>
#include <string.h>

/* Dimensions in multiples of the hidden size C; 0 rows: a vector. */
static const struct {
  const char *name;
  int rows, cols;
  enum shape_cut cut;
} block[SHAPES_A_BLOCK] = {
    {"ln_1.weight", 0, 1, SHAPE_WHOLE},       {"ln_1.bias", 0, 1, SHAPE_WHOLE},
    {"attn.c_attn.weight", 1, 3, SHAPE_COLS}, {"attn.c_attn.bias", 0, 3, SHAPE_COLS},
    {"attn.c_proj.weight", 1, 1, SHAPE_ROWS}, {"attn.c_proj.bias", 0, 1, SHAPE_WHOLE},
    {"ln_2.weight", 0, 1, SHAPE_WHOLE},       {"ln_2.bias", 0, 1, SHAPE_WHOLE},
    {"mlp.c_fc.weight", 1, 4, SHAPE_COLS},    {"mlp.c_fc.bias", 0, 4, SHAPE_COLS},
    {"mlp.c_proj.weight", 4, 1, SHAPE_ROWS},  {"mlp.c_proj.bias", 0, 1, SHAPE_WHOLE},
};

enum { UNUSED_ELEMENTS = 7 }; /* a vector whose length divides nothing */

int64_t shapes_blocks(const struct run_config *c) { return c->layers - c->reused; }

int shapes_count(const struct run_config *c)
{
  return (int)(2 + SHAPES_A_BLOCK * shapes_blocks(c) + 2 + !c->tied + c->unused);
}

static bool asked_frozen(const struct run_config *c, const char *name)
{
  return c->frozen[0] != '\0' && strstr(name, c->frozen) != NULL;
}

static bool is(const struct run_config *c, struct shape *out, const char *name, int64_t rows, int64_t cols)
{
  const bool vocabulary = strstr(name, "wte") || strstr(name, "lm_head");
  *out = (struct shape){.rows = rows,
                        .cols = cols,
                        .layer = -1,
                        .cut = vocabulary ? SHAPE_ROWS : SHAPE_WHOLE,
                        .decay = rows > 1,
                        .frozen = asked_frozen(c, name),
                        .unused = strcmp(name, "extra.unused") == 0,
                        .zero_gradient = strstr(name, "c_attn.bias") != NULL};
  snprintf(out->name, sizeof out->name, "%s", name);
  return true;
}

/* Row `row` of block l; the block that shares its storage, if any, freezes it too. */
static bool is_of_block(const struct run_config *c, struct shape *out, int l, int row)
{
  const int64_t C = c->hidden;
  char name[96], twin[96];
  snprintf(name, sizeof name, "transformer.h.%d.%s", l, block[row].name);
  snprintf(twin, sizeof twin, "transformer.h.%d.%s", (int)shapes_blocks(c) + l, block[row].name);
  is(c, out, name, block[row].rows ? block[row].rows * C : 1, block[row].cols * C);
  out->layer = l;
  out->cut = block[row].cut;
  out->frozen = out->frozen || (l < c->reused && asked_frozen(c, twin));
  return true;
}

bool shapes_at(const struct run_config *c, int i, struct shape *out)
{
  const int64_t C = c->hidden;
  const int blocks = (int)(SHAPES_A_BLOCK * shapes_blocks(c));
  if (i < 0 || i >= shapes_count(c)) return false;
  if (i == 0) return is(c, out, "transformer.wte.weight", c->vocab, C);
  if (i == 1) return is(c, out, "transformer.wpe.weight", c->positions, C);
  if (i < 2 + blocks) return is_of_block(c, out, (i - 2) / SHAPES_A_BLOCK, (i - 2) % SHAPES_A_BLOCK);
  i -= 2 + blocks;
  if (i == 0) return is(c, out, "transformer.ln_f.weight", 1, C);
  if (i == 1) return is(c, out, "transformer.ln_f.bias", 1, C);
  if (i == 2 && !c->tied) return is(c, out, "lm_head.weight", c->vocab, C);
  return is(c, out, "extra.unused", 1, UNUSED_ELEMENTS);
}

static bool is_here(const struct run_config *c, const struct partition *stages, const struct layout *at,
                    const struct shape *s)
{
  if (s->layer >= 0) return layout_has_layer(c, stages, at, s->layer);
  if (strstr(s->name, "wte")) return layout_is_first(at) || (c->tied && layout_is_last(c, at));
  if (strstr(s->name, "ln_f") || strstr(s->name, "lm_head")) return layout_is_last(c, at);
  return layout_is_first(at);
}

bool shapes_part(const struct run_config *c, const struct partition *stages, const struct layout *at, int i,
                 struct shape *out)
{
  if (!shapes_at(c, i, out)) return false;
  if (out->cut == SHAPE_ROWS) out->rows = (out->rows + c->tp - 1) / c->tp;
  if (out->cut == SHAPE_COLS) out->cols /= c->tp;
  if (!is_here(c, stages, at, out)) out->rows = out->cols = 0;
  return true;
}

double shapes_elements(const struct run_config *c)
{
  double elements = 0.0;
  struct shape s;
  for (int i = 0; shapes_at(c, i, &s); i++)
    if (!s.unused) elements += (double)s.rows * (double)s.cols;
  return elements;
}
