/* safetensors_write.c - all tensors at once, whole or not at all. */
#include "base/safetensors.h"

#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { ALIGN = 8, WIDEST = 8 }; /* the header is padded with blanks; bytes of the widest type */

static size_t bytes_of(const struct safetensor *t) { return (size_t)tensor_count(&t->data) * dtype_bytes(t->data.type); }

static enum err check_list(const struct safetensor *list, int n)
{
  for (int i = 0; i < n; i++) {
    const struct safetensor *t = &list[i];
    if (strcmp(t->name, "__metadata__") == 0) FAIL(ERR_ARG, "a tensor may not be called __metadata__");
    if ((t->rank != 1 && t->rank != 2) || (t->rank == 1 && t->data.rows != 1))
      FAIL(ERR_ARG, "tensor '%s': rank %d with %" PRId64 " rows", t->name, t->rank, t->data.rows);
    if (!tensor_contiguous(&t->data)) FAIL(ERR_ARG, "tensor '%s': stride %" PRId64 " leaves gaps", t->name, t->data.stride);
    for (int j = 0; j < i; j++)
      if (strcmp(t->name, list[j].name) == 0) FAIL(ERR_ARG, "tensor '%s' is listed twice", t->name);
  }
  return ERR_OK;
}

/* The header's JSON (too few entries: a name or value was not UTF-8, or memory ran out), data in the order of falling element size so that each is aligned. */
static json_t *header_json(const struct safetensor *list, int n, const char *const *meta)
{
  json_t *header = json_object();
  if (meta[0] != NULL) {
    json_t *pairs = json_object();
    for (int i = 0; meta[i] != NULL; i += 2) json_object_set_new(pairs, meta[i], json_string(meta[i + 1]));
    json_object_set_new(header, "__metadata__", pairs);
  }
  size_t end = 0;
  for (size_t width = WIDEST; width > 0; width /= 2)
    for (int i = 0; i < n; i++) {
      const struct safetensor *t = &list[i];
      if (dtype_bytes(t->data.type) != width) continue;
      json_t *shape = t->rank == 1 ? json_pack("[I]", (json_int_t)t->data.cols)
                                   : json_pack("[I, I]", (json_int_t)t->data.rows, (json_int_t)t->data.cols);
      const size_t begin = end;
      end += bytes_of(t);
      json_object_set_new(header, t->name,
                          json_pack("{s:s, s:o, s:[I, I]}", "dtype", dtype_safetensors(t->data.type), "shape", shape,
                                    "data_offsets", (json_int_t)begin, (json_int_t)end));
    }
  return header;
}

static bool put(FILE *file, const void *at, size_t bytes) { return bytes == 0 || fwrite(at, 1, bytes, file) == bytes; }

static bool put_all(FILE *file, const char *header, const struct safetensor *list, int n)
{
  const uint64_t length = (strlen(header) + ALIGN - 1) / ALIGN * ALIGN;
  unsigned char prefix[8];
  for (int i = 0; i < 8; i++) prefix[i] = (unsigned char)(length >> 8 * i);
  if (!put(file, prefix, sizeof prefix) || !put(file, header, strlen(header))) return false;
  if (!put(file, "       ", length - strlen(header))) return false;
  for (size_t width = WIDEST; width > 0; width /= 2)
    for (int i = 0; i < n; i++)
      if (dtype_bytes(list[i].data.type) == width && !put(file, list[i].data.at, bytes_of(&list[i]))) return false;
  return fflush(file) == 0;
}

static enum err write_file(const char *path, const char *temporary, const char *header, const struct safetensor *list, int n)
{
  enum err err;
  FILE *file = fopen(temporary, "wb");
  if (file == NULL) FAIL(ERR_IO, "%s: %s", temporary, strerror(errno));
  const bool written = put_all(file, header, list, n);
  const int reason = errno;
  if (fclose(file) != 0 || !written)
    FAIL_TO(remove_file, ERR_IO, "%s: %s", temporary, strerror(written ? errno : reason));
  if (rename(temporary, path) != 0) FAIL_TO(remove_file, ERR_IO, "%s: %s", path, strerror(errno));
  return ERR_OK;

remove_file:
  unlink(temporary);
  return err;
}

enum err safetensors_write(const char *path, const struct safetensor *list, int n, const char *const *meta)
{
  static const char *const no_meta[] = {NULL};
  enum err err;
  if (meta == NULL) meta = no_meta;
  TRY(check_list(list, n));
  char *temporary = malloc(strlen(path) + sizeof ".tmp");
  if (temporary == NULL) FAIL(ERR_MEMORY, "%s: %zu bytes", path, strlen(path) + sizeof ".tmp");
  strcat(strcpy(temporary, path), ".tmp");
  json_t *json = header_json(list, n, meta);
  size_t pairs = 0;
  while (meta[2 * pairs] != NULL) pairs++;
  const bool whole = json_object_size(json) == (size_t)n + (pairs > 0) && json_object_size(json_object_get(json, "__metadata__")) == pairs;
  char *header = json_dumps(json, JSON_COMPACT);
  json_decref(json);
  if (!whole) FAIL_TO(free_header, ERR_ARG, "%s: a name or a value is not UTF-8, or is listed twice", path);
  if (header == NULL) FAIL_TO(free_name, ERR_MEMORY, "%s: no memory for the header", path);
  TRY_TO(free_header, write_file(path, temporary, header, list, n));

free_header:
  free(header);
free_name:
  free(temporary);
  return err;
}
