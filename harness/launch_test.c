/* launch_test.c - words for both MPIs, and what does not fit. */
#include "harness/launch.h"
#include "testing/check.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char *const files[] = {"a.yaml", "b.yaml"};

static void joined(const struct launch_command *c, char *out, size_t bytes)
{
  out[0] = '\0';
  for (int i = 0; i < c->n_settings; i++) snprintf(out + strlen(out), bytes - strlen(out), "%s ", c->settings[i]);
  for (int i = 0; i < c->n_words; i++) snprintf(out + strlen(out), bytes - strlen(out), "%s ", c->words[i]);
}

static void made(const struct launch_world *w, const struct launch_wish *wish, char *out, size_t bytes)
{
  struct launch_command c;
  out[0] = '\0';
  if (!CHECK_OK(launch_make(w, wish, &c))) return;
  joined(&c, out, bytes);
  CHECK(c.words[c.n_words] == NULL);
  launch_free(&c);
}

static struct launch_world world(enum launch_mpi mpi)
{
  return (struct launch_world){.launcher = "/bin/mpirun", .trainer = "/bin/trainer", .mpi = mpi, .cores = 2, .slots = 2, .core = {0, 1}};
}

static void versions_tell_the_mpi(void)
{
  CHECK(launch_which("mpirun (Open MPI) 4.1.4\n") == LAUNCH_OPENMPI);
  CHECK(launch_which("mpirun (PRRTE) 3.0.0") == LAUNCH_OPENMPI);
  CHECK(launch_which("HYDRA build details:\n    Version: 4.0.2\n") == LAUNCH_MPICH);
  CHECK(launch_which("Intel(R) something") == LAUNCH_OTHER);
}

static void open_mpi_gets_what_it_needs(void)
{
  char text[2048];
  struct launch_world w = world(LAUNCH_OPENMPI);
  made(&w, &(struct launch_wish){.ranks = 2, .files = files, .n_files = 2}, text, sizeof text);
  CHECK_TEXT_HAS(text, "/bin/mpirun -np 2 ");
  CHECK_TEXT_HAS(text, "--bind-to none ");
  CHECK_TEXT_HAS(text, "/bin/trainer a.yaml b.yaml ");
  CHECK_TEXT_HAS(text, "OMPI_MCA_btl=self,vader ");
  CHECK(strstr(text, "oversubscribe") == NULL && strstr(text, "AS_ROOT") == NULL);
  w.root = true;
  made(&w, &(struct launch_wish){.ranks = 4, .files = files, .n_files = 1}, text, sizeof text);
  CHECK_TEXT_HAS(text, "--oversubscribe ");
  CHECK_TEXT_HAS(text, "OMPI_MCA_mpi_yield_when_idle=1 ");
  CHECK_TEXT_HAS(text, "OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 ");
  made(&w, &(struct launch_wish){.ranks = 2, .cores_each = 1, .files = files, .n_files = 1}, text, sizeof text);
  CHECK_TEXT_HAS(text, "--map-by slot:PE=1 --bind-to core ");
}

static void two_hosts_are_those_of_the_file_or_emulated(void)
{
  char text[2048];
  struct launch_world w = world(LAUNCH_OPENMPI);
  const struct launch_wish wish = {.ranks = 2, .cores_each = 1, .hosts = 2, .files = files, .n_files = 1};
  strcpy(w.cluster, "/repo/ci/cluster");
  made(&w, &wish, text, sizeof text);
  CHECK_TEXT_HAS(text, "/repo/ci/cluster run /bin/mpirun -np 2 --bind-to none /bin/trainer a.yaml ");
  CHECK(strstr(text, "OMPI_MCA_btl") == NULL); /* the way between hosts is not memory */
  CHECK_OK(launch_check_hosts(&w, 2, 2)); /* tried before */
  CHECK_OK(launch_check_hosts(&w, 1, 7));
  CHECK_ERR(launch_check_hosts(&w, 2, 3), ERR_UNAVAILABLE);
  strcpy(w.hosts, "/tmp/hosts");
  w.on = (struct launch_hosts){.n = 2, .total = 8, .slots = {4, 4}};
  w.slots = 8;
  made(&w, &wish, text, sizeof text);
  CHECK_TEXT_HAS(text, "/bin/mpirun -np 2 --hostfile /tmp/hosts --map-by ppr:1:node:PE=1 --bind-to core ");
  CHECK_OK(launch_check_hosts(&w, 2, 4));
  CHECK_ERR(launch_check_hosts(&w, 4, 4), ERR_UNAVAILABLE);
  CHECK_TEXT_HAS(err_text(), "names 2");
  w.hosts[0] = w.cluster[0] = '\0';
  CHECK_ERR(launch_check_hosts(&w, 4, 4), ERR_UNAVAILABLE);
  CHECK_TEXT_HAS(err_text(), "emulates two");
  w = world(LAUNCH_MPICH);
  CHECK_ERR(launch_check_hosts(&w, 2, 2), ERR_UNAVAILABLE);
  CHECK_TEXT_HAS(err_text(), "Open MPI only");
  strcpy(w.hosts, "/tmp/hosts");
  w.slots = 8;
  made(&w, &wish, text, sizeof text);
  CHECK_TEXT_HAS(text, "-ppn 1 ");
}

