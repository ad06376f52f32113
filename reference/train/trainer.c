/* trainer.c - makes a rank ready to train, and takes it apart. */
#include "train/trainer.h"

#include "base/fault.h"
#include "base/rng.h"
#include "ops/ops.h"
#include "optim/offload.h"
#include "train/device.h"
#include "train/groups.h"
#include "train/hash.h"
#include "train/weights.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LIVES_OF_ENDS = 3 }; /* of a pass, besides its layers': see model_lives */
enum { SITE_MICRO = 1 }; /* low bits of RNG_ORDER */
enum { INTERVALS_A_LAYER = 64, INTERVALS_A_STEP = 4096 }; /* generous: a lost interval fails the run */

bool trainer_shares(const struct trainer *t) { return t->run.zero > 0 && t->run.dp > 1; }

struct tensor trainer_flat(const struct trainer *t, const struct flat_buffer *b)
{
  return tensor_at(b->at, b->type, 1, flat_buffer_count(t->flat, b));
}

struct tensor trainer_row(const struct trainer *t, const struct flat_buffer *b, int row)
{
  BUG_IF(b->hold != FLAT_WHOLE);
  char *at = (char *)b->at + (size_t)t->flat->offset[row] * dtype_bytes(b->type);
  return tensor_at(at, b->type, t->flat->rows[row], t->flat->cols[row]);
}

const struct flat_buffer *trainer_working(const struct trainer *t) { return t->rounded.at ? &t->rounded : &t->weights; }

static int awaited(const struct trainer *t, struct dev_stream *out[TRAINER_AWAITED])
{
  struct dev_stream *const streams[TRAINER_AWAITED] = {t->compute, t->transfer, t->scalar, t->outputs, t->input_gradients};
  int n = 0;
  for (int i = 0; i < TRAINER_AWAITED; i++)
    if (streams[i]) out[n++] = streams[i];
  return n;
}

enum err trainer_sync(struct trainer *t)
{
  struct dev_stream *streams[TRAINER_AWAITED];
  const int n = awaited(t, streams);
  for (int i = 0; i < n; i++) TRY(dev_sync_stream(streams[i]));
  return ERR_OK;
}

int trainer_awaited(const struct trainer *t, const char *names[TRAINER_AWAITED])
{
  struct dev_stream *streams[TRAINER_AWAITED];
  const int n = awaited(t, streams);
  for (int i = 0; i < n; i++) names[i] = dev_stream_name(streams[i]);
  return n;
}

enum err trainer_settle(struct trainer *t)
{
  TRY(zero_settle(t->zero));
  return optim_settle(t->optim);
}

bool trainer_has_loss(const struct trainer *t) { return t->mesh.pp_rank == t->mesh.pp - 1; }

/* --- the list of micro-batches ---------------------------------------------------- */

/* Replica r takes a consecutive micro-batches of the step; order_seed permutes them among
 * themselves (Fisher and Yates), the same way in every step. */
static void order_micro(struct trainer *t, int64_t replica, struct trainer_micro *list)
{
  const int64_t a = t->accumulation;
  const struct rng_key key = {(uint64_t)t->run.order_seed, RNG_ORDER + SITE_MICRO, (uint32_t)replica};
  for (int64_t i = 0; i < a; i++) list[i].number = replica * a + i;
  for (int64_t i = a - 1; t->run.order_seed != 0 && i > 0; i--) {
    const int64_t j = (int64_t)rng_below(key, (uint64_t)i, (uint64_t)i + 1), number = list[i].number;
    list[i].number = list[j].number;
    list[j].number = number;
  }
}

static enum err create_micro(struct trainer *t)
{
  const struct run_config *run = &t->run;
  t->accumulation = run->global_batch / (run->dp * run->replicas * run->micro_batch);
  t->n_micro = t->accumulation * run->replicas;
  t->micro = calloc((size_t)t->n_micro, sizeof *t->micro);
  t->planted = calloc((size_t)t->n_micro * 2, sizeof *t->planted);
  t->loss_sums = calloc((size_t)t->n_micro, sizeof *t->loss_sums);
  if (t->micro == NULL || t->planted == NULL || t->loss_sums == NULL) FAIL(ERR_MEMORY, "list of %lld micro-batches", (long long)t->n_micro);
  for (int64_t r = 0; r < run->replicas; r++)
    order_micro(t, t->mesh.dp_rank * run->replicas + r, t->micro + r * t->accumulation);
  t->read = malloc((size_t)t->n_micro * sizeof *t->read);
  if (t->read == NULL) FAIL(ERR_MEMORY, "numbers of %lld micro-batches", (long long)t->n_micro);
  for (int64_t i = 0; i < t->n_micro; i++) {
    t->read[i] = t->micro[i].number;
    if (fault_is(FAULT_DATA_SAMPLER_IGNORES_MODEL_PARALLEL)) /* every rank of the job takes its turn, as if each were a replica */
      t->read[i] = (i * comm_size(t->world) + comm_rank(t->world)) % (run->global_batch / run->micro_batch);
  }
  return ERR_OK;
}

