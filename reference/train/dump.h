/* dump.h - canonical tensors in files, by rank 0. */
#ifndef TRAIN_DUMP_H
#define TRAIN_DUMP_H

#include "train/output.h"
#include "train/trainer.h"

/* Host copies are kept for it, made once, when run.dump asks for any.  All ranks. */
struct dumper;
enum err dump_create(struct trainer *t, const struct output *o, struct dumper **out);
void dump_destroy(struct dumper *d); /* NULL is allowed */

/* Files <what>.step<k>.safetensors and their records, by rank 0; nothing unless run.dump asks for it.
 * All ranks; each waits for the device.
 *   dump_before   weights and, with dump: all, moments, as they are before step k (k = steps: at the end)
 *   dump_after    gradients of step k: reduced, not clipped; with dump: all, what the blocks of its
 *                 last micro-batch gave (the last replica's) and the gradients in that */
enum err dump_before(struct dumper *d, int64_t step);
enum err dump_after(struct dumper *d, int64_t step);

/* "<what>.step<k>.safetensors", and the record that names it. */
void dump_name(const char *what, int64_t step, char *out, size_t bytes);
enum err dump_say(const struct output *o, const char *what, int64_t step, const char *file);
#endif
