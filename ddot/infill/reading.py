"""Rows of slots that are read from left to right, each at its own pace, with a key-value cache."""

import threading
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import cache, partial
from typing import Any, Generic, NamedTuple, TypeVar

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from ddot.core.codes import NOT_PROMPT, UNKNOWN_LENGTH
from ddot.core.records import State
from ddot.network.denoiser import Denoiser
from ddot.network.trunk import Attention, Cache, attend_grouped, grouped_mask

R = TypeVar("R")
_RECORDING = threading.Lock()  # a process may record one graph at a time


class Slot(NamedTuple):
    """A token to read: what the network is told with it."""

    token: int
    length: int = UNKNOWN_LENGTH
    hint: int = NOT_PROMPT


# Of each slot of each row: token, hint, told gap length, place; 1 if it is real, 0 if it is padding.
Arranged = Int[Tensor, "5 B width"]


def arranged(rows: Sequence[Sequence[Slot]], places: Sequence[int], width: int, pad: int) -> Arranged:
    """The next slots of each row, which end at the right; `places`: that of the first."""
    counts = np.array([len(slots) for slots in rows])[:, None]
    place = np.arange(width) + counts - width  # in the new slots of its row; below 0: padding
    seen = place >= 0
    x, hint, length = (np.full(seen.shape, empty) for empty in (pad, NOT_PROMPT, UNKNOWN_LENGTH))
    if flat := [slot for slots in rows for slot in slots]:
        x[seen], length[seen], hint[seen] = zip(*flat, strict=True)
    return torch.from_numpy(np.stack([x, hint, length, np.where(seen, place + np.array(places)[:, None], 0), seen]))


def sent(given: Tensor, device: torch.device) -> Tensor:
    """A tensor on its way to a device; a GPU's queue is not waited for, as it would be with ordinary memory."""
    return given.pin_memory().to(device, non_blocking=True) if device.type == "cuda" else given.to(device)


class Coming:
    """Numbers on their way from a device, which goes on with other work."""

    def __init__(self, numbers: Tensor):
        self.numbers, self.event = numbers, None
        if numbers.is_cuda:
            self.numbers = torch.empty(numbers.shape, dtype=numbers.dtype, pin_memory=True)
            self.numbers.copy_(numbers, non_blocking=True)
            self.event = torch.cuda.Event()
            self.event.record(torch.cuda.current_stream(numbers.device))  # the current device may be another

    @property
    def here(self) -> bool:
        return self.event is None or self.event.query()

    def tolist(self) -> list[float]:
        """Wait for them."""
        if self.event is not None:
            self.event.synchronize()
        return self.numbers.tolist()


@cache
def _aside(device: torch.device) -> torch.cuda.Stream:
    """The stream on which graphs are recorded: one for all, or they would not share memory."""
    return torch.cuda.Stream(device)


class Graph(Generic[R]):
    """A computation on tensors whose shapes never change. On a GPU its kernels are recorded and launched as one.

    A pass has a thousand small kernels, which take longer to launch than to run. There the result is overwritten by the
    next call, and by that of another graph with the same `pool` of memory.
    """

    def __init__(self, compute: Callable[..., R], pool: Any = None):
        self.compute, self.pool = compute, pool
        self.recorded: torch.cuda.CUDAGraph | None = None

    def __call__(self, *given: Tensor, device: torch.device) -> R:
        if device.type != "cuda":
            return self.compute(*(each.to(device) for each in given))
        if self.recorded is None:
            self._record([each.to(device) for each in given], device)
        else:
            for mine, each in zip(self.given, given, strict=True):
                mine.copy_(each if each.is_cuda else each.pin_memory(), non_blocking=True)
        assert self.recorded is not None
        self.recorded.replay()
        return self.result

    def _record(self, given: list[Tensor], device: torch.device) -> None:
        """Run it twice, as libraries prepare themselves in a first run, and record it."""
        self.given, graph, aside = given, torch.cuda.CUDAGraph(), _aside(device)
        with ExitStack() as contexts:
            contexts.enter_context(_RECORDING)
            contexts.enter_context(torch.cuda.device(device))
            # Where recording fails, torch would leave this thread on the stream of the recording.
            contexts.enter_context(torch.cuda.stream(torch.cuda.current_stream()))
            # Autocast must not keep weights of this context for the graph, nor those of the graph for this context.
            half, on = torch.get_autocast_dtype("cuda"), torch.is_autocast_enabled("cuda")
            contexts.enter_context(torch.autocast("cuda", half, on, cache_enabled=False))
            aside.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(aside):
                for _ in range(2):
                    self.compute(*given)
            torch.cuda.current_stream().wait_stream(aside)
            with torch.cuda.graph(graph, self.pool, aside, capture_error_mode="thread_local"):
                self.result = self.compute(*given)
        self.recorded = graph


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
        return self.take(sent(arranged(rows, places, width, self.model.vocabulary.pad), self.x.device))

    def take(self, new: Arranged) -> Float[Tensor, "B width d"]:
        """As `read`, of slots that are arranged."""
        x, hint, length, place, seen = new
        old = self.x, self.hint, self.gap_length, self.units
        self.x, self.hint, self.gap_length, self.units = (
            torch.cat(both, 1) for both in zip(old, (x, hint, length, place.float()), strict=True)
        )
        self.cache.grow(seen.bool())
        so_far = self.x.shape[1]
        z = self.units / self.model.scale(so_far)
        state = State(self.x, z, self.hint, self.gap_length, torch.zeros(len(x), device=x.device))
        return self.model.read(state, self.cache, slice(so_far - x.shape[1], so_far))[0]

    def keep(self, rows: Int[Tensor, "_"]) -> None:
        """Go on with these rows, some perhaps several times."""
        self.cache.keep(rows)
        self.x, self.hint, self.gap_length, self.units = (
            each[rows] for each in (self.x, self.hint, self.gap_length, self.units)
        )

    def forget(self, row: int, place: int) -> None:
        """Take back what a row has read from a place on."""
        self.cache.seen[row] &= self.units[row] < place


