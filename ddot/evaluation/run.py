"""`ddot evaluate`: fill benchmark items with a model and score the texts. One row for each way of filling.

Rows are appended to a JSONL file as they are done; a row that is there already is not made again.
"""

import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from hashlib import sha256
from itertools import groupby, product
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Int

from ddot.core.rng import row_keys
from ddot.data.tokenizer import Tokenizer
from ddot.evaluation.contenders import Way, ways
from ddot.evaluation.items import BenchmarkItem, CodePrompt, Text, read_set
from ddot.evaluation.metrics import METRICS, Fluency, score
from ddot.evaluation.store import Ledger
from ddot.infill.engine import fill, gap_tokens
from ddot.infill.lengths import mean_length, plan, roomy
from ddot.network.denoiser import Denoiser
from ddot.network.devices import called
from ddot.version import commit, source


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
    training: Mapping[str, Any] = field(default_factory=dict)  # see `network.embedded.training_of`


def generate(
    model: Loaded,
    items: Sequence[BenchmarkItem],
    way: Way,
    located: bool,
    steps: int,
    seed: int = 0,
    had: Mapping[int, Text] | None = None,
    keep: Callable[[Mapping[int, Text]], None] = lambda _: None,
) -> tuple[list[Text], float]:
    """(the filled texts, seconds a text). Neither widths nor draws depend on what a text is filled with.

    Items that `had` has a text of, by place, are not filled again; `keep` gets the others as they come.
    """
    prompts = [item.prompted(model.tokenizer, located) for item in items]
    told = [prompt.prompt if way.tell is None else way.tell(prompt) for prompt in prompts]
    keys = row_keys(seed, len(items))
    usual = model.denoiser.config.slots
    slots = [max(usual, item.slots) for item in items]
    batch = max(1, model.batch * usual // max(slots, default=usual))
    found: dict[int, Text] = dict(had or {})
    wanted = [i for i in range(len(items)) if i not in found]

    def width(i: int) -> int:
        """Slots for a prompt: as many as its told lengths ask for, or enough for lengths that are not known.

        Slots that stay still may be more, those beyond the text are given [pad]s: so that many texts have as many.
        """
        gap_length = told[i].example.gap_length
        if gap_length is None:
            return roomy(len(told[i]), slots[i])
        whole, part = len(told[i]) + int(gap_length.sum()), max(1, usual // 4) if way.settings.still else 1
        return -(-whole // part) * part

    def batches() -> list[list[int]]:
        """Texts of one width each: slots that a text would not have alone change what is written."""
        order = sorted(wanted, key=width)
        groups = [list(some) for _, some in groupby(order, width)]
        return [some[first : first + batch] for some in groups for first in range(0, len(some), batch)]

    def lengths(rows: list[int]) -> list[Int[np.ndarray, "_"]]:
        with torch.inference_mode(), model.denoiser.quickly():
            return plan(model.denoiser, [told[i] for i in rows], keys[rows], mean_length, width(rows[0]))

    def run(rows: list[int], steps: int = steps) -> None:
        some, L = [told[i] for i in rows], width(rows[0])
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

    def run_and_keep(rows: list[int]) -> None:
        run(rows)
        keep({i: found[i] for i in rows})

    def ask_lengths(pool: ThreadPoolExecutor) -> None:
        alike = batches()
        for rows, planned in zip(alike, pool.map(lengths, alike), strict=True):
            for i, gap_length in zip(rows, planned, strict=True):
                told[i] = told[i].with_gap_lengths(gap_length)

    with ThreadPoolExecutor(model.threads) as pool:
        if model.denoiser.device.type == "cuda":  # what a GPU sets up at first is no time of these texts
            untold = list(told)
            if way.plans:
                ask_lengths(pool)
            for rows in batches()[:1]:
                run(rows, 1)
            told[:] = untold
        start = time.monotonic()
        if way.plans:
            ask_lengths(pool)
        list(pool.map(run_and_keep, batches()))
        seconds = (time.monotonic() - start) / max(1, len(wanted))
    return [found[i] for i in range(len(items))], seconds


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
    tell: Callable[[Mapping[str, Any], int, int], None] = lambda *_: None,
) -> Iterator[dict[str, Any]]:
    """Rows, as they are done. Each is also appended to `output`, its texts to `output` with the ending .texts.jsonl.

    Texts are written as they come, and gone on with after an interruption. `tell` hears of a row how many there are,
    and how many of them are new. Seconds are of rows that were filled in one go.
    """
    for name, given, known in (
        ("task", tasks, ("located", "free")),
        ("method", methods, ("unfilled", *ways())),
        ("metric", metrics, tuple(METRICS)),
    ):
        unknown = sorted(set(given) - set(known))
        if unknown:
            raise ValueError(f"there is no {name} '{unknown[0]}'; there are {', '.join(known)}")
    for name, number in (("limit", limit), *(("steps", K) for K in steps)):
        if number is not None and number < 1:
            raise ValueError(f"{name} is {number}; at least 1 is wanted")
    sets = {dataset: read_set(bench, dataset, split)[:limit] for dataset in datasets}
    by_name, ledger, code = ways(), Ledger(output), commit()  # as it was loaded: the checkout may go on meanwhile
    ledger.check_training(model.name, model.training)
    marks = {dataset: _marks(model, items) for dataset, items in sets.items()}
    for dataset, task, method, K in product(sets, tasks, methods, steps):
        items, made = sets[dataset], marks[dataset]
        row: dict[str, Any] = {
            "model": model.name, "method": method, "dataset": dataset, "split": split, "task": task,
            "steps": K, "seed": seed, "items": len(items),
        }  # fmt: skip
        if row in ledger or (task == "located" and method in by_name and not by_name[method].hears):
            continue
        seconds: float | None = 0.0
        if method == "unfilled":
            texts = [item.unfilled for item in items]
            ledger.add_texts(row, {item.id: item.unfilled for item in items}, made)
        else:
            row |= model.training
            texts, seconds = _filled(model, items, by_name[method], row, made, ledger, tell)
        row |= score(items, texts, metrics, fluency) | _cut(items, model.tokenizer)
        row |= {} if seconds is None else {"seconds": seconds}
        row |= {"batch": model.batch, "device": called(model.denoiser.device), "commit": code}
        if row not in ledger:  # another one may have been faster
            ledger.add(row)
            yield row


def _marks(model: Loaded, items: Sequence[BenchmarkItem]) -> dict[str, str]:
    """By item, what its text is made with: a checksum of weights, training, device, code and the item itself."""
    weights = model.denoiser.state_dict().values()
    some = [part.flatten()[:16].tolist() for part in weights if isinstance(part, torch.Tensor)]
    about = [some, dict(model.training), called(model.denoiser.device), source()]
    known = sha256(json.dumps(about, sort_keys=True).encode()).digest()
    return {item.id: sha256(known + repr(item).encode()).hexdigest()[:16] for item in items}


def _filled(
    model: Loaded,
    items: Sequence[BenchmarkItem],
    way: Way,
    row: Mapping[str, Any],
    made: Mapping[str, str],
    ledger: Ledger,
    tell: Callable[[Mapping[str, Any], int, int], None],
) -> tuple[list[Text], float | None]:
    """(the texts of a row, seconds a text if all were filled now). What is in the ledger is not filled again."""
    had = ledger.unfinished(row, made)
    before: dict[int, Text] = {i: had[item.id] for i, item in enumerate(items) if item.id in had}
    there = set(before)
    if before:
        tell(row, len(before), 0)

    def keep(texts: Mapping[int, Text]) -> None:
        ledger.add_texts(row, {items[i].id: text for i, text in texts.items()}, made)
        there.update(texts)
        tell(row, len(there), len(texts))

    located, steps, seed = row["task"] == "located", row["steps"], row["seed"]
    texts, seconds = generate(model, items, way, located, steps, seed, had=before, keep=keep)
    return texts, None if before else seconds


def _cut(items: Sequence[BenchmarkItem], tokenizer: Tokenizer) -> dict[str, int]:
    """Of programs: how many are longer than what a network is shown of them."""
    prompts = [item.prompted(tokenizer, True) for item in items]
    found = [prompt.is_cut for prompt in prompts if isinstance(prompt, CodePrompt)]
    return {"cut": sum(found)} if found else {}
