"""Ctrl-C and SIGTERM take effect between steps instead of in the middle of one."""

import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any


@contextmanager
def interruptions(hold_back_all: bool = False, notice: str = "") -> Iterator[Callable[[], bool]]:
    """Yields a function that says whether Ctrl-C or SIGTERM arrived. A second one acts at once, unless `hold_back_all`.

    Under torchrun Ctrl-C arrives twice: from the terminal and forwarded by torchrun. `notice` is written to stderr at
    the first one.
    """
    received: list[int] = []
    if threading.current_thread() is not threading.main_thread():
        yield lambda: False  # only the main thread receives signals
        return
    before: dict[int, Any] = {int(number): signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}

    def handle(number: int, _: object) -> None:
        if notice and not received:
            os.write(2, notice.encode())  # not print, which may be what was interrupted
        received.append(number)
        if not hold_back_all:
            signal.signal(number, before[number])

    for number in before:
        signal.signal(number, handle)
    try:
        yield lambda: bool(received)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
