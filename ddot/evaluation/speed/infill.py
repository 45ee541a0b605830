"""How fast blanks are filled, each comparison in one run on the same sentences.

`ddot bench infill`: the product against a plain implementation (float32, always 64 slots, logits at every slot in every
step), and the same trunk generating left to right with a key-value cache; on a GPU also long lists, plain and compiled.
`ddot bench methods`: sampling steps of each method. Weights do not affect speed: baselines run on the model's.
`ddot bench cost`: what a text costs, against the words around a blank and against the number of blanks.
"""

import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any, TypeVar

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


R = TypeVar("R")


def in_turn(ways: Mapping[str, Callable[[bool], R]], rounds: int) -> dict[str, list[R]]:
    """What each way returns in each round, all of them taking turns; a first round, called with True, warms up."""
    found: dict[str, list[R]] = {name: [] for name in ways}
    for turn, (name, way) in product(range(rounds + 1), ways.items()):
        print(f"ddot: round {turn} of {rounds}, {name}", file=sys.stderr)
        result = way(turn == 0)
        found[name] += [result] * bool(turn)
    return found


# Returns the seconds each sentence took; the mean where many are filled together.
Way = Callable[[bool], list[float]]


def measure(
    model: str | Path | None = None, steps: int = Settings().steps, rounds: int = 3, device: str | None = None
) -> list[dict[str, Any]]:
    """Rows: milliseconds per sentence (median over sentences and rounds) and the speed-up over the plain path."""
    fast = load(model, device)
    ways = _on_a_gpu(fast, model, steps) if fast.device.type == "cuda" else _on_a_cpu(fast, model, steps)
    with torch.inference_mode(), fast.denoiser.half_precision():
        median = {name: float(np.median(times)) for name, times in in_turn(ways, rounds).items()}
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
    return lambda _: [seconds(partial(fill, model, text), model.device) for text in SENTENCES]


def _many(model: Model, steps: int) -> Way:
    def fill() -> None:
        texts = enumerate(varied(MANY))
        for _ in model.answers(model.request(text, Settings(seed=seed, steps=steps)) for seed, text in texts):
            pass

    return lambda _: [seconds(fill, model.device) / MANY]


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

    def sample(name: str, steps: int) -> None:
        for _ in METHODS[name].sample(loaded.denoiser, prompts, roomy(0), steps, row_keys(0, count)):
            pass

    def timed(name: str, steps: int, warm: bool) -> float:
        return seconds(partial(sample, name, 1 if warm else steps), loaded.device)

    ways = {f"{name}, {K} steps": partial(timed, name, K) for K, name in product(steps, METHODS)}
    with torch.inference_mode(), loaded.denoiser.half_precision():
        times = in_turn(ways, rounds)
    rows = []
    for (K, name), some in zip(product(steps, METHODS), times.values(), strict=True):
        # Within a round: the speed of a machine varies.
        faster = float(np.median(np.divide(times[f"lc, {K} steps"], some)))
        rows.append({
            "sampler": name, "device": device_name(loaded.denoiser.device), "texts_at_once": count, "steps": K,
            "ms_a_text": 1000 * float(np.median(some)) / count, "times_lc": faster,
        })  # fmt: skip
    return rows


# Texts are parts of it, begun again at its end: longer than a window, so that none is read twice at once.
PASSAGE = """
Every spring my grandmother planted beans along the fence behind the kitchen, and every summer half the street came to
pick them. She never counted what they took. In the evenings she sat on the back step with a bowl in her lap, told us
which neighbour had asked for seeds, and laughed about the one who pretended that he had grown his own. When she moved
to the city she took a jar of them along and put three pots on the balcony of her flat. The first year nothing came up,
because pigeons found the pots before the sun did. The second year she stretched an old curtain over them, and by July
the railing was green from one end to the other. Now the children of the house learn to count with her beans, and on
Sundays the stairs smell of garlic and mint. I still have her jar. It stands beside the window of my office, where
nothing will ever grow, and I would not give it away for anything.
"""
PLACES = (24, 60, 105, 140)  # words before the middle of each text
MISSING = 3  # words a blank stands for
AROUND = 64  # words given where the number of blanks varies


def text_of(middle: int, words: int, blanks: int) -> str:
    """Words of the passage around its word `middle`, at evenly spread places blanks instead of a few more."""
    every = PASSAGE.split()
    place, parts = middle - (words + MISSING * (blanks - 1)) // 2, []
    for part in np.array_split(np.arange(words), blanks + 1):
        parts.append(" ".join(every[at % len(every)] for at in range(place, place + len(part))))
        place += len(part) + MISSING
    return " ___ ".join(parts)


def measure_cost(
    words: Sequence[int] = (8, 16, 32, 64, 128, 512),
    blanks: Sequence[int] = (1, 2, 4, 8),
    model: str | Path | None = None,
    rounds: int = 3,
    device: str | None = None,
) -> list[dict[str, Any]]:
    """Rows: milliseconds per text, by the clock and of CPU time: median, least and most of the rounds' means."""
    for name, least, most, counts in (("words", 2, 100_000, words), ("blanks", 1, AROUND // 2, blanks)):
        if wrong := [count for count in counts if not least <= count <= most]:
            raise ValueError(f"{name} is {wrong[0]}; between {least} and {most:,} can be measured")
    loaded = load(model, device)

    def fill(given: int, count: int, warm: bool) -> tuple[float, float, float]:
        """(milliseconds by the clock, those that a core worked for this process, words written) per text."""
        clock, worked = time.perf_counter(), time.process_time()
        answers = [loaded.infill(text_of(middle, given, count))[0] for middle in (PLACES[:1] if warm else PLACES)]
        clock, worked = time.perf_counter() - clock, time.process_time() - worked
        written = sum(len(fill.split()) for answer in answers for fill in answer.fills)
        return 1000 * clock / len(answers), 1000 * worked / len(answers), written / len(answers)

    texts = [("words", count, 1) for count in words] + [("blanks", AROUND, count) for count in blanks]
    ways = {f"{given} words, blanks: {some} (by {name})": partial(fill, given, some) for name, given, some in texts}
    rows = []
    for (against, given, some), spent in zip(texts, in_turn(ways, rounds).values(), strict=True):
        row: dict[str, Any] = {"against": against, "words": given, "blanks": some, "words_written": spent[-1][2]}
        for name, values in zip(("ms", "cpu_ms"), np.transpose(spent), strict=False):
            low, median, high = map(float, np.quantile(values, (0, 0.5, 1)))
            row |= {name: median, f"{name}_least": low, f"{name}_most": high}
        rows.append(row)
    return rows
