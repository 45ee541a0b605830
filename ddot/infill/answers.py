"""From requests to answers: several attempts at each text, the best of them kept. A text is filled place by place."""

import time
from collections.abc import Sequence
from copy import copy
from dataclasses import dataclass, field, replace

import numpy as np

from ddot.core.rng import fold, row_keys
from ddot.data.tokenizer import Tokenizer
from ddot.infill.engine import Engine, Filled, Plans, Steps, Window
from ddot.infill.passes import CANDIDATES
from ddot.infill.request import Request
from ddot.infill.scoring import Tokens
from ddot.infill.spacing import set_fills
from ddot.infill.template import Blank, avoided, lock
from ddot.infill.view import SLOTS, View, raw_fill, view, window
from ddot.infill.writing import WARMER, forced, judge, shown, write

_QUICKLY, _NARROW = 0.5, 48  # seconds within which the network reads only so many slots: a pass takes half the time
_CLOSED = 0.2  # chance of an end at once below which a gap of a free text is opened
_WARMER = (0.0, 0.5, 0.8, 1.1)  # temperatures tried in turn while too few alternatives differ


@dataclass(frozen=True)
class Infill:
    """A filled text, and how likely the model finds what it filled in.

    `score` is the mean over fills of the log-probability of their tokens and of the text after them, in nats, with a
    bonus per token (see `writing`; for models that do not write, `scoring`). It compares fills of one text.
    """

    text: str
    fills: list[str]
    score: float
    spans: list[tuple[int, int]] = field(default_factory=list)  # where each fill begins and ends in the text
    scores: list[float] = field(default_factory=list)  # of each fill; 0 for a locked one


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


def slots_of(request: Request) -> int:
    """How many the network reads at once."""
    return SLOTS if request.seconds is None or request.seconds > _QUICKLY else _NARROW


class Attempt:
    """One filling of all blanks of a request under way. Attempt 0 has the expected lengths, later ones drawn ones."""

    def __init__(self, request: Request, number: int):
        self.request, self.number = request, number
        self.key = row_keys(request.settings.seed, 1)
        self.raw: list[str] = []
        self.fills: list[Tokens] = []
        self.scores: list[float] = []
        self.windows = self.tokens = self.read = 0
        self.reading = 0.0

    @property
    def done(self) -> bool:
        return len(self.raw) == len(self.request.template.blanks)

    def window(self, tokenizer: Tokenizer, one_place: bool = False) -> Window:
        """The next window, in the text as it is filled so far. `one_place`: only the next place there is filled."""
        template, located = self.request.template, self.request.located
        part = window(template, set_fills(template, self.raw), tokenizer, located, slots_of(self.request))
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
            now=_first_place(seen, part.template.blanks) if one_place else None,
        )

    def branch(self, number: int) -> "Attempt":
        """An attempt that goes on from here under another number."""
        other = copy(self)
        other.number, other.raw, other.fills, other.scores = number, [*self.raw], [*self.fills], [*self.scores]
        return other

    def take(self, filled: Filled, fills: Sequence[str]) -> None:
        """Go on after a window."""
        self.raw += fills
        self.fills += filled.tokens
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


def _first_place(seen: View, blanks: Sequence[Blank]) -> int:
    """The number of blanks up to the first place where there is anything to fill."""
    first = next((after for after, blank in zip(seen.after, blanks, strict=True) if blank.most != 0), len(seen.prompt))
    return sum(after <= first for after in seen.after)


def filled(attempts: Sequence[Attempt], engine: Engine, plans: Plans | None = None) -> Steps[list[Answer]]:
    """Fill all blanks of all attempts, a window of each at a time. `plans`: see `Engine.length_chances`."""
    while under_way := [attempt for attempt in attempts if not attempt.done]:
        windows = [attempt.window(engine.tokenizer) for attempt in under_way]
        for attempt, each in zip(under_way, (yield from engine.fill(windows, plans)), strict=True):
            attempt.take(each, _spelt(each, engine))
    return [attempt.answer for attempt in attempts]


def drawn(request: Request, times: int, engine: Engine) -> Steps[list[Answer]]:
    """Fillings of a text drawn as the network says, without a score."""
    attempts = [Attempt(request, number) for number in range(1, times + 1)]
    while under_way := [attempt for attempt in attempts if not attempt.done]:
        seen = {tuple(attempt.raw): attempt.window(engine.tokenizer) for attempt in under_way}
        windows = [replace(seen[tuple(attempt.raw)], draw=attempt.number) for attempt in under_way]
        results = yield from write(windows, engine, scored=False)
        for attempt, each in zip(under_way, results.values(), strict=True):
            attempt.take(each, _spelt(each, engine))
    return [attempt.answer for attempt in attempts]


