"""Left to right: the base language model, taught to write the whole sentence after its prompt (AutoTemplate's idea).

A row is `prompt [sep] sentence`. While the sentence is written, each answer is a word, [sep] for "the next word of the
prompt", or [pad] for the end. For [sep] the model then reads the prompt's own word, so it always reads natural text and
the prompt is kept, in order, by construction. Sampling takes one forward pass per token, with a key-value cache.
"""

import dataclasses
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from ddot.core.annealing import Annealing, greedy
from ddot.core.gaps import told_open
from ddot.core.records import (
    NOT_PROMPT,
    PAD,
    PROMPT,
    UNKNOWN,
    UNKNOWN_LENGTH,
    Example,
    Slots,
    State,
    Vocabulary,
    to_device,
)
from ddot.core.rng import fold, uniform
from ddot.core.shapes import Keys, Times
from ddot.methods.layout import Table, fitting, in_line, only_prompt
from ddot.methods.losses import Losses, token_losses
from ddot.network.denoiser import Denoiser
from ddot.network.trunk import Memory, left_to_right


@dataclass(frozen=True)
class Autoregressive:
    anneal: Annealing = greedy  # how an answer is chosen: the likeliest, or drawn (`Tempered` with pad_apart=False)

    def prepare(self, examples: Sequence[Example], L: int, t: Times, keys: Keys, vocabulary: Vocabulary) -> Slots:
        """Rows `prompt [sep] sentence [pad]…` of 2L slots in a line; what is given is PROMPT in both parts."""
        table = Table([_template(example, L, vocabulary) for example in examples], 2 * L, vocabulary)
        z = in_line(table.is_prompt, keys)
        return table.slots(z, z.copy(), t, keys)

    def loss(self, model: Denoiser, slots: Slots, position_factor: float) -> Losses:
        """Cross entropy of every next answer from [sep] on. Nothing moves, so λ has nothing to weigh."""
        asked, answer = answers(slots, model.vocabulary)
        at = asked.flatten().nonzero()[:, 0]
        sentence = _sentence(slots.kind)
        state = State(
            x=slots.x_0,
            z=slots.z_0,
            hint=torch.where(sentence, NOT_PROMPT, slots.hint),  # inside the sentence nobody says what comes later
            gap_length=torch.where(sentence, UNKNOWN_LENGTH, slots.gap_length),
            t=torch.zeros_like(slots.t),  # what is read is never noisy
        )
        h, velocity = model.read(state, left_to_right)
        return token_losses(model, h, velocity, at, answer.flatten()[at])

    def start(self, prompts: Sequence[Example], L: int, keys: Keys, vocabulary: Vocabulary) -> State:
        """`prompt [sep]` and L places for the sentence. Prompts end at the same slot, after [pad]s that nobody sees."""
        rows = [_left_part(example, L, vocabulary) for example in prompts]
        widest = max((len(row.tokens) for row in rows), default=1)
        x = np.full((len(rows), widest + L), vocabulary.mask, np.int64)
        hint, gap_length = np.full_like(x, NOT_PROMPT), np.full_like(x, UNKNOWN_LENGTH)
        x[:, :widest] = vocabulary.pad
        for row, part in enumerate(rows):
            vocabulary.check(part.tokens)
            here = slice(widest - len(part.tokens), widest)
            x[row, here], hint[row, here], gap_length[row, here] = part.tokens, _of(part.hint), _of(part.gap_length)
        return State(
            x=torch.from_numpy(x),
            z=torch.from_numpy(in_line(hint != NOT_PROMPT, keys)),
            hint=torch.from_numpy(hint),
            gap_length=torch.from_numpy(gap_length),
            t=torch.ones(len(rows)),
        )

    def sample(self, model: Denoiser, prompts: Sequence[Example], L: int, steps: int, keys: Keys) -> Iterator[State]:
        """A state for every token written, at most L; t falls from 1 to 0. `steps` is not asked: tokens come singly.

        The prompt always fits: no word is written where the places left are needed for it. Gaps that are told closed
        stay closed.
        """
        start = to_device(self.start(prompts, L, keys, model.vocabulary), model.device)
        return self._write(model, start, L, keys)

    def _write(self, model: Denoiser, start: State, L: int, keys: Keys) -> Iterator[State]:
        yield start
        v, x, first = model.vocabulary, start.x, start.x.shape[1] - L
        memory = Memory(start.is_prompt | (torch.arange(x.shape[1], device=x.device) >= first))
        is_open, count = told_open(start.hint), start.is_prompt.sum(-1) - 1
        used, done, part = torch.zeros_like(count), torch.zeros_like(count, dtype=torch.bool), slice(0, first)
        for place in range(L):
            h, _ = model.read(dataclasses.replace(start, x=x, t=torch.zeros_like(start.t)), memory, part)
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
            yield dataclasses.replace(start, x=x, t=torch.full_like(start.t, 1 - (place + 1) / L))
        yield dataclasses.replace(start, x=torch.where(x == v.mask, v.pad, x), t=torch.zeros_like(start.t))

    def texts(self, state: State, vocabulary: Vocabulary) -> list[Int[np.ndarray, "n"]]:
        """The sentences: what stands right of the prompt's [sep], up to the first [pad] or place not yet written."""
        found = []
        for x, is_prompt in zip(state.x.cpu().numpy(), state.is_prompt.cpu().numpy(), strict=True):
            sentence = x[np.flatnonzero(is_prompt)[-1] + 1 :]
            found.append(sentence[np.cumsum((sentence == vocabulary.pad) | (sentence == vocabulary.mask)) == 0])
        return found


