/* config.c - the table of everything a run can be asked, and what must hold between keys. */
#include "base/config.h"

#include "base/fault.h"
#include "base/nearest.h"
#include "base/partition.h"
#include "base/rank_list.h"
#include "base/yaml.h"

#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#define AT(field) offsetof(struct run_config, field), sizeof(((struct run_config *)0)->field)
#define WHOLE "0..9223372036854775807"

/* "|gpipe|1f1b|...", in the order of enum schedule_kind. */
static const char schedule_names[] =
#define SCHEDULE(id, name, ...) "|" name
#include "base/schedules.def"
#undef SCHEDULE
  ;

/* Names' indices are the enums of config.h; of weights_as those of enum dtype, of device
 * those of enum dev_kind. */
_Static_assert(DTYPE_F64 == 0 && DTYPE_F32 == 1 && DTYPE_BF16 == 2 && DTYPE_F16 == 3, "weights_as lists the types in this order");

const struct opt run_options[] = {
  /* key               type      where                  default       allowed                     unit         meaning */
  {"name",             OPT_TEXT, AT(name),              "run",        "a file name",              "",          "name of the case in records"},
  {"task",             OPT_NAME, AT(task),              "train",      "train|gemm|copy|comm|probe|overlap", "", "what to do: train, or measure a peak of this machine; overlap: the bare program that overlap is compared with"},
  {"device",           OPT_NAME, AT(device),            "cpu",        "cpu|lazy|cuda",            "",          "where tensors live; lazy checks the order of all accesses"},
  {"threads",          OPT_INT,  AT(threads),           "1",          "1..1024",                  "threads",   "of a rank's compute stream"},
  {"lazy_seed",        OPT_INT,  AT(lazy_seed),         "1",          WHOLE,                      "",          "order of lazy's choices"},
  {"poison_end",       OPT_BOOL, AT(poison_end),        "false",      "",                         "",          "fill buffers with NaN when their life ends, too"},

  {"model",            OPT_TEXT, AT(model),             "tiny",       "a name of `list models`",  "",          "shape of the model"},
  {"layers",           OPT_INT,  AT(layers),            "0",          "0..1024",                  "",          "blocks; 0: the model's own"},
  {"heads",            OPT_INT,  AT(heads),             "0",          "0..1024",                  "",          "attention heads; 0: the model's own"},
  {"hidden",           OPT_INT,  AT(hidden),            "0",          "0..131072",                "",          "channels; 0: the model's own"},
  {"positions",        OPT_INT,  AT(positions),         "0",          "0..1048576",               "tokens",    "longest sequence; 0: the model's own"},
  {"vocab",            OPT_INT,  AT(vocab),             "0",          "0..16777216",              "tokens",    "vocabulary; 0: the model's own"},
  {"tied",             OPT_BOOL, AT(tied),              "true",       "",                         "",          "head and token embedding are one matrix"},
  {"frozen",           OPT_TEXT, AT(frozen),            "",           "part of parameter names",  "",          "parameters with this in their name take no update"},
  {"unused",           OPT_BOOL, AT(unused),            "false",      "",                         "",          "add a parameter that no forward pass touches"},
  {"reused",           OPT_INT,  AT(reused),            "0",          "0..512",                   "blocks",    "the last n blocks share the parameters of the first n"},
  {"revealing",        OPT_BOOL, AT(revealing),         "false",      "",                         "",          "initial biases not zero and gains not one, so that no fault hides"},

  {"precision",        OPT_NAME, AT(precision),         "float32",    "float64|float32|tf32|bf16|fp16", "",    "of weights and activations; bf16 and fp16 keep gradients, moments and master weights in float32; tf32 on cuda only"},
  {"weights_as",       OPT_NAME, AT(weights_as),        "float32",    "float64|float32|bf16|fp16", "",         "initial weights are first rounded to this"},
  {"loss_scale",       OPT_REAL, AT(loss_scale),        "0",          "0..16777216",              "",          "fp16: losses are multiplied by this at first, a power of two; halved when a gradient overflows, and that step skipped; 0: none"},
  {"scale_interval",   OPT_INT,  AT(scale_interval),    "2000",       "1..1000000000",            "steps",     "without an overflow, after which the loss scale doubles"},
  {"dp",               OPT_INT,  AT(dp),                "1",          "1..65536",                 "ranks",     "replicas; dp * tp * pp is the job"},
  {"tp",               OPT_INT,  AT(tp),                "1",          "1..65536",                 "ranks",     "ranks that share each layer"},
  {"pp",               OPT_INT,  AT(pp),                "1",          "1..65536",                 "ranks",     "pipeline stages"},
  {"schedule",         OPT_NAME, AT(schedule),          "1f1b",       schedule_names + 1,         "",          "order of a pipeline's passes"},
  {"chunks",           OPT_INT,  AT(chunks),            "1",          "1..512",                   "",          "virtual stages of each pipeline rank; above 1 with interleaved only"},
  {"stages",           OPT_TEXT, AT(stages),            "even",       "even, auto, or a list 3,3,2", "blocks", "of each virtual stage; auto: balances the cost with the head's"},
  {"sequence_parallel", OPT_BOOL, AT(sequence_parallel), "false",     "",                         "",          "tensor ranks share norms, dropout and residual by tokens"},
  {"mesh_order",       OPT_NAME, AT(mesh_order),        "tp-dp-pp",   "tp-dp-pp|tp-pp-dp|dp-tp-pp|dp-pp-tp|pp-tp-dp|pp-dp-tp", "", "coordinates of a rank, the one that varies fastest first"},
  {"tp_across_nodes",  OPT_BOOL, AT(tp_across_nodes),   "false",      "",                         "",          "allow a tensor group to span hosts"},
  {"tp_sums",          OPT_INT,  AT(tp_sums),           "1",          "1..65536",                 "ranks",     "serial run that adds the sums as this many tensor ranks would"},
  {"global_batch",     OPT_INT,  AT(global_batch),      "12",         "1..1048576",               "sequences", "of one step, over all ranks"},
  {"micro_batch",      OPT_INT,  AT(micro_batch),       "1",          "1..65536",                 "sequences", "of one forward pass"},
  {"sequence",         OPT_INT,  AT(sequence),          "0",          "0..1048576",               "tokens",    "length of a sequence; 0: the model's positions"},
  {"replicas",         OPT_INT,  AT(replicas),          "1",          "1..4096",                  "ranks",     "serial run that adds gradients as this many replicas would"},
  {"order_seed",       OPT_INT,  AT(order_seed),        "0",          WHOLE,                      "",          "permutes each replica's micro-batches; 0: in order"},
  {"zero",             OPT_INT,  AT(zero),              "0",          "0..3",                     "",          "what replicas share among them: 1 optimizer state, 2 gradients too, 3 weights too"},
  {"shard",            OPT_INT,  AT(shard),             "0",          "0..65536",                 "ranks",     "consecutive replicas that share, the groups of them being replicas of each other; 0: all"},
  {"reduce",           OPT_NAME, AT(reduce),            "fast",       "fast|ordered",             "",          "sums over ranks: the library's own, or in rank order"},
  {"reduce_each",      OPT_NAME, AT(reduce_each),       "auto",       "auto|step|microbatch",     "",          "when gradients are added over replicas; auto: each micro-batch with zero 2 and 3"},
  {"reduce_type",      OPT_NAME, AT(reduce_type),       "auto",       "auto|float32|bf16",        "",          "of gradients while they are added over replicas; auto: as they are kept"},
  {"bucket",           OPT_INT,  AT(bucket),            "4194304",    "0..1099511627776",         "elements",  "of one gradient bucket; 0: one bucket"},
  {"overlap",          OPT_BOOL, AT(overlap),           "true",       "",                         "",          "reduce buckets while backward runs"},
  {"prefetch",         OPT_INT,  AT(prefetch),          "1",          "0..512",                   "units",     "zero 3: weights gathered ahead of their use; memory for one block more each"},
  {"overlap_gather",   OPT_BOOL, AT(overlap_gather),    "true",       "",                         "",          "zero: gather updated weights while the next forward runs"},
  {"overlap_p2p",      OPT_BOOL, AT(overlap_p2p),       "true",       "",                         "",          "passes go on while a pipeline's messages travel; false: each message is waited for at once"},
  {"recompute",        OPT_NAME, AT(recompute),         "none",       "none|selective|full",      "",          "made again in backward: nothing; attention, norms and GELU; all of a block but its input"},
  {"offload",          OPT_NAME, AT(offload),           "none",       "none|optimizer",           "",          "kept in the host's memory, and copied to the device and back around an update, bucket by bucket: nothing; moments and master weights"},
  {"synchronous",      OPT_BOOL, AT(synchronous),       "false",      "",                         "",          "sends wait for their receiver"},
  {"transport",        OPT_NAME, AT(transport),         "nccl",       "nccl|staged",              "",          "device cuda: ranks exchange by NCCL, or through the host's memory and MPI (correctness only)"},
  {"nccl_algo",        OPT_NAME, AT(nccl_algo),         "auto",       "auto|ring|tree|nvls|nvlstree", "",      "device cuda, transport nccl: NCCL's algorithm; auto: its own choice"},
  {"nccl_proto",       OPT_NAME, AT(nccl_proto),        "auto",       "auto|simple|ll|ll128",     "",          "device cuda, transport nccl: NCCL's protocol; auto: its own choice"},

  {"steps",            OPT_INT,  AT(steps),             "10",         "0..1000000000",            "updates",   "length of the run"},
  {"optimizer",        OPT_NAME, AT(optimizer),         "adamw",      "adamw|sgd",                "",          "update rule"},
  {"lr_schedule",      OPT_NAME, AT(lr_schedule),       "constant",   "constant|cosine",          "",          "learning rate after the warm-up"},
  {"lr_warmup",        OPT_INT,  AT(lr_warmup),         "0",          "0..1000000000",            "updates",   "linear rise to lr"},
  {"lr_decay",         OPT_INT,  AT(lr_decay),          "0",          "0..1000000000",            "updates",   "update at which cosine has reached lr_min; 0: steps"},
  {"lr",               OPT_REAL, AT(lr),                "0.001",      "0..1000",                  "",          "peak learning rate"},
  {"lr_min",           OPT_REAL, AT(lr_min),            "0",          "0..1000",                  "",          "learning rate at the end of cosine"},
  {"beta1",            OPT_REAL, AT(beta1),             "0.9",        "0..0.999999999",           "",          "AdamW: decay of the first moment"},
  {"beta2",            OPT_REAL, AT(beta2),             "0.95",       "0..0.999999999",           "",          "AdamW: decay of the second moment"},
  {"eps",              OPT_REAL, AT(eps),               "1e-8",       "1e-30..1",                 "",          "AdamW: added to the root of the second moment"},
  {"weight_decay",     OPT_REAL, AT(weight_decay),      "0.1",        "0..100",                   "",          "decoupled, of matrices only"},
  {"clip",             OPT_REAL, AT(clip),              "1",          "0..1e30",                  "",          "largest global gradient norm; 0: no clipping"},
  {"dropout",          OPT_REAL, AT(dropout),           "0",          "0..0.99",                  "",          "probability"},
  {"evaluate_each",    OPT_INT,  AT(evaluate_each),     "0",          "0..1000000000",            "updates",   "between evaluations; 0: none"},
  {"evaluate_batches", OPT_INT,  AT(evaluate_batches),  "1",          "1..1000000",               "batches",   "global batches of one evaluation"},

  {"corpus",           OPT_TEXT, AT(corpus),            "synthetic",  "synthetic, or a path",     "",          "documents: a directory of text files, X.jsonl (their `text`), Megatron-LM's X.bin with X.idx, a token file of llm.c; text is read as bytes"},
  {"documents",        OPT_INT,  AT(documents),         "1000",       "1..1000000000",            "documents", "of the synthetic corpus"},
  {"lengths",          OPT_NAME, AT(lengths),           "wikipedia",  "wikipedia|squad|lognormal|fixed|bimodal|sorted|adversarial", "", "of synthetic documents: published histograms scaled to positions; sorted: wikipedia's, shortest first; adversarial: no two fit in a sequence"},
  {"length",           OPT_INT,  AT(length),            "0",          "0..1048576",               "tokens",    "of fixed documents (0: positions), median of lognormal ones (0: a quarter), of the seven short in eight bimodal ones (0: an eighth)"},
  {"shuffle",          OPT_BOOL, AT(shuffle),           "true",       "",                         "",          "an order of its own for each epoch; false: that of the corpus"},
  {"policy",           OPT_NAME, AT(policy),            "padded",     "padded|chunked|bucketed|packed|balanced", "", "documents cut to fit and padded; cut into full sequences; those of similar length in one batch; packed together; dealt to ranks by cost"},
  {"documents_each",   OPT_INT,  AT(documents_each),    "2",          "1..4096",                  "documents", "side by side in a padded sequence"},
  {"packing",          OPT_NAME, AT(packing),           "best-fit",   "shortest-pack-first|best-fit|first-fit", "", "policy packed: longest documents first, each into the emptiest sequence, or the fullest that has room; or in the order of the corpus, each into the first that has"},
  {"pack_limit",       OPT_INT,  AT(pack_limit),        "0",          "0..1048576",               "documents", "policy packed: in a sequence, at most; 0: any number"},
  {"tail",             OPT_NAME, AT(tail),              "auto",       "auto|wrap|drop|pad|reshape", "",        "an epoch's last sequences, too few for a batch: go on with the next epoch, leave out, fill up with empty ones, deal evenly to all micro-batches; auto: wrap, of bucketed reshape"},
  {"narrow",           OPT_BOOL, AT(narrow),            "false",      "",                         "",          "passes are as wide as the longest sequence of their micro-batch, up to a multiple of 16; false: always as wide as `sequence`, so padding is computed"},
  {"deal",             OPT_INT,  AT(deal),              "0",          "0..65536",                 "ranks",     "policy balanced: a step's sequences are dealt to this many by cost, a multiple of the replicas; 0: the replicas"},
  {"cost_a",           OPT_REAL, AT(cost_a),            "0",          "0..1e30",                  "",          "policy balanced: cost of a micro-batch is a + the sum over documents of b * tokens + c * tokens^2; every rank has as many, so a moves none"},
  {"cost_b",           OPT_REAL, AT(cost_b),            "1",          "0..1e30",                  "",          "policy balanced: of a token"},
  {"cost_c",           OPT_REAL, AT(cost_c),            "0",          "0..1e30",                  "",          "policy balanced: of a pair of tokens of one document"},
  {"read_ahead",       OPT_INT,  AT(read_ahead),        "1",          "0..64",                    "steps",     "whose batches a thread of its own has read before they are needed; 0: read in place, when a step begins"},
  {"seed",             OPT_INT,  AT(seed),              "1",          WHOLE,                      "",          "of weights, dropout and data"},

  {"dump",             OPT_NAME, AT(dump),              "none",       "none|gradients|all",       "",          "tensors written at each recorded step"},
  {"dump_batches",     OPT_BOOL, AT(dump_batches),      "false",      "",                         "",          "write the batches of all steps to batches.safetensors, which batch_file reads; dp 1 only"},
  {"records_each",     OPT_INT,  AT(records_each),      "1",          "1..1000000000",            "updates",   "between recorded steps"},
  {"trace_time",       OPT_BOOL, AT(trace_time),        "false",      "",                         "",          "record times of every collective"},
  {"trace_spans",      OPT_BOOL, AT(trace_spans),       "false",      "",                         "",          "record what each stream did when and what it waited for: says who is waited for, and why"},
  {"communicate",      OPT_BOOL, AT(communicate),       "true",       "",                         "",          "false: the same step without transfers over replicas; never for conformance"},
  {"align",            OPT_BOOL, AT(align),             "false",      "",                         "",          "a barrier before each collective over replicas, so that its time is the transfer's alone"},
  {"slow_percent",     OPT_REAL, AT(slow_percent),      "0",          "0..10000",                 "%",         "planted: what slow_phase names takes slow_rank this much longer"},
  {"slow_ms",          OPT_REAL, AT(slow_ms),           "0",          "0..600000",                "ms",        "planted: the same, by so much in all of a step, each of its parts by an equal share"},
  {"slow_phase",       OPT_NAME, AT(slow_phase),        "compute",    "compute|forward|backward|optimizer|link|log", "", "compute: forward and backward; link: its reductions over replicas, once all have arrived; log: the host, between steps"},
  {"slow_every",       OPT_INT,  AT(slow_every),        "1",          "1..1000000000",            "steps",     "slow_phase log: between two stalls"},
  {"slow_rank",        OPT_INT,  AT(slow_rank),         "0",          "0..2147483647",            "",          "rank that slow_percent and slow_ms are about"},
  {"inf_step",         OPT_INT,  AT(inf_step),          "-1",         "-1..1000000000",           "",          "planted: in this step a gradient of inf_rank is infinite; -1: in none"},
  {"inf_rank",         OPT_INT,  AT(inf_rank),          "0",          "0..2147483647",            "",          "rank that inf_step is about; of emulated replicas the number of one"},
  {"slow_data_ms",     OPT_REAL, AT(slow_data_ms),      "0",          "0..600000",                "ms",        "planted: every rank waits this long for each step's batches, which no reading ahead hides"},
  {"read_delay_ms",    OPT_REAL, AT(read_delay_ms),     "0",          "0..600000",                "ms",        "planted: reading a step's batches takes this much longer"},
  {"read_jitter_ms",   OPT_REAL, AT(read_jitter_ms),    "0",          "0..600000",                "ms",        "planted: and up to this much more, drawn from delay_seed, step and rank"},
  {"read_stall_step",  OPT_INT,  AT(read_stall_step),   "-1",         "-1..1000000000",           "",          "planted: reading the batches of this step takes read_stall_ms longer; -1: of none"},
  {"read_stall_ms",    OPT_REAL, AT(read_stall_ms),     "0",          "0..600000",                "ms",        "planted: see read_stall_step"},
  {"read_ranks",       OPT_TEXT, AT(read_ranks),        "all",        "all, or a list 0,2,3",     "",          "ranks that the planted reads are about"},
  {"delay",            OPT_NAME, AT(delay),             "none",       "none|collectives|copies|update|all", "",  "planted: each of these begins late by a seeded time, which may change no bit; update: the optimizer's"},
  {"delay_ms",         OPT_REAL, AT(delay_ms),          "2",          "0.001..60000",             "ms",        "planted: longest delay"},
  {"delay_seed",       OPT_INT,  AT(delay_seed),        "1",          "0..4294967295",            "",          "planted: of each delay's length"},
  {"compute",          OPT_NAME, AT(compute),           "real",       "real|sleep",               "",          "sleep: passes are timed waits, everything else is real"},
  {"sleep_forward_ms", OPT_REAL, AT(sleep_forward_ms),  "0",          "0..600000",                "ms",        "compute sleep: forward of one block"},
  {"sleep_input_ms",   OPT_REAL, AT(sleep_input_ms),    "0",          "0..600000",                "ms",        "compute sleep: backward of one block for its input"},
  {"sleep_weight_ms",  OPT_REAL, AT(sleep_weight_ms),   "0",          "0..600000",                "ms",        "compute sleep: backward of one block for its weights"},
  {"sleep_head_ms",    OPT_REAL, AT(sleep_head_ms),     "0",          "0..600000",                "ms",        "compute sleep: the last virtual stage's forward and each part of its backward take this much more"},

  {"weights",          OPT_TEXT, AT(weights),           "",           "a safetensors file",       "",          "start from these; empty: initialise from seed"},
  {"batch_file",       OPT_TEXT, AT(batch_file),        "",           "a safetensors file",       "",          "train on these batches; empty: on the corpus"},
  {"fault",            OPT_TEXT, AT(fault),             "",           "a name of `list faults`",  "",          "plant this fault; empty: none"},
  {"fault_strength",   OPT_REAL, AT(fault_strength),    "1",          "1e-30..1e30",              "",          "1: as in the report it comes from"},
  {"fault_rank",       OPT_INT,  AT(fault_rank),        "0",          "0..2147483647",            "",          "rank that misbehaves, where only one does"},
  {"out",              OPT_TEXT, AT(out),               "",           "a directory",              "",          "for records and tensors; empty: none are kept"},

  {"repeats",          OPT_INT,  AT(repeats),           "20",         "1..1000000",               "",          "of each measurement of tasks gemm, copy, comm"},
  {"size",             OPT_INT,  AT(size),              "1024",       "1..1099511627776",         "",          "gemm: edge of the smallest of three square products, each twice the one before; copy, comm: bytes of a buffer"},
};
const int run_options_count = sizeof run_options / sizeof *run_options;

