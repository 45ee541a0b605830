"""The noise schedule of the token process, shared by losses, network and samplers."""

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor


@dataclass(frozen=True)
class LogLinear:
    """σ(t) = −log(1 − (1−ε)t): the masked share 1 − e^{−σ} is (1−ε)t."""

    eps: float = 1e-3

    def sigma(self, t: Float[Tensor, "*B"]) -> Float[Tensor, "*B"]:
        """Total noise σ(t), the integral of `dsigma` from 0 to t."""
        return -torch.log1p(-(1 - self.eps) * t)

    def dsigma(self, t: Float[Tensor, "*B"]) -> Float[Tensor, "*B"]:
        """Noise rate dσ/dt."""
        return (1 - self.eps) / (1 - (1 - self.eps) * t)

    def masked_share(self, t: Float[Tensor, "*B"]) -> Float[Tensor, "*B"]:
        """Probability that a token is masked at time t: 1 − e^{−σ(t)}."""
        return (1 - self.eps) * t

    def still_masked(self, t: Float[Tensor, "*B"], s: float) -> Float[Tensor, "*B"]:
        """Share of the tokens masked at time t that are still masked at s < t: the ratio of the masked shares."""
        return s / t


SCHEDULE = LogLinear()
