"""PyTorch DistributedDataParallel: gradients accumulated under no_sync, reduced in buckets during the last backward.

DDP averages over the replicas, so each loss is multiplied by their number and divided by the tokens that count in all of them.  Small
buckets, so that there are several.  bf16 is autocast: gradients, their reduction, moments and weights are float32.
"""
import contextlib

import torch
import torch.distributed as dist
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import bf16_compress_hook
from torch.nn.parallel import DistributedDataParallel

from case import GPT, Job, clip_factor, loss_sum

PLANTS = {
    "local-mean": "each rank divides by its own tokens, as with reduction='mean'",
    "mean-of-means": "each micro-batch's loss divided by its own tokens, the means averaged",
    "parameter-skipped": "a communication hook leaves one parameter as it was on each rank",
    "never-synced": "the last micro-batch is under no_sync, too",
    "stale-gradient": "gradients not cleared before the second step",
    "microbatch-dropped": "backward of the last micro-batch but one left out on the last rank",
    "bf16-reduction": "gradients rounded to bf16 before their reduction",
    "clip-part": "clipped by the norm of the matrices alone",
    "logged-local": "the loss that is told is the rank's own",
    "rate-by-world": "the learning rate's schedule advances once per process",
}
SKIPPED = "transformer.h.1.mlp.c_proj.bias"


def skip_one(state, bucket):
    """The default hook, but for one parameter."""
    group, skipped = state
    own = [g.clone() if p is skipped else None for p, g in zip(bucket.parameters(), bucket.gradients())]
    work = dist.all_reduce(bucket.buffer().div_(group.size()), group=group, async_op=True)

    def put_back(future):
        for mine, g in zip(own, bucket.gradients()):
            if mine is not None:
                g.copy_(mine)
        return future.value()[0]
    return work.get_future().then(put_back)


def main():
    with Job("PyTorch DDP", __doc__, PLANTS) as job:
        plant, case = job.run.plant, job.case
        job.groups["dp"] = dist.group.WORLD
        model = case.load(GPT(case.config))
        named = list(model.named_parameters())
        ddp = DistributedDataParallel(model, bucket_cap_mb=0.05)
        if plant == "parameter-skipped":
            ddp.register_comm_hook((dist.group.WORLD, dict(named)[SKIPPED]), skip_one)
        if plant == "bf16-reduction":
            ddp.register_comm_hook(dist.group.WORLD, bf16_compress_hook)
        optimizer = job.adamw(named)
        for step in range(job.steps):
            job.tell_state(step, named, optimizer)
            with job.trace(step):
                one_step(job, step, ddp, named, optimizer)
        job.tell_state(job.steps, named, optimizer)


def one_step(job, step, ddp, named, optimizer):
    plant, case, dp = job.run.plant, job.case, job.run.dp
    rate = job.set_rate(optimizer, min(step * dp, job.steps - 1) if plant == "rate-by-world" else step)
    if not (plant == "stale-gradient" and step == 1):
        optimizer.zero_grad()
    mine = sum(int((targets >= 0).sum()) for _, _, targets in job.microbatches(step))
    valid = job.total(mine)
    total = 0.0
    for m, tokens, targets in job.microbatches(step):
        last = (m + 1) % job.accumulation == 0
        with contextlib.nullcontext() if last and plant != "never-synced" else ddp.no_sync():
            with job.autocast():
                loss = loss_sum(ddp(tokens), targets)
            scale = dp / valid
            if plant == "local-mean":
                scale = 1 / mine
            if plant == "mean-of-means":
                scale = 1 / int((targets >= 0).sum()) / job.accumulation
            if plant == "microbatch-dropped" and m == job.accumulation * dp - 2:
                scale = 0.0
            (loss * scale).backward()
        total += float(loss.detach())
        job.tell_batch(step, m, targets)
        job.tell_microbatch(step, m, loss.detach(), targets)
    gradients = {name: p.grad.clone() for name, p in named}
    job.tell_tensors("gradients", step, gradients)
    job.tell_replica(step, "gradients", "dp", "pp0 tp0", gradients.values())
    counted = [p.grad for _, p in named if plant != "clip-part" or p.dim() > 1]
    norm = torch.nn.utils.get_total_norm(counted)
    torch.nn.utils.clip_grads_with_norm_([p for _, p in named], case.clip, norm)
    factor = clip_factor(gradients.values(), [p.grad for _, p in named])
    optimizer.step()
    job.tell_replica(step, "weights", "dp", "pp0 tp0", [p for _, p in named])
    job.tell_step(step, total if plant == "logged-local" else job.total(total), valid, norm, factor, rate)


if __name__ == "__main__":
    main()
