"""What the lines of a table are called, and the sentences under it: models and their training, clocks, what is bold."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePath

from ddot.evaluation.contenders import contender
from ddot.evaluation.rows import UNFILLED
from ddot.evaluation.tables.lines import Line, equally_trained
from ddot.evaluation.tables.page import Section


def model_name(model: str) -> str:
    """A model as a table names it; of a place on somebody's machine only the folder."""
    return PurePath(model).name if PurePath(model).is_absolute() else model


def several_models(ways: Iterable[tuple[str, str]]) -> frozenset[str]:
    """The methods that are there with more than one model: their names say which."""
    times = Counter(method for method, _ in set(ways))
    return frozenset(method for method, count in times.items() if count > 1)


@dataclass(frozen=True)
class Naming:
    """What names of lines must say because it differs between them; `models`: of which methods they name the model."""

    models: frozenset[str]
    steps: bool
    devices: bool = False
    items: bool = True

    @classmethod
    def of(cls, lines: Sequence[Line], timed: bool = False) -> "Naming":
        """What differs between lines; their devices only where the table is about time as well."""
        filled = [line for line in lines if line.method != UNFILLED]
        devices = {device for line in filled for device in line.every("device")}
        models, steps = several_models((line.method, line.model) for line in filled), {line.steps for line in filled}
        items = len({line.limit for line in filled or lines}) > 1
        return cls(models, len(steps) > 1, timed and len(devices) > 1, items)

    def name(self, line: Line) -> str:
        parts = [contender(line.method).label]
        if line.method != UNFILLED:
            parts += [model_name(line.model)] * (line.method in self.models) + [f"{line.steps} steps"] * self.steps
            parts += sorted(line.every("device")) * self.devices
        if line.split != "test":
            parts.append(f"{line.split} split")
        return ", ".join(parts) + f" (n = {line.limit})" * (self.items and line.limit is not None)

    def notes(self, lines: Sequence[Line], sections: Iterable[Section] = ()) -> tuple[str, ...]:
        """Sentences under a table of these sections: what all its lines share, and how to read them."""
        notes = ["Ours: rebuilt test sets, another sample than the paper's."] if lines else []
        filled = [line for line in lines if line.method != UNFILLED]
        limits = {line.limit for line in filled or lines} - {None}
        if limits and not self.items:
            notes.append(f"{limits.pop()} items of each set.")
        notes += _models(filled, self.models)
        if filled and not self.steps:
            looks = " (autoregressive: a look a token)" * any(line.method == "autoregressive" for line in filled)
            notes.append(f"{filled[0].steps} sampling steps{looks}.")
        if any(line.seeds > 1 for line in lines):
            notes.append("±: standard deviation over seeds.")
        pieces = (piece for section in sections for cells in section.lines for one in cells for piece in one)
        if any(piece.bold for piece in pieces) and not equally_trained(filled):
            notes.append(
                "Bold: the best among models that were trained as long, a tenth more or less; a model without its like "
                "is held against the next that were trained longer, if any."
            )
        return tuple(notes)


def _models(lines: Sequence[Line], named: frozenset[str]) -> list[str]:
    """Sentences on the models of lines: how much each was trained and, where lines do not name it, what it filled.

    None where all lines name their models and say nothing of their training.
    """
    ways: dict[str, list[str]] = {}
    trained: dict[str, list[str]] = {}
    for line in lines:
        name = model_name(line.model)
        ways.setdefault(name, []).extend([contender(line.method).label] * (line.method not in named))
        trained.setdefault(name, []).extend(_trainings(line))
    if not any(ways.values()) and not any(trained.values()):
        return []
    told = []
    for name, some in ways.items():
        about = dict.fromkeys([*some * (len(ways) > 1), *trained[name]])
        told.append(f"{name} ({'; '.join(about)})" if about else name)
    start = ["In brackets: steps and seconds of training, those of a model's start counted."]
    return [f"Model{'s' * (len(ways) > 1)}: {', '.join(told)}.", *start * any(trained.values())]


def _trainings(line: Line) -> list[str]:
    """Steps and seconds that its model was trained for, as its rows say it."""
    found = []
    for row in (row for some in line.rows.values() for row in some):
        said = [("training_steps", "{:,} steps"), ("training_seconds", "{:,.0f} s")]
        told = [form.format(row[name]) for name, form in said if row.get(name) is not None]
        found += [", ".join(told)] * bool(told)
    return found


def clocks(lines: Sequence[Line]) -> tuple[str, ...]:
    """A sentence on what the seconds were taken on, and of how many texts at once where that was said."""
    found: dict[str, dict[str, set[int]]] = {}
    for line in lines:
        for row in (row for some in line.rows.values() for row in some if line.method != UNFILLED):
            if row.get("seconds") is not None and row.get("device") is not None:
                models = found.setdefault(row["device"], {})
                models.setdefault(model_name(line.model), set()).update({row["batch"]} if row.get("batch") else ())
    told = [device + _at_once(models) for device, models in sorted(found.items())]
    return (f"Seconds on: {', '.join(told)}.",) if told else ()


def _at_once(models: Mapping[str, set[int]]) -> str:
    """How many texts shared a device, in brackets: by model where models differ in it; nothing where it was one."""
    alike: dict[str, list[str]] = {}
    for name, batches in models.items():
        if batches:
            alike.setdefault(" or ".join(map(str, sorted(batches))), []).append(name)
    *few, (most, names) = sorted(alike.items(), key=lambda item: len(item[1])) or [("1", [])]
    if not few:
        return f" (up to {most} texts at once)" * (most != "1")
    told = [f"{', '.join(some)} {count}" for count, some in few]
    return f" (texts at once, at most: {'; '.join(told)}; {names[0] if len(names) == 1 else 'the others'} {most})"
