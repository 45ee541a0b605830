"""What a network is asked while blanks are filled, for many windows at once: lengths, tokens, how likely they are.

Tasks of one group run as one batch. A batch has a fixed number of rows, filled up with rows that are thrown away, so
that an answer is the same whoever shares the batch (see `core.chunks`).
"""

from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int, UInt64
from torch import Tensor

from ddot.core.positions import Terminal, grid_terminal
from ddot.core.projections import (
    keep_in_gaps,
    keep_out_of_closed,
    keep_prompt_order,
    keep_word_order,
    without,
    without_echo,
)
from ddot.core.records import UNKNOWN, Example, Prompt, State, Vocabulary
from ddot.core.sampling import Leap, MostCertainFirst, Projection, Restriction, Reveal
from ddot.infill.alphabet import Alphabet
from ddot.infill.lengths import length_chances, roomy
from ddot.infill.scoring import Row, Tokens, token_chances
from ddot.infill.settings import TERMINALS, Choice
from ddot.infill.template import Blank
from ddot.infill.view import SLOTS, Span, View, lay_out
from ddot.infill.word_rules import Fresh, Pieces, WithinWords
from ddot.methods.ddot import DDOT
from ddot.methods.fixed_length import FixedLength
from ddot.network.denoiser import Denoiser


@dataclass(frozen=True)
class Settings:
    """How to sample. Where lengths are not told the diffusion itself decides how much text a gap gets (the paper)."""

    steps: int = 16
    slots: int = 64  # L
    terminal: Terminal = grid_terminal
    reveal: Reveal = field(default_factory=MostCertainFirst)
    still: bool = False  # with told lengths: slots start where they belong and do not move
    restrictions: tuple[Restriction, ...] = ()


def fill(
    model: Denoiser, prompts: Sequence[Prompt], keys: UInt64[np.ndarray, "B"], settings: Settings
) -> Iterator[State]:
    """The states of a batch of prompts, from t = 1 to 0. Nothing ever lies in a closed gap."""
    L = settings.slots
    device = model.device
    is_open = torch.zeros(len(prompts), L + 1, dtype=torch.bool)
    for row, prompt in enumerate(prompts):
        is_open[row, : len(prompt.is_open)] = torch.from_numpy(prompt.is_open)
    kept: tuple[Projection, ...] = (
        keep_prompt_order,
        keep_word_order(model.vocabulary),
        keep_out_of_closed(is_open.to(device)),
    )
    examples = [prompt.example for prompt in prompts]
    if settings.still:
        still = FixedLength(reveal=settings.reveal, restrictions=settings.restrictions)
        return still.sample(model, examples, L, settings.steps, keys)
    method = DDOT(
        terminal=settings.terminal, reveal=settings.reveal, projections=kept, restrictions=settings.restrictions
    )
    return method.sample(model, examples, L, settings.steps, keys)


def gap_tokens(state: State, prompts: Sequence[Prompt], vocabulary: Vocabulary) -> list[list[Int[np.ndarray, "_"]]]:
    """For each prompt, the tokens found in each of its n + 1 gaps."""
    order = state.z.argsort(dim=-1, stable=True)
    x, is_prompt = state.x.gather(1, order).cpu().numpy(), state.is_prompt.gather(1, order).cpu().numpy()
    word = ~is_prompt & (x != vocabulary.pad) & (x != vocabulary.mask)
    gap = is_prompt.cumsum(-1)
    return [[x[row][word[row] & (gap[row] == g)] for g in range(len(prompt) + 1)] for row, prompt in enumerate(prompts)]


