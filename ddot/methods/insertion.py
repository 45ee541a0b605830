"""Insertion: look at the tokens there are, say for every gap which token goes there or that none does, put them in,
look again (after the Insertion Transformer, POINTER and CBART).

The question of a gap is asked at the token left of it, as a language model is asked what comes next; [sep] stands in
front of the text for the gap before it. The answer is a token, or [pad] for none. In training each missing token is
there with the same chance, itself drawn for each text: every state that any order of insertion leads to occurs, so also
those that the network's own choices lead to. The right answer is drawn from the tokens missing in the gap, those near
its middle far more often, so that a gap of n tokens is full after about log₂ n looks.
"""

import dataclasses
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Bool, Int
from torch import Tensor

from ddot.core.gaps import closes_after, closes_before
from ddot.core.records import (
    NOT_PROMPT,
    PAD,
    PROMPT,
    UNKNOWN,
    UNKNOWN_LENGTH,
    Example,
    Slots,
    State,
    Vocabulary,
    to_device,
)
from ddot.core.sampling import time_grid
from ddot.core.shapes import Keys, Times
from ddot.methods.layout import Table, fitting, in_line, only_prompt, start_at
from ddot.methods.losses import Losses, token_losses
from ddot.network.denoiser import Denoiser


@dataclass(frozen=True)
class Insertion:
    """`spread`: a token so many places from the middle of its gap is e times less often the answer than the middle one.

    `doubt`: a token is put in where the chance that none is missing is at most this.
    """

    spread: float = 1.0
    doubt: float = 0.5

    def prepare(self, examples: Sequence[Example], L: int, t: Times, keys: Keys, vocabulary: Vocabulary) -> Slots:
        """Rows `[sep] text [pad]…` of L + 1 slots in a line."""
        table = Table([_after_separator(example, L, vocabulary) for example in examples], L + 1, vocabulary)
        z = in_line(table.is_prompt, keys)
        return table.slots(z, z.copy(), t, keys)

    def loss(self, model: Denoiser, slots: Slots, position_factor: float) -> Losses:
        """Cross entropy of the answers. Nothing moves, so λ has nothing to weigh."""
        state, asked, answer = questions(slots, self.spread, model.vocabulary)
        at = asked.flatten().nonzero()[:, 0]
        h, velocity = model.read(state)
        return token_losses(model, h, velocity, at, answer.flatten()[at])

    def start(self, prompts: Sequence[Example], L: int, keys: Keys, vocabulary: Vocabulary) -> State:
        """`[sep] prompt [pad]…`. Of an example only the prompt's tokens are read."""
        rows = [_after_separator(only_prompt(example), L, vocabulary) for example in prompts]
        state = start_at(in_line, rows, L + 1, keys, vocabulary)
        return dataclasses.replace(state, x=torch.where(state.x == vocabulary.mask, vocabulary.pad, state.x))

    def sample(self, model: Denoiser, prompts: Sequence[Example], L: int, steps: int, keys: Keys) -> Iterator[State]:
        """A state after each look, at most `steps` of them, until no text grows any more; t falls from 1 to 0.

        A text never has more than L tokens: where more are wanted than fit, the surest are taken. Gaps that are told
        closed stay closed. Draws nothing.
        """
        start = to_device(self.start(prompts, L, keys, model.vocabulary), model.device)
        return self._insert(model, start, time_grid(steps))

    def _insert(self, model: Denoiser, state: State, times: Sequence[float]) -> Iterator[State]:
        yield state
        v = model.vocabulary
        for s in times[1:]:
            there = state.x != v.pad
            left = there.shape[1] - there.sum(-1, keepdim=True)
            asked = there & may_grow(state.hint) & (left > 0)
            h, _ = model.read(dataclasses.replace(state, t=torch.zeros_like(state.t)))
            chances = torch.softmax(_words_or_none(model.logits(h[asked]), v), -1)
            none = torch.full_like(state.z, torch.inf)
            none[asked] = chances[:, v.pad]
            word = torch.full_like(state.x, v.pad)
            word[asked] = chances[:, : v.base].argmax(-1)
            rank = none.argsort(dim=-1, stable=True).argsort(dim=-1)
            wanted = asked & (none <= self.doubt) & (rank < left)
            state = dataclasses.replace(put_in(state, wanted, word, v.pad), t=torch.full_like(state.t, s))
            if s <= 0 or not bool(wanted.any()):
                break
            yield state
        yield dataclasses.replace(state, t=torch.zeros_like(state.t))

    def texts(self, state: State, vocabulary: Vocabulary) -> list[Int[np.ndarray, "n"]]:
        """The tokens there are, after the [sep] in front."""
        return [row[1:][row[1:] != vocabulary.pad] for row in state.x.cpu().numpy()]


