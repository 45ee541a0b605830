"""Runs the engine: each step inside torch's contexts, texts on threads or in chunks, results in order."""

import threading
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager
from itertools import chain, islice
from typing import TypeVar

import torch

S = TypeVar("S")
T = TypeVar("T")
R = TypeVar("R")


class _OneThread:
    """Fill with one intra-op thread: splitting a reduction changes its rounding, and short texts are fastest that way.

    torch keeps the number per thread, and a new thread inherits the last one set anywhere; so the 1 that another
    filling has set must not be taken for the user's setting.
    """

    def __init__(self) -> None:
        self.lock, self.inside, self.before = threading.Lock(), 0, 1
        self.local = threading.local()

    def __enter__(self) -> None:
        with self.lock:
            if self.inside == 0 and not getattr(self.local, "left_at_one", False):
                self.before = torch.get_num_threads()
            self.inside += 1
        torch.set_num_threads(1)

    def __exit__(self, *_: object) -> None:
        with self.lock:
            self.inside -= 1
            self.local.left_at_one = self.inside > 0
            if self.inside == 0:
                torch.set_num_threads(self.before)


one_thread = _OneThread()


def inside(
    context: Callable[[], AbstractContextManager[object]], steps: Generator[S, None, R]
) -> Generator[S, None, R]:
    """The same steps, each computed inside a context that is left before the step is yielded."""
    while True:
        try:
            with context():
                step = next(steps)
        except StopIteration as end:
            return end.value
        yield step


def result_of(steps: Generator[object, None, R]) -> R:
    """Run the steps and return their result."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            return end.value


def chunks(items: Iterable[T], size: int) -> Iterator[list[T]]:
    """Lists of up to `size` items."""
    items = iter(items)
    while chunk := list(islice(items, size)):
        yield chunk


def on_threads(items: Iterable[T], work: Callable[[T], R], threads: int) -> Iterator[R]:
    """The results of work on items, in order, with a few items in progress at any time.

    A single item, or every item if `threads` is 1, runs in this thread, where Ctrl-C stops it at once.
    """
    items = iter(items)
    first = list(islice(items, 1 if threads == 1 else 2))
    if len(first) < 2:
        yield from map(work, chain(first, items))
        return
    waiting: deque[Future[R]] = deque()
    with ThreadPoolExecutor(threads) as pool:
        for item in chain(first, items):
            waiting.append(pool.submit(work, item))
            if len(waiting) > threads:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
