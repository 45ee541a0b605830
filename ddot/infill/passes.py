"""The passes in which candidates are written: a family of them at a time, or all that come in one standing batch.

Candidates for a window are a family: they share the reading up to the first gap. On a CPU a family is a batch: a pass
of many rows reads the weights once. On a GPU a pass takes as long for hundreds of rows as for one, so rows of many
families, of many requests, read together; a family that is written leaves its rows to one that waits (continuous
batching). There every pass has the same shape, so an answer is the same alone.
"""

import gc
import math
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import Any, NamedTuple, TypeVar

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from ddot.core.annealing import Candidates
from ddot.core.records import Example
from ddot.core.rng import fold, uniform
from ddot.infill.draft import NOTHING, RULES, Draft, Gap, gaps
from ddot.infill.engine import Engine, Sample, Step, Steps, Window
from ddot.infill.reading import Arranged, Graph, Line, Slot, Standing, arranged, sent
from ddot.infill.scoring import Tokens
from ddot.methods.outline import outline
from ddot.network.denoiser import Denoiser

R = TypeVar("R")

CANDIDATES = 20  # for the one answer of n = 1
_A_TEXT = 10  # rows that a standing batch has for a text: half of the candidates give up soon
TEMPERATURE, TOP_P = 0.8, 0.9  # of the candidates after the first, which takes the likeliest tokens
_USUAL = ((TEMPERATURE, TOP_P),)  # ways to draw whose choice is recorded on a GPU
_FORBIDDEN, _MOST_FORBIDDEN = 512, 4096  # tokens in all rows, of choices that are recorded
_NUCLEUS = 1024  # tokens among which top-p draws: sorting them all takes longer than the network
_COLUMNS = 128  # rows of a standing batch have a multiple of so many
_IDLE = 3  # standing batches that stay in memory for texts of their width to come: wide ones take gigabytes
_GRAPHS = 32  # sizes of judged texts whose graphs are kept
_FIRST = threading.Lock()


