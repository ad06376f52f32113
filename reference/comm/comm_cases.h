/* comm_cases.h - the contract of collectives, on 1, 2, 3 and 4 ranks, by cpu and lazy, or cuda. */
#include "comm/comm_fixture.h"

static const enum dev_kind kinds[] = {DEV_CPU, DEV_LAZY};
static const enum dtype types[] = {DTYPE_F64, DTYPE_F32, DTYPE_BF16, DTYPE_F16, DTYPE_I32, DTYPE_I64};
static const int64_t shapes[][2] = {{0, 5}, {4, 0}, {1, 1}, {1, 2}, {3, 7}, {5, 13}, {1, 1009}};
enum { N_TYPES = 4, N_SHAPES = 7 };

/* What a case runs under: all of these for each collective. */
struct way {
  enum dev_kind kind;
  struct comm_config config;
  size_t scratch;
  bool strided;
};
static int ways(struct way *out)
{
  int n = 0;
  for (int k = 0; k < mirror_kinds(); k++)
    for (int ordered = 0; ordered < 2; ordered++)
      for (int strided = 0; strided < 2; strided++)
        for (int piece = 0; piece <= 40; piece += 40)
          out[n++] = (struct way){kinds[k],
                                  {.name = "test", .reduce = ordered ? COMM_ORDERED : COMM_FAST, .piece = piece},
                                  strided ? (size_t)64 * 1024 : 0,
                                  strided};
  return n;
}
enum { WAYS = 16 };

static bool say(const struct way *w, const char *what, enum dtype type, const int64_t shape[2], bool ok)
{
  if (!ok)
    fprintf(stderr, "rank %d: %s on %s, %s, %s, piece %d, %s [%d, %d]\n", comm_rank(world), what, kind_name(w->kind),
            w->config.reduce == COMM_ORDERED ? "ordered" : "fast", w->strided ? "strided" : "contiguous", (int)w->config.piece,
            dtype_name(type), (int)shape[0], (int)shape[1]);
  return ok;
}

/* Runs `one` for every way, type and shape. */
typedef bool (*case_run)(struct bench *b, struct comm *c, const struct way *w, enum dtype type, const int64_t shape[2]);
static void for_all(const char *what, case_run one)
{
  struct way all[WAYS];
  const int n = ways(all);
  for (int i = 0; i < n; i++) {
    struct bench b;
    bench_open(&b, all[i].kind, (uint64_t)i);
    struct comm *c = comm_of(&b, all[i].scratch, &all[i].config);
    for (int t = 0; t < N_TYPES; t++)
      for (int s = 0; s < N_SHAPES; s++) {
        if (mirror_cuda() && (i + t + s) % 2 != 0) continue; /* each wait is a long one there: half of them, none left out everywhere */
        CHECK(say(&all[i], what, types[t], shapes[s], one(&b, c, &all[i], types[t], shapes[s])));
      }
    comm_destroy(c);
    bench_close(&b);
  }
}

static bool allreduce_case(struct bench *b, struct comm *c, const struct way *w, enum dtype type, const int64_t shape[2])
{
  bool ok = true;
  for (int op = COMM_SUM; op <= COMM_MAX; op++) {
    struct tensor t = matrix(b, type, shape[0], shape[1], w->strided);
    fill(&t, comm_rank(world), 0);
    ok = CHECK_OK(comm_allreduce(c, &t, (enum comm_op)op)) && CHECK_OK(mirror_sync(b->d)) && ok;
    for (int64_t i = 0; i < tensor_count(&t); i++)
      ok = ok && reduced(&t, i, i, (enum comm_op)op, w->config.reduce == COMM_ORDERED);
    ok = ok && guards_intact(&t);
    mirror_free(b->d, t.at);
  }
  return ok;
}
static void allreduce_gives_every_rank_the_reduction(void) { for_all("allreduce", allreduce_case); }

