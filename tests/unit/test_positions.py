"""Clean and terminal positions against the paper's formulas; the law of the random ones against SciPy."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import kstest

from ddot.core.positions import (
    AsText,
    JitteredGrid,
    Mixture,
    Stretched,
    clean_positions,
    grid,
    grid_terminal,
    interpolate,
    pad_positions,
    random_terminal,
)
from ddot.core.rng import Weighted, fold, row_keys, spread_times, uniform


@given(st.integers(0, 40), st.integers(0, 40))
def test_clean_positions_are_eq_init_pos(ell, more):
    L = max(1, ell + more)
    expected = [ell / L * (2 * i - (ell - 1)) / max(1, ell - 1) for i in range(ell)]
    np.testing.assert_allclose(clean_positions(ell, L), expected, atol=1e-6)
    assert (np.abs(clean_positions(ell, L)) <= ell / L + 1e-6).all()


def test_grid_and_pads_are_the_papers():
    np.testing.assert_allclose(grid(5), [-1, -0.5, 0, 0.5, 1])
    np.testing.assert_allclose(grid(1), [0])
    np.testing.assert_allclose(pad_positions(np.array([0.5, -1.0]), 3, 12), [0.125, -0.25])


def test_interpolation_ends_and_middle():
    z_0, z_T = torch.tensor([[0.0, 1.0]] * 3), torch.tensor([[1.0, -1.0]] * 3)
    z_t = interpolate(z_0, z_T, torch.tensor([0.0, 0.25, 1.0]))
    torch.testing.assert_close(z_t, torch.tensor([[0.0, 1.0], [0.25, 0.5], [1.0, -1.0]]))


def test_random_terminal_has_the_law_of_uniform_numbers():
    is_prompt = np.tile(np.arange(40) < 15, (400, 1))
    z = random_terminal(is_prompt, row_keys(1, 400))
    assert kstest(z.ravel() / 2 + 0.5, "uniform").pvalue > 1e-3
    # Order statistic k of n uniform numbers on (0, 1) is Beta(k, n − k + 1).
    for k, column in ((1, 0), (8, 7), (15, 14)):
        assert kstest(z[:, column] / 2 + 0.5, "beta", args=(k, 16 - k)).pvalue > 1e-3
    assert abs(np.corrcoef(z[:, 7], z[:, 15 + 12])[0, 1]) < 0.2  # the two sets are independent


def test_grid_terminal_is_eq_term_pos():
    is_prompt = np.array([[True, False, True, False, False]])
    np.testing.assert_allclose(grid_terminal(is_prompt, row_keys(0, 1))[0], [-1, -1, 1, 0, 1])


def test_jittered_grid_keeps_order_and_stays_near():
    is_prompt = np.random.default_rng(0).random((50, 30)) < 0.4
    keys = row_keys(3, 50)
    z, exact = JitteredGrid(0.5)(is_prompt, keys), grid_terminal(is_prompt, keys)
    for row in range(50):
        for subset in (is_prompt[row], ~is_prompt[row]):
            assert (np.diff(z[row, subset]) >= -1e-6).all()
            assert np.abs(z[row, subset] - exact[row, subset]).max() <= 1 / max(1, subset.sum() - 1) + 1e-6
    with pytest.raises(ValueError, match="spread"):
        JitteredGrid(0.7)


def test_a_stretched_grid_is_the_jittered_one_times_a_number_of_its_row():
    is_prompt = np.random.default_rng(0).random((2000, 30)) < 0.4
    keys = row_keys(3, 2000)
    width = Stretched(JitteredGrid(0.5), 0.2)(is_prompt, keys) / JitteredGrid(0.5)(is_prompt, keys)
    np.testing.assert_allclose(width, np.broadcast_to(np.median(width, 1, keepdims=True), width.shape), rtol=1e-3)
    assert kstest(width[:, 0], "uniform", args=(0.8, 0.4)).pvalue > 0.01
    with pytest.raises(ValueError, match="below 1"):
        Stretched(grid_terminal, 1.0)


def test_a_prompt_that_starts_as_a_text_lies_as_it_would_with_nothing_missing():
    is_prompt = np.random.default_rng(1).random((50, 20)) < 0.4
    keys = row_keys(5, 50)
    z, even = AsText()(is_prompt, keys), grid_terminal(is_prompt, keys)
    for row, known in enumerate(is_prompt):
        np.testing.assert_allclose(z[row, known], clean_positions(int(known.sum()), 20), atol=1e-6)
        np.testing.assert_array_equal(z[row, ~known], even[row, ~known])


def test_mixture_takes_each_row_from_one_terminal():
    is_prompt = np.zeros((2000, 9), bool)
    keys = row_keys(4, 2000)
    mixed = Mixture((3.0, grid_terminal), (1.0, random_terminal))(is_prompt, keys)
    on_grid = np.isclose(mixed, grid(9)).all(1)
    assert 0.7 < on_grid.mean() < 0.8
    np.testing.assert_array_equal(mixed[~on_grid], random_terminal(is_prompt, keys)[~on_grid])
    with pytest.raises(ValueError, match="positive sum"):
        Weighted((0.0, grid_terminal))


def test_uniform_numbers_are_uniform_and_keyed():
    keys = row_keys(0, 100)
    u = uniform(keys, 200)
    assert u.min() > 0
    assert u.max() < 1
    assert kstest(u.ravel(), "uniform").pvalue > 1e-3
    np.testing.assert_array_equal(uniform(keys[7:9], 200), u[7:9])
    assert len({*keys.tolist(), *fold(keys, 1).tolist(), *fold(keys, 2).tolist()}) == 300
    np.testing.assert_array_equal(row_keys(0, 40, first=60), keys[60:])


def test_spread_times_cover_the_unit_interval_evenly():
    for key in range(20):
        t = np.sort(spread_times(key, 64))
        assert t[0] >= 1e-3
        assert t[-1] <= 1
        np.testing.assert_allclose(np.diff(t), 0.999 / 64, atol=1e-5)
