/* section_verdict.c - what a reader at three in the morning needs: verdict, what failed, why. */
#include "reports/sections.h"

#include <string.h>

static int count_of(const json_t *cases, const char *verdict)
{
  int n = 0;
  json_t *c;
  size_t i;
  json_array_foreach(cases, i, c) {
    const char *text = json_string_value(json_object_get(c, "verdict"));
    n += text != NULL && strcmp(text, verdict) == 0;
  }
  return n;
}

/* The diagnosis that stands with the case's first red check; "" if there is none. */
static const char *cause_of(const struct evidence *e, const char *name)
{
  json_t *verdicts = evidence_select(e, "verdict", name), *record;
  const char *found = "";
  size_t i;
  json_array_foreach(verdicts, i, record) {
    const char *cause = record_get_text(record, "got.cause");
    if (cause && cause[0] && !found[0]) found = cause; /* the evidence keeps it */
  }
  json_decref(verdicts);
  return found;
}

static void list_cases(const struct evidence *e, struct page *p, const char *verdict, const char *heading)
{
  enum { SHOWN = 20 };
  char lines[SHOWN][1200];
  const char *items[SHOWN];
  int n = 0;
  const json_t *cases = json_object_get(e->summary, "cases");
  json_t *c;
  size_t i;
  const int all = count_of(cases, verdict);
  if (all == 0) return;
  json_array_foreach(cases, i, c) {
    const char *text = json_string_value(json_object_get(c, "verdict"));
    const char *name = json_string_value(json_object_get(c, "name"));
    const char *sentence = json_string_value(json_object_get(c, "sentence"));
    if (text == NULL || name == NULL || strcmp(text, verdict) != 0 || n == SHOWN) continue;
    const char *cause = cause_of(e, name);
    snprintf(lines[n], sizeof lines[n], "%s: %s%s%s", name, sentence ? sentence : "", cause[0] ? " Likely cause: " : "", cause);
    items[n] = lines[n];
    n++;
  }
  page_heading(p, heading);
  page_list(p, items, n);
  if (n < all) page_text(p, "and %d more, in the table of all cases below.", all - n);
}

/* Some run was on the cuda device of the host build, which says so in its name. */
static bool no_gpu(const struct evidence *e)
{
  json_t *runs = evidence_select(e, "run", NULL), *r;
  bool found = false;
  size_t i;
  json_array_foreach(runs, i, r) {
    const char *gpu = record_get_text(r, "env.gpu");
    found = found || (gpu != NULL && strstr(gpu, "not a GPU") != NULL);
  }
  json_decref(runs);
  return found;
}

enum err section_verdict(const struct evidence *e, struct page *p)
{
  const json_t *cases = json_object_get(e->summary, "cases");
  const char *verdict = json_string_value(json_object_get(e->summary, "verdict"));
  char sentence[256];
  snprintf(sentence, sizeof sentence, "%d passed, %d failed, %d invalid, %d inconclusive, %d skipped, %d not run",
           count_of(cases, "PASS"), count_of(cases, "FAIL"), count_of(cases, "INVALID"), count_of(cases, "INCONCLUSIVE"),
           count_of(cases, "SKIPPED"), count_of(cases, "NOT_RUN"));
  page_verdict(p, verdict ? verdict : "INVALID", sentence);
  if (no_gpu(e)) page_text(p, "Device cuda was the host build, which is not a GPU: what it computes is judged, no speed is shown.");
  if (e->cut > 0) page_text(p, "%d record%s cut short when the run was stopped; everything before stands.", e->cut, e->cut == 1 ? " was" : "s were");
  list_cases(e, p, "FAIL", "What failed");
  list_cases(e, p, "INVALID", "What could not be judged");
  list_cases(e, p, "INCONCLUSIVE", "What noise hid");
  return ERR_OK;
}
