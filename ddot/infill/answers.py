"""From requests to answers: several attempts at each text, of which the best are kept. A text is filled gap by gap."""

import re
import time
from collections import Counter
from collections.abc import Sequence
from copy import copy
from dataclasses import dataclass, field, replace

import numpy as np

from ddot.core.rng import fold, row_keys
from ddot.data.tokenizer import Tokenizer
from ddot.infill import writing
from ddot.infill.engine import Engine, Filled, Plans, Steps, Window
from ddot.infill.passes import candidates_for_one
from ddot.infill.request import Request
from ddot.infill.scoring import Tokens
from ddot.infill.spacing import set_fills
from ddot.infill.template import Blank, avoided, lock
from ddot.infill.view import SLOTS, View, excerpt, raw_fill, view
from ddot.infill.writing import TEMPERATURE_FACTORS, fill_log_probs, replay, write

_SHORT_LIMIT, _NARROW_SLOTS = 0.5, 48  # up to this time limit in seconds windows are narrow: passes take half as long
_MAX_EMPTY = 0.2  # a gap of a free text is filled if the probability that it stays empty is at most this
# Nats that an alternative loses if it has all words in common with a better one: what repeats the first answer with
# another article is of no use (docs/log.md).
_SAMENESS = 5.0
_TEMPERATURES = (0.0, 0.5, 0.8, 1.1)  # tried in turn while too few alternatives differ


@dataclass(frozen=True)
class Infill:
    """A filled text, and how likely its fills are to the model.

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
    """An infill, the number of its attempt, and the number of tokens that were filled in."""

    infill: Infill
    attempt: int
    tokens: int


@dataclass(frozen=True)
class Answers:
    """The answers to a request, best first. `prompt_tokens`: those of its first window."""

    best: list[Answer]
    prompt_tokens: int
    prefill_seconds: float
    seconds: float


def window_slots(request: Request) -> int:
    """The maximum number of slots of a window of this request."""
    return SLOTS if request.seconds is None or request.seconds > _SHORT_LIMIT else _NARROW_SLOTS


class Attempt:
    """One filling of all blanks of a request, so far.

    Where blanks are written, an attempt has the number of its candidate for the first gap. Other models plan expected
    lengths for attempt 0 and drawn ones for the others.
    """

    def __init__(self, request: Request, number: int):
        self.request, self.number = request, number
        self.key = row_keys(request.settings.seed, 1)
        self.raw: list[str] = []
        self.fills: list[Tokens] = []
        self.scores: list[float] = []
        self.windows = self.tokens = self.prompt_tokens = 0
        self.prefill_seconds = 0.0

    @property
    def done(self) -> bool:
        return len(self.raw) == len(self.request.template.blanks)

    def window(self, tokenizer: Tokenizer, one_gap: bool = False) -> Window:
        """The next window of the text as filled so far. `one_gap`: only its next gap is to be filled."""
        template, located = self.request.template, self.request.located
        part = excerpt(template, set_fills(template, self.raw), tokenizer, located, window_slots(self.request))
        seen = view(part.template, tokenizer, located, part.begins, part.ends)
        self.prompt_tokens = self.prompt_tokens or len(seen.prompt)
        key = fold(self.key, len(self.raw))
        return Window(
            seen,
            part.template.blanks,
            key,
            self.request.settings,
            self.number,
            self.windows,
            self.request.seconds,
            self.request.max_tokens,
            "" if self.raw else self.request.fill_prefix,
            n_filled=_blanks_in_first_gap(seen, part.template.blanks) if one_gap else None,
        )

    def branch(self, number: int) -> "Attempt":
        """A copy with another number, to continue from here; at a temperature all but number 0 are sampled anew."""
        other = copy(self)
        if self.request.settings.temperature and number:
            other.key = fold(self.key, number)
        other.number, other.raw, other.fills, other.scores = number, [*self.raw], [*self.fills], [*self.scores]
        return other

    def take(self, filled: Filled, fills: Sequence[str]) -> None:
        """Add the fills of a window."""
        self.raw += fills
        self.fills += filled.tokens
        self.scores += filled.scores
        self.tokens += sum(map(len, filled.tokens))
        self.windows += 1
        self.prefill_seconds = self.prefill_seconds or filled.prefill_seconds

    @property
    def answer(self) -> Answer:
        template = self.request.template
        fills = set_fills(template, self.raw)
        score = float(np.mean(self.scores)) if self.scores else 0.0
        return Answer(Infill(template.text(fills), fills, score, scores=self.scores), self.number, self.tokens)


def _blanks_in_first_gap(seen: View, blanks: Sequence[Blank]) -> int:
    """The number of blanks up to the first gap that may hold text, those in it included."""
    first = next((after for after, blank in zip(seen.after, blanks, strict=True) if blank.most != 0), len(seen.prompt))
    return sum(after <= first for after in seen.after)


def fill_attempts(attempts: Sequence[Attempt], engine: Engine, plans: Plans | None = None) -> Steps[list[Answer]]:
    """Fill all blanks of all attempts, a window of each at a time. `plans`: see `Engine.length_chances`."""
    while unfinished := [attempt for attempt in attempts if not attempt.done]:
        windows = [attempt.window(engine.tokenizer) for attempt in unfinished]
        for attempt, filled in zip(unfinished, (yield from engine.fill(windows, plans)), strict=True):
            attempt.take(filled, _spell(filled, engine))
    return [attempt.answer for attempt in attempts]


def sample_fillings(request: Request, times: int, engine: Engine) -> Steps[list[Answer]]:
    """Fillings of a text sampled at the request's temperature, without scores."""
    attempts = [Attempt(request, number) for number in range(1, times + 1)]
    while unfinished := [attempt for attempt in attempts if not attempt.done]:
        by_text = {tuple(attempt.raw): attempt.window(engine.tokenizer) for attempt in unfinished}
        windows = [replace(by_text[tuple(attempt.raw)], draw=attempt.number) for attempt in unfinished]
        results = yield from write(windows, engine, scored=False)
        for attempt, filled in zip(unfinished, results.values(), strict=True):
            attempt.take(filled, _spell(filled, engine))
    return [attempt.answer for attempt in attempts]


