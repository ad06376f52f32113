/* dev_range.c - ranges of memory: rows of bytes at a stride. */
#include "device/dev_internal.h"

static struct dev_range range_of(const struct tensor *t, bool write)
{
  const size_t size = dtype_bytes(t->type);
  return (struct dev_range){t->at, (size_t)t->cols * size, (size_t)t->stride * size, t->rows, write};
}
struct dev_range dev_reads(const struct tensor *t) { return range_of(t, false); }
struct dev_range dev_writes(const struct tensor *t) { return range_of(t, true); }

enum err dev_range_check(const struct dev_range *r)
{
  if (r->rows < 0) FAIL(ERR_ARG, "range: %lld rows", (long long)r->rows);
  if (r->rows > 1 && r->stride_bytes < r->row_bytes)
    FAIL(ERR_ARG, "range: rows of %zu bytes %zu bytes apart", r->row_bytes, r->stride_bytes);
  if (r->at == NULL && r->rows > 0 && r->row_bytes > 0) FAIL(ERR_ARG, "range: %zu bytes at NULL", r->row_bytes);
  return ERR_OK;
}

struct dev_range dev_range_normal(struct dev_range r)
{
  if (r.row_bytes == 0) r.rows = 0;
  if (r.rows > 1 && r.stride_bytes == r.row_bytes) {
    r.row_bytes *= (size_t)r.rows;
    r.rows = 1;
  }
  if (r.rows <= 1) r.stride_bytes = r.row_bytes;
  return r;
}

static uintptr_t row_at(const struct dev_range *r, int64_t i) { return (uintptr_t)r->at + (size_t)i * r->stride_bytes; }

/* A run of bytes [lo, hi) against rows: the first row that ends after lo starts before hi? */
static bool run_overlaps(uintptr_t lo, uintptr_t hi, const struct dev_range *r, uintptr_t *byte)
{
  const uintptr_t first = (uintptr_t)r->at;
  int64_t i = 0;
  if (lo >= first + r->row_bytes) i = (int64_t)((lo - first - r->row_bytes) / r->stride_bytes) + 1;
  if (i >= r->rows || row_at(r, i) >= hi) return false;
  *byte = row_at(r, i) > lo ? row_at(r, i) : lo;
  return true;
}

/* Row i of a against row i + k of b, stride s: they share bytes when the distance
 * d + k s of their starts is above -(row of b) and below (row of a).  Rows are no longer
 * than s, so two neighbouring k are all that can do. */
static bool same_stride_overlaps(const struct dev_range *a, const struct dev_range *b, uintptr_t *byte)
{
  const int64_t s = (int64_t)a->stride_bytes, d = (int64_t)((uintptr_t)b->at - (uintptr_t)a->at);
  const int64_t near = -(d / s);
  for (int64_t k = near - 1; k <= near + 1; k++) {
    const int64_t apart = d + k * s, i = k < 0 ? -k : 0, j = i + k;
    if (apart <= -(int64_t)b->row_bytes || apart >= (int64_t)a->row_bytes || i >= a->rows || j >= b->rows) continue;
    const uintptr_t in_a = row_at(a, i), in_b = row_at(b, j);
    *byte = in_a > in_b ? in_a : in_b;
    return true;
  }
  return false;
}

bool dev_range_overlap(const struct dev_range *a, const struct dev_range *b, uintptr_t *byte)
{
  if (a->rows == 0 || b->rows == 0) return false;
  if (dev_range_end(a) <= dev_range_first(b) || dev_range_end(b) <= dev_range_first(a)) return false;
  if (a->rows > 1 && b->rows > 1 && a->stride_bytes == b->stride_bytes) return same_stride_overlaps(a, b, byte);
  const struct dev_range *few = a->rows <= b->rows ? a : b, *many = few == a ? b : a;
  for (int64_t i = 0; i < few->rows; i++)
    if (run_overlaps(row_at(few, i), row_at(few, i) + few->row_bytes, many, byte)) return true;
  return false;
}

bool dev_range_covers(const struct dev_range *b, const struct dev_range *a)
{
  if (b->rows == 1) return dev_range_first(b) <= dev_range_first(a) && dev_range_end(a) <= dev_range_end(b);
  return a->at == b->at && a->rows == b->rows && a->row_bytes == b->row_bytes && a->stride_bytes == b->stride_bytes;
}
