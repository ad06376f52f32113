/* staging_cases.h - gradients in slots against sums made here, on 2 and 3 ranks.
 *
 * Rank r's gradient of element i in micro-batch m is a small whole number, so sums are exact in any order.  A backward is
 * played unit by unit on the compute stream: begun, added to, its buckets given to be reduced.
 */
#include "base/fault.h"
#include "comm/comm_testing.h"
#include "ops/ops.h"
#include "parallel/staging.h"
#include "testing/check.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct comm_world *world;
enum { M = 3, BUCKET = 50 };

struct play {
  struct run_config run;
  struct param_table *table;
  struct flat *flat;
  struct dev *d;
  struct dev_stream *compute, *transfer;
  struct comm *comm;
  struct staging *staging;
  struct tensor parts[M]; /* flat: this rank's gradients of a micro-batch       */
  struct tensor shard, out; /* out: a copy of the shard that compute makes at the end */
};

static double part(int r, int m, int64_t i) { return (double)((i * 7 + r * 5 + m * 11) % 13 - 6); }

static struct tensor buffer(struct play *p, int64_t count)
{
  void *at;
  CHECK_OK(mirror_alloc(p->compute, (size_t)count * sizeof(float), "test", &at));
  return tensor_at(at, DTYPE_F32, 1, count);
}

static struct staging_config config_of(const struct play *p)
{
  return (struct staging_config){.run = &p->run, .flat = p->flat, .comm = p->comm, .compute = p->compute, .reduced = run_reduce_type(&p->run), .shard = p->shard.at};
}

static void open_play(struct play *p, const struct dev_config *device, const char *more)
{
  const char *const set[][2] = {{"model", "tiny"}, {"layers", "4"}, {"heads", "2"}, {"hidden", "4"}, {"positions", "7"},
                                {"vocab", "11"},   {"unused", "true"}, {"sequence", "7"}, {"tied", "false"}};
  char copy[128];
  int ranks[8];
  const int n = comm_size(world);
  *p = (struct play){0};
  config_default(&p->run);
  for (size_t i = 0; i < sizeof set / sizeof *set; i++) CHECK_OK(config_set(&p->run, set[i][0], set[i][1]));
  snprintf(copy, sizeof copy, "%s", more);
  for (char *rest, *word = strtok_r(copy, " ", &rest); word; word = strtok_r(NULL, " ", &rest)) {
    char *value = strchr(word, '=');
    *value = '\0';
    CHECK_OK(config_set(&p->run, word, value + 1));
  }
  CHECK_OK(config_finish(&p->run));
  p->run.zero = 2;
  p->run.dp = n;
  CHECK_OK(params_create(&p->run, &p->table));
  CHECK_OK(flat_create(p->table, &params_place_alone, 4, n, true, BUCKET, &p->flat));
  const struct dev_config here = mirror_config(device);
  CHECK_OK(dev_open(mirror_kind(device->kind) == device->kind ? device : &here, &p->d));
  CHECK_OK(dev_stream_open(p->d, "compute", DEV_COMPUTE, &p->compute));
  CHECK_OK(dev_stream_open(p->d, "transfer", DEV_TRANSFER, &p->transfer));
  for (int i = 0; i < n; i++) ranks[i] = i;
  const struct comm_config dp = {.name = "dp", .reduce = COMM_ORDERED};
  CHECK_OK(test_comm(world, p->transfer, ranks, n, 1 << 12, &dp, &p->comm));
  for (int m = 0; m < M; m++) {
    p->parts[m] = buffer(p, p->flat->count);
    float *const at = mirror_of(p->parts[m].at);
    for (int64_t i = 0; i < p->flat->count; i++) at[i] = (float)part(comm_rank(world), m, i);
    mirror_push(p->parts[m].at);
  }
  p->shard = buffer(p, flat_shard_count(p->flat));
  p->out = buffer(p, flat_shard_count(p->flat));
  const struct staging_config config = config_of(p);
  CHECK_OK(staging_create(&config, &p->staging));
}

static void close_play(struct play *p)
{
  staging_destroy(p->staging);
  comm_destroy(p->comm);
  mirror_free(p->d, p->out.at);
  mirror_free(p->d, p->shard.at);
  for (int m = 0; m < M; m++) mirror_free(p->d, p->parts[m].at);
  dev_stream_close(p->transfer);
  dev_stream_close(p->compute);
  dev_close(p->d);
  flat_destroy(p->flat);
  params_destroy(p->table);
}

static void add_to(struct play *p, int m, int unit)
{
  const struct flat_unit *u = &p->flat->units[unit];
  CHECK_OK(staging_begin(p->staging, unit));
  const struct tensor to = tensor_at(staging_at(p->staging, unit), DTYPE_F32, 1, u->count), from = tensor_part(&p->parts[m], 0, 1, u->first, u->count);
  CHECK_OK(op_accumulate(p->compute, &to, &from));
}

