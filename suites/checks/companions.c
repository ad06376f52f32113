/* companions.c - companions by resetting what they must not depend on. */
#include "companions.h"

#include "evidence.h"
#include "layout.h"
#include "verdict.h"

#include <stdio.h>
#include <string.h>

static struct companion *take(struct companion *out, int *n, int max, const char *role, const struct run_config *config)
{
  BUG_IF(*n >= max);
  struct companion *c = &out[(*n)++];
  memset(c, 0, sizeof *c);
  snprintf(c->role, sizeof c->role, "%s", role);
  c->config = *config;
  memset(c->config.name, 0, sizeof c->config.name); /* whole texts, so that equal configs are equal in bytes */
  memset(c->config.out, 0, sizeof c->config.out);
  return c;
}

static void on_time(struct run_config *c)
{
  struct run_config defaults;
  config_default(&defaults);
  c->delay = DELAY_NONE;
  c->delay_ms = defaults.delay_ms;
  c->delay_seed = defaults.delay_seed;
}

/* What is to be learned and from what, and nothing of how the work is cut or run. */
static struct run_config serial(const struct run_config *c)
{
  struct run_config defaults, s = *c;
  config_default(&defaults);
  if (s.device == DEVICE_LAZY) s.device = DEVICE_CPU; /* the same bits; another device rounds in its own way */
  s.threads = defaults.threads;
  s.lazy_seed = defaults.lazy_seed;
  s.poison_end = defaults.poison_end;
  s.dp = s.tp = s.pp = 1;
  s.schedule = defaults.schedule;
  s.chunks = defaults.chunks;
  memcpy(s.stages, defaults.stages, sizeof s.stages);
  s.sequence_parallel = defaults.sequence_parallel;
  s.mesh_order = defaults.mesh_order;
  s.tp_across_nodes = defaults.tp_across_nodes;
  s.tp_sums = defaults.tp_sums;
  s.replicas = defaults.replicas;
  s.order_seed = 0;
  s.zero = defaults.zero;
  s.shard = defaults.shard;
  s.overlap_gather = defaults.overlap_gather;
  s.prefetch = defaults.prefetch;
  s.reduce = defaults.reduce;
  s.reduce_each = REDUCE_STEP;
  s.reduce_type = defaults.reduce_type;
  s.bucket = defaults.bucket;
  s.overlap = defaults.overlap;
  s.recompute = defaults.recompute;
  s.offload = defaults.offload;
  s.overlap_p2p = defaults.overlap_p2p;
  s.synchronous = defaults.synchronous;
  s.transport = defaults.transport;
  s.nccl_algo = defaults.nccl_algo;
  s.nccl_proto = defaults.nccl_proto;
  s.narrow = defaults.narrow; /* what is beyond a micro-batch's longest sequence changes no loss */
  s.dump = DUMP_GRADIENTS;
  s.dump_batches = defaults.dump_batches;
  s.trace_time = defaults.trace_time;
  s.trace_spans = defaults.trace_spans;
  s.communicate = true;
  s.align = false;
  s.slow_percent = defaults.slow_percent;
  s.slow_ms = defaults.slow_ms;
  s.slow_rank = defaults.slow_rank;
  s.slow_phase = defaults.slow_phase;
  s.slow_every = defaults.slow_every;
  s.inf_rank = defaults.inf_rank; /* the same steps are skipped, whoever overflows */
  s.slow_data_ms = defaults.slow_data_ms;
  s.read_ahead = defaults.read_ahead;
  s.read_delay_ms = defaults.read_delay_ms;
  s.read_jitter_ms = defaults.read_jitter_ms;
  s.read_stall_step = defaults.read_stall_step;
  s.read_stall_ms = defaults.read_stall_ms;
  memcpy(s.read_ranks, defaults.read_ranks, sizeof s.read_ranks);
  on_time(&s);
  memset(s.fault, 0, sizeof s.fault);
  s.fault_strength = defaults.fault_strength;
  s.fault_rank = defaults.fault_rank;
  return s;
}

int companions_truth(const struct run_config *c, struct companion *out, int max)
{
  int n = 0;
  struct run_config s = serial(c);
  s.precision = PRECISION_F64;
  s.device = DEVICE_CPU;
  take(out, &n, max, "truth", &s);
  return n;
}

int companions_noise(const struct run_config *c, struct companion *out, int max)
{
  int n = companions_truth(c, out, max);
  for (int i = 0; i < COMPANIONS_NOISE; i++) {
    char role[32];
    snprintf(role, sizeof role, "noise%d", i);
    struct run_config s = serial(c);
    s.order_seed = i + 1;
    if (i % 2 == 1 && c->dp > 1 && (c->tp == 1 || i % 4 == 1)) {
      s.replicas = c->dp;
      s.reduce_type = c->reduce_type;
    } else if (i % 2 == 1) s.tp_sums = c->tp;
    take(out, &n, max, role, &s);
  }
  return n;
}

int companions_curve(const struct run_config *c, struct companion *out, int max)
{
  int n = 0;
  struct run_config s = serial(c);
  s.dump = DUMP_NONE;
  take(out, &n, max, "serial", &s);
  for (int i = 0; i < COMPANIONS_CURVE; i++) {
    char role[32];
    snprintf(role, sizeof role, "serial%d", i);
    s.order_seed = i + 1;
    s.tp_sums = i % 2 == 1 ? c->tp : 1;
    take(out, &n, max, role, &s);
  }
  return n;
}

