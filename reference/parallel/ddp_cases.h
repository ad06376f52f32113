/* ddp_cases.h - gradients reduced in buckets against sums made here, on 1 to 4 ranks.
 *
 * Backward is played: row by row from the last, each micro-batch adds known values to the
 * row's gradient on the compute stream and says that the row is ready.
 */
#include "base/bf16.h"
#include "base/fault.h"
#include "base/rng.h"
#include "comm/comm_testing.h"
#include "ops/ops.h"
#include "parallel/ddp.h"
#include "testing/check.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct comm_world *world;
enum { M = 3 };

/* A run of `replicas` emulated ones, or of all ranks when 1. */
struct play {
  struct run_config run;
  struct param_table *table;
  struct flat *flat;
  struct dev *d;
  struct dev_stream *compute, *transfer;
  struct comm *comm, *groups; /* of ranks that share, or all; of those with the same shard */
  struct ddp *ddp;
  struct tensor gradients, out; /* out: a copy that the compute stream makes after the finish */
  struct tensor parts[4 * M];   /* of replica r, micro-batch m: r * M + m */
};

static void settings(struct run_config *c, int replicas, const char *more)
{
  const char *const set[][2] = {{"model", "tiny"}, {"layers", "2"}, {"heads", "2"}, {"hidden", "4"}, {"positions", "7"},
                                {"vocab", "11"},   {"unused", "true"}, {"frozen", "ln_f"}, {"sequence", "7"}, {"reduce", "ordered"}};
  char copy[256], text[16];
  config_default(c);
  for (size_t i = 0; i < sizeof set / sizeof *set; i++) CHECK_OK(config_set(c, set[i][0], set[i][1]));
  const int dp = replicas > 1 ? 1 : comm_size(world);
  snprintf(text, sizeof text, "%d", dp);
  CHECK_OK(config_set(c, "dp", text));
  snprintf(text, sizeof text, "%d", replicas);
  CHECK_OK(config_set(c, "replicas", text));
  snprintf(text, sizeof text, "%d", M * dp * replicas);
  CHECK_OK(config_set(c, "global_batch", text));
  snprintf(copy, sizeof copy, "%s", more);
  for (char *rest, *word = strtok_r(copy, " ", &rest); word; word = strtok_r(NULL, " ", &rest)) {
    char *value = strchr(word, '=');
    *value = '\0';
    CHECK_OK(config_set(c, word, value + 1));
  }
  CHECK_OK(config_finish(c));
}

static double part(int r, int m, int64_t i, enum dtype type)
{
  const struct rng_key key = {23, RNG_TEST, (uint32_t)(r * M + m)};
  const double x = rng_uniform(key, (uint64_t)i) * 2 - 1;
  return type == DTYPE_F32 ? (double)(float)x : x;
}

static void set(const struct tensor *t, int64_t i, double x)
{
  void *at = mirror_of(t->at);
  if (t->type == DTYPE_F32) ((float *)at)[i] = (float)x;
  else ((double *)at)[i] = x;
}
static double get(const struct tensor *t, int64_t i)
{
  const void *at = mirror_of(t->at);
  return t->type == DTYPE_F32 ? (double)((const float *)at)[i] : ((const double *)at)[i];
}

static struct tensor buffer(struct play *p)
{
  void *at;
  const enum dtype type = run_state_type(&p->run);
  CHECK_OK(mirror_alloc(p->compute, (size_t)p->flat->count * dtype_bytes(type), "test", &at));
  return tensor_at(at, type, 1, p->flat->count);
}

static struct ddp_config config_of(const struct play *p)
{
  return (struct ddp_config){.run = &p->run, .table = p->table, .flat = p->flat, .comm = p->comm, .replicas = p->groups,
                             .compute = p->compute, .gradients = p->gradients.at};
}

