"""Measured rows as the lines of a table: seeds averaged, lines chosen, named, the best in bold.

A line is one contender with one model, on one task, at one number of steps, over several sets.
"""

import statistics
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import PurePath

from ddot.evaluation.contenders import contender, importance, order
from ddot.evaluation.rows import HEADS, UNFILLED, Row
from ddot.evaluation.tables.page import EMPTY, bold, is_bold, joined

SETS = {
    "1bw-block": "One-Billion-Word, block",
    "yelp-block": "Yelp, block",
    "1bw-random": "One-Billion-Word, random",
    "yelp-random": "Yelp, random",
    "code-block": "code, block",
    "code-random": "code, random",
    "people": "everyday texts",
    "rocstories": "stories",
}
TASKS = ("free", "located")
LOWER_IS_BETTER = ("length_error_abs", "perplexity", "gaps_extra", "fill_length_error_abs", "fill_empty", "nats")
# Never bold: leaving every gap empty, or filling every gap with anything, scores well in each.
_NOT_COMPARED = (
    *("length_error", "fill_length_error", "seconds", "gaps_found", "gaps_extra", "d2", "d4", "perplexity"),
    "fill_empty",
)
_FORMATS = {
    **{"nist2": ".2f", "nist4": ".2f", "nats": ".2f", "seconds": ".3g", "perplexity": ".0f"},
    **dict.fromkeys(("length_error", "fill_length_error"), "+.1f"),
}
BOLD = "Bold: best among models with the same training budget (±10%), steps and items."


def number_format(metric: str) -> str:
    """The digits of a metric, and whether its sign is shown."""
    return _FORMATS.get(metric, ".1f")


def signed(value: float, form: str) -> str:
    """The number with a true minus, and no sign where it shows as 0."""
    text = f"{value:{form}}"
    if float(text) == 0:
        return text.lstrip("+-")
    return text.replace("-", "−", 1) if value < 0 else text


@dataclass(frozen=True)
class Measure:
    """A metric over seeds; no deviation with one seed."""

    mean: float
    deviation: float | None = None

    def text(self, metric: str) -> str:
        form = number_format(metric)
        spread = ".2g" if form.endswith("g") else form.lstrip("+")
        return signed(self.mean, form) + ("" if self.deviation is None else f" ± {self.deviation:{spread}}")


@dataclass(frozen=True, eq=False)
class Line:
    """`rows`: for each set, a row per seed; `row` is the first of them."""

    rows: Mapping[str, Sequence[Row]]

    @property
    def row(self) -> Row:
        return next(iter(self.rows.values()))[0]

    @property
    def every(self) -> list[Row]:
        return [row for some in self.rows.values() for row in some]

    @property
    def budget(self) -> float | None:
        """Seconds its model was trained for, including the model it started from."""
        return max((row.training_seconds for row in self.every if row.training_seconds is not None), default=None)

    def measure(self, dataset: str, metric: str) -> Measure | None:
        values = [value for row in self.rows.get(dataset, ()) if (value := row.measure(metric)) is not None]
        if not values:
            return None
        return Measure(statistics.fmean(values), statistics.stdev(values) if len(values) > 1 else None)


def gather(rows: Iterable[Row], sets: Sequence[str], metrics: Sequence[str] = ()) -> list[Line]:
    """The lines of rows on these sets that have one of the metrics: by task, then in the registry's order.

    The unfilled prompt comes first, where anything is filled beside it or there is nothing else.
    """
    groups: dict[tuple[str | int, ...], dict[str, list[Row]]] = {}
    for row in rows:
        if row.dataset in sets and (not metrics or any(row.measure(metric) is not None for metric in metrics)):
            key: tuple[str | int, ...] = (row.method, row.split, row.items)  # all there is of the unfilled prompt
            key += () if row.method == UNFILLED else (row.model, row.task, row.steps)
            groups.setdefault(key, {}).setdefault(row.dataset, []).append(row)
    lines = [Line(found) for found in groups.values()]
    filled = {_items(row) for line in lines for row in line.every if row.method != UNFILLED}
    lines = [line for line in lines if line.row.method != UNFILLED or not filled or filled & {*map(_items, line.every)}]
    return sorted(lines, key=lambda line: _place(line.row))


def _items(row: Row) -> tuple[str, str, int]:
    return row.dataset, row.split, row.items


def _place(row: Row) -> tuple[object, ...]:
    task = "" if row.method == UNFILLED else row.task
    return task, order(row.method), row.model, row.split != "test", row.steps, -row.items


def of_own_model(rows: Sequence[Row]) -> list[Row]:
    """Rows at the usual number of steps; only its own model (in its recipe's folder) for a contender that has one."""
    own = {(row.method, row.task, row.dataset) for row in rows if is_own(row)}
    shown = [row for row in rows if (row.method, row.task, row.dataset) not in own or is_own(row)]
    counts = Counter(row.steps for row in shown if row.method != UNFILLED)
    usual = max(counts, key=lambda steps: (counts[steps], steps), default=None)
    has = {(row.method, row.model, row.task) for row in shown if row.steps == usual}
    return [row for row in shown if row.steps == usual or (row.method, row.model, row.task) not in has]


