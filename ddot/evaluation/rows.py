"""The records of an evaluation, one JSON line each: rows, generated texts, differences; and their validator."""

import json
import math
from collections.abc import Callable, Collection, Hashable, Iterable, Mapping
from dataclasses import MISSING, dataclass, field, fields, replace
from typing import Any, TypeVar, get_args, get_origin, get_type_hints

UNFILLED = "unfilled"
NATS, BASE = "nats", "base"  # the methods of rows of `ddot nats`
# Column heads of all metrics.
HEADS = {
    "bleu2": "B2", "bleu4": "B4", "nist2": "N2", "nist4": "N4", "meteor": "M", "meteor_nltk": "M (NLTK)",
    "success": "SR", "codebleu": "CB", "d2": "D2", "d4": "D4", "perplexity": "PPL",
    "length_error": "length", "length_error_abs": "length ±", "gaps_found": "gaps", "gaps_extra": "extra",
    "exact": "EM", "rouge1": "R1", "rouge2": "R2", "rougeL": "RL", "fill_length_error": "length",
    "fill_length_error_abs": "length ±", "fill_length_near": "near", "fill_empty": "empty", "nats": "nats",
}  # fmt: skip


class Raw(dict[str, Any]):
    """A JSON line that knows its file and line number."""

    def __init__(self, line: Mapping[str, Any], place: str):
        super().__init__(line)
        self.place = place


def place_of(line: Mapping[str, Any]) -> str:
    """The file and line number of a record, for error messages."""
    return line.place if isinstance(line, Raw) else "a row"


def is_number(value: Any) -> bool:
    """Whether a field was measured."""
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def refuse_unknown(problem: str, names: Iterable[str], known: Collection[str]) -> None:
    """Raise for the first name that is not known. `problem`: "unknown metric", "no row has the method"."""
    if unknown := [name for name in names if name not in known]:
        raise ValueError(f"{problem} '{unknown[0]}'; available: {', '.join(known) or 'none'}")


@dataclass(frozen=True)
class Task:
    """What was filled. Measurements of the same task can be compared."""

    dataset: str
    split: str
    task: str
    steps: int
    seed: int
    items: int

    @property
    def item_set(self) -> tuple[str, str, int]:
        return self.dataset, self.split, self.items


@dataclass(frozen=True)
class Identity(Task):
    """Identifies a measurement, which is made once."""

    model: str
    method: str

    @property
    def key(self) -> "Identity":
        return Identity(**{f.name: getattr(self, f.name) for f in fields(Identity)})

    @property
    def filled_task(self) -> Task:
        return Task(**{f.name: getattr(self, f.name) for f in fields(Task)})


@dataclass(frozen=True)
class Row(Identity):
    """A measurement: metrics, how the model was trained, what it ran on. None: unknown."""

    metrics: Mapping[str, float] = field(default_factory=dict)
    seconds: float | None = None  # per text
    batch: int | None = None
    device: str | None = None
    commit: str | None = None
    cut: int | None = None  # number of programs too long to be shown whole
    recipe: str | None = None
    position_factor: float | None = None
    training_steps: int | None = None
    training_seconds: float | None = None
    own_steps: int | None = None  # of the last training run, without those of its starting model
    own_seconds: float | None = None
    gpu_share: float | None = None  # share of a GPU in the last training run; None: a whole GPU, or no GPU
    stored: str | None = None
    language_model: str | None = None
    kept: dict[str, list[int]] | None = None
    intervals: dict[str, Any] | None = None
    samples: int | None = None
    missing: Mapping[str, str] = field(default_factory=dict)  # why metrics could not be computed; not stored

    def measure(self, metric: str) -> float | None:
        """The value of a metric, or of seconds, if it was measured."""
        value = self.seconds if metric == "seconds" else self.metrics.get(metric)
        return value if is_number(value) else None

    def updated(self, values: Mapping[str, Any]) -> "Row":
        """The row with these metrics and fields, such as `metrics.score` or a later line of the file has."""
        metrics = {name: value for name, value in values.items() if name in HEADS}
        others = {name: value for name, value in values.items() if name not in HEADS}
        return replace(self, **{"missing": {}, **others}, metrics={**self.metrics, **metrics})

    def json(self) -> dict[str, Any]:
        values = {"model": self.model, "method": self.method}
        values |= {f.name: getattr(self, f.name) for f in fields(self) if f.default_factory is MISSING}
        return {name: value for name, value in {**values, **self.metrics}.items() if value is not None}


