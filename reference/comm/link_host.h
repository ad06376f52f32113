/* link_host.h - the calls of a link that need no other rank, on memory of the host: for links of
 * MPI and of a world of one.  As struct link_calls says of each. */
#ifndef COMM_LINK_HOST_H
#define COMM_LINK_HOST_H

#include "comm/link.h"

enum err link_host_pack(struct link *l, const struct tensor *t, int64_t first, int64_t count, void *at);
enum err link_host_unpack(struct link *l, const struct tensor *t, int64_t first, int64_t count, const void *at);
enum err link_host_reduce(struct link *l, void *parts, int n, int64_t count, enum dtype type, enum comm_op op);
enum err link_host_copy(struct link *l, const struct tensor *to, const struct tensor *from);
enum err link_host_flip(struct link *l, void *byte, unsigned char bits);
enum err link_host_started(struct link *l, const struct link_mark *m);
enum err link_host_done(struct link *l, const struct link_mark *m);

#endif
