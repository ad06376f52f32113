"""Megatron-core's GPTModel (local layers) with tensor parallelism, its DistributedDataParallel and finalize_model_grads with per-token loss.

Megatron asks for CUDA in places that a CPU can answer: the current device (here "cpu") and the tracker of CUDA's random states (here one that
forks nothing; there is no dropout).  Its optimizer and its clipping do need CUDA: torch's AdamW updates main_grad, and the norm is added over
tensor ranks by Megatron's own rule of what is a duplicate.  Megatron pads the vocabulary to a multiple of tp, and the padded columns take part
in the softmax: that is another model, so the case's vocabulary must be a multiple (export with vocab 132).
"""
import contextlib

import torch
import torch.distributed as dist
from torch.nn import functional as F

torch.cuda.current_device = lambda: "cpu"

import megatron.core as core
from megatron.core import parallel_state, tensor_parallel
from megatron.core.distributed import DistributedDataParallel, DistributedDataParallelConfig, finalize_model_grads
from megatron.core.models.gpt import GPTModel
from megatron.core.models.gpt.gpt_layer_specs import get_gpt_layer_local_spec
from megatron.core.tensor_parallel.layers import param_is_not_tensor_parallel_duplicate
from megatron.core.transformer.transformer_config import TransformerConfig

from case import Job, clip_factor, moments

PLANTS = {
    "row-bias-per-rank": "the bias of one row-cut layer is added on every tensor rank, before the sum",
    "boundary-not-reduced": "the input gradient of one column-cut layer is not summed over the tensor ranks",
    "counted-twice": "parameters that all tensor ranks hold are in the norm once a rank",
    "clip-local-norm": "each rank clips by the norm of what it holds",
    "stale-gradient": "gradients not cleared before the second step",
    "mean-of-means": "calculate_per_token_loss=False, Megatron's default: each micro-batch's mean, averaged",
}
NAMES = {
    "embedding.word_embeddings": "transformer.wte", "embedding.position_embeddings": "transformer.wpe", "decoder.final_layernorm": "transformer.ln_f",
    "input_layernorm": "ln_1", "self_attention.linear_qkv": "attn.c_attn", "self_attention.linear_proj": "attn.c_proj",
    "pre_mlp_layernorm": "ln_2", "mlp.linear_fc1": "mlp.c_fc", "mlp.linear_fc2": "mlp.c_proj",
}


class NoRandomness:
    """In place of the tracker of CUDA's random states."""

    @contextlib.contextmanager
    def fork(self, *_):
        yield


def published(name):
    """Hugging Face's name of a parameter."""
    path, kind = name.removeprefix("module.").rsplit(".", 1)
    if not path.startswith("decoder.layers."):
        return f"{NAMES[path]}.{kind}"
    number, part = path.removeprefix("decoder.layers.").split(".", 1)
    return f"transformer.h.{number}.{NAMES[part]}.{kind}"


def build(job):
    run, c = job.run, job.case.config
    if c["vocab_size"] % run.tp or c["n_head"] % run.tp:
        raise ValueError(f"vocabulary {c['vocab_size']} and {c['n_head']} heads with tp {run.tp}; valid: multiples of tp (export with --set vocab=132)")
    parallel_state.initialize_model_parallel(tensor_model_parallel_size=run.tp)
    job.groups.update(tp=parallel_state.get_tensor_model_parallel_group(), dp=parallel_state.get_data_parallel_group(with_context_parallel=True))
    tensor_parallel.random._CUDA_RNG_STATE_TRACKER, tensor_parallel.random._CUDA_RNG_STATE_TRACKER_INITIALIZED = NoRandomness(), True
    config = TransformerConfig(
        num_layers=c["n_layer"], hidden_size=c["n_embd"], num_attention_heads=c["n_head"], layernorm_epsilon=c["layer_norm_epsilon"],
        tensor_model_parallel_size=run.tp, hidden_dropout=0.0, attention_dropout=0.0, use_cpu_initialization=True,
        activation_func=lambda x: F.gelu(x, approximate="tanh"), bias_activation_fusion=False, masked_softmax_fusion=False,
        bias_dropout_fusion=False, gradient_accumulation_fusion=False, calculate_per_token_loss=run.plant != "mean-of-means")
    model = GPTModel(config, get_gpt_layer_local_spec(), vocab_size=c["vocab_size"], max_sequence_length=c["n_positions"],
                     share_embeddings_and_output_weights=True, position_embedding_type="learned_absolute")
    weights = job.case.weights(by_head=True)
    for name, p in model.named_parameters():
        whole = weights[published(name)]
        p.data.copy_(whole.chunk(run.tp, p.partition_dim)[job.tp] if getattr(p, "tensor_model_parallel", False) else whole)
    layer = model.decoder.layers[1].mlp
    if run.plant == "row-bias-per-rank":  # as many biases in the sum; backward of the sum gives each rank the gradient of one
        summed = layer.linear_fc2.forward
        layer.linear_fc2.forward = lambda x: (summed(x)[0] + (run.tp - 1) * layer.linear_fc2.bias.detach(), layer.linear_fc2.bias)
    if run.plant == "boundary-not-reduced":
        layer.linear_fc1.allreduce_dgrad = False
        layer.linear_fc1.disable_grad_reduce = True
    return DistributedDataParallel(config, DistributedDataParallelConfig(overlap_grad_reduce=False, use_distributed_optimizer=False), model)