def is_own(row: Row) -> bool:
    """Whether its model was trained for its contender."""
    return contender(row.method).recipe == PurePath(row.model).name


def rank(row: Row) -> tuple[bool, int]:
    """A sort key: contenders with models of their own, the most important first."""
    return contender(row.method).recipe is not None and not is_own(row), importance(row.method)


def shortened(lines: Sequence[Line], room: int | None) -> list[Line]:
    """The most important `room` lines, in their order; all for None."""
    ranked = sorted(lines, key=lambda line: importance(line.row.method))[:room]
    return [line for line in lines if line in ranked]


def model_name(model: str) -> str:
    """A model in a table; of an absolute path only the folder."""
    return PurePath(model).name if PurePath(model).is_absolute() else model


@dataclass(frozen=True)
class Naming:
    """What the names of lines must say because it differs between them."""

    models: bool
    steps: bool
    tasks: bool
    items: int

    @classmethod
    def of(cls, lines: Sequence[Line], steps: bool = True, tasks: bool = True) -> "Naming":
        rows = [line.row for line in lines if contender(line.row.method).filling]
        models, counts, kinds = (len({getattr(row, name) for row in rows}) > 1 for name in ("model", "steps", "task"))
        most = Counter(row.items for line in lines for row in line.every).most_common(1)
        return cls(models, steps and counts, tasks and kinds, most[0][0] if most else 0)

    def name(self, line: Line) -> str:
        """The contender's label, and its model unless that was trained for it."""
        row = line.row
        parts = [contender(row.method).label]
        if contender(row.method).filling:
            parts += [model_name(row.model)] * (self.models and not is_own(row)) + [f"{row.steps} steps"] * self.steps
            parts += [row.task] * self.tasks
        parts += [f"{row.split} split"] * (row.split != "test")
        return ", ".join(parts) + f" (n = {row.items})" * (row.items != self.items)


def notes_of(lines: Sequence[Line], metrics: Sequence[str], body: Iterable[Sequence[str]] = ()) -> list[str]:
    """The sentences under a table: what all of its lines share, and how certain they are."""
    rows = [row for line in lines for row in line.every if row.method != UNFILLED]
    notes = []
    if len(steps := {row.steps for row in rows if contender(row.method).filling}) == 1:
        notes.append(f"{steps.pop()} steps.")
    if lines:
        notes.append(f"n = {Naming.of(lines).items:,} items per set unless stated.")
    if any(len(some) > 1 for line in lines for some in line.rows.values()):
        notes.append("±: standard deviation over seeds.")
    if any(map(is_bold, chain.from_iterable(body))):
        notes.append(BOLD)
    ends = {m: [row.intervals[m] for row in rows if row.intervals and row.intervals.get(m)] for m in metrics}
    halves = {metric: max((high - low) / 2 for low, high in some) for metric, some in ends.items() if some}
    if told := [f"{HEADS[m]} ± {half:{number_format(m).lstrip('+')}}" for m, half in halves.items()]:
        notes.append(f"95% intervals (bootstrap over items) are at most {', '.join(told)}.")
    if "perplexity" in metrics and (judges := sorted({row.language_model for row in rows if row.language_model})):
        notes.append(f"PPL under {', '.join(judges)}.")
    if "seconds" in metrics:
        clocks = sorted({f"{row.device} (batches of {row.batch or 1})" for row in rows if row.device and row.seconds})
        notes += [f"Seconds on {', '.join(clocks)}."] * bool(clocks)
    return notes


def budgets(lines: Sequence[Line]) -> dict[float | None, float | None]:
    """The training budget each one is compared by: the shortest within 10%."""
    first: dict[float | None, float | None] = {None: None}
    group = 0.0
    for time in sorted({line.budget for line in lines if line.budget is not None}):
        group = time if time > 1.1 * group else group
        first[time] = group
    return first


def best(lines: Sequence[Line], dataset: str, metric: str) -> set[Line]:
    """The lines that are best in a metric among those of the same budget, split, items, task and steps."""
    if metric in _NOT_COMPARED:
        return set()
    close, groups = budgets(lines), dict[object, dict[Line, float]]()
    for line in lines:
        found, row = line.measure(dataset, metric), line.row
        if found is not None and not contender(row.method).reference:
            key = (close[line.budget], row.split, row.items, row.task, row.steps)
            groups.setdefault(key, {})[line] = float(f"{found.mean:{number_format(metric)}}")  # as it is shown
    choose = min if metric in LOWER_IS_BETTER else max
    tops = [(group, choose(group.values())) for group in groups.values() if len(set(group.values())) > 1]
    return {line for group, top in tops for line, value in group.items() if value == top}


def cells(lines: Sequence[Line], dataset: str, metrics: Sequence[str]) -> list[str]:
    """A cell for each line: the metrics on one set, the best in bold; – where none was measured."""
    tops = {metric: best(lines, dataset, metric) for metric in metrics}

    def shown(line: Line, metric: str) -> str:
        value = line.measure(dataset, metric)
        text = EMPTY if value is None else value.text(metric)
        return bold(text) if line in tops[metric] else text

    return [joined([shown(line, metric) for metric in metrics]) for line in lines]
