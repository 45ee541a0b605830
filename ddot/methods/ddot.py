"""DDOT: tokens and positions denoised together, coupled by optimal transport inside each sequence.

DDOT-U is `DDOT(terminal=grid_terminal)`, DDOT-R `DDOT(terminal=random_terminal)`, the ablation without optimal
transport `DDOT(couple=couple_independently)`.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from jaxtyping import Float32, Int, UInt64

from ddot.core.coupling import Coupling, couple
from ddot.core.positions import Terminal, grid_terminal
from ddot.core.projections import clamp_prompt, keep_prompt_order
from ddot.core.records import Example, Slots, State, Vocabulary, to_device
from ddot.core.rng import fold
from ddot.core.sampling import Leap, Projection, Restriction, Reveal, read_out, reverse, time_grid
from ddot.methods.layout import Table, only_prompt
from ddot.methods.losses import Losses, PositionWeight, denoising_losses, equal_weight
from ddot.network.denoiser import Denoiser

# Right after t = 1 the spread of all positions says how long the text is, and says it faintly: a grid that is a little
# wider than those of the training looks like a text a third too long. A first step of some length is past that.
FIRST_STEP = 1 / 8


@dataclass(frozen=True)
class DDOT:
    terminal: Terminal = grid_terminal
    couple: Coupling = couple
    position_weight: PositionWeight = equal_weight
    gap_length_factor: float = 0.0
    reveal: Reveal = field(default_factory=Leap)
    projections: tuple[Projection, ...] = (keep_prompt_order,)
    restrictions: tuple[Restriction, ...] = ()

    def prepare(
        self,
        examples: Sequence[Example],
        L: int,
        t: Float32[np.ndarray, "B"],
        keys: UInt64[np.ndarray, "B"],
        vocabulary: Vocabulary,
    ) -> Slots:
        """Algorithm 1, lines 2 and 3: terminal positions and couplings."""
        table = Table(examples, L, vocabulary)
        z_T = self.terminal(table.is_prompt, fold(keys, 0x7E2))
        z_0, z_T = self.couple(table.is_prompt, table.n_real, fold(keys, 0xC0), z_T)
        return table.slots(z_0, z_T, t, keys)

    def loss(self, model: Denoiser, slots: Slots, position_factor: float) -> Losses:
        """Algorithm 1, lines 4 to 8."""
        return denoising_losses(model, slots, position_factor, self.position_weight, self.gap_length_factor)

    def start(self, prompts: Sequence[Example], L: int, keys: UInt64[np.ndarray, "B"], vocabulary: Vocabulary) -> State:
        """The state at t = 1: prompt tokens and [mask]s at the terminal positions. Only prompt tokens are read."""
        given = [only_prompt(example) for example in prompts]
        table = Table(given, L, vocabulary)
        z_T = self.terminal(table.is_prompt, fold(keys, 0x7E2))
        return State(
            x=torch.from_numpy(np.where(table.is_prompt, table.x_0, vocabulary.mask)),
            z=torch.from_numpy(z_T),
            hint=torch.from_numpy(table.hint),
            gap_length=torch.from_numpy(table.gap_length),
            t=torch.ones(len(prompts)),
        )

    def sample(
        self, model: Denoiser, prompts: Sequence[Example], L: int, steps: int, keys: UInt64[np.ndarray, "B"]
    ) -> Iterator[State]:
        """The reverse process from t = 1 to 0 in `steps` steps."""
        start = to_device(self.start(prompts, L, keys, model.vocabulary), model.device)
        times, kept = time_grid(steps, FIRST_STEP), (clamp_prompt(start), *self.projections)
        return reverse(model, start, times, model.vocabulary, keys, self.reveal, kept, self.restrictions)

    def texts(self, state: State, vocabulary: Vocabulary) -> list[Int[np.ndarray, "n"]]:
        """The tokens of each row in reading order."""
        return read_out(state, vocabulary)
