"""Examples as rows of slots: the token, kind and position of each slot, before corruption or sampling."""

import dataclasses
from collections.abc import Sequence

import numpy as np
import torch
from jaxtyping import Bool, Int

from ddot.core.codes import AFTER, BOTH, NOT_PROMPT, PAD, PROMPT, RESPONSE, UNKNOWN_LENGTH
from ddot.core.gaps import missing_after
from ddot.core.positions import Terminal, clean_positions
from ddot.core.records import Example, Slots, State, Vocabulary
from ddot.core.rng import fold, uniform
from ddot.core.shapes import Flags, Keys, Positions, Times


class Table:
    """Rows of L slots: the real tokens of an example in text order, then pads."""

    def __init__(self, examples: Sequence[Example], L: int, vocabulary: Vocabulary):
        B, self.L, self.vocabulary = len(examples), L, vocabulary
        self.n_real = np.array([len(example.tokens) for example in examples], np.int64)
        self.x_0 = np.full((B, L), vocabulary.pad, np.int64)
        self.is_prompt = np.zeros((B, L), bool)
        self.hint = np.full((B, L), NOT_PROMPT, np.int64)
        self.gap_length = np.full((B, L), UNKNOWN_LENGTH, np.int64)
        for row, example in enumerate(examples):
            n = len(fitting(example.tokens, L))
            vocabulary.check(example.tokens)
            self.x_0[row, :n] = example.tokens
            self.is_prompt[row, :n] = example.is_prompt
            self.hint[row, :n] = np.where(example.is_prompt, example.hints, NOT_PROMPT)
            self.gap_length[row, :n] = np.where(example.is_prompt, example.gap_lengths, UNKNOWN_LENGTH)

    @property
    def kind(self) -> Int[np.ndarray, "B L"]:
        real = np.arange(self.L) < self.n_real[:, None]
        return np.where(self.is_prompt, PROMPT, np.where(real, RESPONSE, PAD))

    @property
    def still(self) -> Positions:
        """Clean positions of the real tokens (eq. init_pos), and the pads after them at the same spacing."""
        z = np.empty((len(self.n_real), self.L), np.float32)
        for row, n in enumerate(self.n_real.tolist()):
            z[row, :n] = clean_positions(n, self.L)
            z[row, n:] = n / self.L + 2 / self.L * np.arange(1, self.L - n + 1)
        return z

    def slots(self, z_0: Positions, z_T: Positions, t: Times, keys: Keys) -> Slots:
        """A training batch: positions come from the method, the uniform numbers for corruption from the row keys."""
        u = uniform(fold(keys, 0x3A5C), self.L)
        return Slots(*map(torch.from_numpy, (self.x_0, z_0, z_T, self.kind, self.hint, self.gap_length, t, u)))

    def still_slots(self, t: Times, keys: Keys) -> Slots:
        """A training batch in which nothing moves. The length of a text is known, so pads are never masked."""
        z = self.still
        slots = self.slots(z, z, t, keys)
        return dataclasses.replace(slots, u=torch.where(slots.kind == PAD, 2.0, slots.u))

    def line_slots(self, t: Times, keys: Keys) -> Slots:
        """A training batch in which slots stay in a line. Lengths are unknown, so pads are masked as well."""
        z = in_line(self.is_prompt, keys)
        return self.slots(z, z, t, keys)

    def start(self, z: Positions, masked: Flags) -> State:
        """The state at t = 1 with slots at `z`, those in `masked` masked."""
        x, t = np.where(masked, self.vocabulary.mask, self.x_0), np.ones(len(self.n_real), np.float32)
        return State(*map(torch.from_numpy, (x, z, self.hint, self.gap_length, t)))

    def still_start(self) -> State:
        """The state at t = 1 when nothing moves: given tokens in place, [mask]s between them, [pad]s at the end."""
        return self.start(self.still, self.kind == RESPONSE)


def start_at(terminal: Terminal, prompts: Sequence[Example], L: int, keys: Keys, vocabulary: Vocabulary) -> State:
    """The state at t = 1: prompt tokens and [mask]s at terminal positions. Only the prompt of each example is read."""
    table = Table([only_prompt(example) for example in prompts], L, vocabulary)
    return table.start(terminal(table.is_prompt, fold(keys, 0x7E2)), ~table.is_prompt)


def only_prompt(example: Example) -> Example:
    """The given tokens of an example, with their hints and gap lengths."""
    given = example.is_prompt
    return Example(example.tokens[given], given[given], example.hints[given], example.gap_lengths[given])


