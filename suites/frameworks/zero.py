"""PyTorch ZeroRedundancyOptimizer under DistributedDataParallel: gradients are whole on every rank, each rank keeps the moments of some
parameters, updates these and broadcasts them (ZeRO stage 1, whole parameters to ranks).

bf16 is autocast, as with DDP.
"""
import contextlib

import torch
import torch.distributed as dist
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.nn.parallel import DistributedDataParallel

from case import GPT, Job, clip_factor, loss_sum

PLANTS = {
    "local-mean": "each rank divides by its own tokens, as with reduction='mean'",
    "broadcast-skipped": "the last rank keeps the old values of what the first one updated",
    "decay-on-all": "all parameters in one group: weight decay of biases and norms, too",
    "stale-gradient": "gradients not cleared before the second step",
    "clip-own": "each rank clips by the norm of the parameters that it updates",
}


def main():
    with Job("PyTorch ZeroRedundancyOptimizer", __doc__, PLANTS, uses=("dp", "zero"), otherwise={"zero": 1}) as job:
        plant, case = job.run.plant, job.case
        if job.run.zero != 1:
            raise ValueError(f"zero {job.run.zero}; valid with ZeroRedundancyOptimizer: 1")
        job.groups["dp"] = dist.group.WORLD
        model = case.load(GPT(case.config))
        named = list(model.named_parameters())
        ddp = DistributedDataParallel(model, bucket_cap_mb=0.05)
        optimizer = job.adamw(named, lambda groups, **o: ZeroRedundancyOptimizer(groups, optimizer_class=torch.optim.AdamW, **o))
        if plant == "decay-on-all":
            for group in optimizer.param_groups:
                group["weight_decay"] = case.optimizer["weight_decay"]
        for step in range(job.steps):
            tell_whole(job, step, named, optimizer)
            with job.trace(step):
                one_step(job, step, ddp, named, optimizer)
        tell_whole(job, job.steps, named, optimizer)


def one_step(job, step, ddp, named, optimizer):
    plant, case, dp = job.run.plant, job.case, job.run.dp
    rate = job.set_rate(optimizer, step)
    if not (plant == "stale-gradient" and step == 1):
        ddp.zero_grad()
    mine = sum(int((targets >= 0).sum()) for _, _, targets in job.microbatches(step))
    valid = job.total(mine)
    total = 0.0
    for m, tokens, targets in job.microbatches(step):
        with contextlib.nullcontext() if (m + 1) % job.accumulation == 0 else ddp.no_sync():
            with job.autocast():
                loss = loss_sum(ddp(tokens), targets)
            (loss * (1 / mine if plant == "local-mean" else dp / valid)).backward()
        total += float(loss.detach())
        job.tell_batch(step, m, targets)
        job.tell_microbatch(step, m, loss.detach(), targets)
    gradients = {name: p.grad.clone() for name, p in named}
    job.tell_tensors("gradients", step, gradients)
    job.tell_replica(step, "gradients", "dp", "pp0 tp0", gradients.values())
    mine = {p for group in optimizer.optim.param_groups for p in group["params"]}
    norm = torch.nn.utils.clip_grad_norm_([p for _, p in named if plant != "clip-own" or p in mine], case.clip)
    factor = clip_factor([g for g, (_, p) in zip(gradients.values(), named) if p in mine], [p.grad for _, p in named if p in mine])
    old = {p: p.detach().clone() for _, p in named if p not in mine}
    optimizer.step()
    if plant == "broadcast-skipped" and job.dp == dp - 1:
        for p, value in old.items():
            p.data.copy_(value)
    job.tell_replica(step, "weights", "dp", "pp0 tp0", [p for _, p in named])
    job.tell_step(step, job.total(total), valid, norm, factor, rate)


def tell_whole(job, step, named, optimizer):
    """Weights, and moments as the optimizer consolidates them on rank 0."""
    job.tell_tensors("weights", step, dict(named))
    optimizer.consolidate_state_dict(to=0)
    if job.rank == 0:
        state = optimizer.state_dict()["state"]
        order = {p: i for i, p in enumerate(p for group in optimizer.param_groups for p in group["params"])}
        for what, key in (("moments1", "exp_avg"), ("moments2", "exp_avg_sq")):
            job.tell_tensors(what, step, {name: state[order[p]][key] if state.get(order[p]) else torch.zeros_like(p) for name, p in named})


if __name__ == "__main__":
    main()
