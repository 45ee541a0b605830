"""The reverse process: a generator of States, one per step. Knows nothing about methods, text or files.

A step is a pure function. Variants are objects passed in: the reveal, projections and restrictions. Random numbers come
from each row's own key, so a row gives the same result in any batch.
"""

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Protocol, runtime_checkable

import numpy as np
import torch
from jaxtyping import Bool, Float, Int, UInt64
from torch import Tensor

from ddot.core import absorbing
from ddot.core.annealing import Annealing, greedy
from ddot.core.chunks import in_chunks
from ddot.core.noise import SCHEDULE, LogLinear
from ddot.core.records import Prediction, State, Vocabulary
from ddot.core.rng import fold, uniform

Model = Callable[[State], Prediction]
Projection = Callable[[State], State]
# Makes tokens impossible (a score of −∞) before any are revealed.
Restriction = Callable[[State, Prediction], Prediction]


@runtime_checkable
class Reveal(Protocol):
    """Decides which masked slots get their token in the step from state.t to s. `u`: a uniform number per slot."""

    def __call__(
        self, state: State, prediction: Prediction, s: float, u: Float[Tensor, "B L"], vocabulary: Vocabulary
    ) -> Int[Tensor, "B L"]: ...


def time_grid(steps: int, first: float = 0.0) -> list[float]:
    """1 = t_0 > … > t_K = 0, evenly spaced after a first step of at least `first`."""
    if steps < 1:
        raise ValueError(f"steps is {steps}; it must be at least 1")
    if steps == 1 or first <= 1 / steps:
        return [1 - k / steps for k in range(steps)] + [0.0]
    return [1.0] + [(1 - first) * (1 - k / (steps - 1)) for k in range(steps - 1)] + [0.0]


@dataclass(frozen=True)
class Leap(Reveal):
    """The paper's τ-leap: every masked slot is revealed independently, at the rate of the reverse process.

    `exact`: the analytic step instead of Euler's. The last step, to t = 0, leaves nothing masked.
    """

    anneal: Annealing = greedy
    exact: bool = True
    noise: LogLinear = SCHEDULE

    def __call__(
        self, state: State, prediction: Prediction, s: float, u: Float[Tensor, "B L"], vocabulary: Vocabulary
    ) -> Int[Tensor, "B L"]:
        t = state.t[:, None].expand_as(u)[prediction.at]

        def choose(log_score: Tensor, t: Tensor, u: Tensor) -> tuple[Tensor]:
            if s <= 0:
                chances = absorbing.final(log_score, vocabulary.mask)
            elif self.exact:
                sigma, sigma_next = self.noise.sigma(t), self.noise.sigma(torch.full_like(t, s))
                chances = absorbing.analytic(log_score, sigma, sigma_next, vocabulary.mask)
            else:
                chances = absorbing.euler(log_score, self.noise.dsigma(t), t - s, vocabulary.mask)
            return (self.anneal(chances, vocabulary).draw(u),)

        (tokens,) = in_chunks(choose, prediction.chunk, prediction.log_score, t, u[prediction.at])
        return state.x.masked_scatter(prediction.at, tokens)


@dataclass(frozen=True)
class MostCertainFirst(Reveal):
    """Reveals as many slots as the noise schedule unmasks, those with the most probable tokens first.

    Neighbours revealed independently in one step repeat words; this way the less certain see the more certain. `anneal`
    draws the tokens. Pads and words are ranked separately and revealed at the same pace: pads are always more certain,
    and slots redrawn until they give [pad] would leave no words. `apart` postpones words next to a more certain one of
    the same step.
    """

    anneal: Annealing = greedy
    apart: bool = True
    noise: LogLinear = SCHEDULE

    def __call__(
        self, state: State, prediction: Prediction, s: float, u: Float[Tensor, "B L"], vocabulary: Vocabulary
    ) -> Int[Tensor, "B L"]:
        drawn, certainty = _draw(self.anneal, state, prediction, u, vocabulary)
        masked = prediction.at.sum(-1)
        stay = torch.ceil(masked * self.noise.still_masked(state.t, s) - 1e-4)
        order = torch.full_like(u, torch.inf)
        for group in (prediction.at & (drawn == vocabulary.pad), prediction.at & (drawn != vocabulary.pad)):
            sure = torch.where(group, certainty, -1.0)
            if self.apart:
                sure = torch.where(group & ~_surest_around(state.z, sure, group), sure - 1, sure)
            rank = sure.argsort(dim=-1, descending=True, stable=True).argsort(dim=-1)
            order = torch.where(group, (rank + 0.5) / group.sum(-1, keepdim=True).clamp(min=1), order)
        place = order.argsort(dim=-1, stable=True).argsort(dim=-1)
        return torch.where(place < (masked - stay)[:, None], drawn, state.x)


