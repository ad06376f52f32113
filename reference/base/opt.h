/* opt.h - one table row is one option: parsing, help, README, echo.  */
#ifndef BASE_OPT_H
#define BASE_OPT_H

#include "base/err.h"
#include <jansson.h>
#include <stdint.h>
#include <stdio.h>

#ifdef __cplusplus
extern "C" {
#endif

enum opt_type {
  OPT_INT,  /* int64_t; allowed "lo..hi"                                  */
  OPT_REAL, /* double, finite; allowed "lo..hi"                           */
  OPT_BOOL, /* bool; true or false                                        */
  OPT_NAME, /* int64_t; allowed "a|b|c", the value is the index           */
  OPT_TEXT  /* char[room]; allowed "" or a hint                           */
};

struct opt {
  const char *key;
  enum opt_type type;
  size_t offset, room; /* place in the struct; bytes of a text            */
  const char *initial; /* default, in the same spelling as the file's     */
  const char *allowed, *unit, *meaning;
};

/* For one option: `text` into the struct at `base`.  `where` ("run.yaml:3") starts the
 * message; NULL: none.  Numbers are parsed whole.  Fails: ERR_CONFIG. */
enum err opt_set(const struct opt *o, void *base, const char *text, const char *where);
/* By key.  An unknown key's message names the nearest keys by edit distance. */
enum err opt_set_key(const struct opt *table, int n, void *base, const char *key, const char *text, const char *where);
void opt_defaults(const struct opt *table, int n, void *base);
const struct opt *opt_find(const struct opt *table, int n, const char *key);
/* The value as the file would spell it; numbers so that they read back equal. */
void opt_text(const struct opt *o, const void *base, char *out, size_t bytes);
/* The value as JSON with its own type, for set.* and list options. */
json_t *opt_json(const struct opt *o, const void *base);
json_t *opt_table_json(const struct opt *table, int n);          /* new reference */
void opt_table_markdown(const struct opt *table, int n, FILE *out);
void opt_table_help(const struct opt *table, int n, FILE *out);

#ifdef __cplusplus
}
#endif
#endif
