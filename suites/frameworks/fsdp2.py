"""PyTorch FSDP2 (fully_shard): each block and what is around the blocks is a unit whose parameters are cut over the replicas.

zero 3: weights are gathered for each use, gradients reduce-scattered after each micro-batch.  zero 2: weights stay gathered after forward,
gradients are reduced once (set_requires_gradient_sync).  bf16 is MixedPrecisionPolicy: weights and activations in bf16 while they are
used, norms and the residual stream too; shards, their gradients and the reduction in float32.  FSDP2 averages over the replicas.
"""
import torch
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

from case import GPT, Job, clip_factor, loss_sum, moments

PLANTS = {
    "local-mean": "each rank divides by its own tokens, as with reduction='mean'",
    "mean-of-means": "each micro-batch's loss divided by its own tokens, the means averaged",
    "reduce-dtype": "gradients are reduced in bf16",
    "clip-local-norm": "each rank clips by the norm of its own shards",
    "divide-factor": "set_gradient_divide_factor(1) beside a loss that expects the average",
    "stale-gradient": "gradients not cleared before the second step",
    "block-not-synced": "set_requires_gradient_sync(False) is never taken back on one block, whose gradients stay away",
    "logged-local": "the loss that is told is the rank's own",
}


def main():
    with Job("PyTorch FSDP2", __doc__, PLANTS, uses=("dp", "zero"), otherwise={"zero": 3}) as job:
        plant, case = job.run.plant, job.case
        mesh = init_device_mesh("cpu", (job.run.dp,), mesh_dim_names=("dp",))
        job.groups["dp"] = mesh.get_group("dp")
        policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16 if job.run.precision == "bf16" else None,
                                      reduce_dtype=torch.bfloat16 if plant == "reduce-dtype" else torch.float32)
        if job.run.zero not in (2, 3):
            raise ValueError(f"zero {job.run.zero}; valid with FSDP2: 2, 3")
        model = case.load(GPT(case.config))
        for block in model.transformer["h"].values():
            fully_shard(block, mesh=mesh, mp_policy=policy, reshard_after_forward=job.run.zero == 3)
        fully_shard(model, mesh=mesh, mp_policy=policy, reshard_after_forward=job.run.zero == 3)
        if plant == "divide-factor":
            for unit in (*model.transformer["h"].values(), model):
                unit.set_force_sum_reduction_for_comms(True)  # gloo has no scaled sum
                unit.set_gradient_divide_factor(1.0)
        named = list(model.named_parameters())
        optimizer = job.adamw(named)
        for step in range(job.steps):
            tell_whole(job, step, named, optimizer)
            with job.trace(step):
                one_step(job, step, model, named, optimizer)
        tell_whole(job, job.steps, named, optimizer)


def one_step(job, step, model, named, optimizer):
    plant, case, dp = job.run.plant, job.case, job.run.dp
    rate = job.set_rate(optimizer, step)
    if not (plant == "stale-gradient" and step == 1):
        optimizer.zero_grad()
    mine = sum(int((targets >= 0).sum()) for _, _, targets in job.microbatches(step))
    valid = job.total(mine)
    total = 0.0
    for m, tokens, targets in job.microbatches(step):
        model.set_requires_gradient_sync(job.run.zero == 3 or (m + 1) % job.accumulation == 0)
        if plant == "block-not-synced":
            model.transformer["h"]["1"].set_requires_gradient_sync(False)
        loss = loss_sum(model(tokens), targets)
        scale = dp / valid
        if plant == "local-mean":
            scale = 1 / mine
        if plant == "mean-of-means":
            scale = 1 / int((targets >= 0).sum()) / job.accumulation
        (loss * scale).backward()
        total += float(loss.detach())
        job.tell_batch(step, m, targets)
        job.tell_microbatch(step, m, loss.detach(), targets)
    gradients = {name: torch.zeros_like(p) if p.grad is None else p.grad.clone() for name, p in named}
    job.tell_tensors("gradients", step, {name: g.full_tensor() for name, g in gradients.items()})
    of = f"pp0 tp0 shard{job.dp}"
    job.tell_replica(step, "gradients", "shard", of, [g.to_local() for g in gradients.values()])
    if plant == "clip-local-norm":
        norm = torch.nn.utils.get_total_norm([p.grad.to_local() for _, p in named])
        for _, p in named:
            p.grad.to_local().mul_(min(1.0, case.clip / (float(norm) + 1e-6)))
    else:
        norm = torch.nn.utils.clip_grad_norm_([p for _, p in named], case.clip).full_tensor()
    factor = clip_factor([g.to_local() for g in gradients.values()],
                         [torch.zeros_like(p.to_local()) if p.grad is None else p.grad.to_local() for _, p in named])
    optimizer.step()
    job.tell_replica(step, "weights", "shard", of, [p.to_local() for _, p in named])
    job.tell_step(step, total if plant == "logged-local" else job.total(total), valid, norm, factor, rate)


def tell_whole(job, step, named, optimizer):
    """Shards gathered on every rank, written on rank 0."""
    for what, values in zip(("weights", "moments1", "moments2"), (dict(named), *moments(optimizer, named))):
        job.tell_tensors(what, step, {name: v.full_tensor() for name, v in values.items()})


if __name__ == "__main__":
    main()
