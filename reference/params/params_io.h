/* params_io.h - canonical weights in a file: safetensors with Hugging Face GPT-2 names.
 *
 * The host array is a flat buffer in the layout of `f`, which has all of every row, of elements of `type`.  Rows that
 * share storage stand in the file once, under their owner's name.
 */
#ifndef PARAMS_PARAMS_IO_H
#define PARAMS_PARAMS_IO_H

#include "params/params.h"

/* `meta` as safetensors_write takes it.  Fails: ERR_IO, ERR_MEMORY. */
enum err params_write(const char *path, const struct param_table *t, const struct flat *f, enum dtype type,
                      const void *host, const char *const *meta);

/* Every owning row from the file, rounded to `as`, stored as `type`; padding is left alone.
 * The file may be float64, float32 or bfloat16.  Names without "transformer." are taken
 * too; causal masks (*.attn.bias, *.attn.masked_bias, as old releases store them) are
 * passed over; lm_head.weight of a tied table may be absent, or equal to wte in bits.
 * Fails, naming the tensor: ERR_CONFIG (missing, unknown, wrong shape, sharing storage),
 * ERR_FORMAT (element type, not a safetensors file), ERR_IO.  *host may be half written then. */
enum err params_read(const char *path, const struct param_table *t, const struct flat *f, enum dtype as, enum dtype type,
                     void *host);

#endif
