"""Metrics of filled texts against their items."""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from ddot.evaluation.items import Item, Passage, Program
from ddot.evaluation.metrics import words
from ddot.evaluation.metrics.meteor import meteor, meteor_nltk
from ddot.evaluation.metrics.sums import Difference, Sums, difference, interval, mean_of
from ddot.evaluation.rows import refuse_unknown
from ddot.version import extra


@dataclass(frozen=True)
class Fluency:
    """A language model for perplexity, and its name in rows."""

    name: str
    nats: Callable[..., Any]  # fluency.LanguageModel


@dataclass(frozen=True)
class Filled:
    """Filled texts and their items, in the forms that metrics take."""

    items: Sequence[Item]
    lines: Sequence[str]
    given: list[list[str]]
    references: list[list[str]]
    texts: list[list[str]]
    language_model: Fluency | None


@dataclass(frozen=True)
class Measured:
    """The metrics that could be computed, and why the others could not."""

    metrics: Mapping[str, Sums | float]
    missing: Mapping[str, str]


def _per_blank(value: Callable[[str, str], float]) -> Callable[[Filled], Sums]:
    """The mean over blanks of a function of the true words and the fill."""

    def metric(filled: Filled) -> Sums:
        if not all(isinstance(item, Passage) for item in filled.items):
            raise ValueError("metrics of fills need items with marked blanks, such as people and rocstories")
        rows = []
        for item, text in zip(filled.items, filled.lines, strict=True):
            fills = item.fills_in(text) or [""] * len(item.fills)  # the text around the blanks was lost
            rows.append([sum(map(value, item.fills, fills)), len(fills)])
        return Sums(np.array(rows, float).reshape(-1, 2), mean_of)

    return metric


@cache
def _rouge_scorer(kind: str) -> Any:
    with extra("ROUGE", "metrics"):
        from rouge_score.rouge_scorer import RougeScorer

    return RougeScorer([kind], use_stemmer=False)


def _rouge(kind: str) -> Callable[[Filled], Sums]:
    """ROUGE F-measure in percent (package rouge-score, no stemming)."""
    return _per_blank(lambda true, fill: 100 * float(_rouge_scorer(kind).score(true, fill)[kind].fmeasure))


def _excess(true: str, fill: str) -> float:
    return float(len(fill.split()) - len(true.split()))


def _missing(filled: Filled) -> list[list[int]]:
    if any(isinstance(item, Passage) for item in filled.items):
        raise ValueError("gap metrics need sentences or programs, whose words are known")
    return [item.missing for item in filled.items]


_CHILD = """
import json, sys
from codebleu import calc_codebleu
references, texts = json.load(sys.stdin)
json.dump(calc_codebleu(references, texts, "python"), sys.stdout)
"""


def code_bleu(references: Sequence[str], texts: Sequence[str]) -> float:
    """Corpus CodeBLEU in percent: the mean of BLEU, keyword-weighted BLEU, syntax-tree match and data-flow match.

    Runs in a subprocess with a fixed hash seed: the package iterates over sets, and their order decides which data
    flows match (±0.01 between runs, measured on 100 functions).
    """
    with extra("CodeBLEU", "metrics"):
        import codebleu  # noqa: F401
        import tree_sitter_python  # noqa: F401

    done = subprocess.run(
        [sys.executable, "-P", "-c", _CHILD],  # -P: ignore a codebleu.py in the current folder
        input=json.dumps([list(references), list(texts)]),
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONHASHSEED": "0"},
    )
    if done.returncode:
        raise ValueError(f"CodeBLEU failed: {(done.stderr.strip().splitlines() or ['no message'])[-1]}")
    parts = json.loads(done.stdout)
    if not parts["dataflow_match_score"]:
        # The package counts "none matched" as "all matched": empty texts would score 25.
        raise ValueError("CodeBLEU is undefined: the texts have none of the references' data flow")
    return 100 * parts["codebleu"]


def _code_bleu(filled: Filled) -> float:
    if not all(isinstance(item, Program) for item in filled.items):
        raise ValueError("CodeBLEU needs programs, with their line breaks")
    return code_bleu([item.text for item in filled.items], filled.lines)


def _perplexity(filled: Filled) -> Sums:
    if filled.language_model is None:
        raise ValueError("perplexity needs a language model; give one made by `ddot convert` as --language-model")
    from ddot.evaluation.metrics.fluency import perplexity  # loads torch

    return perplexity(filled.lines, filled.language_model.nats)


