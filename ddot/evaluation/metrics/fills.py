"""Metrics on blanks: what was filled in, against the words that were there. All are means over blanks."""

from collections.abc import Callable, Sequence

import numpy as np

from ddot.evaluation.metrics.sums import Sums, extra, mean_of

# For each item, the (true words, fill) of its blanks.
Fills = Sequence[Sequence[tuple[str, str]]]


def rouge(fills: Fills, kind: str) -> Sums:
    """F-measure in percent of "rouge1", "rouge2" or "rougeL", by the package rouge-score without stemming."""
    with extra("ROUGE", "metrics"):
        from rouge_score.rouge_scorer import RougeScorer

    scorer = RougeScorer([kind], use_stemmer=False)
    return _mean(fills, lambda true, fill: 100 * float(scorer.score(true, fill)[kind].fmeasure))


def fill_length_error(fills: Fills) -> Sums:
    """Words too many, or too few where it is negative."""
    return _mean(fills, lambda true, fill: float(_excess(true, fill)))


def fill_length_error_absolute(fills: Fills) -> Sums:
    """Words too many or too few."""
    return _mean(fills, lambda true, fill: float(abs(_excess(true, fill))))


def fill_length_near(fills: Fills) -> Sums:
    """Percent of blanks whose length is within one word, or a quarter of the true length."""
    return _mean(fills, lambda true, fill: 100.0 * (abs(_excess(true, fill)) <= max(1, len(true.split()) / 4)))


def fill_empty(fills: Fills) -> Sums:
    """Percent of blanks left empty."""
    return _mean(fills, lambda true, fill: 100.0 * (not fill.split()))


def _excess(true: str, fill: str) -> int:
    return len(fill.split()) - len(true.split())


def _mean(fills: Fills, value: Callable[[str, str], float]) -> Sums:
    rows = [[sum(value(*each) for each in item), len(item)] for item in fills]
    return Sums(np.array(rows, float).reshape(-1, 2), mean_of)
