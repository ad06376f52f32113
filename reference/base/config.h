/* config.h - everything a run can be asked, declared once.
 *
 * From one table of options come: the run file's keys, --help, the README table,
 * `shardmark list options`, what a suite may say, and the set.* echo in records.
 * An unknown, repeated, ill-typed or out-of-range key is ERR_CONFIG naming file,
 * line, key, value and the nearest valid ones.
 */
#ifndef BASE_CONFIG_H
#define BASE_CONFIG_H

#include "base/opt.h"
#include "base/schedule.h"
#include "base/tensor.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Of weights and activations.  tf32 is float32 whose products round their operands to 11 bits; bf16 stores in 8, fp16 in 11
 * of a narrow range. */
enum precision { PRECISION_F64, PRECISION_F32, PRECISION_TF32, PRECISION_BF16, PRECISION_F16 };
enum task { TASK_TRAIN, TASK_GEMM, TASK_COPY, TASK_COMM, TASK_PROBE, TASK_OVERLAP };
enum optimizer { OPTIMIZER_ADAMW, OPTIMIZER_SGD };
enum lr_schedule { LR_CONSTANT, LR_COSINE };
enum batch_policy { POLICY_PADDED, POLICY_CHUNKED, POLICY_BUCKETED, POLICY_PACKED, POLICY_BALANCED };
enum lengths { LENGTHS_OF_WIKIPEDIA, LENGTHS_OF_SQUAD, LENGTHS_LOGNORMAL, LENGTHS_FIXED, LENGTHS_BIMODAL, LENGTHS_SORTED, LENGTHS_ADVERSARIAL };
enum packing { PACKING_SHORTEST_PACK_FIRST, PACKING_BEST_FIT, PACKING_FIRST_FIT };
enum tail { TAIL_AUTO, TAIL_WRAP, TAIL_DROP, TAIL_PAD, TAIL_RESHAPE }; /* a finished config has no auto */
enum reduce_mode { REDUCE_FAST, REDUCE_ORDERED };
enum reduce_each { REDUCE_AUTO, REDUCE_STEP, REDUCE_MICROBATCH }; /* a finished config has no auto */
enum reduce_type { REDUCE_TYPE_AUTO, REDUCE_TYPE_F32, REDUCE_TYPE_BF16 };
enum recompute { RECOMPUTE_NONE, RECOMPUTE_SELECTIVE, RECOMPUTE_FULL };
enum offloaded { OFFLOAD_NONE, OFFLOAD_OPTIMIZER };
enum transport { TRANSPORT_NCCL, TRANSPORT_STAGED };
enum dump { DUMP_NONE, DUMP_GRADIENTS, DUMP_ALL };
enum device { DEVICE_CPU, DEVICE_LAZY, DEVICE_CUDA }; /* as enum dev_kind of the trainer */
/* Which coordinate of a rank varies fastest, which next, which last. */
enum mesh_order {
  MESH_ORDER_TP_DP_PP,
  MESH_ORDER_TP_PP_DP,
  MESH_ORDER_DP_TP_PP,
  MESH_ORDER_DP_PP_TP,
  MESH_ORDER_PP_TP_DP,
  MESH_ORDER_PP_DP_TP
};
enum compute { COMPUTE_REAL, COMPUTE_SLEEP };
enum slow_phase { SLOW_COMPUTE, SLOW_FORWARD, SLOW_BACKWARD, SLOW_OPTIMIZER, SLOW_LINK, SLOW_LOG };
enum delay { DELAY_NONE, DELAY_COLLECTIVES, DELAY_COPIES, DELAY_UPDATE, DELAY_ALL };

enum { CONFIG_NAME = 128, CONFIG_PATH = 1024 };

/* One case, one run.  Copied once, then const. */
struct run_config {
  char name[CONFIG_NAME];
  int64_t task, device, threads, lazy_seed;
  bool poison_end;