# Each also needs a column head in `evaluation.rows.HEADS`. Metrics of fills are named rouge… or fill_….
METRICS: dict[str, Callable[[Filled], Sums | float]] = {
    "bleu2": lambda f: words.bleu(f.references, f.texts, 2),
    "bleu4": lambda f: words.bleu(f.references, f.texts, 4),
    "nist2": lambda f: words.nist(f.references, f.texts, 2),
    "nist4": lambda f: words.nist(f.references, f.texts, 4),
    "meteor": lambda f: meteor(f.references, f.texts),
    "meteor_nltk": lambda f: meteor_nltk(f.references, f.texts),
    "success": lambda f: words.success(f.given, f.texts),
    "exact": lambda f: words.exact_match(f.references, f.texts),
    "length_error": lambda f: words.length_error(f.references, f.texts),
    "length_error_abs": lambda f: words.length_error_absolute(f.references, f.texts),
    "gaps_found": lambda f: words.gaps_found(f.given, _missing(f), f.texts),
    "gaps_extra": lambda f: words.gaps_extra(f.given, _missing(f), f.texts),
    "d2": lambda f: words.distinct(f.texts, 2),
    "d4": lambda f: words.distinct(f.texts, 4),
    "codebleu": _code_bleu,
    "perplexity": _perplexity,
    "rouge1": _rouge("rouge1"),
    "rouge2": _rouge("rouge2"),
    "rougeL": _rouge("rougeL"),
    "fill_length_error": _per_blank(_excess),
    "fill_length_error_abs": _per_blank(lambda true, fill: abs(_excess(true, fill))),
    # Percent of blanks whose length is off by at most one word, or a quarter of the true length.
    "fill_length_near": _per_blank(
        lambda true, fill: 100.0 * (abs(_excess(true, fill)) <= max(1, len(true.split()) / 4))
    ),
    "fill_empty": _per_blank(lambda _, fill: 100.0 * (not fill.split())),
}
USUAL = ("bleu2", "bleu4", "success", "length_error", "length_error_abs")
OF_FILLS = tuple(name for name in METRICS if name.startswith(("rouge", "fill_")))


def usual(items: Sequence[Item]) -> tuple[str, ...]:
    """The default metrics of these items: those of fills if all blanks are marked."""
    return OF_FILLS if all(isinstance(item, Passage) for item in items) else USUAL


def score(
    items: Sequence[Item],
    texts: Sequence[str],
    metrics: Sequence[str] = USUAL,
    language_model: Fluency | None = None,
    samples: int = 0,
    seed: int = 0,
) -> dict[str, Any]:
    """These metrics by name; "missing" says why one could not be computed.

    With success, "kept" counts {words given: [texts that keep them, texts]}. With `samples` resamples of the items,
    "intervals" holds [low, high] at 95% for metrics that are sums over items. With perplexity, "language_model" is its
    name.
    """
    measured = measure(items, texts, metrics, language_model)
    sums = {name: metric for name, metric in measured.metrics.items() if isinstance(metric, Sums)}
    row: dict[str, Any] = {name: sums[name].value if name in sums else m for name, m in measured.metrics.items()}
    if language_model is not None and "perplexity" in row:
        row["language_model"] = language_model.name
    if "success" in sums:
        kept: dict[int, list[int]] = {}
        for count, (percent, _) in zip((len(item.given) for item in items), sums["success"].rows, strict=True):
            before = kept.get(count, [0, 0])
            kept[count] = [before[0] + int(percent == 100), before[1] + 1]
        row["kept"] = {str(count): kept[count] for count in sorted(kept)}
    if samples:
        row["intervals"] = {name: list(interval(metric, samples, seed)) for name, metric in sums.items()}
    return row | ({"missing": dict(measured.missing)} if measured.missing else {})


def compare(texts: Measured, others: Measured, samples: int = 1000) -> tuple[dict[str, Difference], dict[str, str]]:
    """(differences in the metrics that both have, why other metrics are missing)."""
    both = {name: (metric, others.metrics[name]) for name, metric in texts.metrics.items() if name in others.metrics}
    sums = {name: (a, b) for name, (a, b) in both.items() if isinstance(a, Sums) and isinstance(b, Sums)}
    single = {name: f"{name} is not a sum over items: it has no paired interval" for name in both if name not in sums}
    paired = {name: difference(a, b, samples) for name, (a, b) in sums.items()}
    return paired, {**others.missing, **texts.missing, **single}


def measure(
    items: Sequence[Item], texts: Sequence[str], metrics: Sequence[str], language_model: Fluency | None = None
) -> Measured:
    """These metrics, as sums over items where possible."""
    refuse_unknown("unknown metric", metrics, METRICS)
    if not items or len(items) != len(texts):
        raise ValueError(f"{len(texts)} texts for {len(items)} items; expected one text per item, and at least one")
    given, references = [item.given for item in items], [item.words for item in items]
    filled = Filled(items, texts, given, references, [text.split() for text in texts], language_model)
    values: dict[str, Sums | float] = {}
    missing: dict[str, str] = {}
    for name in metrics:
        try:
            values[name] = METRICS[name](filled)
        except (ValueError, FileNotFoundError) as error:
            missing[name] = str(error)
    return Measured(values, missing)
