"""Write blanks from left to right after an outline of the text, as `methods.outline` trains it.

A row reads `outline [sep] text`. In a gap it chooses token after token until [sep], "the gap ends here"; then the given
tokens up to the next gap are read (`passes`). What was written is judged by its log-probability and that of the text
after it.
"""

from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TypeVar

import torch
from torch import Tensor

from ddot.core.chunks import in_chunks
from ddot.infill.draft import fluency
from ddot.infill.engine import TRIES, Engine, Filled, Sample, Step, Steps, Window
from ddot.infill.passes import Candidate, Race, spread, together, written
from ddot.infill.reading import Coming, Line, Slot, arranged
from ddot.infill.scheduler import chunks
from ddot.infill.scoring import Tokens
from ddot.methods.fixed_length import FixedLength
from ddot.network.denoiser import Denoiser

T = TypeVar("T")

WARMER = (1.0, 1.4, 1.8, 2.4)  # factors of the temperature while too few candidates differ
_JUDGED = 6  # texts of a view that are judged as one on a GPU: few are left of its candidates
AHEAD = 2  # so many given tokens after a fill count for its score (docs/log.md)


def scores_of(window: Window, chances: Sequence[Sequence[float]], ahead: Sequence[Sequence[float]]) -> list[float]:
    """The score of each fill: log-probabilities of its tokens and end, and of the given tokens after it."""
    filled = zip(chances, ahead, window.view.between[: window.now], strict=True)
    return [fluency(own, is_sentence) + sum(after) for own, after, is_sentence in filled]


def write(windows: Sequence[Window], engine: Engine, scored: bool = True) -> Steps[dict[int, Filled]]:
    """Fill windows, each as the candidate its `draw` says; by number, without those that were given up.

    Windows of one view share what is read of it. Equal views do not: what else is in a batch must not change its shape,
    and with it the rounding.
    """
    first: dict[int, Candidate] = {}
    candidates: dict[int, Candidate] = {}
    for number, window in enumerate(windows):
        candidates[number] = Candidate(window, engine, sibling=first.get(id(window.view)))
        first.setdefault(id(window.view), candidates[number])
    if scored:
        _let_race(candidates.values())
    reading = yield from _write(candidates.values(), engine)
    candidates = {number: each for number, each in candidates.items() if not each.gave_up}
    for _ in range(TRIES):
        again = {
            number: Candidate(each.window, engine, (*each.banned, *spelt), each.start)
            for number, each in candidates.items()
            if (spelt := engine.avoided(each.window, each.by_blank()[0]))
        }
        if not again:
            break
        yield from _write(again.values(), engine)
        candidates |= again
    found = {number: each.by_blank() for number, each in candidates.items()}
    ahead = [chances for _, chances in found.values()]
    if scored:
        ahead = yield from _ahead(
            [windows[number] for number in found], [tokens for tokens, _ in found.values()], engine
        )
    return {
        number: Filled(
            tokens,
            scores_of(windows[number], own, after),
            reading,
            candidates[number].behind,
        )
        for (number, (tokens, own)), after in zip(found.items(), ahead, strict=True)
    }


def _let_race(candidates: Iterable[Candidate]) -> None:
    """Let the candidates for one place race.

    Not where words are avoided: the one that is left may use them. Under a time limit there is one candidate.
    """
    racing = (
        each
        for each in candidates
        if each.draft.count == 1 and each.window.seconds is None and not each.window.settings.avoid
    )
    for rivals in _alike(racing, lambda each: id(each.window.view)):
        race = Race()
        for each in rivals:
            each.race = race


def _alike(items: Iterable[T], key: Callable[[T], Hashable]) -> list[list[T]]:
    """Lists of the items whose keys are equal."""
    found: dict[Hashable, list[T]] = {}
    for item in items:
        found.setdefault(key(item), []).append(item)
    return list(found.values())


def _write(candidates: Iterable[Candidate], engine: Engine) -> Steps[float]:
    """Write candidates to their end; the seconds until the first of them was read up to its first gap."""
    families = _alike((each for each in candidates if not each.draft.done), lambda each: id(each.window.view))
    yield from written(families, engine)
    return families[0][0].reading if families else 0.0


def judge(windows: Sequence[Window], fills: Sequence[Sequence[Tokens]], engine: Engine) -> Steps[list[Filled]]:
    """The scores of given fills, as if they had been written. One forward pass each, and one for what comes after."""
    found = []
    for window, mine in zip(windows, fills, strict=True):
        found.append((yield from forced(window, mine, engine)))
    ahead = yield from _ahead(windows, fills, engine)
    return [
        Filled(list(mine), scores_of(window, chances, after), 0.0)
        for window, mine, chances, after in zip(windows, fills, found, ahead, strict=True)
    ]


