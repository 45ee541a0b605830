"""Intervals of differences between methods that were trained several times. Needs SciPy (extra `dev`)."""

import math
from collections.abc import Sequence
from statistics import fmean, variance

from scipy.stats import t as student


def interval_of_means(first: Sequence[float], second: Sequence[float], over_items: float) -> tuple[float, float]:
    """95% interval of a difference between means over trainings. `over_items`: its variance over items.

    Welch's, with items as one more independent source of variance, of known size.
    """
    sources = [(over_items, math.inf), *((variance(side) / len(side), len(side) - 1.0) for side in (first, second))]
    total, shares = sum(size for size, _ in sources), sum(size**2 / freedom for size, freedom in sources)
    half = float(student.ppf(0.975, total**2 / shares if shares else math.inf)) * math.sqrt(total)
    difference = fmean(first) - fmean(second)
    return difference - half, difference + half
