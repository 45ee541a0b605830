"""Reads rows of slots from left to right with a KV cache, each row at its own pace; copies and graphs for a GPU."""

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
_CAPTURE_LOCK = threading.Lock()  # a process may capture one graph at a time


class Slot(NamedTuple):
    """A token to read, and what the network is told with it: the length of the gap after it, and its hint."""

    token: int
    length: int = UNKNOWN_LENGTH
    hint: int = NOT_PROMPT


# Of each slot of each row: token, told gap length, hint, place; 1 if it is real, 0 if it is padding.
PackedSlots = Int[Tensor, "5 B width"]


def pack(rows: Sequence[Sequence[Slot]], places: Sequence[int], width: int, pad: int) -> PackedSlots:
    """The next slots of each row as one tensor, padded on the left. `places`: that of the first slot of each row."""
    counts = np.array([len(slots) for slots in rows])[:, None]
    place = np.arange(width) + counts - width  # among the new slots of its row; below 0: padding
    real = place >= 0
    x, length, hint = (np.full(real.shape, empty) for empty in (pad, UNKNOWN_LENGTH, NOT_PROMPT))
    if flat := [slot for slots in rows for slot in slots]:
        x[real], length[real], hint[real] = zip(*flat, strict=True)
    return torch.from_numpy(np.stack([x, length, hint, np.where(real, place + np.array(places)[:, None], 0), real]))


def send(tensor: Tensor, device: torch.device) -> Tensor:
    """The tensor on a device. Pinned memory makes the copy to a GPU asynchronous."""
    return tensor.pin_memory().to(device, non_blocking=True) if device.type == "cuda" else tensor.to(device)


class AsyncCopy:
    """A tensor that is copied from a GPU to main memory while the GPU goes on with other work."""

    def __init__(self, source: Tensor):
        self.copy, self.event = source, None
        if source.is_cuda:
            self.copy = torch.empty(source.shape, dtype=source.dtype, pin_memory=True)
            self.copy.copy_(source, non_blocking=True)
            self.event = torch.cuda.Event()
            self.event.record(torch.cuda.current_stream(source.device))  # the current device may be another

    @property
    def ready(self) -> bool:
        return self.event is None or self.event.query()

    def tolist(self) -> list[float]:
        """The values, once they have arrived."""
        if self.event is not None:
            self.event.synchronize()
        return self.copy.tolist()


@cache
def _capture_stream(device: torch.device) -> torch.cuda.Stream:
    """The stream on which graphs are captured: one for all, or they would not share memory."""
    return torch.cuda.Stream(device)


class Graph(Generic[R]):
    """A computation on tensors whose shapes never change. On a GPU it is captured as a CUDA graph.

    A pass has a thousand small kernels, which take longer to launch than to run. The result of a captured graph is
    overwritten by its next call, and by that of another graph with the same memory `pool`.
    """

    def __init__(self, compute: Callable[..., R], pool: Any = None):
        self.compute, self.pool = compute, pool
        self.captured: torch.cuda.CUDAGraph | None = None

    def __call__(self, *inputs: Tensor, device: torch.device) -> R:
        if device.type != "cuda":
            return self.compute(*(tensor.to(device) for tensor in inputs))
        if self.captured is None:
            self._capture([tensor.to(device) for tensor in inputs], device)
        else:
            for static, tensor in zip(self.inputs, inputs, strict=True):
                static.copy_(tensor if tensor.is_cuda else tensor.pin_memory(), non_blocking=True)
        assert self.captured is not None
        self.captured.replay()
        return self.result

    def _capture(self, inputs: list[Tensor], device: torch.device) -> None:
        """Run the computation twice, as libraries set themselves up in a first run, and capture it."""
        self.inputs, graph, stream = inputs, torch.cuda.CUDAGraph(), _capture_stream(device)
        with ExitStack() as contexts:
            contexts.enter_context(_CAPTURE_LOCK)
            contexts.enter_context(torch.cuda.device(device))
            # If the capture fails, torch would leave this thread on the stream of the capture.
            contexts.enter_context(torch.cuda.stream(torch.cuda.current_stream()))
            # Autocast must not reuse its cached weights inside the graph, nor those of the graph outside it.
            half, on = torch.get_autocast_dtype("cuda"), torch.is_autocast_enabled("cuda")
            contexts.enter_context(torch.autocast("cuda", half, on, cache_enabled=False))
            stream.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(stream):
                for _ in range(2):
                    self.compute(*inputs)
            torch.cuda.current_stream().wait_stream(stream)
            with torch.cuda.graph(graph, self.pool, stream, capture_error_mode="thread_local"):
                self.result = self.compute(*inputs)
        self.captured = graph


