"""How fast blanks are filled, each comparison in one run on the same sentences.

`ddot bench infill`: the product against a plain implementation (float32, always 64 slots, logits at every slot in every
step), and the same trunk generating left to right with a key-value cache; on a GPU also long lists, plain and compiled.
`ddot bench methods`: sampling steps of each method. Weights do not affect speed: baselines run on the model's.
"""

import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from ddot.core.records import Prediction, State
from ddot.core.rng import row_keys
from ddot.infill.engine import ALONE, Window
from ddot.infill.lengths import choose_lengths, roomy
from ddot.infill.model import Model, load
from ddot.infill.scheduler import result_of
from ddot.infill.settings import Settings
from ddot.infill.template import parse
from ddot.infill.view import lay_out, view
from ddot.methods.ddot import DDOT
from ddot.methods.fixed_length import FixedLength
from ddot.methods.left_context import LeftContext
from ddot.methods.method import Method
from ddot.methods.position_prediction import PositionPrediction
from ddot.network.denoiser import Denoiser
from ddot.network.devices import device_name
from ddot.network.trunk import Cache

# About 20 words with their fills.
SENTENCES = (
    "The old lighthouse keeper climbed the stairs every evening ___ and his dog followed him all the way up.",
    "When the rain stopped, the children ran outside and ___ they could find on the quiet street behind the school.",
    "___ that bread tastes best when you bake it yourself and eat it while it is still warm.",
    "The committee will meet again on Thursday to decide ___ before the end of the month or wait until spring.",
    "After three hours on the road we finally ___ and asked for a room with a view of the lake.",
    "He wrote a long letter to his brother in which ___ and promised to visit him soon in the new year.",
)
MANY = 1024


class Everywhere(nn.Module):
    """A network that computes logits at every slot, as the plain implementation does."""

    def __init__(self, model: Denoiser):
        super().__init__()
        self.model = model
        self.vocabulary = model.vocabulary
        self.device = model.device

    def forward(self, state: State) -> Prediction:
        full = self.model(state, at=torch.ones_like(state.x, dtype=torch.bool))
        at = state.x == self.vocabulary.mask
        return replace(full, at=at, log_score=full.log_score[at.flatten()])


# Returns the seconds each sentence took; the mean where many are filled together.
Way = Callable[[], list[float]]


def measure(
    model: str | Path | None = None, steps: int = Settings().steps, rounds: int = 3, device: str | None = None
) -> list[dict[str, Any]]:
    """Rows: milliseconds per sentence (median over sentences and rounds) and the speed-up over the plain path."""
    fast = load(model, device)
    ways = _on_a_gpu(fast, model, steps) if fast.device.type == "cuda" else _on_a_cpu(fast, model, steps)
    times: dict[str, list[float]] = {name: [] for name in ways}
    with torch.inference_mode(), fast.denoiser.half_precision():
        for turn in range(rounds + 1):
            for name, way in ways.items():
                print(f"ddot: round {turn} of {rounds}, {name}", file=sys.stderr)
                spent = way()
                if turn:  # the first round warms up
                    times[name] += spent
    median = {name: float(np.median(some)) for name, some in times.items()}
    base = next(iter(median.values()))
    return [
        {"way": name, "ms": 1000 * value, "sentences_a_second": 1 / value, "times_plain": base / value}
        for name, value in median.items()
    ]


def _on_a_cpu(fast: Model, model: str | Path | None, steps: int) -> dict[str, Way]:
    plain = load(model, device="cpu", precision="float32")
    return {
        "plain: float32, 64 slots, all logits, all steps": _each(plain, partial(_plain, steps=steps)),
        "ddot infill, float32": _each(plain, partial(_infill, steps=steps)),
        "ddot infill, as shipped": _each(fast, partial(_infill, steps=steps)),
        "as shipped, 8 steps": _each(fast, partial(_infill, steps=8)),
        "as shipped, slots move": _each(fast, partial(_infill, steps=steps, terminal="grid")),
        **_on_any(fast, steps),
    }


def _on_a_gpu(fast: Model, model: str | Path | None, steps: int) -> dict[str, Way]:
    compiled = load(model, device=str(fast.device), compile=True)
    another = load(model, device=str(fast.device))
    bare = Model(another.denoiser, another.tokenizer, shape=ALONE)  # batches of one row, not filled up
    return {
        "plain: 64 slots, all logits, all steps": _each(bare, partial(_plain, steps=steps)),
        "ddot infill, one by one": _each(fast, partial(_infill, steps=steps)),
        f"ddot infill, {MANY} sentences": _many(fast, steps),
        f"ddot infill, {MANY} sentences, compiled": _many(compiled, steps),
        "one by one, 8 steps": _each(fast, partial(_infill, steps=8)),
        "one by one, slots move": _each(fast, partial(_infill, steps=steps, terminal="grid")),
        **_on_any(bare, steps),
    }


def _on_any(model: Model, steps: int) -> dict[str, Way]:
    told = _each(model, partial(_infill, steps=steps, bounds="{8}"))
    return {"ddot infill, told 8 words": told, "left to right, same trunk, cached": _each(model, _left_to_right)}


