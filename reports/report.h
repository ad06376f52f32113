/* report.h - a results directory as people read it, rebuilt from its records alone. */
#ifndef REPORTS_REPORT_H
#define REPORTS_REPORT_H
#include "base/err.h"

/* Reads summary.json and records.jsonl of `dir`; writes report.html (one file, no network),
 * plots/ (SVG and PNG by gnuplot), report.md, results.csv and junit.xml beside them.  The same
 * records give the same files.  Without gnuplot the tables stand and the page says what is
 * missing.  Fails: ERR_IO, ERR_FORMAT (file:line). */
enum err report_write(const char *dir);

#endif
