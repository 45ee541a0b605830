"""The engine: fills windows of texts in batches, phase by phase. How long is each blank, which tokens, how likely?

Models that write (`Engine.writes`, the embedded one among them) are driven by `writing` instead.

A batch has a fixed number of rows, padded with rows that are thrown away, and every window draws from its own key: an
answer is the same alone and among others (see `core.chunks`). The engine is a generator that yields after every forward
pass, so whoever drives it sees every state and may stop between any two.
"""

import time
from collections.abc import Callable, Generator, Hashable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from itertools import pairwise
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import torch
from jaxtyping import Bool, Float, Int, UInt64
from torch import Tensor

from ddot.core.annealing import Annealing, Tempered, greedy, greedy_words
from ddot.core.codes import UNKNOWN
from ddot.core.positions import Terminal, grid_terminal, random_terminal
from ddot.core.projections import (
    keep_in_gaps,
    keep_out_of_closed,
    keep_prompt_order,
    keep_word_order,
    without,
    without_echo,
)
from ddot.core.records import Example, Prompt, State, Vocabulary
from ddot.core.rng import fold
from ddot.core.sampling import Leap, MostCertainFirst, Projection, Restriction, Reveal
from ddot.data.tokenizer import Tokenizer
from ddot.infill.alphabet import Alphabet
from ddot.infill.draft import rules
from ddot.infill.lengths import PLANNERS, choose_lengths, roomy, within_bounds
from ddot.infill.scoring import Recorder, Tokens, length_chances_of, score_of
from ddot.infill.settings import Settings
from ddot.infill.template import Blank, avoided
from ddot.infill.view import SLOTS, Span, View, lay_out
from ddot.infill.word_rules import Avoiding, Forced, Fresh, Pieces, WithinWords
from ddot.methods.ddot import DDOT
from ddot.methods.fixed_length import FixedLength
from ddot.network.denoiser import Denoiser

if TYPE_CHECKING:
    from ddot.infill.passes import Together

T = TypeVar("T")
R = TypeVar("R")
TRIES = 20  # to do without words that are to be avoided
_TERMINALS: dict[str, Terminal] = {"grid": grid_terminal, "random": random_terminal}
Chances = Float[Tensor, "_ classes"]  # of each length class, for the gap after each prompt token
Plans = dict[Hashable, Chances]  # of prompts already read


