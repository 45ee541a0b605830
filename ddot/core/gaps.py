"""Gaps between prompt tokens: which are open, what hints say about them, which one a slot lies in.

A row with n prompt slots has n + 1 gaps; gap g has g prompt slots before it.
"""

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from ddot.core.codes import AFTER, BEFORE, BOTH, GLUED, NOT_PROMPT, PAD, PROMPT, UNKNOWN_LENGTH
from ddot.core.records import Slots


def closes_after(hint: Int[Tensor, "B L"]) -> Bool[Tensor, "B L"]:
    """Slots whose hint says that no text follows."""
    return (hint == GLUED) | (hint == BEFORE)


def closes_before(hint: Int[Tensor, "B L"]) -> Bool[Tensor, "B L"]:
    """Slots whose hint says that no text precedes."""
    return (hint == GLUED) | (hint == AFTER)


def gap_of(z: Float[Tensor, "B L"], is_prompt: Bool[Tensor, "B L"]) -> Int[Tensor, "B L"]:
    """Number of prompt slots left of each slot; ties are broken by slot index."""
    slot = torch.arange(z.shape[1], device=z.device)
    before = (z[:, None, :] < z[:, :, None]) | ((z[:, None, :] == z[:, :, None]) & (slot[None, :] < slot[:, None]))
    return (before & is_prompt[:, None, :]).sum(-1)


def gaps_open_by_hint(hint: Int[Tensor, "B L"]) -> Bool[Tensor, "B gaps"]:
    """Which gaps may hold text according to the hints: L + 1 columns, closed beyond the last gap.

    A token with the hint UNKNOWN leaves both gaps next to it open.
    """
    order = (hint != NOT_PROMPT).cumsum(-1)  # number of a prompt slot, from 1
    closing = torch.zeros_like(hint[:, :1]).repeat(1, hint.shape[1] + 1)  # number of hints that close each gap
    closing.scatter_add_(1, order, closes_after(hint).to(hint.dtype))
    closing.scatter_add_(1, (order - 1).clamp(min=0), closes_before(hint).to(hint.dtype))
    gap = torch.arange(hint.shape[1] + 1, device=hint.device)
    return (gap <= order[:, -1:]) & (closing == 0)


def open_gaps(is_prompt: Bool[np.ndarray, "n"]) -> Bool[np.ndarray, "gaps"]:
    """Whether each of n + 1 gaps (before token i; after the last) is next to a missing token."""
    missing = np.concatenate([[False], ~is_prompt, [False]])
    return missing[:-1] | missing[1:]


def gap_hints(is_prompt: Bool[np.ndarray, "n"], is_open: Bool[np.ndarray, "gaps"]) -> Int[np.ndarray, "n"]:
    """Hints of a located text: GLUED, BEFORE, AFTER or BOTH at prompt tokens, NOT_PROMPT elsewhere."""
    code = np.array([[GLUED, AFTER], [BEFORE, BOTH]])[is_open[:-1].astype(int), is_open[1:].astype(int)]
    return np.where(is_prompt, code, NOT_PROMPT)


def missing_after(is_prompt: Bool[np.ndarray, "n"]) -> Int[np.ndarray, "n"]:
    """Number of tokens missing between each prompt token and the next; UNKNOWN_LENGTH at missing tokens."""
    given = np.flatnonzero(is_prompt)
    gap_length = np.full(len(is_prompt), UNKNOWN_LENGTH)
    gap_length[given] = np.diff(given, append=len(is_prompt)) - 1
    return gap_length


def gaps_after(slots: Slots) -> Int[Tensor, "B L"]:
    """Number of response slots between each prompt slot and the next (slots are in text order)."""
    L = slots.kind.shape[1]
    real = (slots.kind != PAD).sum(-1, keepdim=True)
    index = torch.arange(L, device=slots.kind.device).expand_as(slots.kind)
    # Running minimum from the right: the next prompt slot, or the end of the text.
    later = torch.where(slots.kind == PROMPT, index, L).flip(1).cummin(1).values.flip(1)
    after = torch.cat([later[:, 1:], later.new_full((len(later), 1), L)], 1)
    return torch.minimum(after, real) - index - 1
