"""Measured rows as the lines of a table: seeds averaged, models chosen, named, the best in bold.

A line is one contender with one model at one number of steps, over several sets.
"""

import statistics
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePath

from ddot.evaluation.contenders import contender, order
from ddot.evaluation.rows import HEADS, UNFILLED, Row
from ddot.evaluation.tables.page import EMPTY, Cell, Piece, Section, cell

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
LOWER_IS_BETTER = ("length_error_abs", "perplexity", "gaps_extra", "fill_length_error_abs", "fill_empty")
# No merit by themselves: leaving all gaps empty, or filling all of them with anything, does well in each.
_NOT_COMPARED = (
    *("length_error", "fill_length_error", "seconds", "gaps_found", "gaps_extra", "d2", "d4", "perplexity"),
    "fill_empty",
)
_FORMATS = {
    **{"nist2": ".2f", "nist4": ".2f", "seconds": ".3g", "perplexity": ".0f"},
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
        shown = signed(self.mean, form)
        spread = ".2g" if form.endswith("g") else form.lstrip("+")
        return shown if self.deviation is None else f"{shown} ± {self.deviation:{spread}}"

    def rounded(self, metric: str) -> float:
        """The mean as it is shown."""
        return float(f"{self.mean:{number_format(metric)}}")


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
    """The lines of rows on these sets that have one of the metrics, in the registry's order."""
    groups: dict[tuple[str | int, ...], dict[str, list[Row]]] = {}
    for row in rows:
        if row.dataset in sets and (not metrics or any(row.measure(metric) is not None for metric in metrics)):
            key: tuple[str | int, ...] = (row.method, row.split, row.items)  # all there is of the unfilled prompt
            key += () if row.method == UNFILLED else (row.model, row.task, row.steps)
            groups.setdefault(key, {}).setdefault(row.dataset, []).append(row)
    lines = [Line(found) for found in groups.values()]
    return sorted(lines, key=lambda line: (order(line.row.method), *_rank(line.row)))


def _rank(row: Row) -> tuple[str, bool, int, int]:
    return row.model, row.split != "test", row.steps, -row.items


def main_rows(rows: Sequence[Row], variants: bool = False) -> list[Row]:
    """The rows of the main tables: no variants, no sweeps of steps or λ, one model per contender where it has its own.

    A contender's own model is in a folder named like its recipe.
    """
    shown = [row for row in rows if variants or not contender(row.method).variant]
    own = {(row.method, row.task, row.dataset) for row in shown if is_own(row)}
    shown = [row for row in shown if (row.method, row.task, row.dataset) not in own or is_own(row)]
    usual = usual_steps(shown)
    has = {(row.method, row.model, row.task) for row in shown if row.steps == usual}
    return [
        row for row in shown
        if row.steps == usual or row.method == UNFILLED or (row.method, row.model, row.task) not in has
    ]  # fmt: skip


def is_own(row: Row) -> bool:
    """Whether its model was trained for its contender."""
    return contender(row.method).recipe == PurePath(row.model).name


def usual_steps(rows: Sequence[Row]) -> int | None:
    """The number of steps that most rows have."""
    counts = Counter(row.steps for row in rows if row.method != UNFILLED)
    return max(counts, key=lambda steps: (counts[steps], steps), default=None)


def by_task(lines: Sequence[Line]) -> list[tuple[str, list[Line]]]:
    """(task, lines) for each task; the unfilled prompt stands in each that has as many items."""
    unfilled = [line for line in lines if line.row.method == UNFILLED]
    filled = [line for line in lines if line.row.method != UNFILLED]
    present = {line.row.task for line in filled}
    found = []
    for task in sorted(present, key=lambda task: (TASKS.index(task) if task in TASKS else len(TASKS), task)):
        some = [line for line in filled if line.row.task == task]
        items = {(row.dataset, row.split, row.items) for line in some for row in line.every}
        beside = [line for line in unfilled if items & {(row.dataset, row.split, row.items) for row in line.every}]
        found.append((task, [*beside, *some]))
    return found or ([("", unfilled)] if unfilled else [])


def model_name(model: str) -> str:
    """A model in a table; of an absolute path only the folder."""
    return PurePath(model).name if PurePath(model).is_absolute() else model


@dataclass(frozen=True)
class Naming:
    """What the names of lines must say because it differs between them."""

    models: bool
    steps: bool
    items: int

    @classmethod
    def of(cls, lines: Sequence[Line], steps: bool = True) -> "Naming":
        rows = [line.row for line in lines if line.row.method != UNFILLED]
        several = [len({getattr(row, name) for row in rows}) > 1 for name in ("model", "steps")]
        most = Counter(row.items for line in lines for row in line.every).most_common(1)
        return cls(several[0], steps and several[1], most[0][0] if most else 0)

    def name(self, line: Line) -> str:
        """The contender's label, and its model unless that was trained for it."""
        row = line.row
        parts = [contender(row.method).label]
        if row.method != UNFILLED:
            parts += [model_name(row.model)] * (self.models and not is_own(row)) + [f"{row.steps} steps"] * self.steps
        parts += [f"{row.split} split"] * (row.split != "test")
        return ", ".join(parts) + f" (n = {row.items})" * (row.items != self.items)


def notes_of(lines: Sequence[Line], metrics: Sequence[str], sections: Iterable[Section] = ()) -> tuple[str, ...]:
    """The sentences under a table: what all of its lines share, and how certain they are."""
    rows = [row for line in lines for row in line.every if row.method != UNFILLED]
    notes = []
    if len(steps := {row.steps for row in rows}) == 1:
        notes.append(f"{steps.pop()} steps.")
    if lines:
        notes.append(f"n = {Naming.of(lines).items:,} items per set unless stated.")
    if any(len(some) > 1 for line in lines for some in line.rows.values()):
        notes.append("±: standard deviation over seeds.")
    if any(piece.bold for section in sections for line in section.lines for one in line for piece in one):
        notes.append(BOLD)
    halves = {metric: _widest(rows, metric) for metric in metrics}
    if told := [f"{HEADS[m]} ± {half:{number_format(m).lstrip('+')}}" for m, half in halves.items() if half]:
        notes.append(f"95% intervals (bootstrap over items) are at most {', '.join(told)}.")
    if "perplexity" in metrics and (judges := sorted({row.language_model for row in rows if row.language_model})):
        notes.append(f"PPL under {', '.join(judges)}.")
    if "seconds" in metrics:
        clocks = sorted({f"{row.device} (batches of {row.batch or 1})" for row in rows if row.device and row.seconds})
        notes += [f"Seconds on {', '.join(clocks)}."] * bool(clocks)
    return tuple(notes)


def _widest(rows: Sequence[Row], metric: str) -> float | None:
    ends = [row.intervals[metric] for row in rows if row.intervals and row.intervals.get(metric)]
    return max(((high - low) / 2 for low, high in ends), default=None)


def _same_steps(line: Line) -> object:
    return line.row.steps


def budgets(lines: Sequence[Line]) -> list[float | None]:
    """The training budget each line is compared by: that of the shortest training within 10%."""
    times = sorted({line.budget for line in lines if line.budget is not None})
    first: dict[float | None, float | None] = {None: None}
    group = 0.0
    for time in times:
        group = time if time > 1.1 * group else group
        first[time] = group
    return [first[line.budget] for line in lines]


def best(lines: Sequence[Line], dataset: str, metric: str, alike: Callable[[Line], object] = _same_steps) -> set[int]:
    """Indices of the lines that are best in a metric among those of the same budget, split, items and `alike`."""
    if metric in _NOT_COMPARED:
        return set()
    groups: dict[object, dict[int, float]] = {}
    for place, (line, budget) in enumerate(zip(lines, budgets(lines), strict=True)):
        found = line.measure(dataset, metric)
        if found is not None and not contender(line.row.method).reference:
            key = (budget, line.row.split, line.row.items, alike(line))
            groups.setdefault(key, {})[place] = found.rounded(metric)
    choose = min if metric in LOWER_IS_BETTER else max
    tops = [(group, choose(group.values())) for group in groups.values() if len(set(group.values())) > 1]
    return {place for group, top in tops for place, value in group.items() if value == top}


def cells(
    lines: Sequence[Line], dataset: str, metrics: Sequence[str], alike: Callable[[Line], object] = _same_steps
) -> list[Cell]:
    """A cell for each line: the metrics on one set, the best in bold; – where none was measured."""
    tops = {metric: best(lines, dataset, metric, alike) for metric in metrics}
    made = []
    for place, line in enumerate(lines):
        found = [(metric, line.measure(dataset, metric)) for metric in metrics]
        pieces: list[Piece] = []
        for metric, value in found:
            pieces += [Piece(" / ")] * bool(pieces)
            pieces.append(Piece(EMPTY if value is None else value.text(metric), place in tops[metric]))
        made.append(cell(EMPTY) if all(value is None for _, value in found) else tuple(pieces))
    return made
