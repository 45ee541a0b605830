"""Rows as `ddot evaluate`, `ddot compare` and `ddot bench` write them: which is which, and what is wrong with one."""

import json
import math
from collections.abc import Iterable, Mapping
from typing import Any

# What fixes a row: two rows that agree in these are the same measurement.
IDENTITY = ("model", "method", "dataset", "split", "task", "steps", "seed", "items")
UNFILLED = "unfilled"
_NUMBER = (int, float)
_KINDS: dict[Any, str] = {int: "a whole number", str: "a name", _NUMBER: "a number", dict: "one for each metric"}
_IDENTITY_KINDS = {name: int if name in ("steps", "seed", "items") else str for name in IDENTITY}
# What a row may say beside its scores.
_BESIDE_KINDS: dict[str, Any] = {
    "recipe": str, "device": str, "language_model": str, "intervals": dict, "batch": int, "cut": int,
    "training_seconds": _NUMBER, "position_factor": _NUMBER,
}  # fmt: skip

Row = Mapping[str, Any]


class PlacedRow(dict[str, Any]):
    """A row that knows where it stood."""

    def __init__(self, row: Row, place: str):
        super().__init__(row)
        self.place = place


def place_of(row: Row, number: int) -> str:
    """Where a row stood, for a sentence about it: its file and line, or its number."""
    return row.place if isinstance(row, PlacedRow) else f"row {number}"


def is_number(value: Any) -> bool:
    """Whether a field of a row was measured."""
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def is_difference(row: Row) -> bool:
    """Whether it is a row of `ddot compare`."""
    return "first" in row and "second" in row


def identity(row: Row, place: str = "a row") -> tuple[Any, ...]:
    """What a row of `ddot evaluate`, or a text of it, is of."""
    lacking = [name for name in IDENTITY if name not in row]
    if lacking:
        raise ValueError(f"{place} has no '{lacking[0]}'; wanted rows as `ddot evaluate` writes them")
    _check_kinds({name: row[name] for name in IDENTITY}, _IDENTITY_KINDS, place)
    return tuple(row[name] for name in IDENTITY)


def _check_kinds(fields: Row, kinds: Mapping[str, Any], place: str) -> None:
    for name, value in fields.items():
        if not isinstance(value, kinds[name]) or isinstance(value, bool):
            raise ValueError(f"{place} has {json.dumps(value)[:40]} under '{name}'; wanted {_KINDS[kinds[name]]}")


def measured(rows: Iterable[Row]) -> list[Row]:
    """The rows of `ddot evaluate` among `rows`, each measurement once: what a later row says of it holds."""
    found: dict[tuple[Any, ...], dict[str, Any]] = {}
    for number, row in enumerate(rows, 1):
        if ("method" not in row and "dataset" not in row) or is_difference(row):  # of `ddot bench`, of `ddot compare`
            continue
        place = place_of(row, number)
        if "text" in row:
            raise ValueError(f"{place} is a text; give the rows, which stand beside them without .texts in the name")
        key = identity(row, place)
        _check_kinds({name: row[name] for name in _BESIDE_KINDS if row.get(name) is not None}, _BESIDE_KINDS, place)
        if row["method"] == UNFILLED:  # the same whatever the model, the task, the steps and the seed
            key = (UNFILLED, row["dataset"], row["split"], row["items"])
        found[key] = found.get(key, {}) | dict(row)
    return list(found.values())
