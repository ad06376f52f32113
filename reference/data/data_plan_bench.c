/* data_plan_bench.c - seconds and memory that planning N synthetic documents takes, by policy: data_plan_bench [N]. */
#include "base/clock.h"
#include "data/data.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

static int plan(int64_t documents, int64_t policy, int64_t packing, const char *name)
{
  struct run_config c;
  struct corpus *corpus;
  struct data_plan *p;
  struct data_facts facts;
  struct rusage usage;
  struct batch batch;
  config_default(&c);
  c.documents = documents;
  c.positions = c.sequence = 512;
  c.vocab = 50257;
  c.policy = policy;
  c.packing = packing;
  c.documents_each = 1;
  c.tail = TAIL_PAD;
  c.deal = 2;
  c.global_batch = 64;
  const double begin = clock_ms();
  if (corpus_open(&c, &corpus) || data_plan_create(&c, corpus, &p) || batch_create(1, 512, &batch)) {
    fprintf(stderr, "%s\n", err_text());
    return 1;
  }
  const double made = clock_ms();
  for (int64_t step = 0; step < 100; step++)
    if (data_plan_batch(p, step * 997, step % 64, &batch)) return 1;
  const double batches = clock_ms();
  data_plan_facts(p, &facts);
  getrusage(RUSAGE_SELF, &usage);
  printf("%-24s %8.2f s  %7.1f MiB  %9lld sequences  %7.4f %% filled  %6.3f ms a micro-batch\n", name,
         (made - begin) / 1e3, (double)usage.ru_maxrss / 1024,
         (long long)facts.sequences, 100 * facts.filled, (batches - made) / 100);
  return 0;
}

int main(int argc, char **argv)
{
  static const struct { const char *name; int64_t policy, packing; } kinds[] = {
    {"padded", POLICY_PADDED, 0}, {"chunked", POLICY_CHUNKED, 0}, {"bucketed", POLICY_BUCKETED, 0}, {"balanced", POLICY_BALANCED, 0},
    {"shortest-pack-first", POLICY_PACKED, PACKING_SHORTEST_PACK_FIRST}, {"best-fit", POLICY_PACKED, PACKING_BEST_FIT},
    {"first-fit", POLICY_PACKED, PACKING_FIRST_FIT},
  };
  const int64_t documents = argc > 1 ? atoll(argv[1]) : 10000000;
  for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) { /* a process each, so that memory is its own */
    int status = 0;
    fflush(stdout);
    const pid_t child = fork();
    if (child == 0) {
      const int failed = plan(documents, kinds[i].policy, kinds[i].packing, kinds[i].name);
      fflush(stdout);
      _exit(failed);
    }
    if (child < 0 || waitpid(child, &status, 0) != child || status != 0) return 1;
  }
  return 0;
}