def _draw(
    anneal: Annealing, state: State, prediction: Prediction, u: Float[Tensor, "B L"], vocabulary: Vocabulary
) -> tuple[Int[Tensor, "B L"], Float[Tensor, "B L"]]:
    """(a token for every masked slot, its probability)."""

    def choose(log_score: Tensor, u: Tensor) -> tuple[Tensor, Tensor]:
        chances = absorbing.final(log_score, vocabulary.mask)
        tokens = anneal(chances, vocabulary).draw(u)
        return tokens, chances.gather(1, tokens[:, None])[:, 0]

    tokens, chance = in_chunks(choose, prediction.chunk, prediction.log_score, u[prediction.at])
    return state.x.masked_scatter(prediction.at, tokens), torch.zeros_like(u).masked_scatter(prediction.at, chance)


def _surest_around(
    z: Float[Tensor, "B L"], sure: Float[Tensor, "B L"], group: Bool[Tensor, "B L"]
) -> Bool[Tensor, "B L"]:
    """A set of slots without neighbours in reading order: the surest, then the surest not next to it, and so on."""
    order = z.argsort(dim=-1, stable=True)
    row, remaining = sure.gather(1, order), group.gather(1, order)
    chosen = torch.zeros_like(remaining)
    while remaining.any():
        height = torch.nn.functional.pad(torch.where(remaining, row, -torch.inf), (1, 1), value=-torch.inf)
        peak = remaining & (height[:, 1:-1] > height[:, :-2]) & (height[:, 1:-1] >= height[:, 2:])
        if not peak.any():  # NaN scores have no order
            return torch.zeros_like(chosen).scatter(1, order, chosen | remaining)
        chosen |= peak
        beside = torch.nn.functional.pad(peak, (1, 1))
        remaining = remaining & ~(peak | beside[:, :-2] | beside[:, 2:])
    return torch.zeros_like(chosen).scatter(1, order, chosen)


def reverse(
    model: Model,
    state: State,
    times: Sequence[float],
    vocabulary: Vocabulary,
    keys: UInt64[np.ndarray, "B"],
    reveal: Reveal | None = None,
    projections: Sequence[Projection] = (),
    restrictions: Sequence[Restriction] = (),
) -> Iterator[State]:
    """The states at times[0], times[1], …: tokens revealed, positions moved by an Euler step.

    Projections act on the goal z + t·velocity, the clean positions as predicted now, not on the moving slots, which may
    cross on straight paths. The last step ends at the goal, so what holds there holds for the text. Without projections
    this is plain Euler.
    """
    reveal = reveal or Leap()
    yield state
    for step, (t, s) in enumerate(pairwise(times)):
        u = torch.from_numpy(uniform(fold(keys, step), state.x.shape[1])).to(state.z.device)
        prediction = model(state)
        for restrict in restrictions:
            prediction = restrict(state, prediction)
        x = reveal(state, prediction, s, u, vocabulary)
        goal = dataclasses.replace(state, x=x, z=state.z + t * prediction.velocity, t=torch.full_like(state.t, s))
        for project in projections:
            goal = project(goal)
        z = goal.z if s <= 0 else torch.lerp(state.z, goal.z, (t - s) / t)
        state = dataclasses.replace(goal, z=z)
        yield state


def read_out(state: State, vocabulary: Vocabulary) -> list[Int[np.ndarray, "n"]]:
    """The texts: tokens in order of position (ties by slot), without [pad] and [mask]."""
    order = state.z.argsort(dim=-1, stable=True)
    rows = state.x.gather(1, order).cpu().numpy()
    return [row[(row != vocabulary.pad) & (row != vocabulary.mask)] for row in rows]
