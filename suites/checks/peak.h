/* peak.h - the dense peak of a device, and how much of it a run used.
 *
 * MFU is model FLOPs a second over the published dense peak of the exact device: of one that is not in
 * peaks.def it is not known, and above 1 something was counted wrong.
 */
#ifndef CHECKS_PEAK_H
#define CHECKS_PEAK_H

#include "base/config.h"

/* FLOP/s of one device in that precision; NaN: not known.  `device` as in records (env.gpu): the name up to a comma. */
double peak_dense(const char *device, enum precision precision);

/* FLOPs of a step that trained so many tokens: those of predict() for as large a share of the batch, the
 * vocabulary's padding beyond the model's own left out.  full: attention's whole square, else its causal half. */
double peak_flops(const struct run_config *c, double valid_tokens, bool full);
/* MFU of all ranks' devices, of steps that trained so many tokens in so many seconds; NaN: the device's peak is not known. */
double peak_mfu(const struct run_config *c, const char *device, double valid_tokens, double seconds, bool full);
/* The same and what recompute makes again, attention's causal half: for HFU alone. */
double peak_hardware_flops(const struct run_config *c, double valid_tokens);

#endif
