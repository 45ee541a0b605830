"""The records of an evaluation, one JSON line each: rows, generated texts, differences. One validator."""

import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any, TypeVar

UNFILLED = "unfilled"
NATS, BASE = "nats", "base"  # the methods of rows of `ddot nats`
# Every metric, and the head of its column.
HEADS = {
    "bleu2": "B2", "bleu4": "B4", "nist2": "N2", "nist4": "N4", "meteor": "M", "meteor_nltk": "M (NLTK)",
    "success": "SR", "codebleu": "CB", "d2": "D2", "d4": "D4", "perplexity": "PPL",
    "length_error": "length", "length_error_abs": "length ±", "gaps_found": "gaps", "gaps_extra": "extra",
    "exact": "EM", "rouge1": "R1", "rouge2": "R2", "rougeL": "RL", "fill_length_error": "length",
    "fill_length_error_abs": "length ±", "fill_length_near": "near", "fill_empty": "empty", "nats": "nats",
}  # fmt: skip


class Raw(dict[str, Any]):
    """A JSON line that knows its file and line."""

    def __init__(self, line: Mapping[str, Any], place: str):
        super().__init__(line)
        self.place = place


def place_of(line: Mapping[str, Any], number: int | None = None) -> str:
    """The file and line number of a record, for error messages."""
    return line.place if isinstance(line, Raw) else "a row" if number is None else f"row {number}"


def is_number(value: Any) -> bool:
    """Whether a field was measured."""
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _is_whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_pair(value: Any, fits: Callable[[Any], bool]) -> bool:
    return isinstance(value, list | tuple) and len(value) == 2 and all(map(fits, value))


def _is_kept(value: Any) -> bool:
    return isinstance(value, dict) and all(
        isinstance(name, str) and name.isdecimal() and _is_pair(pair, _is_whole) and 0 <= pair[0] <= pair[1] > 0
        for name, pair in value.items()
    )


# What a field may hold: in words, and as a test.
Kind = tuple[str, Callable[[Any], bool]]
NAME: Kind = ("a name", lambda value: isinstance(value, str) and bool(value.strip()))
WHOLE: Kind = ("a whole number", _is_whole)
COUNT: Kind = ("a whole number, 1 or more", lambda value: _is_whole(value) and value >= 1)
NUMBER: Kind = ("a number", is_number)
SCORE: Kind = ("a number", lambda value: _is_whole(value) or isinstance(value, float))  # NaN: could not be measured
INTERVALS: Kind = (
    "one for each metric, null or its two ends",
    lambda value: isinstance(value, dict) and all(one is None or _is_pair(one, is_number) for one in value.values()),
)
KEPT: Kind = ("for each number of given words [texts that keep them, texts]", _is_kept)
TEXT: Kind = ("a text", lambda value: isinstance(value, str))
ID: Kind = ("a name", lambda value: isinstance(value, str | int))


def _of(kind: Kind) -> Any:
    return field(metadata={"kind": kind})


def _maybe(kind: Kind) -> Any:
    return field(default=None, metadata={"kind": kind})


@dataclass(frozen=True)
class Task:
    """What was filled. Two measurements of one task can be compared."""

    dataset: str = _of(NAME)
    split: str = _of(NAME)
    task: str = _of(NAME)
    steps: int = _of(COUNT)
    seed: int = _of(WHOLE)
    items: int = _of(COUNT)


@dataclass(frozen=True)
class Identity(Task):
    """What fixes a measurement: it is made once."""

    model: str = _of(NAME)
    method: str = _of(NAME)

    @property
    def key(self) -> "Identity":
        return Identity(**{each.name: getattr(self, each.name) for each in fields(Identity)})

    @property
    def filled_task(self) -> Task:
        return Task(**{each.name: getattr(self, each.name) for each in fields(Task)})


