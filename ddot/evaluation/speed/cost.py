"""What a text costs, against the words around a blank and against the number of blanks: `ddot bench cost`."""

import sys
import time
from collections.abc import Sequence
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

from ddot.infill.model import load

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


def measure(
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
    ways = [("words", count, 1) for count in words] + [("blanks", AROUND, count) for count in blanks]
    spent: dict[tuple[str, int, int], list[Any]] = {way: [] for way in ways}
    written = dict[tuple[str, int, int], int]()
    for turn, way in product(range(rounds + 1), ways):
        print(f"ddot: round {turn} of {rounds}, {way[1]} words, blanks: {way[2]}", file=sys.stderr)
        start = _clocks()
        answers = [loaded.infill(text_of(middle, *way[1:]))[0] for middle in (PLACES if turn else PLACES[:1])]
        if turn:  # the first round warms up
            spent[way].append(1000 * (_clocks() - start) / len(PLACES))
            written[way] = sum(len(fill.split()) for answer in answers for fill in answer.fills)
    rows = []
    for (against, given, some), times in spent.items():
        row: dict[str, Any] = {"against": against, "words": given, "blanks": some}
        row["words_written"] = written[against, given, some] / len(PLACES)
        for name, values in zip(("ms", "cpu_ms"), np.transpose(times), strict=True):
            low, median, high = map(float, np.quantile(values, (0, 0.5, 1)))
            row |= {name: median, f"{name}_least": low, f"{name}_most": high}
        rows.append(row)
    return rows


def _clocks() -> Any:
    """Seconds by the clock, and those that a core worked for this process: others share a busy machine."""
    return np.array([time.perf_counter(), time.process_time()])
