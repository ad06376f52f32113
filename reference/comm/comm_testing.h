/* comm_testing.h - comms of a test, on the device and by the transport that it is run for. */
#ifndef COMM_COMM_TESTING_H
#define COMM_COMM_TESTING_H

#include "comm/comm.h"
#include "device/dev_mirror.h"

/* SHARDMARK_TEST_TRANSPORT: staged, or nothing for NCCL; read on a cuda device only. */
static inline bool test_staged(void)
{
  const char *name = getenv("SHARDMARK_TEST_TRANSPORT");
  return name != NULL && strcmp(name, "staged") == 0;
}

static inline bool test_nccl(void) { return mirror_cuda() && !test_staged(); }

/* As comm_create. */
static inline enum err test_comm(struct comm_world *w, struct dev_stream *s, const int *ranks, int n, size_t max_bytes,
                                 const struct comm_config *config, struct comm **out)
{
  struct comm_config c = *config;
  c.transport = test_staged() ? COMM_STAGED : COMM_NCCL;
  return comm_create(w, s, ranks, n, max_bytes, &c, out);
}

/* As dev_open: of lazy, or of cpu or the device under test in its place. */
static inline enum err test_dev_as(const struct dev_config *config, struct dev **out)
{
  const struct dev_config here = mirror_config(config);
  return dev_open(mirror_kind(config->kind) == config->kind ? config : &here, out);
}

/* With one thread. */
static inline enum err test_dev(enum dev_kind kind, uint64_t seed, struct dev **out)
{
  return test_dev_as(&(struct dev_config){.kind = kind, .threads = 1, .lazy_seed = seed}, out);
}

#endif