static void open_play(struct play *p, enum dev_kind kind, int replicas, const char *more)
{
  *p = (struct play){0};
  settings(&p->run, replicas, more);
  CHECK_OK(params_create(&p->run, &p->table));
  struct params_place place; /* the first stage's, if there are several */
  CHECK_OK(params_place_of(&p->run, 0, 0, &place));
  CHECK_OK(flat_create(p->table, &place, 4, run_shards(&p->run), false, p->run.bucket, &p->flat));
  const struct dev_config on = {.kind = kind, .threads = 1, .lazy_seed = 9, .poison_end = p->run.poison_end};
  CHECK_OK(test_dev_as(&on, &p->d));
  CHECK_OK(dev_stream_open(p->d, "compute", DEV_COMPUTE, &p->compute));
  CHECK_OK(dev_stream_open(p->d, "gradients", DEV_TRANSFER, &p->transfer));
  int ranks[8] = {comm_rank(world)};
  for (int i = 0; i < comm_size(world) && replicas == 1; i++) ranks[i] = i;
  const struct comm_config dp = {.name = "dp", .reduce = p->run.reduce == REDUCE_ORDERED ? COMM_ORDERED : COMM_FAST,
                                 .silent = !p->run.communicate};
  const int shards = p->run.zero > 0 && p->run.dp > 1 ? p->flat->shards : (int)p->run.dp, groups = (int)p->run.dp / shards;
  const int first = p->run.dp > 1 ? comm_rank(world) / shards * shards : 0, s = comm_rank(world) % shards;
  CHECK_OK(test_comm(world, p->transfer, ranks + first, shards, 1 << 12, &dp, &p->comm));
  const struct comm_config same = {.name = "replicas", .reduce = dp.reduce};
  const int alike[4] = {s, s + shards, s + 2 * shards, s + 3 * shards};
  if (groups > 1) CHECK_OK(test_comm(world, p->transfer, alike, groups, 1 << 12, &same, &p->groups));
  p->gradients = buffer(p);
  p->out = buffer(p);
  for (int k = 0; k < replicas * M; k++) {
    p->parts[k] = buffer(p);
    const int r = replicas > 1 ? k / M : comm_rank(world);
    for (int64_t i = 0; i < p->flat->count; i++) set(&p->parts[k], i, part(r, k % M, i, p->parts[k].type));
    mirror_push(p->parts[k].at);
  }
  const struct ddp_config config = config_of(p);
  CHECK_OK(ddp_create(&config, &p->ddp));
}

static void close_play(struct play *p)
{
  ddp_destroy(p->ddp);
  comm_destroy(p->groups);
  comm_destroy(p->comm);
  for (int k = 0; k < 4 * M; k++) mirror_free(p->d, p->parts[k].at);
  mirror_free(p->d, p->out.at);
  mirror_free(p->d, p->gradients.at);
  dev_stream_close(p->transfer);
  dev_stream_close(p->compute);
  dev_close(p->d);
  flat_destroy(p->flat);
  params_destroy(p->table);
}

static bool takes_part(const struct play *p, int row)
{
  return p->table->rows[row].shared_with < 0 && !p->table->rows[row].unused && p->flat->length[row] > 0;
}

static void backward(struct play *p, int r, int m, bool last)
{
  for (int row = p->table->n - 1; row >= 0; row--) {
    if (!takes_part(p, row)) continue;
    const struct tensor to = tensor_part(&p->gradients, 0, 1, p->flat->offset[row], p->flat->length[row]);
    const struct tensor from = tensor_part(&p->parts[r * M + m], 0, 1, p->flat->offset[row], p->flat->length[row]);
    CHECK_OK(op_accumulate(p->compute, &to, &from));
    if (last) ddp_ready(p->ddp, row);
  }
}

/* One step as ddp.h says it; out gets what the compute stream then sees. */
static void step(struct play *p)
{
  const int R = (int)p->run.replicas;
  CHECK_OK(op_fill(p->compute, &p->gradients, 0));
  if (p->run.reduce_each == REDUCE_STEP) {
    for (int r = 0; r < R; r++) {
      for (int m = 0; m < M; m++) backward(p, r, m, m == M - 1);
      CHECK_OK(ddp_fold(p->ddp, r));
    }
    CHECK_OK(ddp_finish(p->ddp));
  } else {
    for (int m = 0; m < M; m++) {
      for (int r = 0; r < R; r++) {
        backward(p, r, m, true);
        CHECK_OK(ddp_fold(p->ddp, r));
      }
      CHECK_OK(ddp_finish(p->ddp));
    }
  }
  CHECK_OK(op_copy(p->compute, &p->out, &p->gradients));
}

