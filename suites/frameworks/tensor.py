"""PyTorch tensor parallelism by DTensor (parallelize_module) with sequence parallelism, and FSDP2 over replicas when dp > 1.

The tied matrix is cut by vocabulary for the embedding and the head, c_attn (head by head) and c_fc by columns, c_proj by rows, norms work on
a part of each sequence: their gradients are partial sums that DTensor knows as such.  They are added once a step, before clipping: left as they
are, each use would add them anew, and clipping would round the shares before they are added.  bf16 is autocast (dp 1), or FSDP2's policy.
"""
import torch
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard
from torch.distributed.tensor.parallel import (ColwiseParallel, PrepareModuleInput, RowwiseParallel, SequenceParallel,
                                               parallelize_module)

from case import GPT, Job, clip_factor, loss_sum, moments

PLANTS = {
    "norm-not-reduced": "the partial gradient of one norm's gain is taken for the whole",
    "boundary-not-reduced": "the input gradient of one c_fc is not summed over the tensor ranks",
    "row-bias-per-rank": "the bias of one c_proj is added on every tensor rank, before the sum",
    "clip-local-norm": "each rank clips by the norm of what it holds",
    "mean-of-means": "each micro-batch's loss divided by its own tokens, the means averaged",
    "stale-gradient": "gradients not cleared before the second step",
}


def parallelize(model, mesh, plant):
    whole_in = {"input_layouts": (Shard(1),), "desired_input_layouts": (Replicate(),)}
    plan = {
        "transformer.wte": RowwiseParallel(input_layouts=Replicate(), output_layouts=Replicate()),
        "transformer.wpe": RowwiseParallel(input_layouts=Replicate(), output_layouts=Replicate()),
        "transformer.ln_f": SequenceParallel(),
        "lm_head": ColwiseParallel(input_layouts=Shard(1), output_layouts=Replicate()),
    }
    for i, block in model.transformer["h"].items():
        block.attn.heads //= mesh.size()
        at = f"transformer.h.{i}"
        plan.update({f"{at}.ln_1": SequenceParallel(), f"{at}.attn": PrepareModuleInput(**whole_in), f"{at}.attn.c_attn": ColwiseParallel(),
                     f"{at}.attn.c_proj": RowwiseParallel(output_layouts=Shard(1)), f"{at}.ln_2": SequenceParallel(),
                     f"{at}.mlp": PrepareModuleInput(**whole_in), f"{at}.mlp.c_fc": ColwiseParallel(),
                     f"{at}.mlp.c_proj": RowwiseParallel(output_layouts=Shard(1))})
    plan["transformer.h.0"] = PrepareModuleInput(input_layouts=(Replicate(),), desired_input_layouts=(Shard(1),), use_local_output=True)
    parallelize_module(model, mesh, plan)
    model.lm_head.weight = model.transformer["wte"].weight
    mlp, norm = model.transformer["h"]["1"].mlp, model.transformer["h"]["1"].ln_2
    if plant == "boundary-not-reduced":
        replace(mlp.c_fc, lambda x, w, b: torch.nn.functional.linear(x, w, b))
    if plant == "row-bias-per-rank":
        replace(mlp.c_proj, lambda x, w, b: DTensor.from_local(torch.nn.functional.linear(x, w, b), mesh, [Partial()])
                .redistribute(placements=[Shard(1)]).to_local())
    if plant == "norm-not-reduced":
        norm.weight.register_hook(lambda g: DTensor.from_local(g.to_local(), mesh, [Replicate()], run_check=False))


def replace(linear, forward):
    """A linear layer that works on what this rank holds of its parameters, without the hooks of its style."""
    linear._forward_pre_hooks.clear()
    linear._forward_hooks.clear()
    linear.forward = lambda x: forward(x.to_local() if isinstance(x, DTensor) else x, linear.weight.to_local(), linear.bias.to_local())


def main():
    with Job("PyTorch DTensor", __doc__, PLANTS, uses=("dp", "tp", "zero"), otherwise={}) as job:
        run, case = job.run, job.case
        mesh = init_device_mesh("cpu", (run.dp, run.tp), mesh_dim_names=("dp", "tp"))
        job.groups.update(dp=mesh.get_group("dp"), tp=mesh.get_group("tp"))
        if case.config["n_head"] % run.tp or (run.zero == 3) != (run.dp > 1):
            raise ValueError(f"tp {run.tp}, dp {run.dp}, zero {run.zero}; valid: tp that divides {case.config['n_head']} heads; zero 3 with dp > 1, else 0")
        model = case.load(GPT(case.config, by_head=True), by_head=True)
        parallelize(model, mesh["tp"], run.plant)
        if run.dp > 1:
            bf16 = torch.bfloat16 if run.precision == "bf16" else None
            policy = MixedPrecisionPolicy(param_dtype=bf16, reduce_dtype=torch.float32)
            for block in model.transformer["h"].values():
                fully_shard(block, mesh=mesh["dp"], mp_policy=policy)
            fully_shard(model, mesh=mesh["dp"], mp_policy=policy)
        named = list(model.named_parameters())
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
        optimizer.zero_grad()
    valid = job.total(sum(int((targets >= 0).sum()) for _, _, targets in job.microbatches(step)), job.groups["dp"])
    total = 0.0
    for m, tokens, targets in job.microbatches(step):
        with job.autocast() if run.dp == 1 else torch.autocast("cpu", enabled=False):
            loss = loss_sum(model(tokens), targets)
        (loss * (1 / int((targets >= 0).sum()) / job.accumulation if run.plant == "mean-of-means" else run.dp / valid)).backward()
        total += float(loss.detach())
        job.tell_batch(step, m, targets)
        job.tell_microbatch(step, m, loss.detach(), targets)
    for _, p in named:
        p.grad = p.grad.redistribute(placements=p.placements)
    gradients = {name: p.grad.clone() for name, p in named}
    whole = {name: g.full_tensor() for name, g in gradients.items()}
    job.tell_tensors("gradients", step, whole, by_head=True)
    uncut = [name for name, p in named if p.placements[-1].is_replicate()]
    of = f"pp0 dp{job.dp}"
    job.tell_replica(step, "gradients", "tp", of, [whole[name] for name in uncut])
    if run.plant == "clip-local-norm":
        norm = torch.nn.utils.get_total_norm([g.to_local() for g in gradients.values()])
        for _, p in named:
            p.grad.to_local().mul_(min(1.0, case.clip / (float(norm) + 1e-6)))
    else:
        norm = torch.nn.utils.clip_grad_norm_([p for _, p in named], case.clip).full_tensor()
    factor = clip_factor([g.to_local() for g in gradients.values()], [p.grad.to_local() for _, p in named])
    optimizer.step()
    job.tell_replica(step, "weights", "tp", of, [dict(named)[name].to_local() for name in uncut])
    job.tell_step(step, job.total(total, job.groups["dp"]), valid, norm, factor, rate)


def tell_whole(job, step, named, optimizer):
    for what, values in zip(("weights", "moments1", "moments2"), (dict(named), *moments(optimizer, named))):
        job.tell_tensors(what, step, {name: v.full_tensor() for name, v in values.items()}, by_head=True)


if __name__ == "__main__":
    main()