def score_fills(request: Request, fills: Sequence[str], engine: Engine) -> Steps[Infill]:
    """The infill with these fills, one for each blank, scored as if the engine had filled them in."""
    attempt = Attempt(request, 0)
    while not attempt.done:
        window = attempt.window(engine.tokenizer, one_gap=engine.writes_left_to_right)
        given = fills[len(attempt.raw) :][: len(window.after)]
        raw = [raw_fill(fill, first) for fill, first in zip(given, window.view.first[: window.n_filled], strict=True)]
        tokens = [[engine.tokenizer.encode(fill) for fill in raw]]
        scored = (
            writing.score_fills([window], tokens, engine)
            if engine.writes_left_to_right
            else engine.score_fills([window], tokens)
        )
        (filled,) = yield from scored
        attempt.take(filled, raw)
    return _with_locked_fills(attempt.answer.infill, request)


def answer_requests(requests: Sequence[Request], engine: Engine, watched: bool = False) -> Steps[list[Answers]]:
    """The answers to all requests, best first; they always include the one that n = 1 gives.

    `watched`: also yield the states of everything that is filled.
    """
    start = time.perf_counter()
    if engine.writes_left_to_right:
        requests = yield from locate_gaps(requests, engine)
        results = yield from _write_answers(requests, engine, watched)
    else:
        results = yield from _sample_answers(requests, engine)
    seconds = time.perf_counter() - start
    return [_finish(request, result, seconds) for request, result in zip(requests, results, strict=True)]


def _finish(request: Request, answers: Answers, seconds: float) -> Answers:
    """The answers, best first, without those that use an avoided word."""
    pattern = avoided(request.settings.avoid)
    kept = [answer for answer in answers.best if not any(map(pattern.search, answer.infill.fills))]
    kept.sort(key=lambda answer: -answer.infill.score)
    best = [replace(answer, infill=_with_locked_fills(answer.infill, request)) for answer in kept]
    return replace(answers, best=best, seconds=seconds)


def locate_gaps(requests: Sequence[Request], engine: Engine) -> Steps[list[Request]]:
    """Free texts with blanks only in the gaps that are likely to hold text, at least in the likeliest one.

    An outline that shows the gaps gives far better fills than deciding while writing.
    """
    result = []
    for request in requests:
        if not request.located:
            attempt, ends = Attempt(request, 0), list[float]()
            while not attempt.done:
                window = attempt.window(engine.tokenizer)
                empty = [np.zeros(0, np.int64) for _ in window.blanks]
                ends += [sum(log_probs) for log_probs in (yield from fill_log_probs(window, empty, engine))]
                attempt.take(Filled(empty, [0.0 for _ in empty], 0.0), ["" for _ in empty])
            limit, rest = max(np.log(_MAX_EMPTY), min(ends, default=0.0)), iter(ends)
            fills = tuple((None if next(rest) <= limit else "") if fill is None else fill for fill in request.locked)
            template = lock(request.whole, fills)
            blanks = tuple(replace(blank, least=max(1, blank.least)) for blank in template.blanks)
            request = replace(request, template=replace(template, blanks=blanks), locked=fills, located=True)
        result.append(request)
    return result


