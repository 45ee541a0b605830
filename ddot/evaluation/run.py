"""`ddot evaluate`: fill benchmark items with a model and score the texts. One row for each way of filling.

Rows are appended to a JSONL file as they are done; a row that is there already is not made again.
"""

import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from hashlib import sha256
from itertools import product
from pathlib import Path
from typing import Any

import torch

from ddot.data.tokenizer import Tokenizer
from ddot.evaluation.contenders import CONTENDERS
from ddot.evaluation.filling import Filling, Loaded
from ddot.evaluation.items import TASKS, BenchmarkItem, CodePrompt, Text, read_set
from ddot.evaluation.metrics import METRICS, Fluency, score, usual
from ddot.evaluation.store import Ledger
from ddot.network.devices import called
from ddot.version import commit, source


def generate(
    model: Loaded,
    items: Sequence[BenchmarkItem],
    filling: Filling,
    located: bool,
    steps: int,
    seed: int = 0,
    done: Mapping[int, Text] | None = None,
    keep: Callable[[Mapping[int, Text]], None] = lambda _: None,
) -> tuple[list[Text], float]:
    """(the filled texts, seconds per text). Texts in `done`, by index, are not filled again; `keep` gets new ones."""
    found: dict[int, Text] = dict(done or {})
    wanted = [i for i in range(len(items)) if i not in found]
    if model.denoiser.device.type == "cuda":  # set-up on a GPU is not counted
        list(filling.texts(model, items, wanted[: model.batch], located, 1, seed))
    start = time.monotonic()
    for texts in filling.texts(model, items, wanted, located, steps, seed):
        found |= texts
        keep(texts)
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
    metrics: Sequence[str] | None = None,
    fluency: Fluency | None = None,
    tell: Callable[[Mapping[str, Any], int, int], None] = lambda *_: None,
) -> Iterator[dict[str, Any]]:
    """Rows, as they are done. Each is also appended to `output`, its texts to `output` with the ending .texts.jsonl.

    Texts are written as they come, and gone on with after an interruption. `tell` hears of a row how many there are,
    and how many of them are new. Seconds are of rows that were filled in one go.
    """
    for name, given, known in (
        ("task", tasks, TASKS),
        ("method", methods, tuple(CONTENDERS)),
        ("metric", metrics or (), tuple(METRICS)),
    ):
        unknown = sorted(set(given) - set(known))
        if unknown:
            raise ValueError(f"there is no {name} '{unknown[0]}'; there are {', '.join(known)}")
    for name, number in (("limit", limit), *(("steps", K) for K in steps)):
        if number is not None and number < 1:
            raise ValueError(f"{name} is {number}; at least 1 is wanted")
    sets = {dataset: read_set(bench, dataset, split)[:limit] for dataset in datasets}
    ledger, code = Ledger(output), commit()  # as it was loaded: the checkout may go on meanwhile
    ledger.check_training(model.name, model.training)
    marks = {dataset: _marks(model, items) for dataset, items in sets.items()}
    for dataset, task, method, K in product(sets, tasks, methods, steps):
        items, made = sets[dataset], marks[dataset]
        row: dict[str, Any] = {
            "model": model.name, "method": method, "dataset": dataset, "split": split, "task": task,
            "steps": K, "seed": seed, "items": len(items),
        }  # fmt: skip
        filling = CONTENDERS[method].filling
        able = all(task in one.tasks for one in (*items[:1], *([filling] if filling else ())))
        if row in ledger or not able:
            continue
        seconds: float | None = 0.0
        if filling is None:
            texts = [item.unfilled for item in items]
            ledger.add_texts(row, {item.id: item.unfilled for item in items}, made)
        else:
            row |= model.training
            texts, seconds = _filled(model, items, filling, row, made, ledger, tell)
        row |= score(items, texts, metrics or usual(items), fluency) | _cut(items, model.tokenizer)
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
    filling: Filling,
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
    texts, seconds = generate(model, items, filling, located, steps, seed, before, keep)
    return texts, None if before else seconds


def _cut(items: Sequence[BenchmarkItem], tokenizer: Tokenizer) -> dict[str, int]:
    """Of programs: how many are longer than what a network is shown of them."""
    prompts = [item.prompted(tokenizer, True) for item in items]
    found = [prompt.is_cut for prompt in prompts if isinstance(prompt, CodePrompt)]
    return {"cut": sum(found)} if found else {}
