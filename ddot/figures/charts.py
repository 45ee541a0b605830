"""Charts of measured rows: quality against steps, seconds or minutes of training, success against the number of given
words, cost against words and blanks.

A panel for each chart, one legend; PNG or SVG by file name. Needs the extra `plots`.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import sqrt
from pathlib import Path
from typing import Any

from ddot.evaluation.contenders import contender, order
from ddot.evaluation.rows import HEADS, UNFILLED, Row, is_number, measured, place_of, refuse_unknown
from ddot.evaluation.tables.lines import SETS, TASKS, Line, gather, in_order, naming
from ddot.figures.canvas import canvas

# Axis labels of metrics whose column head is too short.
_AXES = {
    "bleu2": "BLEU-2", "bleu4": "BLEU-4", "nist2": "NIST-2", "nist4": "NIST-4", "meteor": "METEOR",
    "meteor_nltk": "METEOR (NLTK)", "success": "success, %", "exact": "exact match, %", "codebleu": "CodeBLEU",
    "d2": "distinct 2-grams, %", "d4": "distinct 4-grams, %", "perplexity": "perplexity",
    "length_error_abs": "length error, words", "gaps_found": "gaps found, %", "gaps_extra": "texts with extra gaps, %",
}  # fmt: skip
AXES = {metric: _AXES.get(metric, head) for metric, head in HEADS.items()}
ADDS_KEPT = "ddot rescore rows.jsonl --bench DIR --metrics success adds it"
Counts = dict[int, tuple[int, int]]  # number of given words → (texts that keep them, texts)
_RANGES = 8  # most ranges of the number of given words
# What quality is drawn against → axis label, what rows may lack for it.
_AGAINST = {
    "steps": ("steps", "at several numbers of steps"),
    "seconds": ("seconds a text (at the ends: steps)", "and seconds"),
    "minutes": ("minutes of training", "and own_seconds"),
}
_CLOCKS = {"ms": "wall-clock time", "cpu_ms": "CPU time"}


@dataclass(frozen=True)
class Point:
    """`low` to `high`: ± a standard deviation over seeds, a 95% interval, or a range. `note` is shown beside it."""

    x: float
    y: float
    low: float | None = None
    high: float | None = None
    note: str = ""


@dataclass(frozen=True)
class Curve:
    """One contender. A level has one point, valid for every x."""

    name: str
    method: str
    points: tuple[Point, ...]
    level: bool = False


@dataclass(frozen=True)
class Chart:
    """One panel: a quantity against another, on one set and task."""

    title: str
    x: str
    y: str
    curves: tuple[Curve, ...]
    logarithmic: bool = False
    names: Mapping[float, str] | None = None  # tick labels by x
    from_zero: bool = False
    apart: bool = False  # shift curves a little sideways, so that intervals at the same x do not overlap


def quality(
    rows: Iterable[Mapping[str, Any]],
    against: str = "steps",
    metric: str = "bleu4",
    dataset: str | None = None,
    task: str | None = None,
) -> list[Chart]:
    """A chart for each set and task: a metric against the number of steps, seconds per text, or minutes of training.

    Against steps, only contenders with several numbers of steps are shown, and levels. Against minutes, the snapshots
    of a training run are one curve, with 95% intervals over items; minutes are those of a whole GPU.
    """
    refuse_unknown("unknown metric", [metric], AXES)
    refuse_unknown("unknown axis", [against], _AGAINST)
    ours = measured(rows)
    if not ours:
        raise ValueError("there are no rows of `ddot evaluate` in these files; give files that it wrote")
    sets, tasks = _chosen(ours, dataset, task)
    charts = []
    for name in sets:
        lines = {line: _as_recipe(line) if against == "minutes" else line for line in gather(ours, [name], [metric])}
        label_of = naming([*lines.values()], steps=False, tasks=False)
        for which in tasks:
            groups: dict[tuple[str, str], list[Line]] = {}  # two models may have the same name
            for line, named in lines.items():
                if line.row.method == UNFILLED or line.row.task == which:
                    groups.setdefault((label_of(named), named.row.model), []).append(line)
            curves = [_curve(label, group, name, metric, against) for (label, _), group in groups.items()]
            shown = tuple(c for c in curves if len(c.points) > (against == "steps" and not c.level))
            if any(not curve.level for curve in shown):
                title, (axis, _), timed = f"{SETS.get(name, name)}, {which}", _AGAINST[against], against == "minutes"
                shared = timed and any(line.row.gpu_share for group in groups.values() for line in group)
                axis = f"whole-GPU {axis}" if shared else axis
                charts.append(Chart(title, axis, AXES[metric], shown, logarithmic=not timed, apart=timed))
    if not charts:
        lacking = f"{metric} {_AGAINST[against][1]}"
        raise ValueError(f"no contender has {lacking} on {dataset or 'any set'}, {task or 'any task'}")
    return charts


def _chosen(rows: Sequence[Row], dataset: str | None, task: str | None) -> tuple[list[str], list[str]]:
    """The sets and tasks to draw, in order."""
    sets = in_order((row.dataset for row in rows), SETS)
    tasks = in_order((row.task for row in rows if row.method != UNFILLED), TASKS)
    refuse_unknown("no row has the set", [dataset] if dataset is not None else [], sets)
    refuse_unknown("no row has the task", [task] if task is not None else [], tasks)
    return [dataset] if dataset else sets, [task] if task else tasks


def _as_recipe(line: Line) -> Line:
    """The line of a snapshot, with the model of its recipe instead."""
    rows = line.rows.items()
    return Line({name: [replace(row, model=f"runs/{row.recipe}") for row in seeds] for name, seeds in rows})


def _curve(name: str, lines: Sequence[Line], dataset: str, metric: str, against: str) -> Curve:
    """The curve of one contender. The prompt is always a level, stepless contenders are levels against steps."""
    method = lines[0].row.method
    stepless, points = contender(method).stepless, list[Point]()
    for line in lines:
        measure, seconds = line.measure(dataset, metric), line.measure(dataset, "seconds")
        x, note = float(line.row.steps), ""
        if method == UNFILLED:
            x = 0.0
        elif against == "seconds":
            x, note = seconds.mean if seconds else 0.0, "" if stepless else f"{line.row.steps} steps"
        elif against == "minutes":
            x = (line.row.own_seconds or 0.0) * (line.row.gpu_share or 1.0) / 60
        if measure is not None and (x > 0 or method == UNFILLED):
            low, high = (None if measure.deviation is None else measure.mean + k * measure.deviation for k in (-1, 1))
            if low is None and against == "minutes":
                low, high = (line.rows[dataset][0].intervals or {}).get(metric, (None, None))
            points.append(Point(x, measure.mean, low, high, note))
    points.sort(key=lambda point: point.x)
    level = method == UNFILLED or (stepless and against == "steps")
    return Curve(name, method, tuple(points[-1:] if level else points), level)


def success_by_given(
    rows: Iterable[Mapping[str, Any]], dataset: str | None = None, task: str | None = None
) -> tuple[list[Chart], list[Row]]:
    """(a chart for each set and task, rows without counts): share of texts that keep the given words."""
    ours = [row for row in measured(rows) if row.method != UNFILLED]
    if not ours:
        raise ValueError("there are no filled rows of `ddot evaluate` among these; give files that it wrote")
    sets, tasks = _chosen(ours, dataset, task)
    chosen = [row for row in ours if row.dataset in sets and row.task in tasks]
    counted, uncounted = ([row for row in chosen if bool(row.kept) == has_counts] for has_counts in (True, False))
    if not counted:
        where = f"{dataset or 'any set'}, {task or 'any task'}"
        raise ValueError(f"none of {len(chosen)} rows on {where} says how many texts keep what is given; {ADDS_KEPT}")
    label_of = naming([Line({row.dataset: [row]}) for row in counted], tasks=False)
    groups: dict[tuple[str, str], dict[tuple[str, str, str], Counts]] = {}
    for row in sorted(counted, key=lambda row: (order(row.method), row.model, row.steps, row.split, row.items)):
        curves = groups.setdefault((row.dataset, row.task), {})
        counts = curves.setdefault((label_of(Line({row.dataset: [row]})), row.method, row.model), {})
        for given, (kept, texts) in (row.kept or {}).items():
            before = counts.get(int(given), (0, 0))
            counts[int(given)] = (before[0] + kept, before[1] + texts)
    panels = [(name, which) for name in sets for which in tasks if (name, which) in groups]
    charts = [_success_chart(f"{SETS.get(name, name)}, {which}", groups[name, which]) for name, which in panels]
    return charts, uncounted


def _success_chart(title: str, curves: Mapping[tuple[str, str, str], Counts]) -> Chart:
    given = sorted({count for counts in curves.values() for count in counts})
    ranges = [(count, count) for count in given]
    if len(given) > _RANGES:  # with about the same number of texts in each
        every = sorted(
            count for counts in curves.values() for count, (_, texts) in counts.items() for _ in range(texts)
        )
        edges = sorted({every[len(every) * part // _RANGES] for part in range(_RANGES)})
        ranges = [(low, high - 1) for low, high in zip(edges, [*edges[1:], given[-1] + 1], strict=True)]
    drawn = []
    for (name, method, _), counts in curves.items():
        points = []
        for place, (low, high) in enumerate(ranges):
            inside = [pair for count, pair in counts.items() if low <= count <= high]
            if texts := sum(total for _, total in inside):
                kept = sum(kept for kept, _ in inside)
                points.append(Point(float(place), 100 * kept / texts, *_interval(kept, texts)))
        drawn.append(Curve(name, method, tuple(points)))
    names = {float(place): str(low) if low == high else f"{low}–{high}" for place, (low, high) in enumerate(ranges)}
    return Chart(title, "words given", AXES["success"], tuple(drawn), names=names)


def _interval(kept: int, count: int) -> tuple[float, float]:
    """Wilson's 95% interval of a share, in percent."""
    z = 1.959964
    share, more = kept / count, z * z / count
    middle, half = share + more / 2, z * sqrt(share * (1 - share) / count + more / (4 * count))
    return 100 * (middle - half) / (1 + more), 100 * (middle + half) / (1 + more)