static void reduce(struct play *p, int unit)
{
  const struct flat_unit *u = &p->flat->units[unit];
  for (int b = u->first_bucket; b < u->first_bucket + u->buckets; b++) CHECK_OK(staging_reduce(p->staging, b));
}

static void micro_batch(struct play *p, int m)
{
  for (int unit = p->flat->n_units - 1; unit >= 0; unit--) {
    add_to(p, m, unit);
    reduce(p, unit);
  }
  CHECK_OK(staging_finish(p->staging, m, M));
}

static void take_shard(struct play *p) { CHECK_OK(op_copy(p->compute, &p->out, &p->shard)); }

/* Elements of this rank's shard that are not the sum over ranks and micro-batches, each counted `times`. */
static int64_t wrong(const struct play *p, double times)
{
  int64_t n = 0;
  const float *out = mirror_of(p->out.at);
  for (int b = 0; b < p->flat->n_buckets; b++) {
    const struct flat_bucket *k = &p->flat->buckets[b];
    const int64_t each = k->count / p->flat->shards;
    for (int64_t i = 0; i < each; i++) {
      double want = 0;
      for (int r = 0; r < p->flat->shards; r++)
        for (int m = 0; m < M; m++) want += part(r, m, k->first + comm_rank(world) * each + i);
      n += out[k->first / p->flat->shards + i] != (float)(times * want);
    }
  }
  return n;
}

static void shards_are_the_sums_over_ranks_and_micro_batches(void)
{
  static const char *const ways[] = {"overlap=true", "overlap=false", "reduce_type=bf16", "overlap=true"};
  for (int way = 0; way < 8; way++) {
    struct play p;
    const struct dev_config d = {.kind = way < 4 ? DEV_CPU : DEV_LAZY, .threads = 1, .lazy_seed = (uint64_t)way, .poison_end = way % 2};
    open_play(&p, &d, ways[way % 4]);
    for (int step = 0; step < 2; step++) { /* the second starts from what the first left */
      for (int m = 0; m < M; m++) micro_batch(&p, m);
      take_shard(&p);
    }
    CHECK_OK(mirror_sync(p.d));
    CHECK(wrong(&p, 1) == 0);
    close_play(&p);
  }
}

/* The order in which a backward uses blocks 2 and 1 again after 4 and 3 that share their parameters. */
static void a_block_used_twice_keeps_its_slot_between(void)
{
  struct play p;
  open_play(&p, &(struct dev_config){.kind = DEV_CPU, .threads = 1}, "reused=2");
  CHECK(p.flat->n_units == 4);
  for (int m = 0; m < M; m++) {
    add_to(&p, m, 3);
    reduce(&p, 3);
    add_to(&p, m, 2);
    add_to(&p, m, 1);
    add_to(&p, m, 2);
    reduce(&p, 2);
    add_to(&p, m, 1);
    reduce(&p, 1);
    add_to(&p, m, 0);
    reduce(&p, 0);
    CHECK_OK(staging_finish(p.staging, m, M));
  }
  take_shard(&p);
  CHECK_OK(mirror_sync(p.d));
  const float *out = mirror_of(p.out.at);
  for (int b = 0; b < p.flat->n_buckets; b++) {
    const struct flat_bucket *k = &p.flat->buckets[b];
    const int64_t each = k->count / p.flat->shards, first = k->first + comm_rank(world) * each;
    const bool twice = k->first >= p.flat->units[1].first && k->first < p.flat->units[3].first;
    double want = 0;
    for (int r = 0; r < p.flat->shards; r++)
      for (int m = 0; m < M; m++) want += part(r, m, first);
    CHECK(out[k->first / p.flat->shards] == (float)(want * (twice ? 2 : 1)));
  }
  close_play(&p);
}

static void a_unit_that_was_not_begun_adds_nothing(void)
{
  struct play p;
  open_play(&p, &(struct dev_config){.kind = DEV_CPU, .threads = 1}, "");
  for (int m = 0; m < M; m++) {
    for (int unit = p.flat->n_units - 1; unit >= 0; unit--) reduce(&p, unit);
    CHECK_OK(staging_finish(p.staging, m, M));
  }
  take_shard(&p);
  CHECK_OK(mirror_sync(p.d));
  for (int64_t i = 0; i < p.out.cols; i++) CHECK(((const float *)mirror_of(p.out.at))[i] == 0.0f);
  close_play(&p);
}

