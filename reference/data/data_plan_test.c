/* data_plan_test.c - epochs, cuts, order, and batches from a file. */
#include "base/safetensors.h"
#include "data/data_fixture.h"
#include "testing/check.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static struct run_config config(void)
{
  struct run_config c = {.documents = 61, .positions = 24, .sequence = 24, .vocab = 131, .seed = 3, .steps = 100,
                         .global_batch = 6, .micro_batch = 2, .policy = POLICY_PADDED, .documents_each = 1,
                         .shuffle = true, .tail = TAIL_WRAP};
  strcpy(c.corpus, "synthetic");
  return c;
}

/* Counts tokens of each document in one epoch of sequences, one at a time. */
static void count_epoch(struct fixture *f, int64_t epoch, int64_t *tokens, int32_t *order)
{
  const int64_t E = data_plan_epoch(f->plan);
  for (int64_t i = 0; i < E; i++) {
    CHECK_OK(data_plan_batch(f->plan, epoch * E + i, 0, &f->batch));
    if (order) order[i] = f->batch.documents[0];
    for (int64_t t = 0; t < f->batch.T; t++)
      if (f->batch.documents[t] >= 0) tokens[f->batch.documents[t]]++;
  }
}

static void an_epoch_takes_every_document_once(void)
{
  for (int variant = 0; variant < 3; variant++) {
    struct run_config c = config();
    c.global_batch = c.micro_batch = 1;
    c.policy = variant == 2 ? POLICY_CHUNKED : POLICY_PADDED;
    c.documents_each = variant == 1 ? 2 : 1;
    if (variant == 2) c.sequence = 7; /* most documents are cut */
    struct fixture f;
    if (!setup(&f, c)) return;
    int64_t tokens[2][61] = {{0}};
    count_epoch(&f, 0, tokens[0], NULL);
    count_epoch(&f, 1, tokens[1], NULL);
    const int64_t room = variant == 0 ? 24 : variant == 1 ? 12 : 1000;
    for (int64_t d = 0; d < 61; d++) {
      const int64_t length = corpus_length(f.corpus, d);
      const int64_t kept = length >= room ? room : length - (variant == 2 && length % 7 == 1); /* a last token alone has no target */
      CHECK(tokens[0][d] == (d % 16 == 15 ? 0 : kept)); /* held out for evaluation */
      CHECK(tokens[1][d] == tokens[0][d]);
    }
    teardown(&f);
  }
}

static void order_differs_by_epoch_and_by_seed(void)
{
  struct run_config c = config();
  c.global_batch = c.micro_batch = 1;
  struct fixture f, g;
  if (!setup(&f, c)) return;
  c.seed++;
  if (!setup(&g, c)) return;
  int64_t tokens[61] = {0};
  int32_t first[58], second[58], other[58];
  CHECK(data_plan_epoch(f.plan) == 58);
  count_epoch(&f, 0, tokens, first);
  count_epoch(&f, 1, tokens, second);
  count_epoch(&g, 0, tokens, other);
  int same_epoch = 0, same_seed = 0;
  for (int i = 0; i < 58; i++) {
    same_epoch += first[i] == second[i];
    same_seed += first[i] == other[i];
  }
  CHECK(same_epoch < 10); /* one is expected of two random orders */
  CHECK(same_seed < 10);
  teardown(&f);
  teardown(&g);
}

static void a_sequence_does_not_depend_on_the_cut_into_micro_batches(void)
{
  struct run_config c = config();
  struct fixture pairs, single;
  if (!setup(&pairs, c)) return;
  c.micro_batch = 1;
  if (!setup(&single, c)) return;
  for (int64_t step = -2; step < 4; step++)
    for (int64_t m = 0; m < 3; m++) {
      CHECK_OK(data_plan_batch(pairs.plan, step, m, &pairs.batch));
      for (int64_t b = 0; b < 2; b++) {
        CHECK_OK(data_plan_batch(single.plan, step, 2 * m + b, &single.batch));
        CHECK_SAME_BITS(single.batch.tokens, pairs.batch.tokens + b * 24, 24 * sizeof(int32_t));
        CHECK_SAME_BITS(single.batch.targets, pairs.batch.targets + b * 24, 24 * sizeof(int32_t));
        CHECK(single.batch.samples[0] == pairs.batch.samples[b]);
      }
    }
  teardown(&pairs);
  teardown(&single);
}