static enum err read_batch(void *plan, int64_t step, int64_t number, struct batch *out) { return data_plan_batch(plan, step, number, out); }

/* How wide the passes of a micro-batch are is known from it alone, so all ranks of a replica say the same. */
static void set_width(const struct trainer *t, struct trainer_micro *m)
{
  struct tensor *const arrays[] = {&m->input.tokens, &m->input.targets, &m->input.positions, &m->input.documents};
  if (!t->run.narrow) return;
  const int64_t width = batch_width(&m->batch, t->run.sequence_parallel ? t->run.tp : 1);
  for (int k = 0; k < 4; k++) *arrays[k] = tensor_at(arrays[k]->at, DTYPE_I32, m->batch.B, width);
}

enum err trainer_fetch(struct trainer *t, int64_t step)
{
  const struct batch *batches;
  TRY(loader_take(t->loader, step, &batches));
  t->n_valid = 0;
  for (int64_t i = 0; i < t->n_micro; i++) {
    t->micro[i].batch = batches[i];
    t->n_valid += batches[i].n_valid;
    set_width(t, &t->micro[i]);
    if (step >= 0) t->consumed += hash_place(batch_hash(&batches[i]), step, t->read[i]);
  }
  return ERR_OK;
}

/* What the passes look at of [B, T] on the host: in one piece, or row by row. */
static enum err load_array(struct trainer *t, const struct tensor *to, const int32_t *from, int64_t T)
{
  const int64_t rows = to->cols == T ? 1 : to->rows, each = tensor_count(to) / rows;
  for (int64_t b = 0; b < rows; b++)
    TRY(dev_copy_in(t->compute, (int32_t *)to->at + b * each, from + b * T, (size_t)each * sizeof(int32_t)));
  return ERR_OK;
}

enum err trainer_load(struct trainer *t, int64_t i)
{
  const struct batch *b = &t->micro[i].batch;
  const struct model_input *in = &t->micro[i].input;
  TRY(load_array(t, &in->tokens, b->tokens, b->T));
  TRY(load_array(t, &in->targets, b->targets, b->T));
  TRY(load_array(t, &in->positions, b->positions, b->T));
  TRY(load_array(t, &in->documents, b->documents, b->T));
  TRY(dev_copy_in(t->compute, in->samples.at, b->samples, (size_t)b->B * sizeof(int32_t)));
  return ERR_OK;
}

enum err trainer_read_numbers(struct trainer *t)
{
  TRY(dev_host_touch(t->dev, &t->now, sizeof t->now, false));
  TRY(dev_host_touch(t->dev, t->loss_sums, (size_t)t->n_micro * sizeof *t->loss_sums, false));
  return ERR_OK;
}

/* --- device memory ------------------------------------------------------------------ */

/* Each micro-batch has a place of its own, for several are on their way through a pipeline. */
static enum err create_inputs(struct trainer *t)
{
  const int64_t B = t->run.micro_batch, T = t->run.sequence, each = B * (4 * T + 1);
  TRY(dev_alloc(t->dev, (size_t)(t->n_micro * each) * sizeof(int32_t), DEV_OTHER, "micro-batches", &t->inputs));
  for (int64_t i = 0; i < t->n_micro; i++) {
    struct model_input *in = &t->micro[i].input;
    struct tensor *const arrays[] = {&in->tokens, &in->targets, &in->positions, &in->documents};
    int32_t *const at = (int32_t *)t->inputs + i * each;
    for (int k = 0; k < 4; k++) *arrays[k] = tensor_at(at + k * B * T, DTYPE_I32, B, T);
    in->samples = tensor_at(at + 4 * B * T, DTYPE_I32, B, 1);
  }
  return ERR_OK;
}