/* mine apart from all, and mine as this rank's part of all. */
static bool reduce_scatter_case(struct bench *b, struct comm *c, const struct way *w, enum dtype type, const int64_t shape[2])
{
  bool ok = true;
  const int n = comm_size(world), rank = comm_rank(world);
  for (int in_place = 0; in_place < 2; in_place++) {
    const bool packs = in_place && n > 1 && w->scratch == 0; /* contiguous ways have no scratch for the alias */
    struct tensor all = matrix(b, type, shape[0] * n, shape[1], w->strided), apart = matrix(b, type, shape[0], shape[1], w->strided);
    struct tensor mine = in_place ? tensor_part(&all, shape[0] * rank, shape[0], 0, shape[1]) : apart;
    fill(&all, rank, 0);
    const enum err e = comm_reduce_scatter(c, &mine, &all, COMM_SUM);
    if (!packs || e == ERR_OK) {
      ok = CHECK_OK(e) && CHECK_OK(mirror_sync(b->d)) && ok;
      for (int64_t i = 0; i < tensor_count(&mine); i++)
        ok = ok && reduced(&mine, i, tensor_count(&mine) * rank + i, COMM_SUM, w->config.reduce == COMM_ORDERED);
      ok = ok && guards_intact(&all) && guards_intact(&apart);
    } else {
      ok = CHECK_ERR(e, ERR_ARG) && ok;
    }
    mirror_free(b->d, apart.at);
    mirror_free(b->d, all.at);
  }
  return ok;
}
static void reduce_scatter_gives_each_rank_its_part(void) { for_all("reduce_scatter", reduce_scatter_case); }

static bool allgather_case(struct bench *b, struct comm *c, const struct way *w, enum dtype type, const int64_t shape[2])
{
  bool ok = true;
  const int n = comm_size(world), rank = comm_rank(world);
  for (int in_place = 0; in_place < 2; in_place++) {
    struct tensor all = matrix(b, type, shape[0] * n, shape[1], w->strided), apart = matrix(b, type, shape[0], shape[1], w->strided);
    struct tensor mine = in_place ? tensor_part(&all, shape[0] * rank, shape[0], 0, shape[1]) : apart;
    fill(&mine, rank, 0);
    const enum err e = comm_allgather(c, &all, &mine);
    if (e == ERR_ARG && w->config.piece > 0 && w->scratch == 0) { /* pieces of parts are packed: refused without scratch */
      CHECK_TEXT_HAS(err_text(), "scratch");
    } else {
      ok = CHECK_OK(e) && CHECK_OK(mirror_sync(b->d)) && ok;
      for (int64_t i = 0; i < tensor_count(&all) && ok; i++)
        ok = element_get(&all, i) == value((int)(i / tensor_count(&mine)), i % tensor_count(&mine), type);
      ok = ok && guards_intact(&all) && guards_intact(&apart);
    }
    mirror_free(b->d, apart.at);
    mirror_free(b->d, all.at);
  }
  return ok;
}
static void allgather_collects_the_parts_in_rank_order(void) { for_all("allgather", allgather_case); }

/* The root's view may be strided while the others' is not. */
static bool broadcast_case(struct bench *b, struct comm *c, const struct way *w, enum dtype type, const int64_t shape[2])
{
  bool ok = true;
  for (int root = 0; root < comm_size(world); root++) {
    struct tensor t = matrix(b, type, shape[0], shape[1], w->strided && root == comm_rank(world));
    if (root == comm_rank(world)) fill(&t, root, 0);
    ok = CHECK_OK(comm_broadcast(c, &t, root)) && CHECK_OK(mirror_sync(b->d)) && ok;
    for (int64_t i = 0; i < tensor_count(&t); i++) ok = ok && element_get(&t, i) == value(root, i, type);
    ok = ok && guards_intact(&t);
    mirror_free(b->d, t.at);
  }
  return ok;
}
/* Without scratch only what goes straight to MPI works: mine right behind all is not an alias. */
static void parts_that_touch_need_no_scratch(void)
{
  struct bench b;
  bench_open(&b, DEV_CPU, 0);
  const struct comm_config config = {.name = "test"};
  struct comm *c = comm_of(&b, 0, &config);
  const int n = comm_size(world), rank = comm_rank(world);
  struct tensor whole = matrix(&b, DTYPE_F64, 2 * n + 4, 50, false);
  const struct tensor before = tensor_part(&whole, 0, 2, 0, 50), all = tensor_part(&whole, 2, 2 * n, 0, 50),
                      behind = tensor_part(&whole, 2 + 2 * n, 2, 0, 50);
  fill(&all, rank, 0);
  CHECK_OK(comm_reduce_scatter(c, &before, &all, COMM_SUM));
  CHECK_OK(comm_reduce_scatter(c, &behind, &all, COMM_SUM));
  CHECK_OK(mirror_sync(b.d));
  CHECK_SAME_BITS(mirror_of(before.at), mirror_of(behind.at), 100 * sizeof(double));
  for (int64_t i = 0; i < 100; i++) CHECK(reduced(&before, i, 100 * rank + i, COMM_SUM, false));
  mirror_free(b.d, whole.at);
  comm_destroy(c);
  bench_close(&b);
}

