/* warm.h - libraries started before anything of a run is measured. */
#ifndef TRAIN_WARM_H
#define TRAIN_WARM_H
#include "base/config.h"
#include "comm/comm.h"

/* All ranks.  One small product of each kind on a device of its own, and where MPI carries what is exchanged one sum over all
 * ranks: code pages, tables and threads of the matrix library and MPI's connections are there when the memory of a run
 * begins to count. */
enum err warm_libraries(const struct run_config *run, struct comm_world *w);
#endif
