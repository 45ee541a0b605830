"""From requests to answers: several attempts at each text, each filled window by window, the best of them kept."""

import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from ddot.core.rng import fold, row_keys
from ddot.data.tokenizer import Tokenizer
from ddot.infill.engine import Engine, Filled, Plans, Steps, Window
from ddot.infill.settings import Settings
from ddot.infill.spacing import set_fills
from ddot.infill.template import Template, avoided
from ddot.infill.view import SLOTS, raw_fill, view, window

# The score of any fill below which another length is tried: four in ten of people.dev's texts (docs/log.md).
_DOUBTFUL = -2.2
_QUICKLY, _NARROW = 0.5, 48  # seconds within which the network reads only so many slots: a pass takes half the time
_WARMER = (0.0, 0.5, 0.8, 1.1)  # temperatures tried in turn while too few alternatives differ


@dataclass(frozen=True)
class Infill:
    """A filled text, and how likely the model finds what it filled in.

    `score` is the mean over fills of the mean log-probability of their tokens, in nats, and a little of that of their
    lengths and of the text after them (see `scoring`): 0 is certain, and fills of different lengths are comparable.
    """

    text: str
    fills: list[str]
    score: float
    spans: list[tuple[int, int]] = field(default_factory=list)  # where each fill begins and ends in the text
    scores: list[float] = field(default_factory=list)  # of each fill; 0 for a locked one


@dataclass(frozen=True)
class Request:
    """A text to fill: a template whose locked blanks are literal text, the whole one, the locked fills, and how.

    `located`: the network is told where the blanks are. `seconds`: a time limit, kept by fewer words. `tokens`: at most
    so many in each blank. `begin`: the letters the first fill begins with.
    """

    template: Template
    whole: Template
    locked: tuple[str | None, ...]
    settings: Settings = field(default_factory=Settings)
    located: bool = True
    seconds: float | None = None
    tokens: int | None = None
    begin: str = ""

    @property
    def slots(self) -> int:
        """How many the network reads at once."""
        return SLOTS if self.seconds is None or self.seconds > _QUICKLY else _NARROW

    def tries(self, engine: Engine) -> int:
        """How many attempts are made before any is warmed up."""
        alone, n = self.tries_alone(engine), self.settings.n
        return max(alone, 2 * n) if n > 1 and any(blank.most != 0 for blank in self.template.blanks) else alone

    def tries_alone(self, engine: Engine) -> int:
        """How many attempts there may be at the one answer of n = 1: one for each quantile of the planned lengths."""
        several = self.located and self.seconds is None and self.settings.terminal is None
        return max(1, len(engine.planner.quantiles)) if several else 1


@dataclass(frozen=True)
class Answer:
    """An infill, the number of the attempt it came from, and how many tokens were filled in."""

    infill: Infill
    attempt: int
    tokens: int


@dataclass(frozen=True)
class Answers:
    """The answers to a request, best first. `read`: tokens of its first window; times are in seconds."""

    best: list[Answer]
    read: int
    reading: float
    seconds: float


class Attempt:
    """One filling of all blanks of a request under way. Attempt 0 has the expected lengths, later ones drawn ones."""

    def __init__(self, request: Request, number: int):
        self.request, self.number = request, number
        self.key = row_keys(request.settings.seed, 1)
        self.raw: list[str] = []
        self.scores: list[float] = []
        self.windows = self.tokens = self.read = 0
        self.reading = 0.0

    @property
    def done(self) -> bool:
        return len(self.raw) == len(self.request.template.blanks)

    def window(self, tokenizer: Tokenizer) -> Window:
        """The next window, in the text as it is filled so far."""
        template, located = self.request.template, self.request.located
        part = window(template, set_fills(template, self.raw), tokenizer, located, self.request.slots)
        seen = view(part.template, tokenizer, located, part.begins, part.ends)
        self.read = self.read or len(seen.prompt)
        key = fold(self.key, len(self.raw))
        return Window(
            seen,
            part.template.blanks,
            key,
            self.request.settings,
            self.number,
            self.windows,
            self.request.seconds,
            self.request.tokens,
            "" if self.raw else self.request.begin,
        )

    def take(self, filled: Filled, fills: Sequence[str]) -> None:
        """Go on after a window."""
        self.raw += fills
        self.scores += filled.scores
        self.tokens += sum(map(len, filled.tokens))
        self.windows += 1
        self.reading = self.reading or filled.reading

    @property
    def answer(self) -> Answer:
        template = self.request.template
        fills = set_fills(template, self.raw)
        score = float(np.mean(self.scores)) if self.scores else 0.0
        return Answer(Infill(template.text(fills), fills, score, scores=self.scores), self.number, self.tokens)