def main():
    with Job("Megatron-core", __doc__, PLANTS, precisions=("float32",), uses=("dp", "tp"), versions=f"megatron-core {core.__version__}") as job:
        model = build(job)
        named = [(published(name), p) for name, p in model.named_parameters()]
        optimizer = job.adamw(named)
        for step in range(job.steps):
            tell_whole(job, step, named, optimizer)
            with job.trace(step):
                one_step(job, step, model, named, optimizer)
        tell_whole(job, job.steps, named, optimizer)


def one_step(job, step, model, named, optimizer):
    run, case = job.run, job.case
    rate = job.set_rate(optimizer, step)
    if not (run.plant == "stale-gradient" and step == 1):
        model.zero_grad_buffer()
    mine, total = 0, 0.0
    batches = list(job.microbatches(step))
    for m, tokens, targets in batches:
        T = tokens.shape[1]
        mask = torch.triu(torch.ones(1, 1, T, T, dtype=torch.bool), diagonal=1)
        with contextlib.nullcontext() if m == batches[-1][0] else model.no_sync():
            each = model(tokens, torch.arange(T).expand_as(tokens), mask, labels=targets.clamp(min=0))
            loss = (each.float() * (targets >= 0)).sum()
            (loss / int((targets >= 0).sum()) / job.accumulation if run.plant == "mean-of-means" else loss).backward()
        mine, total = mine + int((targets >= 0).sum()), total + float(loss.detach())
        job.tell_batch(step, m, targets)
        job.tell_microbatch(step, m, loss.detach(), targets)
    finalize_model_grads([model], None if run.plant == "mean-of-means" else torch.tensor(mine))
    for _, p in named:
        p.grad = p.main_grad
    gradients = {name: p.grad.clone() for name, p in named}
    job.tell_tensors("gradients", step, {name: gather(job, p, gradients[name]) for name, p in named}, by_head=True)
    job.tell_replica(step, "gradients", "dp", f"pp0 tp{job.tp}", gradients.values())
    uncut = [p for _, p in named if not getattr(p, "tensor_model_parallel", False)]
    job.tell_replica(step, "gradients", "tp", f"pp0 dp{job.dp}", [p.grad for p in uncut])
    counted = [p.grad for _, p in named if run.plant == "counted-twice" or param_is_not_tensor_parallel_duplicate(p)]
    squares = float(torch.nn.utils.get_total_norm(counted)) ** 2
    norm = torch.tensor((squares if run.plant == "clip-local-norm" else job.total(squares, job.groups["tp"])) ** 0.5)
    torch.nn.utils.clip_grads_with_norm_([p for _, p in named], case.clip, norm)
    factor = clip_factor(gradients.values(), [p.grad for _, p in named])
    optimizer.step()
    optimizer.zero_grad()  # p.grad is main_grad here; left there, the next backward would add it to itself
    job.tell_replica(step, "weights", "dp", f"pp0 tp{job.tp}", [p for _, p in named])
    job.tell_replica(step, "weights", "tp", f"pp0 dp{job.dp}", uncut)
    job.tell_step(step, job.total(total, job.groups["dp"]), job.total(mine, job.groups["dp"]), norm, factor, rate)


def gather(job, p, t):
    """The full tensor of what this tensor rank has a part of."""
    if not getattr(p, "tensor_model_parallel", False):
        return t
    parts = [torch.empty_like(t) for _ in range(job.run.tp)]
    dist.all_gather(parts, t.detach().contiguous(), group=job.groups["tp"])
    return torch.cat(parts, p.partition_dim)


def tell_whole(job, step, named, optimizer):
    for what, values in zip(("weights", "moments1", "moments2"), (dict(named), *moments(optimizer, named))):
        job.tell_tensors(what, step, {name: gather(job, p, values[name]) for name, p in named}, by_head=True)


if __name__ == "__main__":
    main()
