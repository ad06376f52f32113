/* nearest.h - what a person may have meant: the names with the smallest edit distance,
 * and those that go on where the word stops. */
#ifndef BASE_NEAREST_H
#define BASE_NEAREST_H

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

enum { NEAREST_KEPT = 3 };

struct nearest {
  const char *word;
  int n;
  const char *name[NEAREST_KEPT]; /* closest first; equal ones in the order offered */
  int distance[NEAREST_KEPT];
};

/* Start with the word that was not found, offer every name, read the text.  Names
 * must live until then. */
struct nearest nearest_to(const char *word);
void nearest_offer(struct nearest *n, const char *name);
const char *nearest_text(const struct nearest *n, char *out, size_t bytes); /* "a, b, c"; returns out */

/* Letters to insert, delete, replace or swap with their neighbour, case ignored. */
int nearest_distance(const char *a, const char *b);

#ifdef __cplusplus
}
#endif
#endif
