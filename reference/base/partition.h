/* partition.h - which layers each virtual stage of a pipeline has.
 *
 * Virtual stage k of pp * chunks is chunk k / pp of pipeline rank k % pp.  The embedding
 * goes with the first, the last norm, the head and the loss with the last.
 */
#ifndef BASE_PARTITION_H
#define BASE_PARTITION_H

#include "base/config.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { PARTITION_MAX = 512 };

struct partition {
  int stages;                       /* virtual ones                                          */
  int64_t first[PARTITION_MAX + 1]; /* virtual stage k has layers first[k] .. first[k+1] - 1 */
};

/* By run->stages; needs layers, hidden, vocab, sequence, pp and chunks and nothing else of a
 * finished config.
 *   even   the first layers % stages virtual stages have one layer more
 *   auto   the most costly virtual stage is as cheap as it can be, in FLOPs a token of a
 *          forward pass: a layer 24 C^2 + 4 T C, the head 2 C V, the embedding 0.  Among the
 *          equally cheap the last stage has the most layers; the rest is shared out evenly,
 *          the first ones with one layer more.
 *   3,3,2  the layers of each virtual stage
 * Fails: ERR_CONFIG, with key, value and valid ones: more virtual stages than layers or than
 * PARTITION_MAX; a list whose length, sum or least element is wrong. */
enum err partition_make(const struct run_config *run, struct partition *out);

#ifdef __cplusplus
}
#endif
#endif
