/* record_keys.h - keys.def, env.def and the options as one table of what a record may say. */
#ifndef BASE_RECORD_KEYS_H
#define BASE_RECORD_KEYS_H

#include <jansson.h>
#include <stdbool.h>

#ifdef __cplusplus
extern "C" {
#endif

bool record_kind_known(const char *kind);
/* "int", "real", "bool", "text", "ints", "reals", "texts", "json"; NULL: `kind` has no such key. */
const char *record_key_type(const char *kind, const char *key);
bool record_type_fits(const char *type, const json_t *value); /* a real may be "nan", "inf", "-inf" */

#ifdef __cplusplus
}
#endif
#endif
