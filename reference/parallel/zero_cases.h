/* zero_cases.h - weights by unit on 2 and 3 ranks: what a use finds, from when on, and in which order.
 *
 * Element i of the flat weights is i + 1 plus 10000 for each update.  A use copies its unit on the compute stream
 * into a place of its own, which is looked at when all is over.
 */
#include "base/fault.h"
#include "comm/comm_testing.h"
#include "ops/ops.h"
#include "parallel/zero.h"
#include "testing/check.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct comm_world *world;
enum { USES = 48, BUCKET = 50 };

struct play {
  struct run_config run;
  struct param_table *table;
  struct flat *flat;
  struct dev *d;
  struct dev_stream *compute, *gather;
  struct comm *comm;
  struct zero *zero;
  struct tensor weights; /* all, or this rank's shard */
  struct tensor seen;    /* [USES, largest unit] */
  int uses, unit[USES];
};

/* What `more` changes derives nothing else. */
static void settings(struct run_config *c, int stage, const char *more)
{
  const char *const set[][2] = {{"model", "tiny"}, {"layers", "3"}, {"heads", "2"}, {"hidden", "4"}, {"positions", "7"},
                                {"vocab", "11"},   {"unused", "true"}, {"sequence", "7"}};
  char copy[256];
  config_default(c);
  for (size_t i = 0; i < sizeof set / sizeof *set; i++) CHECK_OK(config_set(c, set[i][0], set[i][1]));
  CHECK_OK(config_finish(c));
  c->zero = stage;
  c->dp = comm_size(world);
  snprintf(copy, sizeof copy, "%s", more);
  for (char *rest, *word = strtok_r(copy, " ", &rest); word; word = strtok_r(NULL, " ", &rest)) {
    char *value = strchr(word, '=');
    *value = '\0';
    CHECK_OK(config_set(c, word, value + 1));
  }
}

static struct tensor buffer(struct play *p, int64_t rows, int64_t cols)
{
  void *at;
  CHECK_OK(mirror_alloc(p->compute, (size_t)(rows * cols) * sizeof(float), "test", &at));
  return tensor_at(at, DTYPE_F32, rows, cols);
}

/* Bucket b's part of this rank, in the weights. */
static struct tensor own(const struct play *p, int b)
{
  const struct flat_bucket *k = &p->flat->buckets[b];
  const int64_t each = k->count / p->flat->shards, rank = comm_rank(world);
  return tensor_part(&p->weights, 0, 1, p->run.zero == 3 ? k->first / p->flat->shards : k->first + rank * each, each);
}

static void fill_own(struct play *p, int b)
{
  const struct flat_bucket *k = &p->flat->buckets[b];
  const struct tensor t = own(p, b);
  float *const at = mirror_of(t.at);
  for (int64_t i = 0; i < t.cols; i++) at[i] = (float)(k->first + comm_rank(world) * t.cols + i + 1);
}

static void open_play(struct play *p, const struct dev_config *device, int stage, const char *more)
{
  *p = (struct play){0};
  settings(&p->run, stage, more);
  const int n = comm_size(world);
  int ranks[8];
  int64_t largest = 0;
  CHECK_OK(params_create(&p->run, &p->table));
  CHECK_OK(flat_create(p->table, &params_place_alone, 4, n, stage >= 2, BUCKET, &p->flat));
  const struct dev_config here = mirror_config(device);
  CHECK_OK(dev_open(mirror_kind(device->kind) == device->kind ? device : &here, &p->d));
  CHECK_OK(dev_stream_open(p->d, "compute", DEV_COMPUTE, &p->compute));
  CHECK_OK(dev_stream_open(p->d, "gather", DEV_TRANSFER, &p->gather));
  for (int i = 0; i < n; i++) ranks[i] = i;
  const struct comm_config group = {.name = "gather", .silent = !p->run.communicate};
  CHECK_OK(test_comm(world, p->gather, ranks, n, 0, &group, &p->comm));
  for (int u = 0; u < p->flat->n_units; u++) largest = p->flat->units[u].count > largest ? p->flat->units[u].count : largest;
  p->weights = buffer(p, 1, stage == 3 ? flat_shard_count(p->flat) : p->flat->count);
  p->seen = buffer(p, USES, largest);
  for (int b = 0; b < p->flat->n_buckets; b++) fill_own(p, b);
  mirror_push(p->weights.at);
  const struct zero_config config = {&p->run, p->table, p->flat, p->compute, p->weights.at, p->comm};
  CHECK_OK(zero_create(&config, &p->zero));
  CHECK_OK(zero_room(p->zero));
}

