"""The records passed between modules: data only, independent of methods, networks and files."""

import dataclasses
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from ddot.core.codes import NOT_PROMPT, UNKNOWN, UNKNOWN_LENGTH


@dataclass(frozen=True)
class Vocabulary:
    """The rows of a vocabulary: `base` ordinary tokens, then [mask], [pad] and [sep].

    [mask] comes first after the ordinary ones, where the public SEDD checkpoints have it.
    """

    base: int

    @property
    def mask(self) -> int:
        return self.base

    @property
    def pad(self) -> int:
        return self.base + 1

    @property
    def sep(self) -> int:
        return self.base + 2

    @property
    def size(self) -> int:
        return self.base + 3

    @property
    def rows(self) -> int:
        """Rows of a network: `size` rounded up to a multiple of 64 for fast kernels. The extra rows are unused."""
        return -(-self.size // 64) * 64

    def check(self, tokens: Int[np.ndarray, "n"]) -> None:
        """Refuse ids other than ordinary tokens and [sep]: a clean text has no [mask] and no [pad]."""
        wrong = (tokens < 0) | ((tokens >= self.base) & (tokens != self.sep))
        if wrong.any():
            raise ValueError(
                f"token id {int(tokens[wrong][0])} is out of range: a text holds ids 0 … {self.base - 1} "
                f"(and {self.sep} for [sep]); encode it with the tokenizer of this model"
            )


@dataclass(frozen=True)
class Example:
    """One text: token ids in order, which of them are given, and what is known about the gaps."""

    tokens: Int[np.ndarray, "n"]
    is_prompt: Bool[np.ndarray, "n"]
    hint: Int[np.ndarray, "n"] | None = None  # None: UNKNOWN at every prompt token
    gap_length: Int[np.ndarray, "n"] | None = None  # tokens missing after each prompt token, or UNKNOWN_LENGTH

    @property
    def hints(self) -> Int[np.ndarray, "n"]:
        """`hint`, or its default."""
        return np.where(self.is_prompt, UNKNOWN, NOT_PROMPT) if self.hint is None else self.hint

    @property
    def gap_lengths(self) -> Int[np.ndarray, "n"]:
        """`gap_length`, or UNKNOWN_LENGTH everywhere."""
        return np.full(len(self.tokens), UNKNOWN_LENGTH) if self.gap_length is None else self.gap_length


@dataclass(frozen=True)
class Prompt:
    """Given tokens in order with their hints, and which of the n + 1 gaps may hold text."""

    example: Example  # prompt tokens only
    is_open: Bool[np.ndarray, "gaps"]

    def __len__(self) -> int:
        return len(self.example.tokens)

    @property
    def free(self) -> bool:
        """Whether nothing is known about where text is missing."""
        return self.example.hint is None or bool((self.example.hint == UNKNOWN).all())

    def with_gap_lengths(self, gap_length: Int[np.ndarray, "n"]) -> "Prompt":
        """The same prompt, with the number of tokens missing after each given one."""
        return Prompt(dataclasses.replace(self.example, gap_length=gap_length), self.is_open)


@dataclass(frozen=True)
class Slots:
    """A batch ready for corruption: clean ends, noisy ends, and every random number that corruption needs."""

    x_0: Int[Tensor, "B L"]
    z_0: Float[Tensor, "B L"]
    z_T: Float[Tensor, "B L"]
    kind: Int[Tensor, "B L"]  # PROMPT, RESPONSE, PAD
    hint: Int[Tensor, "B L"]  # of prompt slots; NOT_PROMPT elsewhere
    gap_length: Int[Tensor, "B L"]  # given length of the gap after a prompt slot; UNKNOWN_LENGTH elsewhere
    t: Float[Tensor, "B"]
    u: Float[Tensor, "B L"]  # a slot is masked when u < masked share at t

    def state(self, **changes: Tensor) -> "State":
        """The clean end as a State, with some tensors replaced."""
        return dataclasses.replace(State(self.x_0, self.z_0, self.hint, self.gap_length, self.t), **changes)


@dataclass(frozen=True)
class State:
    """What the network reads at time t, and what the reverse process moves."""

    x: Int[Tensor, "B L"]
    z: Float[Tensor, "B L"]
    hint: Int[Tensor, "B L"]  # of prompt slots; NOT_PROMPT elsewhere
    gap_length: Int[Tensor, "B L"]  # as in Slots
    t: Float[Tensor, "B"]

    @property
    def is_prompt(self) -> Bool[Tensor, "B L"]:
        return self.hint != NOT_PROMPT


@dataclass(frozen=True)
class Prediction:
    """The network's output for a State. `log_score` has a row for each slot in `at`, in row-major order."""

    at: Bool[Tensor, "B L"]
    log_score: Float[Tensor, "M V"]
    velocity: Float[Tensor, "B L"]
    chunk: int | None = None  # rows of `log_score` to process at once (see `chunks`); None: all


R = TypeVar("R", Slots, State)


def to_device(record: R, device: torch.device | str) -> R:
    """The same record with its tensors on `device`."""
    names = [field.name for field in dataclasses.fields(record)]
    return type(record)(**{name: getattr(record, name).to(device, non_blocking=True) for name in names})
