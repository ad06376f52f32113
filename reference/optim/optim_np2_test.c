/* optim_np2_test.c - two ranks that share a model take the step that one would. */
#include "optim/optim.h"

#include "base/fault.h"
#include "base/rng.h"
#include "comm/comm_testing.h"
#include "parallel/mesh.h"
#include "testing/check.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct comm_world *world;

/* One optimizer over what a place holds; gradients and weights are those of the whole, cut.  With shards above 1 two
 * replicas share the state, or one rank emulates them. */
struct part {
  struct run_config run;
  struct params_place place;
  struct param_table *table;
  struct flat *flat;
  struct dev *dev;
  struct dev_stream *compute;
  struct comm *norm, *shards;
  void *weights, *gradients;
  struct optim *optim;
};

static struct run_config settings(const char *more)
{
  struct run_config c;
  char text[256];
  config_default(&c);
  snprintf(text, sizeof text, "precision=float64 layers=3 heads=2 hidden=6 positions=5 vocab=11 sequence=5 lr=0.01 revealing=true %s", more);
  for (char *rest, *word = strtok_r(text, " ", &rest); word; word = strtok_r(NULL, " ", &rest)) {
    char *value = strchr(word, '=');
    *value = '\0';
    CHECK_OK(config_set(&c, word, value + 1));
  }
  CHECK_OK(config_finish(&c));
  return c;
}

/* All of row i: weights (draw 0) or gradients (1). */
static void draw(const struct param_table *t, int i, int what, double *full)
{
  const struct rng_key key = {17, RNG_TEST, (uint32_t)i};
  for (int64_t k = 0; k < t->rows[i].rows * t->rows[i].cols; k++) full[k] = rng_normal(key, (uint64_t)(2 * k + what));
}

enum { LARGEST = 1024 }; /* elements of a row */

static void put(struct part *p, int what, void *device)
{
  double *host = calloc((size_t)p->flat->count, sizeof *host), full[LARGEST];
  if (!CHECK(host != NULL)) return;
  for (int i = 0; i < p->table->n; i++) {
    draw(p->table, i, what, full);
    params_take(p->table, i, &p->place, DTYPE_F64, full, host + p->flat->offset[i]);
  }
  CHECK_OK(dev_copy_in(p->compute, device, host, (size_t)p->flat->count * sizeof *host));
  CHECK_OK(dev_sync(p->dev));
  free(host);
}

/* `rank` of the layout, with a group over it, or alone. */
static void open_part(struct part *p, const struct run_config *c, bool alone, int shards, enum dev_kind kind)
{
  memset(p, 0, sizeof *p);
  p->run = *c;
  if (alone) {
    p->run.tp = p->run.pp = 1;
    strcpy(p->run.stages, "even");
    p->run.replicas = p->run.dp;
    p->run.dp = 1;
  }
  struct mesh mesh;
  CHECK_OK(mesh_create(&p->run, alone ? 0 : comm_rank(world), alone ? 1 : comm_size(world), &mesh));
  CHECK_OK(params_place_of(&p->run, mesh.pp_rank, mesh.tp_rank, &p->place));
  CHECK_OK(params_create(&p->run, &p->table));
  CHECK_OK(flat_create(p->table, &p->place, 16, shards, false, shards > 1 ? 70 : 0, &p->flat));
  CHECK_OK(test_dev(mirror_cuda() ? DEV_CPU : kind, 3, &p->dev));
  CHECK_OK(dev_stream_open(p->dev, "compute", DEV_COMPUTE, &p->compute));
  const struct comm_config group = {.name = "norm", .reduce = COMM_ORDERED};
  int ranks[2];
  const int n = mesh_group(&mesh, MESH_PP | MESH_TP, ranks);
  if (n > 1) CHECK_OK(test_comm(world, p->compute, ranks, n, 1 << 12, &group, &p->norm));
  const struct comm_config among = {.name = "shards", .reduce = COMM_ORDERED};
  if (shards > 1 && !alone) CHECK_OK(test_comm(world, p->compute, (const int[]){0, 1}, 2, 1 << 12, &among, &p->shards));
  const size_t bytes = (size_t)p->flat->count * sizeof(double);
  CHECK_OK(dev_alloc(p->dev, bytes, DEV_PARAMETERS, "weights", &p->weights));
  CHECK_OK(dev_alloc(p->dev, bytes, DEV_GRADIENTS, "gradients", &p->gradients));
  put(p, 0, p->weights);
  put(p, 1, p->gradients);
  const struct optim_config config = {.run = &p->run, .table = p->table, .flat = p->flat, .place = &p->place, .dev = p->dev,
                                      .compute = p->compute, .norm = p->norm, .shards = p->shards, .shard = comm_rank(world),
                                      .weights = {.at = p->weights, .type = DTYPE_F64, .hold = p->shards ? FLAT_PIECES : FLAT_WHOLE},
                                      .gradients = {.at = p->gradients, .type = DTYPE_F64, .hold = p->shards ? FLAT_PIECES : FLAT_WHOLE}};
  CHECK_OK(optim_create(&config, &p->optim));
}