void config_default(struct run_config *c)
{
  memset(c, 0, sizeof *c);
  opt_defaults(run_options, run_options_count, c);
}

enum err config_set(struct run_config *c, const char *key, const char *value)
{
  TRY(opt_set_key(run_options, run_options_count, c, key, value, NULL));
  return ERR_OK;
}

static enum err read_map(const char *path, const struct yaml *file, struct run_config *c)
{
  if (file->kind != YAML_MAP) FAIL(ERR_CONFIG, "%s:%d: not a list of `key: value` lines", path, file->line);
  for (int i = 0; i < file->n; i++) {
    const struct yaml *key = file->keys[i], *value = file->values[i];
    char where[CONFIG_PATH + 32];
    snprintf(where, sizeof where, "%s:%d", path, key->line);
    if (value->kind != YAML_SCALAR)
      FAIL(ERR_CONFIG, "%s: %s: its value is a %s; valid: one value", where, key->text, value->kind == YAML_MAP ? "map" : "list");
    TRY(opt_set_key(run_options, run_options_count, c, key->text, value->text, where));
  }
  return ERR_OK;
}

enum err config_read(const char *path, struct run_config *c)
{
  struct yaml *file;
  TRY(yaml_read(path, &file));
  struct run_config fresh = *c; /* a refused file changes nothing */
  const enum err err = read_map(path, file, &fresh);
  yaml_destroy(file);
  if (err) return err_trace(err, __FILE__, __LINE__);
  *c = fresh;
  return ERR_OK;
}