static void targets_positions_and_padding_are_as_stated(void)
{
  struct run_config c = config();
  c.documents_each = 2;
  struct fixture f;
  if (!setup(&f, c)) return;
  int64_t padded = 0, cut = 0, two = 0;
  for (int64_t step = 0; step < 5; step++)
    for (int64_t m = 0; m < 3; m++) {
      struct batch *b = &f.batch;
      CHECK_OK(data_plan_batch(f.plan, step, m, b));
      int64_t tokens = 0, valid = 0;
      for (int64_t i = 0; i < b->B * 24; i++) {
        const int32_t d = b->documents[i], at = b->positions[i];
        tokens += d >= 0;
        valid += b->targets[i] >= 0;
        if (d < 0) {
          padded++;
          CHECK(b->tokens[i] == 0 && b->targets[i] == -1 && at == 0);
          continue;
        }
        const bool last = at == corpus_length(f.corpus, d) - 1;
        int32_t want[2] = {-1, -1};
        CHECK_OK(corpus_tokens(f.corpus, d, at, last ? 1 : 2, want));
        CHECK(b->tokens[i] == want[0] && b->targets[i] == want[1]);
        cut += at == 11 && !last;
        if (i % 24 > 0 && b->documents[i - 1] != d) {
          two++;
          CHECK(at == 0);
        }
      }
      CHECK(tokens == b->n_tokens && valid == b->n_valid);
    }
  CHECK(padded > 0 && cut > 0 && two > 0);
  teardown(&f);
}

static void valid_tokens_are_uneven_over_micro_batches_and_ranks(void)
{
  struct run_config c = config();
  c.global_batch = 12;
  struct fixture f;
  if (!setup(&f, c)) return;
  int64_t least = 1000, most = 0;
  int uneven = 0;
  for (int64_t step = 0; step < 4; step++) {
    int64_t of_rank[2] = {0, 0};
    for (int64_t m = 0; m < 6; m++) {
      CHECK_OK(data_plan_batch(f.plan, step, m, &f.batch));
      least = f.batch.n_valid < least ? f.batch.n_valid : least;
      most = f.batch.n_valid > most ? f.batch.n_valid : most;
      of_rank[m / 3] += f.batch.n_valid;
    }
    uneven += of_rank[0] * 10 > of_rank[1] * 11 || of_rank[1] * 10 > of_rank[0] * 11;
  }
  CHECK(most > 3 * least);
  CHECK(uneven >= 3); /* of 4 steps, by more than a tenth */
  teardown(&f);
}

static void evaluation_has_fixed_documents_of_its_own(void)
{
  static const int again[8] = {0, 1, 2, 0, 0, 1, 2, 0}; /* three held out; six sequences a batch begin the round anew */
  struct fixture f;
  int32_t taken[8];
  if (!setup(&f, config())) return;
  for (int i = 0; i < 4; i++) {
    CHECK_OK(data_plan_batch(f.plan, -1 - i / 2, i % 2, &f.batch));
    taken[2 * i] = f.batch.documents[0];
    taken[2 * i + 1] = f.batch.documents[24];
  }
  for (int i = 0; i < 8; i++) CHECK(taken[i] % 16 == 15 && taken[i] == taken[again[i]]);
  CHECK(taken[0] != taken[1] && taken[1] != taken[2] && taken[2] != taken[0]);
  teardown(&f);
}

static void evaluation_is_spread_over_a_chunked_corpus(void)
{
  struct run_config c = config();
  c.documents = 400;
  c.policy = POLICY_CHUNKED;
  c.sequence = 6;
  struct fixture f;
  if (!setup(&f, c)) return;
  int seen[400] = {0}, distinct = 0;
  for (int64_t m = 0; m < 3; m++) {
    CHECK_OK(data_plan_batch(f.plan, -1, m, &f.batch));
    for (int b = 0; b < 2; b++) distinct += seen[f.batch.documents[b * 6]]++ == 0;
  }
  CHECK(distinct >= 4); /* six chunks of 25 documents */
  teardown(&f);
}

static void a_hash_tells_any_change(void)
{
  struct fixture f;
  if (!setup(&f, config())) return;
  CHECK_OK(data_plan_batch(f.plan, 0, 0, &f.batch));
  const uint64_t hash = batch_hash(&f.batch);
  CHECK(hash == batch_hash(&f.batch));
  int32_t *const arrays[] = {f.batch.tokens, f.batch.targets, f.batch.positions, f.batch.documents};
  for (int a = 0; a < 4; a++) {
    arrays[a][47] ^= 1;
    CHECK(hash != batch_hash(&f.batch));
    arrays[a][47] ^= 1;
  }
  CHECK(hash == batch_hash(&f.batch));
  teardown(&f);
}

static void impossible_plans_are_refused(void)
{
  struct run_config c = config();
  struct corpus *corpus;
  struct data_plan *plan;
  if (!CHECK_OK(corpus_open(&c, &corpus))) return;
  c.documents_each = 25;
  CHECK_ERR(data_plan_create(&c, corpus, &plan), ERR_CONFIG);
  CHECK_TEXT_HAS(err_text(), "documents_each: 25");
  c = config();
  c.steps = INT32_MAX;
  CHECK_ERR(data_plan_create(&c, corpus, &plan), ERR_CONFIG);
  CHECK_TEXT_HAS(err_text(), "steps: 2147483647");
  CHECK(plan == NULL);
  c = config();
  CHECK_OK(data_plan_create(&c, corpus, &plan));
  struct batch small;
  CHECK_OK(batch_create(1, 24, &small));
  CHECK_ERR(data_plan_batch(plan, 0, 0, &small), ERR_ARG);
  batch_destroy(&small);
  data_plan_destroy(plan);
  corpus_close(corpus);
}

