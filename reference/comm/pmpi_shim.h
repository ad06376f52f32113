/* pmpi_shim.h - counts of MPI calls and payload bytes, taken at the PMPI layer.
 *
 * Knows MPI and nothing of the trainer: an independent witness for the trace.
 * Counts collectives and point-to-point, blocking or not, on communicators other than
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
/* Rows of calls made at least once. */
int pmpi_counts(struct pmpi_count *out, int max); /* number of rows written */
void pmpi_restart(void);
/* Leave a communicator out, by its MPI_Comm_c2f() handle.  16 at most: more is a bug. */
void pmpi_ignore(int handle);
#endif
