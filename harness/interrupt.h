/* interrupt.h - Ctrl-C and SIGTERM, seen between two looks at a job.  The one flag that a
 * signal handler can set is the one static of this room. */
#ifndef HARNESS_INTERRUPT_H
#define HARNESS_INTERRUPT_H
#include <stdbool.h>
void interrupt_watch(void); /* from now on SIGINT, SIGTERM and SIGHUP set the flag; SIGPIPE is ignored */
bool interrupt_seen(void);
#endif
