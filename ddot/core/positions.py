"""Positions of slots: the clean grid, terminal positions, and the straight paths between them.

Positions lie in [-1, 1]; `Stretched` may exceed it slightly.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float, Float32, Int
from torch import Tensor

from ddot.core.rng import Weighted, fold, uniform
from ddot.core.shapes import Flags, Keys, Positions


def grid(n: int) -> Float32[np.ndarray, "n"]:
    """n evenly spaced points in [-1, 1]; 0 when n = 1 (eq. term_pos)."""
    return ((2.0 * np.arange(n) - (n - 1)) / max(1, n - 1)).astype(np.float32)


def clean_positions(n_real: int, L: int) -> Float32[np.ndarray, "n_real"]:
    """z_0 of the real tokens: evenly spaced in [-ℓ/L, ℓ/L] (eq. init_pos)."""
    return (n_real / L * grid(n_real).astype(np.float64)).astype(np.float32)


def pad_positions(z_T_pad: Float[np.ndarray, "pads"], n_real: int, L: int) -> Float[np.ndarray, "pads"]:
    """z_0 of the pads: their terminal positions under the same scaling (eq. pad-paths)."""
    return z_T_pad * (n_real / L)


def interpolate(z_0: Float[Tensor, "B L"], z_T: Float[Tensor, "B L"], t: Float[Tensor, "B"]) -> Float[Tensor, "B L"]:
    """z_t = (1−t) z_0 + t z_T (eq. linear-interp, train-paths)."""
    return torch.lerp(z_0, z_T, t[:, None])


# Draws z_T from (is_prompt, keys): entries at prompt slots are the prompt's set, the others the pool for response and
# pads.
Terminal = Callable[[Flags, Keys], Positions]


def _in_its_set(is_prompt: Flags) -> tuple[Int[np.ndarray, "B L"], Int[np.ndarray, "B L"]]:
    """(index of each slot within its set, size of that set)."""
    before = is_prompt.cumsum(1)
    number = np.where(is_prompt, before - 1, np.arange(is_prompt.shape[1]) - before)
    size = np.where(is_prompt, before[:, -1:], is_prompt.shape[1] - before[:, -1:])
    return number, size


def random_terminal(is_prompt: Flags, keys: Keys) -> Positions:
    """DDOT-R: z_T ~ U(-1, 1)^L, split at random into the two sets, each sorted over its slots."""
    points = 2 * uniform(keys, is_prompt.shape[1]) - 1
    number, _ = _in_its_set(is_prompt)
    prompt, pool = (np.sort(np.where(chosen, points, np.inf), axis=1) for chosen in (is_prompt, ~is_prompt))
    z_T = np.where(is_prompt, np.take_along_axis(prompt, number, 1), np.take_along_axis(pool, number, 1))
    return z_T.astype(np.float32)


def grid_terminal(is_prompt: Flags, keys: Keys) -> Positions:
    """DDOT-U: an even grid over [-1, 1] for each of the two sets (eq. term_pos). Draws nothing."""
    number, size = _in_its_set(is_prompt)
    return ((2.0 * number - (size - 1)) / np.maximum(1, size - 1)).astype(np.float32)


@dataclass(frozen=True)
class JitteredGrid:
    """The grid with every point jittered by up to `spread` spacings: between DDOT-U and DDOT-R."""

    spread: float

    def __post_init__(self) -> None:
        if not 0 <= self.spread <= 0.5:
            raise ValueError(
                f"JitteredGrid: spread must lie between 0 and 0.5, which keeps the order; got {self.spread}"
            )

    def __call__(self, is_prompt: Flags, keys: Keys) -> Positions:
        spacing = 2 / np.maximum(1, _in_its_set(is_prompt)[1] - 1)
        jitter = (2 * uniform(keys, is_prompt.shape[1]) - 1) * self.spread * spacing
        return np.clip(grid_terminal(is_prompt, keys) + jitter, -1, 1).astype(np.float32)


@dataclass(frozen=True)
class AsText:
    """DDOT-T: another terminal with the prompt contracted; on a grid, to its clean positions (eq. init_pos).

    The network first reads the prompt as contiguous text, which then opens where words are missing.
    """

    terminal: Terminal = grid_terminal

    def __call__(self, is_prompt: Flags, keys: Keys) -> Positions:
        z, size = self.terminal(is_prompt, keys), _in_its_set(is_prompt)[1]
        return np.where(is_prompt, z * size / is_prompt.shape[1], z).astype(np.float32)


@dataclass(frozen=True)
class Stretched:
    """Another terminal scaled by a factor from U(1 − by, 1 + by), drawn per row.

    If all rows had the same range at t = 1, the range at t < 1 would reveal the length of the text.
    """

    terminal: Terminal
    by: float

    def __post_init__(self) -> None:
        if not 0 <= self.by < 1:
            raise ValueError(f"Stretched: by must be at least 0 and below 1, got {self.by}")

    def __call__(self, is_prompt: Flags, keys: Keys) -> Positions:
        width = 1 + (2 * uniform(fold(keys, 0x571D), 1) - 1) * self.by
        return (self.terminal(is_prompt, keys) * width).astype(np.float32)


class Mixture(Weighted[Terminal]):
    """Each row draws z_T from one of several terminals, chosen by weight."""

    def __call__(self, is_prompt: Flags, keys: Keys) -> Positions:
        z_T = np.empty(is_prompt.shape, np.float32)
        chosen = self.index(uniform(fold(keys, 0xC401CE), 1)[:, 0])
        for index, terminal in enumerate(self.options):
            rows = chosen == index
            z_T[rows] = terminal(is_prompt[rows], keys[rows])
        return z_T


def starts_of(terminal: Terminal) -> set[str]:
    """The kinds of terminal positions that a terminal may draw: random, grid, text."""
    if isinstance(terminal, Mixture):
        return {kind for option in terminal.options for kind in starts_of(option)}
    if isinstance(terminal, Stretched):
        return starts_of(terminal.terminal)
    return {"text" if isinstance(terminal, AsText) else "random" if terminal is random_terminal else "grid"}
