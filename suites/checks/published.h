/* published.h - memory formulas as two papers print them, shown beside ours.
 *
 * Ours (predict.h) count what this trainer stores, padding and buffers included; these are the papers' terms, with
 * the size of an element left open.  Nothing is judged by them.
 *   ZeRO         Rajbhandari et al. 2019 (arXiv 1910.02054), sec. 3 and 5, table 1
 *   Korthikanti  et al. 2022 (arXiv 2205.05198), sec. 4 and 5, table 2
 */
#ifndef CHECKS_PUBLISHED_H
#define CHECKS_PUBLISHED_H

#include "base/config.h"

/* Bytes that a parameter has of each state; the paper's mixed precision: 2, 2, and K = 12 (float32 master and moments). */
struct published_states {
  double weights, gradients, optimizer;
};
extern const struct published_states published_mixed;

/* A device's, of N that share by stage 0 (nothing), 1 (P_os), 2 (P_os+g), 3 (P_os+g+p). */
double published_states_bytes(const struct published_states *each, double parameters, int64_t stage, double N);

/* One layer of one micro-batch.  s, b, h, a, t as in the paper: sequence, micro-batch, hidden, heads, tensor ranks. */
struct published_layer {
  double s, b, h, a, t;
  bool sequence_parallel;
  enum recompute recompute;
  double element; /* bytes; the paper's: 2 */
  double mask;    /* bytes of an element of a dropout mask; the paper's: 1 */
  double scores;  /* how much of the s x s scores is stored; the paper's: 1 */
};
double published_layer_bytes(const struct published_layer *l);
/* Layers whose activations the first stage has at one time: all L in 1F1B, whatever p; more with v chunks (sec. 4.2.3). */
double published_first_stage_layers(enum schedule_kind kind, double L, double p, double v, double m);

/* The same of a run, in its own element sizes: states of the parameters that a rank has; activations of the first stage's
 * layers, with the paper's masks and scores. */
double published_states_of(const struct run_config *c);
double published_activations_of(const struct run_config *c);

#endif