def filled(attempts: Sequence[Attempt], engine: Engine, plans: Plans | None = None) -> Steps[list[Answer]]:
    """Fill all blanks of all attempts, a window of each at a time. `plans`: see `Engine.length_chances`."""
    while under_way := [attempt for attempt in attempts if not attempt.done]:
        windows = [attempt.window(engine.tokenizer) for attempt in under_way]
        for attempt, each in zip(under_way, (yield from engine.fill(windows, plans)), strict=True):
            attempt.take(each, [engine.alphabet.spell(tokens) for tokens in each.tokens])
    return [attempt.answer for attempt in attempts]


def judged(request: Request, fills: Sequence[str], engine: Engine) -> Steps[Infill]:
    """The infill with these fills, one a blank, scored as if the engine had filled them in."""
    attempt = Attempt(request, 0)
    while not attempt.done:
        window = attempt.window(engine.tokenizer)
        mine = fills[len(attempt.raw) :][: len(window.blanks)]
        raw = [raw_fill(fill, first) for fill, first in zip(mine, window.view.first, strict=True)]
        (filled,) = yield from engine.judge([window], [[engine.tokenizer.encode(each) for each in raw]])
        attempt.take(filled, raw)
    return _unlocked(attempt.answer.infill, request)


def answers(requests: Sequence[Request], engine: Engine) -> Steps[list[Answers]]:
    """The answers to all requests, in as many rounds of attempts as the one with the fewest alternatives needs.

    They always include the one that n = 1 gives. The others are the best of 2n attempts, preferring those that leave no
    blank empty; while fewer than n differ, more attempts are made at higher temperatures.
    """
    start = time.perf_counter()
    found: list[dict[str, Answer]] = [{} for _ in requests]
    # Later attempts at a text read it as planned for the first. Under a time limit, planning is also the clock.
    plans: Plans | None = {} if all(request.seconds is None for request in requests) else None
    made: list[list[Attempt]] = [[] for _ in requests]
    while attempts := [
        (index, Attempt(_warmed(request, number, engine), number))
        for index, request in enumerate(requests)
        for number in _missing(request, len(made[index]), found[index], engine)
    ]:
        results = yield from filled([attempt for _, attempt in attempts], engine, plans)
        for (index, attempt), answer in zip(attempts, results, strict=True):
            made[index].append(attempt)
            found[index].setdefault(answer.infill.text, answer)
    seconds = time.perf_counter() - start
    return [
        Answers(
            _ranked(request, list(some.values()), request.tries_alone(engine)), tried[0].read, tried[0].reading, seconds
        )
        for request, tried, some in zip(requests, made, found, strict=True)
    ]


def _missing(request: Request, made: int, found: dict[str, Answer], engine: Engine) -> range:
    """The numbers of the attempts to make next."""
    tries, alone = request.tries(engine), request.tries_alone(engine)
    if tries == alone:
        doubtful = all(_worst(answer) < _DOUBTFUL for answer in found.values())
        return range(made, made + int(doubtful and made < alone))
    if not made:
        return range(tries)
    full = sum("" not in answer.infill.fills for answer in found.values())
    return range(made, min(made + max(0, request.settings.n - full), len(_WARMER) * tries))


def _warmed(request: Request, number: int, engine: Engine) -> Request:
    """The request at the temperature of an attempt."""
    warm = max(request.settings.temperature, _WARMER[number // request.tries(engine)])
    return replace(request, settings=replace(request.settings, temperature=warm))


def _ranked(request: Request, found: list[Answer], alone: int) -> list[Answer]:
    """The best answers, among them the one that n = 1 gives."""
    pattern = avoided(request.settings.avoid)
    found = [each for each in found if not any(map(pattern.search, each.infill.fills))]
    if not found:
        return []
    first = _alone(sorted(found, key=lambda each: each.attempt), alone)
    others = [each for each in found if each is not first]
    others.sort(key=lambda each: ("" in each.infill.fills, -each.infill.score))
    ranked = sorted([first, *others[: request.settings.n - 1]], key=lambda each: -each.infill.score)
    return [replace(each, infill=_unlocked(each.infill, request)) for each in ranked]


def _alone(found: list[Answer], alone: int) -> Answer:
    """The answer that n = 1 gives: the best of the attempts up to the first that is not doubtful, `alone` at most."""
    tried = found[:1]
    for each in found[1:]:
        if _worst(tried[-1]) >= _DOUBTFUL or each.attempt >= alone:
            break
        tried.append(each)
    return max(tried, key=_worst)


def _worst(answer: Answer) -> float:
    """The score of the fill that reads worst; a mean would let a good fill hide a word cut short."""
    return min(answer.infill.scores, default=0.0)


def _unlocked(infill: Infill, request: Request) -> Infill:
    """The infill with the fills of all blanks: locked ones as they were, the others in order."""
    new, of_new = iter(infill.fills), iter(infill.scores)
    fills = [next(new) if each is None else each for each in request.locked]
    scores = [next(of_new, 0.0) if each is None else 0.0 for each in request.locked]
    return replace(infill, fills=fills, spans=request.whole.spans(fills), scores=scores)
