/* safetensors.c - a mapped file whose header is believed only after every number in it
 * has been checked against the file's length. */
#include "base/safetensors.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

enum { PREFIX = 8, HEADER_MAX = 100000000 }; /* the format's own limit */

struct safetensors {
  const char *path; /* the caller's, only while opening */
  unsigned char *map;
  size_t map_bytes, data_at, data_bytes;
  json_t *header; /* owns names and metadata */
  struct safetensor *list;
  void **copies; /* of data that does not lie at a multiple of its element size */
  int n;
};

/* A place in the data that an entry claims. */
struct claim {
  uint64_t begin, end;
  const char *name;
};

static enum err map_file(struct safetensors *f)
{
  enum err err;
  const int file = open(f->path, O_RDONLY | O_CLOEXEC);
  if (file < 0) FAIL(ERR_IO, "%s: %s", f->path, strerror(errno));
  struct stat about;
  if (fstat(file, &about) != 0) FAIL_TO(close_file, ERR_IO, "%s: %s", f->path, strerror(errno));
  if (!S_ISREG(about.st_mode)) FAIL_TO(close_file, ERR_IO, "%s: not a regular file", f->path);
  if (about.st_size < PREFIX)
    FAIL_TO(close_file, ERR_FORMAT, "%s: %jd bytes are too few for a safetensors file", f->path, (intmax_t)about.st_size);
  void *map = mmap(NULL, (size_t)about.st_size, PROT_READ, MAP_PRIVATE, file, 0);
  if (map == MAP_FAILED) FAIL_TO(close_file, ERR_IO, "%s: mmap: %s", f->path, strerror(errno));
  f->map = map;
  f->map_bytes = (size_t)about.st_size;
  err = ERR_OK;

close_file:
  close(file);
  return err;
}

static enum err read_header(struct safetensors *f)
{
  uint64_t length = 0;
  for (int i = 0; i < PREFIX; i++) length |= (uint64_t)f->map[i] << 8 * i;
  if (length > f->map_bytes - PREFIX || length > HEADER_MAX)
    FAIL(ERR_FORMAT, "%s: a header of %" PRIu64 " bytes in a file of %zu", f->path, length, f->map_bytes);
  const char *text = (const char *)f->map + PREFIX;
  if (length == 0 || text[0] != '{') FAIL(ERR_FORMAT, "%s: the header does not begin with '{'", f->path);
  json_error_t error;
  f->header = json_loadb(text, length, JSON_REJECT_DUPLICATES, &error);
  if (f->header == NULL) FAIL(ERR_FORMAT, "%s: header: %s", f->path, error.text);
  f->data_at = PREFIX + length;
  f->data_bytes = f->map_bytes - f->data_at;
  return ERR_OK;
}

static enum err check_meta(const struct safetensors *f)
{
  json_t *meta = json_object_get(f->header, "__metadata__"), *value;
  const char *key;
  if (meta == NULL) return ERR_OK;
  if (!json_is_object(meta)) FAIL(ERR_FORMAT, "%s: __metadata__ is not an object", f->path);
  json_object_foreach(meta, key, value)
    if (!json_is_string(value)) FAIL(ERR_FORMAT, "%s: __metadata__ '%s' is not text", f->path, key);
  return ERR_OK;
}

/* A number that is there, whole and not negative. */
static bool natural(const json_t *value, int64_t *out)
{
  if (!json_is_integer(value) || json_integer_value(value) < 0) return false;
  *out = json_integer_value(value);
  return true;
}

/* Shape, type and claim of one entry.  *listed: it is of a rank and type that we hold. */
static enum err read_entry(struct safetensors *f, const char *name, const json_t *entry, struct claim *claim, bool *listed)
{
  const json_t *type_name = json_object_get(entry, "dtype"), *shape = json_object_get(entry, "shape"),
               *offsets = json_object_get(entry, "data_offsets");
  if (!json_is_string(type_name) || !json_is_array(shape) || !json_is_array(offsets) || json_object_size(entry) != 3)
    FAIL(ERR_FORMAT, "%s: '%s' has not exactly dtype, shape and data_offsets", f->path, name);

  int64_t begin, end;
  if (json_array_size(offsets) != 2 || !natural(json_array_get(offsets, 0), &begin) || !natural(json_array_get(offsets, 1), &end))
    FAIL(ERR_FORMAT, "%s: '%s': data_offsets are not two whole numbers", f->path, name);
  if (begin > end || (uint64_t)end > f->data_bytes)
    FAIL(ERR_FORMAT, "%s: '%s' lies at [%" PRId64 ", %" PRId64 ") of %zu bytes of data", f->path, name, begin, end, f->data_bytes);
  *claim = (struct claim){(uint64_t)begin, (uint64_t)end, name};