static enum err create_scalars(struct trainer *t)
{
  const int64_t M = t->n_micro, R = t->run.replicas, n = 7 + 2 * M + 2 * R + 4 + t->table->n;
  double *next;
  TRY(dev_alloc(t->dev, (size_t)n * sizeof *next, DEV_OTHER, "scalars", &t->scalars));
  next = t->scalars;
#define TAKE(name, type, rows, cols) t->at.name = tensor_at(next, type, rows, cols), next += (rows) * (cols)
  TAKE(step, DTYPE_I32, 1, 1);
  TAKE(count, DTYPE_F64, 1, 1);
  TAKE(scale, DTYPE_F64, 1, 1);
  TAKE(raised, DTYPE_F64, 1, 1);
  TAKE(planted, DTYPE_F64, 1, 2);
  TAKE(since, DTYPE_F64, 1, 1);
  TAKE(losses, DTYPE_F64, 1, M);
  TAKE(terms, DTYPE_F64, 1, M);
  TAKE(of_replica, DTYPE_F64, 2, R);
  TAKE(mine, DTYPE_F64, 1, 2);
  TAKE(all, DTYPE_F64, 1, 2);
  TAKE(hashes, DTYPE_I64, 1, t->table->n);
#undef TAKE
  return ERR_OK;
}

static enum err create_buffer(struct trainer *t, enum dtype type, enum flat_hold hold, enum dev_category category, const char *owner,
                              struct flat_buffer *out)
{
  struct flat_buffer b = {.type = type, .hold = hold};
  TRY(dev_alloc(t->dev, (size_t)flat_buffer_count(t->flat, &b) * dtype_bytes(type), category, owner, &b.at));
  *out = b;
  return ERR_OK;
}

/* What replicas share is this rank's shard: what only updates need; with zero 2 gradients, with zero 3 all weights. */
static enum err create_state(struct trainer *t)
{
  const enum dtype work = run_work_type(&t->run), state = run_state_type(&t->run);
  const bool shares = trainer_shares(t);
  const enum flat_hold weights = shares && t->run.zero == 3 ? FLAT_SHARD : FLAT_WHOLE,
                       gradients = ddp_stages(&t->run) ? FLAT_SHARD : shares ? FLAT_PIECES : FLAT_WHOLE;
  if (work != state) {
    TRY(create_buffer(t, work, weights, DEV_PARAMETERS, "rounded weights", &t->rounded));
    const enum flat_hold masters = shares ? FLAT_SHARD : FLAT_WHOLE;
    if (t->run.offload == OFFLOAD_OPTIMIZER) TRY(offload_buffer(t->dev, t->flat, "master weights", state, masters, &t->weights));
    else TRY(create_buffer(t, state, masters, DEV_OPTIMIZER, "master weights", &t->weights));
  } else {
    TRY(create_buffer(t, state, weights, DEV_PARAMETERS, "weights", &t->weights));
  }
  TRY(create_buffer(t, state, gradients, DEV_GRADIENTS, "gradients", &t->gradients));
  return ERR_OK;
}

static enum err create_device(struct trainer *t)
{
  const struct run_config *run = &t->run;
  const struct dev_config config = device_config(run, t->world);
  TRY(dev_open(&config, &t->dev));
  TRY(dev_stream_open(t->dev, "compute", DEV_COMPUTE, &t->compute));
  TRY(dev_stream_open(t->dev, "transfer", DEV_TRANSFER, &t->transfer));
  TRY(dev_stream_open(t->dev, "scalar", DEV_TRANSFER, &t->scalar));
  if (trainer_shares(t)) {
    TRY(dev_stream_open(t->dev, "gather", DEV_TRANSFER, &t->gather));
    dev_stream_trails(t->gather);
  }
  if (t->mesh.pp > 1) {
    TRY(dev_stream_open(t->dev, "outputs", DEV_TRANSFER, &t->outputs));
    TRY(dev_stream_open(t->dev, "gradients", DEV_TRANSFER, &t->input_gradients));
  }
  TRY(dev_event_create(t->dev, &t->counted));
  TRY(dev_event_create(t->dev, &t->summed));
  const struct loader_config loader = {.run = run, .dev = t->dev, .read = read_batch, .arg = t->plan, .numbers = t->read, .n = t->n_micro,
                                       .rank = comm_rank(t->world)};
  TRY(loader_create(&loader, &t->loader));
  TRY(create_state(t));
  TRY(create_inputs(t));
  TRY(create_scalars(t));
  TRY(weights_start(t));
  return ERR_OK;
}

/* --- create and destroy ---------------------------------------------------------------- */

/* Lists of passes: of a step's micro-batches of one replica, and of all for evaluation.  Emulated
 * replicas whose micro-batches are reduced one by one take turns, so their list has one. */
