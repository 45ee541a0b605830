"""The training loop. Names no method: a run's plans bring theirs. Reads top to bottom in `train`."""

import dataclasses
import re
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from ddot import __version__
from ddot.core.records import Slots, to_device
from ddot.data.shards import fingerprint
from ddot.data.tokenizer import Tokenizer
from ddot.files import check_seal
from ddot.interrupts import interruptions
from ddot.methods.losses import LOSSES
from ddot.methods.method import Method
from ddot.network.denoiser import Denoiser, DenoiserConfig, compile_blocks
from ddot.network.folder import (
    check_weights,
    load_config,
    load_tensors,
    model_folder,
    read_json,
    save_model,
    save_tensors,
    without_values,
)
from ddot.training.batches import Batches
from ddot.training.config import Run
from ddot.training.distributed import exchanging, hand_out, largest, mean, place, processes, spread, whole, whole_state
from ddot.training.meter import Meter, progress
from ddot.training.optimisers import Average, warm_hold_decay
from ddot.training.previews import preview
from ddot.training.run_folder import check_room, damaged, open_run, save_step
from ddot.training.setup import build, hold_still, make_optimisers, open_data
from ddot.version import commit


class Objective(nn.Module):
    """The network with its loss, as one module: what is replicated or sharded."""

    def __init__(self, model: Denoiser):
        super().__init__()
        self.model = model

    def forward(self, method: Method, slots: Slots, position_factor: float) -> Tensor:
        losses = method.loss(self.model, slots, position_factor)
        return torch.stack([getattr(losses, name) for name in LOSSES])


def train(run: Run, output: Path, resume: bool = False) -> dict[str, Any]:
    """Train and save. Returns the last logged figures (nothing in processes other than 0)."""
    with processes(run.training.device) as (rank, world, device):
        check(run, world)
        return _train(run, output, resume, rank, world, device)


def _train(run: Run, output: Path, resume: bool, rank: int, world: int, device: torch.device) -> dict[str, Any]:
    """One process of it. Apart, so that all it holds is gone before the processes part."""
    hold = run.training
    done = open_run(output, resume)
    tokenizer, corpora, dev = open_data(run, output, rank)
    model, tokenizer = build(run, tokenizer)
    batches = Batches(corpora, run.plans, tokenizer, hold.slots, hold.seed, run.data.edges, rank, world)
    dev_corpora = [(1.0, dev)] if dev else corpora
    dev_batches = Batches(dev_corpora, run.plans, tokenizer, hold.slots, -1, run.data.edges, rank, world)

    hold_still(model, hold.only)
    objective = Objective(model.to(device))
    parallel = spread(objective, model.trunk.blocks, world, hold.sharded)  # type: ignore[attr-defined]
    optimisers = make_optimisers(objective.model, hold)
    average = Average(dict(objective.model.named_parameters()), hold.average) if hold.average else None
    step, elapsed = restore(done, objective, optimisers, average, tokenizer, rank) if done else (0, 0.0)
    if hold.save_every and rank == 0:  # weights, their average and two moments
        check_room(output, 16 * sum(parameter.numel() for parameter in model.parameters()))
    if hold.compile:
        compile_blocks(objective.model)

    def weights() -> dict[str, Tensor]:
        """The model as it would be saved now, on the CPU. Everybody gathers."""
        shared = average.weights if average else dict(objective.model.named_parameters())
        return {name: whole(weight) for name, weight in shared.items()}

    before = _before(run.start, done)

    def save() -> None:
        """Everybody gathers, process 0 writes."""
        final, state = weights(), whole_state(objective, optimisers)
        if not all(bool(weight.isfinite().all()) for weight in final.values()):
            raise ValueError(f"the weights are no numbers at step {step}; lower the rates and go on with --resume")
        if rank == 0:
            meta = describe(run, before, step, meter.elapsed(), meter.last)
            write = _writer(final, state, objective.model.config, tokenizer, meta, hold.shard_bytes)
            size = sum(t.numel() * t.element_size() for t in (*final.values(), *state.values()))
            save_step(output, step, write, size)

    def sample() -> None:
        """Everybody gathers, process 0 fills."""
        final = weights()
        if rank == 0:
            copy = plain_copy(objective.model.config, final, device)
            meter.sample(step, preview(copy, dev_corpora[0][1], run.plans, tokenizer, run.data.edges))

    meter = Meter(run, output, step, elapsed, rank, world, objective.model.config, device)
    stream = batches.stream(step, hold.steps or 1 << 40, run.data.workers)
    compiled: set[tuple[int, ...]] = set()
    saved = step if done else -1
    before_step = step
    with meter, interruptions(hold_back_all=world > 1) as interrupted:
        while True:
            share_done, stop = largest(progress(step, meter.elapsed(), hold.steps, hold.seconds), float(interrupted()))
            if share_done >= 1 or stop:
                break
            with meter.waiting() if step > before_step else meter.starting():  # workers read the corpora first
                index, slots = next(stream)
            factor = warm_hold_decay(step, share_done, hold.warmup, hold.decay)
            for optimiser in optimisers:
                for group in optimiser.param_groups:
                    group["lr"] = group["full_rate"] * factor
            position_factor = hold.position_factor * min(1.0, (step + 1) / max(1, hold.position_warmup))

            figures = []
            shape = (index, *slots.u.shape)
            with meter.compiling() if hold.compile and shape not in compiled else nullcontext():
                for number, part in enumerate(pieces(to_device(slots, device), hold.accumulate), 1):
                    with exchanging(parallel, number == hold.accumulate):
                        with autocast(device, hold.bf16):
                            losses = parallel(run.plans[index].method, part, position_factor)
                        (losses[0] / hold.accumulate).backward()
                    figures.append(losses.detach())
            compiled.add(shape)
            norm = nn.utils.clip_grad_norm_(objective.parameters(), hold.clip)
            for optimiser in optimisers:
                optimiser.step()
                optimiser.zero_grad()
            if average:
                average.update(dict(objective.model.named_parameters()), step)
            step += 1

            meter.count(step, torch.stack(figures).mean(0), norm, factor, slots)
            with meter.apart():
                if _due(step, hold.dev_every):
                    meter.dev(step, mean_losses(run, objective, dev_batches, device))
                if _due(step, hold.sample_every):
                    sample()
                if _due(step, hold.save_every):
                    save()
                    saved = step
        meter.line(step)
        if hold.save_every and saved != step:
            save()
        if done and before_step == step and not stop and rank == 0:
            print(f"ddot: {output} is complete at step {step}; nothing was left to do", file=sys.stderr)
        if stop and rank == 0:
            kept = "the run is saved and goes on with --resume" if hold.save_every else "nothing is saved"
            print(f"ddot: interrupted at step {step}; {kept}", file=sys.stderr)
    return meter.last if rank == 0 else {}