static void mpich_gets_its_own_words(void)
{
  char text[2048];
  struct launch_world w = world(LAUNCH_MPICH);
  snprintf(w.hosts, sizeof w.hosts, "/tmp/hosts");
  w.slots = 8;
  made(&w, &(struct launch_wish){.ranks = 8, .cores_each = 2, .files = files, .n_files = 1}, text, sizeof text);
  CHECK_TEXT_HAS(text, "/bin/mpirun -n 8 -f /tmp/hosts -bind-to core:2 /bin/trainer a.yaml ");
}

static void without_mpi_one_rank_is_the_trainer_itself(void)
{
  char text[2048];
  struct launch_command c = {0};
  const struct launch_world w = world(LAUNCH_ALONE);
  made(&w, &(struct launch_wish){.ranks = 1, .files = files, .n_files = 2}, text, sizeof text);
  CHECK(strcmp(text, "/bin/trainer a.yaml b.yaml ") == 0);
  CHECK_ERR(launch_make(&w, &(struct launch_wish){.ranks = 2, .files = files, .n_files = 1}, &c), ERR_UNAVAILABLE);
  CHECK_TEXT_HAS(err_text(), "2 ranks: this program was built without MPI");
  CHECK(c.words == NULL);
}

static void ranks_that_do_not_fit_are_refused_with_numbers(void)
{
  struct launch_command c = {0};
  struct launch_world w = world(LAUNCH_OPENMPI);
  CHECK_ERR(launch_make(&w, &(struct launch_wish){.ranks = 0}, &c), ERR_CONFIG);
  CHECK_ERR(launch_make(&w, &(struct launch_wish){.ranks = 2, .cores_each = 2}, &c), ERR_CONFIG);
  CHECK_TEXT_HAS(err_text(), "2 ranks of 2 cores wanted, this machine has 2");
  snprintf(w.hosts, sizeof w.hosts, "/tmp/hosts");
  CHECK_ERR(launch_make(&w, &(struct launch_wish){.ranks = 3}, &c), ERR_CONFIG);
  CHECK_TEXT_HAS(err_text(), "3 ranks wanted, host file /tmp/hosts offers 2");
  CHECK(c.words == NULL);
}

static void hosts_are_filled_in_the_order_of_their_file(void)
{
  char path[64];
  struct launch_hosts *h = calloc(1, sizeof *h);
  if (!CHECK(h != NULL)) return;
  snprintf(path, sizeof path, "/tmp/launch_test.%d", (int)getpid());
  FILE *f = fopen(path, "w");
  if (!CHECK(f != NULL)) return;
  fputs("# a cluster\nnode1 slots=4\nnode2:3\n\nnode3\nnode2:2\n", f);
  fclose(f);
  CHECK_OK(launch_hosts_read(path, h));
  CHECK(h->n == 3 && h->total == 10 && h->slots[1] == 5);
  static const int host_of[] = {0, 0, 0, 0, 1, 1, 1, 1, 1, 2};
  for (int rank = 0; rank < 10; rank++) CHECK(launch_host_of(h, rank) == host_of[rank]);
  f = fopen(path, "w");
  fputs("node1 slots=4\nnode2 slots=many\n", f);
  fclose(f);
  CHECK_ERR(launch_hosts_read(path, h), ERR_CONFIG);
  CHECK_TEXT_HAS(err_text(), ":2: 'many'");
  unlink(path);
  CHECK_ERR(launch_hosts_read(path, h), ERR_CONFIG);
  free(h);
}

static void every_allocation_may_fail(void)
{
  const struct launch_world w = world(LAUNCH_OPENMPI);
  bool failed = true;
  for (long n = 1; failed && n < 100; n++) {
    struct launch_command c = {0};
    check_fail_allocation(n);
    const enum err err = launch_make(&w, &(struct launch_wish){.ranks = 4, .files = files, .n_files = 2}, &c);
    failed = check_allocation_failed();
    check_fail_allocation(0);
    CHECK(failed ? err == ERR_MEMORY && c.words == NULL : err == ERR_OK);
    launch_free(&c);
  }
  CHECK(!failed);
}

static void a_foreign_program_stands_in_the_trainers_place(void)
{
  static const char *const words[] = {"/env/bin/python", "ddp.py", NULL}, *const settings[] = {"OMP_NUM_THREADS=1", NULL};
  char text[2048];
  const struct launch_world w = world(LAUNCH_OPENMPI);
  made(&w, &(struct launch_wish){.ranks = 2, .files = files, .n_files = 1, .program = words, .settings = settings}, text, sizeof text);
  CHECK_TEXT_HAS(text, "/bin/mpirun -np 2 ");
  CHECK_TEXT_HAS(text, "/env/bin/python ddp.py a.yaml ");
  CHECK_TEXT_HAS(text, "OMP_NUM_THREADS=1 ");
  CHECK(strstr(text, "/bin/trainer") == NULL);
}

int main(void)
{
  static const struct test tests[] = {
    TEST(versions_tell_the_mpi),
    TEST(a_foreign_program_stands_in_the_trainers_place),
    TEST(open_mpi_gets_what_it_needs),
    TEST(two_hosts_are_those_of_the_file_or_emulated),
    TEST(mpich_gets_its_own_words),
    TEST(without_mpi_one_rank_is_the_trainer_itself),
    TEST(ranks_that_do_not_fit_are_refused_with_numbers),
    TEST(hosts_are_filled_in_the_order_of_their_file),
    TEST(every_allocation_may_fail),
  };
  return test_main("launch", tests, sizeof tests / sizeof *tests);
}
