"""Scores of fills with planned lengths, from the passes that revealed them (for written fills, see `writing`).

A fill's score is the mean log-probability of its tokens when they were revealed, plus a fraction of that of its length.
"""

from collections.abc import Sequence

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from ddot.core import absorbing, gap_lengths
from ddot.core.records import Prediction, State
from ddot.infill.view import View

Tokens = Int[np.ndarray, "_"]  # lists of these differ in length

_LEAST_CHANCE = 1e-12  # probabilities are at least this before the logarithm
_LENGTH = 0.1  # weight of the length, chosen on people.dev (docs/log.md)


class Recorder:
    """A restriction that changes nothing: it keeps the log-probability of every token at the moment it is revealed."""

    def __init__(self, mask: int):
        self.mask = mask
        self.last: Prediction | None = None
        self.log_probs: Tensor | None = None

    def __call__(self, state: State, prediction: Prediction) -> Prediction:
        self.settle(state)
        self.last = prediction
        return prediction

    def settle(self, state: State) -> Float[Tensor, "B L"]:
        """The log-probabilities so far, those of tokens revealed since the last prediction included."""
        if self.log_probs is None:
            self.log_probs = torch.zeros_like(state.z)
        if self.last is not None:
            revealed = self.last.at & (state.x != self.mask)
            chances = absorbing.final(self.last.log_score[revealed[self.last.at]], self.mask)
            chosen = chances.gather(1, state.x[revealed][:, None])[:, 0]
            self.log_probs[revealed] = chosen.clamp(min=_LEAST_CHANCE).log()
        return self.log_probs


def length_log_probs(
    view: View, chances: Float[Tensor, "n classes"] | None, fills: Sequence[Tokens]
) -> Float[np.ndarray, "blanks"]:
    """The log-probability of the length of the gap of each blank; 0 without a length head."""
    if chances is None:
        return np.zeros(len(fills))
    lengths = dict.fromkeys(view.after, 0)
    for after, fill in zip(view.after, fills, strict=True):
        lengths[after] += len(fill)
    classes = gap_lengths.length_class(torch.tensor([lengths[after] for after in view.after]))
    return chances[torch.tensor(view.after), classes].clamp(min=_LEAST_CHANCE).log().double().numpy()


def score_of(tokens: Sequence[float], length: float) -> float:
    """The score of a fill from the log-probabilities of its tokens and its length."""
    return float((np.mean(tokens) if len(tokens) else 0.0) + _LENGTH * length)
