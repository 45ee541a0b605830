"""The training loop, top to bottom in `_train`. It names no method: a run's plans bring their own."""

import sys
from pathlib import Path
from typing import Any

import torch

from ddot.interrupts import interruptions
from ddot.network.denoiser import compile_blocks
from ddot.training.batches import Batches
from ddot.training.checkpoints import check_space, checkpoint_meta, earlier_runs, open_run, save_checkpoint
from ddot.training.config import Run
from ddot.training.distributed import largest, processes
from ddot.training.learner import Learner
from ddot.training.meter import Meter, progress
from ddot.training.optimisers import warm_hold_decay
from ddot.training.previews import preview
from ddot.training.setup import build, open_data


def train(run: Run, output: Path, resume: bool = False) -> dict[str, Any]:
    """Train and save. Returns the last logged figures (on process 0), and `interrupted` if it was."""
    with processes(run.training.device) as (rank, world, device):
        check(run, world)
        return _train(run, output, resume, rank, world, device)


def _train(run: Run, output: Path, resume: bool, rank: int, world: int, device: torch.device) -> dict[str, Any]:
    """Train in one process. Separate, because all its objects must be freed before the process group."""
    settings = run.training
    checkpoint = open_run(output, resume)
    tokenizer, corpora, dev = open_data(run, output, rank)
    model, tokenizer = build(run, tokenizer)
    batches = Batches(corpora, run.plans, tokenizer, settings.slots, settings.seed, run.data.edges, rank, world)
    dev_corpora = [(1.0, dev)] if dev else corpora
    dev_batches = Batches(dev_corpora, run.plans, tokenizer, settings.slots, -1, run.data.edges, rank, world)

    learner = Learner(model, settings, device, world)
    step, elapsed = learner.restore(checkpoint, tokenizer, rank) if checkpoint else (0, 0.0)
    if settings.compile:  # after restoring: compiled modules take no new weights
        compile_blocks(learner.model)
    if settings.save_every and rank == 0:  # weights, their average and two moments, of 4 bytes each
        check_space(output, 16 * sum(parameter.numel() for parameter in model.parameters()))

    first_step, saved = step, step if checkpoint else -1
    earlier = earlier_runs(run.start, checkpoint)
    compiled: set[tuple[int, ...]] = set()
    stream = batches.stream(step, settings.steps or 1 << 40, run.data.workers)
    meter = Meter(run, output, step, elapsed, rank, world, learner.model)

    def save() -> None:
        """Write a checkpoint: all processes gather, process 0 writes."""
        weights, state = learner.weights(), learner.state()
        if not all(bool(weight.isfinite().all()) for weight in weights.values()):
            raise ValueError(f"the weights are not finite at step {step}; lower the rates and resume with --resume")
        if rank == 0:
            meta = checkpoint_meta(run, earlier, step, meter.elapsed(), meter.last)
            save_checkpoint(output, weights, state, learner.model.config, tokenizer, meta, settings)

    with meter, interruptions(hold_back_all=world > 1) as interrupted:
        while True:
            done = progress(step, meter.elapsed(), settings.steps, settings.seconds)
            done, stop = largest(done, float(interrupted()))
            if done >= 1 or stop:
                break
            with meter.waiting() if step > first_step else meter.starting():  # workers open the corpora first
                index, slots = next(stream)

            position_factor = settings.position_factor * min(1.0, (step + 1) / max(1, settings.position_warmup))
            shape = (index, *slots.u.shape)
            with meter.compiling(settings.compile and shape not in compiled):
                losses = learner.gradients(run.plans[index].method, slots, position_factor)
            compiled.add(shape)
            rate_factor = warm_hold_decay(step, done, settings.warmup, settings.decay)
            norm = learner.update(step, rate_factor)
            step += 1

            meter.count(step, losses, norm, rate_factor, slots)
            with meter.apart():
                if _due(step, settings.dev_every):
                    meter.dev(step, learner.mean_losses(run.plans, dev_batches))
                if _due(step, settings.sample_every):
                    weights = learner.weights()
                    if rank == 0:
                        copy = learner.copy(weights)
                        meter.sample(step, preview(copy, dev_corpora[0][1], run.plans, tokenizer, run.data.edges))
                if _due(step, settings.save_every):
                    save()
                    saved = step
        meter.line(step)
        if settings.save_every and saved != step:
            save()
    interruption = {"interrupted": True} if stop else {}
    if rank != 0:
        return interruption
    if checkpoint and first_step == step and not stop:
        print(f"ddot: {output} is already complete at step {step}", file=sys.stderr)
    if stop:
        saving = "the run is saved; resume it with --resume" if settings.save_every else "nothing is saved"
        print(f"ddot: interrupted at step {step}; {saving}", file=sys.stderr)
    return meter.last | interruption


def check(run: Run, world: int) -> None:
    """Refuse a configuration that would fail later."""
    settings = run.training
    if settings.steps is None and settings.seconds is None:
        raise ValueError("a run needs an end; set training.steps or training.seconds")
    if settings.dev_every and run.data.dev is None:
        raise ValueError("training.dev_every is set but data.dev is not; name a corpus to evaluate on")
    if not run.data.texts and not run.data.sources:
        raise ValueError("a run needs data; set data.texts, or data.folder and data.sources (see `ddot prepare`)")
    for L in {L for plan in run.plans for L in plan.lengths}:
        if settings.slots // L // world % settings.accumulate:
            rows = f"{settings.slots // L // world} rows of {L} slots per process"
            raise ValueError(f"{rows} are not divisible by training.accumulate={settings.accumulate}; change either")


def _due(step: int, every: int) -> bool:
    return every > 0 and step % every == 0
