"""The token process against a dense matrix exponential and the paper's equations written out."""

import numpy as np
import pytest
import torch
from scipy.linalg import expm

from ddot.core.absorbing import CleanToken, ScoreEntropy, analytic, corrupt, euler, final, score_entropy
from ddot.core.noise import LogLinear

N = 5  # states; the last is [mask]
MASK = N - 1
NOISE = LogLinear()
# Columns sum to 0; probability flows from every other state into [mask] (below eq. sedd-forward).
Q = -np.eye(N)
Q[MASK, :] = 1
Q[:, MASK] = 0


def p_t(sigma, p_0):
    return expm(sigma * Q) @ p_0


@pytest.fixture
def p_0():
    rng = np.random.default_rng(0)
    return np.append(rng.dirichlet(np.ones(N - 1)), 0.0)


def test_schedule_is_its_own_integral():
    t = torch.linspace(1e-3, 0.999, 50, dtype=torch.float64)
    fine = torch.linspace(0, 1, 2001, dtype=torch.float64)[None] * t[:, None]
    torch.testing.assert_close(NOISE.sigma(t), torch.trapezoid(NOISE.dsigma(fine), fine), rtol=1e-3, atol=1e-6)
    torch.testing.assert_close(NOISE.masked_share(t), 1 - torch.exp(-NOISE.sigma(t)))


def test_forward_is_the_dense_process():
    t = torch.tensor([0.1, 0.5, 0.9])
    for x_0 in range(N - 1):
        for ti in t:
            dense = p_t(NOISE.sigma(ti).item(), np.eye(N)[x_0])
            assert dense[MASK] == pytest.approx(NOISE.masked_share(ti).item(), abs=1e-6)
            assert dense[x_0] == pytest.approx(1 - dense[MASK])
    B, L = 3, 4000
    u = (torch.arange(L) + 0.5).expand(B, L) / L
    x_0, is_prompt = torch.full((B, L), 2), torch.zeros(B, L, dtype=torch.bool)
    is_prompt[:, ::2] = True
    x_t = corrupt(x_0, u, NOISE.masked_share(t), is_prompt, MASK)
    assert (x_t[is_prompt] == 2).all()
    for row in range(B):
        share = (x_t[row, 1::2] == MASK).float().mean()
        assert share.item() == pytest.approx(NOISE.masked_share(t[row]).item(), abs=1e-3)


def test_reverse_step_is_bayes_rule(p_0):
    t, s = torch.tensor([0.8]), torch.tensor([0.3])
    sigma, sigma_next = NOISE.sigma(t), NOISE.sigma(s)
    at_t, at_s = p_t(sigma.item(), p_0), p_t(sigma_next.item(), p_0)
    score = torch.tensor(at_t / at_t[MASK], dtype=torch.float32)[None]
    log_score = torch.log(score.clamp(min=1e-30))
    step = expm((sigma - sigma_next).item() * Q)  # [to, from]
    bayes = at_s * step[MASK] / at_t[MASK]
    np.testing.assert_allclose(analytic(log_score, sigma, sigma_next, MASK)[0].numpy(), bayes, atol=1e-5)
    np.testing.assert_allclose(final(log_score, MASK)[0].numpy(), p_0, atol=1e-5)

    dt = torch.tensor([1e-4])
    small = analytic(log_score, sigma, NOISE.sigma(t - dt), MASK)
    np.testing.assert_allclose(euler(log_score, NOISE.dsigma(t), dt, MASK).numpy(), small.numpy(), atol=1e-6)


def test_chances_are_chances_even_for_a_wild_score():
    log_score = torch.randn(50, N) * 4
    t = torch.rand(50) * 0.9 + 0.05
    for chances in (
        analytic(log_score, NOISE.sigma(t), NOISE.sigma(t / 3), MASK),
        euler(log_score, NOISE.dsigma(t), t * 2 / 3, MASK),
        final(log_score, MASK),
    ):
        assert (chances >= 0).all()
        torch.testing.assert_close(chances.sum(-1), torch.ones(50))
    assert (final(log_score, MASK)[:, MASK] == 0).all()


