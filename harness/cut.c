/* cut.c */
#include "harness/cut.h"

#include "base/nearest.h"
#include "suites/checks/layout.h"

#include <stdio.h>
#include <string.h>

/* --- the text of --layout ------------------------------------------------------------- */

static const char *const keys[] = {
    "dp", "tp", "pp", "schedule", "chunks", "stages", "tp_across_nodes", "sequence_parallel", "mesh_order"};
enum { KEYS = sizeof keys / sizeof *keys };

static enum err unknown(const char *text, const char *key)
{
  char near[128];
  struct nearest n = nearest_to(key);
  for (int i = 0; i < KEYS; i++) nearest_offer(&n, keys[i]);
  FAIL(ERR_CONFIG, "--layout %s: no '%s' in a layout; nearest: %s", text, key, nearest_text(&n, near, sizeof near));
}

/* The next key=value of *rest; a list of stages has commas of its own. */
static char *next_part(char **rest)
{
  char *part = *rest, *end;
  if (part == NULL) return NULL;
  end = part + strcspn(part, ",");
  while (strncmp(part, "stages=", 7) == 0 && *end == ',' && end[1] >= '0' && end[1] <= '9')
    end += 1 + strcspn(end + 1, ",");
  *rest = *end ? end + 1 : NULL;
  *end = '\0';
  return part;
}

enum err cut_lay(const char *text, struct run_config *c)
{
  char copy[256], *rest = copy;
  bool given[KEYS] = {false};
  struct run_config laid = *c;
  snprintf(copy, sizeof copy, "%s", text);
  for (char *part; (part = next_part(&rest)) != NULL;) {
    char *equals = strchr(part, '=');
    int key = 0;
    if (equals == NULL)
      FAIL(ERR_CONFIG, "--layout %s: '%s' is no key=value; valid: as in dp=2,tp=2,pp=2,schedule=1f1b", text, part);
    *equals = '\0';
    while (key < KEYS && strcmp(part, keys[key]) != 0) key++;
    if (key == KEYS) return unknown(text, part);
    if (given[key]) FAIL(ERR_CONFIG, "--layout %s: '%s' stands twice; valid: once", text, part);
    given[key] = true;
    TRY(config_set(&laid, part, equals + 1));
  }
  *c = laid;
  return ERR_OK;
}

bool cut_has(const char *text, const char *key)
{
  const size_t length = strlen(key);
  for (const char *at = text; at && *at; at = strchr(at, ',') ? strchr(at, ',') + 1 : NULL)
    if (strncmp(at, key, length) == 0 && at[length] == '=') return true;
  return false;
}

void cut_serial(struct run_config *c)
{
  for (int i = 0; i < KEYS; i++) {
    const struct opt *o = opt_find(run_options, run_options_count, keys[i]);
    BUG_IF(o == NULL || opt_set(o, c, o->initial, NULL) != ERR_OK);
  }
}

/* --- its name --------------------------------------------------------------------------- */

static void say(char *out, size_t bytes, const char *word, int64_t number)
{
  const size_t used = strlen(out);
  snprintf(out + used, bytes - used, number ? "%s%s%lld" : "%s%s", used ? " " : "", word, (long long)number);
}

void cut_text(const struct run_config *c, char *out, size_t bytes)
{
  out[0] = '\0';
  if (config_ranks(c) == 1) say(out, bytes, "1 rank", 0);
  if (c->dp > 1) say(out, bytes, "dp", c->dp);
  if (c->tp > 1) say(out, bytes, "tp", c->tp);
  if (c->sequence_parallel) say(out, bytes, "sp", 0);
  if (c->pp == 1) return;
  say(out, bytes, "pp", c->pp);
  say(out, bytes, schedule_name((enum schedule_kind)c->schedule), 0);
  if (c->chunks > 1) say(out, bytes, "v", c->chunks);
  if (strcmp(c->stages, "even") != 0) say(out, bytes, c->stages, 0);
}

/* --- before anything is launched ----------------------------------------------------------- */

enum err cut_check_hosts(const struct run_config *c, const struct launch_hosts *hosts)
{
  if (c->tp == 1 || c->tp_across_nodes || hosts->n == 0) return ERR_OK;
  for (int rank = 0; rank < (int)config_ranks(c); rank++) {
    struct layout at = layout_of(c, rank);
    at.tp = 0;
    const int first = layout_rank(c, at); /* of its tensor group */
    const int a = launch_host_of(hosts, first), b = launch_host_of(hosts, rank);
    if (a == b) continue;
    FAIL(ERR_CONFIG,
         "tp: %lld would put a tensor group across hosts: rank %d on %s, rank %d on %s; valid: a tp that divides the "
         "slots of each "
         "host, mesh_order with tp first, or tp_across_nodes: true",
         (long long)c->tp, first, hosts->names[a], rank, hosts->names[b]);
  }
  return ERR_OK;
}

enum err cut_verify(const struct run_config *c, struct cut_pipeline *out)
{
  struct schedule *s;
  struct schedule_facts facts;
  *out = (struct cut_pipeline){0};
  if (c->pp == 1 || c->task != TASK_TRAIN) return ERR_OK;
  TRY(schedule_create((enum schedule_kind)c->schedule, (int)c->pp, (int)config_accumulation(c), (int)c->chunks, &s));
  const enum err err = schedule_verify(s, &facts);
  schedule_destroy(s);
  if (err == ERR_MEMORY) return err_trace(err, __FILE__, __LINE__);
  if (err)
    FAIL(ERR_CONFIG, "schedule: %s over %lld stages with %lld micro-batches: %s",
         schedule_name((enum schedule_kind)c->schedule), (long long)c->pp, (long long)config_accumulation(c),
         err_text());
  *out =
      (struct cut_pipeline){.stages = (int)c->pp, .of_ideal = facts.bubble_of_ideal, .of_total = facts.bubble_of_total};
  for (int i = 0; i < out->stages; i++)
    if (facts.live[i] > out->live) out->live = facts.live[i];
  return ERR_OK;
}