int companions_plan(const struct run_config *c, struct companion *out, int max)
{
  int n = 0;
  struct run_config s = serial(c);
  s.device = DEVICE_CPU;
  s.layers = s.heads = 1;
  s.hidden = 2;
  s.reused = 0;
  s.tied = true;
  s.unused = s.revealing = false;
  memset(s.frozen, 0, sizeof s.frozen);
  memset(s.weights, 0, sizeof s.weights);
  s.precision = PRECISION_F32;
  s.weights_as = DTYPE_F32;
  s.loss_scale = 0;
  s.inf_step = -1;
  s.dropout = 0;
  s.evaluate_each = 0;
  s.compute = COMPUTE_SLEEP;
  s.sleep_forward_ms = s.sleep_input_ms = s.sleep_weight_ms = s.sleep_head_ms = 0;
  s.dump = DUMP_NONE;
  take(out, &n, max, "plan", &s);
  return n;
}

int companions_blocks(const struct run_config *c, struct companion *out, int max)
{
  int n = 0;
  struct run_config s = serial(c);
  s.precision = PRECISION_F64;
  s.device = DEVICE_CPU;
  s.steps = 1;
  s.evaluate_each = 0;
  s.dump = DUMP_ALL;
  take(out, &n, max, "blocks", &s);
  return n;
}

int companions_rerun(const struct run_config *c, struct companion *out, int max)
{
  int n = 0;
  take(out, &n, max, "rerun", c);
  return n;
}

int companions_overlap_off(const struct run_config *c, struct companion *out, int max)
{
  int n = 0;
  const bool ahead = layout_shares(c) && c->zero == 3 && c->prefetch > 0;
  if (!(c->overlap && c->dp > 1) && !(c->overlap_gather && layout_shares(c)) && !(c->overlap_p2p && c->pp > 1) && !ahead) return n;
  struct run_config s = *c;
  s.overlap = s.overlap_gather = s.overlap_p2p = false;
  if (ahead) s.prefetch = 0;
  take(out, &n, max, "overlap_off", &s);
  return n;
}

int companions_undelayed(const struct run_config *c, struct companion *out, int max)
{
  int n = 0;
  if (c->delay == DELAY_NONE) return n;
  struct run_config s = *c;
  on_time(&s);
  take(out, &n, max, "undelayed", &s);
  return n;
}

int companions_recompute_off(const struct run_config *c, struct companion *out, int max)
{
  int n = 0;
  if (c->recompute == RECOMPUTE_NONE) return n;
  struct run_config s = *c;
  s.recompute = RECOMPUTE_NONE;
  take(out, &n, max, "recompute_off", &s);
  return n;
}

int companions_offload_off(const struct run_config *c, struct companion *out, int max)
{
  int n = 0;
  if (c->offload == OFFLOAD_NONE) return n;
  struct run_config s = *c;
  s.offload = OFFLOAD_NONE;
  take(out, &n, max, "offload_off", &s);
  return n;
}

int companions_twin(const struct run_config *c, struct companion *out, int max)
{
  int n = 0;
  const bool sums = c->dp > 1 || c->tp > 1; /* over ranks: equal only where their order is fixed */
  if ((c->dp == 1 && c->pp == 1) || (sums && c->reduce != REDUCE_ORDERED) || (c->tp > 1 && c->pp == 1)) return n;
  struct run_config s = serial(c);
  if (c->tp == 1) {
    s.replicas = c->dp;
  } else {
    s.dp = c->dp;
    s.tp = c->tp;
    s.sequence_parallel = c->sequence_parallel;
    s.reduce = c->reduce;
  }
  s.reduce_each = c->reduce_each;
  if (c->zero > 0) { /* squares are added by pieces of buckets */
    s.zero = c->zero;
    s.shard = c->shard;
    s.bucket = c->bucket;
  }
  if (c->dp > 1) s.reduce_type = c->reduce_type;
  if (c->inf_step >= 0) s.inf_rank = layout_of(c, (int)c->inf_rank).dp; /* a replica's gradients, wherever in it */
  s.threads = c->threads;
  s.narrow = c->narrow;
  s.dump = c->dump;
  take(out, &n, max, "twin", &s);
  return n;
}

bool companions_have(const struct companion *wanted, const struct run_data *const *companions, int n, const char *role,
                     const struct run_data **out, struct verdict *v)
{
  *out = evidence_companion(wanted, companions, n, role);
  if (*out != NULL && evidence_ended(*out)) return true;
  verdict_say(v, OUTCOME_INVALID, "the companion run '%s' %s", role,
              *out ? "did not run to its end" : "could not be had");
  return false;
}

bool companions_have_truth(const struct companion *wanted, const struct run_data *const *companions, int n,
                           const struct run_data **truth, struct verdict *v)
{
  return companions_have(wanted, companions, n, "truth", truth, v);
}

static bool have_numbered(const struct companion *wanted, const struct run_data *const *companions, int n,
                          const char *stem, int count, const struct run_data **out, struct verdict *v)
{
  for (int i = 0; i < count; i++) {
    char role[32];
    snprintf(role, sizeof role, "%s%d", stem, i);
    if (!companions_have(wanted, companions, n, role, &out[i], v)) return false;
  }
  return true;
}

bool companions_have_curve(const struct companion *wanted, const struct run_data *const *companions, int n,
                           const struct run_data **serial_run, const struct run_data *noise[COMPANIONS_CURVE],
                           struct verdict *v)
{
  return companions_have(wanted, companions, n, "serial", serial_run, v) &&
         have_numbered(wanted, companions, n, "serial", COMPANIONS_CURVE, noise, v);
}