static double add(double a, double b, enum dtype type) { return type == DTYPE_F32 ? (double)((float)a + (float)b) : a + b; }

static double rounded(double x, bool to_bf16) { return to_bf16 ? (double)bf16_widen(bf16_round((float)x)) : x; }

/* Element i of the step's gradient over the n replicas from `first` on, in the order that ddp.h promises: what each
 * brings to a reduction is rounded, and what comes out of it. */
static double of_group(int first, int n, int64_t i, enum dtype type, bool each_microbatch, bool to_bf16)
{
  double sum = 0;
  for (int outer = 0; outer < (each_microbatch ? M : n); outer++) {
    double inner = 0;
    for (int k = 0; k < (each_microbatch ? n : M); k++) {
      const double x = each_microbatch ? rounded(part(first + k, outer, i, type), to_bf16) : part(first + outer, k, i, type);
      inner = k == 0 ? x : add(inner, x, type);
    }
    inner = rounded(inner, to_bf16);
    sum = outer == 0 ? inner : add(sum, inner, type);
  }
  return each_microbatch ? sum : rounded(sum, to_bf16);
}

/* Over n replicas, of which groups share. */
static double expected(const struct play *p, int n, int64_t i)
{
  const bool to_bf16 = run_reduce_type(&p->run) == DTYPE_BF16 && n > 1, each = p->run.reduce_each == REDUCE_MICROBATCH;
  const int in_group = p->run.zero > 0 ? p->flat->shards : n;
  double sum = of_group(0, in_group, i, p->out.type, each, to_bf16);
  if (in_group == n) return sum;
  sum = rounded(sum, to_bf16);
  for (int first = in_group; first < n; first += in_group)
    sum = add(sum, rounded(of_group(first, in_group, i, p->out.type, each, to_bf16), to_bf16), p->out.type);
  return rounded(sum, to_bf16);
}

/* Where ranks share, each has the sum of the elements of its shard alone. */
static bool is_here(const struct play *p, int64_t i)
{
  if (p->run.zero == 0 || p->run.dp == 1) return true;
  int b = 0;
  while (p->flat->buckets[b].first > i) b++;
  const int64_t part = p->flat->buckets[b].count / p->flat->shards;
  return (i - p->flat->buckets[b].first) / part == comm_rank(world) % p->flat->shards;
}

/* Rows whose gradient differs from what is expected over n replicas; a bit each. */
static uint64_t wrong_rows(const struct play *p, int n, double bound)
{
  uint64_t wrong = 0;
  for (int row = 0; row < p->table->n; row++)
    for (int64_t i = p->flat->offset[row]; takes_part(p, row) && i < p->flat->offset[row] + p->flat->length[row]; i++) {
      const double want = expected(p, n, i), got = get(&p->out, i);
      if (is_here(p, i) && !(fabs(got - want) <= bound)) wrong |= 1ull << row;
    }
  return wrong;
}

/* Bucket sizes around each row's length, and one bucket, for each way of reducing. */
static void any_bucket_size_gives_the_bits_of_the_serial_sum(void)
{
  static const char *const ways[] = {"reduce_each=step overlap=true precision=float32", "reduce_each=step overlap=false precision=float64",
                                     "reduce_each=microbatch overlap=true precision=float32", "reduce_type=bf16",
                                     "reduce_each=microbatch reduce_type=bf16 precision=bf16"};
  static const int64_t lengths[] = {44, 28, 4, 48, 12, 16, 64}; /* of tiny's rows as set above */
  for (int w = 0; w < 5; w++)
    for (int b = -1; b < 21; b += mirror_cuda() || comm_size(world) > 3 ? 5 : w < 3 ? 1 : 4) {
      char more[128];
      struct play p;
      snprintf(more, sizeof more, "%s bucket=%d", ways[w], b < 0 ? 0 : (int)lengths[b / 3] + b % 3 - 1);
      open_play(&p, b % 2 ? DEV_LAZY : DEV_CPU, 1, more);
      for (int k = 0; k < 2; k++) step(&p); /* the second starts from what the first left */
      CHECK_OK(mirror_sync(p.d));
      if (!CHECK(wrong_rows(&p, comm_size(world), 0) == 0)) fprintf(stderr, "%s\n", more);
      close_play(&p);
    }
}

