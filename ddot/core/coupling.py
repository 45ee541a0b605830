"""Optimal transport within a sequence: the terminal position that each token comes from.

Prompt: sort both ends and pair by rank (eq. prompt-ot). Response: minimum-cost injective match into the non-prompt
pool (eq. response-ot), exact, in linear time after sorting. Unmatched slots are the pads. Knows nothing about tokens or
networks.
"""

from typing import Protocol, runtime_checkable

import numpy as np
from jaxtyping import Float, Int

from ddot.core.positions import pad_positions, random_terminal
from ddot.core.rng import fold, generator, row_keys
from ddot.core.shapes import Flags, Keys, Positions


def match(targets: Float[np.ndarray, "n"], pool: Float[np.ndarray, "m"]) -> Int[np.ndarray, "n"]:
    """Index into `pool` for each target, increasing, minimising Σ|target − pool[index]| (eq. response-ot).

    Both arrays must be ascending, with n ≤ m. Exact, O(n + m).
    """
    targets, pool = np.asarray(targets, np.float64), np.asarray(pool, np.float64)
    for name, values in (("targets", targets), ("pool", pool)):
        if values.ndim != 1:
            raise ValueError(f"match: {name} have {values.ndim} dimensions; pass a one-dimensional array")
    n, m = len(targets), len(pool)
    if n > m:
        raise ValueError(f"match: {n} targets do not fit into a pool of {m}; give at least {n} pool positions")
    for name, values in (("targets", targets), ("pool", pool)):
        if not np.isfinite(values).all():
            raise ValueError(f"match: {name} hold NaN or infinite positions; remove them")
        if (np.diff(values) < 0).any():
            raise ValueError(f"match: {name} are not ascending; pass np.sort({name})")
    from ddot.core.coupling_kernels import match_sorted

    return match_sorted(np.append(targets, 1e30), n, pool, m)


@runtime_checkable
class Coupling(Protocol):
    """Assigns every slot a clean and a terminal position."""

    def __call__(
        self, is_prompt: Flags, n_real: Int[np.ndarray, "B"], seed: int | Keys, z_T: Positions | None = None
    ) -> tuple[Positions, Positions]: ...


def couple(
    is_prompt: Flags, n_real: Int[np.ndarray, "B"], seed: int | Keys, z_T: Positions | None = None
) -> tuple[Positions, Positions]:
    """(z_0, z_T) of every slot, coupled by optimal transport within each set (eq. prompt-ot, response-ot, pad-paths).

    Row b has its real tokens in slots 0 … n_real[b]−1, in text order, followed by pads. `seed` is one number (row b
    draws from (seed, b)) or a key per row. In a given `z_T`, entries at prompt slots are the prompt's set, the others
    the pool. By default z_T ~ U(-1, 1)^L.
    """
    is_prompt, n_real = np.asarray(is_prompt, bool), np.asarray(n_real)
    keys = _checked(is_prompt, n_real, seed, z_T)
    given = np.empty((0, 0), np.float32) if z_T is None else z_T
    from ddot.core.coupling_kernels import couple_rows

    return couple_rows(is_prompt, n_real.astype(np.int64), keys, given, z_T is not None)


def couple_independently(
    is_prompt: Flags, n_real: Int[np.ndarray, "B"], seed: int | Keys, z_T: Positions | None = None
) -> tuple[Positions, Positions]:
    """The ablation "No OT": like `couple`, but each set is paired with its terminal positions at random."""
    keys = _checked(is_prompt, n_real, seed, z_T)
    if z_T is None:
        z_T = random_terminal(is_prompt, keys)
    z_0, _ = couple(is_prompt, n_real, keys, z_T)
    z_T = z_T.copy()
    for row, key in enumerate(fold(keys, 0x1DE9).tolist()):
        rng = generator(key)
        for members in (np.flatnonzero(is_prompt[row]), np.flatnonzero(~is_prompt[row])):
            z_T[row, members] = z_T[row, rng.permutation(members)]
        z_0[row, n_real[row] :] = pad_positions(z_T[row, n_real[row] :], int(n_real[row]), is_prompt.shape[1])
    return z_0, z_T


def _checked(is_prompt: np.ndarray, n_real: np.ndarray, seed: int | np.ndarray, z_T: np.ndarray | None) -> Keys:
    if is_prompt.ndim != 2:
        raise ValueError(f"couple: is_prompt has {is_prompt.ndim} dimensions; pass (rows, slots)")
    B, L = is_prompt.shape
    if n_real.shape != (B,):
        raise ValueError(f"couple: n_real has shape {n_real.shape}; with {B} rows in is_prompt it must be ({B},)")
    if B and not (n_real.min() >= 0 and n_real.max() <= L):
        raise ValueError(f"couple: n_real runs from {n_real.min()} to {n_real.max()}; rows have {L} slots; raise L")
    if (is_prompt & (np.arange(L) >= n_real[:, None])).any():
        raise ValueError("couple: a prompt slot lies beyond n_real; real tokens come first, then pads")
    if z_T is not None:
        if z_T.shape != (B, L):
            raise ValueError(f"couple: z_T has shape {z_T.shape}, is_prompt has {(B, L)}; pass one position per slot")
        if not np.isfinite(z_T).all():
            raise ValueError("couple: z_T holds NaN or infinite positions; leave it out to have it drawn")
    return seed if isinstance(seed, np.ndarray) else row_keys(int(seed), B)