  char model[CONFIG_NAME];
  int64_t layers, heads, hidden, positions, vocab; /* 0: the model's own */
  bool tied;
  char frozen[CONFIG_NAME]; /* substring of parameter names that take no update      */
  bool unused;              /* one more parameter that no forward touches             */
  int64_t reused;           /* the last n blocks share the parameters of the first n  */
  bool revealing;           /* initial biases not zero and gains not one, so that no fault hides; false: GPT-2's rule */

  int64_t precision, weights_as; /* enum precision; enum dtype: f64, f32, bf16, f16 */
  double loss_scale;             /* fp16: the first factor on losses; 0: none       */
  int64_t scale_interval;        /* good steps after which it doubles               */
  int64_t dp, tp, pp;
  int64_t schedule, chunks; /* enum schedule_kind; virtual stages a rank               */
  char stages[CONFIG_PATH]; /* "even", "auto" or layers of each virtual stage: "3,3,2"  */
  bool sequence_parallel;
  int64_t mesh_order;
  bool tp_across_nodes;     /* a tensor group may span hosts                           */
  int64_t tp_sums;          /* serial only: sums that n tensor ranks would cut are added from n parts */
  int64_t global_batch, micro_batch, sequence; /* sequences, sequences, tokens; sequence 0: the model's positions */
  int64_t replicas;         /* serial only: one accumulator for each of n emulated ranks, added in rank order */
  int64_t order_seed;       /* 0: micro-batches in order; else a permutation of each replica's            */
  int64_t zero;             /* what replicas share: 0 nothing, 1 optimizer state, 2 and gradients, 3 and weights */
  int64_t prefetch;         /* zero 3: units gathered before the one in use is done with */
  int64_t shard;            /* ranks that share it, a divisor of the replicas; 0: all    */
  int64_t reduce, reduce_each, reduce_type;
  int64_t bucket;           /* elements of one gradient bucket; 0: one bucket        */
  int64_t recompute;        /* what backward makes again instead of keeping it        */
  int64_t offload;          /* what stands in the host's memory while it is not used   */
  bool overlap, overlap_gather, synchronous;
  bool overlap_p2p;         /* passes go on while a pipeline's messages travel       */
  int64_t transport;            /* device cuda: how ranks exchange                     */
  int64_t nccl_algo, nccl_proto; /* of transport nccl; 0: NCCL's own choice            */

  int64_t steps, optimizer, lr_schedule, lr_warmup, lr_decay;
  double lr, lr_min, beta1, beta2, eps, weight_decay, clip, dropout;
  int64_t evaluate_each, evaluate_batches;

  char corpus[CONFIG_PATH]; /* synthetic, or where data.h says                       */
  int64_t documents, lengths, length; /* of the synthetic corpus                     */
  int64_t policy, documents_each; /* enum batch_policy; per padded sequence          */
  int64_t packing, pack_limit;    /* policy packed; documents in a sequence, 0: any number */
  bool shuffle;                   /* false: documents in the order of the corpus     */
  int64_t tail;                   /* what is done with an epoch's last, short batch  */
  bool narrow;                    /* passes are as wide as the longest sequence of their micro-batch */
  int64_t deal;                   /* policy balanced: ranks that micro-batches are dealt to, a multiple of the replicas */
  double cost_a, cost_b, cost_c;  /* its costs: a + b * tokens + c * tokens^2 of each document */
  int64_t read_ahead;             /* steps whose batches are read before they are needed; 0: in place */
  int64_t seed;