static void emulated_replicas_give_the_bits_of_ranks(void)
{
  static const char *const ways[] = {"reduce_each=step", "reduce_each=microbatch", "reduce_each=step overlap=false precision=float64",
                                     "reduce_each=microbatch bucket=20", "reduce_type=bf16 bucket=50",
                                     "reduce_each=microbatch reduce_type=bf16"};
  for (int w = 0; w < 6; w++)
    for (int replicas = 2; replicas <= 4; replicas++) {
      struct play p;
      open_play(&p, replicas % 2 ? DEV_LAZY : DEV_CPU, replicas, ways[w]);
      for (int k = 0; k < 2; k++) step(&p);
      CHECK_OK(mirror_sync(p.d));
      CHECK(wrong_rows(&p, replicas, 0) == 0);
      close_play(&p);
    }
}

/* Elements of this rank's shard that no reduction but its own has summed: with any bucket size, also in groups. */
static void ranks_that_share_have_the_sums_of_their_shard(void)
{
  static const char *const ways[] = {"", "overlap=false precision=float64", "reduce_each=microbatch", "reduce_type=bf16",
                                     "reduce_each=microbatch reduce_type=bf16 precision=bf16"};
  const int n = comm_size(world);
  for (int shard = 2; shard <= n; shard++)
    for (int w = 0; w < 5; w++)
      for (int bucket = 0; bucket < 80; bucket += 16) {
        char more[128];
        struct play p;
        if (n % shard != 0) continue;
        snprintf(more, sizeof more, "zero=1 shard=%d bucket=%d %s", shard, bucket, ways[w]);
        open_play(&p, bucket % 32 ? DEV_LAZY : DEV_CPU, 1, more);
        for (int k = 0; k < 2; k++) step(&p);
        CHECK_OK(mirror_sync(p.d));
        if (!CHECK(wrong_rows(&p, n, 0) == 0)) fprintf(stderr, "%s\n", more);
        close_play(&p);
      }
}

/* Elements of the flat gradient that are other ranks' and not NaN, of this rank's and not the sum. */
static int64_t not_retired(const struct play *p, int n)
{
  int64_t alive = 0;
  for (int64_t i = 0; i < p->flat->count; i++) alive += !is_here(p, i) && !isnan(get(&p->out, i));
  return alive + (wrong_rows(p, n, 0) != 0);
}

/* Whoever reads a piece that is not its own reads NaN; the next step begins as the first did. */
static void what_other_ranks_have_of_the_sums_is_dead(void)
{
  static const char *const ways[] = {"", "overlap=false", "reduce_each=microbatch", "reduce_type=bf16", "reduce_each=microbatch reduce_type=bf16"};
  const int n = comm_size(world);
  for (int shard = 2; shard <= n; shard++)
    for (int w = 0; w < 5 && n % shard == 0; w++) {
      char more[128];
      struct play p;
      snprintf(more, sizeof more, "zero=1 shard=%d bucket=%d poison_end=true %s", shard, w % 2 ? 50 : 0, ways[w]);
      open_play(&p, w % 2 ? DEV_LAZY : DEV_CPU, 1, more);
      for (int k = 0; k < 2; k++) {
        step(&p);
        CHECK_OK(mirror_sync(p.d));
        if (!CHECK(not_retired(&p, n) == 0)) fprintf(stderr, "%s\n", more);
      }
      close_play(&p);
    }
}