static void each_bucket_is_scattered_as_soon_as_it_is_given(void)
{
  for (int overlap = 0; overlap < 2; overlap++) {
    struct play p;
    int64_t n;
    open_play(&p, &(struct dev_config){.kind = DEV_CPU, .threads = 1}, overlap ? "overlap=true" : "overlap=false");
    comm_trace_restart(world);
    add_to(&p, 0, 5);
    reduce(&p, 5);
    comm_trace(world, &n);
    CHECK(n == p.flat->units[5].buckets);
    for (int unit = 4; unit >= 0; unit--) reduce(&p, unit);
    const struct comm_call *calls = comm_trace(world, &n);
    CHECK(n == p.flat->n_buckets);
    for (int64_t i = 0; i < n; i++)
      CHECK(strcmp(calls[i].op, "reduce_scatter") == 0 && calls[i].count == p.flat->buckets[i].count && strcmp(calls[i].stream, "transfer") == 0);
    CHECK_OK(staging_finish(p.staging, 0, 1));
    CHECK_OK(dev_sync(p.d));
    close_play(&p);
  }
}

static void two_slots_serve_all_blocks(void)
{
  for (int reused = 0; reused < 3; reused++) {
    struct play p;
    struct dev_usage usage;
    char more[32];
    snprintf(more, sizeof more, "reused=%d", reused);
    open_play(&p, &(struct dev_config){.kind = DEV_CPU, .threads = 1}, more);
    dev_usage(p.d, &usage);
    const struct flat *f = p.flat;
    const int64_t elements = f->units[0].count + f->units[f->n_units - 1].count + (2 + reused) * f->units[1].count;
    CHECK(usage.now[DEV_GRADIENTS] == (size_t)elements * sizeof(float));
    const int64_t before = usage.allocations;
    for (int m = 0; m < M; m++) micro_batch(&p, m);
    CHECK_OK(dev_sync(p.d));
    dev_usage(p.d, &usage);
    CHECK(usage.allocations == before);
    close_play(&p);
  }
}

static void misuse_is_refused(void)
{
  struct play p;
  struct staging *other = NULL;
  open_play(&p, &(struct dev_config){.kind = DEV_CPU, .threads = 1}, "");
  CHECK_ERR(staging_begin(p.staging, -1), ERR_ARG);
  CHECK_ERR(staging_begin(p.staging, p.flat->n_units), ERR_ARG);
  CHECK_OK(staging_begin(p.staging, 4));
  CHECK_OK(staging_begin(p.staging, 3));
  CHECK_ERR(staging_begin(p.staging, 2), ERR_ARG);
  CHECK_TEXT_HAS(err_text(), "no slot is free for unit 2");
  CHECK_ERR(staging_finish(p.staging, 0, 1), ERR_ARG);
  CHECK_TEXT_HAS(err_text(), "of unit 3 are not reduced");
  CHECK_OK(dev_sync(p.d));
  struct staging_config unequal = config_of(&p);
  struct flat *flat;
  CHECK_OK(flat_create(p.table, &params_place_alone, 4, comm_size(world) + 1, true, BUCKET, &flat));
  unequal.flat = flat;
  CHECK_ERR(staging_create(&unequal, &other), ERR_ARG);
  CHECK(other == NULL);
  flat_destroy(flat);
  close_play(&p);
}

static void creation_survives_each_failed_allocation(void)
{
  struct play p;
  struct staging *other = NULL;
  struct dev_usage before, after;
  open_play(&p, &(struct dev_config){.kind = DEV_CPU, .threads = 1}, "reduce_type=bf16");
  const struct staging_config config = config_of(&p);
  dev_usage(p.d, &before);
  enum err e = ERR_MEMORY;
  int failures = 0;
  for (long n = 1; e != ERR_OK && n < 200; n++) {
    check_fail_allocation(n);
    e = staging_create(&config, &other);
    check_fail_allocation(0);
    failures += e == ERR_MEMORY;
    dev_usage(p.d, &after);
    CHECK((e == ERR_OK) == (other != NULL));
    CHECK(e == ERR_OK || after.now[DEV_GRADIENTS] == before.now[DEV_GRADIENTS]);
  }
  CHECK_OK(e);
  CHECK(failures >= 4);
  staging_destroy(other);
  staging_destroy(NULL);
  close_play(&p);
}

int main(void)
{
  static const struct test tests[] = {
    TEST(shards_are_the_sums_over_ranks_and_micro_batches),
    TEST(a_block_used_twice_keeps_its_slot_between),
    TEST(a_unit_that_was_not_begun_adds_nothing),
    TEST(each_bucket_is_scattered_as_soon_as_it_is_given),
    TEST(two_slots_serve_all_blocks),
    TEST(misuse_is_refused),
    TEST(creation_survives_each_failed_allocation),
  };
  if (comm_world_open(&world) != ERR_OK) {
    fprintf(stderr, "%s\n", err_text());
    return 1;
  }
  const int status = test_main("staging", tests, sizeof tests / sizeof *tests);
  comm_world_close(world);
  return status;
}