static void close_play(struct play *p)
{
  zero_destroy(p->zero);
  comm_destroy(p->comm);
  mirror_free(p->d, p->seen.at);
  mirror_free(p->d, p->weights.at);
  dev_stream_close(p->gather);
  dev_stream_close(p->compute);
  dev_close(p->d);
  flat_destroy(p->flat);
  params_destroy(p->table);
}

static const struct flat_unit *unit_at(const struct play *p, int unit) { return &p->flat->units[unit]; }

/* The next use: what it finds goes to the next place. */
static void look(struct play *p, int unit)
{
  const struct tensor from = tensor_at(zero_weights(p->zero, unit), DTYPE_F32, 1, unit_at(p, unit)->count);
  const struct tensor to = tensor_part(&p->seen, p->uses, 1, 0, from.cols);
  CHECK_OK(op_copy(p->compute, &to, &from));
  p->unit[p->uses++] = unit;
}

static void use(struct play *p, int unit, enum zero_pass pass)
{
  CHECK_OK(zero_need(p->zero, unit, pass));
  look(p, unit);
  CHECK_OK(zero_done(p->zero, unit));
}

/* Use k found what `update` updates left. */
static bool found(const struct play *p, int k, int update)
{
  const struct flat_unit *u = unit_at(p, p->unit[k]);
  const float *at = (const float *)mirror_of(p->seen.at) + (size_t)k * (size_t)p->seen.cols;
  bool ok = true;
  for (int64_t i = 0; i < u->count; i++) ok &= at[i] == (float)(u->first + i + 1 + 10000 * update);
  return ok;
}

/* As a model of three blocks with a tied matrix goes: forward and backward of two micro-batches. */
static const struct zero_life walk[] = {
  {0, ZERO_FORWARD, 2},  {1, ZERO_FORWARD, 1},  {2, ZERO_FORWARD, 1},  {3, ZERO_FORWARD, 1},  {4, ZERO_FORWARD, 1},
  {0, ZERO_BACKWARD, 1}, {4, ZERO_BACKWARD, 1}, {3, ZERO_BACKWARD, 1}, {2, ZERO_BACKWARD, 1}, {1, ZERO_BACKWARD, 1},
  {0, ZERO_FORWARD, 2},  {1, ZERO_FORWARD, 1},  {2, ZERO_FORWARD, 1},  {3, ZERO_FORWARD, 1},  {4, ZERO_FORWARD, 1},
  {0, ZERO_BACKWARD, 1}, {4, ZERO_BACKWARD, 1}, {3, ZERO_BACKWARD, 1}, {2, ZERO_BACKWARD, 1}, {1, ZERO_BACKWARD, 1}};
enum { WALK = sizeof walk / sizeof *walk };

/* The embedding's use of unit 0 is its first, the head's, just before that of unit 4, its second. */
static void go(struct play *p)
{
  CHECK_OK(zero_plan(p->zero, walk, WALK));
  for (int i = 0; i < WALK; i++) {
    if (walk[i].unit == 4 && walk[i].pass == ZERO_FORWARD) use(p, 0, ZERO_FORWARD);
    use(p, walk[i].unit, walk[i].pass);
  }
}

