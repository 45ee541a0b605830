"""The forward passes that write candidates: one family at a time, or many families in one continuous batch.

The candidates for a window are a family: they share a prefix, the outline and the text up to the first gap. On a CPU
a family is a batch: a pass of many rows reads the weights once. On a GPU a pass takes as long for hundreds of rows as
for one, so families of many requests share passes, and a finished one frees its rows for one that waits (continuous
batching). There every pass has the same shape, so an answer does not depend on what else is in the batch.
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
from ddot.infill.draft import NOTHING, WITH_SEP, Draft, Gap, gaps
from ddot.infill.engine import Engine, Sample, Step, Steps, Window
from ddot.infill.reading import Graph, PackedSlots, Reader, Slot, StaticReader, pack, send
from ddot.infill.scoring import Tokens
from ddot.methods.outline import outline
from ddot.network.denoiser import Denoiser

R = TypeVar("R")

CANDIDATES = 20  # for the one answer of n = 1
_ROWS_PER_TEXT = 10  # of a continuous batch: half of the candidates are pruned early
TEMPERATURE, TOP_P = 0.8, 0.9  # of the candidates after the first, which is greedy
_GRAPH_SAMPLERS = ((TEMPERATURE, TOP_P),)  # (temperature, top-p) of token choices that are captured as a CUDA graph
_FORBIDDEN_STEP, _MAX_FORBIDDEN = 512, 4096  # forbidden tokens of all rows in a captured choice: step and maximum
_TOP_P_TOKENS = 1024  # likeliest tokens from which top-p samples: sorting all takes longer than the network
_COLUMN_STEP = 128  # the columns of a continuous batch are a multiple of this
_MAX_IDLE = 3  # continuous batches kept in memory without work: wide ones take gigabytes
_MAX_GRAPHS = 32  # captured graphs for scoring texts, by size
_CREATION_LOCK = threading.Lock()


class Candidate:
    """One way to write a window: its draft, its outline, how its tokens are sampled. Number 0 is greedy by default."""

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
        self.gaps: list[Gap] = sibling.gaps if sibling else gaps(view, window.blanks, window.max_tokens)
        if sibling:
            self.outline = sibling.outline
        self.draft = Draft(
            view.prompt.example.tokens.tolist(),
            self.gaps,
            engine.alphabet,
            engine.model.vocabulary.sep,
            sum(gap.after in window.places for gap in self.gaps),
            tokenised=engine.is_tokenised(view),
            prefix=window.fill_prefix,
            banned=(*engine.spellings(tuple(window.settings.avoid)), *banned),
        )
        self.key = Sample(window, None).key
        self.pruning: Pruning | None = None
        self.trailing = self.pruned = False
        self.start = time.perf_counter() if start is None else start
        self.prefill_seconds = 0.0  # from the start until its prefix was read
        self.offset = len(self.outline)  # of the text in its row
        settings = window.settings
        if settings.temperature > 0:
            self.temperature, self.top_p = settings.temperature * window.temperature_factor, settings.top_p
        else:
            self.temperature = TEMPERATURE * window.temperature_factor if window.draw else 0.0
            self.top_p = TOP_P if window.temperature_factor == 1 else 1.0

    @property
    def columns(self) -> int:
        """The columns of its row in a continuous batch: enough for anything it may write."""
        gaps = sum(gap.max_tokens for gap in self.written_gaps) + len(self.draft.prefix)
        most = self.offset + len(self.draft.given) + gaps
        return _COLUMN_STEP * (1 + most // _COLUMN_STEP)

    @cached_property
    def outline(self) -> list[Slot]:
        example = self.window.view.prompt.example
        length = np.full(len(example.tokens), self.draft.closed_length)
        for gap in self.gaps:
            length[gap.after] = gap.told
        told = Example(example.tokens, example.is_prompt, example.hint, length)
        row = outline(told, self.engine.model.vocabulary)[0]
        columns = row.tokens.tolist(), row.gap_lengths.tolist(), row.hints.tolist()
        return [Slot(*values) for values in zip(*columns, strict=True)]

    @property
    def unread_slots(self) -> list[Slot]:
        """The slots to read before the next token is chosen."""
        return [Slot(*values) for values in self.draft.unread()]

    def mark_read(self, count: int) -> bool:
        """Note that `count` tokens of the text were read; returns whether a token is to be chosen after them."""
        self.draft.n_read += count
        return count > 0 and self.draft.n_read == len(self.draft.text)

    def by_blank(self) -> tuple[list[Tokens], list[list[float]]]:
        """For each blank that is filled its tokens and the log-probabilities of its predictions."""
        begins, fills = self.engine.alphabet.begins, self.draft.fills
        parts = [gap.split(fill.tokens, begins) for gap, fill in zip(self.written_gaps, fills, strict=True)]
        return split_by_blank(self.window, self.written_gaps, parts, [fill.all_log_probs for fill in fills])

    @property
    def written_gaps(self) -> list[Gap]:
        return self.gaps[: self.draft.n_gaps]


def candidates_for_one(window: Window) -> int:
    """The number of candidates from which the answer of n = 1 is chosen; at a temperature there is only one."""
    chosen = window.is_fillable and window.seconds is None and not window.settings.temperature
    return CANDIDATES if chosen else 1


@dataclass
class Pruning:
    """What the candidates for one place share to prune those that are unlikely to be chosen.

    `best`: the best fluency of a finished candidate among those from which the answer of n = 1 is chosen. `fluencies`:
    that of each finished text.
    """

    best: float = -math.inf
    fluencies: dict[tuple[int, ...], float] = field(default_factory=dict)

    def finish(self, candidate: Candidate) -> None:
        fluency = candidate.draft.fluency()
        self.fluencies[tuple(candidate.draft.fills[0].tokens)] = fluency
        if candidate.window.draw < candidates_for_one(candidate.window) and not candidate.trailing:
            self.best = max(self.best, fluency)

    def nth_best(self, n: int) -> float:
        """The fluency of the n-th best text."""
        return sorted(self.fluencies.values())[-n] if n <= len(self.fluencies) else -math.inf


def _prune(candidates: Sequence[Candidate]) -> None:
    """After each token: mark candidates that trail the best one, and prune those that trail the n best."""
    pairs = [(candidate, candidate.pruning) for candidate in candidates if candidate.pruning]
    for candidate, pruning in pairs:
        if candidate.draft.done:
            pruning.finish(candidate)
    for candidate, pruning in pairs:
        draft = candidate.draft
        if not draft.done:
            candidate.trailing |= draft.trails(pruning.best)
            trails_all = candidate.trailing and draft.trails(pruning.nth_best(candidate.window.n_best))
            candidate.pruned = draft.done = trails_all


def split_by_blank(
    window: Window, gaps: Sequence[Gap], parts: Sequence[Sequence[Sequence[int]]], log_probs: Sequence[Sequence[float]]
) -> tuple[list[Tokens], list[list[float]]]:
    """From gaps to blanks: tokens and log-probabilities of each; the last blank of a gap has that of the end."""
    nothing, after = np.zeros(0, np.int64), window.after
    tokens: list[Tokens] = [nothing for _ in after]
    by_blank: list[list[float]] = [[] for _ in after]
    for gap, fills, of_gap in zip(gaps, parts, log_probs, strict=True):
        numbers = [number for number, place in enumerate(after) if place == gap.after]
        done = 0
        for number, fill in zip(numbers, fills, strict=True):
            tokens[number] = np.array(fill, np.int64)
            by_blank[number] = list(of_gap[done : done + len(fill)])
            done += len(fill)
        by_blank[numbers[-1]] += of_gap[done:]
    return tokens, by_blank


class Rows:
    """Candidates that are being written, one per row; a row may be empty."""

    def __init__(self, engine: Engine, rows: Sequence[Candidate | None]):
        self.engine, self.rows = engine, list(rows)
        cost = engine.repetition_penalty.cost
        self.penalties = torch.zeros(len(rows), len(cost), device=cost.device)  # on the words of each text
        self._reset_penalties({row: candidate for row, candidate in enumerate(rows) if candidate is not None})

    def _reset_penalties(self, new: Mapping[int, Candidate]) -> None:
        """Start new rows with the penalties on their given words."""
        if not new:
            return
        cost = self.engine.repetition_penalty.cost
        given = [candidate.window.view.prompt.example.tokens for candidate in new.values()]
        places = np.repeat(list(new), [len(tokens) for tokens in given]), np.concatenate(given)
        row, token = send(torch.from_numpy(np.stack(places)), cost.device)
        self.penalties.index_fill_(0, send(torch.tensor(list(new)), cost.device), 0.0)
        self.penalties[row, token] = cost[token]

    def active(self) -> dict[int, Candidate]:
        """The unfinished candidates, by row."""
        return {row: each for row, each in enumerate(self.rows) if each is not None and not each.draft.done}

    def check_deadlines(self, pass_seconds: float) -> None:
        """Mark drafts whose deadline comes before the end of another pass."""
        end = time.perf_counter() + pass_seconds
        for candidate in self.active().values():
            limit = candidate.window.seconds
            candidate.draft.past_deadline |= limit is not None and end - candidate.start > limit

    def choose(self, hidden: Float[Tensor, "B d"], counts: Sequence[int]) -> list[int]:
        """After a pass that read `counts` slots, choose the next token of each row without unread ones; those rows."""
        choosing = {row: candidate for row, candidate in self.active().items() if candidate.mark_read(counts[row])}
        choices = self._choose(hidden, self._choice_inputs(choosing))
        token = choices[:, :1].long()
        self.penalties.scatter_(1, token, self.engine.repetition_penalty.cost[token])
        rows = choices.tolist()  # the first wait for a GPU
        for row, candidate in choosing.items():
            chosen, log_prob, end_log_prob = rows[row]
            candidate.draft.take(int(chosen), log_prob, end_log_prob)
        _prune(list(choosing.values()))
        return list(choosing)

    def _choice_inputs(self, choosing: Mapping[int, Candidate]) -> "ChoiceInputs":
        per_row = np.zeros((3, len(self.rows)), np.float32)
        per_row[0] = NOTHING + WITH_SEP  # for the other rows [sep], which has no penalty
        forbidden, only_allowed = list[tuple[int, int]](), list[tuple[int, int]]()
        sampling = {row: (each.temperature, each.top_p) for row, each in choosing.items() if each.temperature > 0}
        samplers = tuple(sorted(set(sampling.values())))
        for row, candidate in choosing.items():
            per_row[:2, row] = candidate.draft.rule(), 1 + samplers.index(sampling[row]) if row in sampling else 0
            forbidden += [(row, token) for token in candidate.draft.forbidden()]
            only_allowed += [(row, token) for token in candidate.draft.only_allowed()]
        if choosing:
            keys = np.concatenate([candidate.key for candidate in choosing.values()])
            draws = np.array([candidate.draft.n_draws for candidate in choosing.values()], np.uint64)
            per_row[2, list(choosing)] = uniform(fold(keys, draws), 1)[:, 0]
        return ChoiceInputs(torch.from_numpy(per_row), _pair_tensor(forbidden), _pair_tensor(only_allowed), samplers)

    def _choose(self, hidden: Float[Tensor, "B d"], inputs: "ChoiceInputs") -> Float[Tensor, "B 3"]:
        tensors = (send(each, hidden.device) for each in (inputs.per_row, inputs.forbidden, inputs.only_allowed))
        return _choose_tokens(self.engine, self.penalties, inputs.samplers, hidden, *tensors)


class ChoiceInputs(NamedTuple):
    """What the choice of tokens depends on, besides logits and penalties.

    `per_row`: the number of its rule, that of its sampler (0: greedy), and a draw from U(0, 1). `forbidden`,
    `only_allowed`: (row, token); a row with any of the latter allows nothing else. `samplers`: (temperature, top-p).
    """

    per_row: Float[Tensor, "3 B"]
    forbidden: Int[Tensor, "2 _"]
    only_allowed: Int[Tensor, "2 _"]
    samplers: tuple[tuple[float, float], ...]


def _pair_tensor(pairs: Sequence[tuple[int, int]]) -> Int[Tensor, "2 n"]:
    return torch.tensor(pairs, dtype=torch.long).reshape(-1, 2).T.contiguous()


def _choose_tokens(
    engine: Engine,
    penalties: Float[Tensor, "B V"],
    samplers: Sequence[tuple[float, float]],
    hidden: Float[Tensor, "B d"],
    per_row: Float[Tensor, "3 B"],
    forbidden: Int[Tensor, "2 _"],
    only_allowed: Int[Tensor, "2 _"],
) -> Float[Tensor, "B 3"]:
    """Of every row the token, as a float (exact below 2²⁴), its log-probability and that of [sep]. `ChoiceInputs`."""
    logits = engine.model.logits(hidden.contiguous()).float()  # of all rows, so that the shape never changes
    rule, sampler, u = per_row
    allowed = engine.rules[rule.long(), : logits.shape[1]]
    allowed.index_put_(tuple(forbidden), allowed.new_zeros(()))
    if only_allowed.shape[1]:
        allowed[only_allowed[0]] = False
        allowed[tuple(only_allowed)] = True
    scores = (logits - penalties[:, : logits.shape[1]]).masked_fill(~allowed, -torch.inf)
    tokens = scores.argmax(-1)
    for number, (temperature, top_p) in enumerate(samplers, 1):
        tokens = torch.where(sampler == number, sample(scores, temperature, top_p, u), tokens)
    token_and_sep = torch.stack([tokens, torch.full_like(tokens, engine.model.vocabulary.sep)], 1)
    log_probs = logits.gather(1, token_and_sep) - logits.logsumexp(-1, keepdim=True)
    return torch.cat([tokens[:, None].float(), log_probs], 1)


class Family(Rows):
    """One family as a batch. A pass reads all unread slots of each row, and finished rows are removed."""

    def __init__(self, engine: Engine, family: Sequence[Candidate]):
        super().__init__(engine, family)
        self.reader = Reader(engine.model, 1, masked=False)

    def steps(self) -> Steps[None]:
        """Write all candidates, one step per forward pass."""
        family, reader = list(self.active().values()), self.reader
        first, counts = family[0], [len(candidate.unread_slots) for candidate in family]
        slots = [*first.outline, *first.unread_slots]
        hidden = reader.read([slots], [0], len(slots))[:, -1].expand(len(counts), -1)
        reader.select(torch.zeros(len(counts), dtype=torch.long, device=hidden.device))
        first.prefill_seconds, pass_seconds = time.perf_counter() - first.start, 0.0
        while True:
            yield Step()
            n_read = [candidate.draft.n_read + count for candidate, count in zip(family, counts, strict=True)]
            for row in self.choose(hidden, counts):
                candidate = family[row]
                if candidate.draft.n_read < n_read[row]:
                    reader.truncate(row, candidate.offset + candidate.draft.n_read)
            self.check_deadlines(pass_seconds)
            if not (active := self.active()):
                return
            if len(active) < len(family):
                kept = torch.tensor(list(active), device=hidden.device)
                reader.select(kept)
                family = list(active.values())
                self.rows, self.penalties = [*family], self.penalties[kept]
            start = time.perf_counter()
            rows = [candidate.unread_slots for candidate in family]
            counts = [len(slots) for slots in rows]
            hidden = reader.read(rows, [each.offset + each.draft.n_read for each in family], max(counts))[:, -1]
            pass_seconds = time.perf_counter() - start


class ContinuousBatch(Rows):
    """A continuous batch. Any request that waits for its family and has seen the last pass calls `advance`."""

    def __init__(self, engine: Engine, columns: int):
        super().__init__(engine, [None] * (engine.shape.rows * _ROWS_PER_TEXT))
        self.reader = StaticReader(engine.model, len(self.rows), columns)
        self.read_slots = Graph(self.reader.read)  # with its own memory: `hidden` must survive other graphs
        self.graphs: dict[tuple[int, ...], Graph[Tensor]] = {}  # of choices and of prefills, by size
        self.memory = torch.cuda.graph_pool_handle() if engine.model.device.type == "cuda" else None
        self.hidden = torch.zeros(len(self.rows), engine.model.config.trunk.width, device=engine.model.device)
        self.counts = [0] * len(self.rows)
        self.waiting: list[list[Candidate]] = []
        self.lock, self.passes, self.pass_seconds = threading.RLock(), 0, 0.0
        self.passes_waited = 0  # passes since the last prefill
        self.failed: str | None = None  # the message; the error itself would keep this batch in memory

    @property
    def busy(self) -> bool:
        """Whether candidates wait or are being written."""
        return self.failed is None and bool(self.waiting or self.active())

    def add(self, family: Sequence[Candidate]) -> None:
        """Queue a family for rows; one that is larger than the batch in parts."""
        with self.lock:
            for start in range(0, len(family), len(self.rows)):
                self.waiting.append(list(family[start : start + len(self.rows)]))

    def drop(self, candidates: Sequence[Candidate]) -> None:
        """Remove candidates of a request that is finished or cancelled."""
        dropped = set(map(id, candidates))
        with self.lock:
            self.rows = [None if id(candidate) in dropped else candidate for candidate in self.rows]
            self.waiting = [family for family in self.waiting if id(family[0]) not in dropped]

    def advance(self) -> None:
        """One pass: admit waiting families; then every row chooses a token and reads a slot."""
        with self.lock:
            if self.failed is not None:
                raise RuntimeError(f"the batch that this text was part of has failed: {self.failed}; send it again")
            try:
                self._admit()
                self._pass()
            except BaseException as error:
                self.failed = str(error)
                raise

    def _admit(self) -> None:
        """Give free rows to waiting families, several at a time: one prefill takes as long as many."""
        self.passes_waited += 1
        while self.waiting:
            width = _prefill_width(self.waiting[0], self.engine)
            free = [row for row, candidate in enumerate(self.rows) if candidate is None]
            fitting, left = list[list[Candidate]](), len(free)
            for family in self.waiting:
                if _prefill_width(family, self.engine) == width:
                    if len(family) > left:  # later families must not take the rows it waits for
                        break
                    fitting.append(family)
                    left -= len(family)
            shape, is_idle = self.engine.shape, len(free) == len(self.rows)
            fitting = fitting[: shape.prefill.rows]
            if not fitting or not (is_idle or shape.is_batch_ready(len(fitting), self.passes_waited)):
                return
            self.passes_waited = 0
            admitted = set(map(id, fitting))
            self.waiting = [family for family in self.waiting if id(family) not in admitted]
            self._prefill(fitting, free, width)

    def _prefill(self, families: Sequence[Sequence[Candidate]], free: Sequence[int], width: int) -> None:
        """Read the prefix of each family once and copy it to a free row for each candidate."""
        shape, model = self.engine.shape.prefill, self.engine.model
        slots = [[*family[0].outline, *family[0].unread_slots] for family in families]
        sources = [number for number, family in enumerate(families) for _ in family]
        admitted = dict(zip(free, [candidate for family in families for candidate in family], strict=False))
        packed = pack(shape.padded(slots, slots[-1]), [0] * shape.rows, width, model.vocabulary.pad)
        copies = [*zip(admitted, sources, strict=True)]
        copies += copies[:1] * (-len(copies) % (shape.rows * _ROWS_PER_TEXT))  # repeated, for few different sizes
        to = _pair_tensor(copies)
        prefill = self._graph((width, len(copies)), partial(_prefill_rows, model, self.reader))
        hidden = prefill(packed, to, device=model.device)
        self.hidden = self.hidden.to(hidden.dtype)
        self.hidden[send(to[0], model.device)] = hidden
        for row, candidate in admitted.items():
            self.rows[row], self.counts[row] = candidate, len(candidate.unread_slots)
            candidate.prefill_seconds = time.perf_counter() - candidate.start
        self._reset_penalties(admitted)

    def _choose(self, hidden: Float[Tensor, "B d"], inputs: ChoiceInputs) -> Float[Tensor, "B 3"]:
        """As a captured graph unless something is unusual."""
        size = _FORBIDDEN_STEP * max(1, -(-inputs.forbidden.shape[1] // _FORBIDDEN_STEP))
        if inputs.only_allowed.shape[1] or not {*inputs.samplers} <= {*_GRAPH_SAMPLERS} or size > _MAX_FORBIDDEN:
            return super()._choose(hidden, inputs)
        forbidden = torch.full((2, size), self.engine.model.vocabulary.pad)  # never allowed
        forbidden[0] = 0
        forbidden[:, : inputs.forbidden.shape[1]] = inputs.forbidden
        compute = partial(_choose_tokens, self.engine, self.penalties, _GRAPH_SAMPLERS, only_allowed=_pair_tensor([]))
        return self._graph((size,), compute)(hidden, inputs.per_row, forbidden, device=hidden.device)

    def _graph(self, size: tuple[int, ...], compute: Callable[..., Tensor]) -> Graph[Tensor]:
        return self.graphs.setdefault(size, Graph(compute, self.memory))

    def _pass(self) -> None:
        if not self.active():
            return
        start, self.passes = time.perf_counter(), self.passes + 1
        self.choose(self.hidden, self.counts)
        self.check_deadlines(self.pass_seconds)
        active = self.active()
        self.rows = [active.get(row) for row in range(len(self.rows))]
        padding = Slot(self.engine.model.vocabulary.pad)
        slots = [padding if candidate is None else candidate.unread_slots[0] for candidate in self.rows]
        self.counts = [0 if candidate is None else 1 for candidate in self.rows]
        if active:
            places = [0 if each is None else each.offset + each.draft.n_read for each in self.rows]
            columns = torch.tensor([*zip(*slots, strict=True), places])
            self.hidden = self.read_slots(columns, device=self.engine.model.device)
        self.pass_seconds = time.perf_counter() - start


def _prefill_width(family: Sequence[Candidate], engine: Engine) -> int:
    return engine.shape.width(family[0].offset + len(family[0].unread_slots))


def _prefill_rows(model: Denoiser, batch: StaticReader, packed: PackedSlots, to: Int[Tensor, "2 n"]) -> Tensor:
    """Read rows and copy them into a continuous batch; `to`: (row there, row read). Returns last hidden vectors."""
    reader, (rows, source) = Reader(model, packed.shape[1], masked=True), to
    hidden = reader.forward(packed)[:, -1]
    batch.replace(rows, reader, source)
    return hidden[source]


class SharedWork:
    """What requests to one engine share on a GPU: continuous batches by their columns, texts to be scored, graphs.

    `busy`: whether candidates are being written, so that it pays to wait for others.
    """

    def __init__(self, engine: Engine):
        self.engine, self.batches, self.past_passes = engine, dict[int, ContinuousBatch](), 0
        self.pending: list[Any] = []  # texts to be scored
        self.graphs: dict[tuple[int, ...], Graph[Any]] = {}  # by size, last used last; results are used under the lock
        self.memory = torch.cuda.graph_pool_handle() if engine.model.device.type == "cuda" else None
        self.lock = (
            threading.RLock()
        )  # reentrant, as in a batch: abandoned steps may be collected, and end, at any line

    @property
    def busy(self) -> bool:
        return any(batch.busy for batch in list(self.batches.values()))

    def batch(self, columns: int) -> ContinuousBatch:
        """The continuous batch with this many columns; a new one if the last has failed. Few idle ones are kept."""
        with self.lock:
            batch = self.batches.get(columns)
            if batch is None or batch.failed is not None:
                failed = [other for other, each in self.batches.items() if each.failed is not None]
                idle = [other for other, each in self.batches.items() if not each.busy and other not in failed]
                for other in [*failed, *idle[: max(0, len(idle) - _MAX_IDLE)]]:
                    self.past_passes += self.batches.pop(other).passes
                if failed:
                    gc.collect()  # it may have failed for lack of memory, and errors keep frames that hold its rows
                batch = ContinuousBatch(self.engine, columns)
            self.batches.pop(columns, None)
            self.batches[columns] = batch  # last used last
            return batch

    def graph(self, size: tuple[int, ...], compute: Callable[..., R]) -> Graph[R]:
        """The graph for tensors of this size, always of the same computation. The least recently used are dropped."""
        graph = self.graphs.pop(size, None) or Graph(compute, self.memory)
        self.graphs[size] = graph
        if len(self.graphs) > _MAX_GRAPHS:
            del self.graphs[next(iter(self.graphs))]
        return graph

    @property
    def passes(self) -> int:
        """All passes so far, as a clock."""
        return self.past_passes + sum(batch.passes for batch in list(self.batches.values()))

    def is_batch_ready(self, texts: int, since: int) -> bool:
        """Whether to score these texts now or, as others may join, later. `since`: the clock when the first came."""
        return not self.busy or self.engine.shape.is_batch_ready(texts, self.passes - since)


def shared_work(engine: Engine) -> SharedWork:
    with _CREATION_LOCK:
        if engine.shared_work is None:
            engine.shared_work = SharedWork(engine)
        return engine.shared_work


def write_families(families: Sequence[Sequence[Candidate]], engine: Engine) -> Steps[None]:
    """Write all candidates of these families."""
    if engine.shape.rows == 1:
        for family in families:
            yield from Family(engine, family).steps()
        return
    batches = list[tuple[ContinuousBatch, Sequence[Candidate]]]()
    try:
        for family in families:  # each is added at once: an idle batch may be dropped
            batch = shared_work(engine).batch(max(candidate.columns for candidate in family))
            batch.add(family)
            batches.append((batch, family))
        for batch, family in batches:
            seen = -1
            while not all(candidate.draft.done for candidate in family):
                if seen == batch.passes:  # otherwise another request has run a pass since
                    batch.advance()
                seen = batch.passes
                yield Step()
    finally:
        for batch, family in batches:
            batch.drop(family)


def sample(scores: Float[Tensor, "B V"], temperature: float, top_p: float, u: Float[Tensor, "B"]) -> Int[Tensor, "B"]:
    """Tokens sampled at a temperature, from the likeliest that together have the probability `top_p`."""
    chances = torch.softmax(scores / temperature, -1)
    if top_p >= 1:
        tokens = torch.arange(scores.shape[1], device=scores.device).expand_as(scores)
    else:
        chances, tokens = chances.topk(min(_TOP_P_TOKENS, scores.shape[1]), -1)
        chances = chances * (chances.cumsum(-1) - chances < top_p)
        chances = chances / chances.sum(-1, keepdim=True)
    return Candidates(tokens, chances).draw(u)
