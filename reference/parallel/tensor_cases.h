/* tensor_cases.h - the edges of tensor parallelism on 2, 3 and 4 ranks: with and without shards, by cpu and lazy, or cuda. */
#include "comm/comm_fixture.h"
#include "ops/ops.h"
#include "parallel/tensor.h"

/* --- what a case runs under ------------------------------------------------------------------ */

enum { FORMS = 16 };
struct form {
  enum dev_kind kind;
  enum dtype type;
  bool ordered, sequence;
};
static struct form form_of(int i)
{
  return (struct form){i & 1 && !mirror_cuda() ? DEV_LAZY : DEV_CPU, i & 2 ? DTYPE_F32 : DTYPE_F64, (i & 4) != 0, (i & 8) != 0};
}

/* The whole world is one tensor group, on the compute stream. */
struct play {
  struct bench b;
  struct tp tp;
  struct form form;
};
static void open_play(struct play *p, struct form f)
{
  int ranks[64];
  *p = (struct play){.form = f};
  bench_open(&p->b, f.kind, 5);
  everyone(ranks);
  const struct comm_config config = {.name = "tp", .reduce = f.ordered ? COMM_ORDERED : COMM_FAST};
  CHECK_OK(test_comm(world, p->b.compute, ranks, comm_size(world), 1 << 14, &config, &p->tp.comm));
  p->tp.size = comm_size(world);
  p->tp.rank = comm_rank(world);
  p->tp.sequence = f.sequence;
  comm_trace_restart(world);
}
static void close_play(struct play *p)
{
  comm_destroy(p->tp.comm);
  bench_close(&p->b);
}

/* The only calls since open_play(): n of this kind, each of `count` elements in all its parts. */
static bool called(int64_t n, const char *op, int64_t count)
{
  int64_t queued;
  const struct comm_call *calls = comm_trace(world, &queued);
  bool ok = queued == n;
  for (int64_t i = 0; i < queued && ok; i++)
    ok = strcmp(calls[i].op, op) == 0 && calls[i].count == count && strcmp(calls[i].stream, "compute") == 0;
  if (!ok)
    fprintf(stderr, "rank %d: %d calls, the first %s\n", comm_rank(world), (int)queued, queued ? calls[0].op : "none");
  return ok;
}

/* Rows of the stream: N = 3 n divides on every number of ranks. */
static const int64_t shapes[][2] = {{1, 1}, {3, 7}, {5, 33}};
enum { SHAPES = 3 };

/* `part` is this rank's shard of full with sequence, either a tensor of its own or those rows; else full itself. */
static struct tensor part_of(struct play *p, const struct tensor *full, bool inside)
{
  if (!p->form.sequence) return *full;
  const int64_t rows = tp_rows(&p->tp, full->rows);
  return inside ? tensor_part(full, tp_row0(&p->tp, full->rows), rows, 0, full->cols)
                : matrix(&p->b, full->type, rows, full->cols, false);
}
static void free_part(struct play *p, const struct tensor *part, bool inside)
{
  if (p->form.sequence && !inside) mirror_free(p->b.d, part->at);
}

/* Element i of full after it was summed, where the whole is `at`. */
static bool summed(const struct play *p, const struct tensor *t, int64_t at)
{
  for (int64_t i = 0; i < tensor_count(t); i++)
    if (!reduced(t, i, at + i, COMM_SUM, p->form.ordered)) return false;
  return true;
}
static bool own(const struct tensor *t, int64_t at)
{
  for (int64_t i = 0; i < tensor_count(t); i++)
    if (element_get(t, i) != value(comm_rank(world), at + i, t->type)) return false;
  return true;
}

/* --- the edges -------------------------------------------------------------------------------- */

