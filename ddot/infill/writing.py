"""Write blanks from left to right after an outline of the text, as `methods.outline` trains it.

A row reads `outline [sep] text` with a key-value cache. In a gap it chooses token after token until [sep], "the gap
ends here"; then the given tokens up to the next gap are read. Several candidates for a window are rows of one batch
that share the reading up to the first gap: on a CPU six rows of one token take little longer than one.
"""

import time
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple, TypeVar

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from ddot.core.annealing import Candidates
from ddot.core.chunks import in_chunks
from ddot.core.codes import NOT_PROMPT, UNKNOWN_LENGTH
from ddot.core.records import Example, State
from ddot.core.rng import fold, uniform
from ddot.infill.draft import NOTHING, RULES, Draft, Gap, gaps
from ddot.infill.engine import TRIES, Engine, Filled, Sample, Step, Steps, Window
from ddot.infill.scheduler import chunks
from ddot.infill.scoring import Tokens
from ddot.methods.fixed_length import FixedLength
from ddot.methods.outline import outline
from ddot.network.denoiser import Denoiser
from ddot.network.trunk import Cache

T = TypeVar("T")

CANDIDATES = 6  # for the one answer of n = 1
TEMPERATURE, TOP_P = 0.8, 0.9  # of the candidates after the first, which takes the likeliest tokens
WARMER = (1.0, 1.4, 1.8, 2.4)  # factors of the temperature while too few candidates differ
# The score of a fill, chosen on dev sets by ROUGE and length error (docs/log.md): BREVITY 1 is the mean of a fill's
# log-probabilities, which favours long fills, 0 their sum, which favours short ones; AHEAD given tokens after it count.
BREVITY, AHEAD, AHEAD_WEIGHT = 0.85, 2, 0.5
_NUCLEUS = 1024  # tokens among which top-p draws: sorting them all takes longer than the network


def score_of(chances: Sequence[float], ahead: Sequence[float]) -> float:
    """The score of a fill: log-probabilities of its tokens and end, and of the given tokens after it."""
    own = sum(chances) / max(1, len(chances)) ** BREVITY
    return own + AHEAD_WEIGHT * sum(ahead) / max(1, len(ahead))


class Slot(NamedTuple):
    """A token to read: what the network is told with it."""

    token: int
    length: int = UNKNOWN_LENGTH
    hint: int = NOT_PROMPT


class Line:
    """Rows of slots in a line, 1 rotary unit apart, read from left to right, each at its own pace."""

    def __init__(self, model: Denoiser, rows: int, masked: bool):
        self.model = model
        self.cache = Cache(rows, model.device, masked)
        self.x, self.hint, self.gap_length, self.units = (
            torch.zeros(rows, 0, dtype=kind, device=model.device) for kind in (*[torch.long] * 3, torch.float32)
        )

    def read(self, rows: Sequence[Sequence[Slot]], places: Sequence[int], width: int) -> Float[Tensor, "B width d"]:
        """The hidden vectors of the next slots of each row, which end at the right; `places`: that of the first."""
        counts = np.array([len(slots) for slots in rows])[:, None]
        place = np.arange(width) + counts - width  # in the new slots of its row; below 0: padding
        seen = place >= 0
        x, hint = np.full(seen.shape, self.model.vocabulary.pad), np.full(seen.shape, NOT_PROMPT)
        length = np.full(seen.shape, UNKNOWN_LENGTH)
        if flat := [slot for slots in rows for slot in slots]:
            x[seen], length[seen], hint[seen] = zip(*flat, strict=True)
        units = np.where(seen, place + np.array(places)[:, None], 0).astype(np.float32)
        device = self.x.device
        self.x, self.hint, self.gap_length, self.units = (
            torch.cat([old, torch.from_numpy(new).to(device)], 1)
            for old, new in zip((self.x, self.hint, self.gap_length, self.units), (x, hint, length, units), strict=True)
        )
        self.cache.grow(torch.from_numpy(seen).to(device))
        so_far = self.x.shape[1]
        z = self.units / self.model.scale(so_far)
        state = State(self.x, z, self.hint, self.gap_length, torch.zeros(len(rows), device=device))
        return self.model.read(state, self.cache, slice(so_far - width, so_far))[0]

    def keep(self, rows: Int[Tensor, "_"]) -> None:
        """Go on with these rows, some perhaps several times."""
        self.cache.keep(rows)
        self.x, self.hint, self.gap_length, self.units = (
            each[rows] for each in (self.x, self.hint, self.gap_length, self.units)
        )

    def forget(self, row: int, place: int) -> None:
        """Take back what a row has read from a place on."""
        self.cache.seen[row] &= self.units[row] < place