def forced(window: Window, fills: Sequence[Tokens], engine: Engine) -> Steps[list[list[float]]]:
    """For each blank the log-probabilities of its tokens and its end."""
    candidate, sep = Candidate(window, engine), engine.model.vocabulary.sep
    slots, at, targets, parts = list(candidate.outline), [], [], []
    given, placed = candidate.draft.given, 0
    for gap in candidate.written_gaps:
        told = [*[candidate.draft.closed] * (gap.after - placed), gap.told]
        slots += [Slot(*each) for each in zip(given[placed : gap.after + 1], told, strict=True)]
        placed = gap.after + 1
        parts.append([fill.tolist() for fill, after in zip(fills, window.after, strict=True) if after == gap.after])
        tokens = [token for part in parts[-1] for token in part]
        at += list(range(len(slots) - 1, len(slots) + len(tokens)))
        targets += [*tokens, sep]
        slots += map(Slot, tokens)
    if not at:
        return [[] for _ in fills]
    hidden = Line(engine.model, 1, False).read([slots], [0], len(slots))
    (chances,) = in_chunks(
        _chances_of(engine.model), engine.model.chunk, hidden[0, at], torch.tensor(targets, device=hidden.device)
    )
    yield Step()
    rest = iter(chances.tolist())
    of_gaps = [[next(rest) for _ in range(sum(map(len, part)) + 1)] for part in parts]
    return spread(window, candidate.written_gaps, parts, of_gaps)[1]


def _chances_of(model: Denoiser) -> Callable[[Tensor, Tensor], tuple[Tensor]]:
    def chances(hidden: Tensor, tokens: Tensor) -> tuple[Tensor]:
        logits = model.logits(hidden).float()
        return (logits.gather(1, tokens[:, None])[:, 0] - logits.logsumexp(-1),)

    return chances


@dataclass(frozen=True)
class _Filled:
    """A filled text up to where it is judged: tokens read once for all candidates, then this one's; what is judged."""

    view: int  # which one
    shared: tuple[int, ...]
    rest: tuple[int, ...]
    at: tuple[tuple[int, int, int], ...]  # (place in `rest`, the token after it, the gap before it)


def _with_text_after(window: Window, fills: Sequence[Tokens], sep: int) -> _Filled:
    view, places = window.view, window.places
    given = view.prompt.example.tokens.tolist()
    shared = given[: places[0]]
    rest: list[int] = []
    at = []
    for number, place in enumerate(places):
        rest.append(given[place])
        for fill, after in zip(fills, window.after, strict=True):
            rest += fill.tolist() if after == place else []
        end = min((after for after in view.after if after > place), default=len(given) - 1)  # what follows is unknown
        between = given[place + 1 : end + 1]
        judged = [token for token in between[:AHEAD] if token != sep]
        at += [(len(rest) - 1 + ahead, token, place) for ahead, token in enumerate(judged)]
        rest += between[:-1] if number + 1 < len(places) else judged[:-1]
    return _Filled(id(view), tuple(shared), tuple(rest), tuple(at))


def _ahead(
    windows: Sequence[Window], fills: Sequence[Sequence[Tokens]], engine: Engine
) -> Steps[list[list[list[float]]]]:
    """For each blank the log-probabilities of the given tokens after it, in the filled text read as plain text.

    Texts under a time limit do without.
    """
    judged = [i for i, window in enumerate(windows) if window.seconds is None]
    texts = {i: _with_text_after(windows[i], fills[i], engine.model.vocabulary.sep) for i in judged}
    families = _alike(dict.fromkeys(texts.values()), lambda text: text.view)
    if engine.shape.rows == 1:
        asked = [_Asked.of(family, engine) for family in families]
        for each in asked:
            each.judged = _plainly([each.family], each.size, engine)
            yield Step()
    else:
        asked = [_Asked.of(some, engine) for family in families for some in chunks(family, _JUDGED)]
        yield from _judge_together(asked, engine)
    found = {text: after for each in asked if each.judged for text, after in each.judged.found.items()}
    results: list[list[list[float]]] = [[[] for _ in own] for own in fills]
    for i, text in texts.items():
        for number, after in enumerate(windows[i].after):
            if after not in windows[i].after[number + 1 :]:  # of several blanks at one place the last, as the end
                results[i][number] = found[text].get(after, [])
    return results


@dataclass(eq=False)
class _Asked:
    """Texts of one view to be judged, on a GPU few of them: the fewer sizes there are, the more share a pass.

    `size`: widths of what they share and of the rest, and the rows they get.

    `since`: the pass at which they came.
    """

    family: list[_Filled]
    size: tuple[int, int, int]
    since: int = 0
    judged: "_Judged | None" = None

    @classmethod
    def of(cls, family: list[_Filled], engine: Engine) -> "_Asked":
        shape, many = engine.shape, len(family)
        rest = max(len(text.rest) for text in family)
        size = shape.width(len(family[0].shared)), shape.width(rest, 2), many if shape.rows == 1 else _JUDGED
        return cls(family, size, 0 if shape.rows == 1 else together(engine).passes)


