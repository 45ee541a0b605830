"""How likely the network finds what was filled in, from the passes that filled it and one more.

A fill's score is the mean log-probability of its tokens when they were revealed, plus a little of how likely its length
was and of how likely the text right after it is, which catches words cut short and sentences that do not go on.
"""

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from ddot.core import absorbing, gap_lengths
from ddot.core.gaps import gap_hints, missing_after, open_gaps
from ddot.core.records import Example, Prediction, State, to_device
from ddot.infill.view import View
from ddot.methods.fixed_length import FixedLength
from ddot.methods.layout import only_prompt
from ddot.network.denoiser import Denoiser

Tokens = Int[np.ndarray, "_"]  # lists of these differ in length

_LEAST_CHANCE = 1e-12
# Weights of the length and of the text after a blank beside its tokens, chosen on people.dev (docs/log.md).
_LENGTH, _AFTER = 0.1, 0.2


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


def with_next_hidden(view: View, fills: Sequence[Tokens]) -> tuple[Example, Int[np.ndarray, "_"]]:
    """The filled text, the token right after each blank missing; for each blank which of the missing ones that
    is, −1 at the end of the text."""
    given, tokens, missing = view.prompt.example.tokens, [], []
    by_gap: dict[int, list[Tokens]] = {}
    for after, fill in zip(view.after, fills, strict=True):
        by_gap.setdefault(after, []).append(fill)
    for number, token in enumerate(given):
        tokens.append(np.array([token]))
        missing.append([number - 1 in by_gap and number < len(given) - 1])
        for fill in by_gap.get(number, []):
            tokens.append(fill)
            missing.append([False] * len(fill))
    is_prompt = ~np.concatenate(missing).astype(bool)
    lengths = missing_after(is_prompt)
    example = Example(np.concatenate(tokens), is_prompt, gap_hints(is_prompt, open_gaps(is_prompt)), lengths)
    order = {after: place for place, after in enumerate(sorted(set(view.after)))}
    last = len(given) - 2
    return example, np.array([order[after] if after < last else -1 for after in view.after], np.int64)


@torch.no_grad()
def chances_of_next(model: Denoiser, examples: Sequence[Example], L: int) -> list[list[float]]:
    """For each text of `with_next_hidden` the log-probability of its missing tokens, in order. One forward pass."""
    mask = model.vocabulary.mask
    prompts = [only_prompt(example) for example in examples]
    start = FixedLength().start(prompts, L, np.zeros(len(prompts), np.uint64), model.vocabulary)
    prediction = model(to_device(start, model.device))
    true = torch.from_numpy(np.concatenate([example.tokens[~example.is_prompt] for example in examples]))
    chances = absorbing.final(prediction.log_score, mask).cpu().gather(1, true[:, None])[:, 0]
    found = chances.clamp(min=_LEAST_CHANCE).log().tolist()
    counts = [int((~example.is_prompt).sum()) for example in examples]
    ends = np.cumsum([0, *counts])
    return [found[a:b] for a, b in pairwise(ends.tolist())]


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


def score_of(tokens: Sequence[float], length: float, following: float) -> float:
    """The score of a fill from the log-probabilities of its tokens, its length and the token after it."""
    return float((np.mean(tokens) if len(tokens) else 0.0) + _LENGTH * length + _AFTER * following)
