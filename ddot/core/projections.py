"""What must hold at every step: projections of positions and tokens, restrictions on which tokens may be revealed."""

import dataclasses

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from ddot.core.gaps import gap_of
from ddot.core.records import Prediction, State, Vocabulary
from ddot.core.sampling import Projection, Restriction

# Least distance between prompt slots, so that text fits between them. Clean neighbours are 2/L apart, far more.
_APART = 1e-5


def without(*tokens: int) -> Restriction:
    """Make these tokens impossible."""
    columns = torch.tensor(tokens, dtype=torch.long)

    def restrict(state: State, prediction: Prediction) -> Prediction:
        nonlocal columns
        columns = columns.to(prediction.log_score.device)  # kept there: a copy at every step would make a GPU wait
        return dataclasses.replace(prediction, log_score=prediction.log_score.index_fill(1, columns, -torch.inf))

    return restrict


def without_echo(vocabulary: Vocabulary) -> Restriction:
    """Make a token impossible right beside the same token ("the the")."""

    def restrict(state: State, prediction: Prediction) -> Prediction:
        order = state.z.argsort(dim=-1, stable=True)
        row = torch.nn.functional.pad(state.x.gather(1, order), (1, 1), value=vocabulary.mask)
        score = prediction.log_score.clone()
        for neighbour in (row[:, :-2], row[:, 2:]):
            token = torch.zeros_like(state.x).scatter(1, order, neighbour)[prediction.at][:, None]
            # A [mask] or [pad] beside a slot rules nothing out.
            keep = (token == vocabulary.mask) | (token == vocabulary.pad)
            score.scatter_(1, token, torch.where(keep, score.gather(1, token), -torch.inf))
        return dataclasses.replace(prediction, log_score=score)

    return restrict


def clamp_prompt(start: State) -> Projection:
    """Prompt slots keep their tokens."""
    is_prompt = start.is_prompt
    return lambda state: dataclasses.replace(state, x=torch.where(is_prompt, start.x, state.x))


def stay(start: State) -> Projection:
    """Slots keep their positions."""
    return lambda state: dataclasses.replace(state, z=start.z)


def keep_prompt_order(state: State) -> State:
    """Prompt slots stay in text order and apart: their positions are sorted, then pushed apart."""
    return dataclasses.replace(state, z=sort_within(state.z, state.is_prompt, apart=_APART))


def keep_word_order(vocabulary: Vocabulary) -> Projection:
    """Response slots that hold a word keep their initial order, as they do on the coupling's paths."""

    def project(state: State) -> State:
        words = ~state.is_prompt & (state.x != vocabulary.mask) & (state.x != vocabulary.pad)
        return dataclasses.replace(state, z=sort_within(state.z, words))

    return project


def sort_within(z: Float[Tensor, "B L"], member: Bool[Tensor, "B L"], apart: float = 0.0) -> Float[Tensor, "B L"]:
    """z with the values of member slots ascending over those slots, at least `apart` from each other."""
    ascending = torch.where(member, z, torch.inf).sort(-1).values
    if apart:
        steps = apart * torch.arange(z.shape[1], device=z.device)
        ascending = (ascending - steps).cummax(-1).values + steps
    slots = (~member).int().argsort(dim=-1, stable=True)  # member slots first, in slot order
    return torch.where(member, torch.zeros_like(z).scatter(1, slots, ascending), z)


def keep_out_of_closed(is_open: Bool[Tensor, "B gaps"]) -> Projection:
    """Response slots in a closed gap move to the border of the nearest open one.

    Prompt slots must be in order (`keep_prompt_order` first). A row without an open gap is left unchanged.
    """

    def project(state: State) -> State:
        is_prompt = state.is_prompt
        gap = gap_of(state.z, is_prompt)
        inside = is_open.gather(1, gap) | is_prompt | ~is_open.any(-1, keepdim=True)
        n = is_open.shape[1]
        index = torch.arange(n, device=gap.device).expand_as(is_open)
        left = torch.where(is_open, index, -1).cummax(-1).values.gather(1, gap)  # nearest open gap at or before
        right = torch.where(is_open, index, n).flip(-1).cummin(-1).values.flip(-1).gather(1, gap)
        # Gap g lies between prompt slots number g (left border) and g + 1 (right border), counted from 1.
        borders = _prompt_positions(state.z, is_prompt)
        left_end = borders.gather(1, (left + 1).clamp(0, n))  # right border of the gap on the left
        right_end = borders.gather(1, right.clamp(0, n))  # left border of the gap on the right
        inf = torch.full_like(state.z, torch.inf)
        go_left = (left >= 0) & ((right >= n) | (state.z - left_end <= right_end - state.z))
        target = torch.where(go_left, torch.nextafter(left_end, -inf), torch.nextafter(right_end, inf))
        return dataclasses.replace(state, z=torch.where(inside, state.z, target))

    return project


def keep_in_gaps(gap: Int[Tensor, "B L"]) -> Projection:
    """Every response slot stays in its `gap`; entries at prompt slots are ignored.

    Prompt slots must be in order and apart (`keep_prompt_order` first).
    """

    def project(state: State) -> State:
        borders = _prompt_positions(state.z, state.is_prompt)
        inf = torch.full_like(state.z, torch.inf)
        low = torch.nextafter(borders.gather(1, gap), inf)
        high = torch.nextafter(borders.gather(1, gap + 1), -inf)
        return dataclasses.replace(state, z=torch.where(state.is_prompt, state.z, state.z.clamp(low, high)))

    return project


def _prompt_positions(z: Float[Tensor, "B L"], is_prompt: Bool[Tensor, "B L"]) -> Float[Tensor, "B borders"]:
    """Column i: the position of prompt slot number i, from 1 (columns 0 and beyond the last: −∞ and +∞)."""
    ascending = torch.where(is_prompt, z, torch.inf).sort(-1).values
    low = torch.full_like(ascending[:, :1], -torch.inf)
    return torch.cat([low, ascending, -low], -1)
