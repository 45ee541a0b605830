"""`python -m ddot` and the `ddot` command."""

import os
import signal

# Idle OpenMP threads that spin steal the cores from everybody else: 3x slower on a busy machine.
# Must be set before torch is imported.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")


def main() -> None:
    hear = signal.getsignal(signal.SIGINT)
    signal.signal(signal.SIGINT, _stop)  # in the middle of an import Ctrl-C would be a traceback
    from ddot.cli import run

    try:
        signal.signal(signal.SIGINT, hear)
        run()
    except KeyboardInterrupt:
        _stop()
    finally:
        signal.signal(signal.SIGINT, _stop)


def _stop(*_: object) -> None:
    os.write(2, b"ddot: interrupted\n")
    os._exit(130)


if __name__ == "__main__":
    main()
