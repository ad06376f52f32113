"""DeepSpeed's engine on the CPU accelerator with gloo: plain replicas (zero 0) and ZeRO stages 1, 2 and 3, torch's AdamW, clipping by the engine.

engine.backward divides by the accumulation steps and the engine averages over replicas, so the loss (a sum by the tokens of the whole batch)
is multiplied by both.  Buckets of 9216 elements: exactly as many as one matrix of `tiny` has.  Gradients, masters and moments by DeepSpeed's
own safe_get_full_*.  Its shared-memory collectives, which it would compile at the first start (minutes), are declined: gloo sums.  bf16 is
DeepSpeed's: weights and activations in bf16, masters in float32; gradients accumulated and reduced in float32 because configuration() says so.

In 0.19.8 safe_get_full_optimizer_state finds no moments of a second parameter group: stages 1 and 2 link the state of all groups right after
the first group's first update, when the others have none yet.  So they are linked once more after the first step.
The factor told is that of DeepSpeed's formula (the update shows whether it was used); with zero 0 in float32 the engine tells no norm, and
the norm told is that of the gradients that it shows.
"""
import os

os.environ.setdefault("DS_ACCELERATOR", "cpu")

import deepspeed
import torch
from deepspeed.utils import groups, safe_get_full_fp32_param, safe_get_full_grad, safe_get_full_optimizer_state

from case import GPT, Job, loss_sum, moments

PLANTS = {
    "local-mean": "each rank divides by its own tokens",
    "mean-of-means": "each micro-batch's mean loss, averaged by the engine",
    "accumulation-twice": "the loss is not multiplied by the accumulation steps that engine.backward divides by",
    "logged-local": "the loss that is told is the rank's own",
    "decay-on-all": "all parameters in one group: weight decay of biases and norms, too",
    "rate-by-world": "the learning rate's schedule advances once per process",
}


def configuration(job):
    bf16 = job.run.precision == "bf16"
    zero = {"stage": job.run.zero, "reduce_bucket_size": 9216, "overlap_comm": False}
    if job.run.zero == 3:
        zero.update(stage3_param_persistence_threshold=0, stage3_prefetch_bucket_size=9216, sub_group_size=9216)
    told = {"train_micro_batch_size_per_gpu": job.micro_batch, "gradient_accumulation_steps": job.accumulation, "gradient_clipping": job.case.clip,
            "zero_optimization": zero, "zero_allow_untested_optimizer": True, "bf16": {"enabled": bf16}, "steps_per_print": 1 << 30}
    if bf16:
        told.update(communication_data_type="fp32", data_types={"grad_accum_dtype": "fp32"})
    return told


def main():
    with Job("DeepSpeed", __doc__, PLANTS, uses=("dp", "zero"), otherwise={"zero": 1}, versions=f"deepspeed {deepspeed.__version__}") as job:
        plant, case, run = job.run.plant, job.case, job.run
        deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False
        model = case.load(GPT(case.config))
        named = list(model.named_parameters())
        optimizer = job.adamw(named)
        if plant == "decay-on-all":
            for group in optimizer.param_groups:
                group["weight_decay"] = case.optimizer["weight_decay"]
        engine, optimizer, _, _ = deepspeed.initialize(model=model, optimizer=optimizer, config=configuration(job), dist_init_required=False)
        job.groups["dp"] = groups._get_data_parallel_group()
        for step in range(job.steps):
            tell_whole(job, step, named, optimizer)
            with job.trace(step):
                one_step(job, step, engine, named)
        tell_whole(job, job.steps, named, optimizer)


def one_step(job, step, engine, named):
    plant, case, dp = job.run.plant, job.case, job.run.dp
    rate = job.set_rate(engine.optimizer, min(step * dp, job.steps - 1) if plant == "rate-by-world" else step)
    mine = sum(int((targets >= 0).sum()) for _, _, targets in job.microbatches(step))
    valid = job.total(mine)
    total = 0.0
    for m, tokens, targets in job.microbatches(step):
        loss = loss_sum(engine(tokens), targets)
        scale = dp * job.accumulation / valid
        if plant == "local-mean":
            scale = job.accumulation / mine
        if plant == "mean-of-means":
            scale = 1 / int((targets >= 0).sum())
        if plant == "accumulation-twice":
            scale = dp / valid
        engine.backward(loss * scale)
        if engine.is_gradient_accumulation_boundary():
            gradients = {name: safe_get_full_grad(p).float().clone() for name, p in named}
            job.tell_tensors("gradients", step, gradients)
            job.tell_replica(step, "gradients", "dp", "pp0 tp0", gradients.values())
        engine.step()
        total += float(loss.detach())
        job.tell_batch(step, m, targets)
        job.tell_microbatch(step, m, loss.detach(), targets)
    if step == 0 and getattr(engine.optimizer, "_hp_optimizer_states_linked", False):
        engine.optimizer._hp_optimizer_states_linked = False
        engine.optimizer._lazy_init_hp_params_optimizer_state()
    norm = engine.get_global_grad_norm()
    norm = float(torch.nn.utils.get_total_norm(gradients.values()) if norm is None else norm)
    weights = [whole(safe_get_full_fp32_param(p), p) for _, p in named]
    job.tell_replica(step, "weights", "dp", "pp0 tp0", weights)
    job.tell_step(step, total if plant == "logged-local" else job.total(total), valid, norm, min(1.0, case.clip / (norm + 1e-6)), rate)


def tell_whole(job, step, named, optimizer):
    """Gathered from all ranks by DeepSpeed; moments only once there are some."""
    for what, key in (("weights", None), ("moments1", "exp_avg"), ("moments2", "exp_avg_sq")):
        if key is None:
            job.tell_tensors(what, step, {name: whole(safe_get_full_fp32_param(p), p) for name, p in named})
        elif job.run.zero == 0:
            job.tell_tensors(what, step, moments(optimizer, named)[key == "exp_avg_sq"])
        elif step > 0:
            job.tell_tensors(what, step, {name: safe_get_full_optimizer_state(p, key) for name, p in named})


def whole(master, p):
    return p.detach().float() if master is None else master


if __name__ == "__main__":
    main()