static void shards_are_the_rows_in_rank_order(void)
{
  for (int64_t N = comm_size(world); N <= 12 * comm_size(world); N += comm_size(world)) {
    int64_t next = 0;
    for (int rank = 0; rank < comm_size(world); rank++) {
      struct comm *any = (struct comm *)&next; /* present; not looked into */
      const struct tp cut = {any, comm_size(world), rank, true}, whole = {any, comm_size(world), rank, false};
      const struct tp one = {NULL, 1, 0, true};
      CHECK(tp_row0(&cut, N) == next && tp_rows(&cut, N) == N / comm_size(world));
      CHECK(tp_row0(&whole, N) == 0 && tp_rows(&whole, N) == N);
      CHECK(tp_row0(&one, N) == 0 && tp_rows(&one, N) == N);
      next += tp_rows(&cut, N);
    }
    CHECK(next == N);
  }
}

/* Work before and after on the same stream needs no event. */
static void gather_gives_every_rank_all_rows(void)
{
  for (int i = 0; i < FORMS; i++)
    for (int s = 0; s < SHAPES; s++)
      for (int inside = 0; inside < 2; inside++) {
        struct play p;
        open_play(&p, form_of(i));
        const int64_t n = shapes[s][0], C = shapes[s][1], N = n * p.tp.size;
        struct tensor full = matrix(&p.b, p.form.type, N, C, false), part = part_of(&p, &full, inside);
        struct tensor from = matrix(&p.b, p.form.type, part.rows, C, true), out = matrix(&p.b, p.form.type, N, C, true);
        fill(&from, p.form.sequence ? p.tp.rank : 9, 0);
        CHECK_OK(op_copy(p.b.compute, &part, &from));
        CHECK_OK(tp_gather(&p.tp, &full, &part, TP_EDGE_MLP));
        CHECK_OK(op_copy(p.b.compute, &out, &full));
        CHECK_OK(mirror_sync(p.b.d));
        for (int64_t k = 0; k < N * C; k++)
          CHECK(element_get(&out, k) ==
                (p.form.sequence ? value((int)(k / (n * C)), k % (n * C), p.form.type) : value(9, k, p.form.type)));
        CHECK(called(p.form.sequence, "allgather", N * C));
        free_part(&p, &part, inside);
        mirror_free(p.b.d, from.at);
        mirror_free(p.b.d, out.at);
        mirror_free(p.b.d, full.at);
        close_play(&p);
      }
}

static void reduce_gives_each_rank_the_sum_of_its_rows(void)
{
  for (int i = 0; i < FORMS; i++)
    for (int s = 0; s < SHAPES; s++)
      for (int inside = 0; inside < 2; inside++) {
        struct play p;
        open_play(&p, form_of(i));
        const int64_t C = shapes[s][1], N = shapes[s][0] * p.tp.size;
        struct tensor full = matrix(&p.b, p.form.type, N, C, false), part = part_of(&p, &full, inside);
        struct tensor from = matrix(&p.b, p.form.type, N, C, false),
                      out = matrix(&p.b, p.form.type, part.rows, C, false);
        fill(&from, p.tp.rank, 0);
        CHECK_OK(op_copy(p.b.compute, &full, &from));
        CHECK_OK(tp_reduce(&p.tp, &part, &full, TP_EDGE_ATTENTION));
        CHECK_OK(op_copy(p.b.compute, &out, &part));
        CHECK_OK(mirror_sync(p.b.d));
        CHECK(summed(&p, &out, C * tp_row0(&p.tp, N)));
        if (p.form.sequence && !inside) CHECK(own(&full, 0)); /* stays as it is */
        CHECK(called(1, p.form.sequence ? "reduce_scatter" : "allreduce", N * C));
        free_part(&p, &part, inside);
        mirror_free(p.b.d, from.at);
        mirror_free(p.b.d, out.at);
        mirror_free(p.b.d, full.at);
        close_play(&p);
      }
}

