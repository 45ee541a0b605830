"""The training loop. Names no method: a run's plans bring theirs. Reads top to bottom in `train`."""

import dataclasses
import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from ddot import __version__
from ddot.checkpoint import (
    check_vocabulary,
    check_weights,
    complete_steps,
    damaged,
    load_config,
    load_tensors,
    model_folder,
    save_model,
    save_step,
    save_tensors,
)
from ddot.corpora import read, sentences
from ddot.denoiser import Denoiser, DenoiserConfig
from ddot.distributed import agree, barrier, hand_out, processes, spread, whole, whole_state
from ddot.loader import Batches
from ddot.losses import LOSSES
from ddot.methods.method import Method
from ddot.optimisers import Average, Muon, warm_hold_decay
from ddot.packing import Corpus, pack
from ddot.progress import Meter
from ddot.quantise import decompress
from ddot.records import Slots, to_device
from ddot.run import Run, Training
from ddot.tokens import Tokenizer, learn_bpe


class Objective(nn.Module):
    """The network with its loss, as one module: what is replicated or sharded."""

    def __init__(self, model: Denoiser):
        super().__init__()
        self.model = model

    def forward(self, method: Method, slots: Slots, position_factor: float) -> Tensor:
        losses = method.loss(self.model, slots, position_factor)
        return torch.stack([getattr(losses, name) for name in LOSSES])


def train(run: Run, output: Path, resume: bool = False) -> dict[str, Any]:
    """Train and save. Returns the last logged figures."""
    hold = run.training
    if hold.steps is None and hold.seconds is None:
        raise ValueError("a run needs an end: set training.steps or training.seconds")
    with processes(hold.device) as (rank, world, device):
        done = complete_steps(output)
        if done and not resume:
            raise ValueError(f"{output} holds a run already; add --resume to go on with it, or choose another --output")
        tokenizer, corpora = open_data(run, output, rank)
        batches = Batches(corpora, run.plans, tokenizer, hold.slots, hold.seed, run.data.edges, rank, world)

        model, tokenizer = build(run, tokenizer)
        objective = Objective(model.to(device))
        parallel = spread(objective, model.trunk.blocks, world, hold.sharded)  # type: ignore[attr-defined]
        optimisers = make_optimisers(objective.model, hold)
        average = Average(dict(objective.model.named_parameters()), hold.average) if hold.average else None
        step, before = 0, 0.0
        if done:
            step, before = restore(done[-1], objective, optimisers, average, rank)
        if hold.compile:
            compile_blocks(objective.model)

        def save() -> None:
            """Everybody gathers, process 0 writes."""
            weights = average.weights if average else dict(objective.model.named_parameters())
            final = {name: whole(weight) for name, weight in weights.items()}
            state = whole_state(objective, optimisers)
            if rank == 0:
                meta = describe(run, step, before + meter.elapsed(), meter.last)
                write = _writer(final, state, objective.model.config, tokenizer, meta, hold.shard_bytes)
                size = sum(t.numel() * t.element_size() for t in (*final.values(), *state.values()))
                save_step(output, step, write, size)

        meter = Meter(run, output, step, before, rank, world, flops(objective.model.config), device)
        stream = batches.stream(step, hold.steps or 1 << 40, run.data.workers)
        saved = -1
        with meter, interruptions() as interrupted:
            while True:
                progress = agree(_progress(step, before + meter.elapsed(), hold))
                if progress >= 1 or agree(float(interrupted())):
                    break
                with meter.waiting():
                    index, slots = next(stream)
                factor = warm_hold_decay(step, progress, hold.warmup, hold.decay)
                for optimiser in optimisers:
                    for group in optimiser.param_groups:
                        group["lr"] = group["full_rate"] * factor
                position_factor = hold.position_factor * min(1.0, (step + 1) / max(1, hold.position_warmup))

                figures = []
                for part in pieces(to_device(slots, device), hold.accumulate):
                    with autocast(device, hold.bf16):
                        losses = parallel(run.plans[index].method, part, position_factor)
                    (losses[0] / hold.accumulate).backward()
                    figures.append(losses.detach())
                norm = nn.utils.clip_grad_norm_(objective.parameters(), hold.clip)
                for optimiser in optimisers:
                    optimiser.step()
                    optimiser.zero_grad()
                if average:
                    average.update(dict(objective.model.named_parameters()), step)
                step += 1

                meter.count(step, torch.stack(figures).mean(0), norm, factor, slots)
                if hold.dev_every and step % hold.dev_every == 0:
                    meter.dev(step, dev_losses(run, objective, tokenizer, device, rank, world))
                if hold.save_every and step % hold.save_every == 0:
                    save()
                    saved = step
            if hold.save_every and saved != step:
                save()
            meter.finish(step)
        return meter.last


