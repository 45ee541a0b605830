"""Filling the blanks of one window of text: how long, with which tokens, how good.

The way of one window, written as if it were alone: what it asks of the network it yields as a task, and is sent the
answer. Whoever drives it may run the tasks of many windows together (see `together`). Numbers come from the window's
own key: its answer does not depend on what else is being filled.
"""

from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, UInt64
from torch import Tensor

from ddot.choice import STEPS, Choice
from ddot.core import gap_lengths
from ddot.core.records import State, first_row
from ddot.core.rng import fold, uniform
from ddot.data.tokenizer import Tokenizer
from ddot.filling import drawn_length, expected_rooms, mean_length, rounded
from ddot.likelihood import Tokens, gap_chances
from ddot.network.denoiser import Denoiser
from ddot.tasks import ALONE, Lengths, Looks, Network, Sample, Shape, Task
from ddot.template import Blank
from ddot.typist import Alphabet, View
from ddot.windows import SLOTS, TOKENS_A_WORD

__all__ = ["STEPS", "Choice", "Filled", "Filler"]

# Tokens. In training every length up to 32 words was as common; the blanks people leave are mostly short.
_BREVITY = 10.0
_GOLDEN = (5**0.5 - 1) / 2  # multiples of it, modulo 1, are spread as evenly as any


@dataclass(frozen=True)
class Filled:
    """The text of each blank as its tokens spell it, and the log-chances of tokens and lengths, in nats."""

    raw: list[str]
    log_chances: list[float]


def _brief(chances: Float[Tensor, "gaps classes"]) -> Float[Tensor, "gaps classes"]:
    """The chances of length classes, tilted towards short ones."""
    likely = chances * torch.exp(-gap_lengths.class_lengths() / _BREVITY)
    return likely / likely.sum(-1, keepdim=True)


class Filler:
    """A network and its tokenizer, filling windows."""

    def __init__(self, model: Denoiser, tokenizer: Tokenizer, shape: Shape = ALONE):
        self.model, self.tokenizer, self.alphabet = model, tokenizer, Alphabet(tokenizer)
        self.network = Network(model, self.alphabet, shape)

    def fill(
        self, view: View, blanks: Sequence[Blank], key: UInt64[np.ndarray, "1"], choice: Choice, draw: int = 0
    ) -> Generator[Task, Any, Filled]:
        """The blanks filled with the expected lengths, or, numbered from 1, with lengths drawn as the model says."""
        chances = (yield Lengths(view)) if self._tells_lengths else None
        lengths = self.lengths(view, blanks, chances, key, draw)
        sample = Sample(view, blanks, lengths, fold(key, draw) if draw else key, choice)
        found = yield sample
        again = self._within_bounds(sample, found)
        if again is not None:
            found = yield again
        log_chances = yield Looks(view, blanks, found)
        if chances is not None:
            log_chances += gap_chances(view, chances, found)
        return Filled([self.alphabet.spell(tokens) for tokens in found], log_chances)

    def states(
        self, view: View, blanks: Sequence[Blank], key: UInt64[np.ndarray, "1"], choice: Choice
    ) -> Iterator[State]:
        """The states that `fill` goes through; bounds hold in the last one."""
        planned = self.lengths(view, blanks, self.length_chances(view), key)
        sample = Sample(view, blanks, planned, key, choice)
        states: Iterator[State] = map(first_row, self.network.states([sample]))
        if planned is None:
            seen = list(states)
            again = self._within_bounds(sample, self.network.found([sample], seen[-1])[0])
            states = iter(seen) if again is None else map(first_row, self.network.states([again]))
        return states

    def _within_bounds(self, sample: Sample, found: Sequence[Tokens]) -> Sample | None:
        """The window with planned lengths, if slots that were free to go anywhere have not kept the blanks' bounds."""
        if sample.lengths is not None:
            return None
        if all(blank.holds(self.alphabet.spell(tokens)) for blank, tokens in zip(sample.blanks, found, strict=True)):
            return None
        return replace(sample, lengths=self.bounded(sample.view, sample.blanks, [len(tokens) for tokens in found]))

    @property
    def _tells_lengths(self) -> bool:
        return self.model.room_head is not None

    def length_chances(self, view: View) -> Float[Tensor, "n classes"] | None:
        """The chances of each length class of the gap after each prompt token; None if the network cannot tell."""
        return self.network.run([Lengths(view)])[0] if self._tells_lengths else None

    def lengths(
        self,
        view: View,
        blanks: Sequence[Blank],
        chances: Float[Tensor, "n classes"] | None,
        key: UInt64[np.ndarray, "1"],
        draw: int = 0,
    ) -> list[int] | None:
        """How many tokens each blank gets, within its bounds; None if the network cannot tell.

        The draws of one key are spread evenly over the chances of each blank, so that few of them agree; in which
        order, every blank has for itself.
        """
        if chances is None:
            return None
        begin, swap = uniform(fold(key, 0x9A9), 2 * len(chances)).reshape(2, -1)
        u = torch.from_numpy((begin + (draw ^ (8 * swap).astype(np.int64)) * _GOLDEN) % 1)
        choose = drawn_length if draw else mean_length
        if not view.prompt.free:
            chances = _brief(chances)
        whole = rounded(expected_rooms(view.prompt, chances, u, choose))
        shares = np.bincount(view.after, minlength=len(whole))
        found = []
        for after in view.after:  # blanks with nothing between them share what their gap gets
            part = -(-int(whole[after]) // int(shares[after]))
            found.append(part)
            whole[after] -= part
            shares[after] -= 1
        return self.bounded(view, blanks, found)

    def bounded(self, view: View, blanks: Sequence[Blank], lengths: Sequence[int]) -> list[int]:
        """Lengths in tokens that can hold the words each blank asks for, within the slots there are."""
        least = [blank.least for blank in blanks]
        wanted = []
        for blank, length in zip(blanks, lengths, strict=True):
            # No more tokens than words: a slot that may not begin a word would be forced to be half of one.
            most = SLOTS if blank.most is None else blank.most
            wanted.append(min(max(length, round(TOKENS_A_WORD * blank.least)), most))
        room = max(SLOTS - len(view.prompt), sum(least)) - sum(least)
        beyond = np.array(wanted) - np.array(least)
        if beyond.sum() > room:
            beyond = rounded(beyond * (room / beyond.sum()))
        return [a + int(b) for a, b in zip(least, beyond, strict=True)]

    @property
    def device(self) -> torch.device:
        return self.model.device