static void emulated_ranks_that_share_add_in_groups(void)
{
  static const char *const ways[] = {"shard=2", "shard=2 reduce_each=microbatch", "shard=2 reduce_type=bf16", "",
                                     "shard=2 reduce_each=microbatch reduce_type=bf16 bucket=50"};
  for (int w = 0; w < 5; w++) {
    char more[128];
    struct play p;
    snprintf(more, sizeof more, "zero=1 %s", ways[w]);
    open_play(&p, w % 2 ? DEV_LAZY : DEV_CPU, 4, more);
    for (int k = 0; k < 2; k++) step(&p);
    CHECK_OK(mirror_sync(p.d));
    if (!CHECK(wrong_rows(&p, 4, 0) == 0)) fprintf(stderr, "%s\n", more);
    close_play(&p);
  }
}

/* A bucket is scattered once, and its piece added over groups behind it. */
static void buckets_are_scattered_in_the_order_in_which_they_are_reduced(void)
{
  const int n = comm_size(world), shard = n % 2 == 0 ? 2 : n;
  char more[64];
  struct play p;
  int64_t calls;
  if (n == 1) return;
  snprintf(more, sizeof more, "zero=1 shard=%d bucket=50", shard);
  open_play(&p, DEV_CPU, 1, more);
  comm_trace_restart(world);
  step(&p);
  CHECK_OK(mirror_sync(p.d));
  const struct comm_call *c = comm_trace(world, &calls);
  const int each = shard < n ? 2 : 1;
  CHECK(calls == each * p.flat->n_buckets && p.flat->n_buckets > 3);
  for (int64_t i = 0; i < calls; i++) {
    const int64_t count = p.flat->buckets[i / each].count;
    CHECK(strcmp(c[i].op, i % each ? "allreduce" : "reduce_scatter") == 0 && c[i].count == (i % each ? count / shard : count));
  }
  close_play(&p);
}

/* The library's own sums: near, and the same bits with overlap on and off. */
static void overlap_changes_no_bit_of_the_librarys_sums(void)
{
  struct play on, off;
  open_play(&on, DEV_CPU, 1, "reduce=fast overlap=true bucket=50");
  open_play(&off, DEV_CPU, 1, "reduce=fast overlap=false bucket=50");
  step(&on);
  CHECK_OK(mirror_sync(on.d));
  step(&off);
  CHECK_OK(mirror_sync(off.d));
  CHECK(wrong_rows(&on, comm_size(world), 1e-5) == 0);
  CHECK_SAME_BITS(mirror_of(on.out.at), mirror_of(off.out.at), (size_t)on.flat->offset[on.table->n - 1] * dtype_bytes(on.out.type));
  close_play(&off);
  close_play(&on);
}

/* The unused parameter, which no backward makes ready, holds back nothing. */
static void overlap_queues_each_bucket_before_backward_ends(void)
{
  for (int overlap = 0; overlap < 2; overlap++) {
    struct play p;
    int64_t n;
    open_play(&p, DEV_CPU, 1, overlap ? "overlap=true bucket=50" : "overlap=false bucket=50");
    CHECK_OK(op_fill(p.compute, &p.gradients, 0));
    comm_trace_restart(world);
    backward(&p, 0, 0, true);
    comm_trace(world, &n);
    CHECK(n == (overlap ? p.flat->n_buckets : 0));
    CHECK_OK(ddp_finish(p.ddp));
    CHECK_OK(mirror_sync(p.d));
    close_play(&p);
  }
}

/* Rows of other stages, which no backward here makes ready, hold back nothing either. */
static void a_stage_reduces_what_it_holds(void)
{
  struct play p;
  int64_t n;
  open_play(&p, DEV_CPU, 1, "pp=2 overlap=true bucket=50");
  const int elsewhere = params_find(p.table, "transformer.ln_f.weight");
  CHECK(p.flat->length[elsewhere] == 0 && p.flat->n_buckets > 3);
  CHECK(p.flat->buckets[0].first_row < elsewhere && p.flat->buckets[0].first_row + p.flat->buckets[0].rows > elsewhere);
  CHECK_OK(op_fill(p.compute, &p.gradients, 0));
  comm_trace_restart(world);
  for (int m = 0; m < M; m++) backward(&p, 0, m, m == M - 1);
  comm_trace(world, &n);
  CHECK(n == p.flat->n_buckets);
  CHECK_OK(ddp_finish(p.ddp));
  CHECK_OK(op_copy(p.compute, &p.out, &p.gradients));
  CHECK_OK(mirror_sync(p.d));
  CHECK(wrong_rows(&p, comm_size(world), 0) == 0);
  close_play(&p);
}

