/* topology_cuda.c - the GPUs of this host and which reach each other's memory. */
#include "comm/link_cuda.h"
#include "device/dev_cuda.h"

#include <stdio.h>

enum err link_cuda_topology(char *out, size_t bytes)
{
  int n = 0, reach = 0;
  size_t used = 0;
  CUDA_TRY(cudaGetDeviceCount(&n));
  for (int a = 0; a < n; a++)
    for (int b = 0; b < n; b++) {
      int can = 0;
      if (a != b) CUDA_TRY(cudaDeviceCanAccessPeer(&can, a, b));
      reach += can != 0;
    }
  used += (size_t)snprintf(out, bytes, "%d GPUs, %d of %d ordered pairs reach each other's memory:", n, reach, n * (n - 1));
  for (int a = 0; a < n && used < bytes; a++) {
    char address[32];
    CUDA_TRY(cudaDeviceGetPCIBusId(address, sizeof address, a));
    used += (size_t)snprintf(out + used, bytes - used, " %s", address);
  }
  return ERR_OK;
}
