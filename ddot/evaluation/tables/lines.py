"""Measured rows, gathered into the lines of a table: seeds averaged, fewer items said, the best found.

A line is one way of filling with one model at one number of steps, over several sets.
"""

import math
import statistics
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ddot.evaluation.contenders import CONTENDERS, contender, order
from ddot.evaluation.rows import UNFILLED, Row, is_number
from ddot.evaluation.tables.page import EMPTY, Cell, Piece, cell

LABELS = {name: one.label for name, one in CONTENDERS.items()}
SETS = {
    "1bw-block": "One-Billion-Word, block",
    "yelp-block": "Yelp, block",
    "1bw-random": "One-Billion-Word, random",
    "yelp-random": "Yelp, random",
    "code-block": "code, block",
    "code-random": "code, random",
}
TASKS = {
    "free": "ours, free: words in order, gaps not told (the paper's task)",
    "located": "ours, located: told where words are missing",
}
# Items of the whole rebuilt sets, by split and by what stands before the dash of a set's name.
WHOLE = {
    "test": {"1bw": 1000, "yelp": 1000, "code": 500},
    "dev": {"1bw": 500, "yelp": 500, "code": 300},
}
LOWER_IS_BETTER = ("length_error_abs", "perplexity", "gaps_extra")
# No virtue by themselves: each is had by leaving all gaps empty, or by filling them all with anything.
_NOT_COMPARED = ("length_error", "seconds", "gaps_found", "gaps_extra", "d2", "d4", "perplexity")
_FORMATS = {"nist2": ".2f", "nist4": ".2f", "length_error": "+.1f", "seconds": ".3g", "perplexity": ".0f"}


@dataclass(frozen=True)
class Measure:
    """A metric over seeds; no deviation where there is one seed."""

    mean: float
    deviation: float | None = None

    def text(self, metric: str) -> str:
        form = number_format(metric)
        shown = signed(self.mean, form)
        spread = ".2g" if form.endswith("g") else form.lstrip("+")
        return shown if self.deviation is None else f"{shown} ± {self.deviation:{spread}}"

    def rounded(self, metric: str) -> float:
        """The mean as it is shown."""
        return float(f"{self.mean:{number_format(metric)}}")


def number_format(metric: str) -> str:
    """How many digits a metric is shown with, and whether with its sign."""
    return _FORMATS.get(metric, ".1f")


def signed(value: float, form: str) -> str:
    """The number with a true minus, and no sign where it is shown as 0."""
    text = f"{value:{form}}"
    if float(text) == 0:
        return text.lstrip("+-")
    return text.replace("-", "−", 1) if value < 0 else text


@dataclass(frozen=True, eq=False)
class Line:
    """`rows`: set → a row for each seed. `limit`: the number of items where that is not the whole set."""

    method: str
    model: str
    task: str
    split: str
    steps: int | None
    limit: int | None
    rows: Mapping[str, Sequence[Row]]

    def measure(self, dataset: str, metric: str) -> Measure | None:
        values = [row[metric] for row in self.rows.get(dataset, ()) if is_number(row.get(metric))]
        if not values:
            return None
        return Measure(statistics.fmean(values), statistics.stdev(values) if len(values) > 1 else None)

    @property
    def seeds(self) -> int:
        return max(len(some) for some in self.rows.values())

    def every(self, name: str) -> set[Any]:
        """All the values of a field that rows of the line have."""
        return {row[name] for some in self.rows.values() for row in some if row.get(name) is not None}

    @property
    def trained(self) -> float | None:
        """Seconds its model was trained for, with its start."""
        return max(map(float, self.every("training_seconds")), default=None)


def gather(
    rows: Iterable[Row], sets: Sequence[str], methods: Sequence[str] | None = None, metrics: Sequence[str] = ()
) -> list[Line]:
    """Lines of the rows on `sets`, in the order of `LABELS`, of models and of steps.

    With `metrics`, only rows that hold one of them count.
    """
    groups: dict[tuple[Any, ...], dict[str, list[Row]]] = {}
    for row in rows:
        if row["dataset"] not in sets or (methods is not None and row["method"] not in methods):
            continue
        if metrics and not any(is_number(row.get(metric)) for metric in metrics):
            continue
        whole = WHOLE.get(row["split"], {}).get(row["dataset"].partition("-")[0])
        limit = None if row["items"] == whole else row["items"]
        if row["method"] == UNFILLED:
            key = (UNFILLED, "", "", row["split"], None, limit)
        else:
            key = (*(row[name] for name in ("method", "model", "task", "split", "steps")), limit)
        groups.setdefault(key, {}).setdefault(row["dataset"], []).append(row)
    lines = []
    for (method, model, task, split, steps, limit), found in groups.items():
        lines.append(Line(method, model, task, split, steps, limit, found))
    return sorted(
        lines,
        key=lambda line: (
            order(line.method),
            *(line.model, line.split != "test", line.steps or 0, line.limit or math.inf),
        ),
    )