static void broadcast_gives_every_rank_the_roots(void) { for_all("broadcast", broadcast_case); }

/* Everyone sends to the next and receives from the one before: only a group can, when sends
 * complete only once received. */
static bool ring_case(struct bench *b, struct comm *c, const struct way *w, enum dtype type, const int64_t shape[2])
{
  if (comm_size(world) == 1 && w->strided) return true; /* no scratch in a group of one */
  const int n = comm_size(world), rank = comm_rank(world), before = (rank + n - 1) % n;
  struct tensor out = matrix(b, type, shape[0], shape[1], w->strided), in = matrix(b, type, shape[0], shape[1], w->strided);
  fill(&out, rank, 0);
  bool ok = CHECK_OK(comm_group_start(c)) && CHECK_OK(comm_send(c, &out, (rank + 1) % n)) && CHECK_OK(comm_recv(c, &in, before)) &&
            CHECK_OK(comm_group_finish(c)) && CHECK_OK(mirror_sync(b->d));
  for (int64_t i = 0; i < tensor_count(&in); i++) ok = ok && element_get(&in, i) == value(before, i, type);
  ok = ok && guards_intact(&in) && guards_intact(&out);
  mirror_free(b->d, in.at);
  mirror_free(b->d, out.at);
  return ok;
}
static void messages_of_a_group_go_round_a_ring(void) { for_all("ring", ring_case); }

static void a_synchronous_ring_completes_in_a_group(void)
{
  for (int k = 0; k < mirror_kinds(); k++) {
    const struct way w = {kinds[k], {.name = "test", .synchronous = true}, 4096, false};
    struct bench b;
    bench_open(&b, kinds[k], 3);
    struct comm *c = comm_of(&b, w.scratch, &w.config);
    CHECK(ring_case(&b, c, &w, DTYPE_F32, shapes[5]));
    comm_destroy(c);
    bench_close(&b);
  }
}

/* A pipeline's edge: 0 to 1 to 2 ..., each message alone on the stream. */
static void lone_messages_pass_down_a_line(void)
{
  const int n = comm_size(world), rank = comm_rank(world);
  for (int k = 0; k < mirror_kinds(); k++)
    for (int synchronous = 0; synchronous < 2; synchronous++) {
      struct bench b;
      bench_open(&b, kinds[k], 5);
      const struct comm_config config = {.name = "line", .synchronous = synchronous != 0};
      struct comm *c = comm_of(&b, 4096, &config);
      struct tensor t = matrix(&b, DTYPE_F64, 4, 6, true);
      if (rank == 0) fill(&t, 0, 0);
      if (rank > 0) CHECK_OK(comm_recv(c, &t, rank - 1));
      if (rank < n - 1) CHECK_OK(comm_send(c, &t, rank + 1));
      CHECK_OK(mirror_sync(b.d));
      for (int64_t i = 0; i < tensor_count(&t); i++) CHECK(element_get(&t, i) == value(0, i, DTYPE_F64));
      CHECK(guards_intact(&t));
      mirror_free(b.d, t.at);
      comm_destroy(c);
      bench_close(&b);
    }
}

