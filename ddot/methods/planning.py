"""Planning: predicts the length of each gap from the prompt read as text. Trains the length head; fills nothing.

Slots do not move. Every gap that is open according to the hints holds one [mask], so that the trunk reads something
close to a text with blanks. `infill` plans with the same layout (`Planning.start`).
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch

from ddot.core.codes import AFTER, BOTH, RESPONSE, UNKNOWN, UNKNOWN_LENGTH
from ddot.core.records import Example, Slots, State, Vocabulary
from ddot.core.shapes import Keys, Times
from ddot.methods.layout import Table, only_prompt, with_placeholders
from ddot.methods.losses import Losses, flat_targets, length_losses
from ddot.network.denoiser import Denoiser


@dataclass(frozen=True)
class Planning:
    factor: float = 0.3

    def prepare(self, examples: Sequence[Example], L: int, t: Times, keys: Keys, vocabulary: Vocabulary) -> Slots:
        """Prompts with placeholders at t = 1. `gap_length` holds the targets, which are hidden from the network."""
        rows = [with_placeholders(example, most=L) for example in examples]
        return Table(rows, L, vocabulary).still_slots(np.ones_like(t), keys)

    def loss(self, model: Denoiser, slots: Slots, position_factor: float) -> Losses:
        """Cross entropy of the length of every gap that may hold text. Nothing moves, so λ is unused."""
        is_open = (slots.hint == AFTER) | (slots.hint == BOTH) | (slots.hint == UNKNOWN)
        at, gap_length = flat_targets(is_open, slots.gap_length)
        state = slots.state(
            x=torch.where(slots.kind == RESPONSE, model.vocabulary.mask, slots.x_0),
            gap_length=torch.full_like(slots.gap_length, UNKNOWN_LENGTH),
        )
        return length_losses(model, model.read(state), at, gap_length, self.factor)

    def start(self, prompts: Sequence[Example], L: int, vocabulary: Vocabulary) -> State:
        """The network's input: the length of the gap after a prompt slot is predicted at that slot."""
        rows = [with_placeholders(only_prompt(example)) for example in prompts]
        state = Table(rows, L, vocabulary).still_start()
        return replace(state, gap_length=torch.full_like(state.gap_length, UNKNOWN_LENGTH))