  const size_t rank = json_array_size(shape);
  int64_t size[2] = {1, 1}, elements = 1, bytes;
  for (size_t i = 0; i < rank; i++) {
    int64_t along;
    if (!natural(json_array_get(shape, i), &along)) FAIL(ERR_FORMAT, "%s: '%s': shape is not whole numbers", f->path, name);
    if (__builtin_mul_overflow(elements, along, &elements)) FAIL(ERR_FORMAT, "%s: '%s': shape overflows", f->path, name);
    if (i < 2) size[i] = along;
  }
  enum dtype type;
  *listed = dtype_parse(json_string_value(type_name), &type) == ERR_OK && strcmp(json_string_value(type_name), dtype_safetensors(type)) == 0;
  if (!*listed) {
    err_clear(); /* a type that we do not hold is no failure */
    return ERR_OK;
  }
  if (__builtin_mul_overflow(elements, (int64_t)dtype_bytes(type), &bytes) || bytes != end - begin)
    FAIL(ERR_FORMAT, "%s: '%s': %" PRId64 " elements of %s do not fill its %" PRId64 " bytes", f->path, name, elements,
         dtype_name(type), end - begin);
  *listed = rank == 1 || rank == 2;
  if (!*listed) return ERR_OK;

  unsigned char *at = f->map + f->data_at + begin;
  if ((uintptr_t)at % dtype_bytes(type) != 0) { /* the format asks nobody to align */
    void *copy = malloc((size_t)bytes + 1);
    if (copy == NULL) FAIL(ERR_MEMORY, "%s: '%s': %" PRId64 " bytes", f->path, name, bytes);
    f->copies[f->n] = at = memcpy(copy, at, (size_t)bytes);
  }
  f->list[f->n++] = (struct safetensor){
    .name = name, .data = tensor_at(at, type, rank == 1 ? 1 : size[0], rank == 1 ? size[0] : size[1]), .rank = (int)rank};
  return ERR_OK;
}

static int by_begin(const void *a, const void *b)
{
  const struct claim *x = a, *y = b;
  if (x->begin != y->begin) return x->begin < y->begin ? -1 : 1;
  return (x->end > y->end) - (x->end < y->end);
}

/* The format allows neither overlap nor hole: what lies in the file belongs to one entry. */
static enum err check_claims(const struct safetensors *f, struct claim *claims, size_t n)
{
  qsort(claims, n, sizeof *claims, by_begin);
  uint64_t end = 0;
  for (size_t i = 0; i < n; i++) {
    if (claims[i].begin != end)
      FAIL(ERR_FORMAT, "%s: '%s' begins at byte %" PRIu64 " of the data, the one before it ends at %" PRIu64, f->path,
           claims[i].name, claims[i].begin, end);
    end = claims[i].end;
  }
  if (end != f->data_bytes)
    FAIL(ERR_FORMAT, "%s: %" PRIu64 " bytes of data are described, %zu are there", f->path, end, f->data_bytes);
  return ERR_OK;
}

static enum err read_entries(struct safetensors *f)
{
  enum err err = ERR_OK;
  const size_t room = json_object_size(f->header) + 1;
  f->list = calloc(room, sizeof *f->list);
  f->copies = calloc(room, sizeof *f->copies);
  struct claim *claims = calloc(room, sizeof *claims);
  if (f->list == NULL || f->copies == NULL || claims == NULL)
    FAIL_TO(free_claims, ERR_MEMORY, "%s: %zu entries", f->path, room);
  size_t n = 0;
  const char *name;
  json_t *entry;
  json_object_foreach(f->header, name, entry)
  {
    bool listed;
    if (strcmp(name, "__metadata__") != 0) TRY_TO(free_claims, read_entry(f, name, entry, &claims[n++], &listed));
  }
  TRY_TO(free_claims, check_claims(f, claims, n));

free_claims:
  free(claims);
  return err;
}

enum err safetensors_open(const char *path, struct safetensors **out)
{
  enum err err;
  *out = NULL;
  struct safetensors *f = calloc(1, sizeof *f);
  if (f == NULL) FAIL(ERR_MEMORY, "%s: %zu bytes", path, sizeof *f);
  f->path = path;
  TRY_TO(close, map_file(f));
  TRY_TO(close, read_header(f));
  TRY_TO(close, check_meta(f));
  TRY_TO(close, read_entries(f));
  f->path = NULL;
  *out = f;
  return ERR_OK;

close:
  safetensors_close(f);
  return err;
}

void safetensors_close(struct safetensors *f)
{
  if (f == NULL) return;
  for (int i = 0; i < f->n; i++) free(f->copies[i]);
  free(f->copies);
  free(f->list);
  json_decref(f->header);
  if (f->map) munmap(f->map, f->map_bytes);
  free(f);
}

int safetensors_count(const struct safetensors *f) { return f->n; }

const struct safetensor *safetensors_get(const struct safetensors *f, int i)
{
  BUG_IF(i < 0 || i >= f->n);
  return &f->list[i];
}

const struct safetensor *safetensors_find(const struct safetensors *f, const char *name)
{
  for (int i = 0; i < f->n; i++)
    if (strcmp(f->list[i].name, name) == 0) return &f->list[i];
  return NULL;
}

const char *safetensors_meta(const struct safetensors *f, const char *key)
{
  return json_string_value(json_object_get(json_object_get(f->header, "__metadata__"), key));
}