/* --- what holds between keys ---------------------------------------------- */

/* The divisors of n at or below `value` and at or above it; n itself where there is none above. */
static void divisors_around(int64_t n, int64_t value, int64_t *below, int64_t *above)
{
  *below = *above = value < n ? value : n;
  while (n % *below != 0) (*below)--;
  while (n % *above != 0) (*above)++;
}

/* "4, 6": those divisors; "12": where both are one. */
static const char *divisors_text(int64_t n, int64_t value, char out[48])
{
  int64_t below, above;
  divisors_around(n, value, &below, &above);
  if (below == above) snprintf(out, 48, "%" PRId64, below);
  else snprintf(out, 48, "%" PRId64 ", %" PRId64, below, above);
  return out;
}

static enum err finish_model(struct run_config *c)
{
  const struct model_shape *shape = model_shape_find(c->model);
  if (shape == NULL) {
    struct nearest near = nearest_to(c->model);
    for (int i = 0; i < model_shapes_count; i++) nearest_offer(&near, model_shapes[i].name);
    char names[256];
    FAIL(ERR_CONFIG, "model: '%s' is not known; nearest: %s", c->model, nearest_text(&near, names, sizeof names));
  }
  if (c->layers == 0) c->layers = shape->layers;
  if (c->heads == 0) c->heads = shape->heads;
  if (c->hidden == 0) c->hidden = shape->hidden;
  if (c->positions == 0) c->positions = shape->positions;
  if (c->vocab == 0) c->vocab = shape->vocab;
  if (c->sequence == 0) c->sequence = c->positions;

