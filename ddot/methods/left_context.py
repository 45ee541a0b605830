"""Left context (LC), a baseline of the paper: the prompt stands left of a separator, and the network writes the whole
sentence anew right of it.

Nothing moves and nobody says where the prompt's words go: that they come back, and in order, is for the network to
learn. L is the longest text, as with every method; a row has 2L slots (the paper's "double the context length").
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
from jaxtyping import Int

from ddot.core.projections import clamp_prompt, stay
from ddot.core.records import NOT_PROMPT, Example, Slots, State, Vocabulary, to_device
from ddot.core.sampling import Leap, Restriction, Reveal, reverse, time_grid
from ddot.core.shapes import Keys, Times
from ddot.methods.layout import Table, fitting, in_line, start_at
from ddot.methods.losses import Losses, denoising_losses
from ddot.network.denoiser import Denoiser


@dataclass(frozen=True)
class LeftContext:
    reveal: Reveal = field(default_factory=Leap)
    restrictions: tuple[Restriction, ...] = ()

    def prepare(self, examples: Sequence[Example], L: int, t: Times, keys: Keys, vocabulary: Vocabulary) -> Slots:
        """Rows `prompt [sep] sentence [pad]…` of 2L slots in a line; all that follows [sep] is to be denoised."""
        rows = [_with_sentence(example, L, vocabulary) for example in examples]
        table = Table(rows, 2 * L, vocabulary)
        z = in_line(table.is_prompt, keys)
        return table.slots(z, z.copy(), t, keys)

    def loss(self, model: Denoiser, slots: Slots, position_factor: float) -> Losses:
        """The token loss alone (eq. token-loss): where slots lie is given, so λ has nothing to weigh."""
        return denoising_losses(model, slots, position_factor=0.0)

    def start(self, prompts: Sequence[Example], L: int, keys: Keys, vocabulary: Vocabulary) -> State:
        """The state at t = 1: the prompt, [sep], then [mask]s. Of an example only the prompt's tokens are read."""
        rows = [_left_part(example, L, vocabulary) for example in prompts]
        return start_at(in_line, rows, 2 * L, keys, vocabulary)

    def sample(self, model: Denoiser, prompts: Sequence[Example], L: int, steps: int, keys: Keys) -> Iterator[State]:
        """The reverse process from t = 1 to 0 in `steps` steps: words and pads right of [sep], nothing else changes."""
        start = to_device(self.start(prompts, L, keys, model.vocabulary), model.device)
        kept = (clamp_prompt(start), stay(start))
        return reverse(model, start, time_grid(steps), model.vocabulary, keys, self.reveal, kept, self.restrictions)

    def texts(self, state: State, vocabulary: Vocabulary) -> list[Int[np.ndarray, "n"]]:
        """The sentences: what stands right of [sep], up to the first [pad]."""
        found = []
        for x, hint in zip(state.x.cpu().numpy(), state.hint.cpu().numpy(), strict=True):
            sentence = x[hint == NOT_PROMPT]
            sentence = sentence[np.cumsum(sentence == vocabulary.pad) == 0]
            found.append(sentence[sentence != vocabulary.mask])
        return found


def _left_part(example: Example, L: int, vocabulary: Vocabulary) -> Example:
    """`prompt [sep]`, all of it given, nothing told of gaps."""
    tokens = fitting(example.tokens[example.is_prompt], L)
    return Example(np.append(tokens, vocabulary.sep), np.ones(len(tokens) + 1, bool))


def _with_sentence(example: Example, L: int, vocabulary: Vocabulary) -> Example:
    """`prompt [sep] sentence`.

    Two copies of a text of L tokens and the [sep] are one too many: of a full text that is given as a whole, where
    nothing is missing, the sentence loses its last token.
    """
    left = _left_part(example, L, vocabulary).tokens
    tokens = np.concatenate([left, fitting(example.tokens, L)])[: 2 * L]
    return Example(tokens, np.arange(len(tokens)) < len(left))