def questions(
    slots: Slots, spread: float, vocabulary: Vocabulary
) -> tuple[State, Bool[Tensor, "B L"], Int[Tensor, "B L"]]:
    """(what is seen, which of its slots are asked what goes after them, the answers).

    Of what is missing each token is there where u ≥ t. The answer of a gap is a missing token, drawn with weights that
    fall from its middle, or [pad].
    """
    real = slots.kind != PAD
    there = real & ((slots.kind == PROMPT) | (slots.u >= slots.t[:, None]))
    missing = real & ~there
    W = there.shape[1]
    index = torch.arange(W, device=there.device).expand_as(slots.kind)
    gap = there.cumsum(-1) - 1  # gap g lies after the g-th token there is
    before = torch.where(there, index, 0).cummax(-1).values
    after = torch.where(there, index, real.sum(-1, keepdim=True)).flip(1).cummin(1).values.flip(1)
    away = (index - (before + after) / 2).abs()
    # The largest of log weight + Gumbel noise is a draw in proportion to the weights; u/t is uniform where u < t.
    noise = -torch.log(-torch.log((slots.u / slots.t[:, None]).clamp(max=1)))
    score = torch.where(missing, noise - away / spread, -torch.inf)
    best = torch.full_like(score, -torch.inf).scatter_reduce(1, gap, score, "amax")
    chosen = missing & (score == best.gather(1, gap))
    answer = _scattered(slots.x_0, chosen, gap, vocabulary.pad)

    kept = (~there).int().argsort(dim=-1, stable=True)  # what is there first, in order
    there = there.gather(1, kept)
    state = State(
        x=torch.where(there, slots.x_0.gather(1, kept), vocabulary.pad),
        z=slots.z_0,
        hint=torch.where(there, slots.hint.gather(1, kept), NOT_PROMPT),
        gap_length=torch.where(there, slots.gap_length.gather(1, kept), UNKNOWN_LENGTH),
        t=torch.zeros_like(slots.t),  # what is read is never noisy, and nobody knows how much is missing
    )
    return state, there & may_grow(state.hint), answer


def may_grow(hint: Int[Tensor, "B L"]) -> Bool[Tensor, "B L"]:
    """Whether text may be inserted after each slot: neither its hint nor the next slot's closes the gap."""
    return ~closes_after(hint) & ~torch.nn.functional.pad(closes_before(hint)[:, 1:], (0, 1))


def put_in(state: State, wanted: Bool[Tensor, "B L"], word: Int[Tensor, "B L"], pad: int) -> State:
    """The state with words put in right after the slots where they are wanted; all that follows moves on."""
    index = torch.arange(wanted.shape[1], device=wanted.device)
    place = index + wanted.cumsum(-1) - wanted.int()  # where what is there goes
    there = state.x != pad
    old = _scattered(state.x, there, place, pad)
    return dataclasses.replace(
        state,
        x=torch.where(old != pad, old, _scattered(word, wanted, place + 1, pad)),
        hint=_scattered(state.hint, there, place, NOT_PROMPT),
        gap_length=_scattered(state.gap_length, there, place, UNKNOWN_LENGTH),
    )


def _scattered(
    values: Int[Tensor, "B L"], which: Bool[Tensor, "B L"], place: Int[Tensor, "B L"], rest: int
) -> Int[Tensor, "B L"]:
    """Some of the values at new places, `rest` elsewhere."""
    B, W = values.shape
    moved = torch.full((B, W + 1), rest, dtype=values.dtype, device=values.device)  # one more for those not wanted
    return moved.scatter(1, torch.where(which, place, W), values)[:, :W]


def _words_or_none(logits: Tensor, vocabulary: Vocabulary) -> Tensor:
    """The logits in float32, −∞ for [mask] and [sep], which are no answers."""
    columns = torch.tensor([vocabulary.mask, vocabulary.sep], device=logits.device)
    return logits.float().index_fill(1, columns, -torch.inf)


def _after_separator(example: Example, L: int, vocabulary: Vocabulary) -> Example:
    """`[sep] text`: the separator is given and nothing is told of it."""
    hint, gap_length = (
        None if told is None else np.insert(told, 0, neutral)
        for told, neutral in ((example.hint, UNKNOWN), (example.gap_length, UNKNOWN_LENGTH))
    )
    tokens = np.insert(fitting(example.tokens, L), 0, vocabulary.sep)
    return Example(tokens, np.insert(example.is_prompt, 0, True), hint, gap_length)
