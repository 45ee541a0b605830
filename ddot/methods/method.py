"""The seam between methods and everything that trains, samples and evaluates them."""

from collections.abc import Iterator, Sequence
from typing import Protocol, runtime_checkable

import numpy as np
import torch
from jaxtyping import Float32, Int, UInt64

from ddot.core.records import ANY_ROOM, PAD, PROMPT, RESPONSE, UNKNOWN, Example, Slots, State, Vocabulary
from ddot.core.rng import fold, uniform
from ddot.losses import Losses
from ddot.network.denoiser import Denoiser


@runtime_checkable
class Method(Protocol):
    """`prepare` runs in loader workers on the CPU; the others where the network is."""

    def prepare(
        self,
        examples: Sequence[Example],
        L: int,
        t: Float32[np.ndarray, "B"],
        keys: UInt64[np.ndarray, "B"],
        vocabulary: Vocabulary,
    ) -> Slots: ...

    def loss(self, model: Denoiser, slots: Slots, position_factor: float) -> Losses: ...

    def sample(
        self, model: Denoiser, prompts: Sequence[Example], L: int, steps: int, keys: UInt64[np.ndarray, "B"]
    ) -> Iterator[State]: ...

    def texts(self, state: State, vocabulary: Vocabulary) -> list[Int[np.ndarray, "n"]]: ...


class Table:
    """Examples laid out as rows of L slots: real tokens in text order, then pads."""

    def __init__(self, examples: Sequence[Example], L: int, vocabulary: Vocabulary):
        B = len(examples)
        self.n_real = np.array([len(example.tokens) for example in examples], np.int64)
        if B and self.n_real.max() > L:
            raise ValueError(
                f"a text of {self.n_real.max()} tokens does not fit into L = {L} slots; raise L or shorten the text"
            )
        self.x_0 = np.full((B, L), vocabulary.pad, np.int64)
        self.is_prompt = np.zeros((B, L), bool)
        self.hint = np.full((B, L), UNKNOWN, np.int64)
        self.room = np.full((B, L), ANY_ROOM, np.int64)
        for row, example in enumerate(examples):
            n = self.n_real[row]
            vocabulary.check(example.tokens)
            self.x_0[row, :n] = example.tokens
            self.is_prompt[row, :n] = example.is_prompt
            if example.hint is not None:
                self.hint[row, :n] = np.where(example.is_prompt, example.hint, UNKNOWN)
            if example.room is not None:
                self.room[row, :n] = np.where(example.is_prompt, example.room, ANY_ROOM)

    @property
    def kind(self) -> np.ndarray:
        real = np.arange(self.x_0.shape[1]) < self.n_real[:, None]
        return np.where(self.is_prompt, PROMPT, np.where(real, RESPONSE, PAD))

    def slots(self, z_0: np.ndarray, z_T: np.ndarray, t: np.ndarray, keys: np.ndarray) -> Slots:
        """The finished batch: positions from the method, the corruption's uniform numbers from the row keys."""
        return Slots(
            x_0=torch.from_numpy(self.x_0),
            z_0=torch.from_numpy(z_0),
            z_T=torch.from_numpy(z_T),
            kind=torch.from_numpy(self.kind),
            hint=torch.from_numpy(self.hint),
            room=torch.from_numpy(self.room),
            t=torch.from_numpy(t),
            u=torch.from_numpy(uniform(fold(keys, 0x3A5C), self.x_0.shape[1])),
        )


def only_prompt(example: Example) -> Example:
    """What is given of an example, and what is told of it."""
    keep = example.is_prompt
    return Example(
        tokens=example.tokens[keep],
        is_prompt=keep[keep],
        hint=None if example.hint is None else example.hint[keep],
        room=np.full(int(keep.sum()), ANY_ROOM) if example.room is None else example.room[keep],
    )
