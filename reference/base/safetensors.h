/* safetensors.h - named matrices in one file, in the safetensors format.
 *
 * 8 bytes little-endian header length, a JSON header {name: {dtype, shape,
 * data_offsets}}, then the data.  A vector (rows == 1, rank 1 in the file) and a
 * matrix are told apart by `rank`.  Entries of another rank or of a type that enum
 * dtype lacks (masks in published files) are passed over: not counted, not found.
 */
#ifndef BASE_SAFETENSORS_H
#define BASE_SAFETENSORS_H

#include "base/tensor.h"

#ifdef __cplusplus
extern "C" {
#endif

struct safetensor {
  const char *name;   /* owned by the file on reading, by the caller on writing */
  struct tensor data; /* contiguous                                             */
  int rank;           /* 1 or 2 dimensions in the file                          */
};

/* Write all at once to `path` (through path.tmp and rename: never half a file).
 * `meta` is NULL or pairs of strings, key, value, ..., NULL.  Fails: ERR_IO, ERR_ARG (a name
 * twice, a view with gaps, a shape that is not its rank's), ERR_MEMORY. */
enum err safetensors_write(const char *path, const struct safetensor *list, int n, const char *const *meta);

/* Map a file; its data may only be read.  Every offset, shape and length is checked before
 * use.  Fails: ERR_IO, ERR_FORMAT (with the path and what is wrong), ERR_MEMORY. */
struct safetensors;
enum err safetensors_open(const char *path, struct safetensors **out);
void safetensors_close(struct safetensors *f);
int safetensors_count(const struct safetensors *f);
const struct safetensor *safetensors_get(const struct safetensors *f, int i);
const struct safetensor *safetensors_find(const struct safetensors *f, const char *name); /* NULL: none */
const char *safetensors_meta(const struct safetensors *f, const char *key);               /* NULL: none */

#ifdef __cplusplus
}
#endif
#endif