def judged(request: Request, fills: Sequence[str], engine: Engine) -> Steps[Infill]:
    """The infill with these fills, one a blank, scored as if the engine had filled them in."""
    attempt = Attempt(request, 0)
    while not attempt.done:
        window = attempt.window(engine.tokenizer, one_place=engine.writes)
        own = fills[len(attempt.raw) :][: len(window.after)]
        raw = [raw_fill(fill, first) for fill, first in zip(own, window.view.first[: window.now], strict=True)]
        tokens = [[engine.tokenizer.encode(each) for each in raw]]
        (filled,) = yield from (judge([window], tokens, engine) if engine.writes else engine.judge([window], tokens))
        attempt.take(filled, raw)
    return _unlocked(attempt.answer.infill, request)


def answers(requests: Sequence[Request], engine: Engine, watched: bool = False) -> Steps[list[Answers]]:
    """The answers to all requests, best first; they always include the one that n = 1 gives.

    `watched`: some steps show the states of all that is filled.
    """
    start = time.perf_counter()
    if engine.writes:
        requests = yield from located(requests, engine)
    found = yield from (_written(requests, engine, watched) if engine.writes else _attempted(requests, engine))
    seconds = time.perf_counter() - start
    return [_finished(*each, seconds) for each in zip(requests, found, strict=True)]


def _finished(request: Request, found: Answers, seconds: float) -> Answers:
    """The answers, best first; none if every one uses an avoided word."""
    pattern = avoided(request.settings.avoid)
    kept = [each for each in found.best if not any(map(pattern.search, each.infill.fills))]
    kept.sort(key=lambda each: -each.infill.score)
    return replace(found, best=[replace(a, infill=_unlocked(a.infill, request)) for a in kept], seconds=seconds)


def located(requests: Sequence[Request], engine: Engine) -> Steps[list[Request]]:
    """Free texts with their gaps located: those that the network would rather not leave empty, or the likeliest one.

    Writing into located gaps, with an outline that shows them, reads far better than deciding on the way.
    """
    found = []
    for request in requests:
        if not request.located:
            attempt, ends = Attempt(request, 0), list[float]()
            while not attempt.done:
                window = attempt.window(engine.tokenizer)
                nothing = [np.zeros(0, np.int64) for _ in window.blanks]
                ends += [sum(each) for each in (yield from forced(window, nothing, engine))]
                attempt.take(Filled(nothing, [0.0 for _ in nothing], 0.0), ["" for _ in nothing])
            bar, rest = max(np.log(_CLOSED), min(ends, default=0.0)), iter(ends)
            fills = tuple((None if next(rest) <= bar else "") if each is None else each for each in request.locked)
            template = lock(request.whole, fills)
            blanks = tuple(replace(blank, least=max(1, blank.least)) for blank in template.blanks)
            request = replace(request, template=replace(template, blanks=blanks), locked=fills, located=True)
        found.append(request)
    return found


def _written(requests: Sequence[Request], engine: Engine, watched: bool) -> Steps[list[Answers]]:
    """Of the first place of each text the n best candidates are kept, and go on with the best one of each later.

    Under a time limit all that fits is written at once.
    """
    paths = [[Attempt(request, 0)] for request in requests]
    first = [some[0] for some in paths]
    while under_way := [(i, path) for i, some in enumerate(paths) for path in some if not path.done]:
        windows = [path.window(engine.tokenizer, path.request.seconds is None) for _, path in under_way]
        wanted = [1 if path.windows else requests[i].settings.n for i, path in under_way]
        found = yield from _candidates(windows, wanted, engine)
        longer: list[list[Attempt]] = [[path for path in some if path.done] for some in paths]
        for (i, path), part, n, some in zip(under_way, windows, wanted, found, strict=True):
            for number, filled in _best(some, n, part, engine):
                branch = path.branch(path.number if path.windows else number)
                branch.take(filled, _spelt(filled, engine))
                longer[i].append(branch)
                first[i].reading = first[i].reading or filled.reading
        paths = longer
    for path in (path for some in paths for path in some if watched):
        yield from _shown(path, engine)
    return [
        Answers([path.answer for path in some], one.read, one.reading, 0.0)
        for some, one in zip(paths, first, strict=True)
    ]


def _shown(path: Attempt, engine: Engine) -> Steps[None]:
    """The states of a text that is written, a window at a time."""
    again = Attempt(path.request, path.number)
    while not again.done:
        window = again.window(engine.tokenizer)
        part = slice(len(again.raw), len(again.raw) + len(window.blanks))
        yield from shown(window, path.fills[part], engine)
        again.raw += path.raw[part]
        again.windows += 1