class Candidate:
    """A way to write a window: its draft, its outline, how its tokens are drawn. Greedy, or the draw of its number."""

    def __init__(self, window: Window, engine: Engine, banned: tuple[tuple[int, ...], ...] = ()):
        self.window, self.engine, self.banned = window, engine, banned
        view = window.view
        self.gaps = gaps(view, window.blanks, window.tokens)
        self.draft = Draft(
            view.prompt.example.tokens.tolist(),
            self.gaps,
            engine.alphabet,
            engine.model.vocabulary.sep,
            loose=engine.is_loose(view),
            begin=window.begin,
            banned=(*engine.spellings(tuple(window.settings.avoid)), *banned),
        )
        self.key = Sample(window, None).key
        self.offset = len(self.outline)  # of the text in its row
        settings = window.settings
        if settings.temperature > 0:
            self.heat, self.top_p = settings.temperature * window.warmth, settings.top_p
        else:
            self.heat = TEMPERATURE * window.warmth if window.draw else 0.0
            self.top_p = TOP_P if window.warmth == 1 else 1.0

    @cached_property
    def outline(self) -> list[Slot]:
        example = self.window.view.prompt.example
        length = np.full(len(example.tokens), self.draft.closed)
        for gap in self.gaps:
            length[gap.after] = gap.told
        told = Example(example.tokens, example.is_prompt, example.hint, length)
        first = outline(told, self.engine.model.vocabulary)[0]
        return [
            Slot(*each)
            for each in zip(first.tokens.tolist(), first.gap_lengths.tolist(), first.hints.tolist(), strict=True)
        ]

    @property
    def next_slots(self) -> list[Slot]:
        """What is to be read before the next choice."""
        return [Slot(*each) for each in self.draft.unread()]

    def take_read(self, count: int) -> bool:
        """Note that `count` tokens of the text were read; whether a token is to be chosen after the last of them."""
        self.draft.read += count
        return count > 0 and self.draft.read == len(self.draft.text)

    def by_blank(self) -> tuple[list[Tokens], list[list[float]]]:
        """For each blank its tokens and the log-probabilities of its predictions."""
        begins = self.engine.alphabet.begins
        parts = [gap.split(each.tokens, begins) for gap, each in zip(self.gaps, self.draft.written, strict=True)]
        return spread(self.window, self.gaps, parts, [each.all_chances for each in self.draft.written])


def spread(
    window: Window, of_gaps: Sequence[Gap], parts: Sequence[Sequence[Sequence[int]]], chances: Sequence[Sequence[float]]
) -> tuple[list[Tokens], list[list[float]]]:
    """From gaps to blanks: the tokens of each, and the log-probabilities of its predictions; the last has the end's."""
    nothing = np.zeros(0, np.int64)
    tokens: list[Tokens] = [nothing for _ in window.blanks]
    found: list[list[float]] = [[] for _ in window.blanks]
    for gap, some, likely in zip(of_gaps, parts, chances, strict=True):
        mine = [number for number, after in enumerate(window.view.after) if after == gap.after]
        done = 0
        for number, part in zip(mine, some, strict=True):
            tokens[number] = np.array(part, np.int64)
            found[number] = list(likely[done : done + len(part)])
            done += len(part)
        found[mine[-1]] += likely[done:]
    return tokens, found


def write(windows: Sequence[Window], engine: Engine, scored: bool = True) -> Steps[list[Filled]]:
    """Fill windows, each as the candidate its `draw` says. Those of one view share what is read of it.

    Equal views do not: what else is in a batch must not change its shape, and with it the rounding.
    """
    start = time.perf_counter()
    candidates = [Candidate(window, engine) for window in windows]
    reading = yield from _write(candidates, engine, start)
    for _ in range(TRIES):
        again = {
            number: Candidate(each.window, engine, (*each.banned, *spelt))
            for number, each in enumerate(candidates)
            if (spelt := engine.avoided(each.window, each.by_blank()[0]))
        }
        if not again:
            break
        yield from _write(list(again.values()), engine, start)
        for number, better in again.items():
            candidates[number] = better
    found = [each.by_blank() for each in candidates]
    ahead = (yield from _ahead(windows, [tokens for tokens, _ in found], engine)) if scored else [f[1] for f in found]
    return [
        Filled(tokens, [score_of(*each) for each in zip(chances, after, strict=True)], reading)
        for (tokens, chances), after in zip(found, ahead, strict=True)
    ]