/* Rank r has (r + 1) (i + 1) at element i: the sum is n (n + 1) / 2 (i + 1), exact in every order. */
static void sums_are_those_of_the_formula(void)
{
  for (int i = 0; i < FORMS; i++)
    for (int edge = 0; edge < TP_EDGES; edge++) {
      struct play p;
      open_play(&p, form_of(i));
      const int n = p.tp.size;
      const int64_t C = 3, N = 2 * n;
      struct tensor full = matrix(&p.b, p.form.type, N, C, false), part = part_of(&p, &full, false);
      for (int64_t k = 0; k < N * C; k++) element_set(&full, k, (double)((p.tp.rank + 1) * (k + 1)));
      mirror_push(full.at);
      CHECK_OK(tp_reduce(&p.tp, &part, &full, (enum tp_edge)edge));
      CHECK_OK(mirror_sync(p.b.d));
      for (int64_t k = 0; k < tensor_count(&part); k++)
        CHECK(element_get(&part, k) == (double)(n * (n + 1) / 2 * (C * tp_row0(&p.tp, N) + k + 1)));
      free_part(&p, &part, false);
      mirror_free(p.b.d, full.at);
      close_play(&p);
    }
}

/* Small integers, so that products and sums are exact. */
static double small(int r, int64_t i)
{
  return (double)(int)(rng_u32((struct rng_key){3, RNG_TEST, (uint32_t)r}, (uint64_t)i) % 17) - 8;
}
static double inner(const struct tensor *a, const struct tensor *b)
{
  double sum = 0;
  for (int64_t i = 0; i < tensor_count(a); i++) sum += element_get(a, i) * element_get(b, i);
  return sum;
}

/* Each is the other's transpose: <gather x, y> = <x, reduce y>, over all ranks.  Without shards x is one tensor that
 * all ranks hold, and counts once. */
static void gather_and_reduce_are_conjugate(void)
{
  for (int i = 0; i < FORMS; i++) {
    struct play p;
    open_play(&p, form_of(i));
    const int64_t C = 5, N = 4 * p.tp.size;
    struct tensor wide = matrix(&p.b, p.form.type, N, C, false), x = part_of(&p, &wide, false);
    struct tensor y = matrix(&p.b, p.form.type, N, C, false), back = part_of(&p, &y, false);
    struct tensor sides = matrix(&p.b, DTYPE_F64, 1, 2, false);
    for (int64_t k = 0; k < tensor_count(&x); k++) element_set(&x, k, small(p.form.sequence ? p.tp.rank : 99, k));
    for (int64_t k = 0; k < N * C; k++) element_set(&y, k, small(10 + p.tp.rank, k));
    mirror_push(x.at);
    mirror_push(y.at);
    CHECK_OK(tp_gather(&p.tp, &wide, &x, TP_EDGE_HEAD));
    CHECK_OK(mirror_sync(p.b.d));
    element_set(&sides, 0, inner(&wide, &y));
    mirror_push(sides.at);
    CHECK_OK(tp_reduce(&p.tp, &back, &y, TP_EDGE_HEAD_BACKWARD));
    CHECK_OK(mirror_sync(p.b.d));
    element_set(&sides, 1, p.form.sequence || p.tp.rank == 0 ? inner(&x, &back) : 0);
    mirror_push(sides.at);
    CHECK_OK(comm_allreduce(p.tp.comm, &sides, COMM_SUM));
    CHECK_OK(mirror_sync(p.b.d));
    CHECK(element_get(&sides, 0) == element_get(&sides, 1) && element_get(&sides, 0) != 0);
    free_part(&p, &x, false);
    free_part(&p, &back, false);
    mirror_free(p.b.d, wide.at);
    mirror_free(p.b.d, y.at);
    mirror_free(p.b.d, sides.at);
    close_play(&p);
  }
}

/* Of a norm, say: gain and bias side by side. */
static void gradients_of_whole_rows_are_summed_under_shards_alone(void)
{
  for (int i = 0; i < FORMS; i++) {
    struct play p;
    open_play(&p, form_of(i));
    struct tensor g = matrix(&p.b, p.form.type, 1, 26, false);
    fill(&g, p.tp.rank, 0);
    CHECK_OK(tp_sum_gradient(&p.tp, &g));
    CHECK_OK(mirror_sync(p.b.d));
    CHECK(p.form.sequence ? summed(&p, &g, 0) : own(&g, 0));
    CHECK(called(p.form.sequence, "allreduce", 26));
    mirror_free(p.b.d, g.at);
    close_play(&p);
  }
}