class Reader:
    """Reads rows of slots, 1 rotary unit apart, from left to right, each row at its own pace, with a growing cache."""

    def __init__(self, model: Denoiser, rows: int, masked: bool):
        self.model = model
        self.cache = Cache(rows, model.device, masked)
        self.x, self.gap_length, self.hint, self.units = (
            torch.zeros(rows, 0, dtype=kind, device=model.device) for kind in (*[torch.long] * 3, torch.float32)
        )

    def read(self, rows: Sequence[Sequence[Slot]], places: Sequence[int], width: int) -> Float[Tensor, "B width d"]:
        """The hidden vectors of the next slots of each row, as in `pack`."""
        return self.forward(send(pack(rows, places, width, self.model.vocabulary.pad), self.x.device))

    def forward(self, packed: PackedSlots) -> Float[Tensor, "B width d"]:
        """As `read`, for slots that are packed already."""
        x, length, hint, place, real = packed
        old = self.x, self.gap_length, self.hint, self.units
        self.x, self.gap_length, self.hint, self.units = (
            torch.cat(both, 1) for both in zip(old, (x, length, hint, place.float()), strict=True)
        )
        self.cache.grow(real.bool())
        total = self.x.shape[1]
        z = self.units / self.model.scale(total)
        state = State(self.x, z, self.hint, self.gap_length, torch.zeros(len(x), device=x.device))
        return self.model.read(state, self.cache, slice(total - x.shape[1], total))[0]

    def select(self, rows: Int[Tensor, "_"]) -> None:
        """Keep only these rows, some perhaps several times."""
        self.cache.keep(rows)
        self.x, self.gap_length, self.hint, self.units = (
            values[rows] for values in (self.x, self.gap_length, self.hint, self.units)
        )

    def truncate(self, row: int, place: int) -> None:
        """Hide what a row has read from a place on."""
        self.cache.seen[row] &= self.units[row] < place


class StaticReader:
    """Rows of a fixed number of columns for continuous batching: any row can be replaced while the others go on.

    A pass reads one slot of every row, each at its own column, so all passes have the same shape.
    """

    def __init__(self, model: Denoiser, rows: int, columns: int):
        self.model, self.columns = model, columns
        self.empty = (model.vocabulary.pad, UNKNOWN_LENGTH, NOT_PROMPT, 0.0)
        self.slots = [torch.full((rows, columns), value, device=model.device) for value in self.empty]
        self.past: Float[Tensor, "blocks 2 rows columns K D"] | None = None
        self.rows = torch.arange(rows, device=model.device)

    def replace(self, rows: Int[Tensor, "n"], reader: Reader, source: Int[Tensor, "n"]) -> None:
        """Copy the `source` rows of a reader, with its KV cache, into these rows."""
        width, counts = reader.x.shape[1], reader.cache.seen[source].sum(1, keepdim=True)
        column = torch.arange(width, device=rows.device)
        real, before = column < counts, (column + width - counts).clamp(max=width - 1)
        new_slots = (reader.x, reader.gap_length, reader.hint, reader.units)
        for old, new, empty in zip(self.slots, new_slots, self.empty, strict=True):
            old.index_fill_(0, rows, empty)
            old[rows, :width] = torch.where(real, new[source].gather(1, before), empty).to(old.dtype)
        for block, keys_values in reader.cache.past.items():
            if self.past is None:
                shape = len(reader.cache.past), 2, len(self.rows), self.columns, *keys_values[0].shape[2:]
                self.past = keys_values[0].new_zeros(shape)
            self.past[block][:, rows, :width] = torch.stack(keys_values)[:, source[:, None], before]

    def read(self, slots: Int[Tensor, "4 B"]) -> Float[Tensor, "B d"]:
        """The hidden vectors of one more slot of each row, given its token, told gap length, hint and place."""
        x, gap_length, hint, self.at = slots
        self.seen = torch.arange(self.columns, device=self.rows.device) <= self.at[:, None]
        new = (x, gap_length, hint, self.at.float())
        x, gap_length, hint, units = (
            torch.cat([old, values[:, None]], 1) for old, values in zip(self.slots, new, strict=True)
        )
        z = units / self.model.scale(self.columns + 1)
        state = State(x, z, hint, gap_length, torch.zeros(len(z), device=z.device))
        hidden = self.model.read(state, self, slice(self.columns, self.columns + 1))[0][:, 0]
        for old, values in zip(self.slots, new, strict=True):
            old[self.rows, self.at] = values
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
