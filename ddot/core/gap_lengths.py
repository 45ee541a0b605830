"""The classes of gap lengths that the length head predicts: exact for short gaps, coarser for long ones."""

from functools import cache

import torch
from jaxtyping import Float, Int
from torch import Tensor

# Lower bound of each class: 0 … 15, then steps of 2, 4 and 8; the last class is open-ended.
LOWEST = (*range(16), *range(16, 32, 2), *range(32, 64, 4), *range(64, 129, 8))
CLASSES = len(LOWEST)


def length_class(gap_length: Int[Tensor, "..."]) -> Int[Tensor, "..."]:
    """The class of each length ≥ 0."""
    return torch.bucketize(gap_length, _bounds(gap_length.device), right=True)


@cache
def _bounds(device: torch.device) -> Int[Tensor, "bounds"]:
    with torch.inference_mode(False):
        return torch.tensor(LOWEST[1:], device=device)


def class_lengths(device: torch.device | str = "cpu") -> Float[Tensor, "classes"]:
    """The middle length of each class."""
    lowest = torch.tensor(LOWEST, dtype=torch.float32, device=device)
    width = torch.diff(lowest, append=lowest[-1:] + 8)
    return lowest + (width - 1) / 2
