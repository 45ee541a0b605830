"""Ctrl-C and polite kills, noticed between two pieces of work instead of in the middle of one."""

import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any


@contextmanager
def interruptions(hold_back_all: bool = False, notice: str = "") -> Iterator[Callable[[], bool]]:
    """Says whether Ctrl-C or a polite kill came. The second one is no longer held back, unless all are.

    Under torchrun Ctrl-C comes twice: from the terminal, and from torchrun, which passes on its own. `notice` is told
    on stderr when the first one comes.
    """
    came: list[int] = []
    if threading.current_thread() is not threading.main_thread():
        yield lambda: False  # only the main thread hears signals
        return
    before: dict[int, Any] = {int(number): signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}

    def hear(number: int, _: object) -> None:
        if notice and not came:
            os.write(2, notice.encode())  # a print may be what was interrupted
        came.append(number)
        if not hold_back_all:
            signal.signal(number, before[number])

    for number in before:
        signal.signal(number, hear)
    try:
        yield lambda: bool(came)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
