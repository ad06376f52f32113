/* yaml.h - a YAML file as one tree with line and column, from libyaml's events.
 *
 * Scalars stay text: the options table gives them types.  Repeated keys of one
 * mapping, aliases, tags and a second document are ERR_CONFIG.  (Not yaml_free: libyaml
 * exports that name for itself.)
 */
#ifndef BASE_YAML_H
#define BASE_YAML_H
#include "base/err.h"

enum yaml_kind { YAML_SCALAR, YAML_LIST, YAML_MAP };
struct yaml {
  enum yaml_kind kind;
  int line, column;        /* from 1                                         */
  char *text;              /* scalar                                         */
  int n;                   /* children of a list, pairs of a map             */
  struct yaml **keys;      /* map: scalars                                   */
  struct yaml **values;    /* list and map                                   */
};
/* Is there a file to read?  Fails: ERR_CONFIG "what path: why" (also: it is a folder), a mistake of whoever named it. */
enum err yaml_look(const char *what, const char *path);
/* Owner of *out: the caller, until yaml_destroy().  Fails: ERR_IO, ERR_CONFIG "path:line:column: ...". */
enum err yaml_read(const char *path, struct yaml **out);
enum err yaml_parse(const char *text, const char *name, struct yaml **out);
void yaml_destroy(struct yaml *y);
struct yaml *yaml_get(const struct yaml *map, const char *key); /* NULL: none */
#endif
