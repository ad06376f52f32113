/* fault.c - which fault is planted, and the table of those that can be. */
#include "base/fault.h"

#include "base/nearest.h"

#include <math.h>
#include <string.h>

const struct fault_row fault_rows[FAULT_COUNT] = {
  [FAULT_NONE] = {"none", FAULT_PLANTED, "", "", "", "", ""},
#define FAULT(id, name, status, suite, observable, smallest, cause, note) \
  [FAULT_##id] = {name, status, suite, observable, smallest, cause, note},
#include "base/faults.def"
#undef FAULT
};

enum fault fault_now = FAULT_NONE;
double fault_strength = 1.0;
int fault_rank = 0;

enum err fault_find(const char *name, enum fault *out)
{
  if (name[0] == '\0') name = fault_rows[FAULT_NONE].name;
  struct nearest near = nearest_to(name);
  for (int i = 0; i < FAULT_COUNT; i++) {
    if (strcmp(fault_rows[i].name, name) == 0) {
      *out = (enum fault)i;
      return ERR_OK;
    }
    nearest_offer(&near, fault_rows[i].name);
  }
  char names[256];
  FAIL(ERR_CONFIG, "fault '%s' is not in the catalogue; nearest: %s", name, nearest_text(&near, names, sizeof names));
}

enum err fault_plant(const char *name, double strength, int rank)
{
  enum fault found;
  TRY(fault_find(name, &found));
  const struct fault_row *row = &fault_rows[found];
  if (row->status == FAULT_IMPOSSIBLE) FAIL(ERR_UNAVAILABLE, "fault '%s' cannot be planted here: %s", name, row->note);
  if (row->status == FAULT_LATER) FAIL(ERR_UNAVAILABLE, "fault '%s' is not planted yet: %s", name, row->note);
  if (!isfinite(strength) || strength <= 0) FAIL(ERR_CONFIG, "fault_strength %g; valid: above 0", strength);
  if (rank < 0) FAIL(ERR_CONFIG, "fault_rank %d; valid: 0 or more", rank);
  fault_now = found;
  fault_strength = strength;
  fault_rank = rank;
  return ERR_OK;
}
