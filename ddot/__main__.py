"""`python -m ddot` and the `ddot` command."""

import atexit
import os
import signal
import sys
import threading
from contextlib import suppress
from types import FrameType
from typing import NoReturn

# Idle OpenMP threads that spin steal the cores from everybody else: 3x slower on a busy machine.
# Must be set before torch is imported.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")


def main() -> None:
    if signal.getsignal(signal.SIGINT) != signal.SIG_IGN:
        signal.signal(signal.SIGINT, _hear)
    from ddot.cli import run

    try:
        run()
    except KeyboardInterrupt:
        _stop()
    except SystemExit as end:
        # 130: Python would die of the signal if it came while a library executed source code.
        if end.code == 130 or "torch" in sys.modules:
            _leave(end.code if isinstance(end.code, int) else 1)
        raise
    finally:
        signal.signal(signal.SIGINT, _stop)


def _leave(status: int) -> NoReturn:
    """Exit without taking the interpreter apart, which takes 0.3 s once torch is imported.

    What the interpreter does before that is done: idle pools of threads are woken, threads waited for, handlers called.
    """
    signal.signal(signal.SIGINT, _stop)
    if status != 130:
        threading._shutdown()  # type: ignore[attr-defined]
        atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError, AttributeError):
            stream.flush()
    os._exit(status)


def _hear(number: int, frame: FrameType | None) -> None:
    """Ctrl-C. During an import the process ends at once: libraries make other errors of it, and a traceback."""
    inside = frame
    while inside is not None:
        if inside.f_code.co_filename.startswith("<frozen importlib"):
            _stop()
        inside = inside.f_back
    signal.default_int_handler(number, frame)


def _stop(*_: object) -> None:
    os.write(2, b"ddot: interrupted\n")
    os._exit(130)


if __name__ == "__main__":
    main()