/* Without a comm, with one of this rank alone, and as a struct of zeros. */
static void a_group_of_one_does_nothing(void)
{
  for (int with_comm = 0; with_comm < 3; with_comm++)
    for (int sequence = 0; sequence < 2; sequence++) {
      struct bench b;
      const int me = comm_rank(world);
      const struct comm_config config = {.name = "tp"};
      struct tp tp = {NULL, with_comm < 2, 0, sequence != 0};
      bench_open(&b, DEV_LAZY, 1);
      if (with_comm == 1) CHECK_OK(test_comm(world, b.compute, &me, 1, 0, &config, &tp.comm));
      comm_trace_restart(world);
      struct tensor t = matrix(&b, DTYPE_F32, 3, 7, false);
      fill(&t, me, 0);
      for (int edge = 0; edge < TP_EDGES; edge++) {
        CHECK_OK(tp_gather(&tp, &t, &t, (enum tp_edge)edge));
        CHECK_OK(tp_reduce(&tp, &t, &t, (enum tp_edge)edge));
      }
      CHECK_OK(tp_sum_gradient(&tp, &t));
      CHECK_OK(mirror_sync(b.d));
      CHECK(own(&t, 0) && called(0, "", 0));
      mirror_free(b.d, t.at);
      comm_destroy(tp.comm);
      bench_close(&b);
    }
}

static void misuse_is_refused(void)
{
  for (int sequence = 0; sequence < 2; sequence++) {
    struct play p;
    open_play(&p, (struct form){DEV_CPU, DTYPE_F64, true, sequence != 0});
    const int64_t N = 2 * p.tp.size;
    struct tensor full = matrix(&p.b, DTYPE_F64, N, 4, false), other = matrix(&p.b, DTYPE_F64, N, 4, false);
    const struct tensor right = sequence ? tensor_part(&other, 0, 2, 0, 4) : full;
    struct tensor wrong[5] = {right, right, right, right, right};
    wrong[0].rows++;
    wrong[1].rows--;
    wrong[2].cols--;
    wrong[3].type = DTYPE_F32;
    wrong[4] = sequence ? full : other;
    for (int i = 0; i < 5; i++) {
      CHECK_ERR(tp_gather(&p.tp, &full, &wrong[i], TP_EDGE_MLP), ERR_ARG);
      CHECK_TEXT_HAS(err_text(), "mlp of");
      CHECK_ERR(tp_reduce(&p.tp, &wrong[i], &full, TP_EDGE_HEAD_BACKWARD), ERR_ARG);
      CHECK_TEXT_HAS(err_text(), "head's backward of");
    }
    struct tensor gap = right;
    gap.stride = 2 * right.stride;
    if (!sequence) CHECK_ERR(tp_gather(&p.tp, &full, &gap, TP_EDGE_MLP), ERR_ARG);
    struct tensor uneven = tensor_part(&full, 0, N - 1, 0, 4);
    if (sequence) CHECK_ERR(tp_gather(&p.tp, &uneven, &right, TP_EDGE_MLP), ERR_ARG);
    CHECK(called(0, "", 0));
    CHECK_OK(mirror_sync(p.b.d));
    mirror_free(p.b.d, full.at);
    mirror_free(p.b.d, other.at);
    close_play(&p);
  }
}

/* --- planted faults: rows that keep this rank's term, and only where the fault is ------------------ */

/* What a reduction over 10 rows a shard leaves: how many rows from the first are this rank's own terms, and the sum
 * after; -1 if neither is so.  `queued` gets the collectives of it. */
