"""Left context (LC), a baseline of the paper: after the prompt and [sep], the network denoises the whole sentence.

Slots do not move, and no hint says where the prompt's tokens go: the network must learn to copy them in order. L is the
maximum length of a text, as for every method; a row has 2L slots (the paper's "double the context length").
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from ddot.core.projections import clamp_prompt, stay
from ddot.core.records import Example, Slots, State, Vocabulary, to_device
from ddot.core.sampling import Leap, Reveal, reverse, time_grid
from ddot.core.shapes import Keys, Times
from ddot.methods.layout import Table, in_line, prompt_and_separator, prompt_and_text, start_at, texts_after_prompt
from ddot.methods.losses import Losses, denoising_losses
from ddot.network.denoiser import Denoiser


@dataclass(frozen=True)
class LeftContext:
    reveal: Reveal = field(default_factory=Leap)

    def prepare(self, examples: Sequence[Example], L: int, t: Times, keys: Keys, vocabulary: Vocabulary) -> Slots:
        """Rows `prompt [sep] sentence [pad]…` of 2L slots in a line; everything after [sep] is denoised."""
        texts = map(_without_hints, examples)
        rows = [prompt_and_text(text, np.zeros_like(text.is_prompt), L, vocabulary) for text in texts]
        return Table(rows, 2 * L, vocabulary).line_slots(t, keys)

    def loss(self, model: Denoiser, slots: Slots, position_factor: float) -> Losses:
        """The token loss alone (eq. token-loss). Nothing moves, so λ is unused."""
        return denoising_losses(model, slots, position_factor=0.0)

    def start(self, prompts: Sequence[Example], L: int, keys: Keys, vocabulary: Vocabulary) -> State:
        """The state at t = 1: the prompt, [sep], then [mask]s. Only the prompt of each example is read."""
        rows = [prompt_and_separator(_without_hints(example), L, vocabulary) for example in prompts]
        return start_at(in_line, rows, 2 * L, keys, vocabulary)

    def sample(self, model: Denoiser, prompts: Sequence[Example], L: int, steps: int, keys: Keys) -> Iterator[State]:
        """The reverse process from t = 1 to 0 in `steps` steps; only slots right of [sep] change."""
        start = to_device(self.start(prompts, L, keys, model.vocabulary), model.device)
        kept = (clamp_prompt(start), stay(start))
        return reverse(model, start, time_grid(steps), model.vocabulary, keys, self.reveal, kept)

    texts = staticmethod(texts_after_prompt)


def _without_hints(example: Example) -> Example:
    return Example(example.tokens, example.is_prompt)
