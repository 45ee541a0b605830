"""Gaps between prompt tokens, in position space: which gap a slot lies in, and keeping slots out of closed ones.

A row with n prompt slots has n + 1 gaps: gap g lies after g prompt slots. Knows nothing about text.
"""

import dataclasses
from collections.abc import Callable
from functools import partial

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from ddot.records import AFTER, BEFORE, GLUED, OPEN, State

# Hints by which a prompt token closes the gap after it, and the one before it.
CLOSES_AFTER = (GLUED, BEFORE)
CLOSES_BEFORE = (GLUED, AFTER)


def gap_of(z: Float[Tensor, "B L"], is_prompt: Bool[Tensor, "B L"]) -> Int[Tensor, "B L"]:
    """How many prompt slots lie left of each slot (at the same place: counted when its slot comes first)."""
    slot = torch.arange(z.shape[1], device=z.device)
    before = (z[:, None, :] < z[:, :, None]) | ((z[:, None, :] == z[:, :, None]) & (slot[None, :] < slot[:, None]))
    return (before & is_prompt[:, None, :]).sum(-1)


def told_open(kind: Int[Tensor, "B L"]) -> Bool[Tensor, "B gaps"]:
    """Which gaps may hold text, from the hints of located prompts (L + 1 columns; those beyond the prompt are closed).

    Where nothing is told (UNKNOWN) both gaps beside the token are open.
    """
    B, L = kind.shape
    hint = kind - 1
    is_prompt = kind != OPEN
    closes_after, closes_before = (
        is_prompt & ((hint == first) | (hint == second)) for first, second in (CLOSES_AFTER, CLOSES_BEFORE)
    )
    order = is_prompt.cumsum(-1)  # of a prompt slot: its number, from 1
    count = order[:, -1:]
    is_open = torch.arange(L + 1, device=kind.device) <= count
    for closed, gap in ((closes_after, order), (closes_before, order - 1)):
        shut = torch.zeros(B, L + 1, dtype=torch.int32, device=kind.device)
        shut.scatter_add_(1, gap.clamp(min=0), closed.int())
        is_open = is_open & (shut == 0)
    return is_open


def keep_out_of_closed(is_open: Bool[Tensor, "B gaps"]) -> Callable[[State], State]:
    """A projection: open slots that lie in a closed gap go to the border of the nearest open one.

    Prompt slots must be in order (`keep_prompt_order` first). A row without any open gap is left alone: it has no
    place for text.
    """

    def project(state: State) -> State:
        is_prompt = state.kind != OPEN
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


def keep_in_gaps(gap: Int[Tensor, "B L"]) -> Callable[[State], State]:
    """A projection: every open slot lies in the gap that `gap` says. Entries at prompt slots are not read.

    Prompt slots must be in order and apart (`keep_prompt_order` first).
    """
    return partial(_keep_in_gaps, gap)


def _keep_in_gaps(gap: Int[Tensor, "B L"], state: State) -> State:
    is_prompt = state.kind != OPEN
    borders = _prompt_positions(state.z, is_prompt)
    inf = torch.full_like(state.z, torch.inf)
    low = torch.nextafter(borders.gather(1, gap), inf)
    high = torch.nextafter(borders.gather(1, gap + 1), -inf)
    return dataclasses.replace(state, z=torch.where(is_prompt, state.z, state.z.clamp(low, high)))


def _prompt_positions(z: Float[Tensor, "B L"], is_prompt: Bool[Tensor, "B L"]) -> Float[Tensor, "B borders"]:
    """Column i: the position of prompt slot number i, from 1 (columns 0 and beyond the last: −∞ and +∞)."""
    ascending = torch.where(is_prompt, z, torch.inf).sort(-1).values
    low = torch.full_like(ascending[:, :1], -torch.inf)
    return torch.cat([low, ascending, -low], -1)