class Standing:
    """Rows of as many columns from first to last, in which row after row is replaced, so that a batch never waits.

    A pass reads one slot of every row, whichever its column, and has the same shape whatever the rows hold.
    """

    def __init__(self, model: Denoiser, rows: int, columns: int):
        self.model, self.columns = model, columns
        self.empty = (model.vocabulary.pad, NOT_PROMPT, UNKNOWN_LENGTH, 0.0)
        self.slots = [torch.full((rows, columns), each, device=model.device) for each in self.empty]
        self.past: Float[Tensor, "blocks 2 rows columns K D"] | None = None
        self.rows = torch.arange(rows, device=model.device)

    def put(self, rows: Int[Tensor, "n"], line: Line, source: Int[Tensor, "n"]) -> None:
        """Let rows hold what some rows of a line have read."""
        width, counts = line.x.shape[1], line.cache.seen[source].sum(1, keepdim=True)
        column = torch.arange(width, device=rows.device)
        real, before = column < counts, (column + width - counts).clamp(max=width - 1)
        read = (line.x, line.hint, line.gap_length, line.units)
        for mine, theirs, empty in zip(self.slots, read, self.empty, strict=True):
            mine.index_fill_(0, rows, empty)
            mine[rows, :width] = torch.where(real, theirs[source].gather(1, before), empty).to(mine.dtype)
        for block, both in line.cache.past.items():
            if self.past is None:
                shape = len(line.cache.past), 2, len(self.rows), self.columns, *both[0].shape[2:]
                self.past = both[0].new_zeros(shape)
            self.past[block][:, rows, :width] = torch.stack(both)[:, source[:, None], before]

    def read(self, given: Int[Tensor, "4 B"]) -> Float[Tensor, "B d"]:
        """The hidden vectors of one more slot of each row: its token, told gap length, hint and place."""
        x, gap_length, hint, self.at = given
        self.seen = torch.arange(self.columns, device=self.rows.device) <= self.at[:, None]
        new = (x, hint, gap_length, self.at.float())
        x, hint, gap_length, units = (
            torch.cat([old, each[:, None]], 1) for old, each in zip(self.slots, new, strict=True)
        )
        z = units / self.model.scale(self.columns + 1)
        state = State(x, z, hint, gap_length, torch.zeros(len(z), device=z.device))
        hidden = self.model.read(state, self, slice(self.columns, self.columns + 1))[0][:, 0]
        for mine, each in zip(self.slots, new, strict=True):
            mine[self.rows, self.at] = each
        return hidden

    def __call__(self, block: int) -> Attention:
        return partial(self._attend, block)

    def _attend(
        self, block: int, q: Float[Tensor, "B 1 H D"], k: Float[Tensor, "B 1 K D"], v: Float[Tensor, "B 1 K D"]
    ) -> Float[Tensor, "B 1 HD"]:
        assert self.past is not None
        keys, values = self.past[block]
        keys[self.rows, self.at], values[self.rows, self.at] = k[:, 0], v[:, 0]
        if block == 0:
            self.mask = grouped_mask(self.seen[:, None], q, k)
        return attend_grouped(q, keys, values, self.mask)
