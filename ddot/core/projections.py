"""Invariants of the reverse process: projections of tokens and positions, restrictions on revealed tokens.

`sampling.reverse` applies restrictions to the predictions of a step and projections to its goal.
"""

import dataclasses

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from ddot.core.gaps import gap_of
from ddot.core.records import Prediction, State, Vocabulary
from ddot.core.sampling import Projection, Restriction

# Minimum distance between prompt slots, so that text fits between them; far less than the 2/L of clean neighbours.
_APART = 1e-5


def without(*tokens: int) -> Restriction:
    """A restriction: these tokens are never revealed."""
    columns = torch.tensor(tokens, dtype=torch.long)

    def restrict(state: State, prediction: Prediction) -> Prediction:
        nonlocal columns
        columns = columns.to(prediction.log_score.device)  # moved once: a copy per step would synchronise the GPU
        return dataclasses.replace(prediction, log_score=prediction.log_score.index_fill(1, columns, -torch.inf))

    return restrict


def without_echo(vocabulary: Vocabulary) -> Restriction:
    """A restriction: no token next to an equal one ("the the")."""

    def restrict(state: State, prediction: Prediction) -> Prediction:
        order = state.z.argsort(dim=-1, stable=True)
        row = torch.nn.functional.pad(state.x.gather(1, order), (1, 1), value=vocabulary.mask)
        score = prediction.log_score.clone()
        for neighbour in (row[:, :-2], row[:, 2:]):
            token = torch.zeros_like(state.x).scatter(1, order, neighbour)[prediction.at][:, None]
            # A neighbouring [mask] or [pad] excludes nothing.
            keep = (token == vocabulary.mask) | (token == vocabulary.pad)
            score.scatter_(1, token, torch.where(keep, score.gather(1, token), -torch.inf))
        return dataclasses.replace(prediction, log_score=score)

    return restrict


def clamp_prompt(start: State) -> Projection:
    """A projection: prompt slots keep their tokens."""
    is_prompt = start.is_prompt
    return lambda state: dataclasses.replace(state, x=torch.where(is_prompt, start.x, state.x))


def stay(start: State) -> Projection:
    """A projection: slots keep their positions."""
    return lambda state: dataclasses.replace(state, z=start.z)


def keep_prompt_order(state: State) -> State:
    """A projection: prompt slots are sorted by position and keep a minimum distance."""
    return dataclasses.replace(state, z=sort_within(state.z, state.is_prompt, apart=_APART))


def keep_word_order(vocabulary: Vocabulary) -> Projection:
    """A projection: response slots with a token keep their initial order, as on the coupling's paths."""

    def project(state: State) -> State:
        words = ~state.is_prompt & (state.x != vocabulary.mask) & (state.x != vocabulary.pad)
        return dataclasses.replace(state, z=sort_within(state.z, words))

    return project


def sort_within(z: Float[Tensor, "B L"], member: Bool[Tensor, "B L"], apart: float = 0.0) -> Float[Tensor, "B L"]:
    """z with the values of the member slots sorted, at least `apart` from each other."""
    ascending = torch.where(member, z, torch.inf).sort(-1).values
    if apart:
        steps = apart * torch.arange(z.shape[1], device=z.device)
        ascending = (ascending - steps).cummax(-1).values + steps
    slots = (~member).int().argsort(dim=-1, stable=True)  # member slots first, in slot order
    return torch.where(member, torch.zeros_like(z).scatter(1, slots, ascending), z)


def keep_out_of_closed(is_open: Bool[Tensor, "B gaps"]) -> Projection:
    """A projection: response slots in a closed gap move to the border of the nearest open one.

    Requires prompt slots in order (`keep_prompt_order`). Rows without an open gap are unchanged.
    """

    def project(state: State) -> State:
        is_prompt = state.is_prompt
        gap = gap_of(state.z, is_prompt)
        inside = is_open.gather(1, gap) | is_prompt | ~is_open.any(-1, keepdim=True)
        n = is_open.shape[1]
        index = torch.arange(n, device=gap.device).expand_as(is_open)
        left = torch.where(is_open, index, -1).cummax(-1).values.gather(1, gap)  # nearest open gap at or before
        right = torch.where(is_open, index, n).flip(-1).cummin(-1).values.flip(-1).gather(1, gap)
        # Counted from 1, prompt slots g and g + 1 are the left and right borders of gap g.
        borders = _prompt_positions(state.z, is_prompt)
        left_end = borders.gather(1, (left + 1).clamp(0, n))  # right border of the gap on the left
        right_end = borders.gather(1, right.clamp(0, n))  # left border of the gap on the right
        inf = torch.full_like(state.z, torch.inf)
        go_left = (left >= 0) & ((right >= n) | (state.z - left_end <= right_end - state.z))
        target = torch.where(go_left, torch.nextafter(left_end, -inf), torch.nextafter(right_end, inf))
        return dataclasses.replace(state, z=torch.where(inside, state.z, target))

    return project


def keep_in_gaps(gap: Int[Tensor, "B L"]) -> Projection:
    """A projection: every response slot stays in its `gap`. Entries at prompt slots are ignored.

    Requires prompt slots in order and separated (`keep_prompt_order`).
    """

    def project(state: State) -> State:
        borders = _prompt_positions(state.z, state.is_prompt)
        inf = torch.full_like(state.z, torch.inf)
        low = torch.nextafter(borders.gather(1, gap), inf)
        high = torch.nextafter(borders.gather(1, gap + 1), -inf)
        return dataclasses.replace(state, z=torch.where(state.is_prompt, state.z, state.z.clamp(low, high)))

    return project


def _prompt_positions(z: Float[Tensor, "B L"], is_prompt: Bool[Tensor, "B L"]) -> Float[Tensor, "B borders"]:
    """Column i: the position of the i-th prompt slot, from 1; −∞ in column 0, +∞ beyond the last."""
    ascending = torch.where(is_prompt, z, torch.inf).sort(-1).values
    low = torch.full_like(ascending[:, :1], -torch.inf)
    return torch.cat([low, ascending, -low], -1)
