"""`ddot bench coupling`: the linear-time coupling against the paper's dynamic program and general solvers.

Every solver does the whole job for each row (draw z_T, split it, match, lay out z_0 and z_T) on one core, timed in CPU
time of its thread.
"""

import time
from collections.abc import Callable, Iterable
from importlib.util import find_spec
from typing import Any

import numpy as np
from jaxtyping import Float, Int

from ddot.core.coupling import couple
from ddot.core.coupling_kernels import draw_sets, grid_position, kernel
from ddot.core.positions import random_terminal
from ddot.core.rng import row_keys


@kernel
def _align(a: np.ndarray, n: int, b: np.ndarray, m: int, pi: np.ndarray, taken: np.ndarray, row: np.ndarray) -> None:
    """The paper's global alignment: D(i, j) = min(D(i, j−1), D(i−1, j−1) + |a_i − b_j|), traced back.

    Costs take one row (O(m) memory); a flag per cell keeps the choice for the trace.
    """
    for j in range(m + 1):
        row[j] = 0.0
    for i in range(1, n + 1):
        diagonal = row[i - 1]
        best = np.inf
        for j in range(i, m + 1):
            cost = diagonal + abs(a[i - 1] - b[j - 1])
            diagonal = row[j]
            take = cost <= best
            taken[i - 1, j - 1] = take
            best = cost if take else best
            row[j] = best
    j = m
    for i in range(n, 0, -1):
        while not taken[i - 1, j - 1]:
            j -= 1
        j -= 1
        pi[i - 1] = j


def align(targets: Float[np.ndarray, "n"], pool: Float[np.ndarray, "m"]) -> Int[np.ndarray, "n"]:
    """`ddot.coupling.match` by the paper's O(n·m) dynamic program."""
    n, m = len(targets), len(pool)
    pi = np.empty(n, np.int64)
    _align(targets, n, pool, m, pi, np.empty((n, m), np.bool_), np.empty(m + 1))
    return pi


@kernel
def _couple_by_alignment(is_prompt: np.ndarray, n_real: np.ndarray, keys: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    B, L = is_prompt.shape
    z_0 = np.empty((B, L), np.float32)
    z_T = np.empty((B, L), np.float32)
    prompt, pool, target, row_cost = np.empty(L + 1), np.empty(L + 1), np.empty(L + 1), np.empty(L + 1)
    pi = np.empty(L + 1, np.int64)
    slot_of = np.empty(L + 1, np.int64)
    taken = np.empty((L, L), np.bool_)
    for row in range(B):
        real = n_real[row]
        n_prompt = 0
        for i in range(real):
            n_prompt += is_prompt[row, i]
        draw_sets(prompt, n_prompt, pool, L - n_prompt, keys[row])
        scale = real / L
        p = 0
        for i in range(real):
            a = grid_position(i, real)
            z_0[row, i] = scale * a
            z_T[row, i] = prompt[p]
            target[i - p] = a
            slot_of[i - p] = i
            p += is_prompt[row, i]
        r = real - n_prompt
        _align(target, r, pool, L - n_prompt, pi, taken, row_cost)
        pi[r] = L
        pad, k = real, 0
        for j in range(L - n_prompt):
            chosen = pi[k] == j
            slot = slot_of[k] if chosen else pad
            z_T[row, slot] = pool[j]
            z_0[row, slot] = scale * (target[k] if chosen else pool[j])
            k += chosen
            pad += 1 - chosen
    return z_0, z_T


def _couple_with(solve: Callable[[np.ndarray, np.ndarray], np.ndarray]) -> Callable[..., None]:
    """The whole job in numpy, with another solver of (targets, pool)."""

    def run(is_prompt: np.ndarray, n_real: np.ndarray, keys: np.ndarray) -> None:
        drawn = random_terminal(is_prompt, keys)
        L = is_prompt.shape[1]
        for row in range(len(is_prompt)):
            real = n_real[row]
            z = np.linspace(-1, 1, real)
            response = np.flatnonzero(~is_prompt[row, :real])
            pool = drawn[row, ~is_prompt[row]].astype(np.float64)
            chosen = solve(z[response], pool)
            z_T = drawn[row]
            z_T[response] = pool[chosen]
            z_T[real:] = np.delete(pool, chosen)
            np.concatenate([z * (real / L), z_T[real:] * (real / L)])

    return run


def _scipy(targets: np.ndarray, pool: np.ndarray) -> np.ndarray:
    from scipy.optimize import linear_sum_assignment

    return linear_sum_assignment(np.abs(targets[:, None] - pool[None, :]))[1]


def _pot(targets: np.ndarray, pool: np.ndarray) -> np.ndarray:
    import ot

    return np.sort(ot.partial.partial_wasserstein_1d(targets, pool)[1][: len(targets)])


def _sort_alone(is_prompt: np.ndarray, n_real: np.ndarray, keys: np.ndarray) -> None:
    np.random.default_rng(0).uniform(-1, 1, is_prompt.shape).astype(np.float32).sort(axis=1)


def contenders() -> dict[str, Callable[..., Any]]:
    """Name → function of (is_prompt, n_real, keys); solvers that are not installed are omitted."""
    solvers = {"scipy": ("scipy", _scipy), "pot": ("ot", _pot)}
    installed = {name: _couple_with(solve) for name, (package, solve) in solvers.items() if find_spec(package)}
    return {"ddot": couple, "dp": _couple_by_alignment, **installed, "sort": _sort_alone}


def rows_like_training(L: int, rows: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(is_prompt, n_real, keys): lengths from L/4 to L; each token is a prompt with probability 1/2."""
    rng = np.random.default_rng(seed)
    n_real = rng.integers(L // 4, L + 1, rows)
    is_prompt = (rng.random((rows, L)) < 0.5) & (np.arange(L) < n_real[:, None])
    return is_prompt, n_real, row_keys(seed, rows)


def _seconds(work: Callable[..., Any], L: int, seconds: float) -> float:
    """CPU seconds per slot: the best of five rounds that take about `seconds` in total."""

    def once() -> float:
        start = time.thread_time()
        work(*batch)
        return time.thread_time() - start

    rows = 1
    batch = rows_like_training(L, rows)
    while (took := once()) <= seconds / 20 and rows * L <= 2_000_000:
        rows *= 4
        batch = rows_like_training(L, rows)
    return min(took, *(once() for _ in range(4))) / (rows * L)


def measure(lengths: Iterable[int] = (64, 128, 1024), seconds: float = 1.0) -> list[dict[str, Any]]:
    """One row for each (contender, L): million slots per second, and how many times faster ours is."""
    rows = []
    for L in lengths:
        ours = 0.0
        for name, work in contenders().items():
            work(*rows_like_training(L, 2))  # compile or import
            cost = _seconds(work, L, seconds)
            ours = ours or cost  # the first contender
            row = {"contender": name, "L": L, "million_slots_per_second": 1e-6 / cost, "ddot_is_faster": cost / ours}
            rows.append(row)
    return rows