  int64_t dump, records_each;
  bool dump_batches;        /* what the run trained on, as one file that batch_file reads */
  bool trace_time, trace_spans;
  bool communicate;         /* false: `comm: none`, same step without transfers over replicas; never for conformance */
  bool align;               /* a barrier before each collective over replicas: to time transfers alone */
  double slow_percent, slow_ms; /* planted: what slow_phase names takes slow_rank longer, by a share of it or by so much a step */
  int64_t slow_rank, slow_phase, slow_every;
  int64_t inf_step, inf_rank; /* planted: in this step (-1: none) a gradient of this rank is infinite */
  double slow_data_ms;      /* planted: every rank waits this long for each step's batches */
  double read_delay_ms, read_jitter_ms; /* planted: reading a step's batches takes this much longer, and up to this more */
  int64_t read_stall_step;  /* planted: reading this step's (-1: none) takes ...    */
  double read_stall_ms;     /* ... this much longer                                 */
  char read_ranks[CONFIG_NAME]; /* on these, "all" or "0,2"                         */
  int64_t delay;            /* planted: what begins late by a seeded time; no bit may change */
  double delay_ms;          /* at most                                              */
  int64_t delay_seed;
  int64_t compute;          /* sleep: passes are timed waits, everything else is real */
  double sleep_forward_ms, sleep_input_ms, sleep_weight_ms; /* a layer: forward, backward for inputs, for weights */
  double sleep_head_ms;     /* more in the last virtual stage: its forward, and each part of its backward */

  char weights[CONFIG_PATH]; /* safetensors to start from; "" = initialise */
  char batch_file[CONFIG_PATH]; /* safetensors with tokens, targets, positions, documents a step; "" = the corpus */
  char fault[CONFIG_NAME];
  double fault_strength;
  int64_t fault_rank;
  char out[CONFIG_PATH];    /* directory of records and tensors */

  int64_t repeats, size;    /* tasks gemm, copy, comm */
};

extern const struct opt run_options[];
extern const int run_options_count;

/* Defaults; then a run file over them; then `key=value` over them; then the derived
 * sizes (model's layers ..., replaced zeros) and every cross-check (what must divide
 * what, what excludes what). */
void config_default(struct run_config *c);
enum err config_read(const char *path, struct run_config *c);
enum err config_set(struct run_config *c, const char *key, const char *value);
enum err config_finish(struct run_config *c);
/* All keys with their values as YAML, so that config_read gives c back. */
enum err config_write(const struct run_config *c, const char *path);

/* Element types of a run: of the weights that products read, activations and their gradients; and of
 * gradients of weights, moments and the weights that updates are added to. */
static inline enum dtype run_work_type(const struct run_config *c)
{
  return c->precision == PRECISION_F64 ? DTYPE_F64 : c->precision == PRECISION_BF16 ? DTYPE_BF16 : c->precision == PRECISION_F16 ? DTYPE_F16 : DTYPE_F32;
}
static inline enum dtype run_state_type(const struct run_config *c)
{
  return c->precision == PRECISION_F64 ? DTYPE_F64 : DTYPE_F32;
}

/* Shards that the state of a rank's part of the model is cut into, in a serial run those of the ranks it emulates; 1: not cut. */
static inline int64_t run_shards(const struct run_config *c)
{
  return c->zero == 0 ? 1 : c->shard ? c->shard : c->dp * c->replicas;
}

/* Of gradients of weights on their way through a sum over replicas; rounded before it if not of run_state_type. */
static inline enum dtype run_reduce_type(const struct run_config *c)
{
  return c->reduce_type == REDUCE_TYPE_BF16 ? DTYPE_BF16 : run_state_type(c);
}

static inline int64_t config_ranks(const struct run_config *c) { return c->dp * c->tp * c->pp; }
/* Micro-batches that one data-parallel rank runs in a step. */
static inline int64_t config_accumulation(const struct run_config *c) { return c->global_batch / (c->dp * c->micro_batch); }

/* The models by name: their sizes.  NULL: no such model (config_finish names the valid ones). */
struct model_shape {
  const char *name, *source;
  int64_t layers, heads, hidden, positions, vocab;
  double published_parameters; /* as its source prints it; 0: not printed */
};
extern const struct model_shape model_shapes[];
extern const int model_shapes_count;
const struct model_shape *model_shape_find(const char *name);

#ifdef __cplusplus
}
#endif
#endif
