"""Which tokens of a text are given (the prompt), and what the network is told about the gaps.

A mask maps (units, rng) to a bool per unit, True = given. Units are tokens or groups of tokens, such as words
(`by_unit`).
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float, Int

from ddot.core.codes import NOT_PROMPT, UNKNOWN, UNKNOWN_LENGTH
from ddot.core.gaps import gap_hints, missing_after, open_gaps
from ddot.core.rng import Weighted


@dataclass(frozen=True)
class Units:
    """A text as masks see it: the weight of each unit, and whether it is a punctuation mark or ends a sentence."""

    weight: Float[np.ndarray, "n"]
    is_mark: Bool[np.ndarray, "n"]
    ends_sentence: Bool[np.ndarray, "n"]

    def __len__(self) -> int:
        return len(self.weight)

    @classmethod
    def alike(cls, n: int) -> "Units":
        """`n` units of equal weight, without marks and sentence ends."""
        return cls(np.ones(n), np.zeros(n, bool), np.zeros(n, bool))

    def grouped(self, unit: Int[np.ndarray, "n"]) -> "Units":
        """The larger units that these belong to; `unit` is the index of each one's, ascending.

        A group has the weight of its heaviest member, is a mark if its last member is, and ends a sentence if any does.
        """
        first = np.flatnonzero(np.diff(unit, prepend=-1))
        last = np.append(first[1:], len(unit)) - 1
        return Units(
            weight=np.maximum.reduceat(self.weight, first),
            is_mark=self.is_mark[last],
            ends_sentence=np.logical_or.reduceat(self.ends_sentence, first),
        )


Mask = Callable[[Units, np.random.Generator], Bool[np.ndarray, "n"]]


@dataclass(frozen=True)
class Keywords:
    """Between `low` and `high` units are given, drawn by weight without replacement."""

    low: int = 1
    high: int = 6

    def __call__(self, units: Units, rng: np.random.Generator) -> Bool[np.ndarray, "n"]:
        given = np.zeros(len(units), bool)
        # The `count` smallest values of Exp(1)/weight are a weighted draw without replacement.
        count = int(rng.integers(self.low, self.high + 1))
        given[np.argsort(rng.exponential(size=len(units)) / np.maximum(units.weight, 1e-12))[:count]] = True
        return given


@dataclass(frozen=True)
class Block:
    """One span of 0 … `longest` units is missing (in the paper L/2: 32 for sentences)."""

    longest: int

    def __call__(self, units: Units, rng: np.random.Generator) -> Bool[np.ndarray, "n"]:
        n = len(units)
        missing = int(rng.integers(0, min(n, self.longest) + 1))
        start = int(rng.integers(0, n - missing + 1))
        given = np.ones(n, bool)
        given[start : start + missing] = False
        return given


@dataclass(frozen=True)
class Blocks:
    """Between `low` and `high` spans are missing, up to `share` of the text in total."""

    low: int = 2
    high: int = 4
    share: float = 0.7

    def __call__(self, units: Units, rng: np.random.Generator) -> Bool[np.ndarray, "n"]:
        n, count = len(units), int(rng.integers(self.low, self.high + 1))
        missing = int(rng.integers(0, int(self.share * n) + 1))
        # 2·count + 1 alternating spans: the given and the missing units are each split at random points.
        missing_spans = np.diff(np.sort(rng.integers(0, missing + 1, count - 1)), prepend=0, append=missing)
        given_spans = np.diff(np.sort(rng.integers(0, n - missing + 1, count)), prepend=0, append=n - missing)
        given = np.ones(n, bool)
        start = 0
        for before, length in zip(given_spans[:-1], missing_spans, strict=True):
            start += before
            given[start : start + length] = False
            start += length
        return given


@dataclass(frozen=True)
class Independent:
    """Every unit is given with the same probability, drawn from [low, high]."""

    low: float = 0.0
    high: float = 1.0

    def __call__(self, units: Units, rng: np.random.Generator) -> Bool[np.ndarray, "n"]:
        return rng.random(len(units)) < rng.uniform(self.low, self.high)


@dataclass(frozen=True)
class Nothing:
    """Nothing is given."""

    def __call__(self, units: Units, rng: np.random.Generator) -> Bool[np.ndarray, "n"]:
        return np.zeros(len(units), bool)


class Mix(Weighted[Mask]):
    """One of several masks, chosen by weight."""

    def __call__(self, units: Units, rng: np.random.Generator) -> Bool[np.ndarray, "n"]:
        return self.pick(rng.random())(units, rng)


def by_unit(mask: Mask, unit: Int[np.ndarray, "n"], tokens: Units, rng: np.random.Generator) -> Bool[np.ndarray, "n"]:
    """Mask whole units: either all tokens of a unit are given, or none. `unit`: the index of each token's unit."""
    return mask(tokens.grouped(unit), rng)[unit] if len(tokens) else np.zeros(0, bool)