def _judge_together(asked: Sequence[_Asked], engine: Engine) -> Steps[None]:
    """Judge texts in passes that are shared with all that wait and have the same size."""
    shared, seen = together(engine), -1
    with shared.lock:
        shared.texts += asked
    try:
        yield Step()  # whoever was written in the same pass comes too
        while True:
            with shared.lock:
                coming = [each.judged for each in asked if each.judged]
                if len(coming) == len(asked) and (not shared.busy or all(each.here for each in coming)):
                    return  # otherwise let others go on until the numbers are here
                passes = shared.passes
                if waiting := [each for each in asked if each.judged is None]:
                    _judge_some(waiting[0], engine, at_once=passes == seen)  # if nobody writes, nobody will come
            seen = passes
            yield Step()
    finally:
        with shared.lock:
            shared.texts = [each for each in shared.texts if each not in asked]


def _judge_some(mine: _Asked, engine: Engine, at_once: bool) -> None:
    """Judge texts and others of their size, if they are enough."""
    shared = together(engine)
    others = [each for each in shared.texts if each.size == mine.size and each is not mine]
    batch = [mine, *others][: engine.shape.reading.rows]
    if not at_once and not shared.enough(len(batch), min(each.since for each in batch)):
        return
    judged = _plainly([each.family for each in batch], mine.size, engine)
    for each in batch:
        each.judged = judged
    shared.texts = [each for each in shared.texts if each not in batch]


class _Judged:
    """For texts, the log-probabilities of what follows each gap. On a GPU they may be on their way."""

    def __init__(self, texts: Iterable[_Filled], chances: Tensor):
        self.texts, self.chances = list(texts), Coming(chances)

    @property
    def here(self) -> bool:
        return self.chances.here

    @cached_property
    def found(self) -> dict[_Filled, dict[int, list[float]]]:
        likely = iter(self.chances.tolist())
        found: dict[_Filled, dict[int, list[float]]] = {}
        for text in self.texts:
            mine = found.setdefault(text, {})
            for _, _, gap in text.at:
                mine.setdefault(gap, []).append(next(likely))
        return found


def _plainly(families: Sequence[Sequence[_Filled]], size: tuple[int, int, int], engine: Engine) -> _Judged:
    """What follows each gap of texts that share their beginning, in two passes: the beginning once, then the rest."""
    model, shape, (shared, rest, many) = engine.model, engine.shape, size

    def judged(starts: Tensor, rests: Tensor, at: Tensor) -> Tensor:
        line = Line(model, shape.reading.rows, masked=shape.rows > 1)
        line.take(starts)
        line.keep(torch.arange(shape.reading.rows, device=model.device)[:, None].expand(-1, many).flatten())
        row, slot, token = at
        return in_chunks(_chances_of(model), model.chunk, line.take(rests)[row, slot], token)[0]

    texts = {many * number + place: text for number, family in enumerate(families) for place, text in enumerate(family)}
    rows = [list(map(Slot, texts[row].rest)) if row in texts else [] for row in range(shape.reading.rows * many)]
    places = [len(texts[row].shared) if row in texts else 0 for row in range(len(rows))]
    starts = shape.reading.padded([list(map(Slot, family[0].shared)) for family in families], [])
    pad = model.vocabulary.pad
    asked = [(row, rest - len(text.rest) + place, token) for row, text in texts.items() for place, token, _ in text.at]
    if not asked:
        return _Judged(texts.values(), torch.zeros(0))
    asked += [(0, 0, 0)] * (-len(asked) % (model.chunk or 1))
    at = torch.tensor(asked).T.contiguous()
    given = arranged(starts, [0] * shape.reading.rows, shared, pad), arranged(rows, places, rest, pad), at
    if shape.rows == 1:
        chances = judged(*(each.to(model.device) for each in given))
    else:
        chances = together(engine).graph((*size, len(asked)), judged)(*given, device=model.device)
    return _Judged(texts.values(), chances)


def shown(window: Window, fills: Sequence[Tokens], engine: Engine) -> Steps[None]:
    """A written window as states of the reverse process: slots that move, or laid out and revealed from the left.

    Where they move the network decides how; the words are those that were written.
    """
    if window.settings.terminal is not None and any(map(len, fills)):
        yield from engine.moved(window, fills)
        return
    sample = Sample(window, [len(fill) for fill in fills], from_left=True)
    vocabulary = engine.model.vocabulary
    start = FixedLength().start([sample.example], engine.sample_slots(sample), window.key, vocabulary)
    samples = [sample]
    for number in range(sample.steps + 1):
        x = start.x.clone()
        for span, fill in zip(sample.spans, fills, strict=True):
            done = -(-len(fill) * number // sample.steps)
            x[0, span.start : span.start + done] = torch.from_numpy(fill[:done])
        yield Step(samples, replace(start, x=x, t=torch.full_like(start.t, 1 - number / sample.steps)), number)
