"""Training losses: eq. token-loss, Lpos, total-loss. Knows nothing about methods or trunks.

Every loss is a mean over all B·L slots, so that splitting a batch over processes does not change the average. (The
paper sums over slots; the learning rate absorbs the factor.)
"""

import dataclasses
import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn.functional import cross_entropy

from ddot.core import gap_lengths
from ddot.core.absorbing import CleanToken, corrupt
from ddot.core.codes import PROMPT
from ddot.core.gaps import gaps_after
from ddot.core.noise import LogLinear
from ddot.core.positions import interpolate
from ddot.core.records import Slots, State
from ddot.network.denoiser import Denoiser


@dataclass(frozen=True)
class Losses:
    """Scalars. `total` is minimised; `nats` is the token loss per masked slot, for the log."""

    total: Float[Tensor, ""]
    token: Float[Tensor, ""]
    position: Float[Tensor, ""]
    gap_length: Float[Tensor, ""]
    nats: Float[Tensor, ""]

    @classmethod
    def of(cls, total: Float[Tensor, ""], **parts: Float[Tensor, ""]) -> "Losses":
        """The total and its parts, detached; parts not given are 0."""
        zero = torch.zeros_like(total.detach())
        return cls(total, **{name: parts.get(name, zero).detach() for name in LOSSES[1:]})


LOSSES = tuple(field.name for field in dataclasses.fields(Losses))

# Weight of the position loss at time t among L slots.
PositionWeight = Callable[[Float[Tensor, "B"], int], Float[Tensor, "B"]]


def equal_weight(t: Float[Tensor, "B"], L: int) -> Float[Tensor, "B"]:
    """The paper's: squared error of the velocity, with equal weight at all times."""
    return torch.ones_like(t)


@dataclass(frozen=True)
class TokenUnitWeight:
    """Squared error in token units: of the velocity where t is large, of the clean position where t ≪ `knee`.

    Rows of more than `at_most` slots are weighted as if they had that many; otherwise the squared errors of long rows
    would dominate the loss.
    """

    knee: float = 0.3
    at_most: int | None = None

    def __call__(self, t: Float[Tensor, "B"], L: int) -> Float[Tensor, "B"]:
        slots = L if self.at_most is None else min(L, self.at_most)
        return (slots / 2) ** 2 * t**2 / (t**2 + self.knee**2)


def corrupted(slots: Slots, noise: LogLinear, mask: int) -> State:
    """The slots at time t: tokens masked, positions on their straight paths (Algorithm 1, lines 4 and 5)."""
    x = corrupt(slots.x_0, slots.u, noise.masked_share(slots.t), slots.kind == PROMPT, mask)
    return slots.state(x=x, z=interpolate(slots.z_0, slots.z_T, slots.t))


def position_loss(
    velocity: Float[Tensor, "B L"], z_0: Float[Tensor, "B L"], z_T: Float[Tensor, "B L"], weight: Float[Tensor, "B"]
) -> Float[Tensor, ""]:
    """Squared distance of the velocity from z_0 − z_T over all L slots (eq. Lpos)."""
    return ((velocity - (z_0 - z_T)).square() * weight[:, None]).mean()


def total_loss(
    token: Float[Tensor, ""], position: Float[Tensor, ""], weight: float | Float[Tensor, ""]
) -> Float[Tensor, ""]:
    """L_tok + λ L_pos (eq. total-loss)."""
    return token + weight * position


def denoising_losses(
    model: Denoiser,
    slots: Slots,
    position_factor: float | Float[Tensor, ""],
    position_weight: PositionWeight = equal_weight,
    gap_length_factor: float = 0.0,
) -> Losses:
    """One forward pass over a corrupted batch (Algorithm 1, lines 4 to 8). `position_factor` is λ."""
    noise = model.noise
    state = corrupted(slots, noise, model.vocabulary.mask)
    # Indices are computed before the trunk runs: on a GPU, `nonzero` waits for all queued work.
    at = (state.x == model.vocabulary.mask).flatten().nonzero()[:, 0]
    length_at = ((slots.kind == PROMPT) & (slots.gap_length < 0)).flatten().nonzero()[:, 0]
    h, velocity = model.read(state)
    h = h.flatten(0, 1)

    t = slots.t[:, None].expand_as(slots.u).flatten()[at]
    per_slot = model.token_loss(h[at], slots.x_0.flatten()[at], noise.sigma(t), noise.dsigma(t))
    token = per_slot.sum() / slots.u.numel()
    position = position_loss(velocity, slots.z_0, slots.z_T, position_weight(slots.t, slots.u.shape[1]))
    gap_length = torch.zeros_like(token)
    if model.room_head is not None or gap_length_factor > 0:
        # Computed even with factor 0: data-parallel training needs a gradient for every weight.
        true = gap_lengths.length_class(gaps_after(slots).flatten()[length_at])
        gap_length = cross_entropy(model.length_logits(h[length_at]), true, reduction="sum") / slots.u.numel()
    total = total_loss(token, position, position_factor) + gap_length_factor * gap_length
    return Losses.of(total, token=token, position=position, gap_length=gap_length, nats=_mean(per_slot))


Read = tuple[Float[Tensor, "B L d"], Float[Tensor, "B L"]]  # what `Denoiser.read` returns


def flat_targets(
    predicts: Bool[Tensor, "B L"], target: Int[Tensor, "B L"]
) -> tuple[Int[Tensor, "M"], Int[Tensor, "M"]]:
    """(flat indices of the slots that predict, their targets). Call it before the trunk runs, as above."""
    at = predicts.flatten().nonzero()[:, 0]
    return at, target.flatten()[at]


def token_losses(model: Denoiser, read: Read, at: Int[Tensor, "M"], target: Int[Tensor, "M"]) -> Losses:
    """Cross entropy of the targets at the flat slots `at`, without noise or movement.

    The other heads get a gradient of 0, which data-parallel training needs.
    """
    h, velocity = read
    if not isinstance(model.score, CleanToken):
        raise ValueError(f"this network predicts {type(model.score).__name__}; set score=CleanToken() in its config")
    # At σ = log 2 and dσ = 1 the weight dσ/(e^σ − 1) of the diffusion loss is 1.
    one = torch.ones(len(at), device=h.device)
    per_slot = model.token_loss(h.flatten(0, 1)[at], target, one * math.log(2), one)
    token = per_slot.sum() / velocity.numel()
    zero = 0 * velocity.mean()
    if model.room_head is not None:
        zero = zero + 0 * model.room_head(h[:, 0]).float().mean()
    return Losses.of(token + zero, token=token, nats=_mean(per_slot))


def length_losses(
    model: Denoiser, read: Read, at: Int[Tensor, "M"], gap_length: Int[Tensor, "M"], factor: float
) -> Losses:
    """`factor` times the mean cross entropy of gap lengths, predicted at the flat slots `at`."""
    h, velocity = read
    true = gap_lengths.length_class(gap_length)
    mean = _mean(cross_entropy(model.length_logits(h.flatten(0, 1)[at]), true, reduction="none"))
    return Losses.of(factor * mean + 0 * velocity.mean(), gap_length=mean)


def _mean(values: Float[Tensor, "M"]) -> Float[Tensor, ""]:
    """The mean, or 0 if there are no values."""
    return values.sum() / max(1, len(values))
