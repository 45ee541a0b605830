"""`ddot evaluate`: fill benchmark items with a model and score the texts. One row for each way of filling.

Rows are appended to a JSONL file as they are done; a row that is there already is not made again.
"""

import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import torch

from ddot.annealing import greedy, greedy_words
from ddot.benchmarks import BenchmarkItem, CodePrompt, Prompted, Text, read_set
from ddot.chance import row_keys
from ddot.checkout import commit
from ddot.denoiser import Denoiser
from ddot.filling import Prompt, Settings, fill, gap_tokens, mean_length, roomy
from ddot.methods.autoregressive import Autoregressive
from ddot.methods.ddot import DDOT
from ddot.methods.fixed_length import FixedLength
from ddot.methods.insertion import Insertion
from ddot.methods.left_context import LeftContext
from ddot.methods.method import Method
from ddot.methods.position_prediction import PositionPrediction
from ddot.metrics import METRICS, Fluency, score
from ddot.positions import AsText, Terminal, grid_terminal, random_terminal
from ddot.sampling import Leap, MostCertainFirst, Reveal
from ddot.tokens import Tokenizer

# What fixes a row: two rows that agree in these are the same measurement.
IDENTITY = ("model", "method", "dataset", "split", "task", "steps", "seed", "items")


def _told_true_lengths(prompt: Prompted) -> Prompt:
    return prompt.prompt.with_rooms(prompt.rooms)


def _told_a_guess(prompt: Prompted) -> Prompt:
    """Every text is made as long as usual; what is missing is shared out evenly among the open gaps."""
    is_open = prompt.prompt.is_open[1:]
    room = np.zeros(len(prompt.prompt), np.int64)
    places = np.flatnonzero(is_open)
    missing = max(len(places), prompt.guess - len(prompt.prompt))
    if len(places):
        room[places] = missing // len(places)
        room[places[: missing % len(places)]] += 1
    return prompt.prompt.with_rooms(room)


@dataclass(frozen=True)
class Way:
    """A way of filling, under the name its rows carry. `tell` gives the network the lengths of gaps beforehand.

    With a `method` of its own the whole text is read as it comes out: nothing makes sure that it holds the prompt.
    """

    name: str
    settings: Settings = field(default_factory=Settings)
    tell: Callable[[Prompted], Prompt] | None = None
    method: Method | None = None

    @property
    def taught_by(self) -> type[Method]:
        """The method a model must have been trained with to fill so."""
        return type(self.method) if self.method else FixedLength if self.settings.still else DDOT


def ways() -> dict[str, Way]:
    """The ways there are, by name.

    ddot-u, ddot-r     grid or random start, the likeliest tokens, surest first; pads decide the length, and nothing but
                       the network keeps the prompt in order
    ddot-t             as ddot-u, but the prompt starts as a text, neighbours side by side; for a model trained so
    no-ot, no-ot-u     as ddot-r and ddot-u, for a model trained without optimal transport
    lc, pop            the paper's baselines, for models trained so
    …-leap             each of these with the paper's τ-leaps, which end in too many pads (docs/log.md)
    …-drawn            each of these with [pad]s drawn as the model says: likeliest words, but no likeliest length
    …-kept             ddot-u, -r and -t with the prompt's order and its whole words kept by projection; -kept-drawn too
    ddot-u-planned, ddot-r-planned   as -kept, and the network first says how long each gap is
    planned            planned lengths, slots that stay where they belong: `ddot infill` without its rules of spelling
                       and its taste for short fills
    fixed-guessed, fixed-oracle      plain masked diffusion at a guessed and at the true length
    autoregressive     left to right after the prompt, for a model trained so; takes a look a token, whatever the steps
    insertion          a token into every gap that wants one, again and again, for a model trained so
    """
    still = Settings(still=True)
    reveals: dict[str, Reveal] = {
        "": MostCertainFirst(greedy),
        "-leap": Leap(greedy),
        "-drawn": MostCertainFirst(greedy_words),
    }
    starts: dict[str, Terminal] = {"ddot-u": grid_terminal, "ddot-r": random_terminal, "ddot-t": AsText()}
    moving = {name: DDOT(terminal=terminal, projections=()) for name, terminal in starts.items()}
    by_pads: dict[str, DDOT | LeftContext | PositionPrediction] = {
        **moving,
        "no-ot": moving["ddot-r"],
        "no-ot-u": moving["ddot-u"],
        "lc": LeftContext(),
        "pop": PositionPrediction(),
    }
    made = [
        *(
            Way(name + suffix, method=replace(method, reveal=reveal))
            for suffix, reveal in reveals.items()
            for name, method in by_pads.items()
        ),
        *(
            Way(f"{name}-kept{suffix}", Settings(terminal=terminal, reveal=reveals[suffix]))
            for suffix in ("", "-drawn")
            for name, terminal in starts.items()
        ),
        Way("ddot-u-planned", Settings(terminal=grid_terminal, choose_length=mean_length)),
        Way("ddot-r-planned", Settings(terminal=random_terminal, choose_length=mean_length)),
        Way("planned", Settings(choose_length=mean_length, still=True)),
        Way("fixed-guessed", still, _told_a_guess),
        Way("fixed-oracle", still, _told_true_lengths),
        Way("autoregressive", method=Autoregressive()),
        Way("insertion", method=Insertion()),
    ]
    return {way.name: way for way in made}


