"""How likely the network finds what was revealed in slots of planned lengths, from the passes that filled them.

A fill's score is the mean log-probability of its tokens when they were revealed, plus a little of how likely its length
was. (Fills that are written have theirs in `writing`.)
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

_LEAST_CHANCE = 1e-12
_LENGTH = 0.1  # weight of the length beside the tokens, chosen on people.dev (docs/log.md)


class Recorder:
    """A restriction that changes nothing: it keeps the log-probability of every token at the moment it is revealed."""

    def __init__(self, mask: int):
        self.mask = mask
        self.last: Prediction | None = None
        self.log_chances: Tensor | None = None

    def __call__(self, state: State, prediction: Prediction) -> Prediction:
        self.settle(state)
        self.last = prediction
        return prediction

    def settle(self, state: State) -> Float[Tensor, "B L"]:
        """The log-probabilities so far, those of tokens revealed since the last prediction included."""
        if self.log_chances is None:
            self.log_chances = torch.zeros_like(state.z)
        if self.last is not None:
            revealed = self.last.at & (state.x != self.mask)
            chances = absorbing.final(self.last.log_score[revealed[self.last.at]], self.mask)
            found = chances.gather(1, state.x[revealed][:, None])[:, 0]
            self.log_chances[revealed] = found.clamp(min=_LEAST_CHANCE).log()
        return self.log_chances


def length_chances_of(
    view: View, chances: Float[Tensor, "n classes"] | None, fills: Sequence[Tokens]
) -> Float[np.ndarray, "blanks"]:
    """The log-probability of the length of the gap of each blank; 0 where the network plans no lengths."""
    if chances is None:
        return np.zeros(len(fills))
    lengths = dict.fromkeys(view.after, 0)
    for after, fill in zip(view.after, fills, strict=True):
        lengths[after] += len(fill)
    which = gap_lengths.length_class(torch.tensor([lengths[after] for after in view.after]))
    return chances[torch.tensor(view.after), which].clamp(min=_LEAST_CHANCE).log().double().numpy()


def score_of(tokens: Sequence[float], length: float) -> float:
    """The score of a fill from the log-probabilities of its tokens and its length."""
    return float((np.mean(tokens) if len(tokens) else 0.0) + _LENGTH * length)