def test_score_entropy_is_the_integrand_of_eq_token_loss():
    torch.manual_seed(0)
    sigma = torch.tensor([0.7, 2.0, 0.05])
    log_score, x_0 = torch.randn(3, N), torch.tensor([0, 3, 1])
    for row in range(3):
        marginal = p_t(sigma[row].item(), np.eye(N)[x_0[row]])
        total = 0.0
        for y in range(N):
            if y != MASK:
                ratio = marginal[y] / marginal[MASK]
                s = np.exp(log_score[row, y].item())
                k = ratio * (np.log(ratio) - 1) if ratio > 0 else 0.0
                total += Q[MASK, y] * (s - ratio * np.log(s) + k)
        assert score_entropy(log_score, x_0, sigma, MASK)[row].item() == pytest.approx(total, rel=1e-4)


def test_score_entropy_is_least_at_the_true_score(p_0):
    sigma = torch.tensor([1.3] * (N - 1))
    marginal = p_t(1.3, p_0)
    log_score = torch.tensor(np.log(np.maximum(marginal / marginal[MASK], 1e-12)), dtype=torch.float32)
    log_score[MASK] = 0
    log_score.requires_grad_(True)
    # The expectation over x_0 given that the slot is masked: the posterior is p_0 itself.
    losses = score_entropy(log_score.expand(N - 1, N), torch.arange(N - 1), sigma, MASK)
    (losses * torch.tensor(p_0[:MASK], dtype=torch.float32)).sum().backward()
    assert log_score.grad.abs().max() < 1e-5


def test_normalised_scores_give_cross_entropy_over_t_and_linear_steps():
    torch.manual_seed(1)
    t, s = torch.tensor([0.9, 0.4, 0.11]), torch.tensor([0.5, 0.1, 0.1])
    logits, x_0 = torch.randn(3, N), torch.tensor([2, 0, 1])
    p = torch.softmax(logits[:, :MASK], -1)
    clean = CleanToken()
    args = (x_0, NOISE.sigma(t), NOISE.dsigma(t), MASK)
    expected = -torch.log(p.gather(1, x_0[:, None])[:, 0]) / t
    torch.testing.assert_close(clean.loss(logits, *args), expected)
    log_score = clean.log_score(logits, NOISE.sigma(t), MASK)
    torch.testing.assert_close(NOISE.dsigma(t) * score_entropy(log_score, x_0, NOISE.sigma(t), MASK), expected)
    torch.testing.assert_close(CleanToken(elbo=False).loss(logits, *args), expected * t)

    chances = analytic(log_score, NOISE.sigma(t), NOISE.sigma(s), MASK)
    torch.testing.assert_close(chances[:, :MASK], p * ((t - s) / t)[:, None], rtol=1e-4, atol=1e-6)
    torch.testing.assert_close(chances[:, MASK], s / t, rtol=1e-4, atol=1e-6)


def test_sedd_score_is_shifted_logits():
    logits, sigma = torch.randn(2, N), torch.tensor([0.5, 3.0])
    log_score = ScoreEntropy(states=50258).log_score(logits, sigma, MASK)
    expected = logits - torch.log(torch.exp(sigma) - 1)[:, None] - np.log(50257)
    expected[:, MASK] = 0
    torch.testing.assert_close(log_score, expected)


def test_sedd_loss_of_a_normalised_score_is_cross_entropy_over_t():
    """Logits of log p + log(V − 1) are the score of p, whatever V is: the loss is that of the clean token."""
    t, x_0 = torch.tensor([0.9, 0.4, 0.11]), torch.tensor([2, 0, 1])
    p = torch.softmax(torch.randn(3, MASK), -1)
    for states in (2, N, 40):
        logits = torch.cat([p.log() + np.log(states - 1), torch.randn(3, 1)], 1)
        loss = ScoreEntropy(states).loss(logits, x_0, NOISE.sigma(t), NOISE.dsigma(t), MASK)
        torch.testing.assert_close(loss, -torch.log(p.gather(1, x_0[:, None])[:, 0]) / t, rtol=1e-4, atol=1e-4)


def test_the_share_still_masked_is_the_ratio_of_the_masked_shares():
    t = torch.linspace(0.1, 1.0, 50)
    for s in (0.0, 0.03, 0.1):
        ratio = NOISE.masked_share(torch.full_like(t, s)) / NOISE.masked_share(t)
        torch.testing.assert_close(NOISE.still_masked(t, s), ratio)
