"""The absorbing token process: forward masking, the loss, the reverse probabilities (eq. sedd-forward, token-loss).

Works on M masked slots: `log_score` is (M, V). Randomness is passed in as uniform numbers. Computes in float32. Knows
nothing about positions or networks.
"""

from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from ddot.core.shapes import PerSlot, Scores


def corrupt(
    x_0: Int[Tensor, "B L"],
    u: Float[Tensor, "B L"],
    masked_share: Float[Tensor, "B"],
    is_prompt: Bool[Tensor, "B L"],
    mask: int,
) -> Int[Tensor, "B L"]:
    """x_t: every slot outside the prompt is masked with probability `masked_share` (solves eq. sedd-forward)."""
    return torch.where((u < masked_share[:, None]) & ~is_prompt, mask, x_0)


@runtime_checkable
class Parametrisation(Protocol):
    """How logits become the score s(x)_y = p_t(y)/p_t([mask]), and the loss that trains it."""

    def log_score(self, logits: Scores, sigma: PerSlot, mask: int) -> Scores: ...

    def loss(self, logits: Scores, x_0: Int[Tensor, "M"], sigma: PerSlot, dsigma: PerSlot, mask: int) -> PerSlot: ...


@dataclass(frozen=True)
class ScoreEntropy:
    """SEDD: logits are log scores up to a shift, trained with score entropy.

    `states` is the V in that shift: the vocabulary size the checkpoint was trained with, even if rows were added.
    """

    states: int

    def log_score(self, logits: Scores, sigma: PerSlot, mask: int) -> Scores:
        shift = torch.log(torch.expm1(sigma)) + torch.log(torch.tensor(self.states - 1.0))
        return _at_mask(logits.float() - shift[:, None], mask, 0.0)

    def loss(self, logits: Scores, x_0: Int[Tensor, "M"], sigma: PerSlot, dsigma: PerSlot, mask: int) -> PerSlot:
        return dsigma * score_entropy(self.log_score(logits, sigma, mask), x_0, sigma, mask)


@dataclass(frozen=True)
class CleanToken:
    """MDLM: logits are log p(x_0 | x_t), trained with cross entropy.

    With `elbo` the loss is weighted by dσ/(e^σ−1) (= 1/t) and equals score entropy for a normalised score. Without it
    every masked slot has the same weight: not a bound, but trains faster in practice.
    """

    elbo: bool = True

    def log_score(self, logits: Scores, sigma: PerSlot, mask: int) -> Scores:
        log_p = torch.log_softmax(_at_mask(logits.float(), mask, -torch.inf), -1)
        return _at_mask(log_p - torch.log(torch.expm1(sigma))[:, None], mask, 0.0)

    def loss(self, logits: Scores, x_0: Int[Tensor, "M"], sigma: PerSlot, dsigma: PerSlot, mask: int) -> PerSlot:
        # A comparison instead of an indexed fill: it compiles to one kernel, without a copy of the logits.
        is_mask = torch.arange(logits.shape[-1], device=logits.device) == mask
        nats = torch.nn.functional.cross_entropy(
            torch.where(is_mask, -torch.inf, logits.float()), x_0, reduction="none"
        )
        return nats * dsigma / torch.expm1(sigma) if self.elbo else nats


def score_entropy(log_score: Scores, x_0: Int[Tensor, "M"], sigma: PerSlot, mask: int) -> PerSlot:
    """Σ_{y≠mask} s_y − a·log s_{x_0} + K(a), where a = 1/(e^σ−1), K(a) = a(log a − 1): the term in eq. token-loss."""
    a = 1 / torch.expm1(sigma)
    total = log_score.exp().sum(-1) - log_score[:, mask].exp()
    true = log_score.gather(-1, x_0[:, None])[:, 0]
    return total - a * true + a * (torch.log(a) - 1)


def analytic(log_score: Scores, sigma: PerSlot, sigma_next: PerSlot, mask: int) -> Scores:
    """Token probabilities after the exact reverse step σ → σ_next; [mask]'s is the probability of staying masked."""
    return _with_stay(log_score.exp() * torch.expm1(sigma - sigma_next)[:, None], mask)


def euler(log_score: Scores, dsigma: PerSlot, dt: PerSlot, mask: int) -> Scores:
    """Token probabilities after one Euler step of the reverse process; [mask]'s is that of staying masked."""
    return _with_stay(log_score.exp() * (dt * dsigma)[:, None], mask)


def final(log_score: Scores, mask: int) -> Scores:
    """Token probabilities if nothing may stay masked: proportional to the score, 0 for [mask]."""
    return torch.softmax(_at_mask(log_score, mask, -torch.inf), -1)


def _with_stay(moves: Scores, mask: int) -> Scores:
    moves = _at_mask(moves, mask, 0.0)
    leave = moves.sum(-1)
    # With an imperfect score, a large step may sum to more than 1.
    moves = moves / leave.clamp(min=1.0)[:, None]
    return _at_mask(moves, mask, (1 - leave).clamp(min=0.0))


def _at_mask(rows: Scores, mask: int, value: float | PerSlot) -> Scores:
    rows = rows.clone()
    rows[:, mask] = value  # an int index: indexing with a tensor would synchronise the GPU
    return rows
