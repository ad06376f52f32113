/* check.h - CUnit on every rank.
 *
 * A file *_test.c has static void functions named by the sentence each proves and a
 * main that lists them.  Under MPI every rank runs every test; a rank prints its own
 * failures with its number on stderr, rank 0 alone the summary; any failure on any
 * rank makes that rank's exit status 1.  No check is fatal: a jump out between two
 * collectives would leave the others waiting.
 */
#ifndef TESTING_CHECK_H
#define TESTING_CHECK_H

#include "base/err.h"
#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

struct test {
  const char *name;
  void (*run)(void);
};
#define TEST(function) {#function, function}
/* Runs all (or those whose name contains argv-like env CHECK_ONLY), returns the exit status. */
int test_main(const char *suite, const struct test *tests, size_t n);

bool check_true(bool ok, const char *file, int line, const char *text);
bool check_ok(enum err e, const char *file, int line, const char *text);
bool check_err(enum err e, enum err want, const char *file, int line, const char *text);
bool check_near(double got, double want, double bound, const char *file, int line, const char *text);
bool check_same_bits(const void *a, const void *b, size_t bytes, const char *file, int line, const char *text);
bool check_text_has(const char *text, const char *part, const char *file, int line);

/* Each is also an expression: false when it failed. */
#define CHECK(condition) check_true((condition), __FILE__, __LINE__, #condition)
#define CHECK_OK(call) check_ok((call), __FILE__, __LINE__, #call)
#define CHECK_ERR(call, code) check_err((call), (code), __FILE__, __LINE__, #call)
#define CHECK_NEAR(got, want, bound) check_near((got), (want), (bound), __FILE__, __LINE__, #got) /* NaN fails */
#define CHECK_SAME_BITS(a, b, bytes) check_same_bits((a), (b), (bytes), __FILE__, __LINE__, #a " and " #b)
#define CHECK_TEXT_HAS(text, part) check_text_has((text), (part), __FILE__, __LINE__)

/* The n-th allocation of this program's own code from now (1 = the next) returns NULL;
 * 0 switches off.  True from check_allocation_failed() once it did.  Linked by --wrap. */
void check_fail_allocation(long n);
bool check_allocation_failed(void);

int check_rank(void); /* from the launcher's environment; 0 without one */

#ifdef __cplusplus
}
#endif
#endif
