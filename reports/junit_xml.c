/* junit_xml.c - the verdicts as JUnit reads them.
 *
 * FAIL is a failure; INVALID and NOT_RUN are errors; SKIPPED is skipped; INCONCLUSIVE is skipped
 * with a property that says so.  Times are plain decimal seconds (some readers refuse exponents).
 */
#include "reports/sections.h"

#include "reports/files.h"

#include <math.h>
#include <string.h>

static bool is(const json_t *record, const char *outcome)
{
  const char *text = record_get_text(record, "got.outcome");
  return text != NULL && strcmp(text, outcome) == 0;
}

static void text_of(FILE *out, const json_t *record, const char *key)
{
  const char *text = record_get_text(record, key);
  table_escape(text ? text : "", out);
}

static double seconds_of(const struct evidence *e, const json_t *record)
{
  const char *run = record_get_text(record, "got.run");
  const json_t *ended = run ? evidence_first(e, "case", run) : NULL;
  return ended ? fmax(0.0, record_get_real(ended, "got.seconds", 0.0)) : 0.0;
}

static void test_case(FILE *out, const struct evidence *e, const json_t *record, const char *suite)
{
  fprintf(out, "    <testcase classname=\"");
  table_escape(suite, out);
  fputs("\" name=\"", out);
  text_of(out, record, "case");
  fprintf(out, "\" time=\"%.3f\">", seconds_of(e, record));
  if (is(record, "INCONCLUSIVE")) fputs("<properties><property name=\"verdict\" value=\"INCONCLUSIVE\"/></properties>", out);
  const char *element = is(record, "FAIL") ? "failure" : is(record, "PASS") ? NULL
                        : is(record, "SKIPPED") || is(record, "INCONCLUSIVE") ? "skipped" : "error";
  if (element) {
    fprintf(out, "<%s message=\"", element);
    text_of(out, record, "got.sentence");
    fputs(strcmp(element, "skipped") == 0 ? "\"/>" : "\" type=\"", out);
    if (strcmp(element, "skipped") != 0) {
      text_of(out, record, "got.reason");
      fputs("\"/>", out);
    }
  }
  fputs("</testcase>\n", out);
}

static void test_suite(FILE *out, const struct evidence *e, const json_t *judged, const char *suite)
{
  int tests = 0, failures = 0, errors = 0, skipped = 0;
  double seconds = 0.0;
  json_t *record;
  size_t i;
  json_array_foreach(judged, i, record) {
    const char *of = record_get_text(record, "got.suite");
    if (of == NULL || strcmp(of, suite) != 0) continue;
    tests++;
    seconds += seconds_of(e, record);
    if (is(record, "FAIL")) failures++;
    else if (is(record, "SKIPPED") || is(record, "INCONCLUSIVE")) skipped++;
    else if (!is(record, "PASS")) errors++;
  }
  fputs("  <testsuite name=\"", out);
  table_escape(suite, out);
  fprintf(out, "\" tests=\"%d\" failures=\"%d\" errors=\"%d\" skipped=\"%d\" time=\"%.3f\">\n", tests, failures, errors, skipped, seconds);
  json_array_foreach(judged, i, record) {
    const char *of = record_get_text(record, "got.suite");
    if (of != NULL && strcmp(of, suite) == 0) test_case(out, e, record, suite);
  }
  fputs("  </testsuite>\n", out);
}

enum err junit_xml(const struct evidence *e)
{
  FILE *out;
  json_t *judged = evidence_select(e, "judged", NULL), *record;
  size_t i, k;
  enum err err = files_open(e->dir, "junit.xml", &out);
  if (err == ERR_OK) {
    fputs("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuites name=\"shardmark\">\n", out);
    json_array_foreach(judged, i, record) { /* each suite once, in the order of its first case */
      const char *suite = record_get_text(record, "got.suite");
      bool seen = suite == NULL;
      for (k = 0; k < i && !seen; k++) {
        const char *before = record_get_text(json_array_get(judged, k), "got.suite");
        seen = before != NULL && strcmp(before, suite) == 0;
      }
      if (!seen) test_suite(out, e, judged, suite);
    }
    fputs("</testsuites>\n", out);
    err = files_close(out, e->dir, "junit.xml", true);
  }
  json_decref(judged);
  return err ? err_trace(err, __FILE__, __LINE__) : ERR_OK;
}