  char near[48];
  if (c->hidden % c->heads != 0)
    FAIL(ERR_CONFIG, "heads: %" PRId64 " does not divide hidden = %" PRId64 "; nearest valid: %s", c->heads, c->hidden,
         divisors_text(c->hidden, c->heads, near));
  if (c->sequence > c->positions)
    FAIL(ERR_CONFIG, "sequence: %" PRId64 " is longer than the model's positions; valid: 1..%" PRId64, c->sequence, c->positions);
  if (2 * c->reused > c->layers)
    FAIL(ERR_CONFIG, "reused: %" PRId64 " of %" PRId64 " blocks; valid: 0..%" PRId64, c->reused, c->layers, c->layers / 2);
  return ERR_OK;
}

static const char *name_of(const char *key, const struct run_config *c, char out[CONFIG_NAME])
{
  opt_text(opt_find(run_options, run_options_count, key), c, out, CONFIG_NAME);
  return out;
}

static enum err finish_precision(const struct run_config *c)
{
  char name[CONFIG_NAME];
  if (c->precision == PRECISION_TF32 && c->device != DEVICE_CUDA)
    FAIL(ERR_CONFIG, "precision: tf32 is a mode of GPUs, but device is %s; valid: float64, float32, bf16, fp16", name_of("device", c, name));
  if ((enum dtype)c->weights_as < run_state_type(c))
    FAIL(ERR_CONFIG, "weights_as: float64 does not fit in precision %s; valid: float32, bf16, fp16", name_of("precision", c, name));
  return ERR_OK;
}