static void buckets_are_reduced_once_each_in_one_order(void)
{
  static const char *const ways[] = {"overlap=true bucket=50", "overlap=false bucket=50"};
  for (int w = 0; w < 2; w++) {
    struct play p;
    int64_t n;
    open_play(&p, DEV_CPU, 1, ways[w]);
    comm_trace_restart(world);
    step(&p);
    CHECK_OK(mirror_sync(p.d));
    const struct comm_call *calls = comm_trace(world, &n);
    CHECK(n == p.flat->n_buckets && n > 3);
    for (int64_t i = 0; i < n; i++) CHECK(strcmp(calls[i].op, "allreduce") == 0 && calls[i].count == p.flat->buckets[i].count);
    close_play(&p);
  }
}

/* float32 is what is asked for: in type and bytes on the way, and in bits. */
static void a_type_that_was_not_asked_for_is_seen(void)
{
  static const struct { const char *more, *fault; enum dtype type; } ways[] = {
    {"precision=bf16 reduce_type=bf16", "", DTYPE_BF16}, {"precision=bf16 reduce_type=float32", "", DTYPE_F32},
    {"precision=bf16", "", DTYPE_F32}, {"reduce_type=float32", "z-reduce-dtype-silently-low", DTYPE_BF16}};
  const bool alone = comm_size(world) == 1; /* nothing is on its way, nothing rounded */
  for (size_t w = 0; w < sizeof ways / sizeof *ways; w++) {
    int64_t n;
    struct play p;
    CHECK_OK(fault_plant(ways[w].fault, 1, 0));
    open_play(&p, DEV_CPU, 1, ways[w].more);
    comm_trace_restart(world);
    step(&p);
    CHECK_OK(mirror_sync(p.d));
    const struct comm_call *calls = comm_trace(world, &n);
    for (int64_t i = 0; i < n; i++) CHECK(calls[i].type == (alone ? DTYPE_F32 : ways[w].type));
    CHECK((wrong_rows(&p, comm_size(world), 0) != 0) == (ways[w].fault[0] != '\0' && !alone));
    close_play(&p);
    CHECK_OK(fault_plant("", 1, 0));
  }
}

static void without_communication_gradients_stay_ones_own(void)
{
  struct play p;
  int64_t n;
  open_play(&p, DEV_CPU, 1, "communicate=false");
  comm_trace_restart(world);
  step(&p);
  CHECK_OK(mirror_sync(p.d));
  const struct comm_call *calls = comm_trace(world, &n);
  CHECK(n == p.flat->n_buckets);
  for (int64_t i = 0; i < n; i++) CHECK(calls[i].bytes == 0);
  double own = 0;
  for (int m = 0; m < M; m++) own = add(own, part(comm_rank(world), m, 5, p.out.type), p.out.type);
  CHECK(get(&p.out, 5) == own);
  close_play(&p);
}

static void misuse_is_refused(void)
{
  struct play p;
  struct ddp *other = NULL;
  open_play(&p, DEV_CPU, 3, "");
  CHECK_ERR(ddp_fold(p.ddp, 1), ERR_ARG);
  CHECK_OK(op_fill(p.compute, &p.gradients, 0));
  CHECK_OK(ddp_fold(p.ddp, 0));
  CHECK_ERR(ddp_finish(p.ddp), ERR_ARG);
  CHECK_TEXT_HAS(err_text(), "1 of 3 replicas");
  struct run_config wrong = p.run;
  struct ddp_config config = config_of(&p);
  wrong.dp = 7;
  config.run = &wrong;
  CHECK_ERR(ddp_create(&config, &other), ERR_ARG);
  CHECK(other == NULL);
  CHECK_OK(mirror_sync(p.d));
  close_play(&p);

  open_play(&p, DEV_CPU, 1, "");
  ddp_ready(p.ddp, p.table->n);
  CHECK_ERR(ddp_finish(p.ddp), ERR_ARG); /* kept until then */
  CHECK_TEXT_HAS(err_text(), "the table has");
  close_play(&p);
}

