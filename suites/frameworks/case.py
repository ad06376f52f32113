"""What all adapters share: the options of a run, the exported case (see README.md in it), a GPT-2 in plain torch.nn, and the records and
tensors that `shardmark check` reads.  An adapter holds the framework's own training loop and nothing of the judging.

A run is `mpirun -np N python ADAPTER.py RUNFILE`, RUNFILE being lines `key: value`, or by hand

    mpirun -np 2 python ddp.py --case CASE --out OUT --dp 2 --precision bf16        (or torchrun --nproc-per-node 2 ddp.py ...)
    shardmark check OUT --against CASE

Exit status: 0 done, 1 the framework failed, 2 a wrong option or case, 77 `not run: WHY`.
"""
import argparse
import contextlib
import hashlib
import json
import os
import pathlib
import platform
import sys
import traceback

import torch
import torch.distributed as dist
from safetensors.torch import load_file, save_file
from torch import nn
from torch.nn import functional as F
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

NOT_RUN = 77
LAYOUT = {"dp": 1, "tp": 1, "pp": 1, "zero": 0, "chunks": 1}
RANK = ("OMPI_COMM_WORLD_RANK", "PMI_RANK", "RANK")
SIZE = ("OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "WORLD_SIZE")


def refuse(why):
    print(f"{pathlib.Path(sys.argv[0]).name}: {why}", file=sys.stderr)
    sys.exit(2)


def not_run(why):
    """The framework cannot run here: neither passed nor failed."""
    print(f"not run: {why}", flush=True)
    sys.exit(NOT_RUN)


def first_of(names, otherwise):
    return next((int(os.environ[name]) for name in names if name in os.environ), otherwise)


# --- options -----------------------------------------------------------------------------------------------------------------------------

def options(about, plants, precisions, uses, otherwise):
    """The run's options from a run file or the command line; `uses`: the keys of LAYOUT that the adapter can set;
    `otherwise`: what it takes where nothing is said."""
    parser = argparse.ArgumentParser(description=about, formatter_class=argparse.RawDescriptionHelpFormatter,
                                     epilog="planted faults:\n" + "\n".join(f"  {name:22} {what}" for name, what in plants.items()))
    parser.add_argument("runfile", nargs="?", help="lines `key: value` with the keys below, in place of them")
    parser.add_argument("--case", help="directory that `shardmark export` wrote")
    parser.add_argument("--out", help="directory for records and tensors, new or empty")
    parser.add_argument("--precision", default="float32", help=" | ".join(precisions))
    for key, value in LAYOUT.items():
        parser.add_argument(f"--{key}", type=int, default=otherwise.get(key, value))
    parser.add_argument("--schedule", default=otherwise.get("schedule", ""))
    parser.add_argument("--micro_batch", type=int, default=0, help="sequences of one pass; 0: the case's")
    parser.add_argument("--steps", type=int, default=0, help="0: the case's")
    parser.add_argument("--plant", default="", help="a planted fault, see below")
    given = sys.argv[1:]
    if len(given) == 1 and not given[0].startswith("-"):
        given = []
        for number, line in enumerate(pathlib.Path(sys.argv[1]).read_text().splitlines(), 1):
            key, colon, value = line.partition(":")
            if not line.strip() or line.startswith("#"):
                continue
            if not colon:
                refuse(f"{sys.argv[1]}:{number}: '{line}' is not `key: value`")
            given.append(f"--{key.strip()}={value.strip().strip(chr(34) + chr(39))}")
    run = parser.parse_args([g for g in given if not g.endswith("=")])
    if not run.case or not run.out:
        refuse("case and out must be given")
    if run.precision not in precisions:
        refuse(f"precision '{run.precision}'; valid: {', '.join(precisions)}")
    if run.plant and run.plant not in plants:
        refuse(f"plant '{run.plant}'; valid: {', '.join(plants) or 'none'}")
    for key, value in LAYOUT.items():
        if key not in uses and getattr(run, key) != value:
            refuse(f"{key} {getattr(run, key)}; valid with this adapter: {value}")
    if run.dp * run.tp * run.pp != first_of(SIZE, 1):
        refuse(f"dp {run.dp} * tp {run.tp} * pp {run.pp} are not the {first_of(SIZE, 1)} processes that were started")
    return run


# --- the model ---------------------------------------------------------------------------------------------------------------------------

class Attention(nn.Module):
    """Causal, no dropout.  by_head: rows of c_attn stand head by head (q k v of head 0, q k v of head 1, ...), so that an even cut of them
    is a cut between heads; else all q, all k, all v, as the case has them.  `heads` is what the c_attn of this rank holds."""

    def __init__(self, hidden, heads, by_head):
        super().__init__()
        self.heads, self.width, self.by_head = heads, hidden // heads, by_head
        self.c_attn = nn.Linear(hidden, 3 * hidden)
        self.c_proj = nn.Linear(hidden, hidden)

    def forward(self, x):
        B, T, _ = x.shape
        qkv = self.c_attn(x)
        qkv = qkv.view(B, T, self.heads, 3, self.width).transpose(2, 3) if self.by_head else qkv.view(B, T, 3, self.heads, self.width)
        q, k, v = (part.transpose(1, 2) for part in qkv.unbind(2))
        return self.c_proj(F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(B, T, self.heads * self.width))


class Mlp(nn.Module):
    def __init__(self, hidden):
        super().__init__()
        self.c_fc = nn.Linear(hidden, 4 * hidden)
        self.c_proj = nn.Linear(4 * hidden, hidden)

    def forward(self, x):
        return self.c_proj(F.gelu(self.c_fc(x), approximate="tanh"))


class Block(nn.Module):
    def __init__(self, hidden, heads, eps, by_head):
        super().__init__()
        self.ln_1, self.attn = nn.LayerNorm(hidden, eps), Attention(hidden, heads, by_head)
        self.ln_2, self.mlp = nn.LayerNorm(hidden, eps), Mlp(hidden)

    def forward(self, x):
        x = x + self.attn(self.ln_1(x))
        return x + self.mlp(self.ln_2(x))


class GPT(nn.Module):
    """GPT-2, or the blocks `blocks` of it, with what stands before them (first) and after them (last).  Parameters have Hugging Face's
    names whatever the cut; matrices are those of nn.Linear, [out, in].  A last stage that is not also the first has a head of its own."""

    def __init__(self, config, blocks=None, first=True, last=True, by_head=False):
        super().__init__()
        hidden, eps = config["n_embd"], config["layer_norm_epsilon"]
        parts = {}
        if first:
            parts["wte"] = nn.Embedding(config["vocab_size"], hidden)
            parts["wpe"] = nn.Embedding(config["n_positions"], hidden)
        parts["h"] = nn.ModuleDict({str(i): Block(hidden, config["n_head"], eps, by_head)
                                    for i in (range(config["n_layer"]) if blocks is None else blocks)})
        if last:
            parts["ln_f"] = nn.LayerNorm(hidden, eps)
        self.transformer = nn.ModuleDict(parts)
        if last:
            self.lm_head = nn.Linear(hidden, config["vocab_size"], bias=False)
            if first:
                self.lm_head.weight = parts["wte"].weight

    def forward(self, x):
        t = self.transformer
        if "wte" in t:
            x = t["wte"](x) + t["wpe"](torch.arange(x.shape[1], device=x.device))
        for block in t["h"].values():
            x = block(x)
        return self.lm_head(t["ln_f"](x)) if "ln_f" in t else x


def loss_sum(logits, targets):
    """Sum over the targets that count; the step's loss is the sum over all ranks and micro-batches by their number."""
    return F.cross_entropy(logits.float().flatten(0, 1), targets.flatten(), ignore_index=-1, reduction="sum")


def is_cut_as_conv1d(name):
    """Hugging Face keeps these [in, out]."""
    return name.endswith((".c_attn.weight", ".c_proj.weight", ".c_fc.weight"))


# --- the case ----------------------------------------------------------------------------------------------------------------------------

class Case:
    def __init__(self, directory):
        self.directory = pathlib.Path(directory)
        try:
            told = json.loads((self.directory / "case.json").read_text())
            self.config = json.loads((self.directory / "config.json").read_text())
        except OSError as error:
            refuse(f"case: {error}")
        if told.get("format") != "shardmark-case" or told.get("version") != 1:
            refuse(f"{directory}/case.json: format {told.get('format')} version {told.get('version')}; valid: shardmark-case version 1")
        self.steps, self.global_batch, self.micro_batch = told["steps"], told["global_batch"], told["micro_batch"]
        self.optimizer, self.clip, self.learning_rates = told["optimizer"], told["clip"], told["learning_rates"]
        self.batches = load_file(str(self.directory / "batches.safetensors"))
        documents, positions = self.batches["documents"], self.batches["positions"]
        expected = torch.arange(documents.shape[1], dtype=positions.dtype).expand_as(positions)
        if bool(((documents != documents[:, :1]) & (documents >= 0)).any()) or bool(((positions != expected) & (documents >= 0)).any()):
            refuse(f"{directory}: sequences hold several documents; export with documents_each 1: these models have a causal mask only")

    def weights(self, by_head=False):
        """Initial weights for GPT: matrices [out, in]."""
        found = load_file(str(self.directory / "model.safetensors"))
        weights = {name: w.t().contiguous() if is_cut_as_conv1d(name) else w for name, w in found.items()}
        weights["lm_head.weight"] = weights.get("lm_head.weight", weights["transformer.wte.weight"])
        return {name: self.to_heads(name, w) for name, w in weights.items()} if by_head else weights

    def load(self, model, by_head=False):
        """Into those parameters that the model has."""
        weights = self.weights(by_head)
        model.load_state_dict({name: weights[name] for name in model.state_dict()})
        return model

    def to_heads(self, name, w, back=False):
        """c_attn from q k v to head by head, or back."""
        if ".c_attn." not in name:
            return w
        heads = self.config["n_head"]
        outer, inner = (heads, 3) if back else (3, heads)
        return w.reshape(outer, inner, w.shape[0] // (3 * heads), *w.shape[1:]).transpose(0, 1).reshape(w.shape).contiguous()


# --- records -----------------------------------------------------------------------------------------------------------------------------

class Calls(TorchDispatchMode):
    """Collectives of a step in the order this rank gave them, each `operation group type elements bytes`; the group with its first rank, since
    ranks of one group must tell the same.  Messages between two ranks are left out: their ends see different things."""

    LEFT_OUT = ("wait", "wrap", "barrier", "send", "recv")

    def __init__(self, groups):
        super().__init__()
        self.names = {group.group_name: f"{name}{min(dist.get_process_group_ranks(group))}" for name, group in groups.items()}
        self.told = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        if func.namespace in ("c10d", "_c10d_functional") and not any(word in func.__name__ for word in self.LEFT_OUT):
            tensor = next(leaf for leaf in tree_leaves(args) if isinstance(leaf, torch.Tensor))
            self.told.append(f"{func._schema.name.split('::')[1].strip('_')} {self.group_of(args)} {str(tensor.dtype).removeprefix('torch.')} "
                             f"{tensor.numel()} {tensor.numel() * tensor.element_size()}")
        return func(*args, **(kwargs or {}))

    def group_of(self, args):
        for a in args:
            if isinstance(a, torch.ScriptObject) and "ProcessGroup" in str(a._type()):
                a = dist.ProcessGroup.unbox(a).group_name
            if isinstance(a, str) and a in self.names:
                return self.names[a]
        return f"rank{dist.get_rank()}"  # of a group that the adapter does not name: compared with nobody's


class Job:
    """One run: its options, its case, this rank's place, and what it tells.  Ranks are numbered tp fastest, then dp, then pp."""

    def __init__(self, framework, about, plants, precisions=("float32", "bf16"), uses=("dp",), otherwise={}, versions="", backend="gloo"):
        self.run = options(about, plants, precisions, uses, otherwise)
        self.case = Case(self.run.case)
        self.steps = self.run.steps or self.case.steps
        self.micro_batch = self.run.micro_batch or self.case.micro_batch
        each = self.case.global_batch // self.run.dp
        if self.steps > self.case.steps or self.case.global_batch % self.run.dp or each % self.micro_batch:
            refuse(f"{self.steps} steps of {self.case.global_batch} sequences in micro-batches of {self.micro_batch} over {self.run.dp} replicas "
                   f"cannot be had from a case of {self.case.steps} steps")
        self.accumulation = each // self.micro_batch
        self.rank, self.size = first_of(RANK, 0), first_of(SIZE, 1)
        self.tp, self.dp, self.pp = self.rank % self.run.tp, self.rank // self.run.tp % self.run.dp, self.rank // (self.run.tp * self.run.dp)
        self.out = pathlib.Path(self.run.out)
        self.out.mkdir(parents=True, exist_ok=True)
        path = self.out / f"records.{self.rank}.jsonl"
        if path.exists():
            refuse(f"{path} is there already: OUT must be a directory without another run's records")
        self.file = path.open("w")
        self.groups = {}
        torch.set_num_threads(1)
        torch.manual_seed(0)
        if self.rank == 0:
            asked = {key: getattr(self.run, key) for key in ("precision", "dp", "tp", "pp", "zero", "schedule", "chunks") if getattr(self.run, key) != ""}
            asked.update(global_batch=self.case.global_batch, micro_batch=self.micro_batch, steps=self.steps)
            told = {"framework": framework, "adapter": pathlib.Path(sys.argv[0]).stem, "ranks": self.size, "planted": self.run.plant,
                    "versions": ", ".join(filter(None, [versions, f"torch {torch.__version__}", f"Python {platform.python_version()}"]))}
            self.tell("run", **{f"set.{k}": v for k, v in asked.items()}, **{f"got.{k}": v for k, v in told.items()})
        self.start(backend)

    def start(self, backend):
        """The default process group; through a file that all ranks of this start, and no other, name alike."""
        if not dist.is_available() or not dist.is_gloo_available():
            not_run(f"torch {torch.__version__} was built without gloo, which these adapters communicate by")
        if "MASTER_ADDR" in os.environ and "RANK" in os.environ:
            dist.init_process_group(backend)
            return
        os.environ.update(RANK=str(self.rank), WORLD_SIZE=str(self.size), LOCAL_RANK=str(self.rank))
        start = os.environ.get("PMIX_NAMESPACE") or os.environ.get("OMPI_MCA_ess_base_jobid") or str(os.getppid())
        where = (self.out / f"rendezvous.{''.join(c for c in start if c.isalnum())}").resolve()
        dist.init_process_group(backend, init_method=f"file://{where}", rank=self.rank, world_size=self.size)

    def __enter__(self):
        return self

    def __exit__(self, kind, error, trace):
        """The record `done`: without an error the run is over and whole."""
        self.tell("done", **{"got.error": "" if kind is None else f"{kind.__name__}: {error}"})
        self.file.close()
        if kind is None:
            dist.barrier()
            dist.destroy_process_group()
        elif not issubclass(kind, SystemExit):
            traceback.print_exception(kind, error, trace)
            sys.stderr.flush()
            os._exit(1)  # a rank that waits for us in a collective would keep the interpreter from ending

    # What the training loop asks

    def microbatches(self, step):
        """(global number, tokens, targets) of each micro-batch of this rank's replica: replica r has the r-th of dp equal parts."""
        for m in range(self.dp * self.accumulation, (self.dp + 1) * self.accumulation):
            row = step * self.case.global_batch + m * self.micro_batch
            yield m, *(self.case.batches[key][row:row + self.micro_batch].long() for key in ("tokens", "targets"))

    def autocast(self):
        return torch.autocast("cpu", torch.bfloat16, enabled=self.run.precision == "bf16")

    def adamw(self, named, kind=torch.optim.AdamW, **more):
        """The case's AdamW over named parameters, decay as the case says."""
        o = self.case.optimizer
        decayed = set(o["decayed"]) | {"lm_head.weight"}
        groups = [{"params": [p for name, p in named if (name in decayed) == decays], "weight_decay": o["weight_decay"] * decays} for decays in (True, False)]
        return kind([g for g in groups if g["params"]], lr=self.case.learning_rates[0], betas=(o["beta1"], o["beta2"]), eps=o["eps"], **more)

    def set_rate(self, optimizer, step):
        for group in optimizer.param_groups:
            group["lr"] = self.case.learning_rates[step]
        return self.case.learning_rates[step]

    def total(self, value, group=None):
        """Sum over the ranks of the group, of all without one."""
        t = torch.tensor(float(value), dtype=torch.float64)
        dist.all_reduce(t, group=group)
        return t.item()

    # What the run tells

    def tell(self, kind, **values):
        self.file.write(json.dumps({"schema": 1, "kind": kind, "case": "foreign", "rank": self.rank, **values}) + "\n")
        self.file.flush()

    def tell_batch(self, step, m, targets):
        row = step * self.case.global_batch + m * self.micro_batch
        tokens = int((self.case.batches["documents"][row:row + self.micro_batch] >= 0).sum())
        self.tell("batch", step=step, microbatch=m, **{"got.samples": list(range(row, row + self.micro_batch)), "got.tokens": tokens,
                                                      "got.valid_tokens": int((targets >= 0).sum())})

    def tell_microbatch(self, step, m, loss, targets):
        """By one of the tensor ranks, which all have the same loss."""
        if self.tp:
            return
        self.tell("microbatch", step=step, microbatch=m, **{"got.loss_sum": float(loss), "got.valid_tokens": int((targets >= 0).sum())})

    def tell_step(self, step, loss, valid, norm, factor, rate):
        values = {"loss_sum": float(loss), "valid_tokens": int(valid), "loss": float(loss) / int(valid), "norm": float(norm), "lr": rate}
        self.tell("step", step=step, **{f"got.{k}": v for k, v in values.items()}, **{"got.clip_factor": float(factor)})
        self.tell_replica(step, "scalars", "world", "", [torch.tensor([float(v) for v in values.values()], dtype=torch.float64)])

    def tell_replica(self, step, what, group, of, tensors):
        """A hash of what must be equal, bit by bit, on all ranks of the group."""
        digest = hashlib.sha1()
        for t in tensors:
            digest.update(t.detach().contiguous().flatten().view(torch.uint8).numpy().tobytes())
        self.tell("replica", step=step, **{"got.what": what, "got.group": group, "got.of": of, "got.hash": digest.hexdigest()[:16]})

    def tell_tensors(self, what, step, named, by_head=False, as_is=False):
        """On rank 0: a file with full tensors by the names and shapes of the case.  what: weights, moments1, moments2 (all before the step),
        gradients (reduced, before clipping, of the mean loss).  as_is: matrices are those of Hugging Face already."""
        if self.rank:
            return
        file = f"{what}.step{step}.safetensors"
        tensors = {}
        for name, t in named.items():
            t = self.case.to_heads(name, t.detach(), back=True) if by_head else t.detach()
            tensors[name] = (t.t() if is_cut_as_conv1d(name) and not as_is else t).contiguous().clone()
        save_file(tensors, str(self.out / file))
        self.tell("tensors", step=step, **{"got.what": what, "got.file": file})

    def tell_state(self, step, named, optimizer, as_is=False):
        """Weights and moments before the step, of a model that this rank holds whole."""
        self.tell_tensors("weights", step, dict(named), as_is=as_is)
        for what, values in zip(("moments1", "moments2"), moments(optimizer, named)):
            self.tell_tensors(what, step, values, as_is=as_is)

    @contextlib.contextmanager
    def trace(self, step):
        with Calls({"world": dist.group.WORLD, **self.groups}) as calls:
            yield
        self.tell("trace", step=step, **{"got.calls": calls.told})


def moments(optimizer, named):
    """The optimizer's first and second moments by name; zero before the first update."""
    def of(p, key):
        return optimizer.state[p][key] if key in optimizer.state.get(p, {}) else torch.zeros_like(p)
    return tuple({name: of(p, key) for name, p in named} for key in ("exp_avg", "exp_avg_sq"))


def clip_factor(before, after):
    """What clipping multiplied the gradients by, as seen on them."""
    dot = sum(float((a.double() * b.double()).sum()) for a, b in zip(after, before))
    return dot / sum(float((b.double() ** 2).sum()) for b in before)
