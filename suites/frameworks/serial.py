"""Plain PyTorch in one process: the model and the recording themselves, without a framework.

bf16 is autocast: products in bf16, weights, norms, softmax and the residual stream in float32.
"""
import torch

from case import GPT, Job, clip_factor, loss_sum

PLANTS = {
    "mean-of-means": "each micro-batch's loss divided by its own tokens, the means averaged",
    "stale-gradient": "gradients not cleared before the second step",
    "microbatch-dropped": "backward of the last micro-batch left out",
    "decay-on-all": "weight decay of biases and norms, too",
    "clip-part": "clipped by the norm of the matrices alone",
}


def main():
    with Job("PyTorch, one process", __doc__, PLANTS, uses=()) as job:
        plant, case = job.run.plant, job.case
        model = case.load(GPT(case.config))
        named = list(model.named_parameters())
        optimizer = job.adamw(named)
        if plant == "decay-on-all":
            for group in optimizer.param_groups:
                group["weight_decay"] = case.optimizer["weight_decay"]
        for step in range(job.steps):
            job.tell_state(step, named, optimizer)
            rate = job.set_rate(optimizer, step)
            if not (plant == "stale-gradient" and step == 1):
                optimizer.zero_grad()
            valid = sum(int((targets >= 0).sum()) for _, _, targets in job.microbatches(step))
            total = 0.0
            for m, tokens, targets in job.microbatches(step):
                with job.autocast():
                    loss = loss_sum(model(tokens), targets)
                scale = 1 / valid
                if plant == "mean-of-means":
                    scale = 1 / int((targets >= 0).sum()) / job.accumulation
                if not (plant == "microbatch-dropped" and m == job.accumulation - 1):
                    (loss * scale).backward()
                total += float(loss.detach())
                job.tell_batch(step, m, targets)
                job.tell_microbatch(step, m, loss.detach(), targets)
            gradients = {name: p.grad.clone() for name, p in named}
            job.tell_tensors("gradients", step, gradients)
            counted = [p.grad for _, p in named if plant != "clip-part" or p.dim() > 1]
            norm = torch.nn.utils.get_total_norm(counted)
            torch.nn.utils.clip_grads_with_norm_([p for _, p in named], case.clip, norm)
            factor = clip_factor(gradients.values(), [p.grad for _, p in named])
            optimizer.step()
            job.tell_step(step, total, valid, norm, factor, rate)
        job.tell_state(job.steps, named, optimizer)


if __name__ == "__main__":
    main()