static void creation_survives_each_failed_allocation(void)
{
  struct play p;
  struct ddp *other = NULL;
  struct dev_usage before, after;
  open_play(&p, DEV_CPU, 3, "reduce_each=microbatch reduce_type=bf16 bucket=50");
  const struct ddp_config config = config_of(&p);
  dev_usage(p.d, &before);
  enum err e = ERR_MEMORY;
  int failures = 0;
  for (long n = 1; e != ERR_OK && n < 100; n++) {
    check_fail_allocation(n);
    e = ddp_create(&config, &other);
    check_fail_allocation(0);
    failures += e == ERR_MEMORY;
    CHECK((e == ERR_OK) == (other != NULL));
    dev_usage(p.d, &after);
    CHECK(e == ERR_OK || after.now[DEV_GRADIENTS] == before.now[DEV_GRADIENTS]);
  }
  CHECK_OK(e);
  CHECK(failures >= 4);
  int64_t largest = 0;
  for (int i = 0; i < p.flat->n_buckets; i++) largest = p.flat->buckets[i].count > largest ? p.flat->buckets[i].count : largest;
  CHECK(after.now[DEV_GRADIENTS] - before.now[DEV_GRADIENTS] == 2 * (size_t)p.flat->count * dtype_bytes(p.out.type) + (size_t)(2 * largest));
  ddp_destroy(other);
  ddp_destroy(NULL);
  close_play(&p);
}

/* --- planted faults: each shows in the gradients it is about, and only there ------- */

static uint64_t with_fault(const char *name, enum dev_kind kind, const char *more, enum err want)
{
  struct play p;
  comm_trace_restart(world);
  CHECK_OK(fault_plant(name, 0.1, 0));
  open_play(&p, kind, 1, more);
  for (int k = 0; k < 2; k++) step(&p);
  CHECK_ERR(mirror_sync(p.d), want);
  if (want != ERR_OK) CHECK_TEXT_HAS(dev_findings(p.d), "allreduce");
  CHECK_OK(fault_plant("", 1, 0));
  const uint64_t wrong = wrong_rows(&p, comm_size(world), 0);
  close_play(&p);
  return wrong;
}

static void one_slot_for_two_uses_spoils_the_tied_matrix_only(void)
{
  for (int bucket = 0; bucket <= 50; bucket += 25)
    for (int k = 0; k < 2; k++) {
      char more[64];
      snprintf(more, sizeof more, "bucket=%d overlap=%s", bucket, k ? "true" : "false");
      CHECK(with_fault("gr-tied-param-one-slot", k ? DEV_LAZY : DEV_CPU, more, ERR_OK) == (comm_size(world) > 1 ? 1 : 0));
      int64_t n;
      CHECK(comm_trace(world, &n)[0].count == 44); /* its first use alone */
      CHECK(bucket > 0 || n == 4);                 /* then the rest, in each of two steps */
      snprintf(more, sizeof more, "bucket=%d tied=false", bucket);
      CHECK(with_fault("gr-tied-param-one-slot", DEV_CPU, more, ERR_OK) == 0);
    }
}

static void an_exact_fit_is_skipped_and_no_other(void)
{
  struct play p;
  open_play(&p, DEV_CPU, 1, "bucket=44");
  CHECK(p.flat->length[0] == 44);
  close_play(&p);
  CHECK(with_fault("gr-bucket-exact-fit-skipped", DEV_CPU, "bucket=44", ERR_OK) == (comm_size(world) > 1 ? 1 : 0));
  CHECK(with_fault("gr-bucket-exact-fit-skipped", DEV_CPU, "bucket=43", ERR_OK) == 0);
  CHECK(with_fault("gr-bucket-exact-fit-skipped", DEV_CPU, "bucket=45", ERR_OK) == 0);
}

static void an_element_that_nothing_wrote_is_seen(void)
{
  CHECK((with_fault("z-uninitialised-comm-buffer", DEV_CPU, "bucket=0", ERR_OK) & 1) == 1);
}

