"""Differences between contenders on the same items, with their intervals: the lines of `ddot compare`."""

from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import Any

from ddot.evaluation.contenders import contender
from ddot.evaluation.rows import HEADS, Contrast, is_difference, parse
from ddot.evaluation.tables.lines import LOWER_IS_BETTER, SETS, model_name, number_format, signed
from ddot.evaluation.tables.page import EMPTY, Cell, Column, Piece, Section, Table, cell

_PLACE = ("dataset", "metric", "difference", "low", "high", "wins")  # what a cell is; the rest is a line
_OF_LINE = [each.name for each in fields(Contrast) if each.name not in _PLACE]


def difference_tables(rows: Sequence[Mapping[str, Any]]) -> list[Table]:
    """One table, or none where no line is a difference. Bold: the interval excludes 0."""
    found = [parse(Contrast, row, number) for number, row in enumerate(rows, 1) if is_difference(row)]
    if not found:
        return []
    lines: dict[tuple[Any, ...], dict[tuple[str, str], Contrast]] = {}
    for each in found:
        lines.setdefault(tuple(getattr(each, name) for name in _OF_LINE), {})[each.dataset, each.metric] = each
    sets, metrics = dict.fromkeys(each.dataset for each in found), dict.fromkeys(each.metric for each in found)
    known = [name for name in SETS if name in sets] + sorted(set(sets) - set(SETS))
    places = [(d, m) for d in known for m in metrics if any((d, m) in line for line in lines.values())]
    differ = {name for name in _OF_LINE if len({getattr(each, name) for each in found}) > 1}
    sections: dict[str, list[tuple[Cell, ...]]] = {}
    for line in lines.values():
        one = next(iter(line.values()))
        title = [f"{contender(one.first).label} minus …", one.task, f"{one.steps} steps"]
        title += [f"{one.split} split"] * (one.split != "test") + [f"n = {one.items}"] * ("items" in differ)
        title += [f"seed {one.seed}"] * ("seed" in differ) + [model_name(one.model)] * ("model" in differ)
        several = len({each.other for each in found if each.second == one.second}) > 1
        name = ", ".join([contender(one.second).label, *[model_name(one.other)] * several])
        body = (cell(name), *(_cell(line.get(place)) for place in places))
        sections.setdefault(", ".join(title), []).append(body)
    heads = [Column(HEADS.get(m, m) + " ↓" * (m in LOWER_IS_BETTER), SETS.get(d, d)) for d, m in places]
    notes = ["In brackets: 95% intervals of the paired bootstrap over items. Bold: the interval excludes 0."]
    notes += ["↓: lower is better."] * any(metric in LOWER_IS_BETTER for metric in metrics)
    parts = tuple(Section(title, tuple(body)) for title, body in sections.items())
    return [Table("differences", "Differences on the same items", (Column("minus"), *heads), parts, tuple(notes))]


def _cell(found: Contrast | None) -> Cell:
    if found is None:
        return cell(EMPTY)
    form = "+" + number_format(found.metric).lstrip("+")
    difference, low, high = (signed(value, form) for value in (found.difference, found.low, found.high))
    return (Piece(difference, found.low > 0 or found.high < 0), Piece(f" [{low}, {high}]"))
