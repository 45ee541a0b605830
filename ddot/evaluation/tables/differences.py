"""Differences between contenders on the same items, with their intervals: the lines of `ddot compare`."""

from collections.abc import Mapping, Sequence
from dataclasses import fields
from pathlib import PurePath
from typing import Any

from ddot.evaluation.contenders import contender, importance
from ddot.evaluation.rows import HEADS, Contrast, is_difference, parse
from ddot.evaluation.tables.lines import LOWER_IS_BETTER, SETS, model_name, number_format, signed
from ddot.evaluation.tables.page import EMPTY, Column, Table, bold

_PLACE = ("dataset", "metric", "difference", "low", "high", "wins")  # what a cell is; the rest is a line
_OF_LINE = [each.name for each in fields(Contrast) if each.name not in _PLACE]


def difference_tables(rows: Sequence[Mapping[str, Any]], room: int | None = None) -> list[Table]:
    """One table, or none where no line is a difference. Bold: the interval excludes 0."""
    found = [parse(Contrast, row, number) for number, row in enumerate(rows, 1) if is_difference(row)]
    if not found:
        return []
    lines: dict[tuple[Any, ...], dict[tuple[str, str], Contrast]] = {}
    for each in found:
        lines.setdefault(tuple(getattr(each, name) for name in _OF_LINE), {})[each.dataset, each.metric] = each
    kept = sorted((next(iter(line.values())) for line in lines.values()), key=_rank)[:room]
    shown = {key: line for key, line in lines.items() if next(iter(line.values())) in kept}
    sets, metrics = dict.fromkeys(each.dataset for each in found), dict.fromkeys(each.metric for each in found)
    known = [name for name in SETS if name in sets] + sorted(set(sets) - set(SETS))
    places = [(d, m) for d in known for m in metrics if any((d, m) in line for line in shown.values())]
    differ = {name for name in _OF_LINE if len({getattr(each, name) for each in kept}) > 1}
    body = []
    for line in shown.values():
        one = next(iter(line.values()))
        parts = [" − ".join(contender(name).label for name in (one.first, one.second))]
        own = "" if _is_own(one) else ", ".join(map(model_name, (one.model, one.other)))
        parts += [own] * bool(own and ({"model", "other"} & differ)) + [one.task] * ("task" in differ)
        parts += [f"{one.steps} steps"] * ("steps" in differ) + [f"{one.split} split"] * (one.split != "test")
        parts += [f"n = {one.items}"] * ("items" in differ) + [f"seed {one.seed}"] * ("seed" in differ)
        body.append((", ".join(parts), *(_cell(line.get(place)) for place in places)))
    heads = [Column(HEADS.get(m, m) + " ↓" * (m in LOWER_IS_BETTER), SETS.get(d, d)) for d, m in places]
    notes = ["In brackets: 95% intervals of the paired bootstrap over items. Bold: the interval excludes 0."]
    notes += ["↓: lower is better."] * any(metric in LOWER_IS_BETTER for metric in metrics)
    return [Table("differences", "Differences on the same items", (Column(""), *heads), body, notes)]


def _is_own(one: Contrast) -> bool:
    """Whether both models were trained for their contenders."""
    pairs = ((one.first, one.model), (one.second, one.other))
    return all(contender(name).recipe == PurePath(model).name for name, model in pairs)


def _rank(one: Contrast) -> tuple[object, ...]:
    variant = any(contender(name).variant for name in (one.first, one.second))
    return variant, not _is_own(one), max(importance(one.first), importance(one.second))


def _cell(found: Contrast | None) -> str:
    if found is None:
        return EMPTY
    form = "+" + number_format(found.metric).lstrip("+")
    difference, low, high = (signed(value, form) for value in (found.difference, found.low, found.high))
    return f"{bold(difference) if found.low > 0 or found.high < 0 else difference} [{low}, {high}]"