def _write_answers(requests: Sequence[Request], engine: Engine, watched: bool) -> Steps[list[Answers]]:
    """Keep the n best candidates for the first gap of each text, and continue each with the best for each later gap.

    What the answers before it have in a gap counts against a candidate there too. Under a time limit all gaps of a
    window are written at once.
    """
    attempts = [[Attempt(request, 0)] for request in requests]
    first = [of_text[0] for of_text in attempts]
    while unfinished := [(i, one) for i, of_text in enumerate(attempts) for one in of_text if not one.done]:
        windows = [attempt.window(engine.tokenizer, attempt.request.seconds is None) for _, attempt in unfinished]
        candidates = yield from _candidates(windows, engine)
        longer: list[list[Attempt]] = [[attempt for attempt in of_text if attempt.done] for of_text in attempts]
        written: list[list[Counter[str]]] = [[] for _ in attempts]  # in this gap, by the answers to each text so far
        for (i, attempt), part, by_number in zip(unfinished, windows, candidates, strict=True):
            for number, filled in _best(by_number, part, engine, written[i]):
                branch = attempt.branch(attempt.number if attempt.windows else number)
                branch.take(filled, _spell(filled, engine))
                longer[i].append(branch)
                written[i].append(_words(_spell(filled, engine)))
                first[i].prefill_seconds = first[i].prefill_seconds or filled.prefill_seconds
        attempts = longer
    for attempt in (attempt for of_text in attempts for attempt in of_text if watched):
        yield from _replay(attempt, engine)
    return [
        Answers([attempt.answer for attempt in of_text], one.prompt_tokens, one.prefill_seconds, 0.0)
        for of_text, one in zip(attempts, first, strict=True)
    ]


def _replay(attempt: Attempt, engine: Engine) -> Steps[None]:
    """The states of a written text, a window at a time."""
    again = Attempt(attempt.request, attempt.number)
    while not again.done:
        window = again.window(engine.tokenizer)
        part = slice(len(again.raw), len(again.raw) + len(window.blanks))
        yield from replay(window, attempt.fills[part], engine)
        again.raw += attempt.raw[part]
        again.windows += 1


def _candidates(windows: Sequence[Window], engine: Engine) -> Steps[list[dict[int, Filled]]]:
    """Candidates for each window by number; at higher temperatures while too few differ."""
    by_number: list[dict[int, Filled]] = [{} for _ in windows]
    made = [0 for _ in windows]  # pruned ones included
    for factor in TEMPERATURE_FACTORS:
        more = [
            (i, replace(part, draw=made[i] + number, temperature_factor=factor))
            for i, part in enumerate(windows)
            for number in range(_missing_candidates(part, by_number[i], engine))
        ]
        if not more:
            break
        for i, _ in more:
            made[i] += 1
        results = yield from write([part for _, part in more], engine)
        for number, filled in results.items():
            i, part = more[number]
            by_number[i][part.draw] = filled
    return by_number


def _missing_candidates(window: Window, by_number: dict[int, Filled], engine: Engine) -> int:
    """How many more candidates to write, so that enough differ."""
    n = window.n_best
    if not by_number:
        count = candidates_for_one(window)
        return count if n == 1 or not window.is_fillable else max(count, 2 * n)
    differ = len({tuple(_spell(filled, engine)) for filled in by_number.values()})
    return 2 * max(0, n - differ) if n > 1 and window.is_fillable else 0