def widest(lines: Sequence[Line]) -> list[Line]:
    """Without the lines of a sweep over steps: of lines that differ in their steps alone, those on the most sets stay.

    Where that is a draw, those stay whose number of steps most ways of filling have. Nor are there lines of short
    trials, of λ say: models trained, with their start, less than nine tenths as long as another one by their recipe.
    """
    alike: dict[tuple[Any, ...], list[Line]] = {}
    for line in _trained(lines):
        alike.setdefault((line.method, line.model, line.task, line.split, line.limit), []).append(line)
    wide = [_most(some, lambda line: len(line.rows)) for some in alike.values()]
    ways = Counter((line.task, line.steps) for some in wide for line in some)
    kept = {id(line) for some in wide for line in _most(some, lambda line: ways[line.task, line.steps])}
    return [line for line in lines if id(line) in kept]


def _trained(lines: Sequence[Line]) -> list[Line]:
    seconds = [line.trained or 0.0 for line in lines]
    longest: dict[Any, float] = {}
    for line, time in zip(lines, seconds, strict=True):
        for recipe in line.every("recipe"):
            longest[recipe] = max(longest.get(recipe, 0.0), time)
    return [
        line for line, time in zip(lines, seconds, strict=True)
        if all(time >= 0.9 * longest[recipe] for recipe in line.every("recipe"))
    ]  # fmt: skip


def trained_as_long(line: Line, times: Iterable[float]) -> bool:
    """Whether its model was trained for one of these times, a tenth more or less."""
    return any(_as_long(time, other) for time in line.every("training_seconds") for other in times)


def _as_long(time: float, other: float) -> bool:
    return abs(time - other) <= other / 10


def equally_trained(lines: Sequence[Line]) -> bool:
    """Whether all models were trained as long, as far as their rows say."""
    known = [line.trained for line in lines if line.trained is not None]
    return not known or (len(known) == len(lines) and _as_long(max(known), min(known)))


def _most(lines: Sequence[Line], count: Callable[[Line], int]) -> list[Line]:
    most = max(count(line) for line in lines)
    return [line for line in lines if count(line) == most]


def task_lines(lines: Sequence[Line]) -> list[tuple[str, list[Line]]]:
    """(title, lines) for each task there is; the unfilled prompt is the same in all, of as many items as are filled."""
    unfilled = [line for line in lines if line.method == UNFILLED]
    present = {line.task for line in lines} - {""}
    tasks = [task for task in TASKS if task in present] + sorted(present - set(TASKS))
    if not tasks and unfilled:
        return [("ours", unfilled)]
    found = []
    for task in tasks:
        filled = [line for line in lines if line.task == task]
        items = {(line.split, line.limit) for line in filled}
        beside = [line for line in unfilled if (line.split, line.limit) in items]
        found.append((TASKS.get(task, f"ours, {task}"), [*beside, *filled]))
    return found


def _same_steps(line: Line) -> Any:
    return line.steps


def _compared_by(lines: Sequence[Line]) -> list[float | None]:
    """How long a training each line is compared by: that of the models trained as long as its own, and where there is
    none, the next longer one that several models had. A line with neither is compared with those of its model."""
    times: dict[str, float | None] = dict.fromkeys(line.model for line in lines)
    for line in lines:
        times[line.model] = max(filter(None, (times[line.model], line.trained)), default=None)
    alike: list[list[float]] = []
    for time in sorted(time for time in times.values() if time is not None):
        if alike and _as_long(time, alike[-1][-1]):
            alike[-1].append(time)
        else:
            alike.append([time])
    shared = [some for some in alike if len(some) > 1]
    return [
        None if time is None else next((some[0] for some in shared if some[-1] >= time), time)
        for time in (times[line.model] for line in lines)
    ]


def best(lines: Sequence[Line], dataset: str, metric: str, alike: Callable[[Line], Any] = _same_steps) -> set[int]:
    """Places of the lines that are best in a metric, as shown, among lines that may be compared and differ in it.

    Those are of one split, one number of items, alike in what `alike` says, and of models that were trained alike.
    """
    if metric in _NOT_COMPARED:
        return set()
    groups: dict[Any, dict[int, float]] = {}
    for place, (line, trained) in enumerate(zip(lines, _compared_by(lines), strict=True)):
        found = line.measure(dataset, metric)
        if found is not None and not contender(line.method).reference:
            groups.setdefault((line.split, line.limit, trained, alike(line)), {})[place] = found.rounded(metric)
    choose = min if metric in LOWER_IS_BETTER else max
    tops = [(group, choose(group.values())) for group in groups.values() if len(set(group.values())) > 1]
    return {place for group, top in tops for place, value in group.items() if value == top}


def measured_cells(
    lines: Sequence[Line], dataset: str, metrics: Sequence[str], alike: Callable[[Line], Any] = _same_steps
) -> list[Cell]:
    """A cell for each line: the metrics on one set, the best in bold; – where none was measured."""
    tops = {metric: best(lines, dataset, metric, alike) for metric in metrics}
    cells = []
    for place, line in enumerate(lines):
        found = [(metric, line.measure(dataset, metric)) for metric in metrics]
        if all(value is None for _, value in found):
            cells.append(cell(EMPTY))
            continue
        pieces: list[Piece] = []
        for metric, value in found:
            pieces += [Piece(" / ")] * bool(pieces)
            shown = EMPTY if value is None else value.text(metric)
            pieces.append(Piece(shown, place in tops[metric]))
        cells.append(tuple(pieces))
    return cells
