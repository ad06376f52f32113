/* device.h - the device that a run asks for, on this rank, and how its groups exchange. */
#ifndef TRAIN_DEVICE_H
#define TRAIN_DEVICE_H

#include "base/config.h"
#include "comm/comm.h"

/* On a host with several GPUs the ranks of that host take them in turn. */
static inline struct dev_config device_config(const struct run_config *run, const struct comm_world *w)
{
  static const unsigned delayed[] = {[DELAY_COLLECTIVES] = DEV_DELAY_COLLECTIVES, [DELAY_COPIES] = DEV_DELAY_COPIES,
                                     [DELAY_UPDATE] = DEV_DELAY_UPDATE,
                                     [DELAY_ALL] = DEV_DELAY_COLLECTIVES | DEV_DELAY_COPIES | DEV_DELAY_UPDATE};
  const enum dev_kind kind = (enum dev_kind)run->device;
  const int n = kind == DEV_CUDA ? dev_count(kind) : 1;
  return (struct dev_config){.kind = kind,
                             .index = n > 0 ? comm_node_rank(w) % n : 0,
                             .threads = (int)run->threads,
                             .lazy_seed = (uint64_t)run->lazy_seed,
                             .poison_end = run->poison_end,
                             .tf32 = run->precision == PRECISION_TF32,
                             .delayed = delayed[run->delay],
                             .delay_ms = run->delay_ms, /* ranks are late by different times */
                             .delay_seed = (uint64_t)run->delay_seed << 32 | (uint64_t)comm_rank(w)};
}

/* Names of the options nccl_algo and nccl_proto; their first value leaves the choice to NCCL. */
static inline struct comm_config device_comm_config(const struct run_config *run, const char *name)
{
  static const char *const algos[] = {NULL, "ring", "tree", "nvls", "nvlstree"}, *const protos[] = {NULL, "simple", "ll", "ll128"};
  return (struct comm_config){.name = name,
                              .reduce = run->reduce == REDUCE_ORDERED ? COMM_ORDERED : COMM_FAST,
                              .synchronous = run->synchronous,
                              .transport = run->transport == TRANSPORT_STAGED ? COMM_STAGED : COMM_NCCL,
                              .nccl_algo = algos[run->nccl_algo],
                              .nccl_proto = protos[run->nccl_proto]};
}
#endif