static int64_t rows_kept(struct play *p, enum tp_edge edge, int64_t *queued)
{
  const int64_t C = 3, N = 10 * (p->form.sequence ? p->tp.size : 1);
  struct dev_usage before, after;
  struct tensor full = matrix(&p->b, p->form.type, N, C, false), part = part_of(p, &full, false);
  const int64_t at = C * tp_row0(&p->tp, N);
  int64_t kept = 0;
  fill(&full, p->tp.rank, 0);
  comm_trace_restart(world);
  dev_usage(p->b.d, &before);
  CHECK_OK(tp_reduce(&p->tp, &part, &full, edge));
  CHECK_OK(mirror_sync(p->b.d));
  dev_usage(p->b.d, &after);
  CHECK(after.now[DEV_OTHER] == before.now[DEV_OTHER]);
  comm_trace(world, queued);
  for (struct tensor row; kept < part.rows; kept++) {
    row = tensor_part(&part, kept, 1, 0, C);
    if (!own(&row, at + kept * C)) break;
  }
  const struct tensor rest = tensor_part(&part, kept, part.rows - kept, 0, C);
  if (!summed(p, &rest, at + kept * C)) kept = -1;
  free_part(p, &part, false);
  mirror_free(p->b.d, full.at);
  return kept;
}

static const struct {
  double strength;
  int64_t rows; /* of 10 */
} strengths[] = {{1, 10}, {30, 10}, {0.25, 3}, {1e-9, 1}};

static void a_missing_reduction_keeps_own_terms_at_one_edge(void)
{
  for (int i = 0; i < FORMS; i++)
    for (int s = 0; s < 4; s++) {
      struct play p;
      int64_t queued;
      open_play(&p, form_of(i));
      CHECK_OK(fault_plant("tp-missing-bwd-allreduce-at-boundary", strengths[s].strength, 0));
      for (int edge = 0; edge < TP_EDGES; edge++) {
        const bool here = edge == TP_EDGE_HEAD_BACKWARD;
        CHECK(rows_kept(&p, (enum tp_edge)edge, &queued) == (here ? strengths[s].rows : 0));
        CHECK(queued == !(here && strengths[s].rows == 10));
      }
      CHECK_OK(fault_plant("none", 1, 0));
      close_play(&p);
    }
}

/* The reduction takes place, on a copy, and the copy is given back. */
static void a_reduced_copy_keeps_own_terms_at_all_backward_edges(void)
{
  for (int i = 0; i < FORMS; i++)
    for (int s = 0; s < 4; s++) {
      struct play p;
      int64_t queued;
      open_play(&p, form_of(i));
      CHECK_OK(fault_plant("tp-noncontiguous-inplace-allreduce", strengths[s].strength, 0));
      for (int edge = 0; edge < TP_EDGES; edge++) {
        const bool here = edge >= TP_EDGE_EMBEDDING_BACKWARD && !p.form.sequence;
        CHECK(rows_kept(&p, (enum tp_edge)edge, &queued) == (here ? strengths[s].rows : 0));
        CHECK(queued == (here && strengths[s].rows < 10 ? 2 : 1));
      }
      CHECK_OK(fault_plant("none", 1, 0));
      close_play(&p);
    }
}

int main(void)
{
  static const struct test tests[] = {
      TEST(shards_are_the_rows_in_rank_order),
      TEST(gather_gives_every_rank_all_rows),
      TEST(reduce_gives_each_rank_the_sum_of_its_rows),
      TEST(sums_are_those_of_the_formula),
      TEST(gather_and_reduce_are_conjugate),
      TEST(gradients_of_whole_rows_are_summed_under_shards_alone),
      TEST(a_group_of_one_does_nothing),
      TEST(misuse_is_refused),
      TEST(a_missing_reduction_keeps_own_terms_at_one_edge),
      TEST(a_reduced_copy_keeps_own_terms_at_all_backward_edges),
  };
  return run_all("tensor", tests, sizeof tests / sizeof *tests);
}
