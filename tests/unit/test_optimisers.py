"""Muon against singular value decompositions, the average against its closed form, the schedule against its corners."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from ddot.core.records import Vocabulary
from ddot.network.denoiser import Denoiser
from ddot.training.config import override
from ddot.training.optimisers import Average, Muon, make_optimisers, orthogonalise, warm_hold_decay
from ddot.training.recipes import toy

SHAPES = [(1, 1), (6, 6), (12, 5), (5, 12), (40, 64), (3, 1)]


def five_steps(singular):
    """What five quintic steps make of singular values, from a start with their root of squares at 1."""
    s = singular / np.sqrt((singular**2).sum())
    for _ in range(5):
        s = 3.4445 * s - 4.7750 * s**3 + 2.0315 * s**5
    return s


def by_decomposition(matrix):
    """Orthogonalisation as `orthogonalise` does it, from an SVD in double precision."""
    u, s, v = np.linalg.svd(matrix.astype(np.float64), full_matrices=False)
    return u * five_steps(s) @ v


@pytest.mark.parametrize("shape", SHAPES)
def test_orthogonalise_keeps_directions_and_maps_singular_values(shape):
    matrices = np.random.default_rng(1).normal(size=(3, *shape)).astype(np.float32)
    found = orthogonalise(torch.from_numpy(matrices)).numpy()
    for one, matrix in zip(found, matrices, strict=True):
        np.testing.assert_allclose(one, by_decomposition(matrix), atol=2e-4)
        assert orthogonalise(torch.from_numpy(matrix[None]))[0].numpy() == pytest.approx(one, abs=1e-5)


@pytest.mark.parametrize("shape", SHAPES)
def test_singular_values_come_near_one(shape):
    """Those of at least a hundredth of the whole; the nearest orthogonal matrix is U Vᵀ."""
    matrix = np.random.default_rng(2).normal(size=shape).astype(np.float32)
    u, s, v = np.linalg.svd(matrix, full_matrices=False)
    found = orthogonalise(torch.from_numpy(matrix[None]))[0].numpy()
    kept = s >= 0.01 * np.sqrt((s**2).sum())
    values = np.linalg.svd(found, compute_uv=False)
    assert kept.all()
    assert (values > 0.65).all()
    assert (values < 1.25).all()
    assert np.linalg.norm(found - u @ v, 2) < 0.35


def test_a_zero_matrix_stays_zero():
    assert not orthogonalise(torch.zeros(2, 3, 4)).any()


def test_muon_takes_the_steps_of_its_definition():
    """Momentum m ← βm + (1−β)g, Nesterov (1−β)g + βm, orthogonalised, 0.2·√max(m, n); decoupled decay."""
    rng = np.random.default_rng(3)
    start = {"square": rng.normal(size=(6, 6)), "wide": rng.normal(size=(4, 9)), "wide too": rng.normal(size=(4, 9))}
    weights = {name: torch.nn.Parameter(torch.tensor(value, dtype=torch.float32)) for name, value in start.items()}
    idle = torch.nn.Parameter(torch.ones(2, 2))
    muon = Muon([*weights.values(), idle], lr=0.1, momentum=0.9, weight_decay=0.5)
    momentum = {name: np.zeros_like(value) for name, value in start.items()}
    for _ in range(3):
        for name, weight in weights.items():
            gradient = rng.normal(size=start[name].shape)
            weight.grad = torch.tensor(gradient, dtype=torch.float32)
            momentum[name] = 0.9 * momentum[name] + 0.1 * gradient
            update = by_decomposition(0.1 * gradient + 0.9 * momentum[name])
            start[name] = start[name] * (1 - 0.1 * 0.5) - 0.1 * 0.2 * max(gradient.shape) ** 0.5 * update
        muon.step()
    for name, weight in weights.items():
        np.testing.assert_allclose(weight.detach().numpy(), start[name], atol=1e-4)
    assert (idle == 1).all()


def test_muon_moves_weights_as_far_as_adamw_does():
    """Root mean square of an update about 0.2 times the rate, whatever the shape."""
    for shape in ((64, 64), (32, 128), (200, 20)):
        weight = torch.nn.Parameter(torch.zeros(shape))
        weight.grad = torch.randn(shape)
        Muon([weight], lr=1.0).step()
        assert weight.detach().square().mean().sqrt().item() == pytest.approx(0.2, rel=0.2)


def test_every_parameter_has_one_optimiser_and_muon_has_the_matrices_of_blocks():
    run = override(toy(), ["training.matrix_rate=0.02", "training.rate=0.001", "training.added_rate=0.005"])
    model = Denoiser(run.network(Vocabulary(300)))
    adamw, muon = make_optimisers(model, run.training)
    rate = {id(p): g["full_rate"] for o in (adamw, muon) for g in o.param_groups for p in g["params"]}
    assert (
        len(rate)
        == len(list(model.parameters()))
        == sum(len(g["params"]) for g in adamw.param_groups) + len(muon.param_groups[0]["params"])
    )
    for name, parameter in model.named_parameters():
        in_block = name.startswith("trunk.blocks.") and parameter.dim() == 2
        wanted = 0.02 if in_block else 0.001 if name.startswith("trunk.") else 0.005
        assert rate[id(parameter)] == wanted, name
    (only,) = make_optimisers(model, override(run, ["training.matrix_rate=none"]).training)
    assert sum(len(group["params"]) for group in only.param_groups) == len(rate)


@given(step=st.integers(0, 500), steps=st.integers(1, 500), warmup=st.integers(0, 200), decay=st.floats(0.0, 1.0))
def test_schedule_is_the_lower_of_two_ramps(step, steps, warmup, decay):
    progress = min(1.0, step / steps)
    factor = warm_hold_decay(step, progress, warmup, decay)
    ramps = [1.0, (step + 1) / warmup if warmup else 1.0, (1 - progress) / decay if decay else 1.0]
    assert factor == pytest.approx(min(ramps))
    assert 0 <= factor <= 1


def test_schedule_at_its_corners():
    assert warm_hold_decay(0, 0.0, 100, 0.2) == pytest.approx(0.01)
    assert warm_hold_decay(99, 0.1, 100, 0.2) == 1.0
    assert warm_hold_decay(800, 0.8, 100, 0.2) == pytest.approx(1.0)
    assert warm_hold_decay(900, 0.9, 100, 0.2) == pytest.approx(0.5)
    assert warm_hold_decay(1000, 1.0, 100, 0.2) == 0.0
    assert warm_hold_decay(1000, 1.0, 100, 0.0) == 1.0


@pytest.mark.parametrize("rate", [0.0, 0.5, 0.9, 0.9999])
def test_average_is_the_weighted_sum_of_all_weights_so_far(rate):
    """Σ_n (1 − d_n) Π_{m>n} d_m · w_n + Π d · w_start, with d_n = min(rate, (1 + n)/(10 + n))."""
    rng = np.random.default_rng(4)
    seen = rng.normal(size=(41, 2, 3))
    average = Average({"w": torch.tensor(seen[0])}, rate)
    for n, weights in enumerate(seen[1:]):
        average.update({"w": torch.tensor(weights)}, n)
    keep = np.minimum(rate, (1 + np.arange(40)) / (10 + np.arange(40)))
    share = np.concatenate([[1.0], 1 - keep]) * np.append(np.cumprod(keep[::-1])[::-1], 1.0)
    assert share.sum() == pytest.approx(1)
    np.testing.assert_allclose(average.weights["w"].numpy(), np.tensordot(share, seen, 1), rtol=1e-9)


def test_average_does_not_touch_the_weights():
    weights = {"w": torch.nn.Parameter(torch.ones(3))}
    average = Average(dict(weights), 0.9)
    average.update({"w": torch.zeros(3)}, 100)
    assert (weights["w"] == 1).all()
    assert average.weights["w"].tolist() == pytest.approx([0.9] * 3)
