/* interrupt.c */
#include "harness/interrupt.h"

#include <signal.h>
#include <stddef.h>

static volatile sig_atomic_t seen;
static void on_signal(int signal)
{
  (void)signal;
  seen = 1;
}

void interrupt_watch(void)
{
  struct sigaction on = {.sa_handler = on_signal}, ignore = {.sa_handler = SIG_IGN};
  sigaction(SIGINT, &on, NULL);
  sigaction(SIGTERM, &on, NULL);
  sigaction(SIGHUP, &on, NULL);
  sigaction(SIGPIPE, &ignore, NULL);
}

bool interrupt_seen(void) { return seen != 0; }
