"""Filling the blanks of one window of text: how long, with which tokens, how good.

A window is sampled on its own, as wide as it needs, with numbers from its own key: its answer does not depend on what
else is being filled.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import torch
from jaxtyping import Float, UInt64
from torch import Tensor

from ddot import rooms
from ddot.annealing import Annealing, Tempered, greedy, greedy_words
from ddot.chance import fold, uniform
from ddot.denoiser import Denoiser
from ddot.filling import (
    Settings,
    drawn_length,
    expected_rooms,
    fill,
    gap_tokens,
    length_chances,
    mean_length,
    roomy,
    rounded,
)
from ddot.gaps import keep_in_gaps
from ddot.likelihood import Tokens, gap_chances, token_chances
from ddot.methods.ddot import DDOT
from ddot.methods.fixed_length import FixedLength
from ddot.positions import Terminal, grid_terminal, random_terminal
from ddot.records import OPEN, State
from ddot.sampling import Leap, MostCertainFirst, Restriction, keep_prompt_order, keep_word_order, without, without_echo
from ddot.template import Blank
from ddot.tokens import Tokenizer
from ddot.typist import Alphabet, Pieces, Span, View, WithinWords, lay_out
from ddot.windows import SLOTS, TOKENS_A_WORD

TERMINALS: dict[str, Terminal] = {"grid": grid_terminal, "random": random_terminal}
STEPS = 16
# Tokens. In training every length up to 32 words was as common; the blanks people leave are mostly short.
_BREVITY = 10.0


@dataclass(frozen=True)
class Choice:
    """How to fill. Without `terminal` slots stay where they belong; with one, they start there and move.

    Lengths are planned first where the network can say them; otherwise slots always move and [pad]s decide.
    """

    steps: int = STEPS
    temperature: float = 0.0
    top_p: float = 1.0
    terminal: str | None = None

    def __post_init__(self) -> None:
        for name, value in (("steps", self.steps), ("temperature", self.temperature), ("top_p", self.top_p)):
            if isinstance(value, bool) or not isinstance(value, int if name == "steps" else int | float):
                raise ValueError(f"{name} is {value!r}; wanted a {'whole ' * (name == 'steps')}number")
        if not 1 <= self.steps <= 1000:
            raise ValueError(f"steps is {self.steps}; it must lie between 1 and 1000")
        if not 0 <= self.temperature <= 10:
            raise ValueError(f"temperature is {self.temperature}; it must lie between 0 (the likeliest) and 10")
        if not 0 < self.top_p <= 1:
            raise ValueError(f"top_p is {self.top_p}; it must lie in (0, 1]")
        if self.terminal is not None and self.terminal not in TERMINALS:
            raise ValueError(f"terminal is '{self.terminal}'; there are {', '.join(TERMINALS)}")

    @property
    def anneal(self) -> Annealing:
        if self.temperature > 0:
            return Tempered(self.temperature, self.top_p)
        return greedy if self.terminal is None else greedy_words


@dataclass(frozen=True)
class Filled:
    """The text of each blank as its tokens spell it, and the log-chances of tokens and lengths, in nats."""

    raw: list[str]
    log_chances: list[float]


def _brief(chances: Float[Tensor, "gaps classes"]) -> Float[Tensor, "gaps classes"]:
    """The chances of length classes, tilted towards short ones."""
    likely = chances * torch.exp(-rooms.class_lengths() / _BREVITY)
    return likely / likely.sum(-1, keepdim=True)


class Filler:
    """A network and its tokenizer, filling windows."""

    def __init__(self, model: Denoiser, tokenizer: Tokenizer):
        self.model, self.tokenizer, self.alphabet = model, tokenizer, Alphabet(tokenizer)
        self._text_only = without(*self.alphabet.no_text, model.vocabulary.sep)
        self._no_loose_marks = without(*self.alphabet.loose_marks)

    def fill(
        self, view: View, blanks: Sequence[Blank], key: UInt64[np.ndarray, "1"], choice: Choice, draw: bool = False
    ) -> Filled:
        """The blanks filled. `draw`: lengths are drawn as the model says; otherwise the expected ones are taken."""
        chances = self.length_chances(view)
        planned = self.lengths(view, blanks, chances, key, draw)
        lengths, states = self._sampled(view, blanks, planned, key, choice)
        *_, last = states
        found = self._found(view, blanks, lengths, last)
        log_chances = token_chances(self.model, view, blanks, found)
        if chances is not None:
            log_chances += gap_chances(view, chances, found)
        return Filled([self.alphabet.spell(tokens) for tokens in found], log_chances)

    def states(
        self, view: View, blanks: Sequence[Blank], key: UInt64[np.ndarray, "1"], choice: Choice
    ) -> Iterator[State]:
        """The states that `fill` goes through; bounds hold in the last one."""
        planned = self.lengths(view, blanks, self.length_chances(view), key, draw=False)
        return self._sampled(view, blanks, planned, key, choice)[1]

    def _sampled(
        self,
        view: View,
        blanks: Sequence[Blank],
        planned: Sequence[int] | None,
        key: UInt64[np.ndarray, "1"],
        choice: Choice,
    ) -> tuple[Sequence[int] | None, Iterator[State]]:
        """(the lengths of blanks, None where they are whatever is found; the states)."""
        if planned is None:
            seen = list(self.moving(view, key, choice))
            found = self._found(view, blanks, None, seen[-1])
            if all(blank.holds(self.alphabet.spell(tokens)) for blank, tokens in zip(blanks, found, strict=True)):
                return None, iter(seen)
            planned = self.bounded(view, blanks, [len(tokens) for tokens in found])
        way = self.still if choice.terminal is None else self.moving_in_gaps
        return planned, way(view, blanks, planned, key, choice)

    def moving(self, view: View, key: UInt64[np.ndarray, "1"], choice: Choice) -> Iterator[State]:
        """The states of slots that find their places in any blank; [pad]s decide how many words there are."""
        settings = Settings(
            steps=choice.steps,
            slots=min(max(SLOTS, len(view.prompt)), roomy(len(view.prompt), self.model.config.slots)),
            terminal=TERMINALS[choice.terminal or "grid"],
            reveal=Leap(choice.anneal),
            restrictions=(self._text_only, *self._form(view)),
        )
        return fill(self.model, [view.prompt], key, settings)

    def moving_in_gaps(
        self,
        view: View,
        blanks: Sequence[Blank],
        lengths: Sequence[int],
        key: UInt64[np.ndarray, "1"],
        choice: Choice,
    ) -> Iterator[State]:
        """The states of slots that start anywhere and end in the blank they are meant for: `lengths` tokens each."""
        prompt = lay_out(view, blanks, lengths)[0]
        ends = np.cumsum([len(prompt), *lengths]).tolist()  # the prompt's slots come first
        spans = [
            Span(start, stop, first, blank)
            for (start, stop), first, blank in zip(pairwise(ends), view.first, blanks, strict=True)
        ]
        gap = torch.zeros(1, ends[-1], dtype=torch.long)
        for span, after in zip(spans, view.after, strict=True):
            gap[0, span.start : span.stop] = after + 1
        vocabulary = self.model.vocabulary
        method = DDOT(
            terminal=TERMINALS[choice.terminal or "grid"],
            reveal=WithinWords(MostCertainFirst(choice.anneal), self.alphabet, [spans]),
            projections=(keep_prompt_order, keep_in_gaps(gap.to(self.device)), keep_word_order(vocabulary)),
            restrictions=(
                without(vocabulary.pad, vocabulary.sep),
                without_echo(vocabulary),
                Pieces(self.alphabet, [spans], ends[-1]),
                *self._form(view),
            ),
        )
        return method.sample(self.model, [prompt.example], ends[-1], choice.steps, key)

    def still(
        self,
        view: View,
        blanks: Sequence[Blank],
        lengths: Sequence[int],
        key: UInt64[np.ndarray, "1"],
        choice: Choice,
    ) -> Iterator[State]:
        """The states of slots that stay where they are: `lengths` tokens for the blanks."""
        prompt, spans = lay_out(view, blanks, lengths)
        L = len(prompt) + sum(lengths)
        method = FixedLength(
            reveal=WithinWords(MostCertainFirst(choice.anneal), self.alphabet, [spans]),
            restrictions=(Pieces(self.alphabet, [spans], L), *self._form(view)),
        )
        # With a token a step every one sees all before it: more steps would change nothing.
        steps = max(1, min(choice.steps, sum(lengths)))
        return method.sample(self.model, [prompt.example], L, steps, key)

    def _form(self, view: View) -> tuple[Restriction, ...]:
        """Marks stand apart from words only in texts that are written so themselves."""
        return () if self.alphabet.loose[view.prompt.example.tokens].any() else (self._no_loose_marks,)

    def length_chances(self, view: View) -> Float[Tensor, "n classes"] | None:
        """The chances of each length class of the gap after each prompt token; None if the network cannot tell."""
        if self.model.room_head is None:
            return None
        nobody = np.zeros(1, np.uint64)  # a grid start needs no chance
        return length_chances(self.model, [view.prompt], nobody, roomy(len(view.prompt), self.model.config.slots))[0]

    def lengths(
        self,
        view: View,
        blanks: Sequence[Blank],
        chances: Float[Tensor, "n classes"] | None,
        key: UInt64[np.ndarray, "1"],
        draw: bool,
    ) -> list[int] | None:
        """How many tokens each blank gets, within its bounds; None if the network cannot tell."""
        if chances is None:
            return None
        u = torch.from_numpy(uniform(fold(key, 0x9A9), len(chances))[0])
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

    def _found(
        self, view: View, blanks: Sequence[Blank], lengths: Sequence[int] | None, last: State
    ) -> Sequence[Tokens]:
        """The tokens of each blank in the last state."""
        if lengths is None:
            return self._shared_out(view, blanks, gap_tokens(last, [view.prompt], self.model.vocabulary)[0])
        tokens = last.x[0, last.kind[0] == OPEN].cpu().numpy()  # open slots are in the order of the text
        return np.split(tokens, np.cumsum(lengths)[:-1])

    def _shared_out(self, view: View, blanks: Sequence[Blank], gaps: Sequence[Tokens]) -> list[Tokens]:
        """The tokens found in each gap, for each blank. Blanks that share a gap take words in turn, as they may."""
        left = {after: gaps[after + 1] for after in view.after}
        found = []
        for number, (blank, after) in enumerate(zip(blanks, view.after, strict=True)):
            tokens = left[after]
            begins = np.concatenate([[True], self.alphabet.begins[tokens[1:]]])[: len(tokens)]
            starts = np.flatnonzero(begins)
            others = [
                b.least for b, a in zip(blanks[number + 1 :], view.after[number + 1 :], strict=True) if a == after
            ]
            if others:
                take = max(blank.least, len(starts) // (1 + len(others)))
                cut = int(starts[take]) if take < len(starts) else len(tokens)
            else:
                cut = len(tokens)
            found.append(tokens[:cut])
            left[after] = tokens[cut:]
        return found

    @property
    def device(self) -> torch.device:
        return self.model.device
