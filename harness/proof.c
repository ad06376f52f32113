/* proof.c */
#include "harness/proof.h"

#include <stdio.h>
#include <string.h>

/* What evidence asks of sizes bends to the layout. */
static void fit(const struct run_config *measured, struct run_config *c)
{
  const bool list = strcmp(c->stages, "even") != 0 && strcmp(c->stages, "auto") != 0;
  if (list)
    c->layers = measured->layers; /* what the list adds up to */
  else if (c->layers && c->layers < c->pp * c->chunks)
    c->layers = c->pp * c->chunks;
  const int64_t unit = c->dp * c->micro_batch * (c->schedule == SCHEDULE_INTERLEAVED ? c->pp : 1);
  c->global_batch = (c->global_batch + unit - 1) / unit * unit;
}

enum err proof_add(struct plan *p, const struct suite *s, const struct suite_case *of,
                   const struct run_config *measured, const char *name, int *out)
{
  struct run_config c = *measured;
  char label[CONFIG_NAME];
  TRY(suite_lay_evidence(s, &c));
  fit(measured, &c);
  snprintf(c.name, sizeof c.name, "evidence");
  if (config_finish(&c)) FAIL(ERR_CONFIG, "%s: evidence of '%s': %s", of->where, name, err_text());
  for (int i = 0; i < p->n_trials; i++)
    if (p->trials[i].part == PART_EVIDENCE && p->trials[i].suite == s &&
        plan_same(&p->runs[p->trials[i].run].config, &c)) {
      *out = i;
      return ERR_OK;
    }
  snprintf(label, sizeof label, "%.110s-evidence", name);
  return plan_add_trial(p, s, &s->evidence, label, &c, PART_EVIDENCE, out);
}

bool proof_holds(const struct trial *proof, char *why, size_t bytes)
{
  if (proof->state == TRIAL_JUDGED && proof->outcome == OUTCOME_PASS) return true;
  snprintf(why, bytes, "its conformance case %s is %s", proof->name,
           proof->state == TRIAL_JUDGED ? outcome_name(proof->outcome) : "not run");
  return false;
}

const char *proof_no_time(const struct run_config *c)
{
#ifdef SHARDMARK_CUDA_HOST
  if (c->device == DEVICE_CUDA) return "the cuda device of this build is no GPU";
#endif
  (void)c;
  return NULL;
}

const char *proof_no_speed(const struct run_config *c)
{
  if (proof_no_time(c)) return proof_no_time(c);
  if (c->device != DEVICE_CUDA) return c->offload == OFFLOAD_NONE ? NULL : "what is offloaded stays in the memory that it leaves";
  return c->transport == TRANSPORT_STAGED && config_ranks(c) > 1 ? "ranks exchange through the host (transport: staged)" : NULL;
}
