"""Rows as the lines of a table: seeds are averaged, lines chosen and named, the best set in bold.

A line is one contender with one model, on one task, with one number of steps, over several sets.
"""

import statistics
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
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
# Never bold: each can be gamed by leaving every gap empty, or by filling every gap with anything.
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
    """Format spec of a metric: its digits, and whether the sign is shown."""
    return _FORMATS.get(metric, ".1f")


def signed(value: float, form: str) -> str:
    """The number with a true minus sign, and no sign if it is shown as 0."""
    text = f"{value:{form}}"
    if float(text) == 0:
        return text.lstrip("+-")
    return text.replace("-", "−", 1) if value < 0 else text


@dataclass(frozen=True)
class Measure:
    """A metric over seeds; one seed has no deviation."""

    mean: float
    deviation: float | None = None

    @classmethod
    def of(cls, values: Sequence[float]) -> "Measure":
        return cls(statistics.fmean(values), statistics.stdev(values) if len(values) > 1 else None)

    def text(self, metric: str) -> str:
        form = number_format(metric)
        spread = ".2g" if form.endswith("g") else form.lstrip("+")
        return signed(self.mean, form) + ("" if self.deviation is None else f" ± {self.deviation:{spread}}")


@dataclass(frozen=True, eq=False)
class Line:
    """`rows`: for each set, one row per seed; `row` is the first of all."""

    rows: Mapping[str, Sequence[Row]]

    @property
    def row(self) -> Row:
        return next(iter(self.rows.values()))[0]

    @property
    def every(self) -> list[Row]:
        return list(chain.from_iterable(self.rows.values()))

    @property
    def budget(self) -> float | None:
        """Training time of its model in seconds, including its starting model."""
        return max((row.training_seconds for row in self.every if row.training_seconds is not None), default=None)

    def measure(self, dataset: str, metric: str) -> Measure | None:
        values = [value for row in self.rows.get(dataset, ()) if (value := row.measure(metric)) is not None]
        return Measure.of(values) if values else None


def in_order(names: Iterable[str], known: Iterable[str]) -> list[str]:
    """Each name once: known ones in their order, then others alphabetically."""
    unique = set(names)
    return [name for name in known if name in unique] + sorted(unique.difference(known))


def gather(rows: Iterable[Row], sets: Sequence[str], metrics: Sequence[str] = ()) -> list[Line]:
    """The lines of rows on these sets that have one of the metrics: by task, then in the registry's order.

    The unfilled prompt comes first; it is dropped where others fill, but not the same items.
    """
    groups: dict[tuple[str | int, ...], dict[str, list[Row]]] = {}
    for row in rows:
        if row.dataset in sets and (not metrics or any(row.measure(metric) is not None for metric in metrics)):
            key: tuple[str | int, ...] = (row.method, row.split, row.items)  # enough for the unfilled prompt
            key += () if row.method == UNFILLED else (row.model, row.task, row.steps)
            groups.setdefault(key, {}).setdefault(row.dataset, []).append(row)
    lines = list(map(Line, groups.values()))
    filled = {row.item_set for line in lines for row in line.every if row.method != UNFILLED}

    def is_shown(line: Line) -> bool:
        return line.row.method != UNFILLED or not filled or any(row.item_set in filled for row in line.every)

    def place(line: Line) -> tuple[object, ...]:
        row = line.row
        task = "" if row.method == UNFILLED else row.task
        return task, order(row.method), row.model, row.split != "test", row.steps, -row.items

    return sorted(filter(is_shown, lines), key=place)


def of_own_model(rows: Sequence[Row]) -> list[Row]:
    """Rows at the usual number of steps. If a contender has a model of its own, only that model's rows."""
    own = {(row.method, row.task, row.dataset) for row in rows if is_own(row.method, row.model)}
    shown = [row for row in rows if (row.method, row.task, row.dataset) not in own or is_own(row.method, row.model)]
    counts = Counter(row.steps for row in shown if row.method != UNFILLED)
    usual = max(counts, key=lambda steps: (counts[steps], steps), default=None)
    has = {(row.method, row.model, row.task) for row in shown if row.steps == usual}
    return [row for row in shown if row.steps == usual or (row.method, row.model, row.task) not in has]


def is_own(method: str, model: str) -> bool:
    """Whether a model was trained for this contender: it is in the folder of its recipe."""
    return contender(method).recipe == PurePath(model).name


def rank(row: Row) -> tuple[bool, int]:
    """Sort key: the most important first, other models than a contender's own last."""
    return contender(row.method).recipe is not None and not is_own(row.method, row.model), importance(row.method)


def shortened(lines: Sequence[Line], limit: int | None) -> list[Line]:
    """The `limit` most important lines, in their order; None: all."""
    ranked = sorted(lines, key=lambda line: importance(line.row.method))[:limit]
    return [line for line in lines if line in ranked]


