/* groups.h - who shares what with whom: one group for each purpose, all made in one order. */
#ifndef TRAIN_GROUPS_H
#define TRAIN_GROUPS_H
#include "train/trainer.h"
/* All ranks.  Fills t->groups and t->tp; t's mesh, flat layout and streams are there.  Refuses a
 * tensor group that spans hosts (ERR_CONFIG, on every rank alike) unless tp_across_nodes; and NCCL
 * for two ranks on one GPU or of unequal versions (ERR_INVALID), likewise. */
enum err groups_create(struct trainer *t);
void groups_destroy(struct trainer *t);
#endif