def _alike(items: Iterable[T], key: Callable[[T], Hashable]) -> list[list[T]]:
    """Lists of the items whose keys are equal."""
    found: dict[Hashable, list[T]] = {}
    for item in items:
        found.setdefault(key(item), []).append(item)
    return list(found.values())


def _write(candidates: Sequence[Candidate], engine: Engine, start: float) -> Steps[float]:
    """Write candidates to their end; the seconds until the first batch was read up to its first gap."""
    families = _alike((each for each in candidates if not each.draft.done), lambda each: id(each.window.view))
    reading = 0.0
    for group in _alike(families, lambda family: (_width(family, engine), len(family))):
        for batch in chunks(group, engine.shape.rows):
            spent = yield from _Batch(batch, engine, start).steps()
            reading = reading or spent
    return reading


def _width(family: Sequence[Candidate], engine: Engine) -> int:
    return engine.shape.width(family[0].offset + len(family[0].next_slots))


class _Batch:
    """Families of candidates, as many in each, written together.

    Where a batch is one family, rows read all that they need in a pass, and those that are done leave. Otherwise every
    pass has one slot a row, whatever the others need, and the number of rows stays: an answer is the same alone.
    """

    def __init__(self, families: Sequence[Sequence[Candidate]], engine: Engine, start: float):
        self.families, self.engine, self.start = families, engine, start
        self.alone = engine.shape.rows == 1
        self.rows = [each for family in families for each in family]  # those of the line after them are padding
        self.line = Line(engine.model, engine.shape.rows, not self.alone)

    def steps(self) -> Steps[float]:
        """The passes of the network; the seconds until the first gap was reached."""
        shape, line = self.engine.shape, self.line
        slots = [[*family[0].outline, *family[0].next_slots] for family in self.families]
        hidden = line.read(shape.padded(slots, slots[-1]), [0] * shape.rows, _width(self.families[0], self.engine))
        index = torch.arange(shape.rows, device=hidden.device).repeat_interleave(len(self.families[0]))
        line.keep(index)
        hidden, self.tired = hidden[index], self._tired(len(index))
        counts = [len(each.next_slots) for each in self.rows]
        reading, a_pass = time.perf_counter() - self.start, 0.0
        while True:
            yield Step()
            self._choose(hidden, counts)
            self._hurry(a_pass)
            going = [number for number, each in enumerate(self.rows) if not each.draft.done]
            if not going:
                return reading
            if self.alone and len(going) < len(self.rows):
                kept = torch.tensor(going, device=hidden.device)
                line.keep(kept)
                self.rows, self.tired = [self.rows[number] for number in going], self.tired[kept]
            begin = time.perf_counter()
            hidden, counts = self._read()
            a_pass = time.perf_counter() - begin

    def _read(self) -> tuple[Float[Tensor, "B width d"], list[int]]:
        """The hidden vectors of what each row reads next, and how many slots that are."""
        slots = [[] if each.draft.done else each.next_slots for each in self.rows]
        width = max(map(len, slots)) if self.alone else 1
        slots = [some[:width] for some in slots] + [[]] * (len(self.tired) - len(slots))
        places = [each.offset + each.draft.read for each in self.rows] + [0] * (len(slots) - len(self.rows))
        return self.line.read(slots, places, width), [len(some) for some in slots[: len(self.rows)]]

    def _tired(self, rows: int) -> Float[Tensor, "B V"]:
        """What the tokens of words that stand in the text already cost."""
        cost = self.engine.fresh.cost
        tired = torch.zeros(rows, len(cost), device=cost.device)
        for row, each in enumerate(self.rows):
            given = torch.from_numpy(each.window.view.prompt.example.tokens).to(cost.device)
            tired[row, given] = cost[given]
        return tired

    def _hurry(self, a_pass: float) -> None:
        """Tell rows whose time will be up after another pass."""
        spent = time.perf_counter() - self.start + a_pass
        for each in self.rows:
            each.draft.hurried |= each.window.seconds is not None and spent > each.window.seconds

    def _choose(self, hidden: Float[Tensor, "B width d"], counts: Sequence[int]) -> None:
        """Let every row whose next token is wanted choose it."""
        model = self.engine.model
        asked = [row for row, (each, count) in enumerate(zip(self.rows, counts, strict=True)) if each.take_read(count)]
        logits = model.logits(hidden[:, -1].contiguous()).float()  # the same shape whatever is asked
        total = logits.logsumexp(-1)
        ends = (logits[:, model.vocabulary.sep] - total).tolist()
        tokens, chances = self._drawn(logits, total, asked)
        for row in asked:
            draft = self.rows[row].draft
            read = draft.read
            draft.take(tokens[row], chances[row], ends[row])
            if draft.read < read:
                self.line.forget(row, self.rows[row].offset + draft.read)
        new = [tokens[row] for row in asked]
        self.tired[asked, new] = self.engine.fresh.cost[new]

    def _drawn(
        self, logits: Float[Tensor, "B V"], total: Float[Tensor, "B"], asked: Sequence[int]
    ) -> tuple[list[int], list[float]]:
        """(tokens, their log-probabilities) of all rows; within their rules for those `asked`."""
        heat, u = np.zeros((len(logits), 2)), np.zeros(len(logits), np.float32)
        which, forbidden, only = [NOTHING + RULES] * len(logits), [], []
        for row in asked:
            each, draft = self.rows[row], self.rows[row].draft
            heat[row] = each.heat, each.top_p
            which[row] = draft.rule()
            forbidden += [(row, token) for token in draft.forbidden()]
            only += [(row, token) for token in draft.only()]
        if asked:
            keys = np.concatenate([self.rows[row].key for row in asked])
            u[asked] = uniform(fold(keys, np.array([self.rows[row].draft.draws for row in asked], np.uint64)), 1)[:, 0]
        allowed = self.engine.rules[which, : logits.shape[1]]
        if forbidden:
            allowed[tuple(torch.tensor(forbidden).T)] = False
        if only:
            begun = torch.tensor(only).T
            allowed[begun[0]] = False
            allowed[tuple(begun)] = True
        scores = (logits - self.tired[:, : logits.shape[1]]).masked_fill(~allowed, -torch.inf)
        tokens, where = scores.argmax(-1), torch.from_numpy(u).to(logits.device)
        for temperature, top_p in sorted({(t, p) for t, p in heat.tolist() if t > 0}):
            here = torch.from_numpy((heat == (temperature, top_p)).all(1)).to(logits.device)
            tokens = torch.where(here, drawn(scores, temperature, top_p, where), tokens)
        return tokens.tolist(), (logits.gather(1, tokens[:, None])[:, 0] - total).tolist()