static void close_part(struct part *p)
{
  optim_destroy(p->optim);
  comm_destroy(p->shards);
  comm_destroy(p->norm);
  dev_free(p->dev, p->gradients);
  dev_free(p->dev, p->weights);
  dev_stream_close(p->compute);
  dev_close(p->dev);
  flat_destroy(p->flat);
  params_destroy(p->table);
}

static double norm_of(struct part *p)
{
  double x = NAN;
  CHECK_OK(dev_copy_out(p->compute, &x, optim_norm(p->optim).at, sizeof x));
  CHECK_OK(dev_sync(p->dev));
  return x;
}

static double *weights_of(struct part *p)
{
  double *host = malloc((size_t)p->flat->count * sizeof *host);
  if (!CHECK(host != NULL)) return NULL;
  CHECK_OK(dev_copy_out(p->compute, host, p->weights, (size_t)p->flat->count * sizeof *host));
  CHECK_OK(dev_sync(p->dev));
  return host;
}

/* Largest distance of this rank's weights from its parts of the whole's; -1: equal in bits. */
static double distance(struct part *mine, struct part *whole)
{
  double *got = weights_of(mine), *all = weights_of(whole), want[LARGEST], worst = 0.0;
  bool same = true;
  for (int i = 0; got && all && i < mine->table->n; i++) {
    const double *row = got + mine->flat->offset[i];
    const int64_t n = mine->flat->length[i];
    params_take(mine->table, i, &mine->place, DTYPE_F64, all + whole->flat->offset[i], want);
    if (n > 0 && memcmp(row, want, (size_t)n * sizeof *want) != 0) same = false;
    for (int64_t k = 0; k < n; k++) worst = fmax(worst, fabs(row[k] - want[k]));
  }
  free(got);
  free(all);
  return same ? -1.0 : worst;
}

static void check_layout(const char *more, bool bits)
{
  const struct run_config c = settings(more);
  for (int kind = 0; kind < 2; kind++) {
    struct part mine, whole;
    open_part(&mine, &c, false, 1, kind ? DEV_LAZY : DEV_CPU);
    open_part(&whole, &c, true, 1, DEV_CPU);
    for (int64_t t = 1; t <= 3; t++) {
      CHECK_OK(optim_step(mine.optim, t));
      CHECK_OK(optim_step(whole.optim, t));
      const double got = norm_of(&mine), want = norm_of(&whole);
      if (bits) CHECK_SAME_BITS(&got, &want, sizeof got);
      else CHECK_NEAR(got, want, 1e-14 * want);
    }
    const double worst = distance(&mine, &whole);
    if (bits) CHECK(worst == -1.0);
    else CHECK_NEAR(fmax(worst, 0.0), 0.0, 1e-13);
    CHECK(strcmp(dev_findings(mine.dev), "") == 0);
    close_part(&mine);
    close_part(&whole);
  }
}

static void two_tensor_ranks_have_the_norm_of_one(void)
{
  check_layout("tp=2 clip=0.5", false);
  check_layout("tp=2 clip=0.5 tied=false unused=true frozen=c_fc", false);
  check_layout("tp=2 clip=0.5 reused=1 optimizer=sgd", false);
}

static void two_stages_change_no_bit(void)
{
  check_layout("pp=2 clip=0.5", true);
  check_layout("pp=2 clip=0.5 tied=false unused=true frozen=c_fc", true);
  check_layout("pp=2 clip=0.5 stages=1,2 optimizer=sgd", true);
}

static void a_stage_without_anything_to_train_takes_part(void)
{
  check_layout("pp=2 clip=0.5 tied=false frozen=transformer.", true); /* the head alone is left */
}