def seconds(work: Callable[[], object], device: torch.device) -> float:
    """How long it takes, until the device has finished."""
    start = time.perf_counter()
    work()
    if device.type == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter() - start


def _each(model: Model, fill: Callable[[Model, str], object]) -> Way:
    return lambda: [seconds(partial(fill, model, text), model.device) for text in SENTENCES]


def _many(model: Model, steps: int) -> Way:
    def fill() -> None:
        texts = enumerate(varied(MANY))
        for _ in model.answers(model.request(text, Settings(seed=seed, steps=steps)) for seed, text in texts):
            pass

    return lambda: [seconds(fill, model.device) / MANY]


def varied(count: int) -> list[str]:
    """Sentences that lack up to eight words at the end, so that lengths vary as in real files."""
    words = [(SENTENCES[i % len(SENTENCES)].split(), i // len(SENTENCES) % 9) for i in range(count)]
    return [" ".join(some[: len(some) - fewer]) for some, fewer in words]


def _infill(model: Model, text: str, bounds: str = "", **settings: Any) -> None:
    model.infill(text.replace("___", f"___{bounds}"), **settings)


def _lengths(model: Model, text: str) -> tuple[Any, Any, list[int]]:
    template = parse(text)
    seen = view(template, model.tokenizer, located=True)
    (chances,) = result_of(model.engine.length_chances([Window(seen, template.blanks, row_keys(0, 1), Settings())]))
    if chances is None:
        return template, seen, [12] * len(template.blanks)
    return template, seen, choose_lengths(seen, template.blanks, chances, row_keys(0, 1))


def _plain(model: Model, text: str, steps: int) -> None:
    template, seen, lengths = _lengths(model, text)
    prompt, _ = lay_out(seen, template.blanks, lengths)
    for _ in FixedLength().sample(Everywhere(model.denoiser), [prompt.example], roomy(0), steps, row_keys(0, 1)):  # type: ignore[arg-type]
        pass


def _left_to_right(model: Model, text: str) -> None:
    """The blank's tokens one by one; sees only the text before it."""
    _, seen, lengths = _lengths(model, text)
    trunk, device = model.denoiser.trunk, model.device
    start = torch.from_numpy(seen.prompt.example.tokens[: seen.after[0] + 1])[None].to(device)
    count = max(1, lengths[0])
    cache, clean = Cache(1, device), torch.zeros(1, device=device)
    token, place = start, 0
    for _ in range(count):
        cache.grow(torch.ones_like(token, dtype=torch.bool))
        here = torch.arange(place, place + token.shape[1], dtype=torch.float32, device=device)[None]
        hidden = trunk.hidden(trunk.embed(token), here, clean, cache)
        place += token.shape[1]
        token = trunk.logits(hidden[:, -1]).argmax(-1, keepdim=True)


METHODS: dict[str, Method] = {"lc": LeftContext(), "pop": PositionPrediction(), "ddot-u": DDOT(projections=())}


def measure_methods(
    model: str | Path | None = None,
    steps: Sequence[int] = (2, 4, 8, 16),
    texts: int | None = None,
    rounds: int = 3,
    device: str | None = None,
) -> list[dict[str, Any]]:
    """Rows: milliseconds per text, and the speed-up over left context in the same round; medians over rounds.

    All texts have the same number of slots; left context reads twice as many. `texts`: the batch (default: one, or 512
    on a GPU).
    """
    for name, number in (*(("steps", K) for K in steps), ("texts", texts), ("rounds", rounds)):
        if number is not None and number < 1:
            raise ValueError(f"{name} is {number}; at least 1 is wanted")
    loaded = load(model, device)
    count = texts or (512 if loaded.device.type == "cuda" else 1)
    # The words alone, not where any are missing.
    prompts = [view(parse(text), loaded.tokenizer, located=False).prompt.example for text in varied(count)]
    times: dict[tuple[int, str], list[float]] = {}

    def sample(name: str, steps: int) -> None:
        for _ in METHODS[name].sample(loaded.denoiser, prompts, roomy(0), steps, row_keys(0, count)):
            pass

    with torch.inference_mode(), loaded.denoiser.half_precision():
        for turn, K, name in product(range(rounds + 1), steps, METHODS):
            if turn:  # the first round warms up
                print(f"ddot: round {turn} of {rounds}, {name}, {K} steps", file=sys.stderr)
            spent = seconds(partial(sample, name, K if turn else 1), loaded.device)
            times.setdefault((K, name), []).extend([spent] * bool(turn))
    rows = []
    for (K, name), some in times.items():
        faster = float(np.median(np.divide(times[K, "lc"], some)))  # within a round: the speed of a machine varies
        rows.append({
            "sampler": name, "device": device_name(loaded.denoiser.device), "texts_at_once": count, "steps": K,
            "ms_a_text": 1000 * float(np.median(some)) / count, "times_lc": faster,
        })  # fmt: skip
    return rows
