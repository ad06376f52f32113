/* pmpi_shim.h - counts of MPI calls and payload bytes, taken at the PMPI layer.
 *
 * Knows MPI and nothing of the trainer: an independent witness for the trace.
 * Counts non-blocking collectives and point-to-point on communicators other than
 * those the shim was told to leave out (control plane).  Thread-safe.
 */
#ifndef COMM_PMPI_SHIM_H
#define COMM_PMPI_SHIM_H
#include <stdint.h>

struct pmpi_count {
  const char *call; /* "MPI_Iallreduce", ... */
  int64_t calls;
  int64_t bytes;    /* payload this rank hands to the call: count * size of type */
};
int pmpi_counts(struct pmpi_count *out, int max); /* number of rows written */
void pmpi_restart(void);
#endif
