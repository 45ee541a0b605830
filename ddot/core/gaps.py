"""Gaps between prompt tokens, which are open, what hints say of them, and which gap a slot lies in.

A row with n prompt slots has n + 1 gaps: gap g lies after g prompt slots. Knows nothing about text.
"""

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from ddot.core.records import AFTER, BEFORE, BOTH, GLUED, NOT_PROMPT, PAD, PROMPT, UNKNOWN_LENGTH, Slots

# Hints by which a prompt token closes the gap after it, and the one before it.
CLOSES_AFTER = (GLUED, BEFORE)
CLOSES_BEFORE = (GLUED, AFTER)


def gap_of(z: Float[Tensor, "B L"], is_prompt: Bool[Tensor, "B L"]) -> Int[Tensor, "B L"]:
    """How many prompt slots lie left of each slot (at the same place: counted when its slot comes first)."""
    slot = torch.arange(z.shape[1], device=z.device)
    before = (z[:, None, :] < z[:, :, None]) | ((z[:, None, :] == z[:, :, None]) & (slot[None, :] < slot[:, None]))
    return (before & is_prompt[:, None, :]).sum(-1)


def told_open(hint: Int[Tensor, "B L"]) -> Bool[Tensor, "B gaps"]:
    """Which gaps may hold text, from the hints of located prompts (L + 1 columns; those beyond the prompt are closed).

    Where nothing is told (UNKNOWN) both gaps beside the token are open.
    """
    B, L = hint.shape
    is_prompt = hint != NOT_PROMPT
    closes_after, closes_before = (
        (hint == first) | (hint == second) for first, second in (CLOSES_AFTER, CLOSES_BEFORE)
    )
    order = is_prompt.cumsum(-1)  # of a prompt slot: its number, from 1
    count = order[:, -1:]
    is_open = torch.arange(L + 1, device=hint.device) <= count
    for closed, gap in ((closes_after, order), (closes_before, order - 1)):
        shut = torch.zeros(B, L + 1, dtype=torch.int32, device=hint.device)
        shut.scatter_add_(1, gap.clamp(min=0), closed.int())
        is_open = is_open & (shut == 0)
    return is_open


def open_gaps(is_prompt: Bool[np.ndarray, "n"]) -> Bool[np.ndarray, "gaps"]:
    """For each of n + 1 gaps (before token i; after the last): is it beside a missing token?"""
    missing = np.concatenate([[False], ~is_prompt, [False]])
    return missing[:-1] | missing[1:]


def gap_hints(is_prompt: Bool[np.ndarray, "n"], is_open: Bool[np.ndarray, "gaps"]) -> Int[np.ndarray, "n"]:
    """Hints of a located text: GLUED, BEFORE, AFTER or BOTH at prompt tokens, NOT_PROMPT elsewhere."""
    code = np.array([[GLUED, AFTER], [BEFORE, BOTH]])[is_open[:-1].astype(int), is_open[1:].astype(int)]
    return np.where(is_prompt, code, NOT_PROMPT)


def missing_after(is_prompt: Bool[np.ndarray, "n"]) -> Int[np.ndarray, "n"]:
    """How many tokens are missing between each prompt token and the next; UNKNOWN_LENGTH at the missing ones."""
    given = np.flatnonzero(is_prompt)
    gap_length = np.full(len(is_prompt), UNKNOWN_LENGTH)
    gap_length[given] = np.diff(given, append=len(is_prompt)) - 1
    return gap_length


def gaps_after(slots: Slots) -> Int[Tensor, "B L"]:
    """How many response slots lie between each prompt slot and the next prompt slot (slots are in text order)."""
    L = slots.kind.shape[1]
    real = (slots.kind != PAD).sum(-1, keepdim=True)
    index = torch.arange(L, device=slots.kind.device).expand_as(slots.kind)
    # The next prompt slot after i, by a running minimum from the right; the end of the text where there is none.
    later = torch.where(slots.kind == PROMPT, index, L).flip(1).cummin(1).values.flip(1)
    after = torch.cat([later[:, 1:], later.new_full((len(later), 1), L)], 1)
    return torch.minimum(after, real) - index - 1
