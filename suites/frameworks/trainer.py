"""transformers' Trainer with its own GPT2LMHeadModel: gradient accumulation, loss by the tokens of the whole window, AdamW, clipping, and data
parallelism (accelerate's DDP) are all the Trainer's.  Labels are as DataCollatorForLanguageModeling makes them: the tokens, padding -100.

transformers 5.24 divides by one token too many for each sequence when the model's class is not called ...ForCausalLM: _get_num_items_in_batch
leaves the first label out only where `loss_type` names the causal loss (huggingface/transformers#46204), and GPT2LMHeadModel has None there.
So loss_type is set here; plant `loss-type-unset` is the release as it is: loss and gradients are n / (n + sequences) of what they should be.

Releases up to 4.45 average the micro-batches' means (huggingface/transformers#34191); the same file runs there, as environment
transformers-old, and is red.  The loss told is what training_step hands back, averaged over ranks: what the Trainer logs, before it rounds.
"""
import contextlib
import os

os.environ.update(HF_HUB_OFFLINE="1", TRANSFORMERS_VERBOSITY="error", ACCELERATE_USE_CPU="true")

import accelerate
import torch
import transformers
from safetensors.torch import load_file
from torch.optim.lr_scheduler import LambdaLR
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainerCallback, TrainingArguments

from case import Job, clip_factor, loss_sum

PLANTS = {
    "mean-of-means": "the Trainer is told that the model takes no count of tokens: each micro-batch's mean, averaged",
    "local-mean": "average_tokens_across_devices=False: each rank divides by its own tokens (huggingface/transformers#34242)",
    "loss-type-unset": "nothing planted: model.loss_type stays None, as transformers leaves it",
    "stale-gradient": "gradients not cleared before the second step",
    "rate-by-world": "the scheduler advances twice for an update (huggingface/transformers#24088)",
    "decay-on-all": "weight decay of biases and norms, too",
}


class Rows(torch.utils.data.Dataset):
    """Rows of the case in the order in which accelerate deals micro-batches to ranks: round and round."""

    def __init__(self, job):
        self.batches, per_step = job.case.batches, job.accumulation * job.run.dp
        numbers = [(s, r * job.accumulation + i) for s in range(job.steps) for i in range(job.accumulation) for r in range(job.run.dp)]
        self.rows = [(s * per_step + m) * job.micro_batch + b for s, m in numbers for b in range(job.micro_batch)]
        if bool((self.batches["targets"][:, -1] >= 0).any()):
            raise ValueError("a sequence's last target counts, which labels that the model shifts cannot say")

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, i):
        row = self.rows[i]
        tokens, targets = self.batches["tokens"][row].long(), self.batches["targets"][row].long()
        labels = torch.cat([tokens[:1], targets[:-1]])
        return {"input_ids": tokens, "labels": torch.where(labels < 0, -100, labels)}


class Told(Trainer):
    """The Trainer, telling what it does."""

    def __init__(self, job, **more):
        super().__init__(**more)
        self.named = list(self.model.named_parameters())
        self.job, self.step, self.number, self.losses = job, 0, 0, 0.0
        if job.run.plant == "mean-of-means":
            self.model_accepts_loss_kwargs = False
        clip = self.accelerator.clip_grad_norm_

        def clip_and_tell(parameters, most, *rest, **kw):
            gradients = {name: p.grad.clone() for name, p in self.named}
            job.tell_tensors("gradients", self.step, gradients, as_is=True)
            job.tell_replica(self.step, "gradients", "dp", "pp0 tp0", gradients.values())
            norm = clip(parameters, most, *rest, **kw)
            self.norm, self.factor = float(norm), clip_factor(gradients.values(), [p.grad for _, p in self.named])
            return norm
        self.accelerator.clip_grad_norm_ = clip_and_tell

    def _get_train_sampler(self, *_):
        return torch.utils.data.SequentialSampler(self.train_dataset)

    def get_decay_parameter_names(self, model):
        return [n for n, _ in model.named_parameters()] if self.job.run.plant == "decay-on-all" else super().get_decay_parameter_names(model)

    def create_scheduler(self, num_training_steps, optimizer=None):
        rates, each = self.job.case.learning_rates, 2 if self.job.run.plant == "rate-by-world" else 1
        self.lr_scheduler = LambdaLR(self.optimizer, lambda s: rates[min(s * each, len(rates) - 1)])
        return self.lr_scheduler

    def training_step(self, *args, **kw):
        loss = super().training_step(*args, **kw)
        self.losses += float(loss)
        return loss

    def compute_loss(self, model, inputs, return_outputs=False, **kw):
        if self.job.run.plant == "mean-of-means":
            kw = {}
        loss, outputs = super().compute_loss(model, inputs, return_outputs=True, **kw)
        m = self.job.dp * self.job.accumulation + self.number
        row = self.step * self.job.case.global_batch + m * self.job.micro_batch
        targets = self.job.case.batches["targets"][row:row + self.job.micro_batch].long()
        self.job.tell_batch(self.step, m, targets)
        self.job.tell_microbatch(self.step, m, loss_sum(outputs["logits"].detach(), targets), targets)
        self.number += 1
        return (loss, outputs) if return_outputs else loss