/* --- batches from a file --------------------------------------------------------- */

static int32_t arrays[4][12 * 24];

static enum err write_file(const char *path, int64_t rows, int n)
{
  static const char *const names[] = {"tokens", "targets", "positions", "documents"};
  struct safetensor list[4];
  for (int i = 0; i < n; i++) list[i] = (struct safetensor){names[i], tensor_at(arrays[i], DTYPE_I32, rows, 24), 2};
  return safetensors_write(path, list, n, NULL);
}

static void fill_arrays(void)
{
  for (int i = 0; i < 12 * 24; i++) {
    arrays[0][i] = i % 131;
    arrays[1][i] = i % 24 == 23 ? -1 : (i + 1) % 131;
    arrays[2][i] = i % 24;
    arrays[3][i] = i / 24;
  }
}

static void a_batch_file_is_taken_as_it_is_and_checked(void)
{
  struct run_config c = config();
  snprintf(c.batch_file, sizeof c.batch_file, "/tmp/data_plan_test.%d.safetensors", (int)getpid());
  struct data_plan *plan;
  struct batch b;
  fill_arrays();
  CHECK_OK(write_file(c.batch_file, 12, 4));
  CHECK_OK(batch_create(2, 24, &b));
  if (CHECK_OK(data_plan_create(&c, NULL, &plan))) {
    CHECK(data_plan_epoch(plan) == 12);
    CHECK_OK(data_plan_batch(plan, 3, 1, &b)); /* two steps in the file: step 3 is its second */
    CHECK_SAME_BITS(b.tokens, arrays[0] + 8 * 24, 48 * sizeof(int32_t));
    CHECK_SAME_BITS(b.targets, arrays[1] + 8 * 24, 48 * sizeof(int32_t));
    CHECK(b.samples[0] == 20 && b.samples[1] == 21 && b.n_valid == 46 && b.n_tokens == 48);
    data_plan_destroy(plan);
  }
  arrays[1][30] = 131;
  CHECK_OK(write_file(c.batch_file, 12, 4));
  CHECK_ERR(data_plan_create(&c, NULL, &plan), ERR_FORMAT);
  CHECK_TEXT_HAS(err_text(), "'targets' row 1 column 6 is 131; valid: -1..130");
  fill_arrays();
  CHECK_OK(write_file(c.batch_file, 7, 4));
  CHECK_ERR(data_plan_create(&c, NULL, &plan), ERR_FORMAT);
  CHECK_TEXT_HAS(err_text(), "multiple of global_batch 6");
  CHECK_OK(write_file(c.batch_file, 6, 3));
  CHECK_ERR(data_plan_create(&c, NULL, &plan), ERR_FORMAT);
  CHECK_TEXT_HAS(err_text(), "no tensor 'documents'");
  CHECK(remove(c.batch_file) == 0);
  CHECK_ERR(data_plan_create(&c, NULL, &plan), ERR_IO);
  CHECK(plan == NULL);
  batch_destroy(&b);
}

static void creating_survives_any_failed_allocation(void)
{
  static const int64_t policies[] = {POLICY_PADDED, POLICY_CHUNKED, POLICY_BUCKETED, POLICY_PACKED, POLICY_PACKED, POLICY_BALANCED};
  for (int i = 0; i < 6; i++) {
    struct run_config c = config();
    c.policy = policies[i];
    c.packing = i == 4 ? PACKING_FIRST_FIT : PACKING_BEST_FIT;
    c.sequence = 7;
    c.deal = 1;
    struct corpus *corpus;
    if (!CHECK_OK(corpus_open(&c, &corpus))) return;
    struct data_plan *plan = NULL;
    long n = 0;
    do {
      check_fail_allocation(++n);
      const enum err e = data_plan_create(&c, corpus, &plan);
      if (check_allocation_failed()) CHECK(e == ERR_MEMORY && plan == NULL);
      else CHECK_OK(e);
    } while (plan == NULL && n < 100);
    check_fail_allocation(0);
    CHECK(n > (i == 0 ? 3 : 5));
    data_plan_destroy(plan);
    corpus_close(corpus);
  }
}

int main(void)
{
  static const struct test tests[] = {
    TEST(an_epoch_takes_every_document_once),
    TEST(order_differs_by_epoch_and_by_seed),
    TEST(a_sequence_does_not_depend_on_the_cut_into_micro_batches),
    TEST(targets_positions_and_padding_are_as_stated),
    TEST(valid_tokens_are_uneven_over_micro_batches_and_ranks),
    TEST(evaluation_has_fixed_documents_of_its_own),
    TEST(evaluation_is_spread_over_a_chunked_corpus),
    TEST(a_hash_tells_any_change),
    TEST(impossible_plans_are_refused),
    TEST(a_batch_file_is_taken_as_it_is_and_checked),
    TEST(creating_survives_any_failed_allocation),
  };
  return test_main("data_plan", tests, sizeof tests / sizeof *tests);
}
