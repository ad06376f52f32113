/* attention_heads_cpu.h - kernels of attention.c for one work type: the heads, shared out over threads. */
static enum err OP(heads_run)(const struct attention_args *a, bool backward)
{
  struct err_saved saved = {.code = ERR_OK};
  const int64_t n = a->docs.rows * a->heads;
#pragma omp parallel for schedule(static) if (n > 1 && tensor_count(&a->qkv) >= PARALLEL_FROM)
  for (int64_t i = 0; i < n; i++) {
    const enum err err = OP(head_at)(a, i, backward);
    if (err != ERR_OK) {
#pragma omp critical(attention_error)
      err_save(&saved, err);
    }
  }
  return saved.code == ERR_OK ? ERR_OK : err_restore(&saved);
}

static enum err OP(op_attention_fwd)(void *args) { return OP(heads_run)(args, false); }
static enum err OP(op_attention_bwd)(void *args) { return OP(heads_run)(args, true); }