def model_name(model: str) -> str:
    """A model's name in a table: the last part of an absolute path."""
    return PurePath(model).name if PurePath(model).is_absolute() else model


def usual_items(lines: Sequence[Line]) -> int:
    """The most common number of items."""
    counts = Counter(row.items for line in lines for row in line.every)
    return counts.most_common(1)[0][0] if counts else 0


def naming(lines: Sequence[Line], steps: bool = True, tasks: bool = True) -> Callable[[Line], str]:
    """Names a line by its contender's label and by what differs between `lines`; own models are not named."""
    rows = [line.row for line in lines if contender(line.row.method).filling]
    models, kinds = (len({getattr(row, field) for row in rows}) > 1 for field in ("model", "task"))
    counts = len({row.steps for row in rows if takes_steps(row)}) > 1
    usual = usual_items(lines)

    def name(line: Line) -> str:
        row = line.row
        parts = [contender(row.method).label]
        if contender(row.method).filling:
            parts += [model_name(row.model)] * (models and not is_own(row.method, row.model))
            parts += [f"{row.steps} steps"] * (steps and counts and takes_steps(row)) + [row.task] * (tasks and kinds)
        parts += [f"{row.split} split"] * (row.split != "test")
        return ", ".join(parts) + f" (n = {row.items})" * (row.items != usual)

    return name


def takes_steps(row: Row) -> bool:
    """Whether the number of steps could have changed the texts."""
    return contender(row.method).filling is not None and not contender(row.method).stepless


def notes_of(lines: Sequence[Line], metrics: Sequence[str], body: Iterable[Sequence[str]] = ()) -> list[str]:
    """The sentences below a table: what its lines have in common, and how certain they are."""
    rows = [row for line in lines for row in line.every if row.method != UNFILLED]
    notes = []
    if len(steps := {row.steps for row in rows if takes_steps(row)}) == 1:
        notes.append(f"{steps.pop()} steps.")
    if lines:
        notes.append(f"n = {usual_items(lines):,} items per set unless stated.")
    if any(len(seeds) > 1 for line in lines for seeds in line.rows.values()):
        notes.append("±: standard deviation over seeds.")
    if any(map(is_bold, chain.from_iterable(body))):
        notes.append(BOLD)
    intervals = {m: [row.intervals[m] for row in rows if row.intervals and row.intervals.get(m)] for m in metrics}
    widths = {m: max((high - low) / 2 for low, high in ends) for m, ends in intervals.items() if ends}
    if widest := [f"{HEADS[m]} ± {width:{number_format(m).lstrip('+')}}" for m, width in widths.items()]:
        notes.append(f"95% intervals (bootstrap over items) are at most {', '.join(widest)}.")
    if "perplexity" in metrics and (models := sorted({row.language_model for row in rows if row.language_model})):
        notes.append(f"PPL under {', '.join(models)}.")
    if "seconds" in metrics:
        clocks = sorted({f"{row.device} (batches of {row.batch or 1})" for row in rows if row.device and row.seconds})
        notes += [f"Seconds on {', '.join(clocks)}."] * bool(clocks)
    return notes


def budgets(lines: Sequence[Line]) -> dict[float | None, float | None]:
    """Maps each budget to the smallest one of its group; a group spans 10%."""
    groups: dict[float | None, float | None] = {None: None}
    smallest = 0.0
    for budget in sorted({line.budget for line in lines if line.budget is not None}):
        smallest = budget if budget > 1.1 * smallest else smallest
        groups[budget] = smallest
    return groups


def best(lines: Sequence[Line], dataset: str, metric: str) -> set[Line]:
    """The best lines in a metric, each among those of the same budget, split, items, task and steps."""
    if metric in _NOT_COMPARED:
        return set()
    budget_groups, rivals = budgets(lines), dict[object, dict[Line, float]]()
    for line in lines:
        measure, row = line.measure(dataset, metric), line.row
        if measure is not None and not contender(row.method).reference:
            key = (budget_groups[line.budget], row.split, row.items, row.task, row.steps)
            rivals.setdefault(key, {})[line] = float(f"{measure.mean:{number_format(metric)}}")  # as shown
    choose = min if metric in LOWER_IS_BETTER else max
    tops = [(group, choose(group.values())) for group in rivals.values() if len(set(group.values())) > 1]
    return {line for group, top in tops for line, value in group.items() if value == top}


def cells(lines: Sequence[Line], dataset: str, metrics: Sequence[str]) -> list[str]:
    """A cell for each line: the metrics on one set, the best in bold; – if nothing was measured."""
    tops = {metric: best(lines, dataset, metric) for metric in metrics}

    def shown(line: Line, metric: str) -> str:
        value = line.measure(dataset, metric)
        text = EMPTY if value is None else value.text(metric)
        return bold(text) if line in tops[metric] else text

    return [joined([shown(line, metric) for metric in metrics]) for line in lines]
