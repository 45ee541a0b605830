"""Many texts at once: ways of texts are driven together, and what they ask of the network runs in batches.

A way is a generator: it yields a task, is sent its answer, and returns its result. Results come as they are finished,
with a bounded number of ways at work, however many there are; `in_order` puts them in the order of the ways.
`stepwise` drives one way: whoever does so sees every state, may stop between any two, and may change what is next.
Stopping is not reading on. A way driven so has the answer it has in `together`: the network gets the same batches.
"""

import threading
from collections import deque
from collections.abc import Callable, Generator, Hashable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial
from itertools import chain, islice
from typing import Any, Generic, TypeVar

import torch

from ddot.core.records import State, first_row
from ddot.infill.engine import Network, Sample, Task

R = TypeVar("R")
Way = Generator[Task, Any, R]


class _OneThread:
    """One torch thread for each filling, while any is going on: a sum over two halves is another number.

    Short texts are also quickest so. Every thread has a number of its own, and a new one takes over the last that was
    set anywhere; so a thread that finds the 1 of another filling does not believe it.
    """

    def __init__(self) -> None:
        self.lock, self.inside, self.before = threading.Lock(), 0, 1
        self.here = threading.local()

    def __enter__(self) -> None:
        with self.lock:
            if self.inside == 0 and not getattr(self.here, "left_at_one", False):
                self.before = torch.get_num_threads()
            self.inside += 1
        torch.set_num_threads(1)

    def __exit__(self, *_: object) -> None:
        with self.lock:
            self.inside -= 1
            self.here.left_at_one = self.inside > 0
            if self.inside == 0:
                torch.set_num_threads(self.before)


one_thread = _OneThread()


class _AtWork(Generic[R]):
    """A way under way: what it asks for now, or its result."""

    def __init__(self, way: Way[R]):
        self.way = way
        self.task: Task | None = None
        self.result: list[R] = []

    def go_on(self, step: Callable[[], Task]) -> None:
        try:
            self.task = step()
        except StopIteration as end:
            self.task = None
            self.result = [end.value]


def together(
    ways: Iterable[Way[R]], network: Network, at_once: int, calmly: Callable[[], AbstractContextManager[object]]
) -> Iterator[R]:
    """The results of ways, as they are finished. Everything is computed inside `calmly()`.

    At most `at_once` ways are begun from the oldest unfinished one on. A full batch runs first. While there is none,
    the batch of the oldest text runs: then others have had all the time there is to join it, and nobody waits forever.
    """
    waiting = iter(ways)
    window: deque[_AtWork[R]] = deque()
    asking: dict[Hashable, deque[_AtWork[R]]] = {}
    finished: list[R] = []

    def go_on(text: _AtWork[R], step: Callable[[], Task]) -> None:
        text.go_on(step)
        finished.extend(text.result)
        if text.task is not None:
            asking.setdefault(network.group(text.task), deque()).append(text)

    while True:
        while window and window[0].result:
            window.popleft()
        with calmly():
            for way in islice(waiting, at_once - len(window)):
                window.append(_AtWork(way))
                go_on(window[-1], way.__next__)
            if not finished and asking:
                _run_one(asking, window[0], network, go_on)
        if not window:
            return
        yield from finished
        finished.clear()


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
    for text, answer in zip(some, _answered(some, network), strict=True):
        go_on(text, partial(text.way.throw if isinstance(answer, ValueError) else text.way.send, answer))


def _answered(some: list[_AtWork[R]], network: Network) -> list[Any]:
    """The answer to each, or its mistake. Whoever makes one in a batch makes it alone as well, and only he is told."""
    try:
        return network.run([text.task for text in some])
    except ValueError as error:
        return [error] if len(some) == 1 else [_answered([text], network)[0] for text in some]


def in_order(results: Iterable[tuple[int, R]]) -> Iterator[R]:
    """The results of ways 0, 1, 2 …, each given with its number, in that order."""
    early: dict[int, R] = {}
    number = 0
    for which, result in results:
        early[which] = result
        while number in early:
            yield early.pop(number)
            number += 1


def numbered(number: int, way: Way[R]) -> Way[tuple[int, R]]:
    """The same way, its result given with its number."""
    return number, (yield from way)


def on_threads(ways: Iterable[Way[R]], drive: Callable[[Way[R]], R], threads: int) -> Iterator[R]:
    """The results of ways, in order, each driven on one of several threads, with a few at work at any time.

    A single one is driven in this thread, where Ctrl-C stops it at once.
    """
    ways = iter(ways)
    first = list(islice(ways, 2))
    if len(first) < 2:
        yield from map(drive, first)
        return
    waiting: deque[Future[R]] = deque()
    with ThreadPoolExecutor(threads) as pool:
        for way in chain(first, ways):
            waiting.append(pool.submit(drive, way))
            if len(waiting) > threads:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()


@dataclass(frozen=True)
class Step:
    """What has just been done: a task that has its answer, or one step of a sample, with the state it led to."""

    task: Task
    state: State | None = None


def stepwise(
    way: Way[R],
    network: Network,
    calmly: Callable[[], AbstractContextManager[object]],
    change: Callable[[Task], Task] = lambda task: task,
) -> Generator[Step, None, R]:
    """The steps of a way, and its result. `change` sees every task before it is run and says what is run instead.

    `calmly()` is entered anew for each step: whoever reads the steps is not left in inference mode between them.
    """
    answer: Any = None
    while True:
        try:
            with calmly():
                task = change(way.send(answer))
        except StopIteration as end:
            return end.value
        if not isinstance(task, Sample):
            with calmly():
                answer = network.run([task])[0]
            yield Step(task)
            continue
        answer = yield from _sampled(task, network, calmly)


def _sampled(
    task: Sample, network: Network, calmly: Callable[[], AbstractContextManager[object]]
) -> Generator[Step, None, Any]:
    with calmly():
        states = network.states([task])
        last = next(states)
    while True:
        yield Step(task, first_row(last))
        with calmly():
            state = next(states, None)
            if state is None:
                return network.found([task], last)[0]
            last = state
