"""`ddot evaluate`: fill benchmark items with a model and score the texts, one row per contender and task."""

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
from ddot.evaluation.filling import Filling, Loaded, Workload
from ddot.evaluation.items import TASKS, Item, Program, read_set
from ddot.evaluation.metrics.scoring import METRICS, Fluency, score, usual
from ddot.evaluation.rows import Row, refuse_unknown
from ddot.evaluation.store import Store
from ddot.infill.settings import whole_number
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
    texts: dict[int, str] = dict(done or {})
    remaining = [i for i in range(len(items)) if i not in texts]
    if model.denoiser.device.type == "cuda":  # warm up, outside the timing
        list(filling.texts(Workload(model, items, remaining[: model.batch], located, 1, seed)))
    start = time.monotonic()
    for batch in filling.texts(Workload(model, items, remaining, located, steps, seed)):
        texts |= batch
        keep(batch)
    seconds = (time.monotonic() - start) / max(1, len(remaining))
    return [texts[i] for i in range(len(items))], seconds


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
    """Yield rows as they are finished; rows already in `output` are skipped. Texts are stored beside it.

    An interrupted row is resumed, and then has no seconds. `tell` is called with (row, texts so far, new texts).
    """
    refuse_unknown("unknown task", tasks, TASKS)
    refuse_unknown("unknown method", methods, CONTENDERS)
    refuse_unknown("unknown metric", metrics or (), METRICS)
    for name, number in (("limit", 1 if limit is None else limit), *(("steps", K) for K in steps)):
        whole_number(name, number, 1)
    sets = {dataset: read_set(bench, dataset, split)[:limit] for dataset in datasets}
    store, code = Store(output), commit()  # now: the checkout may change during the run
    store.check_training(model.name, model.training)
    checksums = {dataset: _checksums(model, items) for dataset, items in sets.items()}
    device = device_name(model.denoiser.device)
    for dataset, task, method, K in product(sets, tasks, methods, steps):
        items, made, filling = sets[dataset], checksums[dataset], CONTENDERS[method].filling
        row = Row(dataset, split, task, K, seed, len(items), model.name, method)
        if row in store or task not in items[0].tasks or task not in CONTENDERS[method].tasks:
            continue
        seconds: float | None = 0.0
        if filling is None:
            texts = [item.unfilled for item in items]
            store.add_texts(row, {item.id: item.unfilled for item in items}, made)
        else:
            row = replace(row, **model.training)
            texts, seconds = _filled(model, items, filling, row, made, store, tell)
        row = row.updated(score(items, texts, metrics or usual(items), fluency))
        cut = _cut(items, model.tokenizer)
        row = replace(row, seconds=seconds, cut=cut, batch=model.batch, device=device, commit=code)
        if row not in store:  # another process may have added it
            store.add(row)
            yield row


def _checksums(model: Loaded, items: Sequence[Item]) -> dict[str, str]:
    """By item, a checksum of everything that decides its text: weights, training, device, code and the item."""
    network = model.denoiser
    tensors = [value for value in network.state_dict().values() if isinstance(value, torch.Tensor)]
    tensors += [module.scale for module in network.modules() if isinstance(module, Int8Linear)]  # not in state_dict
    weights = [tensor.flatten()[:16].float().tolist() for tensor in tensors]
    facts = [weights, dict(model.training), device_name(model.denoiser.device), source()]
    common = sha256(json.dumps(facts, sort_keys=True).encode()).digest()
    return {item.id: sha256(common + repr(item).encode()).hexdigest()[:16] for item in items}


def _filled(
    model: Loaded,
    items: Sequence[Item],
    filling: Filling,
    row: Row,
    made: Mapping[str, str],
    store: Store,
    tell: Callable[[Row, int, int], None],
) -> tuple[list[str], float | None]:
    """(the texts of a row, seconds per text if none was stored). Stored texts are not filled again."""
    stored = store.unfinished(row, made)
    done: dict[int, str] = {i: stored[item.id] for i, item in enumerate(items) if item.id in stored}
    count = len(done)
    if done:
        tell(row, count, 0)

    def keep(texts: Mapping[int, str]) -> None:
        nonlocal count
        store.add_texts(row, {items[i].id: text for i, text in texts.items()}, made)
        count += len(texts)
        tell(row, count, len(texts))

    texts, seconds = generate(model, items, filling, row.task == "located", row.steps, row.seed, done, keep)
    return texts, None if done else seconds


def _cut(items: Sequence[Item], tokenizer: Tokenizer) -> int | None:
    """The number of programs too long to be shown whole; None if no item is a program."""
    programs = [item.prompted(tokenizer, True) for item in items if isinstance(item, Program)]
    return sum(any(program.cut) for program in programs) if programs else None
