"""The engine: fills windows of texts in batches, in three phases: lengths of blanks, tokens, scores.

Models that write (`Engine.writes_left_to_right`, the embedded one among them) use `writing` instead.

A batch has a fixed number of rows, filled up with padding rows, and every window has its own random key: an answer is
the same alone and among others (see `core.chunks`). The engine is a generator that yields after every forward pass, so
that its caller sees every state and may stop between any two.
"""

import time
from collections.abc import Callable, Generator, Hashable, Iterable, Iterator, Sequence
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
from ddot.infill.planned_lengths import PLANNERS, choose_lengths, default_slots, within_bounds
from ddot.infill.scoring import Recorder, Tokens, length_log_probs, score_of
from ddot.infill.settings import Settings
from ddot.infill.template import Blank, avoided
from ddot.infill.view import SLOTS, Span, View, lay_out
from ddot.infill.word_rules import Avoiding, Forced, Pieces, RepetitionPenalty, WithinWords
from ddot.methods.ddot import DDOT
from ddot.methods.fixed_length import FixedLength
from ddot.network.denoiser import Denoiser

if TYPE_CHECKING:
    from ddot.infill.passes import SharedWork

T = TypeVar("T")
R = TypeVar("R")
MAX_RETRIES = 20  # of a fill that uses an avoided word
_TERMINALS: dict[str, Terminal] = {"grid": grid_terminal, "random": random_terminal}
Chances = Float[Tensor, "_ classes"]  # probability of each length class, for the gap after each prompt token
Plans = dict[Hashable, Chances]  # by prompt


