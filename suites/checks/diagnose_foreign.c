/* diagnose_foreign.c - signatures that need no records but a foreign run's. */
#include "judge.h"

const struct judge_cause judge_causes[] = {
#define CAUSE(id, name, sentence) {name, sentence},
#include "causes.def"
#undef CAUSE
};
const int judge_causes_count = (int)(sizeof judge_causes / sizeof *judge_causes);
