/* cut_test.c - the text of --layout, names of layouts, and what is refused before anything is launched. */
#include "harness/asked.h"
#include "harness/cut.h"
#include "testing/check.h"

#include <stdlib.h>
#include <string.h>

static struct run_config finished(const char *text)
{
  struct run_config c;
  config_default(&c);
  c.global_batch = 16;
  CHECK_OK(cut_lay(text, &c));
  CHECK_OK(config_finish(&c));
  return c;
}

static void every_key_of_a_layout_is_laid_over(void)
{
  struct run_config c;
  config_default(&c);
  c.dp = 3;
  CHECK_OK(cut_lay("tp=2,pp=4,schedule=interleaved,chunks=2,stages=1,1,1,1,1,1,1,1,sequence_parallel=true,mesh_order="
                   "dp-tp-pp,tp_across_nodes=true",
                   &c));
  CHECK(c.dp == 3 && c.tp == 2 && c.pp == 4 && c.schedule == SCHEDULE_INTERLEAVED && c.chunks == 2);
  CHECK(strcmp(c.stages, "1,1,1,1,1,1,1,1") == 0 && c.sequence_parallel && c.mesh_order == MESH_ORDER_DP_TP_PP &&
        c.tp_across_nodes);
  CHECK(cut_has("dp=2,tp=1", "tp") && !cut_has("dp=2,tp_across_nodes=true", "tp") && !cut_has("", "dp"));
  cut_serial(&c);
  CHECK(config_ranks(&c) == 1 && c.schedule == SCHEDULE_1F1B && c.chunks == 1 && strcmp(c.stages, "even") == 0 &&
        !c.sequence_parallel);
}

static void mistakes_name_what_was_asked(void)
{
  static const struct {
    const char *text, *part;
  } bad[] = {{"dp", "'dp' is no key=value"}, {"steps=2", "no 'steps' in a layout"}, {"dp=2,", "'' is no key=value"}, {"dp=2,tp=2,dp=4", "'dp' stands twice"},
             {"tpp=2", "nearest: tp"},       {"schedule=1f1", "valid: gpipe|1f1b"}, {"tp=0", "1..65536"}};
  for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
    struct run_config c, was;
    config_default(&c);
    was = c;
    CHECK_ERR(cut_lay(bad[i].text, &c), ERR_CONFIG);
    CHECK_TEXT_HAS(err_text(), bad[i].part);
    CHECK(memcmp(&c, &was, sizeof c) == 0);
  }
}

static void a_layout_is_held_against_the_ranks(void)
{
  CHECK_OK(asked_check_layout(&(struct asked){.layout = "dp=2,tp=2", .ranks = {2, 4}, .n_ranks = 2}));
  CHECK_ERR(asked_check_layout(&(struct asked){.layout = "dp=2,tp=2", .ranks = {2, 8}, .n_ranks = 2}), ERR_CONFIG);
  CHECK_TEXT_HAS(err_text(), "= 4 ranks, --ranks says 2, 8; valid: --ranks 4");
  CHECK_OK(asked_check_layout(&(struct asked){.layout = "tp=2,pp=2", .ranks = {4, 8}, .n_ranks = 2}));
  CHECK_ERR(asked_check_layout(&(struct asked){.layout = "tp=2,pp=2", .ranks = {4, 6}, .n_ranks = 2}), ERR_CONFIG);
  CHECK_TEXT_HAS(err_text(), "tp * pp = 4 does not divide --ranks 6; nearest valid: 4");
  CHECK_ERR(asked_check_layout(&(struct asked){.layout = "zz=2"}), ERR_CONFIG);
  CHECK_OK(asked_check_layout(&(struct asked){.ranks = {3}, .n_ranks = 1}));
}

static void a_layout_has_a_name(void)
{
  static const struct {
    const char *text, *name;
  } rows[] = {{"dp=1", "1 rank"},
              {"dp=4", "dp4"},
              {"tp=2,sequence_parallel=true", "tp2 sp"},
              {"dp=2,pp=4", "dp2 pp4 1f1b"},
              {"pp=2,schedule=interleaved,chunks=2", "pp2 interleaved v2"},
              {"pp=2,stages=5,3,schedule=zb-h1", "pp2 zb-h1 5,3"}};
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    char name[64];
    const struct run_config c = finished(rows[i].text);
    cut_text(&c, name, sizeof name);
    if (!CHECK(strcmp(name, rows[i].name) == 0)) fprintf(stderr, "  '%s'\n", name);
  }
}

static void a_tensor_group_stays_on_one_host_unless_told(void)
{
  struct launch_hosts *h = calloc(1, sizeof *h);
  if (!CHECK(h != NULL)) return;
  *h = (struct launch_hosts){.n = 2, .total = 8, .slots = {3, 5}, .names = {"left", "right"}};
  struct run_config c = finished("tp=2,dp=2");
  CHECK_ERR(cut_check_hosts(&c, h), ERR_CONFIG); /* groups 0 1, 2 3 */
  CHECK_TEXT_HAS(err_text(), "rank 2 on left, rank 3 on right");
  CHECK_TEXT_HAS(err_text(), "tp_across_nodes");
  c.tp_across_nodes = true;
  CHECK_OK(cut_check_hosts(&c, h));
  h->slots[0] = h->slots[1] = 4;
  c.tp_across_nodes = false;
  CHECK_OK(cut_check_hosts(&c, h));
  c = finished("tp=2,dp=2,pp=2,mesh_order=dp-pp-tp"); /* groups 0 4, 1 5, ... */
  CHECK_ERR(cut_check_hosts(&c, h), ERR_CONFIG);
  CHECK_TEXT_HAS(err_text(), "rank 0 on left, rank 4 on right");
  c = finished("tp=2,dp=2,pp=2,mesh_order=dp-tp-pp"); /* groups 0 2, 1 3, 4 6, 5 7 */
  CHECK_OK(cut_check_hosts(&c, h));
  h->n = 0; /* one machine */
  c = finished("tp=4,mesh_order=pp-dp-tp");
  CHECK_OK(cut_check_hosts(&c, h));
  free(h);
}

static void a_schedule_is_verified_and_its_bubble_told(void)
{
  struct cut_pipeline x;
  struct run_config c = finished("pp=4,schedule=gpipe");
  CHECK_OK(cut_verify(&c, &x));
  CHECK(x.stages == 4 && x.live == 16);
  CHECK_NEAR(x.of_ideal, 3.0 / 16, 1e-12);
  CHECK_NEAR(x.of_total, 3.0 / 19, 1e-12);
  c = finished("pp=4");
  CHECK_OK(cut_verify(&c, &x));
  CHECK(x.live == 4);
  c = finished("tp=2");
  CHECK_OK(cut_verify(&c, &x));
  CHECK(x.stages == 0);
}

int main(void)
{
  static const struct test tests[] = {
      TEST(every_key_of_a_layout_is_laid_over),           TEST(mistakes_name_what_was_asked),
      TEST(a_layout_is_held_against_the_ranks),           TEST(a_layout_has_a_name),
      TEST(a_tensor_group_stays_on_one_host_unless_told), TEST(a_schedule_is_verified_and_its_bubble_told),
  };
  return test_main("cut", tests, sizeof tests / sizeof *tests);
}