static void bytes_are_moved_and_not_added(void)
{
  struct bench b;
  bench_open(&b, DEV_CPU, 0);
  const struct comm_config config = {.name = "test"};
  struct comm *c = comm_of(&b, 4096, &config);
  struct tensor all = matrix(&b, DTYPE_U8, comm_size(world), 9, true), mine = matrix(&b, DTYPE_U8, 1, 9, false);
  for (int64_t i = 0; i < 9; i++) element_set(&mine, i, 10 * comm_rank(world) + (double)i);
  mirror_push(mine.at);
  CHECK_OK(comm_allgather(c, &all, &mine));
  CHECK_OK(mirror_sync(b.d));
  for (int64_t i = 0; i < tensor_count(&all); i++) CHECK(element_get(&all, i) == (double)(10 * (i / 9) + i % 9));
  CHECK_ERR(comm_allreduce(c, &mine, COMM_SUM), ERR_ARG);
  CHECK_TEXT_HAS(err_text(), dtype_name(DTYPE_U8));
  mirror_free(b.d, mine.at);
  mirror_free(b.d, all.at);
  comm_destroy(c);
  bench_close(&b);
}

/* A view that no memory can have is refused before anything is queued, on every rank alike. */
static void impossible_views_are_refused(void)
{
  static const int64_t impossible[][3] = {{-1, 4, 4}, {4, -1, 4}, {2, 4, 3}}; /* rows, columns, stride */
  struct bench b;
  bench_open(&b, DEV_CPU, 0);
  const struct comm_config config = {.name = "test"};
  struct comm *c = comm_of(&b, 4096, &config);
  struct tensor t = matrix(&b, DTYPE_F64, 4, 4, false);
  for (size_t k = 0; k < sizeof impossible / sizeof *impossible; k++) {
    struct tensor view = t;
    view.rows = impossible[k][0], view.cols = impossible[k][1], view.stride = impossible[k][2];
    CHECK_ERR(comm_allreduce(c, &view, COMM_SUM), ERR_ARG);
    CHECK_TEXT_HAS(err_text(), "view [");
    CHECK_ERR(comm_broadcast(c, &view, 0), ERR_ARG);
  }
  CHECK_OK(dev_sync(b.d));
  mirror_free(b.d, t.at);
  comm_destroy(c);
  bench_close(&b);
}

/* What a trace of time calls the work of a group: by its direction alone, or an exchange. */
static void messages_have_the_name_of_their_direction(void)
{
  const int n = comm_size(world), rank = comm_rank(world);
  if (n < 2) return;
  struct bench b;
  bench_open(&b, DEV_CPU, 0);
  const struct comm_config config = {.name = "test"};
  struct comm *c = comm_of(&b, 4096, &config);
  struct tensor out = matrix(&b, DTYPE_F64, 1, 4, false), in = matrix(&b, DTYPE_F64, 1, 4, false);
  fill(&out, rank, 0);
  CHECK_OK(dev_trace(b.d, 16));
  CHECK_OK(comm_group_start(c));
  CHECK_OK(comm_send(c, &out, (rank + 1) % n));
  CHECK_OK(comm_recv(c, &in, (rank + n - 1) % n));
  CHECK_OK(comm_group_finish(c));
  if (rank == 0) CHECK_OK(comm_send(c, &out, 1));
  if (rank == 1) CHECK_OK(comm_recv(c, &in, 0));
  CHECK_OK(dev_sync(b.d));
  const char *const wanted[] = {"exchange", rank == 0 ? "send" : "recv"};
  const struct dev_interval *rows = NULL;
  int64_t count = 0, lost = 0;
  CHECK_OK(dev_trace_take(b.d, &rows, &count, &lost));
  int messages = 0;
  for (int64_t i = 0; i < count; i++) {
    if (strstr(rows[i].kernel, " host")) continue; /* copies to the host and from it: `transport: staged` */
    CHECK(messages < 2 && strcmp(rows[i].kernel, wanted[messages]) == 0);
    messages++;
  }
  CHECK(lost == 0 && messages == (rank < 2 ? 2 : 1));
  mirror_free(b.d, in.at);
  mirror_free(b.d, out.at);
  comm_destroy(c);
  bench_close(&b);
}

