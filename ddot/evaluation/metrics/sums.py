"""Metrics as sums over items, so that scoring resamples of the items is one matrix product."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float


@dataclass(frozen=True)
class Sums:
    """`rows[i]`: statistics of item i; `combine` turns their sums into the score."""

    rows: Float[np.ndarray, "items statistics"]
    combine: Callable[[Float[np.ndarray, "statistics"]], float]

    @property
    def value(self) -> float:
        return self.combine(self.rows.sum(0))


def mean(values: Sequence[float]) -> Sums:
    """The mean of one value per item."""
    return Sums(np.array([[value, 1.0] for value in values]).reshape(-1, 2), mean_of)


def mean_of(sums: Float[np.ndarray, "2"]) -> float:
    return float(sums[0] / sums[1]) if sums[1] else 0.0


@dataclass(frozen=True)
class Difference:
    """One set of texts minus another on the same items, with its interval."""

    difference: float
    low: float
    high: float
    wins: float  # share of resamples in which the first scores higher; ties count half


def interval(metric: Sums, samples: int = 1000, seed: int = 0, level: float = 0.95) -> tuple[float, float]:
    """(low, high): percentile bootstrap interval of a score, over items."""
    return _percentiles(_resampled(metric, samples, seed), level)


def difference(first: Sums, second: Sums, samples: int = 1000, seed: int = 0, level: float = 0.95) -> Difference:
    """`first` minus `second`, with a paired bootstrap: both are scored on the same resamples (Koehn, 2004)."""
    if len(first.rows) != len(second.rows):
        raise ValueError(f"{len(first.rows)} and {len(second.rows)} items cannot be paired; score the same items")
    differences = _resampled(first, samples, seed) - _resampled(second, samples, seed)
    low, high = _percentiles(differences, level)
    wins = float(np.mean(differences > 0) + np.mean(differences == 0) / 2)
    return Difference(first.value - second.value, low, high, wins)


def _resampled(metric: Sums, samples: int, seed: int) -> Float[np.ndarray, "samples"]:
    """Scores of resamples, which depend only on the seed and the number of items."""
    items = len(metric.rows)
    if items < 1 or samples < 1:
        raise ValueError(f"an interval needs items and resamples, got {items} and {samples}")
    counts = np.random.default_rng(seed).multinomial(items, np.full(items, 1 / items), samples)
    return np.array([metric.combine(sums) for sums in counts @ metric.rows])


def _percentiles(scores: Float[np.ndarray, "samples"], level: float) -> tuple[float, float]:
    scores = scores[~np.isnan(scores)]  # a resample without any token has no score
    if not len(scores):
        return float("nan"), float("nan")
    low, high = np.quantile(scores, [(1 - level) / 2, (1 + level) / 2])
    return float(low), float(high)
