/* corpus_source.h - what each kind of corpus gives: documents of two tokens or more, by number.
 *
 * A document of fewer has no target; it is left out and counted.  Any rank opens all of it by itself and finds the same.
 * Files are mapped: one that is cut short while a run reads it ends the run by a signal, as mapped files do.
 */
#ifndef DATA_CORPUS_SOURCE_H
#define DATA_CORPUS_SOURCE_H

#include "base/config.h"

struct corpus_source {
  void *self; /* owned: close() frees it */
  int64_t documents, left_out;
  int64_t (*length)(const void *self, int64_t document);
  /* Tokens [first, first + n), which are inside the document.  Fails: ERR_CONFIG naming the file and what is wrong in it. */
  enum err (*tokens)(const void *self, int64_t document, int64_t first, int64_t n, int32_t *out);
  void (*close)(void *self);
};

/* All fail with ERR_CONFIG naming `corpus`, the file and what is wrong, or with ERR_MEMORY; *out is then untouched. */
enum err corpus_synthetic_open(const struct run_config *c, struct corpus_source *out);
enum err corpus_text_open(const struct run_config *c, struct corpus_source *out);
enum err corpus_jsonl_open(const struct run_config *c, struct corpus_source *out);
enum err corpus_megatron_open(const struct run_config *c, struct corpus_source *out);
enum err corpus_llmc_open(const struct run_config *c, struct corpus_source *out);

/* "path.idx" for the prefix of Megatron's two files, which may be given with either ending. */
void corpus_megatron_path(const char *corpus, const char *ending, char out[CONFIG_PATH + 8]);

/* A whole file, read only. */
struct corpus_map {
  const unsigned char *at;
  int64_t bytes;
};
/* Fails: ERR_CONFIG if it is not there, not readable, no regular file, or empty. */
enum err corpus_map_open(const char *path, struct corpus_map *out);
void corpus_map_close(struct corpus_map *m); /* of zeros: allowed */

/* Text is read as bytes.  Fails: ERR_CONFIG naming `vocab`. */
enum err corpus_needs_bytes(const struct run_config *c);

#endif
