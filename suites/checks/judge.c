/* judge.c - the table of checks and the rules by which verdicts combine. */
#include "judge.h"

#include "checks.h"
#include <string.h>

#define JUDGE_ROW(name, observable, wants, meaning) {#name, observable, meaning, wants, name##_judge},
const struct check judge_checks[] = {CHECKS_LIST(JUDGE_ROW)};
#undef JUDGE_ROW
const int judge_checks_count = (int)(sizeof judge_checks / sizeof *judge_checks);

const struct check *judge_find(const char *name)
{
  for (int i = 0; i < judge_checks_count; i++)
    if (strcmp(judge_checks[i].name, name) == 0) return &judge_checks[i];
  return NULL;
}

const char *outcome_name(enum outcome o)
{
  static const char *const names[] = {"PASS", "FAIL", "INVALID", "INCONCLUSIVE", "SKIPPED"};
  return names[o];
}

enum outcome judge_worst(const enum outcome *list, int n)
{
  static const enum outcome order[] = {OUTCOME_FAIL, OUTCOME_INVALID, OUTCOME_INCONCLUSIVE, OUTCOME_PASS};
  for (size_t worst = 0; worst < sizeof order / sizeof *order; worst++)
    for (int i = 0; i < n; i++)
      if (list[i] == order[worst]) return order[worst];
  return OUTCOME_SKIPPED;
}

bool judge_caught(const char *observables, const struct verdict *list, int n)
{
  for (int i = 0; i < n; i++) {
    if (list[i].outcome != OUTCOME_FAIL) continue;
    const size_t length = strlen(list[i].observable);
    for (const char *at = observables; length > 0 && (at = strstr(at, list[i].observable)) != NULL; at += length)
      if ((at == observables || at[-1] == ' ') && (at[length] == ' ' || at[length] == '\0')) return true;
  }
  return false;
}
