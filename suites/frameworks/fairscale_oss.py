"""fairscale's OSS optimizer with ShardedDataParallel: each gradient goes to the rank that owns its parameter and only there is it the sum;
that rank updates it and broadcasts it (ZeRO stage 2, whole parameters to ranks).

ShardedDataParallel averages over the replicas.  A gradient is taken from its owner; on other ranks it is not one.  OSS.clip_grad_norm gives
the norm over all ranks.  fairscale's own FullyShardedDataParallel needs CUDA streams and is not run here.  bf16 is autocast.
"""
import contextlib

import fairscale
import torch
import torch.distributed as dist
from fairscale.nn.data_parallel import ShardedDataParallel
from fairscale.optim.oss import OSS

from case import GPT, Job, clip_factor, loss_sum

PLANTS = {
    "local-mean": "each rank divides by its own tokens, as with reduction='mean'",
    "mean-of-means": "each micro-batch's loss divided by its own tokens, the means averaged",
    "clip-own": "each rank clips by the norm of the parameters that it owns",
    "stale-gradient": "gradients not cleared before the second step",
    "broadcast-skipped": "the last rank keeps the old values of what the others updated",
}


def main():
    with Job("fairscale OSS", __doc__, PLANTS, uses=("dp", "zero"), otherwise={"zero": 2}, versions=f"fairscale {fairscale.__version__}") as job:
        case = job.case
        job.groups["dp"] = dist.group.WORLD
        model = case.load(GPT(case.config))
        named = list(model.named_parameters())
        optimizer = job.adamw(named, lambda groups, **o: OSS(groups, optim=torch.optim.AdamW, **o))
        ddp = ShardedDataParallel(model, optimizer)
        for step in range(job.steps):
            tell_whole(job, step, named, optimizer)
            with job.trace(step):
                one_step(job, step, ddp, named, optimizer)
        tell_whole(job, job.steps, named, optimizer)


def owned(job, named, optimizer):
    """Names of the parameters that each rank owns."""
    found = [None] * job.size
    mine = {id(p) for group in optimizer.optim.param_groups for p in group["params"]}
    dist.all_gather_object(found, [name for name, p in named if id(p) in mine])
    return found


def from_owners(job, named, optimizer, of):
    """What `of(name, p)` is on the owner of each parameter, on rank 0."""
    owners, found = owned(job, named, optimizer), [None] * job.size if job.rank == 0 else None
    dist.gather_object({name: of(name, p).detach() for name, p in named if name in owners[job.rank]}, found)
    return {name: t for part in found for name, t in part.items()} if job.rank == 0 else {}


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
            scale = {"local-mean": 1 / mine, "mean-of-means": 1 / int((targets >= 0).sum()) / job.accumulation}.get(plant, dp / valid)
            (loss * scale).backward()
        total += float(loss.detach())
        job.tell_batch(step, m, targets)
        job.tell_microbatch(step, m, loss.detach(), targets)
    job.tell_tensors("gradients", step, from_owners(job, named, optimizer, lambda name, p: p.grad))
    names = owned(job, named, optimizer)[job.rank]
    kept = [p for name, p in named if name in names]
    before = [p.grad.clone() for p in kept]
    job.tell_replica(step, "gradients", "shard", f"pp0 tp0 shard{job.dp}", before)
    norm = torch.nn.utils.clip_grad_norm_(kept, case.clip) if plant == "clip-own" else optimizer.clip_grad_norm(case.clip)
    factor = clip_factor(before, [p.grad for p in kept])
    old = {p: p.detach().clone() for name, p in named if name not in names}
    optimizer.step()
    if plant == "broadcast-skipped" and job.dp == dp - 1:
        for p, value in old.items():
            p.data.copy_(value)
    job.tell_replica(step, "weights", "dp", "pp0 tp0", [p for _, p in named])
    job.tell_step(step, job.total(total), valid, norm, factor, rate)


def tell_whole(job, step, named, optimizer):
    job.tell_tensors("weights", step, dict(named))
    for what, key in (("moments1", "exp_avg"), ("moments2", "exp_avg_sq")):
        def of(name, p):
            return optimizer.optim.state[p][key] if key in optimizer.optim.state.get(p, {}) else torch.zeros_like(p)
        job.tell_tensors(what, step, from_owners(job, named, optimizer, of))


if __name__ == "__main__":
    main()
