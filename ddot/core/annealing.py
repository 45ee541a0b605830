"""Sharpens the token distribution of a reverse step to candidate tokens per slot and their probabilities.

The input is a table of probabilities (M, V) from `absorbing`, in which [mask]'s is the probability of staying masked.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import reduce

import torch
from jaxtyping import Float, Int
from torch import Tensor

from ddot.core.records import Vocabulary
from ddot.core.shapes import PerSlot, Scores


@dataclass(frozen=True)
class Candidates:
    """Candidate tokens of each slot and their probabilities (rows sum to 1). The first is [mask]: staying masked."""

    tokens: Int[Tensor, "M k"]
    chances: Float[Tensor, "M k"]

    def draw(self, u: PerSlot) -> Int[Tensor, "M"]:
        """One token per slot, never of probability 0, by inverting the cumulative distribution at u."""
        below = self.chances.cumsum(-1) <= u[:, None]
        # Rounded probabilities may sum to slightly less than u.
        columns = torch.arange(self.tokens.shape[1], device=u.device)
        last = torch.where(self.chances > 0, columns, 0).amax(-1, keepdim=True)
        index = torch.minimum(below.sum(-1, keepdim=True), last)
        return self.tokens.gather(1, index)[:, 0]


Annealing = Callable[[Scores, Vocabulary], Candidates]


def greedy(chances: Scores, vocabulary: Vocabulary) -> Candidates:
    """The paper's annealing: [mask] keeps its probability, the most likely other token takes the rest."""
    return _greedy(chances, vocabulary.mask)


def greedy_words(chances: Scores, vocabulary: Vocabulary) -> Candidates:
    """[mask] and [pad] keep their probabilities, the most likely word takes the rest.

    This draws lengths instead of collapsing them onto their mode.
    """
    return _greedy(chances, vocabulary.mask, vocabulary.pad)


def _greedy(chances: Scores, *special: int) -> Candidates:
    """The special tokens keep their probabilities, the most likely other token takes the rest."""
    best = _without(chances, *special).argmax(-1)
    kept = [chances[:, token] for token in special]
    rest = reduce(torch.sub, kept, torch.ones_like(kept[0])).clamp(min=0)
    tokens = [*(torch.full_like(best, token) for token in special), best]
    return Candidates(torch.stack(tokens, -1), torch.stack([*kept, rest], -1))


@dataclass(frozen=True)
class Tempered:
    """Temperature, then nucleus (top-p) sampling. [mask] keeps its probability.

    With `pad_apart` so does [pad], and only words are sharpened.
    """

    temperature: float = 1.0
    top_p: float = 1.0
    pad_apart: bool = True

    def __post_init__(self) -> None:
        if not self.temperature > 0:
            raise ValueError(f"temperature is {self.temperature}; it must be above 0 (use greedy annealing for 0)")
        if not 0 < self.top_p <= 1:
            raise ValueError(f"top_p is {self.top_p}; it must lie in (0, 1]")

    def __call__(self, chances: Scores, vocabulary: Vocabulary) -> Candidates:
        stay = chances[:, vocabulary.mask]
        pad = chances[:, vocabulary.pad] if self.pad_apart else torch.zeros_like(stay)
        words = _without(chances, vocabulary.mask, *([vocabulary.pad] * self.pad_apart))
        # Relative to the most likely word: small probabilities raised to a high power would all be 0.
        words = (words / words.amax(-1, keepdim=True).clamp(min=1e-30)).pow(1 / self.temperature)
        words, order = words.sort(-1, descending=True)
        words = words / words.sum(-1, keepdim=True).clamp(min=1e-30)
        words = words * (words.cumsum(-1) - words < self.top_p)
        words = words / words.sum(-1, keepdim=True).clamp(min=1e-30)
        rest = (1 - stay - pad).clamp(min=0)[:, None]
        special = torch.tensor([vocabulary.mask, vocabulary.pad], device=order.device).expand(len(order), 2)
        return Candidates(torch.cat([special, order], -1), torch.cat([stay[:, None], pad[:, None], words * rest], -1))


def _without(chances: Scores, *tokens: int) -> Scores:
    chances = chances.clone()
    for token in tokens:
        chances[:, token] = 0.0
    return chances