def open_data(run: Run, output: Path, rank: int) -> tuple[Tokenizer, list[tuple[float, Corpus]]]:
    """The corpora of a run and the tokenizer they were packed with. Texts are packed first, by process 0."""
    folder, sources = Path(run.data.folder), run.data.sources
    if run.data.texts:
        folder, sources = output, (("data", 1.0),)
        if rank == 0 and not (output / "data").is_dir():
            texts = [text for source in run.data.texts for text in read(source)]
            given = Tokenizer.load(model_folder(run.start)) if run.start else learn_bpe(texts, run.data.tokens)
            pack((sentences(text) for text in texts), given, output / "data")
        barrier()
    if not sources:
        raise ValueError("a run needs data: set data.texts, or data.folder and data.sources (see `ddot prepare`)")
    corpora = [(weight, Corpus(folder / name)) for name, weight in sources]
    return Tokenizer.load(corpora[0][1].folder), corpora


def build(run: Run, tokenizer: Tokenizer) -> tuple[Denoiser, Tokenizer]:
    """The network a run starts with: fresh, or from a model folder (whose tokenizer is then the run's).

    What the run's network has and the folder's has not, keeps its fresh, neutral values.
    """
    torch.manual_seed(run.training.seed)
    if run.start is None:
        return Denoiser(run.network(tokenizer.vocabulary)), tokenizer
    folder = model_folder(run.start)
    old, tokenizer = load_config(folder), Tokenizer.load(folder)
    check_vocabulary(old, tokenizer, folder)
    config = run.network(tokenizer.vocabulary)
    if config.trunk != old.trunk:
        raise ValueError(f"{run.start} has the trunk {old.trunk}; the recipe {run.name} wants {config.trunk}")
    model = Denoiser(config)
    fresh = {name: weight for name, weight in model.state_dict().items() if not name.startswith("trunk.")}
    weights = {**fresh, **decompress(load_tensors(folder, "model"))}
    check_weights(model, weights, folder)
    model.load_state_dict(weights)
    return model, tokenizer


def make_optimisers(model: Denoiser, hold: Training) -> list[torch.optim.Optimizer]:
    """AdamW, and Muon for the matrices inside blocks if the run asks for it."""
    matrices: list[nn.Parameter] = []
    trunk: list[nn.Parameter] = []
    added: list[nn.Parameter] = []
    for name, parameter in model.named_parameters():
        in_block = name.startswith("trunk.blocks.") and parameter.dim() == 2 and "adaLN" not in name
        (matrices if in_block and hold.matrix_rate else trunk if name.startswith("trunk.") else added).append(parameter)
    groups = [
        {"params": trunk, "full_rate": hold.rate},
        {"params": added, "full_rate": hold.rate if hold.added_rate is None else hold.added_rate},
    ]
    fused = next(model.parameters()).device.type == "cuda"
    optimisers: list[torch.optim.Optimizer] = [
        torch.optim.AdamW(groups, betas=hold.betas, weight_decay=hold.weight_decay, fused=fused)
    ]
    if hold.matrix_rate:
        optimisers.append(Muon(matrices, lr=0.0, weight_decay=hold.weight_decay))
        optimisers[-1].param_groups[0]["full_rate"] = hold.matrix_rate
    return optimisers


def restore(
    folder: Path, objective: Objective, optimisers: list[torch.optim.Optimizer], average: Average | None, rank: int
) -> tuple[int, float]:
    """(step, seconds so far) of a checkpoint; weights, optimizers and average are set to it."""
    with damaged(folder):
        meta = json.loads((folder / "meta.json").read_text())
        flat = load_tensors(folder / "state", "state") if rank == 0 else {}
        hand_out(objective, optimisers, flat)
        if average:
            saved = load_tensors(folder, "model")
            for name, weight in average.weights.items():
                _fill(weight, saved[name])
    return meta["step"], meta["seconds"]


def _fill(weight: Tensor, value: Tensor) -> None:
    from torch.distributed.tensor import DTensor, distribute_tensor

    if isinstance(weight, DTensor):
        weight.copy_(distribute_tensor(value.to(weight.device), weight.device_mesh, weight.placements))
    else:
        weight.copy_(value)


