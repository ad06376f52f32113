/* rank_list.c - reads a list of ranks, number by number. */
#include "base/rank_list.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

enum { DIGITS_MAX = 9 };

static bool is_all(const char *list) { return strcmp(list, "all") == 0; }

/* The number at *at, which is moved past it and a comma; -1: there is none.  A comma has a number behind it. */
static long long next_rank(const char **at)
{
  const size_t digits = strspn(*at, "0123456789");
  if (digits == 0 || digits > DIGITS_MAX) return -1;
  const long long rank = atoll(*at);
  *at += digits;
  if (**at == ',' && isdigit((unsigned char)(*at)[1])) (*at)++;
  else if (**at != '\0') return -1;
  return rank;
}

enum err rank_list_check(const char *key, const char *list, long long ranks)
{
  const char *at = list;
  if (is_all(list)) return ERR_OK;
  do {
    const long long rank = next_rank(&at);
    if (rank < 0) FAIL(ERR_CONFIG, "%s: '%s' is no list of ranks; valid: all, or numbers such as 0,2", key, list);
    if (rank >= ranks) FAIL(ERR_CONFIG, "%s: %lld is not in the job; valid: 0..%lld", key, rank, ranks - 1);
  } while (*at != '\0');
  return ERR_OK;
}

bool rank_list_has(const char *list, int rank)
{
  const char *at = list;
  if (is_all(list)) return true;
  while (*at != '\0') {
    const long long next = next_rank(&at);
    if (next < 0) return false;
    if (next == rank) return true;
  }
  return false;
}