@dataclass(frozen=True)
class Shape:
    """The shape of batches: rows, what the width of fixed slots is a multiple of, slots that get logits at a time.

    `reading` is the shape for texts to be read before they are written to, or judged.

    A CPU fills one row, as wide as it needs: fastest there, and nothing changes how its sums are rounded. A GPU is fast
    with full batches of few widths, and few shapes need to be compiled.
    """

    rows: int = 1
    multiple: int = 1
    portion: int | None = None

    @property
    def reading(self) -> "Shape":
        return replace(self, rows=-(-self.rows // 4))

    def enough(self, come: int, passes: int) -> bool:
        """Whether so many texts are worth reading, or have waited for others through enough passes."""
        return come >= self.reading.rows or passes >= _PATIENCE

    def width(self, slots: int, finer: int = 1) -> int:
        """The width of a batch for texts of this many slots; a `finer` one has more shapes and less padding."""
        multiple = -(-self.multiple // finer)
        return multiple * -(-max(1, slots) // multiple)

    def padded(self, rows: Sequence[T], extra: T) -> list[T]:
        """As many as a batch has rows."""
        return [*rows, *[extra] * (self.rows - len(rows))]


_PATIENCE = 4  # passes
_A_STEP = 1.3  # time of a step of sampling, in forward passes that plan lengths
_FEWEST = 3  # steps of a text under a time limit: in fewer tokens there is often nothing to say
ALONE = Shape()
GPU = Shape(rows=64, multiple=64, portion=256)


@dataclass(frozen=True)
class Window:
    """A part of a text with the blanks to fill next.

    `draw` 0 gives blanks their expected lengths, 1, 2, … drawn ones; it numbers the attempts at a text. `number` counts
    its windows, or places. With a limit of `seconds` there are as many tokens as fit; `tokens` bounds each blank. The
    first fill begins with the letters of `begin`. `warmth` is a factor of the temperature of draws. `now`: how many of
    the blanks are filled; None: all. The others are only seen.
    """

    view: View
    blanks: Sequence[Blank]
    key: UInt64[np.ndarray, "1"]
    settings: Settings
    draw: int = 0
    number: int = 0
    seconds: float | None = None
    tokens: int | None = None
    begin: str = ""
    warmth: float = 1.0
    now: int | None = None

    @property
    def varies(self) -> bool:
        """Whether there is anything to choose."""
        return any(blank.most != 0 for blank in self.blanks[: self.now])

    @property
    def after(self) -> tuple[int, ...]:
        """The given token before each blank that is filled."""
        return self.view.after[: self.now]

    @property
    def places(self) -> list[int]:
        """The given token before each place that is filled, in order."""
        return sorted(set(self.after))

    @property
    def wanted(self) -> int:
        """How many of its candidates are wanted."""
        return 1 if self.number else self.settings.n


@dataclass(frozen=True)
class Sample:
    """A window whose lengths are decided; None: slots find their place in any blank, and [pad]s decide."""

    window: Window
    lengths: Sequence[int] | None
    from_left: bool = False  # in every blank a token at each step
    banned: tuple[tuple[int, ...], ...] = ()  # sequences of tokens that spell what is to be avoided
    forced: Sequence[Tokens] | None = None  # what goes into each blank, if only its score is asked for

    @property
    def fixed(self) -> bool:
        """Whether slots stay where they are."""
        return self.lengths is not None and self.window.settings.terminal is None

    @property
    def steps(self) -> int:
        steps = self.window.settings.steps
        if self.lengths is None or not self.fixed:
            return steps
        # At one token a step, or one a blank, more steps would change nothing.
        gaps = self.lengths if self.from_left else [sum(self.lengths)]
        return max(1, min(steps, int(max(gaps))))

    @property
    def key(self) -> UInt64[np.ndarray, "1"]:
        return fold(self.window.key, self.window.draw) if self.window.draw else self.window.key

    @property
    def example(self) -> Example:
        """The prompt, conditioned on the length of each gap."""
        return lay_out(self.window.view, self.window.blanks, self.lengths or [0] * len(self.window.blanks))[0].example

    @property
    def spans(self) -> list[Span]:
        """The slots of each blank. Slots that move come after the prompt's, fixed ones are where they belong."""
        view, blanks, lengths = self.window.view, self.window.blanks, self.lengths or [0] * len(self.window.blanks)
        if self.fixed:
            return lay_out(view, blanks, lengths)[1]
        ends = pairwise(np.cumsum([len(view.prompt), *lengths]).tolist())
        return [Span(*end, first, blank) for end, first, blank in zip(ends, view.first, blanks, strict=True)]


@dataclass(frozen=True)
class Step:
    """A forward pass is done. While tokens are sampled: the state it led to, whose first rows are these samples'."""

    samples: Sequence[Sample] = ()
    state: State | None = None
    number: int = 0


@dataclass(frozen=True)
class Found:
    """The tokens of each blank, and the log-probability of each token when it was revealed."""

    tokens: list[Tokens]
    log_chances: list[list[float]]


@dataclass(frozen=True)
class Filled:
    """The tokens of each blank of a window, the score of each blank (see `scoring`), and the seconds to read it.

    `behind`: it would have been given up if only one answer were wanted.
    """

    tokens: Sequence[Tokens]
    scores: list[float]
    reading: float
    behind: bool = False

    @property
    def score(self) -> float:
        return float(np.mean(self.scores))


Steps = Generator[Step, None, R]  # the work towards a result


class Engine:
    """A denoiser and its tokenizer, filling windows in batches of one shape."""

    def __init__(self, model: Denoiser, tokenizer: Tokenizer, shape: Shape = ALONE):
        self.model, self.tokenizer, self.shape = model.in_chunks(shape.portion), tokenizer, shape
        self.alphabet = Alphabet(tokenizer)
        self.planner = PLANNERS[model.config.planner]
        self._text_only = without(*self.alphabet.no_text, model.vocabulary.sep)
        self._no_loose_marks = without(*self.alphabet.loose_marks)
        self.fresh = Fresh(self.alphabet, model.device)
        self.together: Together | None = None

    def fill(self, windows: Sequence[Window], plans: Plans | None = None) -> Steps[list[Filled]]:
        """Fill windows: lengths, then tokens, then scores, each phase for all of them. See `length_chances`."""
        start = time.perf_counter()
        chances = yield from self.length_chances(windows, plans)
        reading = time.perf_counter() - start if self.tells_lengths else 0.0
        windows = [_hurried(window, start, reading) for window in windows]
        found = yield from self.tokens(windows, chances)
        return _scored(windows, chances, found, reading)

    def judge(self, windows: Sequence[Window], fills: Sequence[Sequence[Tokens]]) -> Steps[list[Filled]]:
        """Fill windows with given tokens, in the same passes as they would be filled, for the sake of their scores."""
        chances = yield from self.length_chances(windows)
        samples = [
            replace(self.sample(window, [len(tokens) for tokens in mine]), forced=mine)
            for window, mine in zip(windows, fills, strict=True)
        ]
        found = yield from self._phase(samples, self._alike, self._sample)
        return _scored(windows, chances, found, 0.0)

    def tokens(self, windows: Sequence[Window], chances: Sequence[Chances | None]) -> Steps[list[Found]]:
        """The tokens of each blank; a window whose slots moved freely and broke its bounds is sampled again."""
        samples = [self.sample(w, self.lengths(w, c)) for w, c in zip(windows, chances, strict=True)]
        found = yield from self._once(samples, _same_sample, self._alike, self._sample)
        retry = {
            i: self.sample(w, within_bounds(w.view, w.blanks, [len(tokens) for tokens in found[i].tokens]))
            for i, w in enumerate(windows)
            if samples[i].lengths is None and not self._holds(w, found[i].tokens)
        }
        again = yield from self._phase(list(retry.values()), self._alike, self._sample)
        for i, better in zip(retry, again, strict=True):
            found[i], samples[i] = better, retry[i]
        return (yield from self._without_avoided(samples, found))

    def _without_avoided(self, samples: list[Sample], found: list[Found]) -> Steps[list[Found]]:
        """Sample again what holds a word to be avoided, with the way it was spelt forbidden too."""
        for _ in range(TRIES):
            again = {
                i: replace(sample, lengths=self._lengths_of(sample, found[i]), banned=(*sample.banned, *spelt))
                for i, sample in enumerate(samples)
                if (spelt := self.avoided(sample.window, found[i].tokens, sample.fixed))
            }
            if not again:
                break
            results = yield from self._phase(list(again.values()), self._alike, self._sample)
            for i, better in zip(again, results, strict=True):
                found[i], samples[i] = better, again[i]
        return found

    def _lengths_of(self, sample: Sample, found: Found) -> Sequence[int]:
        window = sample.window
        return sample.lengths or within_bounds(window.view, window.blanks, [len(tokens) for tokens in found.tokens])

    def avoided(self, window: Window, found: Sequence[Tokens], fixed: bool = True) -> list[tuple[int, ...]]:
        """The shortest runs of tokens that spell a word to be avoided; where slots move, the tokens themselves."""
        if not window.settings.avoid:
            return []
        pattern = avoided(window.settings.avoid)
        runs: list[tuple[int, ...]] = []
        for tokens in found:
            ends = np.cumsum([len(self.alphabet.pieces[token]) for token in tokens])
            for match in pattern.finditer(self.alphabet.spell(tokens)):
                first, last = np.searchsorted(ends, [match.start(), match.end() - 1], side="right")
                run = tuple(tokens[first : last + 1].tolist())
                runs += [run] if fixed else [(token,) for token in run]
        return runs

    def length_chances(self, windows: Sequence[Window], plans: Plans | None = None) -> Steps[list[Chances | None]]:
        """The chances of each length class of the gap after each prompt token; None if the network cannot tell.

        A prompt whose chances are in `plans` is not read again; those of the others are added.
        """
        if not self.tells_lengths:
            return [None] * len(windows)
        return (yield from self._once(windows, _same_prompt, self._planning_slots, self._plan, plans))

    def lengths(self, window: Window, chances: Chances | None) -> list[int] | None:
        """The number of tokens of each blank; None if the network cannot tell.

        Under a time limit no blank is longer than there are steps: fewer words, not worse ones.
        """
        if chances is None:
            return None
        lengths = choose_lengths(window.view, window.blanks, chances, window.key, window.draw, self.planner)
        for number, blank in enumerate(window.blanks):
            most = lengths[number] if window.tokens is None else min(lengths[number], window.tokens)
            if window.seconds is not None:
                most = min(most, window.settings.steps)
            lengths[number] = max(most, blank.least)
        return lengths

    def sample(self, window: Window, lengths: Sequence[int] | None) -> Sample:
        """A window with lengths."""
        return Sample(window, lengths, banned=self.spellings(tuple(window.settings.avoid)))

    @lru_cache(maxsize=64)  # noqa: B019 (as long-lived as the engine)
    def spellings(self, words: tuple[str, ...]) -> tuple[tuple[int, ...], ...]:
        return tuple(way for word in words for way in self.alphabet.spellings(word, self.tokenizer.encode))

    @cached_property
    def rules(self) -> Bool[Tensor, "rules V"]:
        """The tokens that each rule of a draft allows."""
        return rules(self.alphabet, self.model.vocabulary.sep).to(self.model.device)

    @property
    def tells_lengths(self) -> bool:
        return self.model.room_head is not None

    @property
    def writes(self) -> bool:
        """Whether blanks are written (`infill.writing`), not planned and revealed."""
        return self.model.config.order == "outline"

    def moved(self, window: Window, fills: Sequence[Tokens]) -> Steps[None]:
        """The states in which slots with given words, written before, find their places."""
        yield from self._sample([replace(self.sample(window, [len(fill) for fill in fills]), forced=fills)])

    def is_loose(self, view: View) -> bool:
        """Whether marks stand apart from words in this text itself; only then may they in what is filled in."""
        return bool(self.alphabet.loose[view.prompt.example.tokens].any())

    def _phase(
        self, items: Sequence[T], alike: Callable[[T], Hashable], run: Callable[[list[T]], Steps[list[Any]]]
    ) -> Steps[list[Any]]:
        """The results of items, in their order, run in batches of those that are alike."""
        groups: dict[Hashable, list[int]] = {}
        for index, item in enumerate(items):
            groups.setdefault(alike(item), []).append(index)
        results: dict[int, Any] = {}
        for group in groups.values():
            for first in range(0, len(group), self.shape.rows):
                batch = group[first : first + self.shape.rows]
                results |= zip(batch, (yield from run([items[index] for index in batch])), strict=True)
        return [results[index] for index in range(len(items))]

    def _once(
        self,
        items: Sequence[T],
        same: Callable[[T], Hashable],
        alike: Callable[[T], Hashable],
        run: Callable[[list[T]], Steps[list[Any]]],
        known: dict[Hashable, Any] | None = None,
    ) -> Steps[list[Any]]:
        """As `_phase`, but of items that are the same only the first runs, and none whose result is `known`."""
        keys, known = [same(item) for item in items], {} if known is None else known
        new: dict[Hashable, T] = {}
        for key, item in zip(keys, items, strict=True):
            if key not in known:
                new.setdefault(key, item)
        known |= zip(new, (yield from self._phase(list(new.values()), alike, run)), strict=True)
        return [known[key] for key in keys]

    def _planning_slots(self, window: Window) -> int:
        return self.planner.slots(window.view.prompt, self.model.config.slots)

    def _plan(self, windows: list[Window]) -> Steps[list[Chances]]:
        prompts = [window.view.prompt for window in windows]
        rows = self.shape.padded(prompts, prompts[-1])
        chances = self.planner.chances(self.model, rows, self._planning_slots(windows[0]))
        yield Step()
        return chances[: len(windows)]

    def _alike(self, sample: Sample) -> Hashable:
        settings = sample.window.settings
        how = annealing(settings), settings.terminal, sample.lengths is None, self.is_loose(sample.window.view)
        return how, sample.steps, self.sample_slots(sample), sample.banned, sample.forced is None

    def sample_slots(self, sample: Sample) -> int:
        """L."""
        prompt = len(sample.window.view.prompt)
        if sample.lengths is None:
            return min(max(SLOTS, prompt), roomy(prompt, self.model.config.slots))
        exact = prompt + sum(sample.lengths)
        return self.shape.width(exact) if sample.fixed else exact

    def _sample(self, samples: list[Sample]) -> Steps[list[Found]]:
        recorder = Recorder(self.model.vocabulary.mask)
        for number, state in enumerate(self.states(samples, recorder)):
            yield Step(samples, state, number)
        x, log_chances = state.x.cpu().numpy(), recorder.settle(state).cpu().numpy()
        if samples[0].lengths is None:
            gaps = gap_slots(state, [sample.window.view.prompt for sample in samples], self.model.vocabulary)
            slots = [_by_blank(sample.window, x[row], gaps[row], self.alphabet) for row, sample in enumerate(samples)]
        else:
            slots = [[np.arange(span.start, span.stop) for span in sample.spans] for sample in samples]
        return [
            Found([x[row][each] for each in mine], [log_chances[row][each].tolist() for each in mine])
            for row, mine in enumerate(slots)
        ]

    def _holds(self, window: Window, found: Sequence[Tokens]) -> bool:
        """Whether the blanks' bounds are kept."""
        spelt = map(self.alphabet.spell, found)
        return all(blank.holds(text) for blank, text in zip(window.blanks, spelt, strict=True))

    def states(self, samples: Sequence[Sample], recorder: Recorder | None = None) -> Iterator[State]:
        """The states of a batch, from t = 1 to 0; the first rows are those of the samples."""
        first, L = samples[0], self.sample_slots(samples[0])
        loose = self.is_loose(first.window.view)
        record: tuple[Restriction, ...] = () if recorder is None else (recorder,)
        if first.banned:
            record = (*record, Avoiding(first.banned))
        form = (self.fresh,) if loose else (self.fresh, self._no_loose_marks)
        keys = np.concatenate(self.shape.padded([sample.key for sample in samples], first.key))
        if first.lengths is None:
            prompts = self.shape.padded([sample.window.view.prompt for sample in samples], _given(L))
            method: DDOT | FixedLength = self._moving(
                first.window.settings, prompts, L, (*record, self._text_only, *form)
            )
            return method.sample(self.model, [prompt.example for prompt in prompts], L, first.steps, keys)
        spans = self.shape.padded([sample.spans for sample in samples], [])
        reveal: Reveal = WithinWords(MostCertainFirst(annealing(first.window.settings)), self.alphabet, spans)
        rules = (*record, Pieces(self.alphabet, spans, L, self.model.device, loose), *form)
        if first.forced is not None:
            reveal, rules = MostCertainFirst(greedy), (*record, Forced(self._given_tokens(samples, L)))
        if first.fixed:
            method = FixedLength(reveal=reveal, restrictions=rules)
        else:
            method = self._moving_in_gaps(samples, reveal, L, rules)
        examples = self.shape.padded([sample.example for sample in samples], _given(L).example)
        return method.sample(self.model, examples, L, first.steps, keys)

    def _given_tokens(self, samples: Sequence[Sample], L: int) -> Int[Tensor, "B L"]:
        tokens = torch.zeros(self.shape.rows, L, dtype=torch.long)
        for row, sample in enumerate(samples):
            for span, mine in zip(sample.spans, sample.forced or (), strict=True):
                tokens[row, span.start : span.stop] = torch.from_numpy(mine)
        return tokens.to(self.model.device)

    def _moving(self, settings: Settings, prompts: Sequence[Prompt], L: int, rules: tuple[Restriction, ...]) -> DDOT:
        """Slots find their places in any blank; [pad]s decide how many words there are."""
        return DDOT(
            terminal=_TERMINALS[settings.terminal or "grid"],
            reveal=Leap(annealing(settings)),
            projections=kept(self.model, prompts, L),
            restrictions=rules,
        )

    def _moving_in_gaps(
        self, samples: Sequence[Sample], reveal: Reveal, L: int, rules: tuple[Restriction, ...]
    ) -> DDOT:
        """Slots start anywhere and end in the blank they are meant for."""
        vocabulary = self.model.vocabulary
        gap = torch.zeros(self.shape.rows, L, dtype=torch.long)
        for row, sample in enumerate(samples):
            for span, after in zip(sample.spans, sample.window.view.after, strict=True):
                gap[row, span.start : span.stop] = after + 1
        return DDOT(
            terminal=_TERMINALS[samples[0].window.settings.terminal or "grid"],
            reveal=reveal,
            projections=(keep_prompt_order, keep_in_gaps(gap.to(self.model.device)), keep_word_order(vocabulary)),
            restrictions=(without(vocabulary.pad, vocabulary.sep), without_echo(vocabulary), *rules),
        )


def annealing(settings: Settings) -> Annealing:
    """How a token is chosen from its distribution."""
    if settings.temperature > 0:
        return Tempered(settings.temperature, settings.top_p)
    return greedy if settings.terminal is None else greedy_words


def kept(model: Denoiser, prompts: Sequence[Prompt], L: int) -> tuple[Projection, ...]:
    """Projections that keep the prompt's order and its whole words, and everything out of closed gaps."""
    is_open = torch.zeros(len(prompts), L + 1, dtype=torch.bool)
    for row, prompt in enumerate(prompts):
        is_open[row, : len(prompt.is_open)] = torch.from_numpy(prompt.is_open)
    return keep_prompt_order, keep_word_order(model.vocabulary), keep_out_of_closed(is_open.to(model.device))


def gap_slots(state: State, prompts: Sequence[Prompt], vocabulary: Vocabulary) -> list[list[Int[np.ndarray, "_"]]]:
    """For each prompt, the slots whose words lie in each of its n + 1 gaps, in reading order."""
    order = state.z.argsort(dim=-1, stable=True)
    x, is_prompt = state.x.gather(1, order).cpu().numpy(), state.is_prompt.gather(1, order).cpu().numpy()
    slots = order.cpu().numpy()
    word = ~is_prompt & (x != vocabulary.pad) & (x != vocabulary.mask)
    gap = is_prompt.cumsum(-1)
    return [
        [slots[row][word[row] & (gap[row] == g)] for g in range(len(prompt) + 1)] for row, prompt in enumerate(prompts)
    ]


def gap_tokens(state: State, prompts: Sequence[Prompt], vocabulary: Vocabulary) -> list[list[Int[np.ndarray, "_"]]]:
    """For each prompt, the tokens found in each of its n + 1 gaps."""
    x = state.x.cpu().numpy()
    return [[x[row][slots] for slots in gaps] for row, gaps in enumerate(gap_slots(state, prompts, vocabulary))]


def _by_blank(
    window: Window, x: Int[np.ndarray, "L"], gaps: Sequence[Int[np.ndarray, "_"]], alphabet: Alphabet
) -> list[Int[np.ndarray, "_"]]:
    """The slots of each blank. Blanks that share a gap take words in turn, within their bounds."""
    after = window.view.after
    left = {gap: gaps[gap + 1] for gap in after}
    found = []
    for number, (blank, gap) in enumerate(zip(window.blanks, after, strict=True)):
        slots = left[gap]
        tokens = x[slots]
        starts = np.flatnonzero(np.concatenate([[True], alphabet.begins[tokens[1:]]])[: len(tokens)])
        others = after[number + 1 :].count(gap)
        take = max(blank.least, len(starts) // (1 + others)) if others else len(starts)
        cut = int(starts[take]) if take < len(starts) else len(tokens)
        found.append(slots[:cut])
        left[gap] = slots[cut:]
    return found


def _scored(
    windows: Sequence[Window], chances: Sequence[Chances | None], found: Sequence[Found], reading: float
) -> list[Filled]:
    results = []
    for window, planned, each in zip(windows, chances, found, strict=True):
        lengths = length_chances_of(window.view, planned, each.tokens)
        scores = [score_of(*parts) for parts in zip(each.log_chances, lengths, strict=True)]
        results.append(Filled(each.tokens, scores, reading))
    return results


def _same_prompt(window: Window) -> Hashable:
    """Equal for windows of the same text, whose lengths are planned alike."""
    prompt = window.view.prompt
    return prompt.example.tokens.tobytes(), prompt.is_open.tobytes(), prompt.free


def _same_sample(sample: Sample) -> Hashable:
    """Equal for samples whose tokens are the same: nothing is drawn at temperature 0 with fixed slots."""
    if not sample.fixed or sample.window.settings.temperature > 0:
        return id(sample)
    window, lengths = sample.window, tuple(sample.lengths or ())
    return _same_prompt(window), lengths, tuple(window.blanks), sample.steps, sample.banned


def _hurried(window: Window, start: float, a_pass: float) -> Window:
    """The window with as many steps as its time limit leaves, if the first forward pass took so long."""
    if window.seconds is None or not a_pass:
        return window
    steps = int((start + window.seconds - time.perf_counter()) / max(_A_STEP * a_pass, 1e-4))
    steps = max(_FEWEST, min(window.settings.steps, steps))
    return replace(window, settings=replace(window.settings, steps=steps))


def _given(L: int) -> Prompt:
    """A row to pad a batch with: all of it is prompt, so no logits are spent on it."""
    nothing = np.zeros(L, np.int64)
    return Prompt(Example(nothing, np.ones(L, bool), np.full(L, UNKNOWN), nothing), np.zeros(L + 1, bool))
