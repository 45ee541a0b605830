"""Where slots sit: the clean grid, the terminal positions, the straight paths between them.

Positions live in [-1, 1]. Knows nothing about tokens or networks.
"""

from typing import Protocol, runtime_checkable

import numpy as np
import torch
from jaxtyping import Bool, Float, Float32, UInt64
from torch import Tensor

from ddot.chance import Weighted, fold, random_bits, uniform
from ddot.kernel import kernel

POOL = np.uint64(0x5DEECE66D)  # xor-ed into a row's key: the non-prompt pool is drawn apart from the prompt's set
_SQRT2 = 2**0.5
_LOG2 = float(np.log(2))


@kernel
def grid_position(i: int, n: int) -> float:
    """Point i of n evenly spaced in [-1, 1]; 0 when n = 1 (eq. term_pos)."""
    return (2.0 * i - (n - 1.0)) / max(1.0, n - 1.0)


def grid(n: int) -> Float32[np.ndarray, "n"]:
    """n evenly spaced points in [-1, 1] (eq. term_pos)."""
    return np.array([grid_position(i, n) for i in range(n)], np.float32)


def clean_positions(n_real: int, L: int) -> Float32[np.ndarray, "n_real"]:
    """z_0 of the real tokens: evenly spaced in [-ℓ/L, ℓ/L] (eq. init_pos)."""
    return (n_real / L * grid(n_real).astype(np.float64)).astype(np.float32)


def pad_positions(z_T_pad: Float[np.ndarray, "pads"], n_real: int, L: int) -> Float[np.ndarray, "pads"]:
    """z_0 of the pads: their terminal positions under the same scaling (eq. pad-paths)."""
    return z_T_pad * (n_real / L)


def interpolate(z_0: Float[Tensor, "B L"], z_T: Float[Tensor, "B L"], t: Float[Tensor, "B"]) -> Float[Tensor, "B L"]:
    """z_t = (1−t) z_0 + t z_T (eq. linear-interp, train-paths)."""
    return torch.lerp(z_0, z_T, t[:, None])


@runtime_checkable
class Terminal(Protocol):
    """Draws z_T. Entries at prompt slots form the prompt's set, the others the non-prompt pool."""

    def __call__(
        self, is_prompt: Bool[np.ndarray, "B L"], keys: UInt64[np.ndarray, "B"]
    ) -> Float32[np.ndarray, "B L"]: ...


@kernel
def sorted_uniform(out: np.ndarray, n: int, key: int) -> None:
    """Fill out[:n] with n uniform points of [-1, 1], ascending, without a sort. out must hold n + 1 float64.

    Normalised cumulative sums of n + 1 exponential gaps have the law of sorted uniforms. The logarithm is the atanh
    series on the mantissa (error below 1e-11): unlike np.log the compiler turns it into vector code, 3 times faster.
    """
    bits = out.view(np.uint64)
    for i in range(n + 1):
        out[i] = np.float64(np.int64(random_bits(key, i) >> np.uint64(12))) + 0.5  # uniform in (0, 2^52)
    for i in range(n + 1):
        exponent = np.int64(bits[i] >> np.uint64(52)) - 1023
        bits[i] = (bits[i] & np.uint64(0xFFFFFFFFFFFFF)) | np.uint64(0x3FF0000000000000)
        s = (out[i] - _SQRT2) / (out[i] + _SQRT2)
        s2 = s * s
        series = 1 + s2 * (1 / 3 + s2 * (1 / 5 + s2 * (1 / 7 + s2 * (1 / 9 + s2 * (1 / 11 + s2 / 13)))))
        out[i] = (51.5 - exponent) * _LOG2 - 2 * s * series  # −log(uniform / 2^52)
    total = 0.0
    for i in range(n + 1):
        total += out[i]
        out[i] = total
    scale = 2.0 / total
    for i in range(n):
        out[i] = out[i] * scale - 1.0


@kernel
def _place_sorted(is_prompt: np.ndarray, keys: np.ndarray, on_grid: bool) -> np.ndarray:
    B, L = is_prompt.shape
    z_T = np.empty((B, L), np.float32)
    prompt = np.empty(L + 1)
    pool = np.empty(L + 1)
    for row in range(B):
        n_prompt = 0
        for i in range(L):
            n_prompt += is_prompt[row, i]
        if on_grid:
            for i in range(n_prompt):
                prompt[i] = grid_position(i, n_prompt)
            for i in range(L - n_prompt):
                pool[i] = grid_position(i, L - n_prompt)
        else:
            sorted_uniform(prompt, n_prompt, keys[row])
            sorted_uniform(pool, L - n_prompt, keys[row] ^ POOL)
        p = 0
        for i in range(L):
            z_T[row, i] = prompt[p] if is_prompt[row, i] else pool[i - p]
            p += is_prompt[row, i]
    return z_T


def random_terminal(is_prompt: Bool[np.ndarray, "B L"], keys: UInt64[np.ndarray, "B"]) -> Float32[np.ndarray, "B L"]:
    """DDOT-R: z_T ~ U(-1, 1)^L, split at random into the two sets; each set ascending over its slots."""
    return _place_sorted(is_prompt, keys, False)


def grid_terminal(is_prompt: Bool[np.ndarray, "B L"], keys: UInt64[np.ndarray, "B"]) -> Float32[np.ndarray, "B L"]:
    """DDOT-U: an even grid over [-1, 1] for each of the two sets (eq. term_pos). Draws nothing."""
    return _place_sorted(is_prompt, keys, True)


class JitteredGrid:
    """The grid with every point moved by up to `spread` of a spacing either way: between DDOT-U and DDOT-R."""

    def __init__(self, spread: float):
        if not 0 <= spread <= 0.5:
            raise ValueError(f"JitteredGrid wants a spread between 0 and 0.5 spacings (order is kept), got {spread}")
        self.spread = spread

    def __call__(self, is_prompt: Bool[np.ndarray, "B L"], keys: UInt64[np.ndarray, "B"]) -> Float32[np.ndarray, "B L"]:
        n_prompt = is_prompt.sum(1, keepdims=True)
        spacing = 2 / np.maximum(1, np.where(is_prompt, n_prompt, is_prompt.shape[1] - n_prompt) - 1)
        moved = (2 * uniform(keys, is_prompt.shape[1]) - 1) * self.spread * spacing
        return np.clip(grid_terminal(is_prompt, keys) + moved, -1, 1).astype(np.float32)


class Mixture:
    """Each row takes its z_T from one of several terminals, chosen with the given weights."""

    def __init__(self, *weighted: tuple[float, Terminal]):
        self.terminals = Weighted(*weighted)

    def __call__(self, is_prompt: Bool[np.ndarray, "B L"], keys: UInt64[np.ndarray, "B"]) -> Float32[np.ndarray, "B L"]:
        z_T = np.empty(is_prompt.shape, np.float32)
        chosen = self.terminals.index(uniform(fold(keys, 0xC401CE), 1)[:, 0])
        for index, terminal in enumerate(self.terminals.options):
            rows = chosen == index
            z_T[rows] = terminal(is_prompt[rows], keys[rows])
        return z_T
