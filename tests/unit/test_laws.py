"""What is drawn has the law it should, and is independent of all else that is drawn, against SciPy's tests.

Seeds are fixed, so every p-value is one number; those below 1e-4 are taken for a mistake, not for bad luck.
"""

import itertools
from math import factorial

import numpy as np
import pytest
from scipy.stats import chisquare, kstest, spearmanr

from ddot.core.coupling import couple, couple_independently
from ddot.core.positions import JitteredGrid, Mixture, Stretched, grid_terminal, random_terminal
from ddot.core.records import Example, Vocabulary
from ddot.core.rng import Weighted, fold, mix, row_keys, spread_times, uniform
from ddot.methods.ddot import DDOT

ROWS = 4000
UNLIKELY = 1e-4


def assert_independent(a, b):
    """No rank correlation, of the numbers or of how far they lie from their middle."""
    for of in (lambda x: x, lambda x: np.abs(x - np.median(x))):
        assert spearmanr(of(a), of(b)).pvalue > UNLIKELY


def test_rows_words_and_counters_draw_independent_uniform_numbers():
    keys = row_keys(0, ROWS)
    u, other = uniform(keys, 3), uniform(fold(keys, 5), 3)
    for column in (*u.T, *other.T, uniform(fold(keys, 6), 1)[:, 0], uniform(row_keys(1, ROWS), 1)[:, 0]):
        assert kstest(column, "uniform").pvalue > UNLIKELY
    assert_independent(u[:-1, 0], u[1:, 0])  # rows
    for a, b in itertools.combinations((*u.T, *other.T, uniform(fold(keys, 6), 1)[:, 0]), 2):  # counters and words
        assert_independent(a, b)
    assert_independent(u[:, 0], uniform(row_keys(1, ROWS), 1)[:, 0])  # seeds


