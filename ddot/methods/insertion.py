"""Iterative insertion, after the Insertion Transformer, POINTER and CBART: each forward pass inserts a token into every
gap, or predicts that none is missing.

The token for a gap is predicted at the slot to its left, as in next-token prediction; a [sep] before the text predicts
for the first gap, and [pad] means that nothing is missing. In training, each missing token is present with a
probability drawn per text, so every state that any order of insertion can reach occurs. The target is sampled from the
missing tokens of the gap, mostly near its middle, so that a gap of n tokens is filled in about log₂ n passes.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from ddot.core.codes import NOT_PROMPT, PAD, PROMPT, UNKNOWN_LENGTH
from ddot.core.gaps import closes_after, closes_before
from ddot.core.records import Example, Slots, State, Vocabulary, to_device
from ddot.core.sampling import time_grid
from ddot.core.shapes import Keys, Times
from ddot.methods.layout import Table, fitting, in_line, joined, only_prompt, separator, start_at
from ddot.methods.losses import Losses, flat_targets, token_losses
from ddot.network.denoiser import Denoiser


def text_rows(examples: Sequence[Example], L: int, t: Times, keys: Keys, vocabulary: Vocabulary) -> Slots:
    """Rows `[sep] text [pad]…` of L + 1 slots in a line."""
    return Table(_rows(examples, L, vocabulary), L + 1, vocabulary).line_slots(t, keys)


def start_row(prompts: Sequence[Example], L: int, keys: Keys, vocabulary: Vocabulary) -> State:
    """`[sep] prompt [pad]…`. Only the prompt of each example is read."""
    state = start_at(in_line, _rows(map(only_prompt, prompts), L, vocabulary), L + 1, keys, vocabulary)
    return replace(state, x=torch.where(state.x == vocabulary.mask, vocabulary.pad, state.x))


def _rows(examples: Iterable[Example], L: int, vocabulary: Vocabulary) -> list[Example]:
    examples = list(examples)
    for example in examples:
        fitting(example.tokens, L)
    return [joined(separator(vocabulary), example) for example in examples]


def texts_after(state: State, vocabulary: Vocabulary) -> list[Int[np.ndarray, "n"]]:
    """The tokens after the leading [sep]."""
    return [row[1:][row[1:] != vocabulary.pad] for row in state.x.cpu().numpy()]


@dataclass(frozen=True)
class Insertion:
    """`spread`: distance from the middle of the gap at which a target's weight falls to 1/e. `doubt`: a token is
    inserted where the probability that none is missing is at most this."""

    spread: float = 1.0
    doubt: float = 0.5

    def loss(self, model: Denoiser, slots: Slots, position_factor: float) -> Losses:
        """Cross entropy of the tokens to insert. Nothing moves, so λ is unused."""
        state, predicts, target = targets(slots, self.spread, model.vocabulary)
        at, target = flat_targets(predicts, target)
        return token_losses(model, model.read(state), at, target)

    def sample(self, model: Denoiser, prompts: Sequence[Example], L: int, steps: int, keys: Keys) -> Iterator[State]:
        """A state after each of at most `steps` forward passes, until no text grows; t falls from 1 to 0.

        A text never exceeds L tokens: the most certain insertions come first. Gaps hinted closed stay closed.
        Deterministic.
        """
        v = model.vocabulary
        state = to_device(start_row(prompts, L, keys, v), model.device)
        yield state
        not_inserted = torch.tensor([v.mask, v.sep], device=state.x.device)
        for s in time_grid(steps)[1:]:
            present = state.x != v.pad
            left = present.shape[1] - present.sum(-1, keepdim=True)
            predicts = present & may_grow(state.hint) & (left > 0)
            h, _ = model.read(replace(state, t=torch.zeros_like(state.t)))
            logits = model.logits(h[predicts]).float().index_fill(1, not_inserted, -torch.inf)
            chances = torch.softmax(logits, -1)
            none, word = placed(chances[:, v.pad], predicts), placed(chances[:, : v.base].argmax(-1), predicts)
            grows = predicts & (none <= self.doubt) & (rank(-none, predicts) < left)
            state = replace(insert(state, grows, word, v), t=torch.full_like(state.t, s))
            if s <= 0 or not bool(grows.any()):
                break
            yield state
        yield replace(state, t=torch.zeros_like(state.t))

    prepare, start, texts = staticmethod(text_rows), staticmethod(start_row), staticmethod(texts_after)


def targets(
    slots: Slots, spread: float, vocabulary: Vocabulary
) -> tuple[State, Bool[Tensor, "B L"], Int[Tensor, "B L"]]:
    """(the state the network reads, which of its slots predict an insertion, their targets).

    A missing token is present where u ≥ t. The target of a gap is one of its missing tokens, sampled with weights that
    fall off from its middle, or [pad].
    """
    real = slots.kind != PAD
    present = real & ((slots.kind == PROMPT) | (slots.u >= slots.t[:, None]))
    missing = real & ~present
    W = present.shape[1]
    index = torch.arange(W, device=present.device).expand_as(slots.kind)
    gap = present.cumsum(-1) - 1  # gap g follows the g-th token present
    before = torch.where(present, index, 0).cummax(-1).values
    after = torch.where(present, index, real.sum(-1, keepdim=True)).flip(1).cummin(1).values.flip(1)
    away = (index - (before + after) / 2).abs()
    # Gumbel-max: the largest of log weight + Gumbel noise is a weighted draw; u/t is uniform where u < t.
    noise = -torch.log(-torch.log((slots.u / slots.t[:, None]).clamp(max=1)))
    score = torch.where(missing, noise - away / spread, -torch.inf)
    best = torch.full_like(score, -torch.inf).scatter_reduce(1, gap, score, "amax")
    chosen = missing & (score == best.gather(1, gap))
    target = slots.x_0.new_full((len(gap), W + 1), vocabulary.pad)  # last column: tokens that are not chosen
    target = target.scatter(1, torch.where(chosen, gap, W), slots.x_0)[:, :W]

    state, kept = without_absent(slots, present, vocabulary)
    return state, present.gather(1, kept) & may_grow(state.hint), target


def without_absent(
    slots: Slots, present: Bool[Tensor, "B L"], vocabulary: Vocabulary
) -> tuple[State, Int[Tensor, "B L"]]:
    """(the tokens present, in order, then [pad]s; the old slot of each). t is 0: the input is never noisy, and the
    network does not know how much is missing."""
    kept = (~present).int().argsort(dim=-1, stable=True)
    columns = {"x": (slots.x_0, vocabulary.pad), "hint": (slots.hint, NOT_PROMPT)}
    columns |= {"gap_length": (slots.gap_length, UNKNOWN_LENGTH)}
    moved = {name: torch.where(present, values, empty).gather(1, kept) for name, (values, empty) in columns.items()}
    return slots.state(**moved, t=torch.zeros_like(slots.t)), kept


def placed(values: Tensor, at: Bool[Tensor, "B L"]) -> Tensor:
    """The values at the slots in `at`, 0 elsewhere."""
    return torch.zeros(at.shape, dtype=values.dtype, device=at.device).masked_scatter(at, values)


def rank(value: Float[Tensor, "B L"], among: Bool[Tensor, "B L"]) -> Int[Tensor, "B L"]:
    """The rank of each slot by value, largest first, among those in `among`."""
    return torch.where(among, value, -torch.inf).argsort(dim=-1, descending=True, stable=True).argsort(dim=-1)


def may_grow(hint: Int[Tensor, "B L"]) -> Bool[Tensor, "B L"]:
    """Whether text may be inserted after each slot: neither its hint nor the next slot's closes the gap."""
    return ~closes_after(hint) & ~torch.nn.functional.pad(closes_before(hint)[:, 1:], (0, 1))


