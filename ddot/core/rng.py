"""Random numbers that are a pure function of (key, counter).

Every row of a batch has its own key, so its draws do not depend on the rest of the batch, the number of loader workers,
or the device.
"""

from typing import Generic, TypeVar

import numpy as np
from jaxtyping import Float, Float32, Int, UInt64

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_WORD = 0xFFFFFFFFFFFFFFFF


def mix(x: UInt64[np.ndarray, "*n"]) -> UInt64[np.ndarray, "*n"]:
    """A bijective scramble of 64 bits (the finaliser of splitmix64)."""
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


def row_keys(seed: int, rows: int, first: int = 0) -> UInt64[np.ndarray, "rows"]:
    """Keys of rows first, first + 1, … of a run with this seed."""
    numbers = np.arange(first, first + rows, dtype=np.uint64)
    return fold(fold(numbers, 0x0D07) ^ mix(np.array([seed & _WORD], np.uint64)), 1)


def fold(keys: UInt64[np.ndarray, "rows"], word: int | UInt64[np.ndarray, "rows"]) -> UInt64[np.ndarray, "rows"]:
    """New keys, independent of the old ones, for a purpose or step `word` (one for all rows, or one per row)."""
    words = np.array([word & _WORD], np.uint64) if isinstance(word, int) else word
    return mix(mix(keys + _GOLDEN) ^ words * _GOLDEN)


def uniform(keys: UInt64[np.ndarray, "rows"], n: int) -> Float32[np.ndarray, "rows n"]:
    """n numbers in (0, 1) for each key: odd multiples of 2^-24, exact in float32, never 0 or 1."""
    bits = mix(keys[:, None] + np.arange(1, n + 1, dtype=np.uint64) * _GOLDEN)
    return ((bits >> np.uint64(41)).astype(np.float32) + np.float32(0.5)) * np.float32(2.0**-23)


def generator(key: int) -> np.random.Generator:
    """A numpy generator seeded with a key, for code that draws from many distributions."""
    return np.random.Generator(np.random.Philox(key=key))


def spread_times(key: int, rows: int, smallest: float = 1e-3) -> Float32[np.ndarray, "rows"]:
    """Times for the rows of a global batch: each U(smallest, 1), evenly spaced over the batch (antithetic)."""
    start = uniform(np.array([key], np.uint64), 1)[0, 0]
    even = (start + np.arange(rows) / rows) % 1.0
    return (smallest + (1 - smallest) * even).astype(np.float32)


T = TypeVar("T")


class Weighted(Generic[T]):
    """Weighted options, chosen by a number in (0, 1)."""

    def __init__(self, *weighted: tuple[float, T]):
        weights = np.array([weight for weight, _ in weighted], np.float64)
        if len(weights) == 0 or not (weights >= 0).all() or weights.sum() <= 0:
            raise ValueError(f"weights must be ≥ 0 with a positive sum, got {weights.tolist()}")
        self.bounds = np.cumsum(weights / weights.sum())[:-1]
        self.options = [option for _, option in weighted]
        self.weighted = weighted

    def __repr__(self) -> str:
        return f"{type(self).__name__}{self.weighted}"

    def index(self, u: Float[np.ndarray, "n"]) -> Int[np.ndarray, "n"]:
        return np.searchsorted(self.bounds, u, side="right")

    def pick(self, u: float) -> T:
        return self.options[int(np.searchsorted(self.bounds, u, side="right"))]