/* One of two messages is longer than its receive: MPI's error is that of the group, whatever became of the other. */
static void a_message_that_does_not_fit_is_an_error(void)
{
  const int n = comm_size(world), rank = comm_rank(world);
  if (n < 2) return;
  struct bench b;
  bench_open(&b, DEV_CPU, 0);
  if (dev_kind_of(b.d) == DEV_CUDA) { /* NCCL defines no such error: whoever waits goes on waiting */
    bench_close(&b);
    return;
  }
  const struct comm_config config = {.name = "test"};
  struct comm *c = comm_of(&b, 4096, &config);
  struct tensor a = matrix(&b, DTYPE_F64, 1, 1, false), long_one = matrix(&b, DTYPE_F64, 1, 8, false);
  const struct tensor four = tensor_part(&long_one, 0, 1, 0, 4);
  CHECK_OK(comm_group_start(c));
  if (rank == 0) CHECK_OK(comm_send(c, &a, 1));
  if (rank == 0) CHECK_OK(comm_send(c, &long_one, 1));
  if (rank == 1) CHECK_OK(comm_recv(c, &four, 0));
  if (rank == 1) CHECK_OK(comm_recv(c, &four, 0));
  CHECK_OK(comm_group_finish(c));
  const enum err e = dev_sync(b.d);
  if (rank == 1) {
    CHECK_ERR(e, ERR_COMM);
    CHECK_TEXT_HAS(err_text(), "runc"); /* "truncated", "truncation" */
  } else {
    CHECK_OK(e);
  }
  mirror_free(b.d, long_one.at);
  mirror_free(b.d, a.at);
  comm_destroy(c);
  bench_close(&b);
}

/* The same sums whatever the scratch, the pieces and the company they travel in. */
static void ordered_sums_do_not_depend_on_pieces(void)
{
  enum { COUNT = 2003 };
  static const int64_t pieces[] = {0, 1, 7, 501, 2003};
  struct bench b;
  bench_open(&b, DEV_CPU, 0);
  for (int p = 0; p < 5; p++) {
    const struct comm_config config = {.name = "test", .reduce = COMM_ORDERED, .piece = p == 1 ? 97 : pieces[p]};
    struct comm *c = comm_of(&b, p == 0 ? 0 : 1 << 14, &config);
    struct tensor t = matrix(&b, DTYPE_F32, 1, COUNT, false);
    fill(&t, comm_rank(world), 0);
    CHECK_OK(comm_allreduce(c, &t, COMM_SUM));
    CHECK_OK(mirror_sync(b.d));
    int wrong = 0;
    for (int64_t i = 0; i < COUNT; i++) wrong += element_get(&t, i) != serial(comm_size(world), i, DTYPE_F32, COMM_SUM);
    CHECK(wrong == 0);
    mirror_free(b.d, t.at);
    comm_destroy(c);
  }
  bench_close(&b);
}

/* Different orders of launch on each rank's two streams would show as a hang or mixed data. */
static void two_comms_run_on_two_streams(void)
{
  enum { CALLS = 40, COUNT = 65 };
  for (int k = 0; k < mirror_kinds(); k++) {
    struct bench b;
    bench_open(&b, kinds[k], 17);
    struct dev_stream *second;
    CHECK_OK(dev_stream_open(b.d, "second", DEV_TRANSFER, &second));
    const struct comm_config config = {.name = "first"}, other = {.name = "second", .reduce = COMM_ORDERED};
    int ranks[64];
    everyone(ranks);
    struct comm *c = comm_of(&b, 4096, &config), *o;
    CHECK_OK(test_comm(world, second, ranks, comm_size(world), 4096, &other, &o));
    struct tensor t[CALLS][2];
    for (int i = 0; i < CALLS; i++)
      for (int s = 0; s < 2; s++) {
        t[i][s] = matrix(&b, DTYPE_F64, 1, COUNT, false);
        fill(&t[i][s], comm_rank(world), i * COUNT);
        CHECK_OK(comm_allreduce(s ? o : c, &t[i][s], COMM_SUM));
      }
    CHECK_OK(mirror_sync(b.d));
    for (int i = 0; i < CALLS; i++)
      for (int s = 0; s < 2; s++) {
        int wrong = 0;
        for (int64_t j = 0; j < COUNT; j++) wrong += !reduced(&t[i][s], j, i * COUNT + j, COMM_SUM, s == 1);
        CHECK(wrong == 0);
        mirror_free(b.d, t[i][s].at);
      }
    comm_destroy(o);
    comm_destroy(c);
    dev_stream_close(second);
    bench_close(&b);
  }
}

