"""Several metrics of filled texts against their items."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from ddot.evaluation.metrics.code_bleu import code_bleu
from ddot.evaluation.metrics.fills import (
    Fills,
    fill_empty,
    fill_length_error,
    fill_length_error_absolute,
    fill_length_near,
    rouge,
)
from ddot.evaluation.metrics.meteor import meteor, meteor_nltk
from ddot.evaluation.metrics.sums import Sums, difference, interval
from ddot.evaluation.metrics.words import (
    Words,
    bleu,
    distinct,
    exact_match,
    gaps_extra,
    gaps_found,
    length_error,
    length_error_absolute,
    nist,
    success,
)

Text = str | Words  # a whole text is split at white space where words are needed


@runtime_checkable
class Reference(Protocol):
    """What most metrics need of an item: the words of its reference, and those given."""

    @property
    def words(self) -> Sequence[str]: ...

    @property
    def given(self) -> Sequence[str]: ...


@runtime_checkable
class WholeReference(Reference, Protocol):
    """An item that also has its reference verbatim: a program."""

    @property
    def text(self) -> str: ...


@runtime_checkable
class GappedReference(Reference, Protocol):
    """An item that also knows how many words are missing before each given one, and after the last."""

    @property
    def missing(self) -> Sequence[int]: ...


@runtime_checkable
class MarkedReference(Reference, Protocol):
    """An item that also knows the words of each blank, and finds the fills in a text."""

    @property
    def fills(self) -> Sequence[str]: ...

    def fills_in(self, text: str) -> Sequence[str] | None: ...


@dataclass(frozen=True)
class Filled:
    """Filled texts and their items, in the forms that metrics read."""

    items: Sequence[Reference]
    given: list[list[str]]
    references: list[list[str]]
    texts: list[list[str]]
    lines: list[str]
    language_model: Callable[..., Any] | Path | str | None


@dataclass(frozen=True)
class Measured:
    """The metrics that could be computed, and why the others could not."""

    found: Mapping[str, Sums | float]
    missing: Mapping[str, str]


@dataclass(frozen=True)
class Fluency:
    """A language model for perplexity (see fluency.py), with its name in rows."""

    name: str
    nats: Callable[..., Any]

    def __call__(self, texts: Sequence[str]) -> Any:
        return self.nats(texts)


METRICS: dict[str, Callable[[Filled], Sums | float]] = {
    "bleu2": lambda f: bleu(f.references, f.texts, 2),
    "bleu4": lambda f: bleu(f.references, f.texts, 4),
    "nist2": lambda f: nist(f.references, f.texts, 2),
    "nist4": lambda f: nist(f.references, f.texts, 4),
    "meteor": lambda f: meteor(f.references, f.texts),
    "meteor_nltk": lambda f: meteor_nltk(f.references, f.texts),
    "success": lambda f: success(f.given, f.texts),
    "exact": lambda f: exact_match(f.references, f.texts),
    "length_error": lambda f: length_error(f.references, f.texts),
    "length_error_abs": lambda f: length_error_absolute(f.references, f.texts),
    "gaps_found": lambda f: gaps_found(f.given, _missing(f.items), f.texts),
    "gaps_extra": lambda f: gaps_extra(f.given, _missing(f.items), f.texts),
    "d2": lambda f: distinct(f.texts, 2),
    "d4": lambda f: distinct(f.texts, 4),
    "codebleu": lambda f: code_bleu(_programs(f.items), f.lines),
    "perplexity": lambda f: _perplexity(f),
    "rouge1": lambda f: rouge(_fills(f), "rouge1"),
    "rouge2": lambda f: rouge(_fills(f), "rouge2"),
    "rougeL": lambda f: rouge(_fills(f), "rougeL"),
    "fill_length_error": lambda f: fill_length_error(_fills(f)),
    "fill_length_error_abs": lambda f: fill_length_error_absolute(_fills(f)),
    "fill_length_near": lambda f: fill_length_near(_fills(f)),
    "fill_empty": lambda f: fill_empty(_fills(f)),
}
USUAL = ("bleu2", "bleu4", "success", "length_error", "length_error_abs")
OF_FILLS = tuple(name for name in METRICS if name.startswith(("rouge", "fill_")))


def usual(items: Sequence[Reference]) -> tuple[str, ...]:
    """The metrics items are scored with unless others are named: those of fills where blanks are marked."""
    return OF_FILLS if all(isinstance(item, MarkedReference) for item in items) else USUAL


def score(
    items: Sequence[Reference],
    texts: Sequence[Text],
    wanted: Sequence[str] = USUAL,
    language_model: Callable[..., Any] | Path | str | None = None,
    samples: int = 0,
    seed: int = 0,
) -> dict[str, Any]:
    """The metrics `wanted`, by name; "missing" says why one could not be computed.

    With success, "kept" counts {words given: [texts that keep them, texts]}. With `samples` resamples of the items,
    "intervals" holds [low, high] at 95% for metrics that are sums over items. `language_model`: a folder, or a function
    (see fluency.py); the name of a `Fluency` is added.
    """
    had = measure(items, texts, wanted, language_model)
    row: dict[str, Any] = {name: _value(metric) for name, metric in had.found.items()}
    if isinstance(language_model, Fluency) and "perplexity" in row:
        row["language_model"] = language_model.name
    if isinstance(kept := had.found.get("success"), Sums):
        row["kept"] = _kept(kept, [len(item.given) for item in items])
    if samples:
        sums = {name: metric for name, metric in had.found.items() if isinstance(metric, Sums)}
        row["intervals"] = {name: list(interval(metric, samples, seed)) for name, metric in sums.items()}
    return row | ({"missing": dict(had.missing)} if had.missing else {})


def compare(texts: Measured, others: Measured, samples: int = 1000, seed: int = 0) -> dict[str, Any]:
    """The fields of a `Difference` for each metric that both have; "missing" as in `score`."""
    row: dict[str, Any] = {}
    missing = {**others.missing, **texts.missing}
    for name in texts.found.keys() & others.found.keys():
        first, second = texts.found[name], others.found[name]
        if isinstance(first, Sums) and isinstance(second, Sums):
            row[name] = asdict(difference(first, second, samples, seed))
        else:
            missing[name] = f"{name} is not a sum over items: it has no paired interval"
    return {name: row[name] for name in texts.found if name in row} | ({"missing": missing} if missing else {})


def measure(
    items: Sequence[Reference],
    texts: Sequence[Text],
    wanted: Sequence[str],
    language_model: Callable[..., Any] | Path | str | None = None,
) -> Measured:
    """The metrics `wanted`, as sums over items where possible."""
    unknown = [name for name in wanted if name not in METRICS]
    if unknown:
        raise ValueError(f"there is no metric '{unknown[0]}'; there are {', '.join(METRICS)}")
    if not items or len(items) != len(texts):
        raise ValueError(f"{len(texts)} texts for {len(items)} items; wanted one text for each of at least one item")
    filled = Filled(
        items=items,
        given=[list(item.given) for item in items],
        references=[list(item.words) for item in items],
        texts=[text.split() if isinstance(text, str) else list(text) for text in texts],
        lines=[text if isinstance(text, str) else " ".join(text) for text in texts],
        language_model=language_model,
    )
    found: dict[str, Sums | float] = {}
    missing: dict[str, str] = {}
    for name in wanted:
        try:
            found[name] = METRICS[name](filled)
        except (ValueError, FileNotFoundError) as error:
            missing[name] = str(error)
    return Measured(found, missing)


def _value(metric: Sums | float) -> float:
    return metric.value if isinstance(metric, Sums) else metric


def _kept(success: Sums, given: Sequence[int]) -> dict[str, list[int]]:
    found: dict[int, list[int]] = {}
    for count, (percent, _) in sorted(zip(given, success.rows, strict=True), key=lambda pair: pair[0]):
        kept, texts = found.get(count, (0, 0))
        found[count] = [kept + int(percent == 100), texts + 1]
    return {str(count): both for count, both in found.items()}


def _missing(items: Sequence[Reference]) -> list[Sequence[int]]:
    missing = [item.missing for item in items if isinstance(item, GappedReference)]
    if len(missing) < len(items):
        raise ValueError("gap metrics need items that say where words are missing")
    return missing


def _fills(filled: Filled) -> Fills:
    marked = [item for item in filled.items if isinstance(item, MarkedReference)]
    if len(marked) < len(filled.items):
        raise ValueError("metrics of fills need items whose blanks are marked, as those of people and rocstories")
    found = []
    for item, text in zip(marked, filled.lines, strict=True):
        fills = item.fills_in(text)  # None: the literal text was lost, and with it the fills
        found.append(list(zip(item.fills, fills or [""] * len(item.fills), strict=True)))
    return found


def _programs(items: Sequence[Reference]) -> list[str]:
    programs = [item.text for item in items if isinstance(item, WholeReference)]
    if len(programs) < len(items):
        raise ValueError("CodeBLEU needs items with their text verbatim, line breaks included")
    return programs


def _perplexity(filled: Filled) -> Sums:
    if filled.language_model is None:
        raise ValueError("perplexity needs a language model; give one made by `ddot convert` with --language-model")
    from ddot.evaluation.metrics.fluency import perplexity  # loads torch

    return perplexity(filled.lines, filled.language_model)
