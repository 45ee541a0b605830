"""Plain masked diffusion: slots do not move, so the length of each gap must be known or planned."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from jaxtyping import Int
from torch import Tensor
from torch.nn.functional import max_pool1d

from ddot.core.projections import clamp_prompt, stay, without, without_echo
from ddot.core.records import Example, Prediction, Slots, State, Vocabulary, to_device
from ddot.core.sampling import Leap, Projection, Restriction, Reveal, read_out, reverse, time_grid
from ddot.core.shapes import Keys, Times
from ddot.methods.layout import Table, laid_out
from ddot.methods.losses import Losses, PositionWeight, denoising_losses, equal_weight
from ddot.network.denoiser import Denoiser
from ddot.network.trunk import WHOLE, Recall

_BESIDE = 2  # slots of the prompt that words beside them change the most (see docs/log.md)


@dataclass(frozen=True)
class FixedLength:
    position_weight: PositionWeight = equal_weight
    gap_length_factor: float = 0.0
    reveal: Reveal = field(default_factory=Leap)
    projections: tuple[Projection, ...] = ()
    restrictions: tuple[Restriction, ...] = ()
    # Every how many forward passes the prompt is read again; see `Recalling`. None: without a cache.
    refresh: int | None = None

    def prepare(self, examples: Sequence[Example], L: int, t: Times, keys: Keys, vocabulary: Vocabulary) -> Slots:
        """Both ends of every path are the clean positions."""
        return Table(examples, L, vocabulary).still_slots(t, keys)

    def loss(self, model: Denoiser, slots: Slots, position_factor: float) -> Losses:
        return denoising_losses(model, slots, position_factor, self.position_weight, self.gap_length_factor)

    def start(self, prompts: Sequence[Example], L: int, keys: Keys, vocabulary: Vocabulary) -> State:
        """The state at t = 1: as many [mask]s in each gap as its length says."""
        return Table([laid_out(example) for example in prompts], L, vocabulary).still_start()

    def sample(self, model: Denoiser, prompts: Sequence[Example], L: int, steps: int, keys: Keys) -> Iterator[State]:
        start = to_device(self.start(prompts, L, keys, model.vocabulary), model.device)
        kept = (clamp_prompt(start), stay(start), *self.projections)
        v = model.vocabulary
        words_only = (without(v.pad, v.sep), without_echo(v), *self.restrictions)
        times = time_grid(steps)
        network = model if self.refresh is None else Recalling(model, self.reveal, times, self.refresh)
        return reverse(network, start, times, v, keys, self.reveal, kept, words_only)

    texts = staticmethod(read_out)


class Recalling:
    """A denoiser with a key-value cache, for slots that stay: all are read in every `refresh`-th forward pass.

    The passes between read the slots outside the prompt and those beside them, and see the others as they were last
    read, when fewer words were revealed. Scores are computed for the slots that `reveal` asks for.
    """

    def __init__(self, model: Denoiser, reveal: Reveal, times: Sequence[float], refresh: int):
        self.model, self.reveal, self.times, self.refresh = model, reveal, times, refresh
        self.recall, self.passes = Recall(), 0

    def __call__(self, state: State) -> Prediction:
        part = self._near(state) if self.passes % self.refresh else WHOLE
        self.passes += 1
        at = self.reveal.asks(state, self.times[self.passes], self.model.vocabulary)
        return self.model(state, at, self.recall.reading(part), part)

    @staticmethod
    def _near(state: State) -> Int[Tensor, "_"]:
        """Slots outside the prompt (of any row), and up to `_BESIDE` on either side of them."""
        outside = (~state.is_prompt).any(0).float()
        return max_pool1d(outside[None], 2 * _BESIDE + 1, stride=1, padding=_BESIDE)[0].nonzero()[:, 0]