@dataclass(frozen=True)
class Shape:
    """The shape of batches: the number of rows, a `multiple` for the width of fixed slots, slots per chunk of logits.

    A CPU fills one row, as wide as it needs: fastest there, and rounding depends on nothing else. A GPU is fast with
    full batches of few widths, and few shapes need to be compiled.
    """

    rows: int = 1
    multiple: int = 1
    logit_chunk: int | None = None

    @property
    def prefill(self) -> "Shape":
        """The shape in which prefixes are read and texts are scored."""
        return replace(self, rows=-(-self.rows // 4))

    def is_batch_ready(self, texts: int, passes: int) -> bool:
        """Whether these texts fill a prefill batch, or have waited long enough for others."""
        return texts >= self.prefill.rows or passes >= _MAX_PASSES_WAITED

    def width(self, slots: int, finer: int = 1) -> int:
        """The width of a batch for texts of this many slots; a `finer` one has less padding and more shapes."""
        multiple = -(-self.multiple // finer)
        return multiple * -(-max(1, slots) // multiple)

    def padded(self, rows: Sequence[T], padding: T) -> list[T]:
        """The rows, filled up to a whole batch."""
        return [*rows, *[padding] * (self.rows - len(rows))]


_MAX_PASSES_WAITED = 4
_STEP_COST = 1.3  # time of a sampling step, in forward passes that plan lengths
_MIN_STEPS = 3  # under a time limit: fewer tokens often say nothing
CPU = Shape()
GPU = Shape(rows=64, multiple=64, logit_chunk=256)


@dataclass(frozen=True)
class Window:
    """A part of a text with the blanks to fill next.

    `draw`: the number of the candidate; for models that do not write that of the attempt, of which 0 has the expected
    lengths and others drawn ones. `number`: that of the window in its text. `seconds`: a time limit, kept by fewer
    tokens. `max_tokens`: of each blank. `fill_prefix`: the letters that the first fill begins with.
    `temperature_factor`: multiplies the temperature. `n_filled`: how many of the blanks are filled (None: all); the
    others are only context.
    """

    view: View
    blanks: Sequence[Blank]
    key: UInt64[np.ndarray, "1"]
    settings: Settings
    draw: int = 0
    number: int = 0
    seconds: float | None = None
    max_tokens: int | None = None
    fill_prefix: str = ""
    temperature_factor: float = 1.0
    n_filled: int | None = None

    @property
    def is_fillable(self) -> bool:
        """Whether any of its blanks may hold text."""
        return any(blank.most != 0 for blank in self.blanks[: self.n_filled])

    @property
    def after(self) -> tuple[int, ...]:
        """The given token before each blank that is filled."""
        return self.view.after[: self.n_filled]

    @property
    def places(self) -> list[int]:
        """The given token before each gap that is filled, in order."""
        return sorted(set(self.after))

    @property
    def n_best(self) -> int:
        """How many of its candidates are kept."""
        return 1 if self.number else self.settings.n


@dataclass(frozen=True)
class Sample:
    """A window whose lengths are decided; None: slots move to any blank, and [pad]s decide the lengths."""

    window: Window
    lengths: Sequence[int] | None
    from_left: bool = False  # every blank gets a token in each step
    banned: tuple[tuple[int, ...], ...] = ()  # token sequences that spell avoided words
    forced: Sequence[Tokens] | None = None  # the given fill of each blank

    @property
    def fixed(self) -> bool:
        """Whether slots stay where they are."""
        return self.lengths is not None and self.window.settings.terminal is None

    @property
    def steps(self) -> int:
        steps = self.window.settings.steps
        if self.lengths is None or not self.fixed:
            return steps
        # Every step reveals a token, or one in each blank: more steps would change nothing.
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
        """The slots of each blank. Moving slots come after those of the prompt, fixed ones are where they belong."""
        view, blanks, lengths = self.window.view, self.window.blanks, self.lengths or [0] * len(self.window.blanks)
        if self.fixed:
            return lay_out(view, blanks, lengths)[1]
        ends = pairwise(np.cumsum([len(view.prompt), *lengths]).tolist())
        return [Span(*end, first, blank) for end, first, blank in zip(ends, view.first, blanks, strict=True)]


@dataclass(frozen=True)
class Step:
    """One forward pass. While tokens are sampled: the state after it, whose first rows are those of `samples`."""

    samples: Sequence[Sample] = ()
    state: State | None = None
    number: int = 0


@dataclass(frozen=True)
class Sampled:
    """The tokens of each blank, and the log-probability of each token when it was revealed."""

    tokens: list[Tokens]
    log_probs: list[list[float]]


@dataclass(frozen=True)
class Filled:
    """The tokens and the score of each blank of a window (see `scoring` and `writing`).

    `trailing`: it would have been pruned if n were 1.
    """

    tokens: Sequence[Tokens]
    scores: list[float]
    prefill_seconds: float
    trailing: bool = False

    @property
    def score(self) -> float:
        return float(np.mean(self.scores))


Steps = Generator[Step, None, R]  # yields after every forward pass and returns a result


class Engine:
    """A denoiser and its tokenizer, filling windows in batches of one shape."""

    def __init__(self, model: Denoiser, tokenizer: Tokenizer, shape: Shape = CPU):
        self.model, self.tokenizer, self.shape = model.in_chunks(shape.logit_chunk), tokenizer, shape
        self.alphabet = Alphabet(tokenizer)
        self.planner = PLANNERS[model.config.planner]
        self._text_only = without(*self.alphabet.non_text, model.vocabulary.sep)
        self._no_detached_marks = without(*self.alphabet.detached_marks)
        self.repetition_penalty = RepetitionPenalty(self.alphabet, model.device)
        self.shared_work: SharedWork | None = None

    def fill(self, windows: Sequence[Window], plans: Plans | None = None) -> Steps[list[Filled]]:
        """Fill windows: lengths, then tokens, then scores, each phase for all of them. See `length_chances`."""
        start = time.perf_counter()
        chances = yield from self.length_chances(windows, plans)
        prefill_seconds = time.perf_counter() - start if self.has_length_head else 0.0
        windows = [_limit_steps(window, start, prefill_seconds) for window in windows]
        sampled = yield from self.sample_tokens(windows, chances)
        return _scored(windows, chances, sampled, prefill_seconds)

    def score_fills(self, windows: Sequence[Window], fills: Sequence[Sequence[Tokens]]) -> Steps[list[Filled]]:
        """Score given fills, in the same passes in which they would be sampled."""
        chances = yield from self.length_chances(windows)
        samples = [
            replace(self.sample(window, [len(tokens) for tokens in forced]), forced=forced)
            for window, forced in zip(windows, fills, strict=True)
        ]
        sampled = yield from self._in_batches(samples, self._batch_key, self._sample)
        return _scored(windows, chances, sampled, 0.0)

    def sample_tokens(self, windows: Sequence[Window], chances: Sequence[Chances | None]) -> Steps[list[Sampled]]:
        """The tokens of each blank; a window whose slots moved freely and broke its bounds is sampled again."""
        samples = [self.sample(w, self.lengths(w, c)) for w, c in zip(windows, chances, strict=True)]
        sampled = yield from self._unique_in_batches(samples, _sample_key, self._batch_key, self._sample)
        retries = {
            i: self.sample(w, within_bounds(w.view, w.blanks, [len(tokens) for tokens in sampled[i].tokens]))
            for i, w in enumerate(windows)
            if samples[i].lengths is None and not self._within_bounds(w, sampled[i].tokens)
        }
        results = yield from self._in_batches(list(retries.values()), self._batch_key, self._sample)
        for i, result in zip(retries, results, strict=True):
            sampled[i], samples[i] = result, retries[i]
        return (yield from self._without_avoided(samples, sampled))

    def _without_avoided(self, samples: list[Sample], sampled: list[Sampled]) -> Steps[list[Sampled]]:
        """Sample windows with avoided words again, with the spelling that was used banned as well."""
        for _ in range(MAX_RETRIES):
            retries = {
                i: replace(sample, lengths=self._lengths_of(sample, sampled[i]), banned=(*sample.banned, *runs))
                for i, sample in enumerate(samples)
                if (runs := self.avoided_runs(sample.window, sampled[i].tokens, sample.fixed))
            }
            if not retries:
                break
            results = yield from self._in_batches(list(retries.values()), self._batch_key, self._sample)
            for i, result in zip(retries, results, strict=True):
                sampled[i], samples[i] = result, retries[i]
        return sampled

    def _lengths_of(self, sample: Sample, sampled: Sampled) -> Sequence[int]:
        window = sample.window
        return sample.lengths or within_bounds(window.view, window.blanks, [len(tokens) for tokens in sampled.tokens])

    def avoided_runs(self, window: Window, fills: Sequence[Tokens], fixed: bool = True) -> list[tuple[int, ...]]:
        """The shortest runs of tokens that spell an avoided word; where slots move, each token of them by itself."""
        if not window.settings.avoid:
            return []
        pattern = avoided(window.settings.avoid)
        runs: list[tuple[int, ...]] = []
        for tokens in fills:
            ends = np.cumsum([len(self.alphabet.pieces[token]) for token in tokens])
            for match in pattern.finditer(self.alphabet.spell(tokens)):
                first, last = np.searchsorted(ends, [match.start(), match.end() - 1], side="right")
                run = tuple(tokens[first : last + 1].tolist())
                runs += [run] if fixed else [(token,) for token in run]
        return runs

    def length_chances(self, windows: Sequence[Window], plans: Plans | None = None) -> Steps[list[Chances | None]]:
        """The probability of each length class of the gap after each prompt token; None without a length head.

        A prompt that is in `plans` is not read again; the others are added there.
        """
        if not self.has_length_head:
            return [None] * len(windows)
        return (yield from self._unique_in_batches(windows, _prompt_key, self._planning_slots, self._plan, plans))

    def lengths(self, window: Window, chances: Chances | None) -> list[int] | None:
        """The number of tokens of each blank; None without a length head.

        Under a time limit no blank has more tokens than there are steps: fewer words, not worse ones.
        """
        if chances is None:
            return None
        lengths = choose_lengths(window.view, window.blanks, chances, window.key, window.draw, self.planner)
        for number, blank in enumerate(window.blanks):
            most = lengths[number] if window.max_tokens is None else min(lengths[number], window.max_tokens)
            if window.seconds is not None:
                most = min(most, window.settings.steps)
            lengths[number] = max(most, blank.least)
        return lengths

    def sample(self, window: Window, lengths: Sequence[int] | None) -> Sample:
        """The window with these lengths."""
        return Sample(window, lengths, banned=self.spellings(tuple(window.settings.avoid)))

    @lru_cache(maxsize=64)  # noqa: B019 (as long-lived as the engine)
    def spellings(self, words: tuple[str, ...]) -> tuple[tuple[int, ...], ...]:
        return tuple(spelling for word in words for spelling in self.alphabet.spellings(word, self.tokenizer.encode))

    @cached_property
    def rules(self) -> Bool[Tensor, "rules V"]:
        """The tokens that each rule of a draft allows."""
        return rules(self.alphabet, self.model.vocabulary.sep).to(self.model.device)

    @property
    def has_length_head(self) -> bool:
        return self.model.room_head is not None

    @property
    def writes_left_to_right(self) -> bool:
        """Whether blanks are written (`infill.writing`) rather than planned and revealed."""
        return self.model.config.order == "outline"

    def moving_states(self, window: Window, fills: Sequence[Tokens]) -> Steps[None]:
        """The states in which the slots of given fills move to their places."""
        yield from self._sample([replace(self.sample(window, [len(fill) for fill in fills]), forced=fills)])

    def is_tokenised(self, view: View) -> bool:
        """Whether the text itself has spaces before its marks; only then may the fills."""
        return bool(self.alphabet.detached[view.prompt.example.tokens].any())

    def _in_batches(
        self, items: Sequence[T], batch_key: Callable[[T], Hashable], run: Callable[[list[T]], Steps[list[Any]]]
    ) -> Steps[list[Any]]:
        """The results of items, in their order; those with the same key share batches."""
        results: dict[int, Any] = {}
        for group in grouped(range(len(items)), lambda index: batch_key(items[index])):
            for first in range(0, len(group), self.shape.rows):
                batch = group[first : first + self.shape.rows]
                results |= zip(batch, (yield from run([items[index] for index in batch])), strict=True)
        return [results[index] for index in range(len(items))]

    def _unique_in_batches(
        self,
        items: Sequence[T],
        item_key: Callable[[T], Hashable],
        batch_key: Callable[[T], Hashable],
        run: Callable[[list[T]], Steps[list[Any]]],
        known: dict[Hashable, Any] | None = None,
    ) -> Steps[list[Any]]:
        """As `_in_batches`, but only the first of equal items runs, and none whose result is `known`."""
        keys, known = [item_key(item) for item in items], {} if known is None else known
        new: dict[Hashable, T] = {}
        for key, item in zip(keys, items, strict=True):
            if key not in known:
                new.setdefault(key, item)
        known |= zip(new, (yield from self._in_batches(list(new.values()), batch_key, run)), strict=True)
        return [known[key] for key in keys]

    def _planning_slots(self, window: Window) -> int:
        return self.planner.slots(window.view.prompt, self.model.config.slots)

    def _plan(self, windows: list[Window]) -> Steps[list[Chances]]:
        prompts = [window.view.prompt for window in windows]
        rows = self.shape.padded(prompts, prompts[-1])
        chances = self.planner.chances(self.model, rows, self._planning_slots(windows[0]))
        yield Step()
        return chances[: len(windows)]

    def _batch_key(self, sample: Sample) -> Hashable:
        settings = sample.window.settings
        how = annealing(settings), settings.terminal, sample.lengths is None, self.is_tokenised(sample.window.view)
        return how, sample.steps, self.sample_slots(sample), sample.banned, sample.forced is None

    def sample_slots(self, sample: Sample) -> int:
        """L, the number of slots in the row of a sample: those of its prompt, and those to fill."""
        prompt = len(sample.window.view.prompt)
        if sample.lengths is None:
            return min(max(SLOTS, prompt), default_slots(prompt, self.model.config.slots))
        exact = prompt + sum(sample.lengths)
        return self.shape.width(exact) if sample.fixed else exact

    def _sample(self, samples: list[Sample]) -> Steps[list[Sampled]]:
        recorder = Recorder(self.model.vocabulary.mask)
        for number, state in enumerate(self.states(samples, recorder)):
            yield Step(samples, state, number)
        x, log_probs = state.x.cpu().numpy(), recorder.settle(state).cpu().numpy()
        if samples[0].lengths is None:
            gaps = gap_slots(state, [sample.window.view.prompt for sample in samples], self.model.vocabulary)
            slots = [_by_blank(sample.window, x[row], gaps[row], self.alphabet) for row, sample in enumerate(samples)]
        else:
            slots = [[np.arange(span.start, span.stop) for span in sample.spans] for sample in samples]
        return [
            Sampled([x[row][blank] for blank in blanks], [log_probs[row][blank].tolist() for blank in blanks])
            for row, blanks in enumerate(slots)
        ]

    def _within_bounds(self, window: Window, fills: Sequence[Tokens]) -> bool:
        return all(blank.holds(self.alphabet.spell(fill)) for blank, fill in zip(window.blanks, fills, strict=True))

    def states(self, samples: Sequence[Sample], recorder: Recorder | None = None) -> Iterator[State]:
        """The states of a batch, from t = 1 to 0; the first rows are those of the samples."""
        first, L = samples[0], self.sample_slots(samples[0])
        tokenised = self.is_tokenised(first.window.view)
        before: tuple[Restriction, ...] = () if recorder is None else (recorder,)
        if first.banned:
            before = (*before, Avoiding(first.banned))
        after = (self.repetition_penalty,) if tokenised else (self.repetition_penalty, self._no_detached_marks)
        keys = np.concatenate(self.shape.padded([sample.key for sample in samples], first.key))
        if first.lengths is None:
            prompts = self.shape.padded([sample.window.view.prompt for sample in samples], _padding_prompt(L))
            method: DDOT | FixedLength = self._moving(
                first.window.settings, prompts, L, (*before, self._text_only, *after)
            )
            return method.sample(self.model, [prompt.example for prompt in prompts], L, first.steps, keys)
        spans = self.shape.padded([sample.spans for sample in samples], [])
        reveal: Reveal = WithinWords(MostCertainFirst(annealing(first.window.settings)), self.alphabet, spans)
        rules = (*before, Pieces(self.alphabet, spans, L, self.model.device, tokenised), *after)
        if first.forced is not None:
            reveal, rules = MostCertainFirst(greedy), (*before, Forced(self._forced_tokens(samples, L)))
        if first.fixed:
            method = FixedLength(reveal=reveal, restrictions=rules)
        else:
            method = self._moving_in_gaps(samples, reveal, L, rules)
        examples = self.shape.padded([sample.example for sample in samples], _padding_prompt(L).example)
        return method.sample(self.model, examples, L, first.steps, keys)

    def _forced_tokens(self, samples: Sequence[Sample], L: int) -> Int[Tensor, "B L"]:
        tokens = torch.zeros(self.shape.rows, L, dtype=torch.long)
        for row, sample in enumerate(samples):
            for span, fill in zip(sample.spans, sample.forced or (), strict=True):
                tokens[row, span.start : span.stop] = torch.from_numpy(fill)
        return tokens.to(self.model.device)

    def _moving(self, settings: Settings, prompts: Sequence[Prompt], L: int, rules: tuple[Restriction, ...]) -> DDOT:
        """Slots move to any blank; [pad]s decide the number of words."""
        return DDOT(
            terminal=_TERMINALS[settings.terminal or "grid"],
            reveal=Leap(annealing(settings)),
            projections=prompt_projections(self.model, prompts, L),
            restrictions=rules,
        )

    def _moving_in_gaps(
        self, samples: Sequence[Sample], reveal: Reveal, L: int, rules: tuple[Restriction, ...]
    ) -> DDOT:
        """Slots start anywhere and end in the blank they belong to."""
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


def grouped(items: Iterable[T], key: Callable[[T], Hashable]) -> list[list[T]]:
    """Lists of the items whose keys are equal."""
    groups: dict[Hashable, list[T]] = {}
    for item in items:
        groups.setdefault(key(item), []).append(item)
    return list(groups.values())


def annealing(settings: Settings) -> Annealing:
    """How a token is chosen from its distribution."""
    if settings.temperature > 0:
        return Tempered(settings.temperature, settings.top_p)
    return greedy if settings.terminal is None else greedy_words


def prompt_projections(model: Denoiser, prompts: Sequence[Prompt], L: int) -> tuple[Projection, ...]:
    """Projections that keep the order of the prompt, words whole, and closed gaps empty."""
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
    """For each prompt, the tokens in each of its n + 1 gaps."""
    x = state.x.cpu().numpy()
    return [[x[row][slots] for slots in gaps] for row, gaps in enumerate(gap_slots(state, prompts, vocabulary))]


def _by_blank(
    window: Window, x: Int[np.ndarray, "L"], gaps: Sequence[Int[np.ndarray, "_"]], alphabet: Alphabet
) -> list[Int[np.ndarray, "_"]]:
    """The slots of each blank. Blanks that share a gap take words in turn, within their bounds."""
    after = window.view.after
    left = {gap: gaps[gap + 1] for gap in after}
    result = []
    for number, (blank, gap) in enumerate(zip(window.blanks, after, strict=True)):
        slots = left[gap]
        tokens = x[slots]
        starts = np.flatnonzero(np.concatenate([[True], alphabet.begins[tokens[1:]]])[: len(tokens)])
        others = after[number + 1 :].count(gap)
        take = max(blank.least, len(starts) // (1 + others)) if others else len(starts)
        cut = int(starts[take]) if take < len(starts) else len(tokens)
        result.append(slots[:cut])
        left[gap] = slots[cut:]
    return result


def _scored(
    windows: Sequence[Window], chances: Sequence[Chances | None], sampled: Sequence[Sampled], prefill_seconds: float
) -> list[Filled]:
    results = []
    for window, planned, fills in zip(windows, chances, sampled, strict=True):
        lengths = length_log_probs(window.view, planned, fills.tokens)
        scores = [score_of(*parts) for parts in zip(fills.log_probs, lengths, strict=True)]
        results.append(Filled(fills.tokens, scores, prefill_seconds))
    return results


def _prompt_key(window: Window) -> Hashable:
    """Equal for windows with the same prompt, for which the length head predicts the same."""
    prompt = window.view.prompt
    return prompt.example.tokens.tobytes(), prompt.is_open.tobytes(), prompt.free


def _sample_key(sample: Sample) -> Hashable:
    """Equal for samples with the same result: nothing is drawn at temperature 0 with fixed slots."""
    if not sample.fixed or sample.window.settings.temperature > 0:
        return id(sample)
    window, lengths = sample.window, tuple(sample.lengths or ())
    return _prompt_key(window), lengths, tuple(window.blanks), sample.steps, sample.banned


def _limit_steps(window: Window, start: float, pass_seconds: float) -> Window:
    """The window with as many steps as its time limit allows; `pass_seconds`: the time of the first forward pass."""
    if window.seconds is None or not pass_seconds:
        return window
    steps = int((start + window.seconds - time.perf_counter()) / max(_STEP_COST * pass_seconds, 1e-4))
    steps = max(_MIN_STEPS, min(window.settings.steps, steps))
    return replace(window, settings=replace(window.settings, steps=steps))


def _padding_prompt(L: int) -> Prompt:
    """A padding row: all of it is prompt, so that no logits are computed for it."""
    zeros = np.zeros(L, np.int64)
    return Prompt(Example(zeros, np.ones(L, bool), np.full(L, UNKNOWN), zeros), np.zeros(L + 1, bool))