/* float64 may be scaled, which changes none of its bits: so the truth of an fp16 run skips the steps that it skips. */
static enum err finish_scale(const struct run_config *c)
{
  char name[CONFIG_NAME];
  int power;
  name_of("precision", c, name);
  if (c->precision == PRECISION_F16 && c->loss_scale == 0)
    FAIL(ERR_CONFIG, "loss_scale: 0 with precision fp16, whose gradients vanish below 6e-8; nearest valid: 1; usual: 65536");
  if (c->loss_scale != 0 && c->precision != PRECISION_F16 && c->precision != PRECISION_F64)
    FAIL(ERR_CONFIG, "loss_scale: %g with precision %s, which needs none; valid: 0", c->loss_scale, name);
  if (c->loss_scale != 0 && (frexp(c->loss_scale, &power) != 0.5 || c->loss_scale < 1)) {
    const double below = c->loss_scale < 1 ? 1 : ldexp(0.5, power);
    FAIL(ERR_CONFIG, "loss_scale: %g is no power of two, so that dividing by it would round; nearest valid: %g, %g", c->loss_scale,
         below, c->loss_scale < 1 ? 1 : 2 * below);
  }
  if (c->inf_step < 0) return ERR_OK;
  const int64_t ranks = c->replicas > 1 ? c->replicas : config_ranks(c);
  if (c->loss_scale == 0) FAIL(ERR_CONFIG, "inf_step: %" PRId64 " without a loss_scale, so that no step is skipped; valid: -1", c->inf_step);
  if (c->zero > 1) FAIL(ERR_CONFIG, "inf_step: %" PRId64 " with zero %" PRId64 ", whose gradients are kept by unit; valid: -1, or zero 0 or 1", c->inf_step, c->zero);
  if (c->inf_rank >= ranks) FAIL(ERR_CONFIG, "inf_rank: %" PRId64 " is not in the job; valid: 0..%" PRId64, c->inf_rank, ranks - 1);
  return ERR_OK;
}

/* Gradients in float64 are those of the truth: rounded on their way they would be no longer. */
static enum err finish_reduce_type(const struct run_config *c)
{
  char name[CONFIG_NAME];
  if (c->reduce_type != REDUCE_TYPE_AUTO && run_state_type(c) == DTYPE_F64)
    FAIL(ERR_CONFIG, "reduce_type: %s with precision float64; valid: auto", name_of("reduce_type", c, name));
  return ERR_OK;
}

static enum err finish_transport(const struct run_config *c)
{
  char name[CONFIG_NAME];
  if (c->transport == TRANSPORT_STAGED && c->device != DEVICE_CUDA)
    FAIL(ERR_CONFIG, "transport: staged is a way between GPUs, but device is %s; valid: nccl, which is not read there", name_of("device", c, name));
  return ERR_OK;
}