/* Each part that this rank owns grows, on compute. */
static void update(struct play *p, const struct tensor *more)
{
  for (int b = 0; b < p->flat->n_buckets; b++) {
    const struct tensor t = own(p, b), add = tensor_part(more, 0, 1, 0, t.cols);
    CHECK_OK(op_accumulate(p->compute, &t, &add));
  }
  CHECK_OK(zero_updated(p->zero));
}

/* --- stage 3 --------------------------------------------------------------------------------- */

static void each_use_finds_its_unit_whole(void)
{
  for (int seed = 0; seed < 6; seed++)
    for (int prefetch = 0; prefetch < 4; prefetch++) {
      struct play p;
      char more[32];
      snprintf(more, sizeof more, "prefetch=%d", prefetch);
      const struct dev_config d = {.kind = seed % 3 ? DEV_LAZY : DEV_CPU, .threads = 1, .lazy_seed = (uint64_t)seed, .poison_end = true};
      open_play(&p, &d, 3, more);
      go(&p);
      CHECK_OK(mirror_sync(p.d)); /* lazy: all that touches a slot is ordered */
      CHECK(p.uses == WALK + 2);
      for (int k = 0; k < p.uses; k++) CHECK(found(&p, k, 0));
      close_play(&p);
    }
}

static void what_was_updated_is_gathered_next(void)
{
  for (int kind = 0; kind < 2; kind++) {
    struct play p;
    const struct dev_config d = {.kind = kind ? DEV_LAZY : DEV_CPU, .threads = 1, .lazy_seed = 3, .poison_end = true};
    open_play(&p, &d, 3, "prefetch=2");
    const struct tensor more = buffer(&p, 1, p.flat->count);
    CHECK_OK(op_fill(p.compute, &more, 10000));
    CHECK_OK(zero_plan(p.zero, walk, 1)); /* as an evaluation between */
    use(&p, 0, ZERO_FORWARD);
    use(&p, 0, ZERO_FORWARD);
    update(&p, &more);
    CHECK_OK(zero_settle(p.zero));
    go(&p);
    CHECK_OK(mirror_sync(p.d));
    for (int k = 0; k < p.uses; k++) CHECK(found(&p, k, k >= 2));
    mirror_free(p.d, more.at);
    close_play(&p);
  }
}

static int64_t buckets_of(const struct play *p, int first, int n)
{
  int64_t sum = 0;
  for (int i = first; i < first + n && i < WALK; i++) sum += unit_at(p, walk[i].unit)->buckets;
  return sum;
}

/* No more and no fewer: what is queued after a need is the lives up to it and those ahead, but for an end whose
 * slot is still in use. */
static void prefetch_is_how_many_units_are_gathered_ahead(void)
{
  for (int prefetch = 0; prefetch < 4; prefetch++) {
    struct play p;
    char more[32];
    int64_t n;
    snprintf(more, sizeof more, "prefetch=%d", prefetch);
    open_play(&p, &(struct dev_config){.kind = DEV_CPU, .threads = 1}, 3, more);
    comm_trace_restart(world);
    CHECK_OK(zero_plan(p.zero, walk, WALK));
    comm_trace(world, &n);
    CHECK(n == 0);
    for (int i = 0; i < 5; i++) {
      const int ahead = i + prefetch < 4 ? i + prefetch : 4; /* then comes unit 0 again, which is in use until now */
      CHECK_OK(zero_need(p.zero, walk[i].unit, ZERO_FORWARD));
      comm_trace(world, &n);
      CHECK(n == buckets_of(&p, 0, ahead + 1));
      if (walk[i].unit == 4) CHECK_OK(zero_done(p.zero, 0));
      CHECK_OK(zero_done(p.zero, walk[i].unit));
    }
    CHECK_OK(zero_need(p.zero, 0, ZERO_BACKWARD));
    const struct comm_call *calls = comm_trace(world, &n);
    CHECK(n == buckets_of(&p, 0, 6 + prefetch));
    for (int64_t i = 0; i < n; i++) CHECK(strcmp(calls[i].op, "allgather") == 0 && strcmp(calls[i].stream, "gather") == 0);
    const struct flat_unit *begin = unit_at(&p, 0); /* from its start to its end */
    for (int b = 0; b < begin->buckets; b++)
      CHECK(calls[b].count == p.flat->buckets[begin->first_bucket + begin->buckets - 1 - b].count);
    CHECK_OK(dev_sync(p.d));
    close_play(&p);
  }
}