static enum err create_schedules(struct trainer *t)
{
  const struct run_config *run = &t->run;
  const bool turns = run->reduce_each == REDUCE_MICROBATCH && run->replicas > 1;
  const int p = t->mesh.pp, m = turns ? 1 : (int)t->accumulation, v = (int)run->chunks;
  struct schedule_facts facts;
  TRY(schedule_create((enum schedule_kind)run->schedule, p, m, v, &t->training));
  TRY(schedule_verify(t->training, &facts));
  TRY(schedule_create(SCHEDULE_FORWARD, p, (int)t->n_micro, v, &t->evaluation));
  TRY(schedule_verify(t->evaluation, &facts));
  return ERR_OK;
}

/* What this rank can do without the others. */
static enum err create_alone(struct trainer *t)
{
  struct run_config *run = &t->run;
  TRY(mesh_create(run, comm_rank(t->world), comm_size(t->world), &t->mesh));
  TRY(params_place_of(run, t->mesh.pp_rank, t->mesh.tp_rank, &t->place));
  TRY(params_create(run, &t->table));
  TRY(flat_create(t->table, &t->place, 256 / (int64_t)dtype_bytes(run_work_type(run)), run_shards(run), run->zero > 0, run->bucket, &t->flat));
  t->shard = t->mesh.dp_rank % t->flat->shards;
  TRY(flat_pieces(t->flat, t->table, trainer_shares(t) ? t->shard : FLAT_ALL, &t->pieces, &t->n_pieces));
  if (!run->batch_file[0]) TRY(corpus_open(run, &t->corpus));
  TRY(data_plan_create(run, t->corpus, &t->plan));
  TRY(create_micro(t));
  TRY(create_schedules(t));
  TRY(create_device(t));
  return ERR_OK;
}

/* What the passes of a list need of the weights, in order. */
static enum err create_lives(struct trainer *t, const struct schedule *s, struct trainer_lives *out)
{
  const int stage = t->mesh.pp_rank, n = s->n[stage];
  out->list = malloc((size_t)n * (size_t)(t->run.layers + LIVES_OF_ENDS) * sizeof *out->list);
  if (out->list == NULL) FAIL(ERR_MEMORY, "weights needed by %d passes", n);
  for (int i = 0; i < n; i++) {
    const struct schedule_action *a = &s->list[stage][i];
    const bool forward = a->pass == PASS_FORWARD, backward = a->pass == PASS_BACKWARD || a->pass == PASS_BACKWARD_INPUT;
    if (forward || backward)
      out->n += model_lives(t->model, a->chunk, forward ? ZERO_FORWARD : ZERO_BACKWARD, out->list + out->n);
  }
  return ERR_OK;
}

static enum err create_training(struct trainer *t)
{
  const struct schedule *s = t->training, *e = t->evaluation;
  const int stage = t->mesh.pp_rank;
  const struct zero_config zero = {.run = &t->run, .table = t->table, .flat = t->flat, .compute = t->compute,
                                   .weights = trainer_working(t)->at, .gather = t->groups.gather};
  TRY(zero_create(&zero, &t->zero));
  const struct ddp_config ddp = {.run = &t->run, .table = t->table, .flat = t->flat, .comm = t->groups.dp, .replicas = t->groups.replicas,
                                 .compute = t->compute, .gradients = t->gradients.at};
  TRY(ddp_create(&ddp, &t->ddp));
  const struct model_config config = {.run = &t->run, .table = t->table, .flat = t->flat, .place = t->place, .dev = t->dev,
                                      .compute = t->compute, .zero = t->zero, .ddp = t->ddp, .step = t->at.step,
                                      .tp = t->tp, .tied = t->groups.tied, .split = s->splits,
                                      .slots = s->slots[stage] > e->slots[stage] ? s->slots[stage] : e->slots[stage],
                                      .inputs = s->inputs[stage] > e->inputs[stage] ? s->inputs[stage] : e->inputs[stage],
                                      .weight_slots = s->weight_slots[stage]};
  TRY(model_create(&config, &t->model));
  TRY(create_lives(t, s, &t->train_lives));
  TRY(create_lives(t, e, &t->evaluate_lives));
  t->pass_lives = malloc((size_t)(t->run.layers + LIVES_OF_ENDS) * sizeof *t->pass_lives);
  if (t->pass_lives == NULL) FAIL(ERR_MEMORY, "weights needed by a pass");
  const struct loss_scale_config scale = {.run = &t->run, .dev = t->dev, .compute = t->compute, .all = t->groups.scale,
                                          .largest = ddp_largest(t->ddp), .stage = stage, .rank = comm_rank(t->world)};
  if (t->run.loss_scale > 0) TRY(loss_scale_create(&scale, &t->loss_scale));
  const struct optim_config optim = {.run = &t->run, .table = t->table, .flat = t->flat, .place = &t->place, .shard = t->shard,
                                     .dev = t->dev, .compute = t->compute, .shards = t->groups.shards, .norm = t->groups.norm,
                                     .weights = t->weights, .gradients = t->gradients, .rounded = t->rounded,
                                     .scale = t->loss_scale};
  TRY(optim_create(&optim, &t->optim));
  TRY(pipeline_create(s, stage, t->run.overlap_p2p, t->compute, t->groups.outputs, t->groups.gradients, &t->train_pipeline));
  TRY(pipeline_create(e, stage, t->run.overlap_p2p, t->compute, t->groups.outputs, t->groups.gradients, &t->evaluate_pipeline));
  TRY(zero_room(t->zero));
  const int64_t layers = t->run.layers + 4, each = t->run.delay == DELAY_NONE ? 1 : 2; /* a delay before each */
  TRY(dev_trace(t->dev, each * (t->n_micro * (layers * INTERVALS_A_LAYER + 4 * t->run.micro_batch) + t->table->n * 8 + t->flat->n_buckets * 32 + INTERVALS_A_STEP)));
  return ERR_OK;
}

