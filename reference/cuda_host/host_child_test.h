/* host_child_test.h - what ends a process happens in a child, whose last words are kept. */
#ifndef CUDA_HOST_CHILD_TEST_H
#define CUDA_HOST_CHILD_TEST_H

#include <stdbool.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

/* False when the child ended as if nothing were wrong.  `said`: what it wrote to stderr. */
static bool child_dies(void (*run)(void), char *said, size_t bytes)
{
  int pipes[2];
  size_t n = 0;
  said[0] = '\0';
  if (pipe(pipes) != 0) return false;
  const pid_t child = fork();
  if (child == 0) {
    dup2(pipes[1], 2);
    close(pipes[0]);
    close(pipes[1]);
    run();
    _exit(0);
  }
  close(pipes[1]);
  for (ssize_t got; n + 1 < bytes && (got = read(pipes[0], said + n, bytes - 1 - n)) > 0;) n += (size_t)got;
  said[n] = '\0';
  close(pipes[0]);
  int status = 0;
  if (child < 0 || waitpid(child, &status, 0) != child) return false;
  return !(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

#endif
