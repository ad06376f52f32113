/* nearest.c - restricted Damerau-Levenshtein distance over short words. */
#include "base/nearest.h"

#include <ctype.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

enum { LONGEST = 63 }; /* letters that are compared: names here are shorter */

static int least(int a, int b) { return a < b ? a : b; }
static bool same(char a, char b) { return tolower((unsigned char)a) == tolower((unsigned char)b); }

int nearest_distance(const char *a, const char *b)
{
  const int n = (int)strnlen(a, LONGEST), m = (int)strnlen(b, LONGEST);
  int cost[3][LONGEST + 1]; /* rows i, i - 1, i - 2 of the table, by i % 3 */
  for (int j = 0; j <= m; j++) cost[0][j] = j;
  for (int i = 1; i <= n; i++) {
    int *row = cost[i % 3];
    const int *above = cost[(i + 2) % 3], *second = cost[(i + 1) % 3];
    row[0] = i;
    for (int j = 1; j <= m; j++) {
      row[j] = least(least(above[j], row[j - 1]) + 1, above[j - 1] + !same(a[i - 1], b[j - 1]));
      if (i > 1 && j > 1 && same(a[i - 1], b[j - 2]) && same(a[i - 2], b[j - 1]))
        row[j] = least(row[j], second[j - 2] + 1);
    }
  }
  return cost[n % 3][m];
}

struct nearest nearest_to(const char *word)
{
  struct nearest n = {.word = word};
  return n;
}

void nearest_offer(struct nearest *n, const char *name)
{
  const size_t letters = strlen(n->word);
  const bool begins = letters > 0 && strncasecmp(n->word, name, letters) == 0; /* a name cut short */
  const int distance = begins ? 1 : nearest_distance(n->word, name);
  int at = n->n;
  while (at > 0 && n->distance[at - 1] > distance) at--;
  if (at == NEAREST_KEPT) return;
  if (n->n < NEAREST_KEPT) n->n++;
  for (int i = n->n - 1; i > at; i--) {
    n->name[i] = n->name[i - 1];
    n->distance[i] = n->distance[i - 1];
  }
  n->name[at] = name;
  n->distance[at] = distance;
}

const char *nearest_text(const struct nearest *n, char *out, size_t bytes)
{
  size_t used = 0;
  out[0] = '\0';
  for (int i = 0; i < n->n && used < bytes; i++)
    used += (size_t)snprintf(out + used, bytes - used, "%s%s", i ? ", " : "", n->name[i]);
  return out;
}
