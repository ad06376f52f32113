/* trainer.h - everything one rank needs to train: device, groups, model, data.
 *
 * Streams: `compute`, which also carries what a pass cannot go on without (groups "tp", "norm",
 * "tied", "scale"); `transfer`, which carries gradients of weights (group "dp"); `scalar`, which carries
 * token counts and losses (group "sums"); where replicas share, `gather`, which carries updated weights
 * (group "gather"); with offload `fetch` and `store`, which carry what updates keep; with pp > 1 `outputs` and `gradients`, which carry what
 * stages send to each other (groups of these names).  All memory of a step is taken in
 * trainer_create.
 */
#ifndef TRAIN_TRAINER_H
#define TRAIN_TRAINER_H

#include "comm/comm.h"
#include "data/loader.h"
#include "model/model.h"
#include "optim/optim.h"
#include "parallel/ddp.h"
#include "parallel/mesh.h"
#include "parallel/pipeline.h"
#include "parallel/tensor.h"

/* One micro-batch of this rank's list, in the order in which it runs. */
struct trainer_micro {
  int64_t number; /* in the whole step */
  struct batch batch;       /* of this step: the loader's */
  struct model_input input; /* on the device, as wide as its passes */
};

/* NULL where this rank needs none: a group of one, or one that it is not in. */
struct trainer_groups {
  struct comm *dp;                  /* replicas of this rank's part, or those of them that share: always there */
  struct comm *replicas;            /* those that have this rank's shard                      */
  struct comm *gather, *shards;     /* those that share: of weights, of norms                 */
  struct comm *sums;                /* all ranks with this tp_rank: always there              */
  struct comm *tp;                  /* parts of each cut parameter                            */
  struct comm *norm;                /* the ranks that hold one replica of the model           */
  struct comm *outputs, *gradients; /* stages, forward and backward                           */
  struct comm *tied;                /* first and last stage, where the tied matrix stands twice */
  struct comm *scale;               /* all ranks, where losses are scaled                     */
};

/* Numbers of a step on the device.  All f64 [1,1] but losses and terms. */
struct trainer_scalars {
  struct tensor step;           /* i32: keys dropout                                       */
  struct tensor count, scale;   /* valid tokens of all ranks; what a loss is multiplied by */
  struct tensor raised;         /* with a loss scale: what a loss is multiplied by, times it */
  struct tensor planted;        /* [1, 2]: scale of one micro-batch when a fault changes it */
  struct tensor since;          /* when planted slowness began to count                    */
  struct tensor losses, terms;  /* [1, n_micro]: loss sums; the same times their scale     */
  struct tensor of_replica;     /* [2, replicas]: sums of losses, of terms                 */
  struct tensor mine, all;      /* [1, 2]: the same over this rank, over all ranks         */
  struct tensor hashes;         /* i64 [1, rows of the table]                              */
};

/* What a step says, on the host. */
struct trainer_numbers {
  double count, mine[2], all[2]; /* as the scalars of that name */
  double norm, factor, lr;
  double scaling[LOSS_SCALE_NUMBERS]; /* with a loss scale */
};

/* Of a list of passes: see zero_plan. */
struct trainer_lives {
  struct zero_life *list;
  int n;
};

struct trainer {
  struct run_config run;
  struct comm_world *world;
  struct mesh mesh;
  struct params_place place;

  struct param_table *table;
  struct flat *flat;
  int shard;                 /* of this rank, among those that share */
  struct flat_piece *pieces; /* of each row, what this rank keeps the state of */
  int n_pieces;
  struct corpus *corpus; /* NULL with a batch_file */
  struct data_plan *plan;
  int64_t *read;         /* [n_micro] numbers of the micro-batches that are read: micro[].number, unless a fault is planted */
  struct loader *loader;

