/* offload.h - what updates keep of the parameters (moments, master weights) in the host's memory, on the device only
 * while it is used.
 *
 * An update walks over it by windows: what a rank has of one bucket, of all buffers.  Windows take turns in two places on
 * the device, with a stream for each way:
 *
 *   fetch    i0 i1       i2      i3          in: waits until the window before in this place is stored
 *              \  \      /\      /
 *   compute     u0  u1  /  u2   /  u3        updates: waits until its window is there
 *                 \   \/     \ /
 *   store          o0  o1     o2  o3         out: waits until its window is updated
 *
 * Places are taken in turn without regard to where a step ends, so the same wait holds the next step's copy in of a
 * window back until it was stored: nothing has gone out of a place later than what it was given last.  The host waits for
 * nothing; what is stored last may go on into the next step.  The first copies of a step need none of its gradients, and
 * run beside its last backward.
 *
 * A rank that has only one window has one place; two windows are on the device whole.
 */
#ifndef OPTIM_OFFLOAD_H
#define OPTIM_OFFLOAD_H

#include "device/dev.h"
#include "params/params.h"

/* Memory of the host (DEV_ON_HOST) for a buffer of this layout, every element zero.  Fails: ERR_MEMORY, naming `owner`,
 * a literal. */
enum err offload_buffer(struct dev *d, const struct flat *f, const char *owner, enum dtype type, enum flat_hold hold, struct flat_buffer *out);
/* Of a buffer, wherever it is; at NULL is allowed.  No queued work may still use it. */
void offload_free(struct dev *d, const struct flat_buffer *b);

enum { OFFLOAD_BUFFERS = 3, OFFLOAD_PLACES = 2 };

struct offload;
struct offload_config {
  const struct flat *flat;
  struct dev_stream *compute;
  struct flat_buffer buffers[OFFLOAD_BUFFERS]; /* offloaded, of one type, all FLAT_WHOLE or all FLAT_SHARD */
  int n_buffers;
  const struct flat_piece *pieces; /* what takes updates, in any order; not read after create */
  int n_pieces;
};
/* Owner of *out: the caller; it opens two streams, and takes the places (DEV_OPTIMIZER).  Fails: ERR_ARG, ERR_MEMORY. */
enum err offload_create(const struct offload_config *c, struct offload **out);
void offload_destroy(struct offload *o); /* waits for what it queued; NULL is allowed */

/* Called for each piece, cut where windows end, in order of the windows: queues its update on the compute stream.
 * state[b]: the piece of buffers[b], [1, count], on the device; valid for what is queued until the call returns. */
typedef enum err (*offload_update)(void *arg, const struct flat_piece *piece, const struct tensor state[OFFLOAD_BUFFERS]);
/* Queue the update of all pieces.  Nothing is allocated, and the host does not wait. */
enum err offload_walk(struct offload *o, offload_update update, void *arg);
/* The compute stream waits until all is stored: before it, or the host behind it, reads the buffers. */
enum err offload_settle(struct offload *o);

#endif
