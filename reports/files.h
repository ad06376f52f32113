/* files.h - a file of the report, put in place whole or not at all. */
#ifndef REPORTS_FILES_H
#define REPORTS_FILES_H
#include "base/err.h"
#include <stdio.h>

/* dir/name.tmp, opened for writing.  Fails: ERR_IO. */
enum err files_open(const char *dir, const char *name, FILE **out);
/* Closes it and renames it to dir/name if keep and all was written; removes it otherwise.  Fails: ERR_IO. */
enum err files_close(FILE *file, const char *dir, const char *name, bool keep);
#endif