@dataclass(frozen=True)
class Row(Identity):
    """A measurement: metrics, how the model was trained, what it ran on. None: not known."""

    metrics: Mapping[str, float] = field(default_factory=dict)
    seconds: float | None = _maybe(SCORE)  # per text
    batch: int | None = _maybe(WHOLE)
    device: str | None = _maybe(NAME)
    commit: str | None = _maybe(NAME)
    cut: int | None = _maybe(WHOLE)  # programs too long to be shown whole
    recipe: str | None = _maybe(NAME)
    position_factor: float | None = _maybe(NUMBER)
    training_steps: int | None = _maybe(WHOLE)
    training_seconds: float | None = _maybe(NUMBER)
    stored: str | None = _maybe(NAME)
    language_model: str | None = _maybe(NAME)
    kept: Mapping[str, Sequence[int]] | None = _maybe(KEPT)
    intervals: Mapping[str, Any] | None = _maybe(INTERVALS)
    samples: int | None = _maybe(WHOLE)
    missing: Mapping[str, str] = field(default_factory=dict)  # metrics that could not be computed, and why; not stored

    def measure(self, metric: str) -> float | None:
        """The value of a metric, or of seconds, if it was measured."""
        value = self.seconds if metric == "seconds" else self.metrics.get(metric)
        return value if is_number(value) else None

    def scored(self, found: Mapping[str, Any]) -> "Row":
        """The row with what `metrics.score` found."""
        metrics = {**self.metrics, **{name: value for name, value in found.items() if name in HEADS}}
        named = {name: value for name, value in found.items() if name not in HEADS}
        return replace(self, **{"missing": {}, **named}, metrics=metrics)

    def updated(self, later: "Row") -> "Row":
        """This row with all that a later row of the same measurement says."""
        said = {each.name: getattr(later, each.name) for each in fields(Row)}
        said = {name: value for name, value in said.items() if value is not None and name not in ("metrics", "missing")}
        metrics = {name: value for name, value in later.metrics.items() if value is not None}
        return replace(self, **said, metrics={**self.metrics, **metrics})

    def json(self) -> dict[str, Any]:
        """The line of a file."""
        said = {each.name: getattr(self, each.name) for each in fields(self)}
        first = {name: said.pop(name) for name in ("model", "method")}
        metrics = said.pop("metrics")
        said.pop("missing")
        return first | {name: value for name, value in {**said, **metrics}.items() if value is not None}


@dataclass(frozen=True)
class FilledText(Identity):
    """The text that was made of an item; `made` is a checksum of what made it."""

    id: str | int = _of(ID)
    text: str = _of(TEXT)
    made: str | None = _maybe(NAME)


@dataclass(frozen=True)
class Contrast(Task):
    """A method (and model) minus another on the same items: the difference in a metric, and its 95% interval."""

    first: str = _of(NAME)
    second: str = _of(NAME)
    model: str = _of(NAME)
    other: str = _of(NAME)
    metric: str = _of(NAME)
    difference: float = _of(NUMBER)
    low: float = _of(NUMBER)
    high: float = _of(NUMBER)
    wins: float | None = _maybe(NUMBER)


R = TypeVar("R", Row, FilledText, Contrast)
_COMMANDS = {Row: "evaluate", FilledText: "evaluate", Contrast: "compare --json"}


def parse(record: type[R], line: Mapping[str, Any], number: int | None = None) -> R:
    """The record of a JSON line. A field that is missing or holds something else is refused."""
    place, said = place_of(line, number), dict[str, Any]()
    for each in (each for each in fields(record) if "kind" in each.metadata):
        value, required = line.get(each.name), each.default is not None
        if each.name not in line and required:
            raise ValueError(f"{place} has no '{each.name}'; wanted rows as `ddot {_COMMANDS[record]}` writes them")
        if value is not None or required:
            said[each.name] = _checked(each.name, value, each.metadata["kind"], place)
    if record is Row:
        said["metrics"] = {
            name: _checked(name, line[name], SCORE, place) for name in HEADS if line.get(name) is not None
        }
    return record(**said)


def _checked(name: str, value: Any, kind: Kind, place: str) -> Any:
    wanted, fits = kind
    if not fits(value):
        raise ValueError(f"{place} has {json.dumps(value)[:40]} under '{name}'; wanted {wanted}")
    return float(value) if wanted == "a number" else value


def is_difference(line: Mapping[str, Any]) -> bool:
    """Whether it is a line of `ddot compare`."""
    return "first" in line and "second" in line


def is_measurement(line: Mapping[str, Any]) -> bool:
    """Whether it is a line of `ddot evaluate` or `ddot nats`; the others are of `ddot compare` and `ddot bench`."""
    return ("method" in line or "dataset" in line) and not is_difference(line)


def measured(lines: Iterable[Mapping[str, Any]]) -> list[Row]:
    """The rows of `ddot evaluate` among lines, each measurement once: later lines add to earlier ones.

    Rows of `ddot nats` add to those of their model on their set.
    """
    found: dict[Any, Row] = {}
    for number, line in enumerate(lines, 1):
        if not is_measurement(line):
            continue
        if "text" in line:
            raise ValueError(
                f"{place_of(line, number)} is a text; give the file of rows beside it, without .texts in its name"
            )
        row = parse(Row, line, number)
        # The unfilled prompt is the same whatever the model, the task, the steps and the seed.
        key = (row.dataset, row.split, row.items) if row.method == UNFILLED else row.key
        found[key] = found[key].updated(row) if key in found else row
    nats = {(row.model, row.dataset, row.split): row.metrics for row in found.values() if row.method == NATS}
    rows = [row for row in found.values() if row.method != NATS]
    return [replace(row, metrics={**nats.get((row.model, row.dataset, row.split), {}), **row.metrics}) for row in rows]
