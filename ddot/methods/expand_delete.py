"""Expand and delete, in the manner of DreamOn: a [mask] becomes a token, two [mask]s, or nothing.

Every gap that may hold text starts with one [mask]. Predicting [sep] means expand and [pad] means delete, so the
network needs no new rows. In training, adjacent missing tokens are divided evenly among a random number of [mask]s: the
target of a [mask] for one token is that token, for several it is expand, for none it is delete.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
import torch
from jaxtyping import Bool, Int

from ddot.core.codes import UNKNOWN
from ddot.core.gaps import closes_after, closes_before
from ddot.core.records import Example, Slots, State, Vocabulary, to_device
from ddot.core.rng import fold, generator
from ddot.core.sampling import read_out, time_grid
from ddot.core.shapes import Keys, Times
from ddot.methods.insertion import placed, rank, repeated
from ddot.methods.layout import Table, fitting, in_line, only_prompt, spread_out
from ddot.methods.losses import Losses, flat_targets, token_losses
from ddot.network.denoiser import Denoiser


@dataclass(frozen=True)
class ExpandDelete:
    """`fresh`: share of rows with one [mask] per gap, as sampling starts. `extra`: probability of one too many."""

    fresh: float = 0.5
    extra: float = 0.1

    def prepare(self, examples: Sequence[Example], L: int, t: Times, keys: Keys, vocabulary: Vocabulary) -> Slots:
        """Rows of 2L + 1 slots in a line. `x_0` holds the answers; u is 0 at [mask]s and 2 elsewhere."""
        rngs = [generator(int(key)) for key in fold(keys, 0xE4D)]
        rows = [self._masked(text, L, time, rng) for text, time, rng in zip(examples, t.tolist(), rngs, strict=True)]
        slots = Table([example for example, _ in rows], 2 * L + 1, vocabulary).line_slots(t, keys)
        u = torch.full_like(slots.u, 2.0)
        for row, (example, sizes) in enumerate(rows):
            at = np.flatnonzero(sizes >= 0)
            u[row, at] = 0.0
            answers = np.select([sizes == 0, sizes == 1], [vocabulary.pad, example.tokens], vocabulary.sep)
            slots.x_0[row, at] = torch.from_numpy(answers[at])
        return replace(slots, u=u)

    def _masked(
        self, example: Example, L: int, t: float, rng: np.random.Generator
    ) -> tuple[Example, Int[np.ndarray, "n"]]:
        """(tokens and [mask]s, each [mask] as its first token; the number of tokens per [mask], −1 at tokens)."""
        n, fresh = len(fitting(example.tokens, L)), rng.random() < self.fresh
        present = example.is_prompt | ((rng.random(n) >= t) & (not fresh))
        borders = [-1, *np.flatnonzero(present).tolist(), n]
        missing = np.diff(borders) - 1
        fewer = np.ceil(rng.random(len(missing)) * missing).astype(np.int64)
        masks = np.minimum(1, missing) if fresh else np.where(rng.random(len(missing)) < 0.5, missing, fewer)
        too_many = missing == 0 if fresh else (masks == missing) & (rng.random(len(missing)) < self.extra)
        masks = masks + (too_many & _may_grow(example, borders))
        at, sizes = list[int](), list[int]()
        for (left, right), count in zip(pairwise(borders), masks.tolist(), strict=True):
            for part in np.array_split(np.arange(left + 1, right), count) if count else ():
                at.append(int(part[0]) if len(part) else n)
                sizes.append(len(part))
            if right < n:
                at.append(right)
                sizes.append(-1)
        columns = [example.tokens, example.is_prompt, example.hint, example.gap_length]
        tokens, is_prompt, hint, length = (None if column is None else np.append(column, 0)[at] for column in columns)
        size = np.array(sizes, np.int64)
        return Example(np.asarray(tokens), np.asarray(is_prompt, bool) & (size < 0), hint, length), size

    def loss(self, model: Denoiser, slots: Slots, position_factor: float) -> Losses:
        """Cross entropy of the answers. Nothing moves, so λ is unused."""
        masked = slots.u < 1
        state = slots.state(x=torch.where(masked, model.vocabulary.mask, slots.x_0), t=torch.zeros_like(slots.t))
        at, target = flat_targets(masked, slots.x_0)
        return token_losses(model, model.read(state), at, target)

    def start(self, prompts: Sequence[Example], L: int, keys: Keys, vocabulary: Vocabulary) -> State:
        """The prompt with a [mask] in every gap that may hold text, in 2L + 1 slots. Only the prompt is read."""
        rows = []
        for example in map(only_prompt, prompts):
            grows = _may_grow(example, range(-1, len(fitting(example.tokens, L)) + 1)).astype(np.int64)
            rows.append(spread_out(example, int(grows[0]), grows[1:], example.gap_length))
        table = Table(rows, 2 * L + 1, vocabulary)
        return table.start(in_line(table.is_prompt, keys), ~table.is_prompt & (table.x_0 != vocabulary.pad))

    def sample(self, model: Denoiser, prompts: Sequence[Example], L: int, steps: int, keys: Keys) -> Iterator[State]:
        """A state after each forward pass, which deletes and expands where that is most likely and reveals the most
        certain tokens; the last pass reveals or deletes every [mask]. A text never exceeds L tokens. Deterministic."""
        v = model.vocabulary
        state = to_device(self.start(prompts, L, keys, v), model.device)
        yield state
        for passes, s in zip(range(steps, 0, -1), time_grid(steps)[1:], strict=True):
            present, masked = state.x != v.pad, state.x == v.mask
            h, _ = model.read(replace(state, t=torch.zeros_like(state.t)))
            logits = model.logits(h[masked]).float()[:, : v.size]
            logits[:, [v.mask, v.sep] if passes == 1 else [v.mask]] = -torch.inf
            chances = torch.softmax(logits, -1)
            sure, word = (placed(values, masked) for values in chances[:, : v.base].max(-1))
            delete, expand = (placed(chances[:, answer], masked) for answer in (v.pad, v.sep))
            # Beyond L slots the [mask]s most likely to be deleted go in any case; expansions take the space left.
            surplus = present.sum(-1, keepdim=True) - L
            deleted = masked & ((delete > torch.maximum(expand, sure)) | (rank(delete, masked) < surplus))
            grows = masked & ~deleted & (expand > sure)
            words = masked & ~deleted & ~grows
            grows = grows & (rank(expand, grows) < deleted.sum(-1, keepdim=True) - surplus)
            reveal = words & (rank(sure, words) < -(-words.sum(-1, keepdim=True) // passes))
            x = torch.where(reveal, word, state.x)
            state = repeated(replace(state, x=x), (present & ~deleted).long() + grows, v)
            state = replace(state, t=torch.full_like(state.t, s))
            yield state

    texts = staticmethod(read_out)


def _may_grow(example: Example, borders: Sequence[int]) -> Bool[np.ndarray, "gaps"]:
    """Whether text may go between consecutive `borders`: indices of tokens, −1 for the start, n for the end."""
    hint = np.concatenate([[UNKNOWN], np.where(example.is_prompt, example.hints, UNKNOWN), [UNKNOWN]])
    hint = hint[np.array(borders) + 1]
    hints = torch.from_numpy(hint)[None]
    return ~(closes_after(hints)[0, :-1] | closes_before(hints)[0, 1:]).numpy()
