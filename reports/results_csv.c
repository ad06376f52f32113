/* results_csv.c - judged cases and scaling points, a row each, for spreadsheets. */
#include "reports/sections.h"

#include "reports/files.h"

#include <string.h>

static const struct column columns[] = {
  {"row", "row", "", NULL},
  {"suite", "suite", "", NULL},
  {"case", "case", "", NULL},
  {"outcome", "verdict", "", NULL},
  {"reason", "decided by", "", NULL},
  {"sentence", "sentence", "", NULL},
  {"curve", "curve", "", NULL},
  {"scale", "scale", "", NULL},
  {"layout", "layout", "", NULL},
  {"ranks", "ranks", "", NULL},
  {"base_ranks", "N0", "", NULL},
  {"threads", "threads", "", NULL},
  {"repeats", "repeats", "", NULL},
  {"step_ms", "step", "ms", "%g"},
  {"tokens_per_s", "rate", "tokens/s", "%g"},
  {"tokens_per_s_low", "low", "tokens/s", "%g"},
  {"tokens_per_s_high", "high", "tokens/s", "%g"},
  {"sequences_per_s", "samples", "1/s", "%g"},
  {"efficiency", "E(N)", "", "%g"},
  {"efficiency_low", "low", "", "%g"},
  {"efficiency_high", "high", "", "%g"},
  {"copies", "C(N)", "", "%g"},
  {"sgemm_FLOP_per_s", "matrix rate", "FLOP/s", "%g"},
  {"rate_fraction", "fraction of it", "", "%g"},
  {"mfu", "MFU", "", "%g"},
  {"exposed_fraction", "exposed communication", "", "%g"},
  {"imbalance", "load balance", "", "%g"},
  {"peak_bytes", "peak", "bytes", NULL},
  {"evidence", "conformance case", "", NULL},
  {"correctness_only", "correctness only", "", NULL},
  {"withheld", "withheld", "", NULL},
};
enum { COLUMNS = sizeof columns / sizeof *columns };

static void add(json_t *rows, const struct evidence *e, const char *kind, const char *row_name)
{
  json_t *records = evidence_select(e, kind, NULL), *record;
  size_t i;
  json_array_foreach(records, i, record) {
    json_t *row = json_pack("{s:s}", "row", row_name);
    for (int c = 1; c < COLUMNS; c++) {
      char key[64];
      snprintf(key, sizeof key, strcmp(columns[c].key, "case") == 0 ? "%s" : "got.%s", columns[c].key);
      json_t *value = json_object_get(record, key);
      if (value) json_object_set(row, columns[c].key, value);
    }
    json_array_append_new(rows, row);
  }
  json_decref(records);
}

enum err results_csv(const struct evidence *e)
{
  FILE *out;
  json_t *rows = json_array();
  add(rows, e, "judged", "case");
  add(rows, e, "point", "point");
  const struct table t = {"results", columns, COLUMNS, rows};
  enum err err = files_open(e->dir, "results.csv", &out);
  if (err == ERR_OK) {
    table_csv(&t, out);
    err = files_close(out, e->dir, "results.csv", true);
  }
  json_decref(rows);
  return err ? err_trace(err, __FILE__, __LINE__) : ERR_OK;
}