def unmixed(x):
    """The 64 bits that `mix` scrambles into x: its steps undone one by one."""
    word = 1 << 64

    def unshifted(x, by):
        found = x
        for _ in range(64 // by + 1):
            found = x ^ (found >> by)
        return found

    x = unshifted(x, 31) * pow(0x94D049BB133111EB, -1, word) % word
    x = unshifted(x, 27) * pow(0xBF58476D1CE4E5B9, -1, word) % word
    return unshifted(x, 30)


@pytest.mark.parametrize("bits", [0, (1 << 64) - 1], ids=["least", "largest"])
def test_the_least_and_largest_uniform_numbers_lie_inside(bits):
    assert mix(np.array([unmixed(bits)], np.uint64))[0] == bits
    key = (unmixed(bits) - 0x9E3779B97F4A7C15) % (1 << 64)  # whose first number is made of these bits
    (u,) = uniform(np.array([key], np.uint64), 1)[0].tolist()
    assert 0 < u < 1
    assert min(u, 1 - u) < 2**-22


@pytest.mark.parametrize("rows", [1, 7])
def test_times_of_any_row_are_uniform(rows):
    t = np.array([spread_times(key, rows) for key in row_keys(2, ROWS).tolist()])
    for column in t.T:
        assert kstest(column, "uniform", args=(1e-3, 0.999)).pvalue > UNLIKELY


def test_options_are_chosen_by_weight():
    u = uniform(row_keys(4, ROWS), 1)[:, 0]
    choice = Weighted((2.0, "a"), (0.0, "b"), (6.0, "c"))
    counts = np.bincount(choice.index(u), minlength=3)
    assert counts[1] == 0
    assert chisquare(counts[[0, 2]], [ROWS / 4, ROWS * 3 / 4]).pvalue > UNLIKELY
    assert [choice.pick(float(each)) for each in u[:50]] == ["abc"[i] for i in choice.index(u[:50])]


def coupled(n_prompt, n_real, L, rows=ROWS, **more):
    is_prompt = np.tile(np.arange(L) < n_prompt, (rows, 1))
    return couple(is_prompt, np.full(rows, n_real), row_keys(8, rows), **more)[1] / 2 + 0.5


@pytest.mark.parametrize(("n_prompt", "L"), [(5, 9), (0, 6), (6, 6), (1, 2), (3, 40)])
def test_terminals_of_the_coupling_are_sorted_uniform_numbers(n_prompt, L):
    """Order statistic k of n is Beta(k, n + 1 − k); each of the n + 1 gaps is Beta(1, n)."""
    z = coupled(n_prompt, L, L)
    for members in (z[:, :n_prompt], np.sort(z[:, n_prompt:], 1)):
        n = members.shape[1]
        for k in sorted({1, (n + 1) // 2, n}) if n else ():
            assert kstest(members[:, k - 1], "beta", args=(k, n + 1 - k)).pvalue > UNLIKELY
        gaps = np.diff(members, axis=1, prepend=0, append=1)
        for column in gaps.T if n else ():
            assert kstest(column, "beta", args=(1, n)).pvalue > UNLIKELY


def test_the_prompt_and_the_pool_are_drawn_independently():
    z = coupled(4, 8, 8)  # both sets have four members: drawn alike, they would be the same
    for k in range(4):
        assert_independent(z[:, k], np.sort(z[:, 4:], 1)[:, k])
    drawn = random_terminal(np.tile(np.arange(8) < 4, (ROWS, 1)), row_keys(8, ROWS))
    for k in range(4):
        assert_independent(drawn[:, k], drawn[:, 4 + k])


def test_a_terminal_is_given_in_any_order():
    rng = np.random.default_rng(0)
    is_prompt = (rng.random((200, 12)) < 0.4) & (np.arange(12) < 9)
    n_real = np.full(200, 9)
    ordered = random_terminal(is_prompt, row_keys(0, 200))
    mixed = ordered.copy()
    for row, known in enumerate(is_prompt):
        for members in (np.flatnonzero(known), np.flatnonzero(~known)):
            mixed[row, members] = mixed[row, rng.permutation(members)]
    assert not np.array_equal(mixed, ordered)
    for a, b in zip(couple(is_prompt, n_real, 0, mixed), couple(is_prompt, n_real, 0, ordered), strict=True):
        np.testing.assert_array_equal(a, b)


def test_without_transport_every_order_of_both_sets_is_as_likely():
    rows = 6000
    is_prompt = np.tile([True, True, True, False, False, False], (rows, 1))
    n_real = np.full(rows, 5)  # of the pool one slot is a pad: it may get any of the three positions
    z_0, z_T = couple_independently(is_prompt, n_real, row_keys(2, rows), grid_terminal(is_prompt, row_keys(2, rows)))
    orders = [z_T[:, members].argsort(1) @ [9, 3, 1] for members in (slice(0, 3), slice(3, 6))]
    for order in orders:
        counts = np.unique(order, return_counts=True)[1]
        assert len(counts) == factorial(3)
        assert chisquare(counts).pvalue > UNLIKELY
    both = np.unique(np.stack(orders), axis=1, return_counts=True)[1]
    assert len(both) == factorial(3) ** 2
    assert chisquare(both).pvalue > UNLIKELY
    np.testing.assert_allclose(z_0[:, 5], z_T[:, 5] * 5 / 6, atol=1e-6)


def test_jitter_is_uniform_and_stays_inside():
    is_prompt = np.zeros((ROWS, 5), bool)
    keys = row_keys(6, ROWS)
    moved = JitteredGrid(0.3)(is_prompt, keys) - grid_terminal(is_prompt, keys)
    for column in moved.T[1:-1]:
        assert kstest(column, "uniform", args=(-0.15, 0.3)).pvalue > UNLIKELY  # a spacing is 1/2
    assert np.abs(JitteredGrid(0.5)(is_prompt, keys)).max() <= 1


def test_a_stretch_says_nothing_of_the_jitter():
    is_prompt = np.zeros((ROWS, 6), bool)
    keys = row_keys(3, ROWS)
    jittered = JitteredGrid(0.5)(is_prompt, keys)
    width = np.median(Stretched(JitteredGrid(0.5), 0.2)(is_prompt, keys) / jittered, axis=1)
    assert kstest(width, "uniform", args=(0.8, 0.4)).pvalue > UNLIKELY
    for column in (jittered - grid_terminal(is_prompt, keys)).T:
        assert_independent(width, column)


def test_a_mixture_says_nothing_of_what_its_terminals_draw():
    is_prompt = np.zeros((ROWS, 4), bool)
    keys = row_keys(4, ROWS)
    mixed = Mixture((1.0, grid_terminal), (1.0, JitteredGrid(0.4)))(is_prompt, keys)
    alone = JitteredGrid(0.4)(is_prompt, keys)
    jittered = (mixed == alone).all(1)
    assert 0.45 < jittered.mean() < 0.55
    for column in (alone - grid_terminal(is_prompt, keys)).T:
        assert_independent(jittered, column)


def test_which_tokens_are_masked_says_nothing_of_where_they_come_from():
    """Of a text of one token in one slot the terminal is one number, and so is what decides when it is masked."""
    text, t = Example(np.array([1]), np.array([False])), spread_times(5, ROWS)
    slots = DDOT(terminal=random_terminal).prepare([text] * ROWS, 1, t, row_keys(5, ROWS), Vocabulary(4))
    u, z_T = slots.u[:, 0].numpy(), slots.z_T[:, 0].numpy()
    assert kstest(u, "uniform").pvalue > UNLIKELY
    assert kstest(z_T / 2 + 0.5, "uniform").pvalue > UNLIKELY
    for a, b in itertools.combinations((u, z_T, t), 2):
        assert_independent(a, b)