# (start, stop) of a blank, in units.
Span = tuple[int, int]
DrawSpan = Callable[[Units, np.random.Generator], Span]


def word(units: Units, rng: np.random.Generator) -> Span:
    """A single unit."""
    start = int(rng.integers(len(units)))
    return start, start + 1


def phrase(units: Units, rng: np.random.Generator) -> Span:
    """Two or more units, rarely more than eight, without trailing marks."""
    start = int(rng.integers(len(units)))
    stop = min(len(units), start + 1 + int(rng.geometric(0.35)))
    while stop > start + 1 and units.is_mark[stop - 1]:
        stop -= 1
    return start, stop


def clause(units: Units, rng: np.random.Generator) -> Span:
    """The units up to the next mark, from anywhere or from the previous mark. It keeps a mark that it starts at."""
    start = int(rng.integers(len(units)))
    stop = start + 1
    while stop < len(units) and not units.is_mark[stop]:
        stop += 1
    if rng.random() < 0.5:
        while start > 0 and not units.is_mark[start - 1]:
            start -= 1
    return start, stop


def sentence(units: Units, rng: np.random.Generator) -> Span:
    """A whole sentence including its final mark, occasionally two; a clause if no sentence ends."""
    ends = np.flatnonzero(units.ends_sentence) + 1
    if not len(ends):
        return clause(units, rng)
    first = int(rng.integers(len(ends)))
    last = min(first + int(rng.random() < 0.15), len(ends) - 1)
    return int(ends[first - 1]) if first else 0, int(ends[last])


@dataclass(frozen=True)
class Natural:
    """Blanks as people leave them: words, phrases, clauses and whole sentences, up to `most` in a text.

    At most `share` of the units are missing, and blanks are never adjacent.
    """

    most: int = 3
    dense: float = 0.5  # share of texts with as many blanks as fit
    share: float = 0.6
    spans: Weighted[DrawSpan] = Weighted((0.2, word), (0.35, phrase), (0.2, clause), (0.25, sentence))  # noqa: RUF009

    def __call__(self, units: Units, rng: np.random.Generator) -> Bool[np.ndarray, "n"]:
        given = np.ones(len(units), bool)
        if not len(units):
            return given
        blanks = len(units) // 6 + 1 if rng.random() < self.dense else int(rng.integers(1, self.most + 1))
        for _ in range(3 * blanks):
            start, stop = self.spans.pick(rng.random())(units, rng)
            fits = (~given).sum() + stop - start <= self.share * len(units)
            separate = given[max(0, start - 1) : stop + 1].all()
            if fits and separate and not units.is_mark[start]:
                given[start:stop] = False
                blanks -= 1
                if not blanks:
                    break
        return given


@dataclass(frozen=True)
class Telling:
    """Which hints and gap lengths the network is told, drawn for each text.

    `located`: share of texts with hints (the others are the paper's free task). `decoys`: probability that a closed gap
    is hinted open, so that an open gap may be empty. `gap_lengths`: share of located texts with all gap lengths told;
    in another share `some_gap_lengths`, each length is told with probability one half.
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
        located, lengths = rng.random(2)
        if located >= self.located:
            return unknown
        is_open = open_gaps(is_prompt)
        is_open |= rng.random(len(is_open)) < self.decoys
        gap_length = unknown[1]
        if lengths < self.gap_lengths + self.some_gap_lengths:
            share = 1.0 if lengths < self.gap_lengths else 0.5
            gap_length = np.where(rng.random(len(gap_length)) < share, missing_after(is_prompt), UNKNOWN_LENGTH)
        return gap_hints(is_prompt, is_open), gap_length
