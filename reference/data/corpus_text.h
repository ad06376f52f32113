/* corpus_text.h - a directory of text files as documents of bytes. */
#ifndef DATA_CORPUS_TEXT_H
#define DATA_CORPUS_TEXT_H

#include "base/err.h"

#include <stdint.h>

struct corpus_text {
  char *root;
  int64_t n, room;
  struct corpus_file {
    char *path; /* whole */
    int64_t bytes;
  } *files;     /* ordered by path */
};
/* Fails: ERR_CONFIG naming `corpus`, ERR_MEMORY. */
enum err corpus_text_open(const char *directory, struct corpus_text *out);
void corpus_text_close(struct corpus_text *t);
enum err corpus_text_read(const struct corpus_text *t, int64_t document, int64_t first, int64_t n, int32_t *out);

#endif
