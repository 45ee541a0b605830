"""Which tokens of a text are given (the prompt), and what is told of the gaps between them.

A mask is an object called with (weight, rng) that returns a bool for each unit, True = given; `weight` has a number a
unit, which only `Keywords` heeds. Units are tokens, or words through `by_word`. Knows nothing about token ids.
"""

from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import numpy as np
from jaxtyping import Bool, Float, Int

from ddot.core.gaps import gap_hints, missing_after, open_gaps
from ddot.core.records import NOT_PROMPT, UNKNOWN, UNKNOWN_LENGTH
from ddot.core.rng import Weighted


@runtime_checkable
class Mask(Protocol):
    def __call__(self, weight: Float[np.ndarray, "n"], rng: np.random.Generator) -> Bool[np.ndarray, "n"]: ...


@dataclass(frozen=True)
class Keywords:
    """Between `low` and `high` units are given, drawn without replacement, in proportion to `weight`."""

    low: int = 1
    high: int = 6

    def __call__(self, weight: Float[np.ndarray, "n"], rng: np.random.Generator) -> Bool[np.ndarray, "n"]:
        given = np.zeros(len(weight), bool)
        # The `count` least of Exp(1)/weight are a weighted draw without replacement.
        count = int(rng.integers(self.low, self.high + 1))
        given[np.argsort(rng.exponential(size=len(weight)) / np.maximum(weight, 1e-12))[:count]] = True
        return given


@dataclass(frozen=True)
class Block:
    """One span of 0 … `longest` units is missing. The paper: 32 for sentences (L/2)."""

    longest: int

    def __call__(self, weight: Float[np.ndarray, "n"], rng: np.random.Generator) -> Bool[np.ndarray, "n"]:
        n = len(weight)
        missing = int(rng.integers(0, min(n, self.longest) + 1))
        start = int(rng.integers(0, n - missing + 1))
        given = np.ones(n, bool)
        given[start : start + missing] = False
        return given


@dataclass(frozen=True)
class Blocks:
    """Between `low` and `high` spans are missing; together they take up to `share` of the text."""

    low: int = 2
    high: int = 4
    share: float = 0.7

    def __call__(self, weight: Float[np.ndarray, "n"], rng: np.random.Generator) -> Bool[np.ndarray, "n"]:
        n, count = len(weight), int(rng.integers(self.low, self.high + 1))
        missing = int(rng.integers(0, int(self.share * n) + 1))
        # 2·count + 1 stretches: given and missing in turn, each side cut at random points.
        lost = np.diff(np.sort(rng.integers(0, missing + 1, count - 1)), prepend=0, append=missing)
        kept = np.diff(np.sort(rng.integers(0, n - missing + 1, count)), prepend=0, append=n - missing)
        given = np.ones(n, bool)
        start = 0
        for before, length in zip(kept[:-1], lost, strict=True):
            start += before
            given[start : start + length] = False
            start += length
        return given


@dataclass(frozen=True)
class Independent:
    """Every unit is given with the same chance, itself drawn from [low, high]."""

    low: float = 0.0
    high: float = 1.0

    def __call__(self, weight: Float[np.ndarray, "n"], rng: np.random.Generator) -> Bool[np.ndarray, "n"]:
        return rng.random(len(weight)) < rng.uniform(self.low, self.high)


@dataclass(frozen=True)
class Nothing:
    """Nothing is given."""

    def __call__(self, weight: Float[np.ndarray, "n"], rng: np.random.Generator) -> Bool[np.ndarray, "n"]:
        return np.zeros(len(weight), bool)


class Mix:
    """One of several masks, chosen with the given weights."""

    def __init__(self, *weighted: tuple[float, Mask]):
        self.masks = Weighted(*weighted)

    def __repr__(self) -> str:
        return f"Mix{self.masks.weighted}"

    def __call__(self, weight: Float[np.ndarray, "n"], rng: np.random.Generator) -> Bool[np.ndarray, "n"]:
        return self.masks.pick(rng.random())(weight, rng)


def by_word(
    mask: Mask, words: Int[np.ndarray, "n"], weight: Float[np.ndarray, "n"], rng: np.random.Generator
) -> Bool[np.ndarray, "n"]:
    """`mask` over whole words: `words` is the word index of each token; a word weighs what its heaviest token does."""
    if len(words) == 0:
        return np.zeros(0, bool)
    heaviest = np.zeros(words[-1] + 1)
    np.maximum.at(heaviest, words, weight)
    return mask(heaviest, rng)[words]


@dataclass(frozen=True)
class Telling:
    """How much the network is told of the gaps, drawn anew for each text.

    `located`: share of texts whose gaps are told (the others are the paper's free task). `decoys`: chance that a
    closed gap is called open, so that an open gap may be empty. `gap_lengths`: share of located texts whose gap lengths
    are told as well, all of them; another `some_gap_lengths` has each length told with chance one half.
    """

    located: float = 0.5
    decoys: float = 0.02
    gap_lengths: float = 0.0
    some_gap_lengths: float = 0.0

    def __call__(
        self, is_prompt: Bool[np.ndarray, "n"], rng: np.random.Generator
    ) -> tuple[Int[np.ndarray, "n"], Int[np.ndarray, "n"]]:
        """(hint, gap_length) for each token."""
        unknown = np.where(is_prompt, UNKNOWN, NOT_PROMPT), np.full(len(is_prompt), UNKNOWN_LENGTH)
        located, told = rng.random(2)
        if located >= self.located:
            return unknown
        is_open = open_gaps(is_prompt)
        is_open |= rng.random(len(is_open)) < self.decoys
        gap_length = unknown[1]
        if told < self.gap_lengths + self.some_gap_lengths:
            share = 1.0 if told < self.gap_lengths else 0.5
            gap_length = np.where(rng.random(len(gap_length)) < share, missing_after(is_prompt), UNKNOWN_LENGTH)
        return gap_hints(is_prompt, is_open), gap_length
