"""`ddot finetune`: train a model on a user's own text for a few minutes, on a CPU or a GPU, holding part of it out."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from torch import Tensor

from ddot import __version__
from ddot.core.rng import generator
from ddot.data.forms import sentences
from ddot.data.masks import Natural, Nothing, Telling
from ddot.data.shards import Corpus, pack
from ddot.data.sources import read
from ddot.data.tokenizer import Tokenizer
from ddot.files import seal, whole_folder, writing
from ddot.interrupts import interruptions
from ddot.methods.fixed_length import FixedLength
from ddot.methods.losses import LOSSES
from ddot.methods.outline import Outline
from ddot.methods.planning import Planning
from ddot.network.denoiser import Denoiser
from ddot.network.devices import device_of
from ddot.network.folder import load_model, save_model
from ddot.network.int8 import compress, decompress
from ddot.network.places import model_folder, read_json
from ddot.training.batches import Batches, EitherCut, ManySentences, Plan, Windows
from ddot.training.config import Training
from ddot.training.learner import Learner
from ddot.training.optimisers import warm_hold_decay

_HELD_OUT = 0.1  # share of the text
_PIECE = 12  # sentences: longer documents are split into pieces of this size before some are held out
_LEAST = 200  # minimum number of sentences
_PASSES = 8.0  # maximum number of epochs: more would memorise the text
_SMALL = 20_000_000  # weights: smaller networks are trained whole, larger ones in the upper third of their blocks
# Interpolations from the old weights to the learnt ones; the best on the held-out text is kept. A few steps of small
# batches leave noise in the weights, and interpolating back forgets less.
_SHARES = (1.0, 0.5, 0.2)
_MEASURING, _FEWEST = 0.2, 6  # share of the time spent measuring the held-out text; minimum number of its batches


@dataclass(frozen=True)
class Result:
    """Nats per missing token of the held-out text, before and after. `tokens`: number of tokens trained on.

    `nats_error` is the standard error of their difference over batches. `kept` is the share of the change in weights
    that is saved: 0 if no share made the held-out text more likely by more than that error.
    """

    nats_before: float
    nats_after: float
    nats_error: float
    kept: float
    steps: int
    seconds: float
    tokens: int
    held_out_tokens: int
    interrupted: bool


def finetune(
    texts: Sequence[str],
    output: Path,
    start: Path,
    minutes: float = 5.0,
    device: str = "cpu",
    seed: int = 0,
    tell: Callable[[float, dict[str, float]], None] = lambda done, figures: None,
) -> Result:
    """Train a copy of the model in `start` on the texts and save it in `output`, taking about `minutes` in total.

    `tell` is called with the completed share of training and the latest figures. Ctrl-C ends training early and saves
    the model.
    """
    began = time.perf_counter()
    if not 0 < minutes <= 7 * 24 * 60:
        raise ValueError(f"minutes is {minutes}; it must be more than 0, and at most a week")
    where, folder = device_of(device), model_folder(start)
    train, dev = held_out(pieces(texts), seed)
    with whole_folder(output) as draft, TemporaryDirectory() as work:
        model, tokenizer = load_model(folder)
        packed = [pack(part, tokenizer, Path(work, name)) for name, part in (("data", train), ("dev", dev))]
        learner = Learner(model, settings(model, where, seed), where, 1)
        plans = plans_for(model)
        batches, dev_batches = (
            Batches([(1.0, Corpus(Path(work, name)))], mixed, tokenizer, learner.settings.slots, number)
            for name, mixed, number in (("data", plans, seed), ("dev", plans[:1], -1))
        )

        def dev_nats(count: int) -> Tensor:
            return learner.batch_losses(plans[:1], dev_batches, count)[:, LOSSES.index("nats")]

        first = time.perf_counter()
        dev_nats(1)
        now = time.perf_counter()
        count = affordable(now - first, minutes, learner.settings.dev_batches)
        before = dev_nats(count)
        first, now = now, time.perf_counter()
        tell(0.0, {"before": before.mean().item()})
        end = began + 60 * minutes - len(_SHARES) * (now - first) - 10  # to measure again, and save
        old = _trained_weights(model)
        step, most = 0, max(1.0, _PASSES * packed[0]["tokens"] / learner.settings.slots)
        with interruptions(notice="ddot: saving what was learnt; press Ctrl-C again to drop it\n") as interrupted:
            while not interrupted():
                done = max(step / most, (time.perf_counter() - now) / max(1e-9, end - now))
                if done >= 1:
                    break
                index, slots = batches[step]
                losses = learner.gradients(plans[index].method, slots, 0.0)
                learner.update(step, warm_hold_decay(step, done, learner.settings.warmup, learner.settings.decay))
                step += 1
                tell(done, dict(zip(LOSSES, losses.tolist(), strict=True)) if index == 0 else {})
            was_interrupted = interrupted()
        new, best = _trained_weights(model), (0.0, before, 0.0)
        for share in _SHARES:
            _set(model, old, new, share)
            after = dev_nats(count)
            error = (after - before).std().item() / len(before) ** 0.5
            if after.mean() < min(best[1].mean(), before.mean() - error):
                best = share, after, error
        kept, after, error = best
        _set(model, old, new, kept)
        tokens, held = (meta["tokens"] for meta in packed)
        nats = before.mean().item(), after.mean().item(), error
        result = Result(*nats, kept, step, time.perf_counter() - began, tokens, held, was_interrupted)
        with writing(output):
            save_model(compress(learner.weights()), model.config, tokenizer, _meta(folder, texts, result), draft)
            seal(draft)
    return result


def affordable(seconds: float, minutes: float, most: int) -> int:
    """How many batches to measure, before training and for each share, if one takes `seconds`."""
    return max(min(_FEWEST, most), min(most, int(_MEASURING * 60 * minutes / (seconds * (1 + len(_SHARES))))))


def pieces(texts: Sequence[str]) -> list[list[str]]:
    """The sentences of all texts, in pieces of at most twelve."""
    all_pieces: list[list[str]] = []
    for text in texts:
        lines = list(read(text))
        for document in [" ".join(lines)] if _is_wrapped(lines) else lines:
            parts = sentences(document)
            all_pieces += [parts[first : first + _PIECE] for first in range(0, len(parts), _PIECE)]
    count = sum(map(len, all_pieces))
    if count < _LEAST:
        raise ValueError(f"there are {count} sentences to learn from; give at least {_LEAST}, a few pages")
    return all_pieces


def _is_wrapped(lines: Sequence[str]) -> bool:
    """Whether the lines are hard-wrapped running text rather than one document each."""
    ended = sum(line.rstrip().endswith((".", "!", "?", ":", '"', "”")) for line in lines)
    return max(map(len, lines)) <= 100 and sum(map(len, lines)) > 45 * len(lines) and ended < len(lines) / 2


def held_out(all_pieces: list[list[str]], seed: int) -> tuple[list[list[str]], list[list[str]]]:
    """(pieces to train on, held-out pieces)."""
    order = generator(seed).permutation(len(all_pieces)).tolist()
    dev = set(order[: max(1, round(_HELD_OUT * len(all_pieces)))])
    train = [piece for number, piece in enumerate(all_pieces) if number not in dev]
    return train, [all_pieces[number] for number in sorted(dev)]


def plans_for(model: Denoiser) -> tuple[Plan, ...]:
    """Natural blanks, filled the way this model fills them, and their lengths if the model plans them."""
    writes = model.config.order == "outline"
    method, passages = Outline() if writes else FixedLength(), EitherCut(0.85, ManySentences(0.55), Windows(0.8))
    telling = Telling(located=1.0, gap_lengths=0.3 if writes else 1.0)
    fill = Plan(method, Natural(), passages, telling, unit=Tokenizer.units, full_noise=0.05, least_noise=0.3)
    plain = replace(fill, method=Outline(1.0, plain=True), mask=Nothing(), weight=1.0)
    planning = replace(fill, method=Planning(), mask=Natural(dense=0.15), telling=Telling(located=1.0), weight=0.1)
    return fill, *[plain] * writes, *[planning] * (model.config.planner == "text")


def settings(model: Denoiser, device: torch.device, seed: int) -> Training:
    """Settings with small batches: a CPU has time for a few hundred."""
    blocks = model.config.trunk.blocks
    upper = tuple(f"trunk.blocks.{number}." for number in range(blocks - max(1, blocks // 3), blocks))
    small = sum(weight.numel() for weight in model.parameters()) < _SMALL
    return Training(
        seconds=1.0, slots=512, rate=6e-4, betas=(0.9, 0.98), warmup=10, decay=0.7, average=0.0,
        bf16=_has_bf16(device), only=() if small else upper, device=str(device), seed=seed, dev_batches=24,
    )  # fmt: skip


def _has_bf16(device: torch.device) -> bool:
    """Whether a device multiplies matrices in bf16, which halves the time of a step on a CPU."""
    if device.type == "cpu":
        return any(vars(torch.cpu).get(f"_is_{name}_supported", bool)() for name in ("avx512_bf16", "amx_tile"))
    return device.type == "cuda" and torch.cuda.is_bf16_supported()


def _trained_weights(model: Denoiser) -> dict[str, Tensor]:
    """A copy of the weights that training changes."""
    return {name: weight.detach().clone() for name, weight in model.named_parameters() if weight.requires_grad}


@torch.no_grad()
def _set(model: Denoiser, old: dict[str, Tensor], new: dict[str, Tensor], share: float) -> None:
    """Interpolate between the old and the new weights, rounded as they will be stored."""
    mixture = {name: weight.lerp(new[name], share) for name, weight in old.items()} if share else old
    weights = dict(model.named_parameters())
    for name, weight in decompress(compress(mixture)).items():
        weights[name].copy_(weight)


def _meta(folder: Path, texts: Sequence[str], result: Result) -> dict[str, Any]:
    before = read_json(folder / "meta.json")
    return {
        "recipe": "finetune", "step": result.steps, "seconds": result.seconds,
        "start": before.get("recipe") or folder.name, "texts": [Path(text).name for text in texts],
        "figures": {name: getattr(result, name) for name in ("nats_before", "nats_after", "nats_error", "kept")},
        "stored": "int8", "versions": {"ddot": __version__, "torch": torch.__version__},
    }  # fmt: skip