/* ln_2's rows are not told: their bucket alone stays this rank's own, unless nothing is planted. */
static void what_is_not_told_is_reduced_at_the_finish_and_not_when_hooks_are_bypassed(void)
{
  for (int planted = 0; planted < 2; planted++)
    for (int overlap = 0; overlap < 2; overlap++) {
      struct play p;
      uint64_t own = 0;
      if (planted) CHECK_OK(fault_plant("pp-zb-bypasses-hooks", 1, 0));
      open_play(&p, DEV_CPU, 1, overlap ? "bucket=16 overlap=true" : "bucket=16 overlap=false");
      CHECK_OK(op_fill(p.compute, &p.gradients, 0));
      for (int m = 0; m < M; m++)
        for (int row = p.table->n - 1; row >= 0; row--) {
          if (!takes_part(&p, row)) continue;
          const struct tensor to = tensor_part(&p.gradients, 0, 1, p.flat->offset[row], p.flat->length[row]);
          const struct tensor from = tensor_part(&p.parts[m], 0, 1, p.flat->offset[row], p.flat->length[row]);
          CHECK_OK(op_accumulate(p.compute, &to, &from));
          if (m == M - 1 && strstr(p.table->rows[row].name, "ln_2") == NULL) ddp_ready(p.ddp, row);
        }
      CHECK_OK(ddp_finish(p.ddp));
      CHECK_OK(op_copy(p.compute, &p.out, &p.gradients));
      CHECK_OK(mirror_sync(p.d));
      for (int b = 0; b < p.flat->n_buckets; b++) {
        const struct flat_bucket *bucket = &p.flat->buckets[b];
        bool untold = false;
        for (int row = bucket->first_row; row < bucket->first_row + bucket->rows; row++)
          untold |= strstr(p.table->rows[row].name, "ln_2") != NULL;
        for (int row = bucket->first_row; untold && row < bucket->first_row + bucket->rows; row++)
          if (takes_part(&p, row)) own |= 1ull << row;
      }
      CHECK(own != 0 && (own & 1) == 0);
      CHECK(wrong_rows(&p, comm_size(world), 0) == (planted && comm_size(world) > 1 ? own : 0));
      CHECK_OK(fault_plant("", 1, 0));
      close_play(&p);
    }
}

static void a_missing_wait_for_the_reduction_is_named(void)
{
  with_fault("ov-buffer-overwritten-while-in-flight", DEV_LAZY, "bucket=50", ERR_DEVICE);
}

int main(void)
{
  static const struct test tests[] = {
    TEST(any_bucket_size_gives_the_bits_of_the_serial_sum),
    TEST(emulated_replicas_give_the_bits_of_ranks),
    TEST(ranks_that_share_have_the_sums_of_their_shard),
    TEST(what_other_ranks_have_of_the_sums_is_dead),
    TEST(emulated_ranks_that_share_add_in_groups),
    TEST(buckets_are_scattered_in_the_order_in_which_they_are_reduced),
    TEST(overlap_changes_no_bit_of_the_librarys_sums),
    TEST(overlap_queues_each_bucket_before_backward_ends),
    TEST(a_stage_reduces_what_it_holds),
    TEST(buckets_are_reduced_once_each_in_one_order),
    TEST(a_type_that_was_not_asked_for_is_seen),
    TEST(without_communication_gradients_stay_ones_own),
    TEST(misuse_is_refused),
    TEST(creation_survives_each_failed_allocation),
    TEST(one_slot_for_two_uses_spoils_the_tied_matrix_only),
    TEST(an_exact_fit_is_skipped_and_no_other),
    TEST(an_element_that_nothing_wrote_is_seen),
    TEST(what_is_not_told_is_reduced_at_the_finish_and_not_when_hooks_are_bypassed),
    TEST(a_missing_wait_for_the_reduction_is_named),
  };
  if (comm_world_open(&world) != ERR_OK) {
    fprintf(stderr, "%s\n", err_text());
    return 1;
  }
  const int status = test_main("ddp", tests, sizeof tests / sizeof *tests);
  comm_world_close(world);
  return status;
}