def costs(rows: Iterable[Mapping[str, Any]]) -> list[Chart]:
    """A chart against the words around a blank and one against blanks, if `ddot bench cost` measured them."""
    by_axis: dict[str, list[Mapping[str, Any]]] = {"words": [], "blanks": []}
    fields = ("words", "blanks", *(f"{clock}{end}" for clock in _CLOCKS for end in ("", "_least", "_most")))
    for row in rows:
        if row.get("against") not in by_axis or not all(is_number(row.get(name)) and row[name] > 0 for name in fields):
            raise ValueError(f"{place_of(row)} is not a row of `ddot bench cost --json`; give a file that it wrote")
        by_axis[row["against"]].append(row)
    charts = []
    for name, unsorted in by_axis.items():
        measured = sorted(unsorted, key=lambda row: row[name])
        if not measured:
            continue
        axis = "words around one blank" if name == "words" else f"blanks among {measured[0]['words']} words"
        curves = []
        for clock, label in _CLOCKS.items():
            columns = (name, clock, f"{clock}_least", f"{clock}_most")
            values = ([float(row[column]) for column in columns] for row in measured)
            curves.append(Curve(label, "infill", tuple(Point(x, y, low, high) for x, y, low, high in values)))
        ticks = {float(row[name]): str(row[name]) for row in measured}
        charts.append(
            Chart(f"Cost by {name}", axis, "ms a text", tuple(curves), name == "words", ticks, from_zero=True)
        )
    if not charts:
        raise ValueError("there are no rows in these files; make some with `ddot bench cost --json`")
    return charts


