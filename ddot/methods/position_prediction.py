"""Position prediction (PoP), a baseline of the paper: positions are predicted once, from the prompt alone, and tokens
are then denoised at these fixed positions.

The paper has a network for each part; here one network does both. Positions: one forward pass at t = 1, where all but
the prompt is masked. Tokens: plain masked diffusion at the predicted positions, in training as in sampling. (The true
positions would give away which slots are words: those are evenly spaced, with pads between them.)
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

import torch

from ddot.core.codes import PROMPT
from ddot.core.coupling import Coupling, couple
from ddot.core.positions import Terminal, grid_terminal
from ddot.core.projections import clamp_prompt, stay
from ddot.core.records import Example, Slots, State, Vocabulary, to_device
from ddot.core.sampling import Leap, Reveal, read_out, reverse, time_grid
from ddot.core.shapes import Keys, Times
from ddot.methods.ddot import DDOT
from ddot.methods.layout import start_at
from ddot.methods.losses import Losses, PositionWeight, denoising_losses, equal_weight, position_loss, total_loss
from ddot.network.denoiser import Denoiser


@dataclass(frozen=True)
class PositionPrediction:
    terminal: Terminal = grid_terminal
    couple: Coupling = couple
    position_weight: PositionWeight = equal_weight
    reveal: Reveal = field(default_factory=Leap)

    def prepare(self, examples: Sequence[Example], L: int, t: Times, keys: Keys, vocabulary: Vocabulary) -> Slots:
        """The same as DDOT's: terminal positions, each coupled to a clean position."""
        return DDOT(self.terminal, self.couple).prepare(examples, L, t, keys, vocabulary)

    def loss(self, model: Denoiser, slots: Slots, position_factor: float) -> Losses:
        """Eq. Lpos at t = 1, and eq. token-loss at time t at the positions predicted there."""
        x, t = torch.where(slots.kind == PROMPT, slots.x_0, model.vocabulary.mask), torch.ones_like(slots.t)
        _, velocity = model.read(slots.state(x=x, z=slots.z_T, t=t))
        weight = self.position_weight(t, slots.u.shape[1])
        position = position_loss(velocity, slots.z_0, slots.z_T, weight)
        z = (slots.z_T + velocity).detach()
        tokens = denoising_losses(model, replace(slots, z_0=z, z_T=z), position_factor=0.0)
        return replace(tokens, total=total_loss(tokens.total, position, position_factor), position=position.detach())

    def start(self, prompts: Sequence[Example], L: int, keys: Keys, vocabulary: Vocabulary) -> State:
        """The state from which positions are predicted."""
        return start_at(self.terminal, prompts, L, keys, vocabulary)

    def sample(self, model: Denoiser, prompts: Sequence[Example], L: int, steps: int, keys: Keys) -> Iterator[State]:
        """The reverse process from t = 1 to 0 in `steps` steps at the predicted positions: steps + 1 forward passes."""
        start = to_device(self.start(prompts, L, keys, model.vocabulary), model.device)
        with torch.no_grad():
            start = replace(start, z=start.z + model.read(start)[1])
        kept = (clamp_prompt(start), stay(start))
        return reverse(model, start, time_grid(steps), model.vocabulary, keys, self.reveal, kept)

    texts = staticmethod(read_out)