def insert(state: State, grows: Bool[Tensor, "B L"], word: Int[Tensor, "B L"], vocabulary: Vocabulary) -> State:
    """The state with words inserted after the slots in `grows`; what follows moves right."""
    grown = repeated(state, (state.x != vocabulary.pad) + grows.long(), vocabulary)
    return replace(grown, x=grown.x.masked_scatter(grown.x == vocabulary.mask, word[grows]))


def repeated(state: State, times: Int[Tensor, "B L"], vocabulary: Vocabulary) -> State:
    """Every slot repeated as often as `times` says, in order; all but its first occurrence are [mask]s."""
    ends = times.cumsum(-1)
    W = times.shape[1]
    place = torch.where(times > 0, ends - times, W)  # beyond the last: left out
    blank = torch.where(torch.arange(W + 1, device=ends.device) < ends[:, -1:], vocabulary.mask, vocabulary.pad)

    def moved(values: Tensor, empty: Tensor) -> Tensor:
        return empty.scatter(1, place, values)[:, :W]

    return replace(
        state,
        x=moved(state.x, blank),
        hint=moved(state.hint, torch.full_like(blank, NOT_PROMPT)),
        gap_length=moved(state.gap_length, torch.full_like(blank, UNKNOWN_LENGTH)),
    )