def _best(
    by_number: dict[int, Filled], window: Window, engine: Engine, before: Sequence[Counter[str]] = ()
) -> list[tuple[int, Filled]]:
    """The one that n = 1 gives, and the best others that differ from it and from each other; no avoided words.

    `before`: the words of other answers to the text in the same gap. If there are any, all must differ from them
    instead.
    """
    differ: dict[tuple[str, ...], int] = {}
    for number in sorted(by_number, key=lambda number: (by_number[number].trailing, number)):
        if not engine.avoided_runs(window, by_number[number].tokens):
            differ.setdefault(tuple(_spell(by_number[number], engine)), number)
    ranked = sorted(differ.values(), key=lambda number: -by_number[number].score)
    count = candidates_for_one(window)
    first = [number for number in ranked if number < count and not by_number[number].trailing][:1] or ranked[:1]
    words = {number: _words(_spell(by_number[number], engine)) for number in ranked}
    chosen = [] if before else first
    unlike = [*before, *(words[number] for number in chosen)]
    shared = {number: 0.0 for number in ranked if number not in chosen}  # the most that each shares with one of them
    while shared and len(chosen) < window.n_best:
        shared = {
            number: max(most, *(_overlap(words[number], other) for other in unlike)) for number, most in shared.items()
        }
        best = max(shared, key=lambda number: by_number[number].score - _SAMENESS * shared[number])
        del shared[best]
        chosen.append(best)
        unlike = [words[best]]
    return [(number, by_number[number]) for number in chosen]


def _words(fills: Sequence[str]) -> Counter[str]:
    return Counter(re.findall(r"\w+", " ".join(fills).lower()))


def _overlap(one: Counter[str], other: Counter[str]) -> float:
    """The F1 of the words that two texts have in common."""
    return 2 * (one & other).total() / max(1, one.total() + other.total())


def _spell(filled: Filled, engine: Engine) -> list[str]:
    return [engine.alphabet.spell(tokens) for tokens in filled.tokens]


def _sample_answers(requests: Sequence[Request], engine: Engine) -> Steps[list[Answers]]:
    """For each text the first attempt and the best of 2n, preferring those that leave no blank empty.

    While fewer than n differ, more attempts are made at higher temperatures.
    """
    by_text: list[dict[str, Answer]] = [{} for _ in requests]
    # Later attempts at a text reuse its plan. Under a time limit each is planned, to measure the time of a pass.
    plans: Plans | None = {} if all(request.seconds is None for request in requests) else None
    made: list[list[Attempt]] = [[] for _ in requests]
    while attempts := [
        (index, Attempt(_with_temperature(request, number), number))
        for index, request in enumerate(requests)
        for number in _next_attempts(request, len(made[index]), by_text[index])
    ]:
        results = yield from fill_attempts([attempt for _, attempt in attempts], engine, plans)
        for (index, attempt), answer in zip(attempts, results, strict=True):
            made[index].append(attempt)
            by_text[index].setdefault(answer.infill.text, answer)
    return [
        Answers(_best_attempts(request, list(texts.values())), tried[0].prompt_tokens, tried[0].prefill_seconds, 0.0)
        for request, tried, texts in zip(requests, made, by_text, strict=True)
    ]


def _next_attempts(request: Request, made: int, by_text: dict[str, Answer]) -> range:
    """The numbers of the attempts to make next."""
    if not made or request.n_attempts == 1:
        return range(made, request.n_attempts)
    full = sum("" not in answer.infill.fills for answer in by_text.values())
    return range(made, min(made + max(0, request.settings.n - full), len(_TEMPERATURES) * request.n_attempts))


def _with_temperature(request: Request, number: int) -> Request:
    """The request at the temperature of an attempt."""
    temperature = max(request.settings.temperature, _TEMPERATURES[number // request.n_attempts])
    return replace(request, settings=replace(request.settings, temperature=temperature))


def _best_attempts(request: Request, candidates: list[Answer]) -> list[Answer]:
    """The best answers, among them the one that n = 1 gives: the first without an avoided word."""
    pattern = avoided(request.settings.avoid)
    first, *others = sorted(
        candidates, key=lambda answer: (any(map(pattern.search, answer.infill.fills)), answer.attempt)
    )
    others.sort(key=lambda answer: ("" in answer.infill.fills, -answer.infill.score))
    return [first, *others[: request.settings.n - 1]]


def _with_locked_fills(infill: Infill, request: Request) -> Infill:
    """The infill with the locked fills put back among the new ones."""
    new, new_scores = iter(infill.fills), iter(infill.scores)
    fills = [next(new) if fill is None else fill for fill in request.locked]
    scores = [next(new_scores, 0.0) if fill is None else 0.0 for fill in request.locked]
    return replace(infill, fills=fills, spans=request.whole.spans(fills), scores=scores)
