/* diagnose_offload.c - signatures of faults of state that is offloaded. */
#include "signs.h"
#include "update.h"

#include <string.h>

static bool offloads(const struct signs *s) { return s->run->config.offload == OFFLOAD_OPTIMIZER; }

/* What lazy found of copies of state; "": nothing. */
static const char *unordered(const struct signs *s)
{
  const json_t *finding = evidence_record(s->run, "finding", -1, -1, -1);
  const char *text = finding ? evidence_text(finding, "got.text") : "";
  return offloads(s) && strstr(text, " on fetch ") ? text : "";
}

/* Bits change with offload alone, as no legal rounding does. */
static bool bits_differ(const struct signs *s) { return offloads(s) && signs_failed(s, "offload_off") != NULL; }

/* Every update of the run is one by moments that were zero before it. */
bool offload_moments_are_forgotten(const struct signs *s)
{
  return offloads(s) && s->run->config.optimizer == OPTIMIZER_ADAMW && signs_failed(s, "update") != NULL && update_forgets(s->run);
}

/* The state itself was read while it was written.  A run that dumps tensors waits for all copies between its steps, so
 * what goes wrong there does so within one. */
bool offload_state_was_fetched_early(const struct signs *s)
{
  const char *text = unordered(s);
  if (text[0]) return strstr(text, " host '") != NULL;
  return bits_differ(s) && s->run->config.dump == DUMP_NONE;
}

bool offload_place_was_filled_early(const struct signs *s)
{
  return strstr(unordered(s), "'staged state'") != NULL || (bits_differ(s) && signs_failed(s, "update") != NULL);
}
