"""Plain masked diffusion: every slot stays where it is, so the length of each gap must be known or guessed.

The reference rows of the tables (oracle and guessed length), and the layout of texts whose gap lengths are told.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from jaxtyping import Float32, Int, UInt64

from ddot.core.gaps import missing_after
from ddot.core.positions import clean_positions
from ddot.core.projections import clamp_prompt, stay, without, without_echo
from ddot.core.records import ANY_ROOM, OPEN, Example, Slots, State, Vocabulary, to_device
from ddot.core.sampling import Leap, Projection, Restriction, Reveal, read_out, reverse, time_grid
from ddot.losses import Losses, PositionWeight, denoising_losses, equal_weight
from ddot.methods.method import Table
from ddot.network.denoiser import Denoiser


@dataclass(frozen=True)
class FixedLength:
    position_weight: PositionWeight = equal_weight
    room_factor: float = 0.0
    reveal: Reveal = field(default_factory=Leap)
    projections: tuple[Projection, ...] = ()
    restrictions: tuple[Restriction, ...] = ()

    def prepare(
        self,
        examples: Sequence[Example],
        L: int,
        t: Float32[np.ndarray, "B"],
        keys: UInt64[np.ndarray, "B"],
        vocabulary: Vocabulary,
    ) -> Slots:
        """Both ends of every path at the clean positions."""
        table = Table(examples, L, vocabulary)
        z = still_positions(table.n_real, L)
        return table.slots(z, z.copy(), t, keys)

    def loss(self, model: Denoiser, slots: Slots, position_factor: float) -> Losses:
        return denoising_losses(model, slots, position_factor, self.position_weight, self.room_factor)

    def start(self, prompts: Sequence[Example], L: int, keys: UInt64[np.ndarray, "B"], vocabulary: Vocabulary) -> State:
        """Prompt tokens where they belong, [mask]s between them, [pad]s after the end."""
        table = Table([laid_out(example) for example in prompts], L, vocabulary)
        missing = (np.arange(L) < table.n_real[:, None]) & ~table.is_prompt
        return State(
            x=torch.from_numpy(np.where(missing, vocabulary.mask, table.x_0)),
            z=torch.from_numpy(still_positions(table.n_real, L)),
            kind=torch.from_numpy(np.where(table.is_prompt, 1 + table.hint, OPEN)),
            room=torch.from_numpy(table.room),
            t=torch.ones(len(prompts)),
        )

    def sample(
        self, model: Denoiser, prompts: Sequence[Example], L: int, steps: int, keys: UInt64[np.ndarray, "B"]
    ) -> Iterator[State]:
        start = to_device(self.start(prompts, L, keys, model.vocabulary), model.device)
        kept = (clamp_prompt(start), stay(start), *self.projections)
        v = model.vocabulary
        words_only = (without(v.pad, v.sep), without_echo(v), *self.restrictions)
        return reverse(model, start, time_grid(steps), v, keys, self.reveal, kept, words_only)

    def texts(self, state: State, vocabulary: Vocabulary) -> list[Int[np.ndarray, "n"]]:
        return read_out(state, vocabulary)


def still_positions(n_real: Int[np.ndarray, "B"], L: int) -> Float32[np.ndarray, "B L"]:
    """Clean positions of the real tokens (eq. init_pos), and the pads after them at the same spacing."""
    z = np.empty((len(n_real), L), np.float32)
    for row, n in enumerate(n_real.tolist()):
        z[row, :n] = clean_positions(n, L)
        z[row, n:] = n / L + 2 / L * np.arange(1, L - n + 1)
    return z


def laid_out(example: Example) -> Example:
    """The example with as many open places after each prompt token as its `room` says.

    Without rooms, the example's own missing tokens are counted: the oracle length.
    """
    room = missing_after(example.is_prompt) if example.room is None else example.room
    given = np.flatnonzero(example.is_prompt)
    rooms = room[given]
    if (rooms == ANY_ROOM).any():
        raise ValueError("fixed length wants the length of every gap; tell `room` at every prompt token")
    lead = int(given[0]) if len(given) and example.room is None else 0
    places = lead + np.arange(len(given)) + np.concatenate([[0], np.cumsum(rooms)[:-1]]) if len(given) else given
    total = lead + len(given) + int(rooms.sum()) if len(given) else len(example.tokens)
    tokens, is_prompt = np.zeros(total, np.int64), np.zeros(total, bool)
    tokens[places], is_prompt[places] = example.tokens[given], True
    hint, told = np.zeros(total, np.int64), np.full(total, ANY_ROOM)
    if example.hint is not None:
        hint[places] = example.hint[given]
    if example.room is not None:
        told[places] = rooms
    return Example(tokens, is_prompt, hint, told)
