/* marks_cuda.h - where a stream of the device is among the calls of a comm.
 *
 * Each call leaves two events; what has happened is told to the trace when somebody looks,
 * which is whenever the host waits.
 */
#ifndef COMM_MARKS_CUDA_H
#define COMM_MARKS_CUDA_H

#include "comm/link.h"

struct marks;
enum err marks_cuda_create(struct marks **out);
void marks_cuda_destroy(struct marks *m); /* tells what has happened until now; NULL is allowed */
/* Around the issue of a call.  Calls beyond what is kept are passed over: a later one tells more. */
enum err marks_cuda_started(struct marks *m, const struct dev_cuda *at, const struct link_mark *mark);
enum err marks_cuda_done(struct marks *m, const struct dev_cuda *at);
enum err marks_cuda_look(struct marks *m);

#endif
