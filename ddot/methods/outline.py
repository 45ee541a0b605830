"""Writes the gaps from left to right after an outline of the whole text: how the embedded model fills blanks.

A row is `outline [sep] text`, read causally like the base language model. The outline is the prompt with one [mask] in
every gap that may hold text. In a gap each prediction is a token, or [sep] for "the gap ends here", after which the
prompt's own token is read, so that the network always reads natural text. One pass supervises every token of every gap,
conditioned on exactly what sampling provides: the whole prompt and the text so far. Lengths need no planning.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Bool, Int
from torch import Tensor
from torch.nn.functional import pad

from ddot.core.codes import AFTER, BOTH, NOT_PROMPT, PAD, PROMPT, RESPONSE, UNKNOWN, UNKNOWN_LENGTH
from ddot.core.records import Example, Slots, Vocabulary
from ddot.core.shapes import Keys, Times
from ddot.methods.layout import in_line, joined, separator, spread_out
from ddot.methods.losses import Losses, flat_targets, token_losses
from ddot.network.denoiser import Denoiser
from ddot.network.trunk import left_to_right

END = 3  # a kind of slot: the given token after a gap; the slot before it predicts the end of the gap


@dataclass(frozen=True)
class Outline:
    """`width`: slots of a row as a multiple of L; longer rows are cut. `plain`: texts without an outline.

    Plain rows are next-token prediction: they preserve what the base model knows, and let the model score whole texts.
    """

    width: float = 1.75
    plain: bool = False

    def prepare(self, examples: Sequence[Example], L: int, t: Times, keys: Keys, vocabulary: Vocabulary) -> Slots:
        """Rows `outline [sep] text [pad]…` in a line, never noisy. Only the outline has hints."""
        rows = [_row(example, vocabulary, self.plain) for example in examples]
        columns = [np.full((len(rows), int(self.width * L)), empty) for empty in _EMPTY]
        columns[0][:] = vocabulary.pad
        for row, parts in enumerate(rows):
            for column, part in zip(columns, parts, strict=True):
                column[row, : len(part)] = part[: column.shape[1]]
        x, kind, hint, gap_length = map(torch.from_numpy, columns)
        z = torch.from_numpy(in_line(kind.numpy() == PROMPT, keys))
        still = torch.zeros(len(rows))
        return Slots(x_0=x, z_0=z, z_T=z, kind=kind, hint=hint, gap_length=gap_length, t=still, u=torch.ones_like(z))

    def loss(self, model: Denoiser, slots: Slots, position_factor: float) -> Losses:
        """Cross entropy of every token of a gap and of its end. Nothing moves, so λ is unused."""
        at, target = flat_targets(*targets(slots, model.vocabulary))
        return token_losses(model, model.read(slots.state(), left_to_right), at, target)


def targets(slots: Slots, vocabulary: Vocabulary) -> tuple[Bool[Tensor, "B L"], Int[Tensor, "B L"]]:
    """(slots that predict what comes next, the targets): the tokens of gaps, [sep] where a gap ends."""
    kind, following = pad(slots.kind[:, 1:], (0, 1), value=PAD), pad(slots.x_0[:, 1:], (0, 1))
    return (kind == RESPONSE) | (kind == END), torch.where(kind == END, vocabulary.sep, following)


_EMPTY = (0, PAD, NOT_PROMPT, UNKNOWN_LENGTH)
Row = tuple[Int[np.ndarray, "n"], Int[np.ndarray, "n"], Int[np.ndarray, "n"], Int[np.ndarray, "n"]]


def _row(example: Example, vocabulary: Vocabulary, plain: bool) -> Row:
    """(tokens, kinds, hints, gap lengths) of a row."""
    n = len(example.tokens)
    vocabulary.check(example.tokens)
    if plain:
        kinds = np.full(n, RESPONSE)
        kinds[:1] = PROMPT
        return example.tokens, kinds, np.full(n, NOT_PROMPT), np.full(n, UNKNOWN_LENGTH)
    first, is_open = outline(example, vocabulary)
    kinds = np.where(example.is_prompt, PROMPT, RESPONSE)
    given = np.flatnonzero(example.is_prompt)
    kinds[given[1:][is_open[:-1]]] = END
    return (
        np.concatenate([first.tokens, example.tokens]),
        np.concatenate([np.full(len(first.tokens), PROMPT), kinds]),
        np.concatenate([first.hints, np.full(n, NOT_PROMPT)]),
        np.concatenate([first.gap_lengths, example.gap_lengths]),
    )


def outline(example: Example, vocabulary: Vocabulary) -> tuple[Example, Bool[np.ndarray, "given"]]:
    """(`prompt [sep]`, whether text may follow each given token). Located gaps have a [mask], free ones have none."""
    hints = example.hints[example.is_prompt]
    located = np.isin(hints, (AFTER, BOTH))
    gap_length = example.gap_lengths[example.is_prompt]
    row = joined(spread_out(example, 0, located.astype(np.int64), gap_length), separator(vocabulary))
    tokens, hint = np.where(row.is_prompt, row.tokens, vocabulary.mask), np.where(row.is_prompt, row.hints, UNKNOWN)
    return Example(tokens, np.ones(len(tokens), bool), hint, row.gap_lengths), located | (hints == UNKNOWN)
