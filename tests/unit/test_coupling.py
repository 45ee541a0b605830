"""The coupling against SciPy, the paper's dynamic program and its own invariants."""

import itertools
import multiprocessing

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import linear_sum_assignment

from ddot.core.coupling import couple, couple_independently, match
from ddot.core.positions import clean_positions, grid_terminal, random_terminal
from ddot.core.rng import row_keys
from ddot.evaluation.speed.coupling import align

positions = st.lists(st.one_of(st.floats(-1, 1, width=32), st.sampled_from([-1.0, -0.5, 0.0, 0.5, 1.0])), max_size=12)


def cost(targets, pool, pi):
    return np.abs(targets - pool[pi]).sum()


def least_cost(targets, pool):
    matrix = np.abs(targets[:, None] - pool[None, :])
    return matrix[linear_sum_assignment(matrix)].sum()


@given(positions, positions)
@settings(max_examples=400)
def test_match_costs_what_scipy_says(first, second):
    targets, pool = sorted((np.sort(np.array(p, float)) for p in (first, second)), key=len)
    pi = match(targets, pool)
    assert (np.diff(pi) > 0).all()
    assert len(pi) == 0 or (pi[0] >= 0 and pi[-1] < len(pool))
    assert cost(targets, pool, pi) == pytest.approx(least_cost(targets, pool), abs=1e-9)


def test_match_all_small_sizes():
    rng = np.random.default_rng(0)
    for m, n in itertools.product(range(8), range(8)):
        if n <= m:
            for ties in (False, True):
                a, b = (np.sort(np.round(x * 3) / 3 if ties else x) for x in (rng.uniform(-1, 1, k) for k in (n, m)))
                assert cost(a, b, match(a, b)) == pytest.approx(least_cost(a, b), abs=1e-9)


