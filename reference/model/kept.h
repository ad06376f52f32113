/* kept.h - O15: copies of what the last forward put out and of the gradients in it, for who asks. */
#ifndef MODEL_KEPT_H
#define MODEL_KEPT_H

#include "device/dev.h"

struct model;

/* Outputs of -1 (embedding) .. L (final norm), L + 1 (losses, f64), then gradients of -1 .. L. */
struct kept {
  struct tensor *list; /* NULL: nobody asked; at NULL: another stage's */
  void *block;
  size_t bytes;
};

/* For run->dump == DUMP_ALL; otherwise nothing is taken. */
enum err kept_create(struct model *m);
void kept_destroy(struct model *m);

/* x is block `layer`'s output, or the gradient in it; copied if asked for. */
enum err kept_store(const struct model *m, int64_t layer, bool gradient, const struct tensor *x);

#endif
