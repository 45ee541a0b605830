"""DDOT: tokens and positions are denoised together, coupled by optimal transport within each sequence.

DDOT-U is `DDOT(terminal=grid_terminal)`, DDOT-R `DDOT(terminal=random_terminal)`, and the ablation without optimal
transport `DDOT(couple=couple_independently)`.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from ddot.core.coupling import Coupling, couple
from ddot.core.positions import Terminal, grid_terminal
from ddot.core.projections import clamp_prompt, keep_prompt_order
from ddot.core.records import Example, Slots, State, Vocabulary, to_device
from ddot.core.rng import fold
from ddot.core.sampling import Leap, Projection, Restriction, Reveal, read_out, reverse, time_grid
from ddot.core.shapes import Keys, Times
from ddot.methods.layout import Table, start_at
from ddot.methods.losses import Losses, PositionWeight, denoising_losses, equal_weight
from ddot.network.denoiser import Denoiser

# Just below t = 1 the range of the positions is a weak signal of the text's length: a grid slightly wider than those of
# training looks like a text a third too long. A longer first step skips that phase.
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

    def prepare(self, examples: Sequence[Example], L: int, t: Times, keys: Keys, vocabulary: Vocabulary) -> Slots:
        """Algorithm 1, lines 2 and 3: terminal positions and couplings."""
        table = Table(examples, L, vocabulary)
        z_T = self.terminal(table.is_prompt, fold(keys, 0x7E2))
        z_0, z_T = self.couple(table.is_prompt, table.n_real, fold(keys, 0xC0), z_T)
        return table.slots(z_0, z_T, t, keys)

    def loss(self, model: Denoiser, slots: Slots, position_factor: float) -> Losses:
        """Algorithm 1, lines 4 to 8."""
        return denoising_losses(model, slots, position_factor, self.position_weight, self.gap_length_factor)

    def start(self, prompts: Sequence[Example], L: int, keys: Keys, vocabulary: Vocabulary) -> State:
        return start_at(self.terminal, prompts, L, keys, vocabulary)

    def sample(self, model: Denoiser, prompts: Sequence[Example], L: int, steps: int, keys: Keys) -> Iterator[State]:
        """The reverse process from t = 1 to 0 in `steps` steps."""
        start = to_device(self.start(prompts, L, keys, model.vocabulary), model.device)
        times, kept = time_grid(steps, FIRST_STEP), (clamp_prompt(start), *self.projections)
        return reverse(model, start, times, model.vocabulary, keys, self.reveal, kept, self.restrictions)

    texts = staticmethod(read_out)
