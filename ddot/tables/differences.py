"""Differences between ways of filling on the same items, with their intervals: the rows of `ddot compare`."""

from collections.abc import Sequence
from typing import Any

from ddot.tables.lines import LABELS, SETS, Row, signed
from ddot.tables.page import EMPTY, Cell, Column, Piece, Section, Table, cell

COMPARED = ("first", "second", "dataset", "task", "steps", "split", "metric", "difference", "low", "high")


def is_difference(row: Row) -> bool:
    """Whether it is a row of `ddot compare`."""
    return "first" in row and "second" in row


def difference_tables(rows: Sequence[Row], heads: dict[str, str]) -> list[Table]:
    """One table, or none where no row is a difference. Differences whose interval leaves out 0 are bold.

    `heads`: metrics by their short names.
    """
    found: dict[tuple[Any, ...], dict[tuple[str, str], Row]] = {}
    for number, row in enumerate(rows, 1):
        if not is_difference(row):
            continue
        lacking = [name for name in COMPARED if name not in row]
        if lacking:
            raise ValueError(f"row {number} has no '{lacking[0]}'; wanted rows as `ddot compare --json` writes them")
        about = (row["first"], row["task"], row["split"], row["steps"], row["second"])
        found.setdefault(about, {})[row["dataset"], row["metric"]] = row
    if not found:
        return []
    cells = {place for line in found.values() for place in line}
    sets = sorted({dataset for dataset, _ in cells}, key=[*SETS, *sorted({d for d, _ in cells})].index)
    metrics = list(dict.fromkeys(metric for line in found.values() for _, metric in line))
    columns = [(dataset, metric) for dataset in sets for metric in metrics if (dataset, metric) in cells]
    sections: dict[str, list[tuple[Cell, ...]]] = {}
    for (first, task, split, steps, second), line in found.items():
        title = [f"{LABELS.get(first, first)} minus …", task, f"{steps} steps", *[f"{split} split"] * (split != "test")]
        body = (cell(LABELS.get(second, second)), *(_cell(line.get(column)) for column in columns))
        sections.setdefault(", ".join(title), []).append(body)
    return [
        Table(
            "differences",
            "Differences on the same items",
            (Column("minus"), *(Column(heads.get(metric, metric), SETS.get(name, name)) for name, metric in columns)),
            tuple(Section(title, tuple(lines)) for title, lines in sections.items()),
            ("In brackets: 95% intervals of the paired bootstrap over items. Bold: 0 lies outside.",),
        )
    ]


def _cell(row: Row | None) -> Cell:
    if row is None:
        return cell(EMPTY)
    difference, low, high = (signed(row[name], "+.1f") for name in ("difference", "low", "high"))
    return (Piece(difference, bool(row["low"] > 0 or row["high"] < 0)), Piece(f" [{low}, {high}]"))
