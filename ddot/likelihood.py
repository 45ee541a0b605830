"""How likely a network finds what was filled in: the score of an answer."""

from collections.abc import Sequence

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from ddot import absorbing, rooms
from ddot.denoiser import Denoiser
from ddot.methods.fixed_length import FixedLength
from ddot.records import OPEN, Prediction, State, to_device
from ddot.template import Blank
from ddot.typist import View, lay_out

Tokens = Int[np.ndarray, "_"]  # lists of these differ in length

_LEAST_CHANCE = 1e-12


def token_chances(model: Denoiser, view: View, blanks: Sequence[Blank], found: Sequence[Tokens]) -> list[float]:
    """The log-chance of every filled token, seen with every second one hidden: two looks at the text."""
    prompt, spans = lay_out(view, blanks, [len(tokens) for tokens in found])
    L = len(prompt) + sum(map(len, found))
    mask = model.vocabulary.mask
    start = FixedLength().start([prompt.example], L, np.zeros(1, np.uint64), model.vocabulary)
    x = start.x.clone()
    for span, tokens in zip(spans, found, strict=True):
        x[0, span.start : span.stop] = torch.from_numpy(tokens)
    open_slots = torch.nonzero(start.kind[0] == OPEN)[:, 0]
    log_chances: list[float] = []
    for parity in (0, 1):
        hidden = open_slots[parity::2]
        if len(hidden):
            seen = x.clone()
            seen[0, hidden] = mask
            t = torch.full((1,), len(hidden) / len(open_slots))
            state = State(seen, start.z, start.kind, start.room, t)
            prediction: Prediction = model(to_device(state, model.device))
            chances = absorbing.final(prediction.log_score, mask).cpu()
            log_chances += _log(chances.gather(1, x[0, hidden][:, None])[:, 0])
    return log_chances


def gap_chances(view: View, chances: Float[Tensor, "n classes"], found: Sequence[Tokens]) -> list[float]:
    """The log-chance of the length of every gap that has blanks, from the chances of each length class."""
    lengths = dict.fromkeys(view.after, 0)
    for after, tokens in zip(view.after, found, strict=True):
        lengths[after] += len(tokens)
    which = rooms.room_class(torch.tensor(list(lengths.values())))
    return _log(chances[torch.tensor(list(lengths)), which])


def _log(chances: Float[Tensor, "m"]) -> list[float]:
    return chances.clamp(min=_LEAST_CHANCE).log().tolist()