static void a_life_ends_with_poison(void)
{
  for (int poison = 0; poison < 2; poison++) {
    struct play p;
    open_play(&p, &(struct dev_config){.kind = DEV_CPU, .threads = 1, .poison_end = poison}, 3, "prefetch=0");
    CHECK_OK(zero_plan(p.zero, &walk[1], 1));
    CHECK_OK(zero_need(p.zero, 1, ZERO_FORWARD));
    const struct tensor slot = tensor_at(zero_weights(p.zero, 1), DTYPE_F32, 1, unit_at(&p, 1)->count), to = tensor_part(&p.seen, 0, 1, 0, slot.cols);
    CHECK_OK(zero_done(p.zero, 1));
    CHECK_OK(op_copy(p.compute, &to, &slot)); /* a reader that comes too late */
    CHECK_OK(mirror_sync(p.d));
    const float *at = mirror_of(to.at);
    CHECK(isnan(at[0]) == poison && isnan(at[slot.cols - 1]) == poison);
    close_play(&p);
  }
}

/* A rank's own part, and elsewhere a number that is no weight but computes like one. */
static void without_communication_slots_hold_ordinary_numbers(void)
{
  struct play p;
  open_play(&p, &(struct dev_config){.kind = DEV_CPU, .threads = 1}, 3, "communicate=false");
  go(&p);
  CHECK_OK(mirror_sync(p.d));
  for (int k = 0; k < p.uses; k++) {
    const struct flat_unit *u = unit_at(&p, p.unit[k]);
    const float *at = (const float *)mirror_of(p.seen.at) + (size_t)k * (size_t)p.seen.cols;
    int64_t mine = 0, ordinary = 0;
    for (int64_t i = 0; i < u->count; i++) {
      mine += at[i] == (float)(u->first + i + 1);
      ordinary += at[i] == 0.01f || at[i] >= 1.0f;
    }
    CHECK(ordinary == u->count && mine == u->count / p.flat->shards);
  }
  close_play(&p);
}

static void slots_are_one_more_than_prefetch_and_one_for_each_end(void)
{
  for (int prefetch = 0; prefetch < 3; prefetch++) {
    struct play p;
    struct dev_usage usage;
    char more[32];
    snprintf(more, sizeof more, "prefetch=%d", prefetch);
    open_play(&p, &(struct dev_config){.kind = DEV_CPU, .threads = 1}, 3, more);
    dev_usage(p.d, &usage);
    const int64_t elements = unit_at(&p, 0)->count + unit_at(&p, 4)->count + (prefetch + 1) * unit_at(&p, 2)->count;
    CHECK(usage.now[DEV_PARAMETERS] == (size_t)elements * sizeof(float));
    const int64_t before = usage.allocations;
    go(&p);
    CHECK_OK(dev_sync(p.d));
    dev_usage(p.d, &usage);
    CHECK(usage.allocations == before);
    close_play(&p);
  }
}