@dataclass(frozen=True)
class Shape:
    """What all batches have in common: their rows, what L of still slots is a multiple of, slots judged at a time.

    A CPU fills one row, as wide as it needs: quickest there, and nobody changes how its sums are rounded. On a GPU
    full batches of few widths are quick, and few shapes are to be compiled.
    """

    rows: int = 1
    multiple: int = 1
    portion: int | None = None

    def wide(self, slots: int) -> int:
        """The width of a batch for texts of so many slots."""
        return self.multiple * -(-max(1, slots) // self.multiple)

    def filled_up(self, some: list[Any], extra: Any) -> list[Any]:
        """As many as a batch has rows."""
        return some + [extra] * (self.rows - len(some))


ALONE = Shape()
GPU = Shape(rows=64, multiple=32, portion=256)


@dataclass(frozen=True)
class Lengths:
    """How long are the gaps? Answer: the chances of each length class of the gap after each prompt token."""

    view: View

    def group(self, network: "Network") -> Hashable:
        return Lengths, self._slots(network)

    def _slots(self, network: "Network") -> int:
        return roomy(len(self.view.prompt), network.model.config.slots)

    @staticmethod
    def run(tasks: Sequence["Lengths"], network: "Network") -> list[Float[Tensor, "n classes"]]:
        prompts = [task.view.prompt for task in tasks]
        rows = network.shape.filled_up(prompts, prompts[-1])
        nobody = np.zeros(len(rows), np.uint64)  # a grid start needs no chance
        return length_chances(network.model, rows, nobody, tasks[0]._slots(network))[: len(tasks)]


@dataclass(frozen=True)
class Sample:
    """Which tokens go into the blanks? Answer: those of each blank.

    `lengths`: how many a blank gets; None: slots find their places in any blank, and [pad]s decide how many there are.
    """

    view: View
    blanks: Sequence[Blank]
    lengths: Sequence[int] | None
    key: UInt64[np.ndarray, "1"]
    choice: Choice

    def group(self, network: "Network") -> Hashable:
        return Sample, self.lengths is None, self.choice, self.steps, self.slots(network), network.is_loose(self.view)

    @property
    def still(self) -> bool:
        return self.lengths is not None and self.choice.terminal is None

    @property
    def steps(self) -> int:
        if self.lengths is None or not self.still:
            return self.choice.steps
        # With a token a step every one sees all before it: more steps would change nothing.
        return max(1, min(self.choice.steps, sum(self.lengths)))

    def slots(self, network: "Network") -> int:
        """L."""
        prompt = len(self.view.prompt)
        if self.lengths is None:
            return min(max(SLOTS, prompt), roomy(prompt, network.model.config.slots))
        exact = prompt + sum(self.lengths)
        return network.shape.wide(exact) if self.still else exact

    @staticmethod
    def run(tasks: Sequence["Sample"], network: "Network") -> list[Sequence[Tokens]]:
        *_, last = network.states(tasks)
        return network.found(tasks, last)


@dataclass(frozen=True)
class Looks:
    """How likely are the tokens found for the blanks? Answer: the log-chance of each (see `token_chances`)."""

    view: View
    blanks: Sequence[Blank]
    found: Sequence[Tokens]

    def group(self, network: "Network") -> Hashable:
        return Looks, self._slots(network)

    def _slots(self, network: "Network") -> int:
        return network.shape.wide(len(self.view.prompt) + sum(map(len, self.found)))

    def _row(self) -> Row:
        prompt, spans = lay_out(self.view, self.blanks, [len(tokens) for tokens in self.found])
        return Row(prompt, _slots_of(spans), np.concatenate([np.zeros(0, np.int64), *self.found]))

    @staticmethod
    def run(tasks: Sequence["Looks"], network: "Network") -> list[list[float]]:
        rows = [task._row() for task in tasks]
        return token_chances(network.model, rows, tasks[0]._slots(network), network.shape.rows)


Task = Lengths | Sample | Looks


class Network:
    """A denoiser that does tasks in batches of one shape."""

    def __init__(self, model: Denoiser, alphabet: Alphabet, shape: Shape):
        self.model, self.alphabet, self.shape = model, alphabet, shape
        model.portion = shape.portion
        self._text_only = without(*alphabet.no_text, model.vocabulary.sep)
        self._no_loose_marks = without(*alphabet.loose_marks)
        self._fresh = Fresh(alphabet, model.device)

    def group(self, task: Task) -> Hashable:
        """Tasks of the same group can run together."""
        return task.group(self)

    def run(self, tasks: Sequence[Any]) -> list[Any]:
        """The answers to tasks of one group, at most as many as a batch has rows."""
        return type(tasks[0]).run(tasks, self)

    def is_loose(self, view: View) -> bool:
        """Whether marks stand apart from words in this text itself; only then may they in what is filled in."""
        return bool(self.alphabet.loose[view.prompt.example.tokens].any())

    def states(self, tasks: Sequence[Sample]) -> Iterator[State]:
        """The states of a batch, from t = 1 to 0; the first rows are those of the tasks."""
        first = tasks[0]
        form = (self._fresh,) if self.is_loose(first.view) else (self._fresh, self._no_loose_marks)
        way = self._moving if first.lengths is None else self._still if first.still else self._moving_in_gaps
        keys = np.concatenate(self.shape.filled_up([task.key for task in tasks], first.key))
        return way(tasks, keys, form)

    def found(self, tasks: Sequence[Sample], last: State) -> list[Sequence[Tokens]]:
        """For each task the tokens of each blank in the last state."""
        if tasks[0].lengths is None:
            gaps = gap_tokens(last, [task.view.prompt for task in tasks], self.model.vocabulary)
            return [shared_out(task, some, self.alphabet) for task, some in zip(tasks, gaps, strict=True)]
        x = last.x.cpu().numpy()
        spans = [self._spans(task) for task in tasks]
        return [[x[row, span.start : span.stop] for span in some] for row, some in enumerate(spans)]

    def _moving(
        self, tasks: Sequence[Sample], keys: UInt64[np.ndarray, "B"], form: tuple[Restriction, ...]
    ) -> Iterator[State]:
        """The states of slots that find their places in any blank; [pad]s decide how many words there are."""
        choice = tasks[0].choice
        settings = Settings(
            steps=choice.steps,
            slots=tasks[0].slots(self),
            terminal=TERMINALS[choice.terminal or "grid"],
            reveal=Leap(choice.anneal),
            restrictions=(self._text_only, *form),
        )
        prompts = [task.view.prompt for task in tasks]
        return fill(self.model, self.shape.filled_up(prompts, _given(settings.slots)), keys, settings)

    def _moving_in_gaps(
        self, tasks: Sequence[Sample], keys: UInt64[np.ndarray, "B"], form: tuple[Restriction, ...]
    ) -> Iterator[State]:
        """The states of slots that start anywhere and end in the blank they are meant for."""
        L, choice, vocabulary = tasks[0].slots(self), tasks[0].choice, self.model.vocabulary
        spans = [self._spans(task) for task in tasks]
        gap = torch.zeros(len(keys), L, dtype=torch.long)
        for row, (task, some) in enumerate(zip(tasks, spans, strict=True)):
            for span, after in zip(some, task.view.after, strict=True):
                gap[row, span.start : span.stop] = after + 1
        spans = self.shape.filled_up(spans, [])
        method = DDOT(
            terminal=TERMINALS[choice.terminal or "grid"],
            reveal=WithinWords(MostCertainFirst(choice.anneal), self.alphabet, spans),
            projections=(keep_prompt_order, keep_in_gaps(gap.to(self.model.device)), keep_word_order(vocabulary)),
            restrictions=(
                without(vocabulary.pad, vocabulary.sep),
                without_echo(vocabulary),
                Pieces(self.alphabet, spans, L, self.model.device, self.is_loose(tasks[0].view)),
                *form,
            ),
        )
        examples = self.shape.filled_up([_told(task) for task in tasks], _given(L).example)
        return method.sample(self.model, examples, L, tasks[0].steps, keys)

    def _still(
        self, tasks: Sequence[Sample], keys: UInt64[np.ndarray, "B"], form: tuple[Restriction, ...]
    ) -> Iterator[State]:
        """The states of slots that stay where they are."""
        L = tasks[0].slots(self)
        spans = self.shape.filled_up([self._spans(task) for task in tasks], [])
        method = FixedLength(
            reveal=WithinWords(MostCertainFirst(tasks[0].choice.anneal), self.alphabet, spans),
            restrictions=(Pieces(self.alphabet, spans, L, self.model.device, self.is_loose(tasks[0].view)), *form),
        )
        examples = self.shape.filled_up([_told(task) for task in tasks], _given(L).example)
        return method.sample(self.model, examples, L, tasks[0].steps, keys)

    def _spans(self, task: Sample) -> list[Span]:
        """The slots of each blank. Slots that move come after the prompt's, still ones are where they belong."""
        lengths = task.lengths or [0] * len(task.blanks)
        if task.still:
            return lay_out(task.view, task.blanks, lengths)[1]
        ends = pairwise(np.cumsum([len(task.view.prompt), *lengths]).tolist())
        return [Span(*end, first, blank) for end, first, blank in zip(ends, task.view.first, task.blanks, strict=True)]


def _given(L: int) -> Prompt:
    """A row to fill up a batch with: all of it is given, so no logits are spent on it."""
    nothing = np.zeros(L, np.int64)
    return Prompt(Example(nothing, np.ones(L, bool), np.full(L, UNKNOWN), nothing), np.zeros(L + 1, bool))


def _told(task: Sample) -> Example:
    """The prompt, told how many tokens each gap gets."""
    return lay_out(task.view, task.blanks, task.lengths or [0] * len(task.blanks))[0].example


def _slots_of(spans: Sequence[Span]) -> np.ndarray:
    return np.concatenate([np.zeros(0, np.int64), *(np.arange(span.start, span.stop) for span in spans)])


def shared_out(task: Sample, gaps: Sequence[Tokens], alphabet: Alphabet) -> list[Tokens]:
    """The tokens found in each gap, for each blank. Blanks that share a gap take words in turn, as they may."""
    after, blanks = task.view.after, task.blanks
    left = {gap: gaps[gap + 1] for gap in after}
    found = []
    for number, (blank, gap) in enumerate(zip(blanks, after, strict=True)):
        tokens = left[gap]
        starts = np.flatnonzero(np.concatenate([[True], alphabet.begins[tokens[1:]]])[: len(tokens)])
        others = after[number + 1 :].count(gap)
        take = max(blank.least, len(starts) // (1 + others)) if others else len(starts)
        cut = int(starts[take]) if take < len(starts) else len(tokens)
        found.append(tokens[:cut])
        left[gap] = tokens[cut:]
    return found
