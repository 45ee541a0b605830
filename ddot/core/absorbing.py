"""The absorbing token process: forward masking, the loss, the reverse probabilities (eq. sedd-forward, token-loss).

Works on rows of chosen slots: `log_score` is (M, V), one row for each slot that is masked. Chance comes in as uniform
numbers. Knows nothing about positions or networks. Everything is computed in float32.
"""

from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor


def corrupt(
    x_0: Int[Tensor, "B L"],
    u: Float[Tensor, "B L"],
    masked_share: Float[Tensor, "B"],
    is_prompt: Bool[Tensor, "B L"],
    mask: int,
) -> Int[Tensor, "B L"]:
    """x_t: every slot outside the prompt is masked with chance `masked_share` (the solution of eq. sedd-forward)."""
    return torch.where((u < masked_share[:, None]) & ~is_prompt, mask, x_0)


@runtime_checkable
class Parametrisation(Protocol):
    """How logits become the score s(x)_y = p_t(y)/p_t([mask]), and what the score is trained with."""

    def log_score(self, logits: Float[Tensor, "M V"], sigma: Float[Tensor, "M"], mask: int) -> Float[Tensor, "M V"]: ...

    def loss(
        self,
        logits: Float[Tensor, "M V"],
        x_0: Int[Tensor, "M"],
        sigma: Float[Tensor, "M"],
        dsigma: Float[Tensor, "M"],
        mask: int,
    ) -> Float[Tensor, "M"]: ...


@dataclass(frozen=True)
class ScoreEntropy:
    """SEDD: logits are log scores up to a shift, trained with score entropy.

    `states` is the V of that shift; a checkpoint whose vocabulary grew keeps the number it was trained with.
    """

    states: int

    def log_score(self, logits: Float[Tensor, "M V"], sigma: Float[Tensor, "M"], mask: int) -> Float[Tensor, "M V"]:
        shift = torch.log(torch.expm1(sigma)) + torch.log(torch.tensor(self.states - 1.0))
        return _at_mask(logits.float() - shift[:, None], mask, 0.0)

    def loss(
        self,
        logits: Float[Tensor, "M V"],
        x_0: Int[Tensor, "M"],
        sigma: Float[Tensor, "M"],
        dsigma: Float[Tensor, "M"],
        mask: int,
    ) -> Float[Tensor, "M"]:
        return dsigma * score_entropy(self.log_score(logits, sigma, mask), x_0, sigma, mask)


@dataclass(frozen=True)
class CleanToken:
    """MDLM: logits are log p(x_0 | x_t), trained with cross entropy.

    With `elbo` the loss is weighted by dσ/(e^σ−1) (= 1/t), the same number score entropy gives for a normalised
    score. Without it every masked slot counts the same, which trains faster in practice and is no bound.
    """

    elbo: bool = True

    def log_score(self, logits: Float[Tensor, "M V"], sigma: Float[Tensor, "M"], mask: int) -> Float[Tensor, "M V"]:
        log_p = torch.log_softmax(_at_mask(logits.float(), mask, -torch.inf), -1)
        return _at_mask(log_p - torch.log(torch.expm1(sigma))[:, None], mask, 0.0)

    def loss(
        self,
        logits: Float[Tensor, "M V"],
        x_0: Int[Tensor, "M"],
        sigma: Float[Tensor, "M"],
        dsigma: Float[Tensor, "M"],
        mask: int,
    ) -> Float[Tensor, "M"]:
        # Compared, not filled by index: the compiler then makes one kernel of it, without a copy of the logits.
        is_mask = torch.arange(logits.shape[-1], device=logits.device) == mask
        nats = torch.nn.functional.cross_entropy(
            torch.where(is_mask, -torch.inf, logits.float()), x_0, reduction="none"
        )
        return nats * dsigma / torch.expm1(sigma) if self.elbo else nats


def score_entropy(
    log_score: Float[Tensor, "M V"], x_0: Int[Tensor, "M"], sigma: Float[Tensor, "M"], mask: int
) -> Float[Tensor, "M"]:
    """Σ_{y≠mask} s_y − a·log s_{x_0} + K(a), where a = 1/(e^σ−1), K(a) = a(log a − 1): the inside of eq. token-loss."""
    a = 1 / torch.expm1(sigma)
    total = log_score.exp().sum(-1) - log_score[:, mask].exp()
    true = log_score.gather(-1, x_0[:, None])[:, 0]
    return total - a * true + a * (torch.log(a) - 1)


def analytic(
    log_score: Float[Tensor, "M V"], sigma: Float[Tensor, "M"], sigma_next: Float[Tensor, "M"], mask: int
) -> Float[Tensor, "M V"]:
    """Chances of each token after the exact reverse step σ → σ_next; [mask] holds the chance to stay masked."""
    return _with_stay(log_score.exp() * torch.expm1(sigma - sigma_next)[:, None], mask)


def euler(
    log_score: Float[Tensor, "M V"], dsigma: Float[Tensor, "M"], dt: Float[Tensor, "M"], mask: int
) -> Float[Tensor, "M V"]:
    """Chances of each token after one Euler step of the reverse process; [mask] holds the chance to stay masked."""
    return _with_stay(log_score.exp() * (dt * dsigma)[:, None], mask)


def final(log_score: Float[Tensor, "M V"], mask: int) -> Float[Tensor, "M V"]:
    """Chances of each token when nothing may stay masked: in proportion to the score, none for [mask]."""
    return torch.softmax(_at_mask(log_score, mask, -torch.inf), -1)


def _with_stay(moves: Float[Tensor, "M V"], mask: int) -> Float[Tensor, "M V"]:
    moves = _at_mask(moves, mask, 0.0)
    leave = moves.sum(-1)
    # A large step of an imperfect score may ask for more than certainty.
    moves = moves / leave.clamp(min=1.0)[:, None]
    return _at_mask(moves, mask, (1 - leave).clamp(min=0.0))


def _at_mask(rows: Float[Tensor, "M V"], mask: int, value: float | Float[Tensor, "M"]) -> Float[Tensor, "M V"]:
    rows = rows.clone()
    rows[:, mask] = value  # a number, not a tensor of indices: a GPU would have to wait for that
    return rows
