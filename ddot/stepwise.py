"""One text, step by step: whoever drives it sees every state, may stop between any two, and may change what is next.

Stopping is not reading on. A way driven so has the answer it has in `together`: the network gets the same batches.
"""

from collections.abc import Callable, Generator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

from ddot.core.records import State, first_row
from ddot.tasks import Network, Sample, Task
from ddot.together import R, Way


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