def compile_blocks(model: Denoiser) -> None:
    """Compile block by block: one block's code serves all of them, so it takes seconds, not a minute."""
    torch._dynamo.config.cache_size_limit = 64
    for block in model.trunk.blocks:  # type: ignore[attr-defined]
        block.compile(dynamic=False)
    model.token_loss = torch.compile(model.token_loss, dynamic=True)  # type: ignore[method-assign]


def pieces(slots: Slots, count: int) -> Iterator[Slots]:
    """The rows of a batch in `count` interleaved parts."""
    for i in range(count):
        yield Slots(**{field.name: getattr(slots, field.name)[i::count] for field in dataclasses.fields(slots)})


def autocast(device: torch.device, bf16: bool) -> Any:
    return torch.autocast(device.type, torch.bfloat16) if bf16 else nullcontext()


@torch.no_grad()
def dev_losses(
    run: Run, objective: Objective, tokenizer: Tokenizer, device: torch.device, rank: int, world: int
) -> dict[str, float]:
    """Mean losses over the first batches of the dev corpus, the same ones each time. Read by process 0 alone."""
    if run.data.dev is None:
        raise ValueError("training.dev_every is set but data.dev is not: name a packed corpus to evaluate on")
    corpus = Corpus(Path(run.data.folder) / run.data.dev)
    batches = Batches([(1.0, corpus)], run.plans, tokenizer, run.training.slots, -1, run.data.edges, rank, world)
    total = torch.zeros(len(LOSSES), device=device)
    for step in range(run.training.dev_batches):
        index, slots = batches[step]
        with autocast(device, run.training.bf16):
            total += objective(run.plans[index].method, to_device(slots, device), run.training.position_factor)
    return dict(zip(LOSSES, (total / run.training.dev_batches).tolist(), strict=True))


@contextmanager
def interruptions() -> Iterator[Callable[[], bool]]:
    """Says whether Ctrl-C or a polite kill came; the loop then ends after the step and saves."""
    came: list[int] = []
    before = {
        number: signal.signal(number, lambda received, _: came.append(received))
        for number in (signal.SIGINT, signal.SIGTERM)
    }
    try:
        yield lambda: bool(came)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        if came:
            print("ddot: interrupted; the run is saved and goes on with --resume", file=sys.stderr)


def flops(config: DenoiserConfig) -> Callable[[int, int, int], float]:
    """Arithmetic of one training step (forward and backward) given slots, L and slots whose logits are computed."""
    trunk = config.trunk
    with torch.device("meta"):
        blocks = Denoiser(config).trunk.blocks  # type: ignore[attr-defined]
    matrices = sum(p.numel() for n, p in blocks.named_parameters() if p.dim() == 2 and "adaLN" not in n)
    attention = 2 * trunk.width * trunk.blocks
    return lambda slots, L, logits: 6.0 * (slots * (matrices + attention * L) + logits * trunk.width * trunk.vocabulary)


def describe(run: Run, step: int, seconds: float, figures: dict[str, Any]) -> dict[str, Any]:
    """meta.json: what was trained, on what, by which code, how far, with which figures."""
    commit = subprocess.run(["git", "rev-parse", "HEAD"], capture_output=True, text=True, cwd=Path(__file__).parent)
    return {
        "recipe": run.name,
        "step": step,
        "seconds": seconds,
        "training": dataclasses.asdict(run.training),
        "data": dataclasses.asdict(run.data),
        "start": run.start,
        "plans": [repr(plan) for plan in run.plans],
        "figures": figures,
        "versions": {"ddot": __version__, "torch": torch.__version__, "commit": commit.stdout.strip() or None},
        "written": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
    }


def _writer(
    final: dict[str, Tensor],
    state: dict[str, Tensor],
    config: DenoiserConfig,
    tokenizer: Tokenizer,
    meta: dict[str, Any],
    shard_bytes: int | None,
) -> Callable[[Path], None]:
    def write(folder: Path) -> None:
        (folder / "state").mkdir()
        save_tensors(state, folder / "state", "state", shard_bytes)
        save_model(final, config, tokenizer, meta, folder, shard_bytes)

    return write


def _progress(step: int, seconds: float, hold: Training) -> float:
    return max(step / hold.steps if hold.steps else 0.0, seconds / hold.seconds if hold.seconds else 0.0)
