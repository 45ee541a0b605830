"""Measured rows as curves: quality against steps and seconds, success against how much is given.

Data alone; `charts` draws it.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import sqrt
from typing import Any

from ddot.evaluation.contenders import contender, order
from ddot.evaluation.rows import UNFILLED, Row, measured
from ddot.evaluation.tables.lines import SETS, TASKS, Line, gather, task_lines
from ddot.evaluation.tables.naming import Naming, model_name, several_models

AXES = {
    "bleu2": "BLEU-2", "bleu4": "BLEU-4", "nist2": "NIST-2", "nist4": "NIST-4", "meteor": "METEOR",
    "meteor_nltk": "METEOR (NLTK)", "success": "success, %", "exact": "exact match, %", "codebleu": "CodeBLEU",
    "d2": "different 2-grams, %", "d4": "different 4-grams, %", "perplexity": "perplexity",
    "length_error_abs": "length error, words", "gaps_found": "gaps found, %", "gaps_extra": "texts with extra gaps, %",
}  # fmt: skip
ADDS_KEPT = "ddot score rows.jsonl --bench DIR --metrics success adds it"
Counts = dict[int, tuple[int, int]]  # by words given: texts that keep them, texts
_RANGES = 8  # of the number of given words, where there are more numbers than that


@dataclass(frozen=True)
class Point:
    """`low` to `high`: a standard deviation over seeds, or the 95% interval of a share. `note` is written beside it."""

    x: float
    y: float
    low: float | None = None
    high: float | None = None
    note: str = ""


@dataclass(frozen=True)
class Curve:
    """One way of filling. A level has one point and holds for every x."""

    name: str
    method: str
    points: tuple[Point, ...]
    level: bool = False


@dataclass(frozen=True)
class Chart:
    """One picture: what is measured against what, on which set and task."""

    title: str
    x: str
    y: str
    curves: tuple[Curve, ...]
    logarithmic: bool = False
    names: Mapping[float, str] | None = None  # of places on the x axis that are ranges


def quality(
    rows: Iterable[Row],
    against: str = "steps",
    metric: str = "bleu4",
    dataset: str | None = None,
    task: str | None = None,
) -> list[Chart]:
    """A chart for each set and task: a metric against the number of steps, or against the seconds a text takes.

    Against steps only ways are shown that have several numbers of them, and levels beside them.
    """
    for name, value, known in (("curve of", metric, AXES), ("axis of", against, _AGAINST)):
        if value not in known:
            raise ValueError(f"there is no {name} '{value}'; there are {', '.join(known)}")
    axis, curve_of, least = _AGAINST[against]
    ours = measured(rows)
    if not ours:
        raise ValueError("there are no rows of `ddot evaluate` in these files; give files that it wrote")
    tasks = sorted({str(row["task"]) for row in ours if row["method"] != UNFILLED})
    if task is not None and task not in tasks:
        raise ValueError(f"the rows have no task '{task}'; they have {', '.join(tasks) or 'none'}")
    charts = []
    for name in _sets(ours, dataset):
        lines = gather(ours, [name], metrics=[metric])
        naming = replace(Naming.of(lines, timed=True), steps=False)
        for title, some in task_lines(lines):
            which = title.partition(":")[0].removeprefix("ours, ")
            groups: dict[tuple[str, str], list[Line]] = {}  # folders of one name are two models
            for line in some:
                groups.setdefault((naming.name(line), line.model), []).append(line)
            every = (curve_of(label, group, name, metric) for (label, _), group in groups.items())
            curves = tuple(curve for curve in every if curve and (curve.level or len(curve.points) >= least))
            if task in (None, which) and any(not curve.level for curve in curves):
                charts.append(Chart(f"{SETS.get(name, name)}, {which}", axis, AXES[metric], curves, logarithmic=True))
    if not charts:
        place = f"on {dataset or 'any set'}, {task or 'any task'}"
        lack = {
            "steps": f"at several numbers of steps {place}; make rows with ddot evaluate … --steps 4,16",
            "seconds": f"and seconds {place}; rows have seconds where ddot evaluate timed them",
        }
        raise ValueError(f"no way has {metric} {lack[against]}")
    return charts


def _sets(rows: Sequence[Row], dataset: str | None) -> list[str]:
    present = {row["dataset"] for row in rows}
    if dataset is not None and dataset not in present:
        raise ValueError(f"the rows have no set '{dataset}'; they have {', '.join(sorted(present)) or 'none'}")
    order = [name for name in SETS if name in present] + sorted(present - set(SETS))
    return order if dataset is None else [dataset]


def _point(line: Line, dataset: str, metric: str, x: float, note: str = "") -> Point | None:
    found = line.measure(dataset, metric)
    if found is None:
        return None
    if found.deviation is None:
        return Point(x, found.mean, note=note)
    return Point(x, found.mean, found.mean - found.deviation, found.mean + found.deviation, note)


def _at_steps(name: str, lines: Sequence[Line], dataset: str, metric: str) -> Curve | None:
    method = lines[0].method
    points = [_point(line, dataset, metric, float(line.steps or 0)) for line in lines]
    found = sorted((point for point in points if point is not None), key=lambda point: point.x)
    if contender(method).stepless:
        found = found[-1:]
    return Curve(name, method, tuple(found), level=contender(method).stepless) if found else None


def _at_seconds(name: str, lines: Sequence[Line], dataset: str, metric: str) -> Curve | None:
    method = lines[0].method
    points = []
    for line in lines:
        seconds = line.measure(dataset, "seconds")
        steps = "" if contender(method).stepless or line.steps is None else f"{line.steps} steps"
        if method == UNFILLED or (seconds is not None and seconds.mean > 0):
            points.append(_point(line, dataset, metric, seconds.mean if seconds else 0.0, steps))
    found = sorted((point for point in points if point is not None), key=lambda point: point.x)
    return Curve(name, method, tuple(found), level=method == UNFILLED) if found else None


# What quality is drawn against: the name of the axis, a curve from lines, and its points at the least.
_AGAINST: Mapping[str, tuple[str, Callable[[str, Sequence[Line], str, str], Curve | None], int]] = {
    "steps": ("steps", _at_steps, 2),
    "seconds": ("seconds a text (at the ends: steps)", _at_seconds, 1),
}


def success_by_given(
    rows: Iterable[Row], dataset: str | None = None, task: str | None = None
) -> tuple[list[Chart], list[Row]]:
    """(a chart for each set and task, rows that are left out because they do not say what was kept).

    The share of texts that keep what is given, against how many words that is.
    """
    ours: list[Row] = [row for row in measured(rows) if row["method"] != UNFILLED]
    if not ours:
        raise ValueError("there are no filled rows of `ddot evaluate` among these; give some that it wrote")
    sets, tasks = _sets(ours, dataset), sorted({str(row["task"]) for row in ours})
    if task is not None and task not in tasks:
        raise ValueError(f"the rows have no task '{task}'; they have {', '.join(tasks)}")
    chosen = [row for row in ours if row["dataset"] in sets and task in (None, row["task"])]
    found, left = ([row for row in chosen if bool(row.get("kept")) == says] for says in (True, False))
    if not found:
        raise ValueError(
            f"of {len(chosen)} rows on {dataset or 'any set'}, {task or 'any task'} none says how many texts keep what "
            f"is given; {ADDS_KEPT}"
        )
    groups: dict[tuple[str, str], dict[tuple[Any, ...], Counts]] = {}
    for row in found:
        way = tuple(row[name] for name in ("method", "model", "steps", "split", "items"))
        counts = groups.setdefault((row["dataset"], row["task"]), {}).setdefault(way, {})
        for given, (kept, texts) in row["kept"].items():
            before = counts.get(int(given), (0, 0))
            counts[int(given)] = (before[0] + kept, before[1] + texts)
    every = {way for ways in groups.values() for way in ways}
    models = several_models((way[0], way[1]) for way in every)
    steps, sizes = (len({way[place] for way in every}) > 1 for place in (2, 4))

    def name_of(way: tuple[Any, ...]) -> str:
        """The same in every chart."""
        method, model, taken, split, items = way
        parts = [contender(method).label, *[model_name(model)] * (method in models)]
        parts += [f"{taken} steps"] * steps + [f"{split} split"] * (split != "test")
        return ", ".join([*parts, *[f"n = {items:,}"] * sizes])

    charts = [
        _success_chart(f"{SETS.get(name, name)}, {which}", groups[name, which], name_of)
        for name in sets
        for which in (*TASKS, *sorted(set(tasks) - set(TASKS)))
        if (name, which) in groups
    ]
    return charts, left


def _success_chart(
    title: str, ways: Mapping[tuple[Any, ...], Counts], name_of: Callable[[tuple[Any, ...]], str]
) -> Chart:
    counts = sorted({count for some in ways.values() for count in some})
    ranges = [(count, count) for count in counts]
    if len(counts) > _RANGES:
        every = sorted(count for some in ways.values() for count, (_, texts) in some.items() for _ in range(texts))
        edges = sorted({every[len(every) * part // _RANGES] for part in range(_RANGES)})
        ranges = [(low, high - 1) for low, high in zip(edges, [*edges[1:], counts[-1] + 1], strict=True)]
    curves = []
    for way in sorted(ways, key=lambda way: (order(way[0]), *map(str, way))):
        points = []
        for place, (low, high) in enumerate(ranges):
            inside = [both for count, both in ways[way].items() if low <= count <= high]
            if texts := sum(count for _, count in inside):
                kept = sum(count for count, _ in inside)
                points.append(Point(float(place), 100 * kept / texts, *_interval(kept, texts)))
        curves.append(Curve(name_of(way), way[0], tuple(points)))
    names = {float(place): str(low) if low == high else f"{low}–{high}" for place, (low, high) in enumerate(ranges)}
    return Chart(title, "words given", AXES["success"], tuple(curves), names=names)


def _interval(kept: int, count: int) -> tuple[float, float]:
    """Wilson's 95% interval of a share, in percent."""
    z = 1.959964
    share, more = kept / count, z * z / count
    middle, half = share + more / 2, z * sqrt(share * (1 - share) / count + more / (4 * count))
    return 100 * (middle - half) / (1 + more), 100 * (middle + half) / (1 + more)
