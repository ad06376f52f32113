/* staged.h - data of a CUDA device passes through pinned memory of the host, where MPI sees it.
 *
 * Copies are work of the comm's stream, before and after the exchange, so the exchange itself is
 * MPI's on memory of the host.  Correctness only: every byte crosses the bus twice, and waits.
 */
#ifndef COMM_STAGED_H
#define COMM_STAGED_H

#include "device/dev.h"

struct staged;
enum err staged_create(struct dev *d, struct staged **out);
void staged_destroy(struct staged *s); /* its stream is past all of it; NULL is allowed */

/* Room for what is queued next; the same place serves one call after the other, in the stream's order.
 * Grows to the largest call and stays, so that a step like the one before takes nothing. */
enum err staged_place(struct staged *s, size_t bytes, char **out);
/* Queues a copy between views of one shape, one of the device and one contiguous there. */
enum err staged_copy(struct dev_stream *stream, const char *name, const struct tensor *to, const struct tensor *from);

#endif