  struct dev *dev;
  struct dev_stream *compute, *transfer, *scalar, *gather, *outputs, *input_gradients; /* gather NULL where nothing is shared, the last two with pp = 1 */
  struct dev_event *counted, *summed;
  struct trainer_groups groups;
  struct tp tp;
  struct flat_buffer weights, gradients; /* what updates are added to, and what they are made of; master weights may be offloaded */
  struct flat_buffer rounded;            /* with bf16 and fp16 the weights rounded, else at NULL */
  struct zero *zero;
  struct trainer_lives train_lives, evaluate_lives;
  struct zero_life *pass_lives; /* room for those of one pass */
  struct ddp *ddp;
  struct model *model;
  struct optim *optim;
  struct loss_scale *loss_scale; /* NULL: losses are not scaled */
  int64_t updates;               /* made so far; a step that is skipped makes none */
  struct schedule *training, *evaluation; /* lists of passes; the second goes forward only */
  struct pipeline *train_pipeline, *evaluate_pipeline;

  struct trainer_micro *micro; /* n_micro = replicas * accumulation, replica by replica */
  int64_t n_micro, accumulation;
  int64_t n_valid;             /* of all of them */
  uint64_t consumed;           /* sum of hash_place over all that was trained on so far */
  void *inputs;                /* the block that they stand in on the device */
  bool scaled;                 /* at.scale of this step is queued */
  int64_t first_micro;         /* of the list of passes that is being queued: its micro-batch 0 */
  struct trainer_scalars at;
  void *scalars;               /* the block that they stand in */
  struct trainer_numbers now;
  double *loss_sums;           /* [n_micro] of the last step, on the host */
  int64_t tagged_step;         /* of what is queued now, for the trace; -1 in evaluation */
  int32_t step_number;         /* host sources of copies to the device: they outlive the copy */
  double valid_here;
  double *planted;             /* [2 n_micro] */
};

/* All ranks; the same run everywhere.  What a rank can find out alone comes first, then the
 * ranks agree, so that none waits in a group for one that failed.  `fatal` says whether the
 * ranks still agree on where they are when it fails. */
enum err trainer_create(struct comm_world *w, const struct run_config *run, struct trainer **out, bool *fatal);
void trainer_destroy(struct trainer *t); /* all ranks; NULL is allowed */

/* Replicas share the state; false where one rank emulates them. */
bool trainer_shares(const struct trainer *t);
/* All of a buffer as one row; a row of the table in one that has it whole: its owner's storage. */
struct tensor trainer_flat(const struct trainer *t, const struct flat_buffer *b);
struct tensor trainer_row(const struct trainer *t, const struct flat_buffer *b, int row);
/* What products read: rounded, or weights. */
const struct flat_buffer *trainer_working(const struct trainer *t);
/* The host waits for all streams but `gather`, and those of what is offloaded, which may go on into the next step. */
enum err trainer_sync(struct trainer *t);
/* Names of the streams that trainer_sync() waits for; returns how many. */
enum { TRAINER_AWAITED = 5 };
int trainer_awaited(const struct trainer *t, const char *names[TRAINER_AWAITED]);
/* The compute stream waits for all that the last update left on its way: before it reads weights or what updates keep. */
enum err trainer_settle(struct trainer *t);
/* The micro-batches of `step` (below 0: of evaluation batch -1 - step) and their valid tokens: the host waits until they are read. */
enum err trainer_fetch(struct trainer *t, int64_t step);
/* Micro-batch of the list as input on the device: queued on compute. */
enum err trainer_load(struct trainer *t, int64_t i);
/* Says that the host reads `now` and loss_sums from here on: after a synchronisation. */
enum err trainer_read_numbers(struct trainer *t);
/* This rank has the last virtual stage, and with it the losses. */
bool trainer_has_loss(const struct trainer *t);
/* Column i of a row of scalars, [1,1]. */
static inline struct tensor trainer_scalar(const struct tensor *list, int64_t row, int64_t i)
{
  return tensor_part(list, row, 1, i, 1);
}

#endif