/* What an update keeps: AdamW's moments, and master weights where products read rounded ones. */
static enum err finish_offload(const struct run_config *c)
{
  char name[CONFIG_NAME];
  if (c->offload == OFFLOAD_OPTIMIZER && c->optimizer == OPTIMIZER_SGD && run_work_type(c) == run_state_type(c))
    FAIL(ERR_CONFIG, "offload: optimizer with optimizer sgd and precision %s, which keep nothing between updates; valid: none, or optimizer adamw, or precision bf16, fp16",
         name_of("precision", c, name));
  return ERR_OK;
}

static int64_t common_divisor(int64_t a, int64_t b) { return b == 0 ? a : common_divisor(b, a % b); }

/* Whole heads to each of n tensor ranks. */
static enum err finish_heads(const struct run_config *c, const char *key, int64_t n)
{
  char near[48];
  if (c->heads % n == 0) return ERR_OK;
  FAIL(ERR_CONFIG, "%s: %" PRId64 " does not divide heads = %" PRId64 "; nearest valid: %s", key, n, c->heads,
       divisors_text(c->heads, n, near));
}

static enum err finish_tensor(const struct run_config *c)
{
  TRY(finish_heads(c, "tp", c->tp));
  TRY(finish_heads(c, "tp_sums", c->tp_sums));
  if (!c->sequence_parallel) return ERR_OK;
  if (c->tp == 1) {
    char also[48] = "";
    int64_t below, above;
    divisors_around(c->heads, 2, &below, &above);
    if (above > 1) snprintf(also, sizeof also, ", or tp = %" PRId64, above);
    FAIL(ERR_CONFIG, "sequence_parallel: true shares tokens over tensor ranks, but tp is 1; valid: false%s", also);
  }
  const int64_t rows = c->micro_batch * c->sequence;
  if (rows % c->tp != 0) {
    char near[48];
    FAIL(ERR_CONFIG, "tp: %" PRId64 " does not divide micro_batch * sequence = %" PRId64 " tokens, which sequence_parallel shares; "
         "nearest valid: %s", c->tp, rows, divisors_text(common_divisor(c->heads, rows), c->tp, near));
  }
  return ERR_OK;
}

static enum err finish_pipeline(const struct run_config *c)
{
  char schedule[CONFIG_NAME];
  name_of("schedule", c, schedule);
  if (c->schedule == SCHEDULE_INTERLEAVED) {
    if (c->pp < 2) FAIL(ERR_CONFIG, "schedule: interleaved with pp = %" PRId64 "; valid: pp of 2 or more, or schedule 1f1b", c->pp);
    if (c->chunks < 2)
      FAIL(ERR_CONFIG, "chunks: %" PRId64 " with schedule interleaved; valid: 2 or more, or schedule 1f1b", c->chunks);
  } else if (c->chunks != 1)
    FAIL(ERR_CONFIG, "chunks: %" PRId64 " with schedule %s; valid: 1, or schedule interleaved", c->chunks, schedule);
  if (c->pp * c->chunks > c->layers) {
    const int64_t most = c->layers / c->chunks;
    if (most < 1 || (c->schedule == SCHEDULE_INTERLEAVED && most < 2))
      FAIL(ERR_CONFIG, "chunks: %" PRId64 " on each of pp = %" PRId64 " ranks are more than layers = %" PRId64 "; valid: 1..%" PRId64,
           c->chunks, c->pp, c->layers, c->layers / c->pp);
    FAIL(ERR_CONFIG, "pp: %" PRId64 " ranks with chunks = %" PRId64 " are more stages than layers = %" PRId64 "; valid: %d..%" PRId64,
         c->pp, c->chunks, c->layers, c->schedule == SCHEDULE_INTERLEAVED ? 2 : 1, most);
  }
  struct partition stages;
  TRY(partition_make(c, &stages));
  if (c->pp > 1 && c->reused != 0)
    FAIL(ERR_CONFIG, "reused: %" PRId64 " blocks would share parameters across the ranks of pp = %" PRId64 "; valid: 0", c->reused, c->pp);
  /* Their backward passes of one micro-batch do not follow each other, so none ends with all gradients. */
  if (c->reduce_each == REDUCE_MICROBATCH && (c->schedule == SCHEDULE_INTERLEAVED || c->schedule == SCHEDULE_ZB_H1))
    FAIL(ERR_CONFIG, "reduce_each: microbatch with schedule %s; valid: step", schedule);
  return ERR_OK;
}

/* Replicas that may share, and when their gradients are added. */
static enum err finish_zero(struct run_config *c)
{
  const int64_t replicas = c->dp * c->replicas;
  if (c->zero == 0 && c->shard != 0) FAIL(ERR_CONFIG, "shard: %" PRId64 " with zero = 0, which shares nothing; valid: 0", c->shard);
  if (c->zero != 3 && c->prefetch != 1)
    FAIL(ERR_CONFIG, "prefetch: %" PRId64 " with zero = %" PRId64 ", which gathers no unit ahead; valid: 1", c->prefetch, c->zero);
  if (c->zero > 0 && replicas == 1)
    FAIL(ERR_CONFIG, "zero: %" PRId64 " shares among replicas, but dp is 1; nearest valid: 0, or dp = 2", c->zero);
  if (c->shard == 1 || (c->shard > 1 && replicas % c->shard != 0)) {
    int64_t below, above;
    divisors_around(replicas, c->shard > 1 ? c->shard : 2, &below, &above);
    char first[32] = "";
    if (below > 1 && below != above) snprintf(first, sizeof first, "%" PRId64 ", ", below);
    FAIL(ERR_CONFIG, "shard: %" PRId64 " of %s = %" PRId64 " ranks; nearest valid, divisors above 1: %s%" PRId64, c->shard,
         c->replicas != 1 ? "replicas" : "dp", replicas, first, above);
  }
  if (c->zero == 2 && (c->schedule == SCHEDULE_INTERLEAVED || c->schedule == SCHEDULE_ZB_H1))
    FAIL(ERR_CONFIG, "zero: 2 with schedule %s, whose gradients are complete once a step; nearest valid: 1, or 3 with reduce_each: step",
         schedule_name((enum schedule_kind)c->schedule));
  if (c->reduce_each == REDUCE_AUTO) c->reduce_each = c->zero >= 2 ? REDUCE_MICROBATCH : REDUCE_STEP;
  if (c->zero == 2 && c->reduce_each == REDUCE_STEP)
    FAIL(ERR_CONFIG, "reduce_each: step with zero = 2, which keeps no gradient whole; valid: microbatch, or zero = 1");
  const int64_t blocks = c->layers - c->reused;
  if (c->zero == 3 && c->prefetch > blocks)
    FAIL(ERR_CONFIG, "prefetch: %" PRId64 " of %" PRId64 " blocks; nearest valid: %" PRId64, c->prefetch, blocks, blocks);
  return ERR_OK;
}