@dataclass(frozen=True)
class Loaded:
    """A model to evaluate; `training` goes into its rows.

    Each of `threads` fills `batch` texts at once, or fewer where a set's texts are longer than usual, so that they take
    no more memory.
    """

    denoiser: Denoiser
    tokenizer: Tokenizer
    name: str
    batch: int = 128
    threads: int = 1
    training: Mapping[str, Any] = field(default_factory=dict)  # see `package.training_of`


def generate(
    model: Loaded, items: Sequence[BenchmarkItem], way: Way, located: bool, steps: int, seed: int = 0
) -> tuple[list[Text], float]:
    """(the filled texts, seconds a text)."""
    prompts = [item.prompted(model.tokenizer, located) for item in items]
    told = [prompt.prompt if way.tell is None else way.tell(prompt) for prompt in prompts]
    keys = row_keys(seed, len(items))
    usual = model.denoiser.config.slots
    slots = [max(usual, item.slots) for item in items]
    widths = [_width(prompt, L) for prompt, L in zip(told, slots, strict=True)]
    batch = max(1, model.batch * usual // max(slots, default=usual))
    # Prompts of like size together: a batch is as wide as its widest row.
    order = sorted(range(len(items)), key=widths.__getitem__)
    found: dict[int, Text] = {}

    def run(rows: list[int], steps: int = steps) -> None:
        some, L = [told[i] for i in rows], max(widths[i] for i in rows)
        with torch.inference_mode(), model.denoiser.quickly():
            if way.method is None:
                *_, last = fill(model.denoiser, some, keys[rows], replace(way.settings, steps=steps, slots=L))
            else:
                *_, last = way.method.sample(model.denoiser, [each.example for each in some], L, steps, keys[rows])
        if way.method is None:
            for i, gaps in zip(rows, gap_tokens(last, some, model.denoiser.vocabulary), strict=True):
                found[i] = prompts[i].filled(gaps, model.tokenizer)
        else:
            for i, text in zip(rows, way.method.texts(last, model.denoiser.vocabulary), strict=True):
                found[i] = prompts[i].read(text, model.tokenizer)

    if model.denoiser.device.type == "cuda":
        run(order[:batch], 1)  # what a GPU sets up for a first batch is no time of these texts
    start = time.monotonic()
    with ThreadPoolExecutor(model.threads) as pool:
        list(pool.map(run, (order[first : first + batch] for first in range(0, len(order), batch))))
    seconds = (time.monotonic() - start) / max(1, len(items))
    return [found[i] for i in range(len(items))], seconds


def _width(prompt: Prompt, usual: int) -> int:
    """Slots for a prompt: what its told lengths ask for, or enough for lengths that are not known."""
    room = prompt.example.room
    return roomy(len(prompt), usual) if room is None else len(prompt) + int(room.sum())


def evaluate(
    model: Loaded,
    bench: Path,
    output: Path,
    datasets: Sequence[str],
    tasks: Sequence[str] = ("located", "free"),
    methods: Sequence[str] = ("planned",),
    steps: Sequence[int] = (16,),
    split: str = "test",
    seed: int = 0,
    limit: int | None = None,
    metrics: Sequence[str] = ("bleu2", "bleu4", "success", "length_error", "length_error_abs"),
    fluency: Fluency | None = None,
) -> Iterator[dict[str, Any]]:
    """Rows, as they are done. Each is also appended to `output`, its texts to `output` with the ending .texts.jsonl."""
    for name, given, known in (
        ("task", tasks, ("located", "free")),
        ("method", methods, ("unfilled", *ways())),
        ("metric", metrics, tuple(METRICS)),
    ):
        unknown = sorted(set(given) - set(known))
        if unknown:
            raise ValueError(f"there is no {name} '{unknown[0]}'; there are {', '.join(known)}")
    if limit is not None and limit < 1:
        raise ValueError(f"limit is {limit}; at least 1 item is wanted")
    sets = {dataset: read_set(bench, dataset, split)[:limit] for dataset in datasets}
    if output.is_dir():
        raise ValueError(f"{output} is a folder; name a file for the rows, in it or elsewhere")
    if not output.parent.is_dir():
        raise FileNotFoundError(f"there is no folder {output.parent}; make it first")
    done, code = _rows_of(output), commit()  # as it was loaded: the checkout may go on meanwhile
    for dataset, task, method, K in product(sets, tasks, methods, steps):
        items = sets[dataset]
        row: dict[str, Any] = {
            "model": model.name, "method": method, "dataset": dataset, "split": split, "task": task,
            "steps": K, "seed": seed, "items": len(items),
        }  # fmt: skip
        if _identity(row) in done:
            continue
        if method == "unfilled":
            texts, seconds = [item.unfilled for item in items], 0.0
        else:
            texts, seconds = generate(model, items, ways()[method], task == "located", K, seed)
            row |= model.training
        row |= score(items, texts, metrics, fluency) | _cut(items, model.tokenizer)
        row |= {"seconds": seconds, "batch": model.batch, "device": _device(model.denoiser), "commit": code}
        with open(output.with_suffix(".texts.jsonl"), "a") as file:
            for item, text in zip(items, texts, strict=True):
                said = {name: row[name] for name in IDENTITY} | {
                    "id": item.id,
                    "text": text if isinstance(text, str) else " ".join(text),
                }
                file.write(json.dumps(said, ensure_ascii=False) + "\n")
        with open(output, "a") as file:
            file.write(json.dumps(row) + "\n")
        yield row


def _cut(items: Sequence[BenchmarkItem], tokenizer: Tokenizer) -> dict[str, int]:
    """Of programs: how many are longer than what a network is shown of them."""
    prompts = [item.prompted(tokenizer, True) for item in items]
    found = [prompt.is_cut for prompt in prompts if isinstance(prompt, CodePrompt)]
    return {"cut": sum(found)} if found else {}


def _rows_of(output: Path) -> set[tuple[Any, ...]]:
    """What is measured already. A last line that was cut off by a kill is taken away."""
    if not output.is_file():
        return set()
    whole = output.read_bytes()
    kept = whole[: whole.rfind(b"\n") + 1]
    try:
        found = [json.loads(line) for line in kept.splitlines()]
        rows = {_identity(row) for row in found}
    except (ValueError, AttributeError, TypeError):
        raise ValueError(f"{output} exists and holds no rows of an evaluation; choose another --output") from None
    if len(kept) < len(whole):
        output.write_bytes(kept)
    return rows


def _identity(row: dict[str, Any]) -> tuple[Any, ...]:
    return tuple(row.get(name) for name in IDENTITY)


def _device(denoiser: Denoiser) -> str:
    device = denoiser.device
    return torch.cuda.get_device_name(device) if device.type == "cuda" else device.type