class Candidate:
    """A way to write a window: its draft, its outline, how its tokens are drawn. Greedy, or the draw of its number."""

    def __init__(
        self,
        window: Window,
        engine: Engine,
        banned: tuple[tuple[int, ...], ...] = (),
        start: float | None = None,
        sibling: "Candidate | None" = None,
    ):
        """`sibling`: another candidate of the same family, if there is one."""
        self.window, self.engine, self.banned = window, engine, banned
        view = window.view
        self.gaps: list[Gap] = sibling.gaps if sibling else gaps(view, window.blanks, window.tokens)
        if sibling:
            self.outline = sibling.outline
        self.draft = Draft(
            view.prompt.example.tokens.tolist(),
            self.gaps,
            engine.alphabet,
            engine.model.vocabulary.sep,
            sum(gap.after in window.places for gap in self.gaps),
            loose=engine.is_loose(view),
            begin=window.begin,
            banned=(*engine.spellings(tuple(window.settings.avoid)), *banned),
        )
        self.key = Sample(window, None).key
        self.race: Race | None = None
        self.behind = self.gave_up = False  # in the race
        self.start = time.perf_counter() if start is None else start
        self.reading = 0.0  # seconds until its first gap was reached
        self.offset = len(self.outline)  # of the text in its row
        settings = window.settings
        if settings.temperature > 0:
            self.heat, self.top_p = settings.temperature * window.warmth, settings.top_p
        else:
            self.heat = TEMPERATURE * window.warmth if window.draw else 0.0
            self.top_p = TOP_P if window.warmth == 1 else 1.0

    @property
    def columns(self) -> int:
        """The columns of its row in a standing batch: enough for whatever it may write."""
        most = self.offset + len(self.draft.given) + sum(gap.most for gap in self.written_gaps) + len(self.draft.begin)
        return _COLUMNS * (1 + most // _COLUMNS)

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
        """For each blank that is filled its tokens and the log-probabilities of its predictions."""
        begins, written = self.engine.alphabet.begins, self.draft.written
        parts = [gap.split(each.tokens, begins) for gap, each in zip(self.written_gaps, written, strict=True)]
        return spread(self.window, self.written_gaps, parts, [each.all_chances for each in written])

    @property
    def written_gaps(self) -> list[Gap]:
        return self.gaps[: self.draft.count]


@dataclass
class Race:
    """Candidates for a place of which the best are chosen.

    `best`: the fluency of the best one that is written, of those from which the answer of n = 1 is chosen. `written`:
    that of each text that is written.
    """

    best: float = -math.inf
    written: dict[tuple[int, ...], float] = field(default_factory=dict)

    def finish(self, candidate: Candidate) -> None:
        fluency = candidate.draft.fluency()
        self.written[tuple(candidate.draft.written[0].tokens)] = fluency
        if candidate.window.draw < CANDIDATES and not candidate.behind:
            self.best = max(self.best, fluency)

    def best_of(self, n: int) -> float:
        """The fluency of the n-th best text."""
        return sorted(self.written.values())[-n] if n <= len(self.written) else -math.inf


def _race(candidates: Sequence[Candidate]) -> None:
    """After a token of each: those that will hardly be chosen are behind, and give up if enough others are ahead."""
    racing = [(each, each.race) for each in candidates if each.race]
    for each, race in racing:
        if each.draft.done:
            race.finish(each)
    for each, race in racing:
        if not each.draft.done:
            each.behind |= each.draft.is_behind(race.best)
            each.gave_up = each.draft.done = each.behind and each.draft.is_behind(race.best_of(each.window.wanted))


def spread(
    window: Window, of_gaps: Sequence[Gap], parts: Sequence[Sequence[Sequence[int]]], chances: Sequence[Sequence[float]]
) -> tuple[list[Tokens], list[list[float]]]:
    """From gaps to blanks: the tokens of each, and the log-probabilities of its predictions; the last has the end's."""
    nothing, after = np.zeros(0, np.int64), window.after
    tokens: list[Tokens] = [nothing for _ in after]
    found: list[list[float]] = [[] for _ in after]
    for gap, some, likely in zip(of_gaps, parts, chances, strict=True):
        mine = [number for number, place in enumerate(after) if place == gap.after]
        done = 0
        for number, part in zip(mine, some, strict=True):
            tokens[number] = np.array(part, np.int64)
            found[number] = list(likely[done : done + len(part)])
            done += len(part)
        found[mine[-1]] += likely[done:]
    return tokens, found


class Rows:
    """Candidates under way, a row each; a row may be empty."""

    def __init__(self, engine: Engine, rows: Sequence[Candidate | None]):
        self.engine, self.rows = engine, list(rows)
        cost = engine.fresh.cost
        self.tired = torch.zeros(len(rows), len(cost), device=cost.device)  # penalties on words in the text
        self._tire({row: each for row, each in enumerate(rows) if each is not None})

    def _tire(self, come: Mapping[int, Candidate]) -> None:
        """Begin with the penalties on the words that are given."""
        if not come:
            return
        cost = self.engine.fresh.cost
        given = [each.window.view.prompt.example.tokens for each in come.values()]
        places = np.repeat(list(come), [len(tokens) for tokens in given]), np.concatenate(given)
        row, token = sent(torch.from_numpy(np.stack(places)), cost.device)
        self.tired.index_fill_(0, sent(torch.tensor(list(come)), cost.device), 0.0)
        self.tired[row, token] = cost[token]

    def under_way(self) -> dict[int, Candidate]:
        """The candidates that are not written to their end, by row."""
        return {row: each for row, each in enumerate(self.rows) if each is not None and not each.draft.done}

    def hurry(self, a_pass: float) -> None:
        """Tell candidates whose time will be up after another pass."""
        now = time.perf_counter() + a_pass
        for each in self.under_way().values():
            each.draft.hurried |= each.window.seconds is not None and now - each.start > each.window.seconds

    def choose(self, hidden: Float[Tensor, "B d"], counts: Sequence[int]) -> list[int]:
        """Let every candidate choose its next token if one is wanted after the `counts` slots just read.

        The rows that did.
        """
        asked = {row: each for row, each in self.under_way().items() if each.take_read(counts[row])}
        found = self._chosen(hidden, self._wanted(asked))
        token = found[:, :1].long()
        self.tired.scatter_(1, token, self.engine.fresh.cost[token])
        rows = found.tolist()  # the first wait for a GPU
        for row, each in asked.items():
            chosen, chance, end = rows[row]
            each.draft.take(int(chosen), chance, end)
        _race(list(asked.values()))
        return list(asked)

    def _wanted(self, asked: Mapping[int, Candidate]) -> "Wanted":
        about = np.zeros((3, len(self.rows)), np.float32)
        about[0] = NOTHING + RULES  # [sep], which costs nothing
        forbidden, only = list[tuple[int, int]](), list[tuple[int, int]]()
        ways = tuple(sorted({(each.heat, each.top_p) for each in asked.values() if each.heat > 0}))
        for row, each in asked.items():
            draft = each.draft
            way = 1 + ways.index((each.heat, each.top_p)) if each.heat > 0 else 0
            about[:2, row] = draft.rule(), way
            forbidden += [(row, token) for token in draft.forbidden()]
            only += [(row, token) for token in draft.only()]
        if asked:
            keys = np.concatenate([each.key for each in asked.values()])
            draws = np.array([each.draft.draws for each in asked.values()], np.uint64)
            about[2, list(asked)] = uniform(fold(keys, draws), 1)[:, 0]
        return Wanted(torch.from_numpy(about), _pairs(forbidden), _pairs(only), ways)

    def _chosen(self, hidden: Float[Tensor, "B d"], wanted: "Wanted") -> Float[Tensor, "B 3"]:
        given = (sent(each, hidden.device) for each in (wanted.about, wanted.forbidden, wanted.only))
        return _choice(self.engine, self.tired, wanted.ways, hidden, *given)


class Wanted(NamedTuple):
    """What tokens are chosen by.

    `about`: for each row the number of its rule, that of its way to draw (0: the likeliest), and a draw from U(0, 1).
    `forbidden`: (row, token) that are not allowed; `only`: where a row has any, nothing else is. `ways`: (temperature,
    top-p).
    """

    about: Float[Tensor, "3 B"]
    forbidden: Int[Tensor, "2 _"]
    only: Int[Tensor, "2 _"]
    ways: tuple[tuple[float, float], ...]


def _pairs(some: Sequence[tuple[int, int]]) -> Int[Tensor, "2 n"]:
    return torch.tensor(some, dtype=torch.long).reshape(-1, 2).T.contiguous()


def _choice(
    engine: Engine,
    tired: Float[Tensor, "B V"],
    ways: Sequence[tuple[float, float]],
    hidden: Float[Tensor, "B d"],
    about: Float[Tensor, "3 B"],
    forbidden: Int[Tensor, "2 _"],
    only: Int[Tensor, "2 _"],
) -> Float[Tensor, "B 3"]:
    """For every row its token, as a float (whole below 2²⁴), its log-probability, and that of [sep]. See `Wanted`."""
    logits = engine.model.logits(hidden.contiguous()).float()  # the same shape whatever is asked
    rule, how, u = about
    allowed = engine.rules[rule.long(), : logits.shape[1]]
    allowed.index_put_(tuple(forbidden), allowed.new_zeros(()))
    if only.shape[1]:
        allowed[only[0]] = False
        allowed[tuple(only)] = True
    scores = (logits - tired[:, : logits.shape[1]]).masked_fill(~allowed, -torch.inf)
    tokens = scores.argmax(-1)
    for number, (temperature, top_p) in enumerate(ways, 1):
        tokens = torch.where(how == number, drawn(scores, temperature, top_p, u), tokens)
    wanted = torch.stack([tokens, torch.full_like(tokens, engine.model.vocabulary.sep)], 1)
    likely = logits.gather(1, wanted) - logits.logsumexp(-1, keepdim=True)
    return torch.cat([tokens[:, None].float(), likely], 1)


class Family(Rows):
    """One family as a batch. Rows read all that they need in a pass, and those that are done leave."""

    def __init__(self, engine: Engine, family: Sequence[Candidate]):
        super().__init__(engine, family)
        self.family = list(family)
        self.line = Line(engine.model, 1, masked=False)

    def steps(self) -> Steps[None]:
        """The passes of the network."""
        first, line, counts = self.family[0], self.line, [len(each.next_slots) for each in self.family]
        slots = [*first.outline, *first.next_slots]
        hidden = line.read([slots], [0], len(slots))[:, -1].expand(len(counts), -1)
        line.keep(torch.zeros(len(counts), dtype=torch.long, device=hidden.device))
        first.reading, a_pass = time.perf_counter() - first.start, 0.0
        while True:
            yield Step()
            read = [each.draft.read + count for each, count in zip(self.family, counts, strict=True)]
            for row in self.choose(hidden, counts):
                each = self.family[row]
                if each.draft.read < read[row]:
                    line.forget(row, each.offset + each.draft.read)
            self.hurry(a_pass)
            if not (going := self.under_way()):
                return
            if len(going) < len(self.family):
                kept = torch.tensor(list(going), device=hidden.device)
                line.keep(kept)
                self.family = list(going.values())
                self.rows, self.tired = [*self.family], self.tired[kept]
            begin = time.perf_counter()
            rows = [each.next_slots for each in self.family]
            counts = [len(some) for some in rows]
            hidden = line.read(rows, [each.offset + each.draft.read for each in self.family], max(counts))[:, -1]
            a_pass = time.perf_counter() - begin


class Pool(Rows):
    """A standing batch. Whoever waits for a family and has seen the last pass calls `advance`: a pass for all."""

    def __init__(self, engine: Engine, columns: int):
        super().__init__(engine, [None] * (engine.shape.rows * _A_TEXT))
        self.standing = Standing(engine.model, len(self.rows), columns)
        self.read_slots = Graph(self.standing.read)  # with memory of its own: `hidden` outlasts what others compute
        self.graphs: dict[tuple[int, ...], Graph[Tensor]] = {}  # of choices and of beginnings, by size
        self.memory = torch.cuda.graph_pool_handle() if engine.model.device.type == "cuda" else None
        self.hidden = torch.zeros(len(self.rows), engine.model.config.trunk.width, device=engine.model.device)
        self.counts = [0] * len(self.rows)
        self.waiting: list[list[Candidate]] = []
        self.lock, self.waited, self.passes, self.a_pass = threading.RLock(), 0, 0, 0.0
        self.failed: str | None = None  # what went wrong; the error itself would keep this batch in memory

    @property
    def busy(self) -> bool:
        """Whether candidates wait or are under way."""
        return self.failed is None and bool(self.waiting or self.under_way())

    def add(self, family: Sequence[Candidate]) -> None:
        """Let a family wait for rows; one that is larger than the batch, in parts."""
        with self.lock:
            for start in range(0, len(family), len(self.rows)):
                self.waiting.append(list(family[start : start + len(self.rows)]))

    def drop(self, candidates: Sequence[Candidate]) -> None:
        """Forget candidates that nobody wants any more."""
        unwanted = set(map(id, candidates))
        with self.lock:
            self.rows = [None if id(each) in unwanted else each for each in self.rows]
            self.waiting = [family for family in self.waiting if id(family[0]) not in unwanted]

    def advance(self) -> None:
        """One pass: what has come is read up to its first gap, and every row chooses a token and reads a slot."""
        with self.lock:
            if self.failed is not None:
                raise RuntimeError(f"a batch that this text was part of has failed: {self.failed}")
            try:
                self._admit()
                self._pass()
            except BaseException as error:
                self.failed = str(error)
                raise

    def _admit(self) -> None:
        """Give free rows to families that wait, several at a time: reading one takes as long as reading many."""
        self.waited += 1
        while self.waiting:
            width = _width(self.waiting[0], self.engine)
            free = [row for row, each in enumerate(self.rows) if each is None]
            fitting, left = list[list[Candidate]](), len(free)
            for family in self.waiting:
                if _width(family, self.engine) == width:
                    if len(family) > left:  # others must not take the rows it waits for
                        break
                    fitting.append(family)
                    left -= len(family)
            fitting = fitting[: self.engine.shape.reading.rows]
            if not fitting or (len(free) < len(self.rows) and not self.engine.shape.enough(len(fitting), self.waited)):
                return
            self.waited = 0
            taken = set(map(id, fitting))
            self.waiting = [family for family in self.waiting if id(family) not in taken]
            self._read(fitting, free, width)

    def _read(self, fitting: Sequence[Sequence[Candidate]], free: Sequence[int], width: int) -> None:
        shape = self.engine.shape
        slots = [[*family[0].outline, *family[0].next_slots] for family in fitting]
        come = [(number, each) for number, family in enumerate(fitting) for each in family]
        rows, model = free[: len(come)], self.engine.model
        new = arranged(shape.reading.padded(slots, slots[-1]), [0] * shape.reading.rows, width, model.vocabulary.pad)
        places = [*zip(rows, (number for number, _ in come), strict=True)]
        places += places[:1] * (-len(places) % (shape.reading.rows * _A_TEXT))  # few sizes; again the same
        to = _pairs(places)
        begin = self._graph((width, len(places)), partial(_begin, model, self.standing))
        hidden = begin(new, to, device=model.device)
        self.hidden = self.hidden.to(hidden.dtype)
        self.hidden[sent(to[0], model.device)] = hidden
        for row, (_, each) in zip(rows, come, strict=True):
            self.rows[row], self.counts[row] = each, len(each.next_slots)
            each.reading = time.perf_counter() - each.start
        self._tire({row: each for row, (_, each) in zip(rows, come, strict=True)})

    def _chosen(self, hidden: Float[Tensor, "B d"], wanted: Wanted) -> Float[Tensor, "B 3"]:
        """As one graph where everything is as usual."""
        size = _FORBIDDEN * max(1, -(-wanted.forbidden.shape[1] // _FORBIDDEN))
        if wanted.only.shape[1] or not {*wanted.ways} <= {*_USUAL} or size > _MOST_FORBIDDEN:
            return super()._chosen(hidden, wanted)
        forbidden = torch.full((2, size), self.engine.model.vocabulary.pad)  # never allowed
        forbidden[0] = 0
        forbidden[:, : wanted.forbidden.shape[1]] = wanted.forbidden
        graph = self._graph((size,), partial(_choice, self.engine, self.tired, _USUAL, only=_pairs([])))
        return graph(hidden, wanted.about, forbidden, device=hidden.device)

    def _graph(self, size: tuple[int, ...], compute: Callable[..., Tensor]) -> Graph[Tensor]:
        return self.graphs.setdefault(size, Graph(compute, self.memory))

    def _pass(self) -> None:
        if not self.under_way():
            return
        begin, self.passes = time.perf_counter(), self.passes + 1
        self.choose(self.hidden, self.counts)
        self.hurry(self.a_pass)
        going = self.under_way()
        self.rows = [going.get(row) for row in range(len(self.rows))]
        nothing = Slot(self.engine.model.vocabulary.pad)
        slots = [nothing if each is None else each.next_slots[0] for each in self.rows]
        self.counts = [0 if each is None else 1 for each in self.rows]
        if going:
            places = [0 if each is None else each.offset + each.draft.read for each in self.rows]
            given = torch.tensor([*zip(*slots, strict=True), places])
            self.hidden = self.read_slots(given, device=self.engine.model.device)
        self.a_pass = time.perf_counter() - begin


def _width(family: Sequence[Candidate], engine: Engine) -> int:
    return engine.shape.width(family[0].offset + len(family[0].next_slots))


def _begin(model: Denoiser, standing: Standing, new: Arranged, to: Int[Tensor, "2 n"]) -> Float[Tensor, "n d"]:
    """Read rows, and put those that `to` names second into the rows of a standing batch that it names first.

    Their last hidden vectors.
    """
    line, (rows, source) = Line(model, new.shape[1], masked=True), to
    hidden = line.take(new)[:, -1]
    standing.put(rows, line, source)
    return hidden[source]


class Together:
    """What the requests to one engine share on a GPU: standing batches by their columns, texts to be judged, graphs.

    `busy`: whether candidates are under way, so that whoever can wait for others to come should.
    """

    def __init__(self, engine: Engine):
        self.engine, self.pools, self.past_passes = engine, dict[int, Pool](), 0
        self.texts: list[Any] = []
        self.graphs: dict[tuple[int, ...], Graph[Any]] = {}  # by size, last used last; results are used under the lock
        self.memory = torch.cuda.graph_pool_handle() if engine.model.device.type == "cuda" else None
        self.lock = threading.RLock()  # as a pool's: steps that nobody wants may be collected, and end, at any moment

    @property
    def busy(self) -> bool:
        return any(pool.busy for pool in list(self.pools.values()))

    def pool(self, columns: int) -> Pool:
        """The standing batch for rows of so many columns; a new one if the last has failed. Few that are idle stay."""
        with self.lock:
            pool = self.pools.get(columns)
            if pool is None or pool.failed is not None:
                failed = [other for other, each in self.pools.items() if each.failed is not None]
                idle = [other for other, each in self.pools.items() if not each.busy and other not in failed]
                for other in [*failed, *idle[: max(0, len(idle) - _IDLE)]]:
                    self.past_passes += self.pools.pop(other).passes
                if failed:
                    gc.collect()  # perhaps for want of memory, and errors keep the frames that hold its rows
                pool = Pool(self.engine, columns)
            self.pools.pop(columns, None)
            self.pools[columns] = pool  # last used last
            return pool

    def graph(self, size: tuple[int, ...], compute: Callable[..., R]) -> Graph[R]:
        """A computation on tensors of these sizes, the same each time. Those not used for long are forgotten."""
        graph = self.graphs.pop(size, None) or Graph(compute, self.memory)
        self.graphs[size] = graph
        if len(self.graphs) > _GRAPHS:
            del self.graphs[next(iter(self.graphs))]
        return graph

    @property
    def passes(self) -> int:
        """A clock."""
        return self.past_passes + sum(pool.passes for pool in list(self.pools.values()))

    def enough(self, come: int, since: int) -> bool:
        """Whether so many are worth a pass, or have waited long enough for others, since a pass."""
        return not self.busy or self.engine.shape.enough(come, self.passes - since)


def together(engine: Engine) -> Together:
    with _FIRST:
        if engine.together is None:
            engine.together = Together(engine)
        return engine.together


def written(families: Sequence[Sequence[Candidate]], engine: Engine) -> Steps[None]:
    """Write families of candidates to their end."""
    if engine.shape.rows == 1:
        for family in families:
            yield from Family(engine, family).steps()
        return
    pools = list[tuple[Pool, Sequence[Candidate]]]()
    try:
        for family in families:  # each is added at once: a batch that nobody waits for may be forgotten
            pool = together(engine).pool(max(each.columns for each in family))
            pool.add(family)
            pools.append((pool, family))
        for pool, family in pools:
            seen = -1
            while not all(each.draft.done for each in family):
                if seen == pool.passes:  # otherwise it is somebody else's turn to see what the last pass has done
                    pool.advance()
                seen = pool.passes
                yield Step()
    finally:
        for pool, family in pools:
            pool.drop(family)


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
