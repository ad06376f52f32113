"""torch.distributed.pipelining: GPipe, 1F1B, interleaved 1F1B, and zero-bubble (ScheduleInterleavedZeroBubble, schedule zb-h1).

Blocks are cut evenly over pp * chunks stages.  Losses are sums by the tokens of the whole batch, so schedules are told scale_grads=False.
The schedule knows neither the tied matrix nor other stages' norms: the first and the last stage add their two gradients of it, and squares
of norms are added over stages, the tied matrix counted once.  Replicas: DDP around each stage, but plain all-reduces after zb-h1, whose
split backward runs no hooks, so DDP would reduce nothing (pytorch/pytorch#144530; plant zb-ddp: nothing is planted but DDP).  DDP rebuilds
its buckets after the first backward, which with pipelining's own no_sync ends in an internal assertion in 2.15; find_unused_parameters keeps
it from that.  bf16 is autocast in each stage's forward; what stages exchange is the float32 residual stream.
"""
import torch
import torch.distributed as dist
from torch.distributed import pipelining
from torch.distributed.device_mesh import init_device_mesh
from torch.nn.parallel import DistributedDataParallel

from case import GPT, Job, clip_factor, loss_sum, moments

SCHEDULES = {"gpipe": pipelining.ScheduleGPipe, "1f1b": pipelining.Schedule1F1B, "interleaved": pipelining.ScheduleInterleaved1F1B,
             "zb-h1": pipelining.ScheduleInterleavedZeroBubble}
MULTI = ("interleaved", "zb-h1")
PLANTS = {
    "tied-not-summed": "first and last stage keep their own gradient of the tied matrix",
    "zb-ddp": "schedule zb-h1 with DDP around the stages, which reduces nothing",
    "clip-stage": "each stage clips by its own norm",
    "tied-counted-twice": "both copies of the tied matrix are in the norm",
    "mean-of-means": "a loss that is each micro-batch's mean, with the schedule's own scale_grads",
    "stale-gradient": "gradients not cleared before the second step; those of the tied matrix are summed once more",
    "layer-number-local": "each stage loads its blocks by the number within the stage",
}


class Stage(torch.nn.Module):
    """Part of the model, with autocast around its forward alone."""

    def __init__(self, part, job):
        super().__init__()
        self.part, self.job = part, job

    def forward(self, x):
        with self.job.autocast():
            return self.part(x)


