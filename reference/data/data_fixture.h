/* data_fixture.h - an open corpus with its plan and room for a batch.  Only tests include this. */
#ifndef DATA_DATA_FIXTURE_H
#define DATA_DATA_FIXTURE_H

#include "data/data.h"
#include "testing/check.h"

#include <string.h>

struct fixture {
  struct run_config run;
  struct corpus *corpus;
  struct data_plan *plan;
  struct batch batch;
};

static inline bool setup(struct fixture *f, struct run_config run)
{
  memset(f, 0, sizeof *f);
  f->run = run;
  return CHECK_OK(corpus_open(&f->run, &f->corpus)) && CHECK_OK(data_plan_create(&f->run, f->corpus, &f->plan)) &&
         CHECK_OK(batch_create(run.micro_batch, run.sequence, &f->batch));
}

static inline void teardown(struct fixture *f)
{
  batch_destroy(&f->batch);
  data_plan_destroy(f->plan);
  corpus_close(f->corpus);
}

#endif
