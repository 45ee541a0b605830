"""Differences between ways of filling on the same items, with their intervals: the rows of `ddot compare`."""

from collections.abc import Sequence
from typing import Any

from ddot.evaluation.contenders import contender
from ddot.evaluation.rows import HEADS, Row, is_difference, is_number, place_of
from ddot.evaluation.tables.lines import LOWER_IS_BETTER, SETS, number_format, signed
from ddot.evaluation.tables.naming import model_name
from ddot.evaluation.tables.page import EMPTY, Cell, Column, Piece, Section, Table, cell

_ABOUT = ("first", "task", "split", "steps", "items", "seed", "model", "second", "other")  # what fixes a line


def difference_tables(rows: Sequence[Row]) -> list[Table]:
    """One table, or none where no row is a difference. Differences whose interval leaves out 0 are bold."""
    found: dict[tuple[Any, ...], dict[tuple[str, str], Row]] = {}
    for number, row in enumerate(rows, 1):
        if not is_difference(row):
            continue
        lacking = [name for name in (*_ABOUT, "dataset", "metric") if name not in row]
        lacking += [name for name in ("difference", "low", "high") if not is_number(row.get(name))]
        if lacking:
            raise ValueError(
                f"{place_of(row, number)} has {'no number' if lacking[0] in row else 'nothing'} under '{lacking[0]}'; "
                "wanted rows as `ddot compare --json` writes them"
            )
        about = {name: row[name] for name in (*_ABOUT, "dataset", "metric")}
        if odd := [name for name, value in about.items() if not isinstance(value, str | int)]:
            place = place_of(row, number)
            raise ValueError(f"{place} has {about[odd[0]]!r} under '{odd[0]}'; wanted a name or a whole number")
        found.setdefault(tuple(row[name] for name in _ABOUT), {})[row["dataset"], row["metric"]] = row
    if not found:
        return []
    places = {place for line in found.values() for place in line}
    sets = sorted({dataset for dataset, _ in places}, key=[*SETS, *sorted({d for d, _ in places})].index)
    metrics = list(dict.fromkeys(metric for line in found.values() for _, metric in line))
    columns = [(dataset, metric) for dataset in sets for metric in metrics if (dataset, metric) in places]
    lines = [dict(zip(_ABOUT, about, strict=True)) for about in found]
    differ = {name for name in _ABOUT if len({line[name] for line in lines}) > 1}
    several = _have_several(lines)
    sections: dict[str, list[tuple[Cell, ...]]] = {}
    for line, cells in zip(lines, found.values(), strict=True):
        title = [f"{contender(line['first']).label} minus …", line["task"], f"{line['steps']} steps"]
        title += [f"{line['split']} split"] * (line["split"] != "test")
        title += [f"n = {line['items']}"] * ("items" in differ) + [f"seed {line['seed']}"] * ("seed" in differ)
        title += [model_name(line["model"])] * ("model" in differ)
        name = [contender(line["second"]).label]
        name += [model_name(line["other"])] * (line["second"] in several)
        body = (cell(", ".join(name)), *(_cell(cells.get(column)) for column in columns))
        sections.setdefault(", ".join(title), []).append(body)
    heads = [
        Column(f"{HEADS.get(metric, metric)}{' ↓' * (metric in LOWER_IS_BETTER)}", SETS.get(dataset, dataset))
        for dataset, metric in columns
    ]
    notes = ["In brackets: 95% intervals of the paired bootstrap over items. Bold: 0 lies outside."]
    notes += ["↓: the lower the better."] * any(metric in LOWER_IS_BETTER for metric in metrics)
    return [
        Table(
            "differences",
            "Differences on the same items",
            (Column("minus"), *heads),
            tuple(Section(name, tuple(body)) for name, body in sections.items()),
            tuple(notes),
        )
    ]


def _have_several(lines: Sequence[Row]) -> set[str]:
    """The second methods that more than one model filled with."""
    models: dict[str, set[str]] = {}
    for line in lines:
        models.setdefault(line["second"], set()).add(line["other"])
    return {method for method, some in models.items() if len(some) > 1}


def _cell(row: Row | None) -> Cell:
    if row is None:
        return cell(EMPTY)
    form = "+" + number_format(row["metric"]).lstrip("+")
    difference, low, high = (signed(row[name], form) for name in ("difference", "low", "high"))
    return (Piece(difference, bool(row["low"] > 0 or row["high"] < 0)), Piece(f" [{low}, {high}]"))