static void what_is_not_planned_is_refused(void)
{
  struct play p;
  open_play(&p, &(struct dev_config){.kind = DEV_CPU, .threads = 1}, 3, "prefetch=1");
  const struct zero_life wrong[] = {{5, ZERO_FORWARD, 1}, {-1, ZERO_FORWARD, 1}, {2, ZERO_FORWARD, 0}};
  for (int i = 0; i < 3; i++) CHECK_ERR(zero_plan(p.zero, &wrong[i], 1), ERR_ARG);
  CHECK_ERR(zero_need(p.zero, 1, ZERO_FORWARD), ERR_ARG); /* there is no plan */
  CHECK_ERR(zero_need(p.zero, 5, ZERO_FORWARD), ERR_ARG);
  CHECK_OK(zero_plan(p.zero, &walk[1], 2));
  CHECK_ERR(zero_need(p.zero, 2, ZERO_FORWARD), ERR_ARG);
  CHECK_TEXT_HAS(err_text(), "unit 2 is needed; the plan has unit 1");
  CHECK_ERR(zero_need(p.zero, 1, ZERO_BACKWARD), ERR_ARG);
  CHECK_ERR(zero_done(p.zero, 1), ERR_ARG);
  CHECK_OK(zero_need(p.zero, 1, ZERO_FORWARD));
  CHECK_ERR(zero_plan(p.zero, walk, 1), ERR_ARG);
  CHECK_TEXT_HAS(err_text(), "1 of 2 planned units");
  CHECK_OK(zero_done(p.zero, 1));
  CHECK_ERR(zero_done(p.zero, 1), ERR_ARG);
  CHECK_OK(dev_sync(p.d));
  const struct zero_config config = {&p.run, p.table, p.flat, p.compute, p.weights.at, p.comm};
  struct flat *other;
  struct zero *z = NULL;
  CHECK_OK(flat_create(p.table, &params_place_alone, 4, comm_size(world) + 1, true, BUCKET, &other));
  struct zero_config unequal = config;
  unequal.flat = other;
  CHECK_ERR(zero_create(&unequal, &z), ERR_ARG);
  struct zero_config one_stream = config;
  one_stream.compute = p.gather;
  CHECK_ERR(zero_create(&one_stream, &z), ERR_ARG);
  CHECK(z == NULL);
  flat_destroy(other);
  close_play(&p);
}

/* --- stages 0 to 2 ------------------------------------------------------------------------------ */

static void updated_weights_are_there_when_they_are_needed(void)
{
  for (int way = 0; way < 8; way++) {
    struct play p;
    const struct dev_config d = {.kind = way % 2 ? DEV_LAZY : DEV_CPU, .threads = 1, .lazy_seed = (uint64_t)way};
    open_play(&p, &d, 1 + way / 4, way / 2 % 2 ? "overlap_gather=false" : "overlap_gather=true");
    const struct tensor more = buffer(&p, 1, p.flat->count);
    CHECK_OK(op_fill(p.compute, &more, 10000));
    for (int k = 0; k < 2; k++) {
      CHECK_OK(zero_settle(p.zero));
      comm_trace_restart(world);
      update(&p, &more);
      int64_t n;
      const struct comm_call *calls = comm_trace(world, &n);
      CHECK(n == p.flat->n_buckets);
      for (int64_t i = 0; i < n; i++) CHECK(calls[i].count == p.flat->buckets[p.flat->n_buckets - 1 - i].count);
      for (int u = 0; u < p.flat->n_units; u++) use(&p, u, ZERO_FORWARD);
      for (int u = p.flat->n_units - 1; u >= 0; u--) use(&p, u, ZERO_BACKWARD);
    }
    CHECK_OK(mirror_sync(p.d));
    for (int k = 0; k < p.uses; k++) CHECK(found(&p, k, 1 + k / (p.uses / 2)));
    mirror_free(p.d, more.at);
    close_play(&p);
  }
}

/* A unit that no need waited for, as one of parameters that nobody uses. */
static void settled_is_what_every_gather_is_through_with(void)
{
  struct play p;
  open_play(&p, &(struct dev_config){.kind = DEV_LAZY, .threads = 1, .lazy_seed = 8}, 1, "");
  const struct tensor more = buffer(&p, 1, p.flat->count);
  CHECK_OK(op_fill(p.compute, &more, 10000));
  update(&p, &more);
  CHECK_OK(zero_settle(p.zero));
  CHECK_OK(op_fill(p.compute, &p.weights, 1)); /* not ordered after a gather: a finding */
  CHECK_OK(mirror_sync(p.d));
  mirror_free(p.d, more.at);
  close_play(&p);
}