/* Each whole row is then counted by both ranks. */
static void a_row_counted_twice_shows_in_the_norm(void)
{
  const struct run_config c = settings("tp=2 clip=0.5");
  struct part mine, whole;
  CHECK_OK(fault_plant("clip-tp-duplicate-under-or-over-count", 1.0, 0));
  open_part(&mine, &c, false, 1, DEV_CPU);
  CHECK_OK(fault_plant("", 1.0, 0));
  open_part(&whole, &c, true, 1, DEV_CPU);
  CHECK_OK(optim_step(mine.optim, 1));
  CHECK_OK(optim_step(whole.optim, 1));
  double squares = 0.0, full[LARGEST];
  for (int i = 0; i < mine.table->n; i++) {
    const int64_t n = mine.table->rows[i].rows * mine.table->rows[i].cols;
    if (mine.table->rows[i].cut != PARAM_WHOLE) continue;
    draw(mine.table, i, 1, full);
    for (int64_t k = 0; k < n; k++) squares += full[k] * full[k];
  }
  const double right = norm_of(&whole), want = sqrt(right * right + squares);
  CHECK(squares > 1.0);
  CHECK_NEAR(norm_of(&mine), want, 1e-13 * want);
  close_part(&mine);
  close_part(&whole);
}

/* --- shared state ------------------------------------------------------------------------------ */

/* Of the pieces of this rank, or of the others': how many elements differ from those of `whole`. */
static int64_t differing(struct part *mine, struct part *whole, int shard)
{
  struct flat_piece *pieces = NULL;
  double *got = weights_of(mine), *want = weights_of(whole);
  int n = 0;
  int64_t count = 0;
  CHECK_OK(flat_pieces(mine->flat, mine->table, shard, &pieces, &n));
  for (int k = 0; got && want && k < n; k++)
    for (int64_t i = pieces[k].flat; i < pieces[k].flat + pieces[k].count; i++) count += got[i] != want[i];
  free(pieces);
  free(got);
  free(want);
  return count;
}

static void ranks_that_share_the_state_take_the_step_of_one_that_emulates_them(void)
{
  static const char *const ways[] = {"dp=2 clip=0.5", "dp=2 clip=0.5 tied=false unused=true frozen=c_fc", "dp=2 clip=0.5 reused=1 optimizer=sgd"};
  for (int w = 0; w < 3; w++) {
    const struct run_config c = settings(ways[w]);
    struct part mine, whole, plain;
    open_part(&mine, &c, false, 2, w == 1 ? DEV_LAZY : DEV_CPU);
    open_part(&whole, &c, true, 2, DEV_CPU);
    open_part(&plain, &c, true, 1, DEV_CPU);
    for (int64_t t = 1; t <= 3; t++) {
      CHECK(CHECK_OK(optim_step(mine.optim, t)) && CHECK_OK(optim_step(whole.optim, t)) && CHECK_OK(optim_step(plain.optim, t)));
      const double got = norm_of(&mine), want = norm_of(&whole);
      CHECK_SAME_BITS(&got, &want, sizeof got);
      CHECK_NEAR(got, norm_of(&plain), 1e-14 * got);
    }
    CHECK(differing(&mine, &whole, comm_rank(world)) == 0);
    CHECK(differing(&mine, &whole, 1 - comm_rank(world)) > 100); /* are the other's to update */
    const struct flat_buffer m = optim_moments1(mine.optim), all = optim_moments1(whole.optim);
    CHECK((m.at != NULL) == (w < 2) && (m.at == NULL || (m.hold == FLAT_SHARD && all.hold == FLAT_WHOLE)));
    CHECK(strcmp(dev_findings(mine.dev), "") == 0);
    close_part(&mine);
    close_part(&whole);
    close_part(&plain);
  }
}

int main(void)
{
  static const struct test tests[] = {
    TEST(two_tensor_ranks_have_the_norm_of_one),
    TEST(two_stages_change_no_bit),
    TEST(a_stage_without_anything_to_train_takes_part),
    TEST(a_row_counted_twice_shows_in_the_norm),
    TEST(ranks_that_share_the_state_take_the_step_of_one_that_emulates_them),
  };
  if (comm_world_open(&world) != ERR_OK) {
    fprintf(stderr, "%s\n", err_text());
    return 1;
  }
  const int status = test_main("optim_np2", tests, sizeof tests / sizeof *tests);
  comm_world_close(world);
  return status;
}