def check(run: Run, world: int) -> None:
    """Refuse at once what would fail after a while."""
    hold = run.training
    if hold.steps is None and hold.seconds is None:
        raise ValueError("a run needs an end: set training.steps or training.seconds")
    if hold.dev_every and run.data.dev is None:
        raise ValueError("training.dev_every is set but data.dev is not: name a corpus to evaluate on")
    if not run.data.texts and not run.data.sources:
        raise ValueError("a run needs data: set data.texts, or data.folder and data.sources (see `ddot prepare`)")
    for L in {L for plan in run.plans for L in plan.lengths}:
        if hold.slots // L // world % hold.accumulate:
            rows = f"{hold.slots // L // world} rows of {L} slots a process"
            raise ValueError(f"{rows} do not divide by training.accumulate={hold.accumulate}; change one of them")


def restore(
    folder: Path,
    objective: Objective,
    optimisers: list[torch.optim.Optimizer],
    average: Average | None,
    tokenizer: Tokenizer,
    rank: int,
) -> tuple[int, float]:
    """(step, seconds so far) of a checkpoint; weights, optimizers and average are set to it."""
    with damaged(folder):
        meta = read_json(folder / "meta.json")
        if load_config(folder) != objective.model.config or fingerprint(Tokenizer.load(folder)) != fingerprint(
            tokenizer
        ):
            raise ValueError("it holds another network or vocabulary than the recipe; go on with the settings it had")
        flat = load_tensors(folder / "state", "state") if rank == 0 else {}
        saved = load_tensors(folder, "model")
        check_weights(objective.model, saved, folder)
        check_seal(folder)
        hand_out(objective, optimisers, flat)
        for name, weight in (average.weights if average else {}).items():
            place(weight, saved[name])
        return meta["step"], meta["seconds"]


def plain_copy(config: DenoiserConfig, weights: dict[str, Tensor], device: torch.device) -> Denoiser:
    """A network with these weights that is neither compiled nor spread over processes."""
    model = without_values(config)
    model.load_state_dict(weights, assign=True)
    return model.to(device).eval()


def pieces(slots: Slots, count: int) -> Iterator[Slots]:
    """The rows of a batch in `count` interleaved parts."""
    for i in range(count):
        yield Slots(**{field.name: getattr(slots, field.name)[i::count] for field in dataclasses.fields(slots)})


def autocast(device: torch.device, bf16: bool) -> Any:
    return torch.autocast(device.type, torch.bfloat16) if bf16 else nullcontext()


@torch.no_grad()
def mean_losses(run: Run, objective: Objective, batches: Batches, device: torch.device) -> dict[str, float]:
    """Mean losses over the first batches, the same ones each time, and over processes."""
    total = torch.zeros(len(LOSSES), device=device)
    for step in range(run.training.dev_batches):
        index, slots = batches[step]
        with autocast(device, run.training.bf16):
            total += objective(run.plans[index].method, to_device(slots, device), run.training.position_factor)
    return dict(zip(LOSSES, mean(total / run.training.dev_batches).tolist(), strict=True))


def describe(
    run: Run, before: list[dict[str, Any]], step: int, seconds: float, figures: dict[str, Any]
) -> dict[str, Any]:
    """meta.json: what was trained, on what, by which code, how far, with which figures."""
    return {
        "recipe": run.name,
        "step": step,
        "seconds": seconds,
        "training": dataclasses.asdict(run.training),
        "data": dataclasses.asdict(run.data),
        "start": run.start,
        "before": before,
        "plans": [re.sub(r" at 0x[0-9a-f]+", "", repr(plan)) for plan in run.plans],
        "figures": figures,
        "versions": {"ddot": __version__, "torch": torch.__version__, "commit": commit()},
        "written": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
    }


def _before(start: str | None, done: Path | None) -> list[dict[str, Any]]:
    """The trainings behind the model a run starts with, oldest first; a run that goes on knows them already."""
    if start is None and done is None:
        return []
    try:
        meta = read_json((done or model_folder(start or "")) / "meta.json")
        earlier = meta.get("before") or []
        if done or not isinstance(meta.get("training"), dict):
            return earlier
    except (OSError, ValueError, AttributeError):  # a folder from elsewhere may say nothing of itself
        return []
    settings = {key: meta["training"].get(key) for key in ("position_factor", "device", "only")}
    return [*earlier, {key: meta.get(key) for key in ("recipe", "step", "seconds")} | settings]


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


def _due(step: int, every: int) -> bool:
    return every > 0 and step % every == 0