@pytest.mark.parametrize("m", [64, 300, 1024])
def test_match_large_equals_scipy_and_the_papers_program(m):
    rng = np.random.default_rng(m)
    for n in (0, 1, m // 3, m - 1, m):
        a, b = np.sort(rng.uniform(-1, 1, n)), np.sort(rng.normal(0, 0.3, m))
        assert cost(a, b, match(a, b)) == pytest.approx(least_cost(a, b), abs=1e-9)
        assert cost(a, b, align(a, b)) == pytest.approx(least_cost(a, b), abs=1e-9)


def random_rows(L, rows, seed=0):
    rng = np.random.default_rng(seed)
    n_real = np.concatenate([[0, 1, L, L, 1, L], rng.integers(0, L + 1, rows)])
    is_prompt = rng.random((len(n_real), L)) < rng.random((len(n_real), 1))
    is_prompt[2], is_prompt[3], is_prompt[4] = True, False, False
    return is_prompt & (np.arange(L) < n_real[:, None]), n_real


@pytest.mark.parametrize("L", [1, 2, 7, 64])
@pytest.mark.parametrize("terminal", [None, grid_terminal, random_terminal])
def test_couple_is_the_papers_coupling(L, terminal):
    is_prompt, n_real = random_rows(L, 200)
    keys = row_keys(5, len(n_real))
    drawn = None if terminal is None else terminal(is_prompt, keys)
    z_0, z_T = couple(is_prompt, n_real, keys, drawn)
    assert z_0.dtype == z_T.dtype == np.float32
    assert np.abs(z_T).max() <= 1
    for row in range(len(n_real)):
        ell, prompt = int(n_real[row]), is_prompt[row]
        response = np.flatnonzero(~prompt[:ell])
        np.testing.assert_allclose(z_0[row, :ell], clean_positions(ell, L), atol=1e-6)  # eq. init_pos
        np.testing.assert_allclose(z_0[row, ell:], z_T[row, ell:] * ell / L, atol=1e-6)  # eq. pad-paths
        assert (np.diff(z_T[row, prompt]) >= 0).all()  # eq. prompt-ot: sorted to sorted
        if drawn is not None:
            for subset in (prompt, ~prompt):
                np.testing.assert_array_equal(np.sort(z_T[row, subset]), np.sort(drawn[row, subset]))
        target = np.linspace(-1, 1, ell)[response] if ell > 1 else np.zeros(len(response))
        pool = np.sort(z_T[row, ~prompt]).astype(float)
        assert np.abs(target - z_T[row, response]).sum() == pytest.approx(least_cost(target, pool), abs=1e-5)


def test_order_within_each_set_holds_at_all_times():
    is_prompt, n_real = random_rows(48, 300, seed=3)
    z_0, z_T = couple(is_prompt, n_real, 11)
    for t in np.linspace(0, 1, 21):
        z_t = (1 - t) * z_0 + t * z_T
        for row, ell in enumerate(n_real.tolist()):
            for subset in (is_prompt[row, :ell], ~is_prompt[row, :ell]):
                assert (np.diff(z_t[row, :ell][subset]) >= -1e-6).all()


def test_rows_do_not_depend_on_the_batch():
    is_prompt, n_real = random_rows(32, 20)
    keys = row_keys(9, len(n_real))
    whole = couple(is_prompt, n_real, keys)
    for row in range(len(n_real)):
        alone = couple(is_prompt[row : row + 1], n_real[row : row + 1], keys[row : row + 1])
        for a, b in zip(whole, alone, strict=True):
            np.testing.assert_array_equal(a[row], b[0])
    np.testing.assert_array_equal(couple(is_prompt, n_real, 9)[1], whole[1])
    assert not np.array_equal(couple(is_prompt, n_real, 10)[1], whole[1])


def _in_worker(queue):
    is_prompt, n_real = random_rows(32, 20)
    queue.put(couple(is_prompt, n_real, 4)[1])


@pytest.mark.parametrize("way", ["fork", "spawn"])
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_workers_draw_the_same(way):
    context = multiprocessing.get_context(way)
    queue = context.Queue()
    worker = context.Process(target=_in_worker, args=(queue,))
    worker.start()
    drawn = queue.get(timeout=120)
    worker.join()
    is_prompt, n_real = random_rows(32, 20)
    np.testing.assert_array_equal(drawn, couple(is_prompt, n_real, 4)[1])


def test_independent_coupling_permutes_within_sets():
    is_prompt, n_real = random_rows(16, 50)
    keys = row_keys(2, len(n_real))
    drawn = grid_terminal(is_prompt, keys)
    z_0, z_T = couple_independently(is_prompt, n_real, keys, drawn)
    crossings = 0
    for row, ell in enumerate(n_real.tolist()):
        for subset in (is_prompt[row], ~is_prompt[row]):
            np.testing.assert_array_equal(np.sort(z_T[row, subset]), np.sort(drawn[row, subset]))
        np.testing.assert_allclose(z_0[row, :ell], clean_positions(ell, 16), atol=1e-6)
        np.testing.assert_allclose(z_0[row, ell:], z_T[row, ell:] * ell / 16, atol=1e-6)
        crossings += (np.diff(z_T[row, is_prompt[row]]) < 0).sum()
    assert crossings > 20


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"n_real": np.array([3, 9])}, "3 to 9"),
        ({"n_real": np.array([3])}, "shape"),
        ({"n_real": np.array([3, 0])}, "beyond n_real"),
        ({"z_T": np.full((2, 8), np.nan, np.float32)}, "NaN"),
        ({"z_T": np.zeros((2, 7), np.float32)}, "shape"),
    ],
)
def test_couple_refuses_what_does_not_fit(change, sentence):
    good = {"is_prompt": np.eye(2, 8, dtype=bool), "n_real": np.array([3, 4]), "seed": 0, "z_T": None}
    couple(**good)
    with pytest.raises(ValueError, match=sentence):
        couple.__wrapped__(**(good | change)) if hasattr(couple, "__wrapped__") else couple(**(good | change))


@pytest.mark.parametrize(
    ("targets", "pool", "sentence"),
    [
        ([0.0, 1.0], [0.5], "do not fit"),
        ([0.0, np.nan], [0.0, 0.5], "NaN"),
        ([1.0, 0.0], [0.0, 0.5], "np.sort"),
        ([0.0], [0.5, 0.0], "np.sort"),
    ],
)
def test_match_refuses_what_does_not_fit(targets, pool, sentence):
    with pytest.raises(ValueError, match=sentence):
        match(np.array(targets), np.array(pool))