def answers(slots: Slots, vocabulary: Vocabulary) -> tuple[Bool[Tensor, "B L"], Int[Tensor, "B L"]]:
    """(slots that are asked what follows them, the true answers): [sep] and every token of the sentence.

    The last slot is asked nothing. Only texts of L tokens that are given but for one, or whole, reach it: they are not
    asked for their end, and the latter, one token too long for 2L slots with their [sep], lose their last token.
    """
    sentence, last = _sentence(slots.kind), slots.kind[:, -1:]
    kind = torch.cat([slots.kind[:, 1:], torch.full_like(last, PAD)], 1)
    following = torch.cat([slots.x_0[:, 1:], torch.full_like(last, vocabulary.pad)], 1)
    asked = torch.cat([sentence[:, 1:], torch.zeros_like(sentence[:, :1])], 1) & (slots.kind != PAD)
    return asked, torch.where(kind == PROMPT, vocabulary.sep, following)


def allowed(
    logits: Float[Tensor, "B V"], vocabulary: Vocabulary, word: Bool[Tensor, "B"], given: Bool[Tensor, "B"]
) -> Float[Tensor, "B V"]:
    """The logits in float32, −∞ for answers that may not be: a word; the next given token, [sep]; and the end, [pad].

    The end is allowed where nothing is left to be given.
    """
    column = torch.arange(logits.shape[1], device=logits.device)
    fits = (column < vocabulary.base) & word[:, None]
    fits = fits | ((column == vocabulary.sep) & given[:, None]) | ((column == vocabulary.pad) & ~given[:, None])
    return torch.where(fits, logits.float(), -torch.inf)


def _sentence(kind: Int[Tensor, "B L"]) -> Bool[Tensor, "B L"]:
    """Which slots lie right of the prompt's [sep]. What is given stands there twice, so half of it lies left of it."""
    separator = (kind == PROMPT).sum(-1, keepdim=True) // 2
    return torch.arange(kind.shape[1], device=kind.device) > separator


def _left_part(example: Example, L: int, vocabulary: Vocabulary) -> Example:
    """`prompt [sep]`, all of it given, told what the example is told."""
    given = only_prompt(example)
    n = len(fitting(given.tokens, L))
    hint = np.full(n, UNKNOWN) if given.hint is None else given.hint
    return Example(
        tokens=np.append(given.tokens, vocabulary.sep),
        is_prompt=np.ones(n + 1, bool),
        hint=np.append(hint, UNKNOWN),
        gap_length=np.append(_of(given.gap_length), UNKNOWN_LENGTH),
    )


def _template(example: Example, L: int, vocabulary: Vocabulary) -> Example:
    """`prompt [sep] sentence`, what is given marked in both parts and told in the first."""
    left, n = _left_part(example, L, vocabulary), len(example.tokens)
    return Example(
        tokens=np.concatenate([left.tokens, fitting(example.tokens, L)])[: 2 * L],
        is_prompt=np.concatenate([left.is_prompt, example.is_prompt])[: 2 * L],
        hint=np.concatenate([_of(left.hint), np.full(n, UNKNOWN)])[: 2 * L],
        gap_length=np.concatenate([_of(left.gap_length), np.full(n, UNKNOWN_LENGTH)])[: 2 * L],
    )


def _of(told: Int[np.ndarray, "n"] | None) -> Int[np.ndarray, "n"]:
    assert told is not None  # `only_prompt` and `_left_part` say it
    return told
