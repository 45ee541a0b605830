"""Plain masked diffusion: slots do not move, so the length of each gap must be known or planned."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from ddot.core.projections import clamp_prompt, stay, without, without_echo
from ddot.core.records import Example, Slots, State, Vocabulary, to_device
from ddot.core.sampling import Leap, Restriction, Reveal, read_out, reverse, time_grid
from ddot.core.shapes import Keys, Times
from ddot.methods.layout import Table, laid_out
from ddot.methods.losses import Losses, PositionWeight, denoising_losses, equal_weight
from ddot.network.denoiser import Denoiser


@dataclass(frozen=True)
class FixedLength:
    position_weight: PositionWeight = equal_weight
    gap_length_factor: float = 0.0
    reveal: Reveal = field(default_factory=Leap)
    restrictions: tuple[Restriction, ...] = ()

    def prepare(self, examples: Sequence[Example], L: int, t: Times, keys: Keys, vocabulary: Vocabulary) -> Slots:
        """Every path starts and ends at the clean position."""
        return Table(examples, L, vocabulary).still_slots(t, keys)

    def loss(self, model: Denoiser, slots: Slots, position_factor: float) -> Losses:
        return denoising_losses(model, slots, position_factor, self.position_weight, self.gap_length_factor)

    def start(self, prompts: Sequence[Example], L: int, keys: Keys, vocabulary: Vocabulary) -> State:
        """The state at t = 1, with as many [mask]s in each gap as its length says."""
        return Table([laid_out(example) for example in prompts], L, vocabulary).still_start()

    def sample(self, model: Denoiser, prompts: Sequence[Example], L: int, steps: int, keys: Keys) -> Iterator[State]:
        start = to_device(self.start(prompts, L, keys, model.vocabulary), model.device)
        kept = (clamp_prompt(start), stay(start))
        v = model.vocabulary
        words_only = (without(v.pad, v.sep), without_echo(v), *self.restrictions)
        return reverse(model, start, time_grid(steps), v, keys, self.reveal, kept, words_only)

    texts = staticmethod(read_out)
