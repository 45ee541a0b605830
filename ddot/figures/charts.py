"""Draw curves: a panel for each chart, one legend. PNG or SVG by the file name. Needs the extra `plots`."""

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ddot.evaluation.contenders import contender
from ddot.figures.canvas import canvas, form_of, image
from ddot.figures.curves import Chart, Curve
from ddot.files import write_whole

_WIDE, _HIGH, _COLUMNS = 4.6, 3.3, 2  # inches of a panel; panels per row
# Of curves with the same colour in one figure: variants, other models.
_DASHES = ("-", "--", ":", "-.", (0, (6, 1, 1, 1, 1, 1)), (0, (1, 4)), (0, (9, 3)), (0, (6, 1, 1, 1)))
Look = tuple[str, str, Any]  # colour, mark, dashes


def draw_charts(charts: Sequence[Chart], path: Path | str) -> None:
    """Write the charts to a file."""
    form = form_of(path)
    columns = min(_COLUMNS, len(charts))
    rows = -(-len(charts) // columns)
    looks = looks_of(charts)
    foot = 0.25 + 0.2 * -(-len(looks) // columns)
    width, height = _WIDE * columns, _HIGH * rows + foot
    with canvas(width, height) as figure:
        for number, chart in enumerate(charts):
            row, column = divmod(number, columns)
            left, bottom = column * _WIDE + 0.8, foot + (rows - 1 - row) * _HIGH + 0.6
            box = (left / width, bottom / height, (_WIDE - 1.0) / width, (_HIGH - 1.0) / height)
            draw(figure.add_axes(box), chart, number, looks)
        found: dict[str, Any] = {}
        for axes in figure.axes:
            for handle, name in zip(*axes.get_legend_handles_labels(), strict=True):
                found.setdefault(name, handle)
        figure.legend(found.values(), found.keys(), loc="lower center", ncols=columns, frameon=False)
        write_whole(path, image(figure, form))


def looks_of(charts: Sequence[Chart]) -> dict[str, Look]:
    """The looks of the curves in one figure, by name."""
    found: dict[str, Look] = {}
    drawn: Counter[tuple[str, str]] = Counter()
    for curve in (curve for chart in charts for curve in chart.curves):
        if curve.name not in found:
            look = contender(curve.method).look
            found[curve.name] = (*look, _dashes(drawn[look]))
            drawn[look] += 1
    return found


def _dashes(number: int) -> Any:
    """The dashes of the first, second, … curve with the same colour."""
    return _DASHES[number] if number < len(_DASHES) else (0, (number, 2, 2, 2))


def draw(axes: Any, chart: Chart, number: int, looks: Mapping[str, Look]) -> None:
    """One panel. A line of it is named panel-N-curve-M in an SVG."""
    if chart.logarithmic:
        axes.set_xscale("log")
        axes.xaxis.get_major_locator().set_params(subs=(1, 2, 5))
        axes.xaxis.set_major_formatter("{x:g}")
        axes.xaxis.set_minor_formatter("")
    for place, curve in enumerate(chart.curves):
        _draw_curve(axes, curve, f"panel-{number}-curve-{place}", *looks[curve.name])
    if chart.names is not None:
        axes.set_xticks(list(chart.names), list(chart.names.values()))
    elif chart.x == "steps":
        steps = sorted({point.x for curve in chart.curves if not curve.level for point in curve.points})
        axes.set_xticks(steps, [f"{count:g}" for count in steps])
    axes.set_title(chart.title, loc="left", fontsize=10)
    axes.set_xlabel(chart.x)
    axes.set_ylabel(chart.y)
    axes.grid(axis="y", color="#DDDDDD", linewidth=0.6)
    axes.set_axisbelow(True)


def _draw_curve(axes: Any, curve: Curve, name: str, colour: str, mark: str, dashes: Any) -> None:
    """A curve with its intervals; a level as a line across, without marks."""
    if curve.level:
        dashes = (0, (4, 3)) if dashes == "-" else dashes
        line = axes.axhline(curve.points[0].y, color=colour, linestyle=dashes, linewidth=1.2, label=curve.name)
        line.set_gid(name)
        return
    xs, ys = [point.x for point in curve.points], [point.y for point in curve.points]
    look = {"color": colour, "marker": mark, "linestyle": dashes}
    (line,) = axes.plot(xs, ys, **look, markersize=4.5, linewidth=1.4, label=curve.name)
    line.set_gid(name)
    ends = (curve.points[0], curve.points[-1])  # at every point, notes would overlap
    for point in curve.points:
        if point.low is not None:
            axes.plot([point.x] * 2, [point.low, point.high], color=colour, linewidth=0.8, alpha=0.6)
        if point.note and point in ends and len(curve.points) > 1:
            axes.annotate(
                point.note.removesuffix(" steps"), (point.x, point.y), (3, 4), textcoords="offset points", fontsize=7
            )
