/* suite_reader.h - what the parts of the suite reader share. */
#ifndef HARNESS_SUITE_READER_H
#define HARNESS_SUITE_READER_H

#include "harness/suite.h"

#include "base/yaml.h"

/* What every part needs to say where a mistake stands. */
struct reader {
  const char *path;
  struct suite *suite;
  int room;
  enum suite_form form;
  bool left_out; /* a sweep, of which this form has no case */
};

/* ERR_CONFIG "file:line:column: text". */
enum err reader_refuse(const struct reader *r, const struct yaml *at, const char *text);
enum err reader_expect(const struct reader *r, const struct yaml *y, enum yaml_kind kind, const char *what);
/* One key of a case, or all of a map (NULL: none), over what c has. */
enum err reader_set(const struct reader *r, const struct yaml *key, const struct yaml *value, struct suite_case *c);
enum err reader_set_all(const struct reader *r, const struct yaml *map, const char *what, struct suite_case *c);
/* One more case of the suite; its name is its own. */
enum err reader_append(struct reader *r, const struct yaml *at, const char *name, const struct suite_case *made);

#endif
