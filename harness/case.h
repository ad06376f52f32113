/* case.h - a case on disk: one training's truth and bounds, for any trainer.
 *
 *   case.json             what is trained and how; version, learning rates, every option of the truth
 *   config.json           the model, in Hugging Face's keys
 *   model.safetensors     initial weights, float32; each is a number that bf16 holds, so one truth serves all precisions
 *   batches.safetensors   tokens, targets, positions, documents, int32 [steps * G, T]; as the option batch_file reads them
 *   truth/                records.jsonl and tensors of the float64 run, the run protocol of results/schema.md; parts.safetensors:
 *                         what each micro-batch contributes to the gradient of step 0 (suites/checks/parts.h)
 *   bounds.P.json         for each precision P: Q, floor, bound and ceiling of each observable
 *   README.md             all that an adapter's author needs
 */
#ifndef HARNESS_CASE_H
#define HARNESS_CASE_H

#include "suites/checks/companions.h"

#include <stdio.h>

#define CASE_FORMAT "shardmark-case"
enum { CASE_VERSION = 1, CASE_PRECISIONS = 2 };
extern const enum precision case_precisions[CASE_PRECISIONS]; /* float32, bf16 */

/* What a case is made of.  The config is finished, with the layout that the noise was split by, in the first precision. */
struct case_source {
  const struct run_config *config;
  const struct run_data *truth;                                    /* its folder holds batches.safetensors, too */
  const struct run_data *parts;                                    /* case_parts_config's run; NULL: none        */
  const struct run_data *noise[CASE_PRECISIONS][COMPANIONS_NOISE]; /* as companions_noise derives them          */
};

/* What the bounds of one precision come to. */
struct case_bounds {
  int n;                       /* bounds that have a ceiling                      */
  double bound, ceiling;       /* of the one that is nearest to its ceiling       */
  char place[160];             /* "gradient of transformer.wte.weight at step 2"  */
};

/* bounds.P.json of case_precisions[which]; new reference.  Q: the largest distance to the truth that any noise run shows at the
 * place; bound = max(floor, 4 Q).  Fails: ERR_FORMAT (records or tensors are missing, or not finite), ERR_MEMORY. */
enum err case_bounds_json(const struct case_source *s, int which, json_t **out, struct case_bounds *said);

/* All files into the empty folder `dir`; tensors of the truth are moved there, not copied.  bounds: of each precision, borrowed.
 * Fails: ERR_IO, ERR_FORMAT, ERR_MEMORY; then the folder is half filled. */
enum err case_write(const struct case_source *s, json_t *const bounds[CASE_PRECISIONS], const char *dir);

/* A run of one micro-batch a step, those of step 0 in turn, from the first weights; wanted where there are 2 to 64. */
void case_parts_config(const struct run_config *truth, struct run_config *out);
bool case_parts_wanted(const struct run_config *truth);
/* parts.safetensors into `dir`, before the truth's files are moved; nothing where that run's batches are not the truth's micro-batches,
 * since a policy deals them by the size of a batch.  Fails: ERR_FORMAT, ERR_IO, ERR_MEMORY. */
enum err case_write_parts(const struct run_data *truth, const struct run_data *parts, const char *dir);

/* case.json and config.json; new references.  NULL: no memory. */
json_t *case_json(const struct case_source *s);
json_t *case_model_json(const struct run_config *c);
/* The text of README.md: suites/case.md with the case's numbers in it, before the files of the truth are moved.  Fails:
 * ERR_UNAVAILABLE, ERR_IO, ERR_FORMAT (the template names a number that there is not), ERR_MEMORY. */
enum err case_readme(const struct case_source *s, json_t *const bounds[CASE_PRECISIONS], FILE *out);

/* The section of results/schema.md. */
void case_schema_markdown(FILE *out);

#endif
