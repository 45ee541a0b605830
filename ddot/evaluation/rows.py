"""The records of an evaluation, one JSON line each: rows, generated texts, differences. One validator."""

import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import MISSING, dataclass, field, fields, replace
from typing import Any, TypeVar, get_args, get_origin, get_type_hints

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


def place_of(line: Mapping[str, Any]) -> str:
    """The file and line number of a record, for error messages."""
    return line.place if isinstance(line, Raw) else "a row"


def is_number(value: Any) -> bool:
    """Whether a field was measured."""
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


@dataclass(frozen=True)
class Task:
    """What was filled. Two measurements of one task can be compared."""

    dataset: str
    split: str
    task: str
    steps: int
    seed: int
    items: int


@dataclass(frozen=True)
class Identity(Task):
    """What fixes a measurement: it is made once."""

    model: str
    method: str

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
    seconds: float | None = None  # per text
    batch: int | None = None
    device: str | None = None
    commit: str | None = None
    cut: int | None = None  # programs too long to be shown whole
    recipe: str | None = None
    position_factor: float | None = None
    training_steps: int | None = None
    training_seconds: float | None = None
    own_steps: int | None = None  # of the last training, without the model it started from
    own_seconds: float | None = None
    gpu_share: float | None = None  # that its last training had, beside others; None: a whole GPU, or no GPU
    stored: str | None = None
    language_model: str | None = None
    kept: dict[str, list[int]] | None = None
    intervals: dict[str, Any] | None = None
    samples: int | None = None
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
        said = {each.name: getattr(self, each.name) for each in fields(self)}
        first = {name: said.pop(name) for name in ("model", "method")}
        metrics = said.pop("metrics")
        said.pop("missing")
        return first | {name: value for name, value in {**said, **metrics}.items() if value is not None}


@dataclass(frozen=True)
class FilledText(Identity):
    """The text that was made of an item; `made` is a checksum of what made it."""

    id: str
    text: str
    made: str | None = None


@dataclass(frozen=True)
class Contrast(Task):
    """A method (and model) minus another on the same items: the difference in a metric, and its 95% interval."""

    first: str
    second: str
    model: str
    other: str
    metric: str
    difference: float
    low: float
    high: float
    wins: float | None = None


R = TypeVar("R", Row, FilledText, Contrast)
_COMMANDS: dict[type, str] = {Row: "evaluate", FilledText: "evaluate", Contrast: "compare --json"}


_MOST = 2**63  # of a whole number: beyond it there may be no float
_WANTED = {str: "a text", int: "a whole number", float: "a number", dict: "an object"}


def _fields(record: Any) -> dict[str, tuple[type, bool]]:
    """The type of each field of a line, and whether it must be there."""
    hints, found = get_type_hints(record), dict[str, tuple[type, bool]]()
    for each in (each for each in fields(record) if each.default_factory is MISSING):
        kind = next(iter(get_args(hints[each.name])), hints[each.name])  # the first of a union
        found[each.name] = get_origin(kind) or kind, each.default is MISSING
    return found


_FIELDS = {record: _fields(record) for record in _COMMANDS}


def parse(record: type[R], line: Mapping[str, Any]) -> R:
    """The record of a JSON line. A field that is missing or holds something else is refused."""
    place, said = place_of(line), dict[str, Any]()
    for name, (kind, required) in _FIELDS[record].items():
        if name not in line and required:
            raise ValueError(f"{place} has no '{name}'; wanted rows as `ddot {_COMMANDS[record]}` writes them")
        if line.get(name) is not None or required:
            said[name] = _checked(name, line[name], kind, place)
    if record is Row:
        scores = {name: line[name] for name in HEADS if line.get(name) is not None}
        said["metrics"] = {name: _checked(name, value, float, place) for name, value in scores.items()}
    return record(**said)


def _checked(name: str, value: Any, kind: Any, place: str) -> Any:
    """A number may be NaN: it could not be measured."""
    known = isinstance(value, int | float if kind is float else kind) and not isinstance(value, bool)
    if isinstance(value, str) and name != "text" and not value.isprintable():
        raise ValueError(f"{place} has control characters under '{name}'; take them out")
    if not known or (isinstance(value, int) and abs(value) > _MOST):
        raise ValueError(f"{place} has {json.dumps(value)[:40]} under '{name}'; wanted {_WANTED[kind]}")
    return float(value) if kind is float else value


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
    for line in filter(is_measurement, lines):
        if "text" in line:
            raise ValueError(f"{place_of(line)} is a text; give the file of rows beside it, without .texts in its name")
        row = parse(Row, line)
        # The unfilled prompt is the same whatever the model, the task, the steps and the seed.
        key = (row.dataset, row.split, row.items) if row.method == UNFILLED else row.key
        found[key] = found[key].updated(row) if key in found else row
    nats = {(row.model, row.dataset, row.split): row.metrics for row in found.values() if row.method == NATS}
    rows = [row for row in found.values() if row.method != NATS]
    return [replace(row, metrics={**nats.get((row.model, row.dataset, row.split), {}), **row.metrics}) for row in rows]