_WIDE, _HIGH, _COLUMNS = 4.6, 3.3, 2  # inches of a panel; panels per row
# Line styles, for curves with the same colour in one figure: variants, other models.
_DASHES = ("-", "--", ":", "-.", (0, (6, 1, 1, 1, 1, 1)), (0, (1, 4)), (0, (9, 3)), (0, (6, 1, 1, 1)))
_APART = 0.015  # sideways shift between curves, as a share of the x range
Look = tuple[str, str, Any]  # colour, marker, dashes


def draw_charts(charts: Sequence[Chart], path: Path | str) -> None:
    columns = min(_COLUMNS, len(charts))
    rows = -(-len(charts) // columns)
    looks = looks_of(charts)
    foot = 0.25 + 0.2 * -(-len(looks) // columns)
    width, height = _WIDE * columns, _HIGH * rows + foot
    with canvas(path, width, height) as figure:
        for number, chart in enumerate(charts):
            row, column = divmod(number, columns)
            left, bottom = column * _WIDE + 0.8, foot + (rows - 1 - row) * _HIGH + 0.6
            box = (left / width, bottom / height, (_WIDE - 1.0) / width, (_HIGH - 1.0) / height)
            draw(figure.add_axes(box), chart, number, looks)
        legend: dict[str, Any] = {}
        for axes in figure.axes:
            for handle, name in zip(*axes.get_legend_handles_labels(), strict=True):
                legend.setdefault(name, handle)
        figure.legend(legend.values(), legend.keys(), loc="lower center", ncols=columns, frameon=False)


def looks_of(charts: Sequence[Chart]) -> dict[str, Look]:
    """The looks of the curves in one figure, by name."""
    looks: dict[str, Look] = {}
    used: Counter[tuple[str, str]] = Counter()
    for curve in (curve for chart in charts for curve in chart.curves):
        if curve.name not in looks:
            look = contender(curve.method).look
            looks[curve.name] = (*look, _DASHES[used[look] % len(_DASHES)])
            used[look] += 1
    return looks


def draw(axes: Any, chart: Chart, number: int, looks: Mapping[str, Look]) -> None:
    """One panel. Its curves are named panel-N-curve-M in an SVG."""
    if chart.logarithmic:
        axes.set_xscale("log")
        axes.xaxis.get_major_locator().set_params(subs=(1, 2, 5))
        axes.xaxis.set_major_formatter("{x:g}")
        axes.xaxis.set_minor_formatter("")
    xs = [point.x for curve in chart.curves if not curve.level for point in curve.points]
    apart = _APART * (max(xs) - min(xs)) if chart.apart else 0.0
    for place, curve in enumerate(chart.curves):
        aside = apart * (place - (len(chart.curves) - 1) / 2)
        _draw_curve(axes, curve, f"panel-{number}-curve-{place}", *looks[curve.name], aside)
    if chart.names is not None:
        axes.set_xticks(list(chart.names), list(chart.names.values()))
    elif chart.x == "steps":
        axes.set_xticks(sorted(set(xs)), [f"{count:g}" for count in sorted(set(xs))])
    if chart.from_zero:
        axes.set_ylim(bottom=0)
    axes.set_title(chart.title, loc="left", fontsize=10)
    axes.set_xlabel(chart.x)
    axes.set_ylabel(chart.y)
    axes.grid(axis="y", color="#DDDDDD", linewidth=0.6)
    axes.set_axisbelow(True)


def _draw_curve(axes: Any, curve: Curve, name: str, colour: str, mark: str, dashes: Any, aside: float) -> None:
    """A curve with its intervals, shifted `aside` to the right; a level is a horizontal line without markers."""
    from matplotlib.transforms import Affine2D

    if curve.level:
        dashes = (0, (4, 3)) if dashes == "-" else dashes
        line = axes.axhline(curve.points[0].y, color=colour, linestyle=dashes, linewidth=1.2, label=curve.name)
        line.set_gid(name)
        return
    xs, ys = [point.x for point in curve.points], [point.y for point in curve.points]
    shifted = Affine2D().translate(aside, 0.0) + axes.transData
    look = {"color": colour, "marker": mark, "linestyle": dashes}
    (line,) = axes.plot(xs, ys, **look, markersize=4.5, linewidth=1.4, label=curve.name, transform=shifted)
    line.set_gid(name)
    ends = (curve.points[0], curve.points[-1])  # notes at every point would overlap
    for point in curve.points:
        if point.low is not None:
            span = [point.x] * 2, [point.low, point.high]
            axes.plot(*span, color=colour, linewidth=0.8, alpha=0.6, transform=shifted)
        if point.note and point in ends and len(curve.points) > 1:
            axes.annotate(
                point.note.removesuffix(" steps"), (point.x, point.y), (3, 4), textcoords="offset points", fontsize=7
            )