def main():
    with Job("torch.distributed.pipelining", __doc__, PLANTS, uses=("dp", "pp", "chunks"), otherwise={"schedule": "1f1b"}) as job:
        run, case = job.run, job.case
        if run.schedule not in SCHEDULES or (run.chunks > 1 and run.schedule not in MULTI):
            raise ValueError(f"schedule '{run.schedule}' with {run.chunks} chunks; valid: {', '.join(SCHEDULES)}; chunks with {', '.join(MULTI)}")
        mesh = init_device_mesh("cpu", (run.pp, run.dp), mesh_dim_names=("pp", "dp"))
        job.groups.update(dp=mesh.get_group("dp"), pp=mesh.get_group("pp"))
        ends = [dist.new_group([r, (run.pp - 1) * run.dp + r]) for r in range(run.dp)] if run.pp > 1 else []
        job.ends = job.groups["tied"] = ends[job.dp] if ends else dist.group.WORLD
        total, layers = run.pp * run.chunks, case.config["n_layer"]
        bounds = [layers * s // total for s in range(total + 1)]
        parts, stages = [], []
        for s in range(job.pp, total, run.pp):
            part = case.load(GPT(case.config, range(bounds[s], bounds[s + 1]), s == 0, s == total - 1))
            if run.plant == "layer-number-local":
                weights = case.weights()
                for name, p in part.named_parameters():
                    number = name.split(".")[2] if ".h." in name else ""
                    p.data.copy_(weights[name.replace(f".h.{number}.", f".h.{int(number) - bounds[s]}.") if number else name])
            module = Stage(part, job)
            if run.dp > 1 and (run.schedule != "zb-h1" or run.plant == "zb-ddp"):
                module = DistributedDataParallel(module, process_group=job.groups["dp"], find_unused_parameters=True)
            parts.append(part)
            stages.append(pipelining.PipelineStage(module, s, total, torch.device("cpu"), group=job.groups["pp"]))
        named = list({name: p for part in parts for name, p in part.named_parameters()}.items())
        optimizer = job.adamw(named)
        job.scale = 0.0
        schedule = SCHEDULES[run.schedule](stages if run.schedule in MULTI else stages[0], job.accumulation,
                                           loss_fn=lambda logits, targets: mean_or_sum(job, logits, targets), scale_grads=run.plant == "mean-of-means")
        for step in range(job.steps):
            tell_whole(job, step, named, optimizer)
            with job.trace(step):
                one_step(job, step, schedule, named, optimizer)
        tell_whole(job, job.steps, named, optimizer)


def mean_or_sum(job, logits, targets):
    loss = loss_sum(logits, targets)
    job.losses.append(float(loss.detach()))
    return loss / (targets >= 0).sum() if job.run.plant == "mean-of-means" else loss * job.scale


def one_step(job, step, schedule, named, optimizer):
    run, case = job.run, job.case
    rate = job.set_rate(optimizer, step)
    if not (run.plant == "stale-gradient" and step == 1):
        optimizer.zero_grad()
    batches = list(job.microbatches(step))
    valid = job.total(sum(int((targets >= 0).sum()) for _, _, targets in batches), job.groups["dp"])
    ddp = run.dp > 1 and (run.schedule != "zb-h1" or run.plant == "zb-ddp")
    job.scale, job.losses = (run.dp if ddp else 1) / valid, []
    tokens = [torch.cat([t for _, t, _ in batches])] if job.pp == 0 else []
    schedule.step(*tokens, **({"target": torch.cat([t for _, _, t in batches])} if job.pp == run.pp - 1 else {}))
    job.losses = job.losses[-job.accumulation:]  # the first step begins with a pass of its own, which finds out shapes
    for m, _, targets in batches:
        job.tell_batch(step, m, targets)
    for (m, _, targets), loss in zip(batches, job.losses):
        job.tell_microbatch(step, m, loss, targets)
    if run.dp > 1 and not ddp:
        for _, p in named:
            dist.all_reduce(p.grad, group=job.groups["dp"])
    tied = [p for name, p in named if name in ("transformer.wte.weight", "lm_head.weight")] if run.pp > 1 else []
    if tied and run.plant != "tied-not-summed":
        dist.all_reduce(tied[0].grad, group=job.ends)
    gradients = {name: p.grad.clone() for name, p in named}
    tell_parts(job, "gradients", step, gradients)
    job.tell_replica(step, "gradients", "dp", f"pp{job.pp} tp0", gradients.values())
    counted = [p.grad for name, p in named if name != "lm_head.weight" or run.plant == "tied-counted-twice"]
    norm = torch.nn.utils.get_total_norm(counted)
    if run.plant != "clip-stage":
        norm = torch.tensor(job.total(norm ** 2, job.groups["pp"]) ** 0.5)
    torch.nn.utils.clip_grads_with_norm_([p for _, p in named], case.clip, norm)
    factor = clip_factor(gradients.values(), [p.grad for _, p in named])
    optimizer.step()
    job.tell_replica(step, "weights", "dp", f"pp{job.pp} tp0", [p for _, p in named])
    if tied:
        job.tell_replica(step, "gradients", "tied", f"dp{job.dp}", [gradients[name] for name, p in named if p is tied[0]])
        job.tell_replica(step, "weights", "tied", f"dp{job.dp}", tied)
    job.tell_step(step, job.total(sum(job.losses)), valid, norm, factor, rate)


def tell_parts(job, what, step, mine):
    """What the stages of the first replica hold, together on rank 0; the head's copy of the tied matrix is told by its hash alone."""
    found = [None] * job.size if job.rank == 0 else None
    dist.gather_object({name: t.detach() for name, t in mine.items() if name != "lm_head.weight"} if job.dp == 0 else {}, found)
    if job.rank == 0:
        job.tell_tensors(what, step, {name: t for part in found for name, t in part.items()})


def tell_whole(job, step, named, optimizer):
    for what, values in zip(("weights", "moments1", "moments2"), (dict(named), *moments(optimizer, named))):
        tell_parts(job, what, step, values)


if __name__ == "__main__":
    main()
