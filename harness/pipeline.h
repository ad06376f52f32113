/* pipeline.h - suites of kind pipeline: what the report draws of a pipeline's stages in time. */
#ifndef HARNESS_PIPELINE_H
#define HARNESS_PIPELINE_H

#include "harness/plan.h"
#include "harness/results.h"

/* For a judged trial of such a suite.  Nothing without `action` records. */
enum err pipeline_record(const struct plan *p, const struct trial *t, const struct results *r);

#endif
