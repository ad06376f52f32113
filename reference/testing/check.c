/* check.c - CUnit with one voice a rank, and allocations that fail on demand. */
#include "testing/check.h"

#include <CUnit/Basic.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int check_rank(void)
{
  static const char *const names[] = {"OMPI_COMM_WORLD_RANK", "PMI_RANK", "PMIX_RANK", "SLURM_PROCID"};
  for (size_t i = 0; i < sizeof names / sizeof *names; i++)
    if (getenv(names[i])) return atoi(getenv(names[i]));
  return 0;
}

/* Counts with CUnit and says at once who failed; CUnit's own list is rank 0's only. */
static bool report(bool ok, const char *file, int line, const char *text)
{
  CU_assertImplementation(ok, (unsigned)line, text, file, "", CU_FALSE);
  if (!ok) fprintf(stderr, "rank %d: %s:%d: %s\n", check_rank(), file, line, text);
  return ok;
}

bool check_true(bool ok, const char *file, int line, const char *text) { return report(ok, file, line, text); }

bool check_err(enum err e, enum err want, const char *file, int line, const char *text)
{
  char said[2048];
  snprintf(said, sizeof said, "%s: got %s (%s; %s), expected %s", text, err_name(e), err_text(), err_trail(), err_name(want));
  return report(e == want, file, line, e == want ? text : said);
}

bool check_ok(enum err e, const char *file, int line, const char *text) { return check_err(e, ERR_OK, file, line, text); }

bool check_near(double got, double want, double bound, const char *file, int line, const char *text)
{
  char said[512];
  const bool ok = isfinite(got) && isfinite(want) && fabs(got - want) <= bound;
  snprintf(said, sizeof said, "%s: got %.17g, expected %.17g within %.3g", text, got, want, bound);
  return report(ok, file, line, ok ? text : said);
}

bool check_same_bits(const void *a, const void *b, size_t bytes, const char *file, int line, const char *text)
{
  const unsigned char *x = a, *y = b;
  size_t i = 0;
  while (i < bytes && x[i] == y[i]) i++;
  char said[512];
  snprintf(said, sizeof said, "%s differ at byte %zu of %zu", text, i, bytes);
  return report(i == bytes, file, line, i == bytes ? text : said);
}

bool check_text_has(const char *text, const char *part, const char *file, int line)
{
  char said[2048];
  const bool ok = text != NULL && strstr(text, part) != NULL;
  snprintf(said, sizeof said, "\"%s\" lacks \"%s\"", text ? text : "(null)", part);
  return report(ok, file, line, ok ? part : said);
}

int test_main(const char *suite, const struct test *tests, size_t n)
{
  const char *only = getenv("CHECK_ONLY");
  if (check_rank() != 0 && freopen("/dev/null", "w", stdout) == NULL) return 1;
  if (CU_initialize_registry() != CUE_SUCCESS) return 1;
  CU_pSuite s = CU_add_suite(suite, NULL, NULL);
  for (size_t i = 0; s != NULL && i < n; i++)
    if (only == NULL || strstr(tests[i].name, only)) CU_add_test(s, tests[i].name, tests[i].run);
  CU_basic_set_mode(CU_BRM_VERBOSE);
  const CU_ErrorCode code = CU_basic_run_tests();
  const unsigned failed = CU_get_number_of_failures(), asserts = CU_get_number_of_asserts();
  CU_cleanup_registry();
  if (asserts == 0) fprintf(stderr, "rank %d: %s checked nothing\n", check_rank(), suite);
  return code == CUE_SUCCESS && failed == 0 && asserts > 0 ? 0 : 1;
}

/* --- allocations: linked in place of libc's for the objects of this program ---- */

static long fail_in;
static bool failed_once;

void check_fail_allocation(long n)
{
  __atomic_store_n(&fail_in, n, __ATOMIC_SEQ_CST);
  __atomic_store_n(&failed_once, false, __ATOMIC_SEQ_CST);
}
bool check_allocation_failed(void) { return __atomic_load_n(&failed_once, __ATOMIC_SEQ_CST); }

static bool fails_now(void)
{
  if (__atomic_load_n(&fail_in, __ATOMIC_SEQ_CST) <= 0) return false;
  if (__atomic_sub_fetch(&fail_in, 1, __ATOMIC_SEQ_CST) != 0) return false;
  __atomic_store_n(&failed_once, true, __ATOMIC_SEQ_CST);
  return true;
}

#define WRAP(type, name, parameters, arguments)                   \
  type __real_##name parameters;                                  \
  type __wrap_##name parameters;                                  \
  type __wrap_##name parameters { return fails_now() ? NULL : __real_##name arguments; }
WRAP(void *, malloc, (size_t bytes), (bytes))
WRAP(void *, calloc, (size_t n, size_t bytes), (n, bytes))
WRAP(void *, realloc, (void *at, size_t bytes), (at, bytes))
WRAP(char *, strdup, (const char *text), (text))
WRAP(void *, aligned_alloc, (size_t align, size_t bytes), (align, bytes))
