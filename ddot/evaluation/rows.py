"""Rows as `ddot evaluate`, `ddot compare` and `ddot bench` write them: which is which, and what is wrong with one."""

import json
import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

# What fixes a row: two rows that agree in these are the same measurement.
IDENTITY = ("model", "method", "dataset", "split", "task", "steps", "seed", "items")
UNFILLED = "unfilled"
# Each metric there is, and what stands over its column.
HEADS = {
    "bleu2": "B2", "bleu4": "B4", "nist2": "N2", "nist4": "N4", "meteor": "M", "meteor_nltk": "M (NLTK)",
    "success": "SR", "codebleu": "CB", "d2": "D2", "d4": "D4", "perplexity": "PPL",
    "length_error": "length", "gaps_found": "gaps", "gaps_extra": "extra", "exact": "EM",
    "rouge1": "R1", "rouge2": "R2", "rougeL": "RL", "fill_length_error": "words", "fill_length_error_abs": "words ±",
    "fill_length_near": "near", "fill_empty": "empty",
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


@dataclass(frozen=True)
class Kind:
    """What a field may hold, in words and as a test."""

    wanted: str
    fits: Callable[[Any], bool]


def _is_whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _are_intervals(value: Any) -> bool:
    return isinstance(value, dict) and all(
        one is None or (isinstance(one, list | tuple) and len(one) == 2 and all(map(is_number, one)))
        for one in value.values()
    )


def _are_shares(value: Any) -> bool:
    return isinstance(value, dict) and all(
        isinstance(name, str) and name.isdecimal() and _is_share(pair) for name, pair in value.items()
    )


def _is_share(value: Any) -> bool:
    two_counts = isinstance(value, list | tuple) and len(value) == 2 and all(map(_is_whole, value))
    return two_counts and 0 <= value[0] <= value[1] > 0


_NAME = Kind("a name", lambda value: isinstance(value, str) and bool(value.strip()))
_WHOLE = Kind("a whole number", _is_whole)
_COUNT = Kind("a whole number, 1 or more", lambda value: _is_whole(value) and value >= 1)
_NUMBER = Kind("a number", is_number)
_SCORE = Kind("a number", lambda value: _is_whole(value) or isinstance(value, float))  # NaN: it could not be measured
_INTERVALS = Kind("one for each metric, null or its two ends", _are_intervals)
_IDENTITY_KINDS = {name: _NAME for name in IDENTITY} | {"steps": _COUNT, "seed": _WHOLE, "items": _COUNT}
# What a row may say beside that; null says nothing.
_BESIDE_KINDS = {
    **dict.fromkeys((*HEADS, "length_error_abs", "seconds"), _SCORE),
    **dict.fromkeys(("recipe", "device", "language_model", "stored"), _NAME),
    **dict.fromkeys(("batch", "cut", "samples", "training_steps"), _WHOLE),
    **dict.fromkeys(("training_seconds", "position_factor"), _NUMBER),
    "intervals": _INTERVALS,
    "kept": Kind("for each number of given words [texts that keep them, texts]", _are_shares),
}


def identity(row: Row, place: str = "a row") -> tuple[Any, ...]:
    """What a row of `ddot evaluate`, or a text of it, is of."""
    lacking = [name for name in IDENTITY if name not in row]
    if lacking:
        raise ValueError(f"{place} has no '{lacking[0]}'; wanted rows as `ddot evaluate` writes them")
    _check_kinds({name: row[name] for name in IDENTITY}, _IDENTITY_KINDS, place)
    return tuple(row[name] for name in IDENTITY)


def check(row: Row, place: str) -> tuple[Any, ...]:
    """What a row of `ddot evaluate` is of; one with a field that holds something else than it should is refused."""
    key = identity(row, place)
    _check_kinds({name: row[name] for name in _BESIDE_KINDS if row.get(name) is not None}, _BESIDE_KINDS, place)
    return key


def _check_kinds(fields: Row, kinds: Mapping[str, Kind], place: str) -> None:
    for name, value in fields.items():
        if not kinds[name].fits(value):
            raise ValueError(f"{place} has {json.dumps(value)[:40]} under '{name}'; wanted {kinds[name].wanted}")


def measured(rows: Iterable[Row]) -> list[Row]:
    """The rows of `ddot evaluate` among `rows`, each measurement once: what a later row says of it holds."""
    found: dict[tuple[Any, ...], dict[str, Any]] = {}
    for number, row in enumerate(rows, 1):
        if ("method" not in row and "dataset" not in row) or is_difference(row):  # of `ddot bench`, of `ddot compare`
            continue
        place = place_of(row, number)
        if "text" in row:
            raise ValueError(f"{place} is a text; give the rows, which stand beside them without .texts in the name")
        key = check(row, place)
        if row["method"] == UNFILLED:  # the same whatever the model, the task, the steps and the seed
            key = (UNFILLED, row["dataset"], row["split"], row["items"])
        found[key] = found.get(key, {}) | dict(row)
    return list(found.values())
