/* trainer_test.c - a trainer is made or not made, whole; a step allocates nothing. */
#include "testing/check.h"
#include "train/evaluate.h"
#include "train/output.h"
#include "train/step.h"
#include "train/trainer.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static struct comm_world *world;

static struct run_config config(void)
{
  struct run_config c;
  config_default(&c);
  CHECK_OK(config_set(&c, "layers", "1"));
  CHECK_OK(config_set(&c, "global_batch", "4"));
  CHECK_OK(config_set(&c, "dropout", "0.1"));
  return c;
}

static void making_one_survives_any_failed_allocation(void)
{
  struct run_config c = config();
  CHECK_OK(config_finish(&c));
  struct trainer *t = NULL;
  bool fatal, refused = true;
  long n = 0;
  while (t == NULL && n < 2000 && refused) {
    check_fail_allocation(++n);
    const enum err e = trainer_create(world, &c, &t, &fatal);
    const bool failed = check_allocation_failed();
    check_fail_allocation(0);
    if (!failed) CHECK_OK(e);
    else if (e) refused = CHECK(t == NULL) && CHECK(!fatal);
    else trainer_destroy(t), t = NULL; /* it was one that can be done without */
  }
  CHECK(n > 30 && n < 2000);
  trainer_destroy(t);
}

static void a_step_allocates_nothing_on_the_device(void)
{
  struct run_config c = config();
  CHECK_OK(config_set(&c, "replicas", "2"));
  CHECK_OK(config_set(&c, "reduce_each", "microbatch"));
  CHECK_OK(config_finish(&c));
  struct trainer *t;
  struct step_clock clock;
  struct evaluation e;
  struct dev_usage before, after;
  bool fatal;
  if (!CHECK_OK(trainer_create(world, &c, &t, &fatal))) return;
  CHECK(t->n_micro == 4 && t->accumulation == 2);
  dev_usage(t->dev, &before);
  for (int64_t step = 0; step < 3; step++) CHECK_OK(step_run(t, step, &clock));
  CHECK_OK(evaluate(t, &e));
  dev_usage(t->dev, &after);
  CHECK(before.allocations == after.allocations);
  CHECK(clock.end_ms > clock.begin_ms && clock.data_ms >= 0.0);
  CHECK(t->now.count > 0.0 && t->now.all[0] == t->now.mine[0]);
  trainer_destroy(t);
}

static void micro_batches_of_a_replica_are_consecutive_and_permuted_among_themselves(void)
{
  struct run_config c = config();
  CHECK_OK(config_set(&c, "global_batch", "12"));
  CHECK_OK(config_set(&c, "replicas", "3"));
  CHECK_OK(config_set(&c, "order_seed", "2"));
  CHECK_OK(config_finish(&c));
  struct trainer *t;
  bool fatal, moved = false;
  if (!CHECK_OK(trainer_create(world, &c, &t, &fatal))) return;
  for (int64_t r = 0; r < 3; r++) {
    int seen = 0;
    for (int64_t i = 0; i < 4; i++) {
      const int64_t number = t->micro[r * 4 + i].number;
      CHECK(number / 4 == r);
      seen |= 1 << (number % 4);
      moved = moved || number != r * 4 + i;
    }
    CHECK(seen == 15);
  }
  CHECK(moved);
  trainer_destroy(t);
}

/* The state file outlives the run and says where it was. */
static void output_merges_its_pieces_and_says_done(void)
{
  struct run_config c = config();
  struct output o;
  char host[256] = "", path[512];
  json_t *records;
  int cut;
  snprintf(c.out, sizeof c.out, "/tmp/trainer_test.%d/a/b", (int)getpid());
  gethostname(host, sizeof host - 1);
  if (!CHECK_OK(output_open(world, &c, NULL, &o))) return;
  CHECK(access(o.piece, F_OK) == 0);
  record_begin(o.records, "finding", -1, -1);
  record_text(o.records, "got.text", "one");
  CHECK_OK(record_end(o.records));
  CHECK_OK(output_finish(&o, err_set(ERR_NUMERIC, __FILE__, __LINE__, "not a number")));
  CHECK_TEXT_HAS(err_text(), "not a number");
  CHECK(access(o.piece, F_OK) != 0);
  if (CHECK_OK(record_read(o.merged, &records, &cut))) {
    const json_t *done = json_array_get(records, 1);
    CHECK(json_array_size(records) == 2 && cut == 0);
    CHECK_TEXT_HAS(record_get_text(done, "got.error"), "not a number");
    CHECK_TEXT_HAS(record_get_text(done, "got.error_kind"), "numeric");
    json_decref(records);
  }
  snprintf(path, sizeof path, "%s/state.%s", c.out, host);
  FILE *f = fopen(path, "rb");
  struct slot slot;
  if (CHECK(f != NULL)) {
    CHECK(fread(&slot, sizeof slot, 1, f) == 1);
    CHECK(slot.pid == getpid() && slot.rank == 0 && slot.beat > 0);
    CHECK_TEXT_HAS(slot.phase, "done");
    fclose(f);
  }
  snprintf(path, sizeof path, "rm -rf /tmp/trainer_test.%d", (int)getpid());
  CHECK(system(path) == 0);
}

int main(void)
{
  static const struct test tests[] = {
    TEST(making_one_survives_any_failed_allocation),
    TEST(a_step_allocates_nothing_on_the_device),
    TEST(micro_batches_of_a_replica_are_consecutive_and_permuted_among_themselves),
    TEST(output_merges_its_pieces_and_says_done),
  };
  if (comm_world_open(&world) != ERR_OK) return 1;
  const int status = test_main("trainer", tests, sizeof tests / sizeof *tests);
  comm_world_close(world);
  return status;
}
