"""How likely a network finds what was filled in: the score of an answer."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from ddot.core import absorbing, gap_lengths
from ddot.core.chunks import in_portions
from ddot.core.records import Prediction, Prompt, State, Vocabulary, to_device
from ddot.core.sampling import Reveal
from ddot.infill.view import View
from ddot.methods.fixed_length import FixedLength
from ddot.network.denoiser import Denoiser

Tokens = Int[np.ndarray, "_"]  # lists of these differ in length

_LEAST_CHANCE = 1e-12


@dataclass(frozen=True)
class Row:
    """A prompt that is told its gaps' lengths, the slots of its blanks in order, and the tokens found for those."""

    prompt: Prompt
    slots: Int[np.ndarray, "n"]
    tokens: Int[np.ndarray, "n"]


def token_chances(model: Denoiser, texts: Sequence[Row], L: int, rows: int = 1) -> list[list[float]]:
    """For each text the log-chance of every filled token, seen with every second one hidden: two looks at a batch.

    The batch has at least `rows` rows: the last text is repeated, with nothing hidden.
    """
    mask = model.vocabulary.mask
    examples = [text.prompt.example for text in texts]
    examples += examples[-1:] * (rows - len(texts))
    start = FixedLength().start(examples, L, np.zeros(len(examples), np.uint64), model.vocabulary)
    x = start.x.clone()
    for row, text in enumerate(texts):
        x[row, text.slots] = torch.from_numpy(text.tokens)
    x[len(texts) :] = x[len(texts) - 1]
    log_chances: list[list[float]] = [[] for _ in texts]
    for parity in (0, 1):
        seen, t = x.clone(), start.t.clone()
        hidden = [text.slots[parity::2] for text in texts]
        for row, (text, slots) in enumerate(zip(texts, hidden, strict=True)):
            seen[row, slots] = mask
            t[row] = len(slots) / max(1, len(text.slots))
        if not any(map(len, hidden)):
            continue
        prediction: Prediction = model(to_device(State(seen, start.z, start.hint, start.gap_length, t), model.device))
        right = x[seen == mask].to(model.device)
        found = _log(_chances_of(prediction, right, mask))
        for mine, slots in zip(log_chances, hidden, strict=True):
            mine += found[: len(slots)]
            found = found[len(slots) :]
    return log_chances


def _chances_of(prediction: Prediction, tokens: Int[Tensor, "M"], mask: int) -> Float[Tensor, "M"]:
    """The chance of the token that is right, for each slot that is predicted."""

    def of(log_score: Tensor, tokens: Tensor) -> tuple[Tensor]:
        return (absorbing.final(log_score, mask).gather(1, tokens[:, None])[:, 0],)

    return in_portions(of, prediction.portion, prediction.log_score, tokens)[0].cpu()


class Recorder:
    """Keeps the log-chance of every token at the step it is revealed: by the chain rule, their sum is the text's.

    As a restriction it sees the prediction, before the rules of spelling change it; around a reveal, what is chosen.
    """

    log_chances: Float[Tensor, "B L"]

    def restrict(self, state: State, prediction: Prediction) -> Prediction:
        self.prediction = prediction
        return prediction

    def around(self, reveal: Reveal) -> Reveal:
        def recorded(
            state: State, prediction: Prediction, s: float, u: Float[Tensor, "B L"], vocabulary: Vocabulary
        ) -> Int[Tensor, "B L"]:
            x = reveal(state, prediction, s, u, vocabulary)
            if not hasattr(self, "log_chances"):
                self.log_chances = torch.zeros(x.shape)
            at, revealed = prediction.at.cpu(), (x != vocabulary.mask).cpu()
            chances = _chances_of(self.prediction, x[prediction.at], vocabulary.mask)
            self.log_chances[at & revealed] = chances.clamp(min=_LEAST_CHANCE).log()[revealed[at]]
            return x

        return recorded


def gap_chances(view: View, chances: Float[Tensor, "n classes"], found: Sequence[Tokens]) -> list[float]:
    """The log-chance of the length of every gap that has blanks, from the chances of each length class."""
    lengths = dict.fromkeys(view.after, 0)
    for after, tokens in zip(view.after, found, strict=True):
        lengths[after] += len(tokens)
    which = gap_lengths.length_class(torch.tensor(list(lengths.values())))
    return _log(chances[torch.tensor(list(lengths)), which])


def _log(chances: Float[Tensor, "m"]) -> list[float]:
    return chances.clamp(min=_LEAST_CHANCE).log().tolist()