static void a_group_of_some_ranks_leaves_the_others_alone(void)
{
  if (comm_size(world) < 3) {
    CHECK(comm_size(world) >= 1);
    return;
  }
  const int ranks[] = {0, 2};
  struct bench b;
  bench_open(&b, DEV_CPU, 0);
  struct comm *c = NULL;
  const struct comm_config config = {.name = "some"};
  if (comm_rank(world) % 2 == 0 && comm_rank(world) <= 2) {
    CHECK_OK(test_comm(world, b.transfer, ranks, 2, 4096, &config, &c));
    CHECK(comm_group_size(c) == 2 && comm_group_rank(c) == comm_rank(world) / 2 && comm_stream(c) == b.transfer);
    struct tensor t = matrix(&b, DTYPE_I32, 1, 1, false);
    element_set(&t, 0, comm_rank(world) + 5);
    mirror_push(t.at);
    CHECK_OK(comm_allreduce(c, &t, COMM_SUM));
    CHECK_OK(comm_barrier(c));
    CHECK_OK(mirror_sync(b.d));
    CHECK(element_get(&t, 0) == 12);
    mirror_free(b.d, t.at);
    comm_destroy(c);
  } else {
    CHECK_ERR(test_comm(world, b.transfer, ranks, 2, 4096, &config, &c), ERR_ARG);
    CHECK(c == NULL);
  }
  bench_close(&b);
}

static void scratch_is_two_blocks_and_none_for_one_rank(void)
{
  struct bench b;
  struct dev_usage usage;
  bench_open(&b, DEV_CPU, 0);
  const struct comm_config config = {.name = "test"};
  static const struct { size_t asked, each; } sizes[] = {{1000, 1024}, {256, 256}, {257, 512}, {0, 256}};
  for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
    struct comm *c = comm_of(&b, sizes[i].asked, &config);
    dev_usage(b.d, &usage);
    CHECK(usage.now[DEV_COMMUNICATION] == (comm_size(world) == 1 || (mirror_cuda() && test_staged()) ? 0 : 2 * sizes[i].each));
    comm_destroy(c);
    dev_usage(b.d, &usage);
    CHECK(usage.now[DEV_COMMUNICATION] == 0);
  }
  bench_close(&b);
}

static void delay_holds_back_every_collective(void)
{
  struct bench b;
  bench_open(&b, DEV_CPU, 0);
  const struct comm_config config = {.name = "late", .delay_ms = 30};
  struct comm *c = comm_of(&b, 4096, &config);
  struct tensor t = matrix(&b, DTYPE_F64, 1, 3, false);
  fill(&t, comm_rank(world), 0);
  const double before = clock_ms();
  CHECK_OK(comm_allreduce(c, &t, COMM_SUM));
  CHECK_OK(comm_barrier(c));
  CHECK_OK(mirror_sync(b.d));
  CHECK(clock_ms() - before >= 60);
  CHECK(reduced(&t, 1, 1, COMM_SUM, false));
  mirror_free(b.d, t.at);
  comm_destroy(c);
  bench_close(&b);
}

/* The last rank has each reduction 60 ms later than the others, and right; a barrier is none. */
static void hold_ends_reductions_late_on_this_rank_alone(void)
{
  const int me = comm_rank(world), last = comm_size(world) - 1;
  for (int ordered = 0; ordered < 2; ordered++) {
    struct bench b;
    bench_open(&b, DEV_CPU, 0);
    const struct comm_config config = {.name = "held", .reduce = ordered ? COMM_ORDERED : COMM_FAST, .hold_ms = me == last ? 60 : 0};
    struct comm *c = comm_of(&b, 4096, &config);
    struct tensor t = matrix(&b, DTYPE_F64, 1, 3, false);
    fill(&t, me, 0);
    CHECK_OK(comm_host_barrier(world));
    CHECK_OK(comm_barrier(c));
    CHECK_OK(mirror_sync(b.d)); /* all are here */
    const double before = clock_ms();
    CHECK_OK(comm_allreduce(c, &t, COMM_SUM));
    CHECK_OK(mirror_sync(b.d));
    const double ms = clock_ms() - before;
    if (me == last) CHECK(ms >= 60);
    CHECK(reduced(&t, 1, 1, COMM_SUM, false));
    mirror_free(b.d, t.at);
    comm_destroy(c);
    bench_close(&b);
  }
}