def _candidates(windows: Sequence[Window], wanted: Sequence[int], engine: Engine) -> Steps[list[dict[int, Filled]]]:
    """Candidates for each window by number; warmer ones where too few differ."""
    found: list[dict[int, Filled]] = [{} for _ in windows]
    made = [0 for _ in windows]  # those that gave up included
    for warmth in WARMER:
        more = [
            (i, replace(part, draw=made[i] + number, warmth=warmth))
            for i, (part, n) in enumerate(zip(windows, wanted, strict=True))
            for number in range(_missing_candidates(part, n, found[i], engine))
        ]
        if not more:
            break
        for i, _ in more:
            made[i] += 1
        results = yield from write([part for _, part in more], engine)
        for number, filled in results.items():
            i, part = more[number]
            found[i][part.draw] = filled
    return found


def _missing_candidates(window: Window, n: int, found: dict[int, Filled], engine: Engine) -> int:
    """How many more candidates to write, so that n differ."""
    if not found:
        return _alone(window) if n == 1 or not window.varies else max(_alone(window), 2 * n)
    differ = len({tuple(_spelt(filled, engine)) for filled in found.values()})
    return 2 * max(0, n - differ) if n > 1 and window.varies else 0


def _alone(window: Window) -> int:
    """The number of candidates from which the answer of n = 1 is chosen; at a temperature it is drawn instead."""
    chosen = window.varies and window.seconds is None and not window.settings.temperature
    return CANDIDATES if chosen else 1


def _best(found: dict[int, Filled], n: int, window: Window, engine: Engine) -> list[tuple[int, Filled]]:
    """The n best candidates that differ and hold nothing to be avoided, among them the one that n = 1 gives."""
    differ: dict[tuple[str, ...], int] = {}
    for number in sorted(found, key=lambda number: (found[number].behind, number)):
        if not engine.avoided(window, found[number].tokens):
            differ.setdefault(tuple(_spelt(found[number], engine)), number)
    ranked = sorted(differ.values(), key=lambda number: -found[number].score)
    alone = [number for number in ranked if number < _alone(window) and not found[number].behind]
    first = alone[:1] or ranked[:1]
    return [(number, found[number]) for number in [*first, *(each for each in ranked if each not in first)][:n]]


def _spelt(filled: Filled, engine: Engine) -> list[str]:
    return [engine.alphabet.spell(tokens) for tokens in filled.tokens]


def _attempted(requests: Sequence[Request], engine: Engine) -> Steps[list[Answers]]:
    """For each text its first attempt, and the best of 2n, preferring those that leave no blank empty.

    While fewer than n differ, more attempts are made at higher temperatures.
    """
    found: list[dict[str, Answer]] = [{} for _ in requests]
    # Later attempts at a text read it as planned for the first. Under a time limit, planning is also the clock.
    plans: Plans | None = {} if all(request.seconds is None for request in requests) else None
    made: list[list[Attempt]] = [[] for _ in requests]
    while attempts := [
        (index, Attempt(_warmed(request, number), number))
        for index, request in enumerate(requests)
        for number in _missing(request, len(made[index]), found[index])
    ]:
        results = yield from filled([attempt for _, attempt in attempts], engine, plans)
        for (index, attempt), answer in zip(attempts, results, strict=True):
            made[index].append(attempt)
            found[index].setdefault(answer.infill.text, answer)
    return [
        Answers(_chosen(request, list(some.values())), tried[0].read, tried[0].reading, 0.0)
        for request, tried, some in zip(requests, made, found, strict=True)
    ]


def _missing(request: Request, made: int, found: dict[str, Answer]) -> range:
    """The numbers of the attempts to make next."""
    if not made or request.tries == 1:
        return range(made, request.tries)
    full = sum("" not in answer.infill.fills for answer in found.values())
    return range(made, min(made + max(0, request.settings.n - full), len(_WARMER) * request.tries))


def _warmed(request: Request, number: int) -> Request:
    """The request at the temperature of an attempt."""
    warm = max(request.settings.temperature, _WARMER[number // request.tries])
    return replace(request, settings=replace(request.settings, temperature=warm))


def _chosen(request: Request, found: list[Answer]) -> list[Answer]:
    """The best answers, among them the one that n = 1 gives: the first without a word to be avoided."""
    pattern = avoided(request.settings.avoid)
    first, *others = sorted(found, key=lambda each: (any(map(pattern.search, each.infill.fills)), each.attempt))
    others.sort(key=lambda each: ("" in each.infill.fills, -each.infill.score))
    return [first, *others[: request.settings.n - 1]]


def _unlocked(infill: Infill, request: Request) -> Infill:
    """The infill with the fills of all blanks: locked ones as they were, the others in order."""
    new, of_new = iter(infill.fills), iter(infill.scores)
    fills = [next(new) if each is None else each for each in request.locked]
    scores = [next(of_new, 0.0) if each is None else 0.0 for each in request.locked]
    return replace(infill, fills=fills, spans=request.whole.spans(fills), scores=scores)
