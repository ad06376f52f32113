/* nccl_cuda.c - finds NCCL's functions. */
#include "comm/nccl_cuda.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

static enum err missing(const char *why)
{
  FAIL(ERR_UNAVAILABLE, "NCCL is missing (%s): install libnccl2, or set LD_LIBRARY_PATH; transport: staged needs none", why);
}

#ifdef SHARDMARK_CUDA_HOST
enum err nccl_cuda_load(struct nccl_cuda *out)
{
  int version;
#define X(name) out->name = nccl##name;
  NCCL_CUDA_CALLS(X)
#undef X
  if (out->GetVersion(&version) == ncclSuccess && version == 0) TRY(missing("the stand-in was told so"));
  return ERR_OK;
}
#else
/* dlsym gives an object's address; POSIX has it that a function's fits. */
static enum err find(void *library, const char *name, void *function)
{
  void *at = dlsym(library, name);
  if (at == NULL) FAIL(ERR_UNAVAILABLE, "NCCL has no %s: %s; version 2.10 or later is needed", name, dlerror());
  memcpy(function, &at, sizeof at);
  return ERR_OK;
}

enum err nccl_cuda_load(struct nccl_cuda *out)
{
  void *library = dlopen("libnccl.so.2", RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE); /* it has threads of its own: it stays */
  if (library == NULL) TRY(missing(dlerror()));
#define X(name) TRY(find(library, "nccl" #name, &out->name));
  NCCL_CUDA_CALLS(X)
#undef X
  return ERR_OK;
}
#endif

void nccl_cuda_text(int version, char *out, size_t bytes)
{
  if (version < 10000) /* as numbers were made until 2.8 */
    snprintf(out, bytes, "%d.%d.%d", version / 1000, version % 1000 / 100, version % 100);
  else
    snprintf(out, bytes, "%d.%d.%d", version / 10000, version % 10000 / 100, version % 100);
}

enum err nccl_cuda_check(const struct nccl_cuda *nccl, ncclResult_t code, const char *call)
{
  if (code == ncclSuccess) return ERR_OK;
  FAIL(ERR_COMM, "%s: %s; NCCL_DEBUG=WARN says more", call, nccl->GetErrorString(code));
}
