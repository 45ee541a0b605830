"""Left to right: the base language model, trained to write the whole sentence after its prompt (as in AutoTemplate).

A row is `prompt [sep] sentence`. Each prediction in the sentence is a word, [sep] for "the prompt's next token", or
[pad] for the end. After predicting [sep] the model reads the prompt's own token, so it always reads natural text, and
the prompt is kept in order by construction. Sampling takes one forward pass per token, with a key-value cache.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from ddot.core.annealing import Annealing, greedy
from ddot.core.codes import NOT_PROMPT, PAD, PROMPT, UNKNOWN_LENGTH
from ddot.core.gaps import gaps_open_by_hint
from ddot.core.records import Example, Slots, State, Vocabulary, to_device
from ddot.core.rng import fold, uniform
from ddot.core.shapes import Keys, Times
from ddot.methods.layout import Table, in_line, prompt_and_separator, prompt_and_text, texts_after_prompt
from ddot.methods.losses import Losses, flat_targets, token_losses
from ddot.network.denoiser import Denoiser
from ddot.network.trunk import Cache, left_to_right


@dataclass(frozen=True)
class Autoregressive:
    anneal: Annealing = greedy  # to draw tokens: `Tempered` with pad_apart=False

    def prepare(self, examples: Sequence[Example], L: int, t: Times, keys: Keys, vocabulary: Vocabulary) -> Slots:
        """Rows `prompt [sep] sentence [pad]…` of 2L slots in a line; given tokens are PROMPT in both parts."""
        rows = [prompt_and_text(example, example.is_prompt, L, vocabulary) for example in examples]
        return Table(rows, 2 * L, vocabulary).line_slots(t, keys)

    def loss(self, model: Denoiser, slots: Slots, position_factor: float) -> Losses:
        """Cross entropy of every next token from [sep] on. Nothing moves, so λ is unused."""
        at, target = flat_targets(*targets(slots, model.vocabulary))
        sentence = _sentence(slots.kind)
        state = slots.state(
            hint=torch.where(sentence, NOT_PROMPT, slots.hint),  # hints would tell the sentence what follows
            gap_length=torch.where(sentence, UNKNOWN_LENGTH, slots.gap_length),
            t=torch.zeros_like(slots.t),  # the input is never noisy
        )
        return token_losses(model, model.read(state, left_to_right), at, target)

    def start(self, prompts: Sequence[Example], L: int, keys: Keys, vocabulary: Vocabulary) -> State:
        """`prompt [sep]` and L slots for the sentence. Prompts are left-padded with [pad]s that are not attended to."""
        rows = [prompt_and_separator(example, L, vocabulary) for example in prompts]
        widest = max((len(row.tokens) for row in rows), default=1)
        x = np.full((len(rows), widest + L), vocabulary.mask, np.int64)
        hint, gap_length = np.full_like(x, NOT_PROMPT), np.full_like(x, UNKNOWN_LENGTH)
        x[:, :widest] = vocabulary.pad
        for row, prompt in enumerate(rows):
            vocabulary.check(prompt.tokens)
            at = slice(widest - len(prompt.tokens), widest)
            x[row, at], hint[row, at], gap_length[row, at] = prompt.tokens, prompt.hints, prompt.gap_lengths
        z, t = in_line(hint != NOT_PROMPT, keys), np.ones(len(rows), np.float32)
        return State(*map(torch.from_numpy, (x, z, hint, gap_length, t)))

    def sample(self, model: Denoiser, prompts: Sequence[Example], L: int, steps: int, keys: Keys) -> Iterator[State]:
        """A state for every token written, at most L; t falls from 1 to 0. `steps` is unused: one pass writes a token.

        The prompt always fits: no word takes a slot that the rest of the prompt needs. Gaps hinted closed stay closed.
        """
        start = to_device(self.start(prompts, L, keys, model.vocabulary), model.device)
        yield start
        v, x, first = model.vocabulary, start.x, start.x.shape[1] - L
        cache = Cache(len(x), x.device)
        seen = start.is_prompt | (torch.arange(x.shape[1], device=x.device) >= first)
        is_open, count = gaps_open_by_hint(start.hint), start.is_prompt.sum(-1) - 1
        used, done, part = torch.zeros_like(count), torch.zeros_like(count, dtype=torch.bool), slice(0, first)
        for place in range(L):
            cache.grow(seen[:, part])
            h, _ = model.read(replace(start, x=x, t=torch.zeros_like(start.t)), cache, part)
            may_write = is_open.gather(1, used[:, None])[:, 0] & (L - place > count - used)
            score = allowed(model.logits(h[:, -1]), v, may_write & ~done, (used < count) & ~done)
            u = torch.from_numpy(uniform(fold(keys, place), 1)[:, 0]).to(score.device)
            token = self.anneal(torch.softmax(score, -1), v).draw(u)
            following = x.gather(1, (first - 1 - count + used)[:, None])[:, 0]  # the next token of the prompt
            is_next = token == v.sep
            done = done | (token == v.pad)
            part = slice(first + place, first + place + 1)
            x = x.clone()
            x[:, first + place] = torch.where(is_next, following, token)
            used = used + is_next
            if bool(done.all()) or place == L - 1:
                break
            yield replace(start, x=x, t=torch.full_like(start.t, 1 - (place + 1) / L))
        yield replace(start, x=torch.where(x == v.mask, v.pad, x), t=torch.zeros_like(start.t))

    texts = staticmethod(texts_after_prompt)


def targets(slots: Slots, vocabulary: Vocabulary) -> tuple[Bool[Tensor, "B L"], Int[Tensor, "B L"]]:
    """(slots that predict the next token, the targets): [sep] and every token of the sentence.

    The last slot predicts nothing. Only texts of L tokens with at most one missing reach it: their end is not trained,
    and those with nothing missing, one token too long for 2L slots, lose their last token.
    """
    sentence, last = _sentence(slots.kind), slots.kind[:, -1:]
    kind = torch.cat([slots.kind[:, 1:], torch.full_like(last, PAD)], 1)
    following = torch.cat([slots.x_0[:, 1:], torch.full_like(last, vocabulary.pad)], 1)
    predicts = torch.cat([sentence[:, 1:], torch.zeros_like(sentence[:, :1])], 1) & (slots.kind != PAD)
    return predicts, torch.where(kind == PROMPT, vocabulary.sep, following)


def allowed(
    logits: Float[Tensor, "B V"], vocabulary: Vocabulary, word: Bool[Tensor, "B"], given: Bool[Tensor, "B"]
) -> Float[Tensor, "B V"]:
    """The logits in float32, −∞ where not allowed. Allowed: words if `word`, [sep] if `given`, else [pad], the end."""
    column = torch.arange(logits.shape[1], device=logits.device)
    fits = (column < vocabulary.base) & word[:, None]
    fits = fits | ((column == vocabulary.sep) & given[:, None]) | ((column == vocabulary.pad) & ~given[:, None])
    return torch.where(fits, logits.float(), -torch.inf)


def _sentence(kind: Int[Tensor, "B L"]) -> Bool[Tensor, "B L"]:
    """Slots right of the prompt's [sep]. Given tokens occur twice, once on each side of it."""
    separator = (kind == PROMPT).sum(-1, keepdim=True) // 2
    return torch.arange(kind.shape[1], device=kind.device) > separator