/* Whoever reads of memory that one rank has not is told which. */
static enum err with_rank(const struct comm_world *w, enum err err)
{
  struct err_saved saved;
  if (err != ERR_MEMORY) return err;
  err_save(&saved, err);
  char text[sizeof saved.text];
  snprintf(text, sizeof text, "rank %d: %s", comm_rank(w), saved.text);
  memcpy(saved.text, text, sizeof text);
  return err_restore(&saved);
}

enum err trainer_create(struct comm_world *w, const struct run_config *run, struct trainer **out, bool *fatal)
{
  enum err err;
  *out = NULL;
  *fatal = false;
  struct trainer *t = calloc(1, sizeof *t);
  if (t != NULL) {
    t->run = *run;
    t->world = w;
    err = create_alone(t);
  } else {
    err = err_set(ERR_MEMORY, __FILE__, __LINE__, "trainer: %zu bytes", sizeof *t);
  }
  TRY_TO(destroy_trainer, comm_agree(w, with_rank(w, err)));
  if (run->device == DEV_CUDA && run->transport == TRANSPORT_NCCL && comm_size(w) > 1)
    TRY_TO(destroy_trainer, comm_check_nccl(w, t->dev));
  *fatal = comm_size(w) > 1; /* some may be inside a group by now */
  TRY_TO(destroy_trainer, groups_create(t));
  *fatal = false;
  TRY_TO(destroy_trainer, comm_agree(w, with_rank(w, create_training(t))));
  *out = t;
  return ERR_OK;

destroy_trainer:
  if (!*fatal) trainer_destroy(t);
  return err;
}

void trainer_destroy(struct trainer *t)
{
  if (t == NULL) return;
  if (t->dev) dev_sync(t->dev); /* what is queued still uses all of it; its error was the caller's to see before */
  pipeline_destroy(t->evaluate_pipeline);
  pipeline_destroy(t->train_pipeline);
  optim_destroy(t->optim);
  loss_scale_destroy(t->loss_scale);
  model_destroy(t->model);
  ddp_destroy(t->ddp);
  zero_destroy(t->zero);
  groups_destroy(t);
  loader_destroy(t->loader);
  if (t->dev) {
    dev_free(t->dev, t->scalars);
    dev_free(t->dev, t->inputs);
    dev_free(t->dev, t->gradients.at);
    offload_free(t->dev, &t->weights);
    dev_free(t->dev, t->rounded.at);
    dev_event_destroy(t->summed);
    dev_event_destroy(t->counted);
    dev_stream_close(t->input_gradients);
    dev_stream_close(t->outputs);
    dev_stream_close(t->gather);
    dev_stream_close(t->scalar);
    dev_stream_close(t->transfer);
    dev_stream_close(t->compute);
    BUG_IF(!dev_is_idle(t->dev)); /* somebody did not give his back */
    dev_close(t->dev);
  }
  free(t->read);
  free(t->micro);
  free(t->planted);
  free(t->train_lives.list);
  free(t->evaluate_lives.list);
  free(t->pass_lives);
  free(t->loss_sums);
  schedule_destroy(t->evaluation);
  schedule_destroy(t->training);
  data_plan_destroy(t->plan);
  corpus_close(t->corpus);
  free(t->pieces);
  flat_destroy(t->flat);
  params_destroy(t->table);
  free(t);
}