@dataclass(frozen=True)
class FilledText(Identity):
    """The text generated for an item; `made` is a checksum of everything it was made with."""

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
_MAX_INT = 2**63  # larger ones may not fit into a float
_TYPE_NAMES = {str: "a string", int: "a whole number", float: "a number", dict: "an object"}


def _fields(record: Any) -> dict[str, tuple[type, bool]]:
    """The type of each field of a line, and whether it is required."""
    hints, types = get_type_hints(record), dict[str, tuple[type, bool]]()
    for f in (f for f in fields(record) if f.default_factory is MISSING):
        kind = next(iter(get_args(hints[f.name])), hints[f.name])  # the first of a union
        types[f.name] = get_origin(kind) or kind, f.default is MISSING
    return types


_FIELDS = {record: _fields(record) for record in _COMMANDS}


def parse(record: type[R], line: Mapping[str, Any]) -> R:
    """The record of a JSON line; raises if a required field is missing or a field has the wrong type."""
    place, values = place_of(line), dict[str, Any]()
    for name, (kind, required) in _FIELDS[record].items():
        if name not in line and required:
            raise ValueError(f"{place} has no '{name}'; expected rows as `ddot {_COMMANDS[record]}` writes them")
        if line.get(name) is not None or required:
            values[name] = _checked(name, line[name], kind, place)
    if record is Row:
        scores = {name: line[name] for name in HEADS if line.get(name) is not None}
        values["metrics"] = {name: _checked(name, value, float, place) for name, value in scores.items()}
    return record(**values)


def _checked(name: str, value: Any, kind: Any, place: str) -> Any:
    """NaN is allowed: a number that could not be measured."""
    valid = isinstance(value, int | float if kind is float else kind) and not isinstance(value, bool)
    if isinstance(value, str) and name != "text" and not value.isprintable():
        raise ValueError(f"{place} has control characters in '{name}'; remove them")
    if not valid or (isinstance(value, int) and abs(value) > _MAX_INT):
        raise ValueError(f"{place}: '{name}' is {json.dumps(value)[:40]}; expected {_TYPE_NAMES[kind]}")
    return float(value) if kind is float else value


def is_difference(line: Mapping[str, Any]) -> bool:
    """Whether a line is from `ddot compare`."""
    return "first" in line and "second" in line


def is_measurement(line: Mapping[str, Any]) -> bool:
    """Whether a line is from `ddot evaluate` or `ddot nats`, rather than `ddot compare` or `ddot bench`."""
    return ("method" in line or "dataset" in line) and not is_difference(line)


def merged(lines: Iterable[Mapping[str, Any]], key: Callable[[Row], Hashable]) -> dict[Any, Row]:
    """The measurements among lines, by key; later lines update earlier ones."""
    rows: dict[Any, Row] = {}
    for line in filter(is_measurement, lines):
        if "text" in line:
            raise ValueError(f"{place_of(line)} is a text; give the file of rows beside it, without .texts in its name")
        row = parse(Row, line)
        rows[key(row)] = rows.get(key(row), row).updated(row.json())
    return rows


def measured(lines: Iterable[Mapping[str, Any]]) -> list[Row]:
    """The rows of `ddot evaluate` among lines, each measurement once.

    Rows of `ddot nats` add their metrics to the other rows of their model and set. The language model's only row may be
    one of these.
    """
    # The unfilled prompt does not depend on the model, the task, the steps or the seed.
    rows = merged(lines, lambda row: row.item_set if row.method == UNFILLED else row.key).values()

    def place(row: Row) -> tuple[str, ...]:
        return BASE if row.method == BASE else NATS, row.model, row.dataset, row.split

    nats = {place(row): row for row in rows if "nats" in row.metrics}
    filled = [row for row in rows if "nats" not in row.metrics]
    places = set(map(place, filled))
    alone = [row for at, row in nats.items() if row.method == BASE and at not in places]
    return [replace(row, metrics={**nats.get(place(row), row).metrics, **row.metrics}) for row in filled] + alone