def drawn(scores: Float[Tensor, "B V"], temperature: float, top_p: float, u: Float[Tensor, "B"]) -> Int[Tensor, "B"]:
    """Tokens drawn at a temperature, from the likeliest that together have the probability `top_p`."""
    chances = torch.softmax(scores / temperature, -1)
    if top_p >= 1:
        tokens = torch.arange(scores.shape[1], device=scores.device).expand_as(scores)
    else:
        chances, tokens = chances.topk(min(_NUCLEUS, scores.shape[1]), -1)
        chances = chances * (chances.cumsum(-1) - chances < top_p)
        chances = chances / chances.sum(-1, keepdim=True)
    return Candidates(tokens, chances).draw(u)


def judge(windows: Sequence[Window], fills: Sequence[Sequence[Tokens]], engine: Engine) -> Steps[list[Filled]]:
    """The scores of given fills, as if they had been written. One forward pass each, and one for what comes after."""
    found = []
    for window, mine in zip(windows, fills, strict=True):
        found.append((yield from forced(window, mine, engine)))
    ahead = yield from _ahead(windows, fills, engine)
    return [
        Filled(list(mine), [score_of(*each) for each in zip(chances, after, strict=True)], 0.0)
        for mine, chances, after in zip(fills, found, ahead, strict=True)
    ]


