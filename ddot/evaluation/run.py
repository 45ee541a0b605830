"""`ddot evaluate`: fill benchmark items with a model and score the texts. One row for each contender and task."""

import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from hashlib import sha256
from itertools import product
from pathlib import Path

import torch

from ddot.data.tokenizer import Tokenizer
from ddot.evaluation.contenders import CONTENDERS
from ddot.evaluation.filling import Asked, Filling, Loaded
from ddot.evaluation.items import TASKS, Item, Program, read_set
from ddot.evaluation.metrics.scoring import METRICS, Fluency, score, usual
from ddot.evaluation.rows import Row
from ddot.evaluation.store import Store
from ddot.network.devices import device_name
from ddot.network.int8 import Int8Linear
from ddot.version import commit, source


def generate(
    model: Loaded,
    items: Sequence[Item],
    filling: Filling,
    located: bool,
    steps: int,
    seed: int = 0,
    done: Mapping[int, str] | None = None,
    keep: Callable[[Mapping[int, str]], None] = lambda _: None,
) -> tuple[list[str], float]:
    """(the filled texts, seconds per text). Texts in `done`, by index, are not filled again; `keep` gets new ones."""
    found: dict[int, str] = dict(done or {})
    wanted = [i for i in range(len(items)) if i not in found]
    if model.denoiser.device.type == "cuda":  # set-up on a GPU is not counted
        list(filling.texts(Asked(model, items, wanted[: model.batch], located, 1, seed)))
    start = time.monotonic()
    for texts in filling.texts(Asked(model, items, wanted, located, steps, seed)):
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
    tell: Callable[[Row, int, int], None] = lambda *_: None,
) -> Iterator[Row]:
    """Rows as they are done; those in `output` are not made again. Texts are stored beside it as they come.

    An interrupted row is resumed, and then has no seconds. `tell` is called with (row, texts so far, new texts).
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
    store, code = Store(output), commit()  # as it was loaded: the checkout may change meanwhile
    store.check_training(model.name, model.training)
    marks = {dataset: _marks(model, items) for dataset, items in sets.items()}
    device = device_name(model.denoiser.device)
    for dataset, task, method, K in product(sets, tasks, methods, steps):
        items, made, filling = sets[dataset], marks[dataset], CONTENDERS[method].filling
        row = Row(dataset, split, task, K, seed, len(items), model.name, method)
        able = task in items[0].tasks and (filling is None or task in filling.tasks)
        if row in store or not able:
            continue
        seconds: float | None = 0.0
        if filling is None:
            texts = [item.unfilled for item in items]
            store.add_texts(row, {item.id: item.unfilled for item in items}, made)
        else:
            row = replace(row, **model.training)
            texts, seconds = _filled(model, items, filling, row, made, store, tell)
        row = row.scored(score(items, texts, metrics or usual(items), fluency))
        cut = _cut(items, model.tokenizer)
        row = replace(row, seconds=seconds, cut=cut, batch=model.batch, device=device, commit=code)
        if row not in store:  # another process may have added it meanwhile
            store.add(row)
            yield row


def _marks(model: Loaded, items: Sequence[Item]) -> dict[str, str]:
    """By item, a checksum of what its text is made with: weights, training, device, code and the item."""
    network = model.denoiser
    parts = [part for part in network.state_dict().values() if isinstance(part, torch.Tensor)]
    parts += [module.scale for module in network.modules() if isinstance(module, Int8Linear)]  # they have no parameters
    some = [part.flatten()[:16].float().tolist() for part in parts]
    about = [some, dict(model.training), device_name(model.denoiser.device), source()]
    known = sha256(json.dumps(about, sort_keys=True).encode()).digest()
    return {item.id: sha256(known + repr(item).encode()).hexdigest()[:16] for item in items}


def _filled(
    model: Loaded,
    items: Sequence[Item],
    filling: Filling,
    row: Row,
    made: Mapping[str, str],
    store: Store,
    tell: Callable[[Row, int, int], None],
) -> tuple[list[str], float | None]:
    """(the texts of a row, seconds per text if all were filled now). Stored texts are not filled again."""
    had = store.unfinished(row, made)
    before: dict[int, str] = {i: had[item.id] for i, item in enumerate(items) if item.id in had}
    there = set(before)
    if before:
        tell(row, len(before), 0)

    def keep(texts: Mapping[int, str]) -> None:
        store.add_texts(row, {items[i].id: text for i, text in texts.items()}, made)
        there.update(texts)
        tell(row, len(there), len(texts))

    texts, seconds = generate(model, items, filling, row.task == "located", row.steps, row.seed, before, keep)
    return texts, None if before else seconds


def _cut(items: Sequence[Item], tokenizer: Tokenizer) -> int | None:
    """The number of programs that are longer than what a network is shown."""
    programs = [item.prompted(tokenizer, True) for item in items if isinstance(item, Program)]
    return sum(any(program.cut) for program in programs) if programs else None