/* What only one rank can emulate. */
static enum err finish_emulated(const struct run_config *c)
{
  const struct { const char *key; int64_t value; } emulated[] = {{"replicas", c->replicas}, {"tp_sums", c->tp_sums}};
  const struct { const char *key; int64_t value; } degrees[] = {{"dp", c->dp}, {"tp", c->tp}, {"pp", c->pp}};
  for (int e = 0; e < 2; e++)
    for (int d = 0; d < 3; d++)
      if (emulated[e].value != 1 && degrees[d].value != 1)
        FAIL(ERR_CONFIG, "%s: %" PRId64 " emulates ranks in a serial run, but %s is %" PRId64 "; valid: 1", emulated[e].key,
             emulated[e].value, degrees[d].key, degrees[d].value);
  return ERR_OK;
}

enum { RANKS_MAX = 65536 }; /* of a job, as of each of its degrees: ranks are numbers of type int everywhere */

static enum err finish_layout(struct run_config *c)
{
  if (config_ranks(c) > RANKS_MAX)
    FAIL(ERR_CONFIG, "dp * tp * pp: %" PRId64 " * %" PRId64 " * %" PRId64 " = %" PRId64 " ranks; valid: at most %d together", c->dp, c->tp,
         c->pp, config_ranks(c), RANKS_MAX);
  TRY(finish_emulated(c));
  TRY(finish_zero(c));
  TRY(finish_tensor(c));
  TRY(finish_pipeline(c));

  const int64_t unit = c->dp * c->replicas * c->micro_batch;
  if (c->global_batch % unit != 0) {
    const int64_t below = c->global_batch / unit * unit, above = below + unit;
    char first[32] = "";
    if (below > 0) snprintf(first, sizeof first, "%" PRId64 ", ", below);
    FAIL(ERR_CONFIG, "global_batch: %" PRId64 " is no multiple of %s * micro_batch = %" PRId64 " * %" PRId64
         "; nearest valid: %s%" PRId64, c->global_batch, c->replicas != 1 ? "replicas" : "dp", c->dp * c->replicas,
         c->micro_batch, first, above);
  }
  if (c->schedule == SCHEDULE_INTERLEAVED && config_accumulation(c) % c->pp != 0) {
    const int64_t round = unit * c->pp, below = c->global_batch / round * round;
    char first[32] = "";
    if (below > 0) snprintf(first, sizeof first, "%" PRId64 ", ", below);
    FAIL(ERR_CONFIG, "global_batch: %" PRId64 " gives each replica %" PRId64 " micro-batches, no multiple of pp = %" PRId64
         " as schedule interleaved needs; nearest valid: %s%" PRId64, c->global_batch, config_accumulation(c), c->pp, first, below + round);
  }
  return ERR_OK;
}

/* Transfers and pauses have no length of their own that a percentage could be of. */
static enum err finish_slowness(const struct run_config *c)
{
  const bool whole = c->slow_phase == SLOW_LINK || c->slow_phase == SLOW_LOG, planted = c->slow_percent > 0 || c->slow_ms > 0;
  char name[CONFIG_NAME];
  if (c->slow_percent > 0 && c->slow_ms > 0)
    FAIL(ERR_CONFIG, "slow_ms: %g beside slow_percent = %g; valid: one of them 0", c->slow_ms, c->slow_percent);
  if (c->slow_percent > 0 && whole)
    FAIL(ERR_CONFIG, "slow_percent: %g with slow_phase %s; valid: 0, and slow_ms above 0", c->slow_percent, name_of("slow_phase", c, name));
  if (planted && c->slow_rank >= config_ranks(c))
    FAIL(ERR_CONFIG, "slow_rank: %" PRId64 " is not in the job; valid: 0..%" PRId64, c->slow_rank, config_ranks(c) - 1);
  if (planted && c->slow_phase == SLOW_LINK && c->dp == 1)
    FAIL(ERR_CONFIG, "slow_phase: link is about replicas' reductions, but dp is 1; nearest valid: compute, or dp = 2");
  if (c->slow_every > 1 && c->slow_phase != SLOW_LOG)
    FAIL(ERR_CONFIG, "slow_every: %" PRId64 " with slow_phase %s; valid: 1, or slow_phase log", c->slow_every, name_of("slow_phase", c, name));
  return ERR_OK;
}