class Steps(TrainerCallback):
    def on_step_begin(self, args, state, control, **_):
        trainer, job = self.trainer, self.job
        optimizer = getattr(trainer.optimizer, "optimizer", trainer.optimizer)
        job.tell_state(trainer.step, trainer.named, optimizer, as_is=True)
        trainer.rate = optimizer.param_groups[0]["lr"]
        trainer.number, trainer.losses = 0, 0.0
        if job.run.plant == "stale-gradient" and trainer.step == 0:
            trainer.model.zero_grad = trainer.model_wrapped.zero_grad = lambda *a, **kw: None
        trainer.calls = contextlib.ExitStack()
        trainer.calls.enter_context(job.trace(trainer.step))

    def on_step_end(self, args, state, control, **_):
        trainer, job = self.trainer, self.job
        trainer.calls.close()
        valid = job.total(sum(int((targets >= 0).sum()) for _, _, targets in job.microbatches(trainer.step)))
        loss = job.total(trainer.losses) / job.run.dp
        job.tell_replica(trainer.step, "weights", "dp", "pp0 tp0", [p for _, p in trainer.named])
        job.tell_step(trainer.step, loss * valid, valid, trainer.norm, trainer.factor, trainer.rate)
        trainer.step += 1


def main():
    versions = f"transformers {transformers.__version__}, accelerate {accelerate.__version__}"
    with Job("transformers Trainer", __doc__, PLANTS, versions=versions) as job:
        case, o = job.case, job.case.optimizer
        job.groups["dp"] = torch.distributed.group.WORLD
        model = GPT2LMHeadModel(GPT2Config(**case.config))
        weights = load_file(str(case.directory / "model.safetensors"))
        model.transformer.load_state_dict({name.removeprefix("transformer."): w for name, w in weights.items()}, strict=True)
        if job.run.plant != "loss-type-unset":
            model.loss_type = "ForCausalLM"
        os.environ.setdefault("MASTER_ADDR", "localhost")  # accelerate asks for it; the process group is there already
        told = {"average_tokens_across_devices": False} if job.run.plant == "local-mean" else {}
        arguments = TrainingArguments(
            output_dir=str(job.out / "trainer"), per_device_train_batch_size=job.micro_batch, gradient_accumulation_steps=job.accumulation,
            max_steps=job.steps, max_grad_norm=case.clip, learning_rate=1.0, weight_decay=o["weight_decay"], adam_beta1=o["beta1"],
            adam_beta2=o["beta2"], adam_epsilon=o["eps"], optim="adamw_torch", bf16=job.run.precision == "bf16", use_cpu=True, ddp_backend="gloo",
            save_strategy="no", logging_strategy="no", report_to=[], disable_tqdm=True, remove_unused_columns=False, dataloader_pin_memory=False, **told)
        Steps.job = job
        Steps.trainer = trainer = Told(job, model=model, args=arguments, train_dataset=Rows(job), callbacks=[Steps])
        trainer.train()
        job.tell_state(job.steps, trainer.named, getattr(trainer.optimizer, "optimizer", trainer.optimizer), as_is=True)


if __name__ == "__main__":
    main()
