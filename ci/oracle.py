"""Hold the reference trainer's float64 run against PyTorch (called by ci/oracle).

Both start from the same exported weights and take the same batches, with ignored targets and
two documents in some sequences.  PyTorch never sees our attention mask: each document is a
row of its own there, so document boundaries are checked as well.  Any floored relative error
above BOUND ends with status 1 and writes nothing.
"""
import math
import pathlib
import shutil
import subprocess
import sys

import torch
from safetensors.torch import load_file, save_file
from transformers import GPT2Config, GPT2LMHeadModel

BOUND = 1e-10
FIXTURE = pathlib.Path("reference/train/oracle")
LAYERS, HEADS, HIDDEN, POSITIONS, VOCAB = 2, 3, 12, 16, 29
SEQUENCE, BATCH, STEPS = 14, 6, 3
LR, BETAS, EPS, DECAY = 1e-2, (0.9, 0.95), 1e-8, 0.1
CLIP = 0.9  # between the norms of the steps: active in some, not in others (checked below)


def make_batches():
    """tokens, targets, positions, documents: int32 [BATCH * STEPS, SEQUENCE]."""
    generator = torch.Generator().manual_seed(20240229)
    rows = BATCH * STEPS
    tokens = torch.randint(0, VOCAB, (rows, SEQUENCE), generator=generator, dtype=torch.int32)
    targets = torch.full_like(tokens, -1)
    positions = torch.zeros_like(tokens)
    documents = torch.full_like(tokens, -1)
    for row in range(rows):
        # One or two documents, then padding; lengths differ from row to row.
        first = int(torch.randint(2, SEQUENCE + 1, (1,), generator=generator))
        second = int(torch.randint(0, SEQUENCE - first + 1, (1,), generator=generator)) if row % 2 else 0
        at = 0
        for number, length in enumerate([first, second]):
            if length == 0:
                continue
            span = slice(at, at + length)
            positions[row, span] = torch.arange(length, dtype=torch.int32)
            documents[row, span] = 2 * row + number
            targets[row, at:at + length - 1] = tokens[row, at + 1:at + length]
            if row % 3 == 1:  # some targets do not count
                targets[row, at] = -1
            at += length
        tokens[row, at:] = 0
    return {"tokens": tokens, "targets": targets, "positions": positions, "documents": documents}


def documents_of(batches, step):
    """(tokens, targets) of every document of one step, as 1-d tensors."""
    for row in range(step * BATCH, (step + 1) * BATCH):
        ids = batches["documents"][row]
        for document in sorted(set(ids[ids >= 0].tolist())):
            span = ids == document
            yield batches["tokens"][row][span].long(), batches["targets"][row][span].long()


def run_ours(tied, work):
    options = {
        "name": f"oracle-{'tied' if tied else 'untied'}", "model": "tiny", "layers": LAYERS, "heads": HEADS,
        "hidden": HIDDEN, "positions": POSITIONS, "vocab": VOCAB, "sequence": SEQUENCE, "precision": "float64",
        "weights_as": "float64", "tied": str(tied).lower(), "global_batch": BATCH, "micro_batch": 2, "steps": STEPS,
        "optimizer": "adamw", "lr": LR, "lr_schedule": "constant", "lr_warmup": 0, "beta1": BETAS[0], "beta2": BETAS[1],
        "eps": EPS, "weight_decay": DECAY, "clip": CLIP, "dropout": 0, "dump": "all",
        "batch_file": str(FIXTURE / "batches.safetensors"), "seed": 11,
    }
    run = FIXTURE / f"{'tied' if tied else 'untied'}.yaml"
    run.write_text("# Written by ci/oracle; run by oracle_test.  Paths are relative to the source tree.\n"
                   + "".join(f"{key}: {value}\n" for key, value in options.items()))
    shutil.rmtree(work, ignore_errors=True)
    subprocess.run(["build/shardmark-train", str(run), "--set", f"out={work}"], check=True, timeout=120)


def floored_error(got, want, rms):
    """The floored relative error of one parameter: distance over max(|want|, 0.01 rms sqrt(n))."""
    floor = 0.01 * rms * math.sqrt(want.numel())
    return float((got - want).norm() / max(float(want.norm()), floor))