/* Each rank is left with what is its own; the ordered comm's views are strided and not in place. */
static void a_silent_comm_moves_nothing_between_ranks(void)
{
  const int n = comm_size(world), me = comm_rank(world);
  for (int k = 0; k < 2 * mirror_kinds(); k++) {
    struct bench b;
    int64_t calls;
    const bool strided = k % 2 == 1;
    const struct comm_config config = {.name = "silent", .reduce = strided ? COMM_ORDERED : COMM_FAST, .silent = true};
    bench_open(&b, kinds[k / 2], 1);
    struct comm *c = comm_of(&b, 65536, &config);
    struct tensor sum = matrix(&b, DTYPE_F32, 3, 7, strided), all = matrix(&b, DTYPE_F32, 3 * n, 7, strided);
    struct tensor apart = matrix(&b, DTYPE_F32, 3, 7, strided);
    const struct tensor mine = strided ? apart : tensor_part(&all, 3 * me, 3, 0, 7);
    fill(&sum, me, 0);
    fill(&all, me, 0);
    comm_trace_restart(world);
    CHECK_OK(comm_allreduce(c, &sum, COMM_SUM));
    CHECK_OK(comm_broadcast(c, &sum, 0));
    CHECK_OK(comm_reduce_scatter(c, &mine, &all, COMM_SUM));
    CHECK_OK(comm_allgather(c, &all, &mine));
    CHECK_OK(mirror_sync(b.d));
    for (int64_t i = 0; i < 21; i++) CHECK(element_get(&sum, i) == value(me, i, DTYPE_F32));
    for (int64_t i = 0; i < 21; i++) CHECK(element_get(&mine, i) == value(me, 21 * me + i, DTYPE_F32));
    for (int64_t i = 0; i < 21 * n; i++) CHECK(element_get(&all, i) == value(me, i, DTYPE_F32));
    const struct comm_call *list = comm_trace(world, &calls);
    struct pmpi_count expected[2];
    CHECK(calls == 4);
    for (int64_t i = 0; i < calls; i++) CHECK(list[i].bytes == 0 && list[i].count > 0 && comm_expect(&list[i], expected) == 0);
    CHECK_ERR(comm_send(c, &sum, n == 1 ? 0 : (me + 1) % n), ERR_ARG);
    mirror_free(b.d, apart.at);
    mirror_free(b.d, all.at);
    mirror_free(b.d, sum.at);
    comm_destroy(c);
    bench_close(&b);
  }
}

static void an_aligned_comm_has_a_barrier_before_each_collective(void)
{
  struct bench b;
  int64_t calls;
  const struct comm_config config = {.name = "aligned", .aligned = true};
  bench_open(&b, DEV_CPU, 0);
  struct comm *c = comm_of(&b, 4096, &config);
  struct tensor t = matrix(&b, DTYPE_F64, 1, 3, false);
  fill(&t, comm_rank(world), 0);
  comm_trace_restart(world);
  for (int i = 0; i < 2; i++) CHECK_OK(comm_allreduce(c, &t, COMM_MAX));
  CHECK_OK(comm_barrier(c));
  CHECK_OK(mirror_sync(b.d));
  const struct comm_call *list = comm_trace(world, &calls);
  if (CHECK(calls == 5))
    for (int i = 0; i < 5; i++) CHECK(strcmp(list[i].op, i % 2 == 0 ? "barrier" : "allreduce") == 0);
  CHECK(reduced(&t, 1, 1, COMM_MAX, false));
  mirror_free(b.d, t.at);
  comm_destroy(c);
  bench_close(&b);
}

