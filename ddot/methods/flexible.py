"""Insertion with learned counts, in the manner of FlexMDM: [mask]s are inserted and unmasked jointly.

A missing token is absent, a [mask], or itself. The network predicts the token at every [mask] and, with its length
head, how many tokens are absent after every token that is there. Rows are those of `Insertion`:
`[sep] text [pad]…`, slot after slot in a line.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from ddot.core.codes import PAD, PROMPT
from ddot.core.gap_lengths import class_lengths
from ddot.core.records import Example, Slots, State, Vocabulary, to_device
from ddot.core.sampling import time_grid
from ddot.core.shapes import Keys
from ddot.methods.insertion import may_grow, placed, rank, repeated, start_row, text_rows, texts_after, without_absent
from ddot.methods.losses import Losses, answers_at, length_losses, token_losses
from ddot.network.denoiser import Denoiser


@dataclass(frozen=True)
class Flexible:
    """How many tokens are absent is learnt, not only whether any are."""

    prepare, start, texts = staticmethod(text_rows), staticmethod(start_row), staticmethod(texts_after)

    def loss(self, model: Denoiser, slots: Slots, position_factor: float) -> Losses:
        """Cross entropy of tokens and of counts, each summed over the row. Nothing moves: λ has nothing to weigh."""
        state, answer, asked, absent = thinned(slots, model.vocabulary)
        masked, gaps = answers_at(state.x == model.vocabulary.mask, answer), answers_at(asked, absent)
        read = model.read(state)
        tokens = token_losses(model, read, *masked)
        counts = length_losses(model, read, *gaps, len(gaps[0]) / asked.numel())
        total = tokens.total + counts.total
        return Losses.of(total, token=tokens.token, gap_length=counts.gap_length, nats=tokens.nats)

    def sample(self, model: Denoiser, prompts: Sequence[Example], L: int, steps: int, keys: Keys) -> Iterator[State]:
        """A state after each forward pass, which inserts [mask]s (the median of each count) and unmasks the most
        certain. The last pass only unmasks: with one step nothing is filled. A text never exceeds L tokens, and gaps
        hinted closed stay closed. Deterministic.
        """
        v = model.vocabulary
        state = to_device(start_row(prompts, L, keys, v), model.device)
        yield state
        for passes, s in zip(range(steps, 0, -1), time_grid(steps)[1:], strict=True):
            there = state.x != v.pad
            h, _ = model.read(replace(state, t=torch.zeros_like(state.t)))
            x = unmasked(state.x, model.logits(h[state.x == v.mask]).float()[:, : v.base], passes, v)
            more = torch.zeros_like(x)
            if passes > 1:
                chances = torch.softmax(model.length_logits(h[there]), -1)
                median = (chances.cumsum(-1) < 0.5).sum(-1).clamp(max=chances.shape[-1] - 1)
                more[there] = class_lengths(x.device)[median].long()
                more = torch.where(may_grow(state.hint), more, 0)
                room = there.shape[1] - there.sum(-1, keepdim=True)
                more = torch.minimum(more, (room - more.cumsum(-1) + more).clamp(min=0))
            state = repeated(replace(state, x=x), there + more, v)
            state = replace(state, t=torch.full_like(state.t, s))
            yield state


def thinned(
    slots: Slots, vocabulary: Vocabulary
) -> tuple[State, Int[Tensor, "B L"], Bool[Tensor, "B L"], Int[Tensor, "B L"]]:
    """(what is seen, the token at each slot, where a count is asked, how many tokens are absent after each slot).

    A missing token is absent with chance t, and otherwise a [mask] with a chance that is uniform, one for each row (the
    number of [sep], which is never missing): every state that any order of inserting and unmasking leads to occurs.
    """
    real, t = slots.kind != PAD, slots.t[:, None]
    missing = real & (slots.kind != PROMPT)
    gone = missing & (slots.u < t)
    masked = missing & ~gone & (slots.u < t + (1 - t) * slots.u[:, :1])
    there = real & ~gone
    after = (there.cumsum(-1) - 1).clamp(min=0)
    absent = torch.zeros_like(slots.x_0).scatter_add(1, after, gone.long())
    state, kept = without_absent(slots, there, vocabulary)
    seen = replace(state, x=torch.where(masked.gather(1, kept), vocabulary.mask, state.x))
    return seen, state.x, there.gather(1, kept) & may_grow(state.hint), absent


def unmasked(x: Int[Tensor, "B L"], logits: Float[Tensor, "M V"], passes: int, v: Vocabulary) -> Int[Tensor, "B L"]:
    """The tokens with the surest of each row's [mask]s revealed: one in `passes` of them, rounded up."""
    masked = x == v.mask
    sure, word = (placed(values, masked) for values in torch.softmax(logits, -1).max(-1))
    count = -(-masked.sum(-1, keepdim=True) // passes)
    return torch.where(masked & (rank(sure, masked) < count), word, x)
