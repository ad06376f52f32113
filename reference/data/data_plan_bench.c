/* data_plan_bench.c - what planning N synthetic documents takes, by policy, and how even its steps are: data_plan_bench [N].
 * Lengths are Wikipedia's; a step of 64 sequences of 512 tokens goes to two ranks.  Load balance: mean over max of what they have,
 * tokens, and sums of squared document lengths; the mean over 50 steps. */
#include "base/clock.h"
#include "data/data.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

enum { STEPS = 50, G = 64, T = 512 };

/* Tokens of a micro-batch of one sequence, and squares of the lengths of its documents. */
static void add_work(const struct batch *b, double work[2])
{
  int64_t n = 0;
  for (int64_t t = 0; t < T; t++) {
    n = b->documents[t] < 0 ? 0 : b->positions[t] == 0 ? 1 : n + 1;
    work[0] += n > 0;
    work[1] += n > 0 ? 2.0 * (double)n - 1 : 0; /* n^2 less (n - 1)^2 */
  }
}

static enum err balance(struct data_plan *p, struct batch *b, double mean[2])
{
  for (int64_t step = 0; step < STEPS; step++) {
    double work[2][2] = {{0}};
    for (int64_t m = 0; m < G; m++) {
      TRY(data_plan_batch(p, step, m, b));
      add_work(b, work[m / (G / 2)]);
    }
    for (int k = 0; k < 2; k++) mean[k] += (work[0][k] + work[1][k]) / 2 / (work[0][k] > work[1][k] ? work[0][k] : work[1][k]) / STEPS;
  }
  return ERR_OK;
}

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
  c.positions = c.sequence = T;
  c.vocab = 50257;
  c.policy = policy;
  c.packing = packing;
  c.documents_each = 1;
  c.tail = TAIL_PAD;
  c.deal = 2;
  c.global_batch = G;
  c.cost_c = 1.0 / T;
  const double begin = clock_ms();
  if (corpus_open(&c, &corpus) || data_plan_create(&c, corpus, &p) || batch_create(1, T, &batch)) {
    fprintf(stderr, "%s\n", err_text());
    return 1;
  }
  const double made = clock_ms();
  double mean[2] = {0, 0};
  if (balance(p, &batch, mean)) return 1;
  const double batches = clock_ms();
  data_plan_facts(p, &facts);
  getrusage(RUSAGE_SELF, &usage);
  printf("%-20s %6.2f s %7.1f MiB %9lld sequences %8.4f %% filled   balance %.4f tokens %.4f squares   %.3f ms a micro-batch\n", name,
         (made - begin) / 1e3, (double)usage.ru_maxrss / 1024, (long long)facts.sequences, 100 * facts.filled, mean[0], mean[1],
         (batches - made) / (STEPS * G));
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