static void a_missing_wait_before_a_collective_is_named(void)
{
  struct bench b;
  bench_open(&b, DEV_LAZY, 1);
  const struct comm_config config = {.name = "test"};
  struct comm *c = comm_of(&b, 4096, &config);
  struct tensor t = matrix(&b, DTYPE_F64, 1, 64, false);
  CHECK_OK(dev_begin(b.compute, t.at, 64 * sizeof(double))); /* compute writes; nothing orders the collective after it */
  CHECK_OK(comm_allreduce(c, &t, COMM_SUM));
  CHECK_ERR(mirror_sync(b.d), ERR_DEVICE);
  CHECK_TEXT_HAS(dev_findings(b.d), "allreduce");
  CHECK_TEXT_HAS(dev_findings(b.d), "transfer");
  mirror_free(b.d, t.at);
  comm_destroy(c);
  bench_close(&b);
}

static void a_missing_wait_before_a_message_is_named(void)
{
  const int rank = comm_rank(world);
  if (!CHECK(comm_size(world) > 0) || comm_size(world) == 1 || rank > 1) return;
  const int ranks[] = {0, 1};
  struct bench b;
  bench_open(&b, DEV_LAZY, 1);
  const struct comm_config config = {.name = "test"};
  struct comm *c;
  CHECK_OK(test_comm(world, b.transfer, ranks, 2, 0, &config, &c));
  struct tensor t = matrix(&b, DTYPE_F64, 1, 64, false);
  CHECK_OK(dev_begin(b.compute, t.at, 64 * sizeof(double)));
  if (rank == 0) CHECK_OK(comm_send(c, &t, 1));
  if (rank == 1) CHECK_OK(comm_recv(c, &t, 0));
  CHECK_ERR(mirror_sync(b.d), ERR_DEVICE);
  CHECK_TEXT_HAS(dev_findings(b.d), rank == 0 ? "'send'" : "'recv'");
  mirror_free(b.d, t.at);
  comm_destroy(c);
  bench_close(&b);
}

/* Two comms on two streams, one buffer: the second's collective must wait for the first's. */
static void a_missing_wait_between_two_comms_is_named(void)
{
  struct bench b;
  bench_open(&b, DEV_LAZY, 1);
  const struct comm_config config = {.name = "one"}, other = {.name = "two"};
  int ranks[64];
  everyone(ranks);
  struct comm *c = comm_of(&b, 0, &config), *o;
  CHECK_OK(test_comm(world, b.compute, ranks, comm_size(world), 0, &other, &o));
  struct tensor t = matrix(&b, DTYPE_F64, 1, 64, false);
  CHECK_OK(comm_broadcast(c, &t, 0));
  CHECK_OK(comm_allreduce(o, &t, COMM_SUM));
  CHECK_ERR(mirror_sync(b.d), ERR_DEVICE);
  CHECK_TEXT_HAS(dev_findings(b.d), "broadcast");
  mirror_free(b.d, t.at);
  comm_destroy(o);
  comm_destroy(c);
  bench_close(&b);
}

int main(void)
{
  static const struct test tests[] = {
    TEST(allreduce_gives_every_rank_the_reduction),
    TEST(reduce_scatter_gives_each_rank_its_part),
    TEST(allgather_collects_the_parts_in_rank_order),
    TEST(parts_that_touch_need_no_scratch),
    TEST(broadcast_gives_every_rank_the_roots),
    TEST(messages_of_a_group_go_round_a_ring),
    TEST(a_synchronous_ring_completes_in_a_group),
    TEST(lone_messages_pass_down_a_line),
    TEST(bytes_are_moved_and_not_added),
    TEST(impossible_views_are_refused),
    TEST(messages_have_the_name_of_their_direction),
    TEST(a_message_that_does_not_fit_is_an_error),
    TEST(ordered_sums_do_not_depend_on_pieces),
    TEST(two_comms_run_on_two_streams),
    TEST(a_group_of_some_ranks_leaves_the_others_alone),
    TEST(scratch_is_two_blocks_and_none_for_one_rank),
    TEST(delay_holds_back_every_collective),
    TEST(hold_ends_reductions_late_on_this_rank_alone),
    TEST(a_silent_comm_moves_nothing_between_ranks),
    TEST(an_aligned_comm_has_a_barrier_before_each_collective),
    TEST(a_missing_wait_before_a_collective_is_named),
    TEST(a_missing_wait_before_a_message_is_named),
    TEST(a_missing_wait_between_two_comms_is_named),
  };
  return run_all("comm", tests, sizeof tests / sizeof *tests);
}
