"""Speed of infilling; each comparison is one run on the same sentences, on one core.

`ddot bench infill`: the product against a plain implementation (float32, always 64 slots, logits at every slot in every
step), and against the same trunk generating left to right with a key-value cache; on a GPU also long lists, plain and
compiled.
`ddot bench methods`: sampling steps of each method. Weights do not affect speed, so baselines use the model's.
`ddot bench cost`: the cost of a text, against the words around a blank and against the number of blanks.
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
from ddot.infill.engine import CPU, Window
from ddot.infill.model import Model, load
from ddot.infill.planned_lengths import choose_lengths, default_slots
from ddot.infill.scheduler import result_of
from ddot.infill.settings import Settings, whole_number
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
    """The results of each way in each round. Ways take turns; a first round, called with True, warms up."""
    torch.set_num_threads(1)
    results: dict[str, list[R]] = {name: [] for name in ways}
    for turn, (name, way) in product(range(rounds + 1), ways.items()):
        print(f"ddot: round {turn} of {rounds}, {name}", file=sys.stderr)
        result = way(turn == 0)
        results[name] += [result] * bool(turn)
    return results


# Returns the seconds of each sentence, or their mean if they are filled together.
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
    bare = Model(another.denoiser, another.tokenizer, shape=CPU)  # batches of one row, without padding rows
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
    return {
        "ddot infill, told 8 words": _each(model, partial(_infill, steps=steps, bounds="{8}")),
        "left to right, same trunk, cached": _each(model, _left_to_right),
    }


def seconds(work: Callable[[], object], device: torch.device) -> float:
    """Wall-clock time until the device has finished."""
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
    """Sentences with up to eight words cut off at the end, so that lengths vary as in real files."""
    cuts = [(SENTENCES[i % len(SENTENCES)].split(), i // len(SENTENCES) % 9) for i in range(count)]
    return [" ".join(words[: len(words) - cut]) for words, cut in cuts]


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
    everywhere: Any = Everywhere(model.denoiser)
    for _ in FixedLength().sample(everywhere, [prompt.example], default_slots(0), steps, row_keys(0, 1)):
        pass


def _left_to_right(model: Model, text: str) -> None:
    """Generate the tokens of the blank one by one, from the text before it."""
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

    All texts have the same number of slots; left context reads twice as many. `texts`: batch size (default: 1, or 512
    on a GPU).
    """
    for name, number in (*(("steps", K) for K in steps), ("texts", 1 if texts is None else texts), ("rounds", rounds)):
        whole_number(name, number, 1)
    loaded = load(model, device)
    count = texts or (512 if loaded.device.type == "cuda" else 1)
    # Just the words, without hints about gaps.
    prompts = [view(parse(text), loaded.tokenizer, located=False).prompt.example for text in varied(count)]

    def sample(name: str, steps: int) -> None:
        for _ in METHODS[name].sample(loaded.denoiser, prompts, default_slots(0), steps, row_keys(0, count)):
            pass

    def timed(name: str, steps: int, warm: bool) -> float:
        return seconds(partial(sample, name, 1 if warm else steps), loaded.device)

    ways = {f"{name}, {K} steps": partial(timed, name, K) for K, name in product(steps, METHODS)}
    with torch.inference_mode(), loaded.denoiser.half_precision():
        times = in_turn(ways, rounds)
    rows = []
    for (K, name), measured in zip(product(steps, METHODS), times.values(), strict=True):
        # Ratios within a round, since the speed of a machine varies.
        speed_up = float(np.median(np.divide(times[f"lc, {K} steps"], measured)))
        rows.append({
            "sampler": name, "device": device_name(loaded.denoiser.device), "texts_at_once": count, "steps": K,
            "ms_a_text": 1000 * float(np.median(measured)) / count, "times_lc": speed_up,
        })  # fmt: skip
    return rows


# Texts are excerpts, which wrap around at its end. It is longer than a window, so that no window holds a part twice.
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
PLACES = (24, 60, 105, 140)  # word indices of the middles of the texts
MISSING = 3  # words that a blank replaces
AROUND = 64  # given words, if the number of blanks varies


def text_of(middle: int, words: int, blanks: int) -> str:
    """`words` words of the passage around its word `middle`, with evenly spread blanks."""
    passage = PASSAGE.split()
    place, parts = middle - (words + MISSING * (blanks - 1)) // 2, []
    for part in np.array_split(np.arange(words), blanks + 1):
        parts.append(" ".join(passage[at % len(passage)] for at in range(place, place + len(part))))
        place += len(part) + MISSING
    return " ___ ".join(parts)


def measure_cost(
    words: Sequence[int] = (8, 16, 32, 64, 128, 512),
    blanks: Sequence[int] = (1, 2, 4, 8),
    model: str | Path | None = None,
    rounds: int = 3,
    device: str | None = None,
) -> list[dict[str, Any]]:
    """Rows: milliseconds per text, wall clock and CPU time; median, minimum and maximum of the rounds' means."""
    for name, least, most, counts in (("words", 2, 100_000, words), ("blanks", 1, AROUND // 2, blanks)):
        for count in counts:
            whole_number(name, count, least, most)
    loaded = load(model, device)

    def fill(given: int, count: int, warm: bool) -> tuple[float, float, float]:
        """(wall-clock milliseconds, CPU milliseconds, words written) per text."""
        clock, cpu = time.perf_counter(), time.process_time()
        answers = [loaded.infill(text_of(middle, given, count))[0] for middle in (PLACES[:1] if warm else PLACES)]
        clock, cpu = time.perf_counter() - clock, time.process_time() - cpu
        written = sum(len(fill.split()) for answer in answers for fill in answer.fills)
        return 1000 * clock / len(answers), 1000 * cpu / len(answers), written / len(answers)

    texts = [("words", count, 1) for count in words] + [("blanks", AROUND, count) for count in blanks]
    ways = {f"{given} words, blanks: {count} (by {name})": partial(fill, given, count) for name, given, count in texts}
    rows = []
    for (against, given, count), results in zip(texts, in_turn(ways, rounds).values(), strict=True):
        row: dict[str, Any] = {"against": against, "words": given, "blanks": count, "words_written": results[-1][2]}
        for name, values in zip(("ms", "cpu_ms"), np.transpose(results), strict=False):
            low, median, high = map(float, np.quantile(values, (0, 0.5, 1)))
            row |= {name: median, f"{name}_least": low, f"{name}_most": high}
        rows.append(row)
    return rows
