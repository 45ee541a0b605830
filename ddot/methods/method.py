"""The interface between methods and the code that trains, samples and evaluates them."""

from collections.abc import Iterator, Sequence
from typing import Protocol, runtime_checkable

import numpy as np
from jaxtyping import Int

from ddot.core.records import Example, Slots, State, Vocabulary
from ddot.core.shapes import Keys, Times
from ddot.methods.losses import Losses
from ddot.network.denoiser import Denoiser


@runtime_checkable
class Trainable(Protocol):
    """A way to train a network. `prepare` runs in loader workers on the CPU, `loss` on the network's device."""

    def prepare(self, examples: Sequence[Example], L: int, t: Times, keys: Keys, vocabulary: Vocabulary) -> Slots: ...

    def loss(self, model: Denoiser, slots: Slots, position_factor: float) -> Losses: ...


@runtime_checkable
class Method(Trainable, Protocol):
    """A `Trainable` that also fills blanks: `sample` yields states, `texts` reads the texts of one."""

    def sample(
        self, model: Denoiser, prompts: Sequence[Example], L: int, steps: int, keys: Keys
    ) -> Iterator[State]: ...

    def texts(self, state: State, vocabulary: Vocabulary) -> list[Int[np.ndarray, "n"]]: ...
