"""Many texts at once: ways of texts are driven together, and what they ask of the network runs in batches.

A way is a generator: it yields a task, is sent its answer, and returns its result. Results come in the order of the
ways, with a bounded number of them at work, however many there are.
"""

import threading
from collections import deque
from collections.abc import Callable, Generator, Hashable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager
from functools import partial
from itertools import islice
from typing import Any, Generic, TypeVar

import torch

from ddot.tasks import Network, Task

R = TypeVar("R")
Way = Generator[Task, Any, R]


class _OneThread:
    """One torch thread for each filling, while any is going on: a sum over two halves is another number.

    Short texts are also quickest so. The number of threads is the whole process's; the last one out sets it back.
    """

    def __init__(self) -> None:
        self.lock, self.inside, self.before = threading.Lock(), 0, 1

    def __enter__(self) -> None:
        with self.lock:
            if self.inside == 0:
                self.before = torch.get_num_threads()
            self.inside += 1
        torch.set_num_threads(1)

    def __exit__(self, *_: object) -> None:
        with self.lock:
            self.inside -= 1
            if self.inside == 0:
                torch.set_num_threads(self.before)


one_thread = _OneThread()


class _AtWork(Generic[R]):
    """A way under way: what it asks for now, or its result."""

    def __init__(self, way: Way[R]):
        self.way = way
        self.task: Task | None = None
        self.results: list[R] = []

    def go_on(self, step: Callable[[], Task]) -> None:
        try:
            self.task = step()
        except StopIteration as end:
            self.task = None
            self.results.append(end.value)


def together(
    ways: Iterable[Way[R]], network: Network, at_once: int, calmly: Callable[[], AbstractContextManager[object]]
) -> Iterator[R]:
    """The results of ways, in order, with up to `at_once` of them at work. Everything is computed inside `calmly()`.

    A full batch runs first. While there is none, the batch of the oldest text runs: then others have had all the time
    there is to join it, and nobody waits forever.
    """
    waiting = iter(ways)
    window: deque[_AtWork[R]] = deque()
    asking: dict[Hashable, deque[_AtWork[R]]] = {}

    def go_on(text: _AtWork[R], step: Callable[[], Task]) -> None:
        text.go_on(step)
        if text.task is not None:
            asking.setdefault(network.group(text.task), deque()).append(text)

    while True:
        with calmly():
            for way in islice(waiting, at_once - len(window)):
                window.append(_AtWork(way))
                go_on(window[-1], way.__next__)
            while window and window[0].task is not None:
                _run_one(asking, window[0], network, go_on)
        if not window:
            return
        yield window.popleft().results[0]


def _run_one(
    asking: dict[Hashable, deque[_AtWork[R]]],
    oldest: _AtWork[R],
    network: Network,
    go_on: Callable[[_AtWork[R], Callable[[], Task]], None],
) -> None:
    """Run a batch, and let those in it go on."""
    assert oldest.task is not None
    full = (group for group, some in asking.items() if len(some) >= network.shape.rows)
    group = next(full, None) or network.group(oldest.task)
    some = [asking[group].popleft() for _ in range(min(network.shape.rows, len(asking[group])))]
    if not asking[group]:
        del asking[group]
    try:
        answers = network.run([text.task for text in some])
    except ValueError as error:
        for text in some:
            go_on(text, partial(text.way.throw, error))
        return
    for text, answer in zip(some, answers, strict=True):
        go_on(text, partial(text.way.send, answer))


def on_threads(ways: Iterable[Way[R]], drive: Callable[[Way[R]], R], threads: int) -> Iterator[R]:
    """The results of ways, in order, each driven on one of several threads, with a few at work at any time."""
    waiting: deque[Future[R]] = deque()
    with ThreadPoolExecutor(threads) as pool:
        for way in ways:
            waiting.append(pool.submit(drive, way))
            if len(waiting) > threads:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