def forced(window: Window, fills: Sequence[Tokens], engine: Engine) -> Steps[list[list[float]]]:
    """For each blank the log-probabilities of its tokens and its end."""
    candidate, sep = Candidate(window, engine), engine.model.vocabulary.sep
    slots, at, targets, parts = list(candidate.outline), [], [], []
    given, placed = candidate.draft.given, 0
    for gap in candidate.gaps:
        told = [*[candidate.draft.closed] * (gap.after - placed), gap.told]
        slots += [Slot(*each) for each in zip(given[placed : gap.after + 1], told, strict=True)]
        placed = gap.after + 1
        parts.append(
            [fill.tolist() for fill, after in zip(fills, window.view.after, strict=True) if after == gap.after]
        )
        tokens = [token for part in parts[-1] for token in part]
        at += list(range(len(slots) - 1, len(slots) + len(tokens)))
        targets += [*tokens, sep]
        slots += map(Slot, tokens)
    if not at:
        return [[] for _ in window.blanks]
    hidden = Line(engine.model, 1, False).read([slots], [0], len(slots))
    (chances,) = in_chunks(
        _chances_of(engine.model), engine.model.chunk, hidden[0, at], torch.tensor(targets, device=hidden.device)
    )
    yield Step()
    rest = iter(chances.tolist())
    of_gaps = [[next(rest) for _ in range(sum(map(len, part)) + 1)] for part in parts]
    return spread(window, candidate.gaps, parts, of_gaps)[1]


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
    view = window.view
    given, places = view.prompt.example.tokens.tolist(), sorted(set(view.after))
    shared = given[: places[0]]
    rest: list[int] = []
    at = []
    for number, (place, following) in enumerate(zip(places, [*places[1:], len(given) - 1], strict=True)):
        rest.append(given[place])
        for fill, after in zip(fills, view.after, strict=True):
            rest += fill.tolist() if after == place else []
        between = given[place + 1 : following + 1]
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
    shape = engine.shape
    judged = [i for i, window in enumerate(windows) if window.seconds is None]
    texts = {i: _with_text_after(windows[i], fills[i], engine.model.vocabulary.sep) for i in judged}
    found: dict[_Filled, dict[int, list[float]]] = {}
    families = _alike(dict.fromkeys(texts.values()), lambda text: text.view)

    def size(family: list[_Filled]) -> tuple[int, int, int]:
        return shape.width(len(family[0].shared)), shape.width(max(len(text.rest) for text in family)), len(family)

    for group in _alike(families, size):
        for batch in chunks(group, shape.rows):
            found |= _plainly(batch, *size(group[0])[:2], engine)
            yield Step()
    results: list[list[list[float]]] = [[[] for _ in window.blanks] for window in windows]
    for i, text in texts.items():
        results[i] = [found[text].get(after, []) for after in windows[i].view.after]
    return results


def _plainly(
    families: Sequence[Sequence[_Filled]], shared: int, rest: int, engine: Engine
) -> dict[_Filled, dict[int, list[float]]]:
    """What follows each gap of texts that share their beginning, in two passes: the beginning once, then the rest."""
    model, shape = engine.model, engine.shape
    line = Line(model, shape.rows, shape.rows > 1)
    starts = shape.padded([list(map(Slot, family[0].shared)) for family in families], [])
    if shared:
        line.read(starts, [0] * shape.rows, shared)
    line.keep(torch.arange(shape.rows, device=model.device).repeat_interleave(len(families[0])))
    texts = [text for family in families for text in family]
    rows = [list(map(Slot, text.rest)) for text in texts]
    rows += [[]] * (shape.rows * len(families[0]) - len(rows))
    places = [len(text.shared) for text in texts]
    hidden = line.read(rows, [*places, *[0] * (len(rows) - len(places))], rest)
    asked = [
        (row, rest - len(text.rest) + place, token) for row, text in enumerate(texts) for place, token, _ in text.at
    ]
    if not asked:
        return {text: {} for text in texts}
    row, slot, token = torch.tensor(asked, device=model.device).T
    (chances,) = in_chunks(_chances_of(model), model.chunk, hidden[row, slot], token)
    likely = iter(chances.tolist())
    found: dict[_Filled, dict[int, list[float]]] = {}
    for text in texts:
        mine = found.setdefault(text, {})
        for _, _, gap in text.at:
            mine.setdefault(gap, []).append(next(likely))
    return found


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
