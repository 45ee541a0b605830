"""Examples laid out as rows of slots: which token, kind and position each slot has before anything is corrupted."""

from collections.abc import Sequence

import numpy as np
import torch
from jaxtyping import Bool, Float32, Int, UInt64

from ddot.core.gaps import missing_after
from ddot.core.positions import clean_positions
from ddot.core.records import NOT_PROMPT, PAD, PROMPT, RESPONSE, UNKNOWN, UNKNOWN_LENGTH, Example, Slots, Vocabulary
from ddot.core.rng import fold, uniform


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
        self.hint = np.full((B, L), NOT_PROMPT, np.int64)
        self.gap_length = np.full((B, L), UNKNOWN_LENGTH, np.int64)
        for row, example in enumerate(examples):
            n = self.n_real[row]
            vocabulary.check(example.tokens)
            self.x_0[row, :n] = example.tokens
            self.is_prompt[row, :n] = example.is_prompt
            hint = UNKNOWN if example.hint is None else example.hint
            self.hint[row, :n] = np.where(example.is_prompt, hint, NOT_PROMPT)
            if example.gap_length is not None:
                self.gap_length[row, :n] = np.where(example.is_prompt, example.gap_length, UNKNOWN_LENGTH)

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
            gap_length=torch.from_numpy(self.gap_length),
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
        gap_length=np.full(int(keep.sum()), UNKNOWN_LENGTH) if example.gap_length is None else example.gap_length[keep],
    )


def in_line(is_prompt: Bool[np.ndarray, "B L"], keys: UInt64[np.ndarray, "B"]) -> Float32[np.ndarray, "B L"]:
    """A `Terminal`: slot after slot, neighbours 1 token unit apart at any L (2/L in [-1, 1]). Draws nothing."""
    L = is_prompt.shape[1]
    return np.broadcast_to(((2 * np.arange(L) - (L - 1)) / L).astype(np.float32), is_prompt.shape).copy()


def fitting(tokens: Int[np.ndarray, "n"], L: int) -> Int[np.ndarray, "n"]:
    """The same tokens; more than L are refused."""
    if len(tokens) > L:
        raise ValueError(f"a text of {len(tokens)} tokens does not fit into L = {L}; raise L or shorten the text")
    return tokens


def still_positions(n_real: Int[np.ndarray, "B"], L: int) -> Float32[np.ndarray, "B L"]:
    """Clean positions of the real tokens (eq. init_pos), and the pads after them at the same spacing."""
    z = np.empty((len(n_real), L), np.float32)
    for row, n in enumerate(n_real.tolist()):
        z[row, :n] = clean_positions(n, L)
        z[row, n:] = n / L + 2 / L * np.arange(1, L - n + 1)
    return z


def laid_out(example: Example) -> Example:
    """The example with as many open places after each prompt token as its `gap_length` says.

    Without lengths, the example's own missing tokens are counted: the oracle length.
    """
    gap_length = missing_after(example.is_prompt) if example.gap_length is None else example.gap_length
    given = np.flatnonzero(example.is_prompt)
    lengths = gap_length[given]
    if (lengths == UNKNOWN_LENGTH).any():
        raise ValueError("fixed length wants the length of every gap; give `gap_length` at every prompt token")
    lead = int(given[0]) if len(given) and example.gap_length is None else 0
    places = lead + np.arange(len(given)) + np.concatenate([[0], np.cumsum(lengths)[:-1]]) if len(given) else given
    total = lead + len(given) + int(lengths.sum()) if len(given) else len(example.tokens)
    tokens, is_prompt = np.zeros(total, np.int64), np.zeros(total, bool)
    tokens[places], is_prompt[places] = example.tokens[given], True
    hint, told = np.full(total, NOT_PROMPT), np.full(total, UNKNOWN_LENGTH)
    hint[places] = UNKNOWN if example.hint is None else example.hint[given]
    if example.gap_length is not None:
        told[places] = lengths
    return Example(tokens, is_prompt, hint, told)
