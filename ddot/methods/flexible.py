"""Insertion with learned counts, in the manner of FlexMDM: [mask]s are inserted and unmasked jointly.

A missing token is absent, a [mask], or itself. The network predicts the token at every [mask] and, with its length
head, how many tokens are absent after every token that is present. Rows are those of `Insertion`: `[sep] text [pad]…`.
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
from ddot.methods.losses import Losses, flat_targets, length_losses, token_losses
from ddot.network.denoiser import Denoiser


@dataclass(frozen=True)
class Flexible:
    """Learns how many tokens are absent, not only whether any are."""

    prepare, start, texts = staticmethod(text_rows), staticmethod(start_row), staticmethod(texts_after)

    def loss(self, model: Denoiser, slots: Slots, position_factor: float) -> Losses:
        """Cross entropy of tokens and of counts, each summed over the row. Nothing moves, so λ is unused."""
        state, token, predicts, count = thinned(slots, model.vocabulary)
        at_mask, token = flat_targets(state.x == model.vocabulary.mask, token)
        at_gap, count = flat_targets(predicts, count)
        read = model.read(state)
        tokens = token_losses(model, read, at_mask, token)
        counts = length_losses(model, read, at_gap, count, len(at_gap) / predicts.numel())
        total = tokens.total + counts.total
        return Losses.of(total, token=tokens.token, gap_length=counts.gap_length, nats=tokens.nats)

    def sample(self, model: Denoiser, prompts: Sequence[Example], L: int, steps: int, keys: Keys) -> Iterator[State]:
        """A state after each forward pass, which inserts [mask]s (the median of each count) and unmasks the most
        certain. The last pass only unmasks, so a single step fills nothing. A text never exceeds L tokens, and gaps
        hinted closed stay closed. Deterministic.
        """
        v = model.vocabulary
        state = to_device(start_row(prompts, L, keys, v), model.device)
        yield state
        for passes, s in zip(range(steps, 0, -1), time_grid(steps)[1:], strict=True):
            present = state.x != v.pad
            h, _ = model.read(replace(state, t=torch.zeros_like(state.t)))
            x = unmasked(state.x, model.logits(h[state.x == v.mask]).float()[:, : v.base], passes, v)
            inserts = torch.zeros_like(x)  # number of [mask]s after each slot
            if passes > 1:
                chances = torch.softmax(model.length_logits(h[present]), -1)
                median = (chances.cumsum(-1) < 0.5).sum(-1).clamp(max=chances.shape[-1] - 1)
                inserts[present] = class_lengths(x.device)[median].long()
                inserts = torch.where(may_grow(state.hint), inserts, 0)
                space = present.shape[1] - present.sum(-1, keepdim=True)
                inserts = torch.minimum(inserts, (space - inserts.cumsum(-1) + inserts).clamp(min=0))
            state = repeated(replace(state, x=x), present + inserts, v)
            state = replace(state, t=torch.full_like(state.t, s))
            yield state


def thinned(
    slots: Slots, vocabulary: Vocabulary
) -> tuple[State, Int[Tensor, "B L"], Bool[Tensor, "B L"], Int[Tensor, "B L"]]:
    """(the state the network reads, the token at each slot, which slots predict a count, the tokens absent after each).

    A missing token is absent with probability t, and otherwise a [mask] with a probability that is uniform and shared
    by the row (the number u of its [sep], which is never missing). Every state that any order of inserting and
    unmasking can reach occurs.
    """
    real, t = slots.kind != PAD, slots.t[:, None]
    missing = real & (slots.kind != PROMPT)
    absent = missing & (slots.u < t)
    masked = missing & ~absent & (slots.u < t + (1 - t) * slots.u[:, :1])
    present = real & ~absent
    after = (present.cumsum(-1) - 1).clamp(min=0)
    count = torch.zeros_like(slots.x_0).scatter_add(1, after, absent.long())
    state, kept = without_absent(slots, present, vocabulary)
    masked_state = replace(state, x=torch.where(masked.gather(1, kept), vocabulary.mask, state.x))
    return masked_state, state.x, present.gather(1, kept) & may_grow(state.hint), count


def unmasked(x: Int[Tensor, "B L"], logits: Float[Tensor, "M V"], passes: int, v: Vocabulary) -> Int[Tensor, "B L"]:
    """The tokens with the most certain of each row's [mask]s revealed: one in `passes` of them, rounded up."""
    masked = x == v.mask
    sure, word = (placed(values, masked) for values in torch.softmax(logits, -1).max(-1))
    count = -(-masked.sum(-1, keepdim=True) // passes)
    return torch.where(masked & (rank(sure, masked) < count), word, x)