/* Which batches an epoch ends with, and whom a step is dealt to: where it matters, so that runs that differ in nothing else stay one. */
static enum err finish_batches(struct run_config *c)
{
  if (c->tail == TAIL_AUTO) c->tail = c->policy == POLICY_BUCKETED ? TAIL_RESHAPE : TAIL_WRAP;
  if (c->tail == TAIL_WRAP && c->policy == POLICY_BUCKETED)
    FAIL(ERR_CONFIG, "tail: wrap with policy bucketed, whose batches are of one epoch; valid: drop, pad, reshape");
  if (c->narrow && c->dump == DUMP_ALL)
    FAIL(ERR_CONFIG, "narrow: true with dump all, whose block outputs are as wide as `sequence`; valid: false, or dump gradients, none");
  if (c->policy != POLICY_BALANCED) return ERR_OK;
  const int64_t replicas = c->dp * c->replicas, micro = c->global_batch / c->micro_batch;
  if (c->deal == 0) c->deal = replicas;
  if (c->deal % replicas != 0 || micro % c->deal != 0)
    FAIL(ERR_CONFIG, "deal: %" PRId64 " ranks; valid with %" PRId64 " replicas and %" PRId64 " micro-batches a step: a multiple of the first that "
         "divides the second, such as %" PRId64, c->deal, replicas, micro, replicas);
  if (c->cost_b == 0 && c->cost_c == 0)
    FAIL(ERR_CONFIG, "cost_b: 0 with cost_c 0 gives every sequence the same cost; valid: one of them above 0");
  return ERR_OK;
}

/* Rank 0 writes what it trained on, which with more replicas is a part of each step. */
static enum err finish_dumps(const struct run_config *c)
{
  if (c->dump_batches && c->dp > 1)
    FAIL(ERR_CONFIG, "dump_batches: true with dp %" PRId64 ", whose first rank has a part of each step's batches; valid: false, or dp 1", c->dp);
  return ERR_OK;
}

static enum err finish_reads(const struct run_config *c)
{
  TRY(rank_list_check("read_ranks", c->read_ranks, config_ranks(c)));
  if ((c->read_stall_step >= 0) != (c->read_stall_ms > 0))
    FAIL(ERR_CONFIG, "read_stall_ms: %g with read_stall_step %" PRId64 "; valid: both, or 0 and -1", c->read_stall_ms, c->read_stall_step);
  return ERR_OK;
}

static enum err finish_training(struct run_config *c)
{
  if (c->lr_min > c->lr) FAIL(ERR_CONFIG, "lr_min: %g is above lr; valid: 0..%g", c->lr_min, c->lr);
  if (c->lr_schedule == LR_COSINE) {
    if (c->lr_decay == 0) c->lr_decay = c->steps;
    if (c->lr_decay <= c->lr_warmup)
      FAIL(ERR_CONFIG, "lr_decay: %" PRId64 " updates end before the warm-up of %" PRId64 "; valid: %" PRId64 " or more",
           c->lr_decay, c->lr_warmup, c->lr_warmup + 1);
  }
  /* A document of one token has no target, so each needs two. */
  if (c->policy == POLICY_PADDED && c->sequence < 2)
    FAIL(ERR_CONFIG, "sequence: %" PRId64 " token with policy padded, where each document has two or more; valid: 2 or more, or policy chunked",
         c->sequence);
  if (c->policy == POLICY_PADDED && 2 * c->documents_each > c->sequence)
    FAIL(ERR_CONFIG, "documents_each: %" PRId64 " do not fit in a sequence of %" PRId64 " tokens; valid: 1..%" PRId64,
         c->documents_each, c->sequence, c->sequence / 2);
  enum fault planted;
  TRY(fault_find(c->fault, &planted));
  if (planted != FAULT_NONE && c->fault_rank >= config_ranks(c))
    FAIL(ERR_CONFIG, "fault_rank: %" PRId64 " is not in the job; valid: 0..%" PRId64, c->fault_rank, config_ranks(c) - 1);
  return ERR_OK;
}

enum err config_finish(struct run_config *c)
{
  struct run_config fresh = *c;
  /* The name becomes the name of a directory. */
  if (fresh.name[0] == '\0' || fresh.name[0] == '.' || strchr(fresh.name, '/'))
    FAIL(ERR_CONFIG, "name: '%s' is no file name; valid: not empty, no '/', no '.' in front", fresh.name);
  TRY(finish_model(&fresh));
  TRY(finish_precision(&fresh));
  TRY(finish_reduce_type(&fresh));
  TRY(finish_scale(&fresh));
  TRY(finish_transport(&fresh));
  TRY(finish_offload(&fresh));
  TRY(finish_layout(&fresh));
  TRY(finish_slowness(&fresh));
  TRY(finish_batches(&fresh));
  TRY(finish_dumps(&fresh));
  TRY(finish_reads(&fresh));
  TRY(finish_training(&fresh));
  *c = fresh;
  return ERR_OK;
}

/* --- writing -------------------------------------------------------------- */

static void write_text(const char *text, FILE *file)
{
  fputc('"', file);
  for (; *text; text++) {
    if (*text == '"' || *text == '\\') fputc('\\', file);
    fputc(*text, file);
  }
  fputc('"', file);
}

enum err config_write(const struct run_config *c, const char *path)
{
  FILE *file = fopen(path, "wb");
  if (file == NULL) FAIL(ERR_IO, "%s: %s", path, strerror(errno));
  for (int i = 0; i < run_options_count; i++) {
    char text[CONFIG_PATH];
    opt_text(&run_options[i], c, text, sizeof text);
    fprintf(file, "%s: ", run_options[i].key);
    if (run_options[i].type == OPT_TEXT)
      write_text(text, file);
    else
      fputs(text, file);
    fputc('\n', file);
  }
  const bool lost = fflush(file) != 0 || ferror(file);
  const int reason = errno;
  if (fclose(file) != 0 || lost) FAIL(ERR_IO, "%s: %s", path, strerror(lost ? reason : errno));
  return ERR_OK;
}