static void weights_of_one_rank_are_the_flat_buffer(void)
{
  struct play p;
  int64_t n;
  open_play(&p, &(struct dev_config){.kind = DEV_CPU, .threads = 1}, 1, "");
  const struct zero_config config = {&p.run, p.table, p.flat, p.compute, p.weights.at, NULL};
  struct zero *z;
  CHECK_OK(zero_create(&config, &z));
  comm_trace_restart(world);
  CHECK_OK(zero_plan(z, walk, WALK));
  for (int u = 0; u < p.flat->n_units; u++) {
    CHECK_OK(zero_need(z, u, ZERO_FORWARD));
    CHECK(zero_weights(z, u) == (char *)p.weights.at + (size_t)unit_at(&p, u)->first * sizeof(float));
    CHECK_OK(zero_done(z, u));
  }
  CHECK_OK(zero_updated(z));
  CHECK_OK(zero_settle(z));
  CHECK_ERR(zero_need(z, p.flat->n_units, ZERO_FORWARD), ERR_ARG);
  CHECK_ERR(zero_done(z, -1), ERR_ARG);
  comm_trace(world, &n);
  CHECK(n == 0);
  zero_destroy(z);
  close_play(&p);
}

static void creation_survives_each_failed_allocation(void)
{
  for (int stage = 1; stage <= 3; stage += 2) {
    struct play p;
    struct zero *z = NULL;
    struct dev_usage before, after;
    open_play(&p, &(struct dev_config){.kind = DEV_CPU, .threads = 1}, stage, "");
    dev_usage(p.d, &before);
    const struct zero_config config = {&p.run, p.table, p.flat, p.compute, p.weights.at, p.comm};
    enum err e = ERR_MEMORY;
    int failures = 0;
    bool none = false, fewer = false; /* what is said of a prefetch of 1 */
    for (long n = 1; e != ERR_OK && n < 200; n++) {
      check_fail_allocation(n);
      e = zero_create(&config, &z);
      if (e == ERR_OK) e = zero_room(z);
      check_fail_allocation(0);
      if (e != ERR_OK) zero_destroy(z), z = NULL;
      failures += e == ERR_MEMORY;
      none = none || (e && strstr(err_text(), "there is memory for 0; nearest valid: none, not even 0"));
      fewer = fewer || (e && strstr(err_text(), "there is memory for 1; nearest valid: 0; "));
      dev_usage(p.d, &after);
      CHECK((e == ERR_OK) == (z != NULL));
      CHECK(e == ERR_OK || after.now[DEV_PARAMETERS] == before.now[DEV_PARAMETERS]);
    }
    CHECK_OK(e);
    CHECK(failures >= 4 && none == (stage == 3) && fewer == (stage == 3));
    zero_destroy(z);
    zero_destroy(NULL);
    close_play(&p);
  }
}

int main(void)
{
  static const struct test tests[] = {
    TEST(each_use_finds_its_unit_whole),
    TEST(what_was_updated_is_gathered_next),
    TEST(prefetch_is_how_many_units_are_gathered_ahead),
    TEST(a_life_ends_with_poison),
    TEST(without_communication_slots_hold_ordinary_numbers),
    TEST(slots_are_one_more_than_prefetch_and_one_for_each_end),
    TEST(what_is_not_planned_is_refused),
    TEST(updated_weights_are_there_when_they_are_needed),
    TEST(settled_is_what_every_gather_is_through_with),
    TEST(weights_of_one_rank_are_the_flat_buffer),
    TEST(creation_survives_each_failed_allocation),
  };
  int status = 1;
  if (comm_world_open(&world)) {
    fprintf(stderr, "%s\n", err_text());
    return status;
  }
  status = test_main("zero", tests, sizeof tests / sizeof *tests);
  comm_world_close(world);
  return status;
}
