"""The coupling's inner loops, compiled with numba.

`coupling` imports them on first use: numba takes most of a second to load, and infilling needs no coupling.
"""

import inspect
from collections.abc import Callable
from typing import Any

import numpy as np
from numba import njit

_BIG = 1e30  # +∞ among positions of magnitude 1; sums of it stay finite
_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_POOL = np.uint64(0x5DEECE66D)  # XORed into a row's key, so that the pool is independent of the prompt's set
_SQRT2 = 2**0.5
_LOG2 = float(np.log(2))


def kernel(function: Callable[..., Any]) -> Callable[..., Any]:
    """Compile with numba: cached on disk, releases the GIL, no thread pool (safe in forked and spawned workers).

    Division by zero gives inf instead of raising, so that loops with divisions can be vectorised. `unwrap` removes the
    shape checks that tests wrap around every function.
    """
    return njit(cache=True, nogil=True, error_model="numpy", fastmath={"contract", "reassoc"})(inspect.unwrap(function))


@kernel
def grid_position(i: int, n: int) -> float:
    """Point i of n evenly spaced in [-1, 1]; 0 when n = 1 (eq. term_pos)."""
    return (2.0 * i - (n - 1.0)) / max(1.0, n - 1.0)


@kernel
def sorted_uniform(out: np.ndarray, n: int, key: int) -> None:
    """Fill out[:n] with n uniform points of [-1, 1], ascending, without a sort. out must hold n + 1 float64.

    Normalised cumulative sums of n + 1 exponential gaps are distributed as sorted uniforms. The logarithm is the atanh
    series on the mantissa (error below 1e-11): unlike np.log it vectorises, 3 times faster.
    """
    bits = out.view(np.uint64)
    for i in range(n + 1):
        x = np.uint64(key) + np.uint64(i + 1) * _GOLDEN  # as in `rng.mix`
        x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        x = x ^ (x >> np.uint64(31))
        out[i] = np.float64(np.int64(x >> np.uint64(12))) + 0.5  # uniform in (0, 2^52)
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
def draw_sets(prompt: np.ndarray, n_prompt: int, pool: np.ndarray, n_pool: int, key: int) -> None:
    """z_T ~ U(-1, 1)^L for one row, split at random into the prompt's set and the pool, each ascending."""
    sorted_uniform(prompt, n_prompt, key)
    sorted_uniform(pool, n_pool, np.uint64(key) ^ _POOL)


@kernel
def _sweep(a: np.ndarray, n: int, b: np.ndarray, m: int, left: np.ndarray, right: np.ndarray, q: np.ndarray) -> None:
    """q[:m] ← for each pool point, the largest number of unplaced targets with which it stays unused.

    Sweep the merged points from left to right with F = targets seen − pool points used. V(F), the minimum cost of a
    prefix that ends with F, stays convex. Its slopes at F < 0 are the stack `left`, those at F ≥ 0 the deque
    `right`; both are stored without the sweep coordinate x, which shifts all of them equally. a[n] must be +BIG.
    """
    # Unsigned indices avoid numba's wrap-around test on every access, a fifth of the sweep's time.
    one = np.uint64(1)
    top, head, tail, i = np.uint64(n), np.uint64(0), np.uint64(0), np.uint64(0)
    for k in range(n):
        left[k] = -_BIG  # left[:top] is the stack
    newest = _BIG  # of the deque right[head:tail], its smallest; BIG when it is empty
    target = a[i]
    for k in range(m):
        j = np.uint64(k)
        x = b[j]
        while target <= x:
            top -= one
            newest = left[top] - 2.0 * target
            right[tail] = newest
            tail += one
            i += one
            target = a[i]
        if newest + x < 0.0:
            while right[head] + x >= 0.0:
                head += one
            q[j] = i - (tail - head)
            left[top] = newest + 2.0 * x
            tail -= one
            newest = right[tail - one] if tail > head else _BIG
        else:
            head = tail = np.uint64(0)
            newest = _BIG
            q[j] = i
            left[top] = x
        top += one


@kernel
def couple_rows(
    is_prompt: np.ndarray, n_real: np.ndarray, keys: np.ndarray, given: np.ndarray, use_given: bool
) -> tuple[np.ndarray, np.ndarray]:
    """(z_0, z_T) for every row: `coupling.couple` without its checks."""
    # The loops below write first and advance by a flag instead of branching on is_prompt: branch mispredictions
    # doubled the time per slot (37 instead of 19 ns).
    B, L = is_prompt.shape
    z_0 = np.empty((B, L), np.float32)
    z_T = np.empty((B, L), np.float32)
    prompt = np.empty(L + 1)
    pool = np.empty(L + 1)
    target = np.empty(L + 1)
    slot_of = np.empty(L + 1, np.int64)
    left = np.empty(2 * L)
    right = np.empty(2 * L)
    q = np.empty(L, np.int64)
    for row in range(B):
        real = n_real[row]
        n_prompt = 0
        for i in range(real):
            n_prompt += is_prompt[row, i]
        n_response = real - n_prompt
        n_pool = L - n_prompt

        if use_given:
            p = 0
            for i in range(L):
                prompt[p] = given[row, i]
                pool[i - p] = given[row, i]
                p += is_prompt[row, i]
            prompt[:n_prompt].sort()
            pool[:n_pool].sort()
        else:
            draw_sets(prompt, n_prompt, pool, n_pool, keys[row])

        scale = real / L
        step = 2.0 / max(1.0, real - 1.0)
        start = grid_position(0, real)
        flags, clean, noisy = is_prompt[row], z_0[row], z_T[row]
        before = np.uint64(0)  # prompt tokens so far
        for k in range(real):
            slot = np.uint64(k)
            a = start + step * k
            clean[slot] = scale * a
            noisy[slot] = prompt[before]
            target[slot - before] = a
            slot_of[slot - before] = k
            before += np.uint64(flags[slot])
        target[n_response] = _BIG

        _sweep(target, n_response, pool, n_pool, left, right, q)
        unplaced = n_response
        pad = L - 1
        for j in range(n_pool - 1, -1, -1):
            b = pool[np.uint64(j)]
            taken = unplaced > q[np.uint64(j)]
            unplaced -= taken
            which = np.uint64(unplaced)
            slot = np.uint64(slot_of[which] if taken else pad)
            noisy[slot] = b
            clean[slot] = scale * (target[which] if taken else b)
            pad -= 1 - taken
    return z_0, z_T


@kernel
def match_sorted(a: np.ndarray, n: int, b: np.ndarray, m: int) -> np.ndarray:
    """The match of ascending a[:n] into ascending b[:m] (eq. response-ot); a[n] must be +BIG."""
    q = np.empty(m, np.int64)
    _sweep(a, n, b, m, np.empty(n + m), np.empty(n + m), q)
    pi = np.empty(n, np.int64)
    unplaced = n
    for j in range(m - 1, -1, -1):
        if unplaced > q[j]:
            unplaced -= 1
            pi[unplaced] = j
    return pi