def joined(*parts: Example, most: int | None = None) -> Example:
    """The examples concatenated, cut after `most` tokens."""
    names = ("tokens", "is_prompt", "hints", "gap_lengths")
    return Example(*(np.concatenate([getattr(part, name) for part in parts])[:most] for name in names))


def separator(vocabulary: Vocabulary) -> Example:
    """[sep] as a given token."""
    return Example(np.array([vocabulary.sep]), np.ones(1, bool))


def prompt_and_separator(example: Example, L: int, vocabulary: Vocabulary) -> Example:
    """`prompt [sep]`, all of it given, with the prompt's hints and gap lengths."""
    prompt = only_prompt(example)
    fitting(prompt.tokens, L)
    return joined(prompt, separator(vocabulary))


def prompt_and_text(example: Example, is_prompt: Bool[np.ndarray, "n"], L: int, vocabulary: Vocabulary) -> Example:
    """`prompt [sep] text`, the tokens of the text given where `is_prompt` says so, at most 2L tokens.

    Two copies of a text of L tokens and the [sep] exceed that: such a text with nothing missing loses its last token.
    """
    text = Example(fitting(example.tokens, L), is_prompt)
    return joined(prompt_and_separator(example, L, vocabulary), text, most=2 * L)


def texts_after_prompt(state: State, vocabulary: Vocabulary) -> list[Int[np.ndarray, "n"]]:
    """The tokens right of the last prompt slot, up to the first [pad], without [mask]s."""
    texts = []
    for x, is_prompt in zip(state.x.cpu().numpy(), state.is_prompt.cpu().numpy(), strict=True):
        text = x[np.flatnonzero(is_prompt)[-1] + 1 :]
        text = text[np.cumsum(text == vocabulary.pad) == 0]
        texts.append(text[text != vocabulary.mask])
    return texts


def in_line(is_prompt: Flags, keys: Keys) -> Positions:
    """A `Terminal`: slots in order, neighbours 1 token unit (a position of 2/L) apart. Draws nothing."""
    L = is_prompt.shape[1]
    return np.broadcast_to(((2 * np.arange(L) - (L - 1)) / L).astype(np.float32), is_prompt.shape).copy()


def fitting(tokens: Int[np.ndarray, "n"], L: int) -> Int[np.ndarray, "n"]:
    """The tokens; refused if there are more than L."""
    if len(tokens) > L:
        raise ValueError(f"a text of {len(tokens)} tokens does not fit into L = {L}; raise L or shorten the text")
    return tokens


def laid_out(example: Example) -> Example:
    """The example with as many missing tokens after each prompt token as its `gap_length` says.

    Without lengths, as many as the example itself has: the oracle length.
    """
    given = np.flatnonzero(example.is_prompt)
    if not len(given):
        return Example(np.zeros_like(example.tokens), example.is_prompt)
    if example.gap_length is None:
        return spread_out(example, int(given[0]), missing_after(example.is_prompt)[given], None)
    lengths = example.gap_length[given]
    if (lengths == UNKNOWN_LENGTH).any():
        raise ValueError("fixed length needs the length of every gap; give `gap_length` at every prompt token")
    return spread_out(example, 0, lengths, lengths)


def with_placeholders(example: Example, most: int | None = None) -> Example:
    """The prompt with one missing token in every gap that may hold text: the input from which lengths are planned.

    `gap_length` is the true length of each gap. If this takes more than `most` tokens, empty gaps get no placeholder.
    """
    given = np.flatnonzero(example.is_prompt)
    lengths = missing_after(example.is_prompt)[given]
    is_open = np.isin(example.hints[given], (AFTER, BOTH))
    if most is not None and len(given) + is_open.sum() > most:
        is_open &= lengths > 0
    return spread_out(example, 0, is_open.astype(np.int64), lengths)


def spread_out(
    example: Example, lead: int, missing: Int[np.ndarray, "given"], gap_length: Int[np.ndarray, "given"] | None
) -> Example:
    """The prompt with `lead` missing tokens before it and `missing` after each of its tokens."""
    given = np.flatnonzero(example.is_prompt)
    places = lead + np.arange(len(given)) + np.cumsum(missing) - missing
    total = lead + len(given) + int(missing.sum())
    tokens, is_prompt = np.zeros(total, np.int64), np.zeros(total, bool)
    hint, lengths = np.full(total, NOT_PROMPT), np.full(total, UNKNOWN_LENGTH)
    tokens[places], is_prompt[places], hint[places] = example.tokens[given], True, example.hints[given]
    if gap_length is not None:
        lengths[places] = gap_length
    return Example(tokens, is_prompt, hint, lengths)