def compare(what, got, want):
    rms = math.sqrt(sum(float((w * w).sum()) for w in want.values()) / sum(w.numel() for w in want.values()))
    if set(got) != set(want):
        sys.exit(f"{what}: names differ: {sorted(set(got) ^ set(want))}")
    errors = {name: floored_error(got[name].reshape(want[name].shape), want[name], rms) for name in want}
    worst = max(errors, key=errors.get)
    print(f"{what:28} worst {worst:40} {errors[worst]:.2e}")
    if not errors[worst] <= BOUND:
        sys.exit(f"{what}: {worst} is off by {errors[worst]:.3e}, bound {BOUND}")


def check(tied, batches, work):
    run_ours(tied, work)
    config = GPT2Config(vocab_size=VOCAB, n_positions=POSITIONS, n_embd=HIDDEN, n_layer=LAYERS, n_head=HEADS,
                        activation_function="gelu_new", resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0,
                        layer_norm_epsilon=1e-5, tie_word_embeddings=tied)
    model = GPT2LMHeadModel(config).double().train()
    start = load_file(str(work / "weights.step0.safetensors"))
    missing, unexpected = model.load_state_dict(start, strict=False)
    missing = [name for name in missing if not name.endswith(("attn.bias", "attn.masked_bias"))
               and not (tied and name == "lm_head.weight")]
    if missing or unexpected:
        sys.exit(f"weights do not fit GPT2LMHeadModel: missing {missing}, unexpected {unexpected}")
    named = dict(model.named_parameters())
    optimizer = torch.optim.AdamW(
        [{"params": [p for p in named.values() if p.dim() > 1], "weight_decay": DECAY},
         {"params": [p for p in named.values() if p.dim() == 1], "weight_decay": 0.0}], lr=LR, betas=BETAS, eps=EPS)
    losses, norms, gradients = [], [], None
    for step in range(STEPS):
        optimizer.zero_grad()
        valid = sum(int((targets >= 0).sum()) for _, targets in documents_of(batches, step))
        total = 0.0
        for tokens, targets in documents_of(batches, step):
            logits = model(tokens[None]).logits[0]
            loss = torch.nn.functional.cross_entropy(logits, targets, ignore_index=-1, reduction="sum")
            (loss / valid).backward()
            total += float(loss)
        losses.append(total / valid)
        ours = load_file(str(work / f"gradients.step{step}.safetensors"))
        wanted = {name: p.grad.clone() for name, p in named.items()}
        compare(f"gradients of step {step}", ours, wanted)
        gradients = gradients or wanted
        norms.append(float(torch.nn.utils.clip_grad_norm_(list(named.values()), CLIP)))
        optimizer.step()
        compare(f"weights after step {step}", load_file(str(work / f"weights.step{step + 1}.safetensors")),
                {name: p.detach() for name, p in named.items()})
    active = [norm > CLIP for norm in norms]
    if all(active) or not any(active):
        sys.exit(f"clipping at {CLIP} is {'always' if all(active) else 'never'} active: norms {norms}")
    print(f"losses {losses}  norms {norms}")
    numbers = {f"gradients.{name}": g for name, g in gradients.items()}
    numbers.update({f"weights.{name}": p.detach().clone() for name, p in named.items()})
    numbers["losses"] = torch.tensor(losses, dtype=torch.float64)
    numbers["norms"] = torch.tensor(norms, dtype=torch.float64)
    save_file(numbers, str(FIXTURE / f"{'tied' if tied else 'untied'}.safetensors"),
              metadata={"source": f"torch {torch.__version__}, GPT2LMHeadModel in float64"})


def main():
    FIXTURE.mkdir(parents=True, exist_ok=True)
    batches = make_batches()
    save_file(batches, str(FIXTURE / "batches.safetensors"))
    for tied in (True, False):
        print("tied head" if tied else "untied head")
        check(tied, batches, pathlib.Path(f"build/oracle-{'tied' if tied else 'untied'}"))
    print(f"within {BOUND} of PyTorch; fixture in {FIXTURE}")


if __name__ == "__main__":
    main()
