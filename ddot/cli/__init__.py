"""The command line. Every command parses, calls one library function, and prints or saves.

Results go to stdout, everything else to stderr. A user's mistake is one sentence and exit status 2.
"""

import io
import os
import sys

from ddot.cli import figures, infill  # noqa: F401 (each adds its commands; the most used come first)

# isort: split
from ddot.cli import evaluation, serve, speed, training  # noqa: F401
from ddot.cli.app import app
from ddot.infill.mistakes import COMMAND_LINE, told


def run() -> None:
    sys.exit(status())


def status() -> int:
    """Run the command and return its exit status. Errors that users can fix are reported in one sentence."""
    if sys.stderr is None:  # closed: messages must not end up among the results
        sys.stderr = open(os.devnull, "w")  # noqa: SIM115
    if sys.stdout is None:
        return _told("stdout is closed, and results go there; redirect it instead, say to /dev/null")
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(encoding="utf-8", newline="\n")  # every character of a text, whatever the locale
    try:
        try:
            app()
            ended = 0
        except SystemExit as end:
            if _interrupted(end):
                raise
            ended = end.code if isinstance(end.code, int) else 0 if end.code is None else 1
        sys.stdout.flush()
        return ended
    except BaseException as error:
        if _interrupted(error):
            return _told("interrupted", 130)
        if isinstance(error, BrokenPipeError):  # the reader closed the pipe, as `head` does
            os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
            return 1
        if sentence := _sentence(error):
            return _told(sentence)
        raise


def _told(sentence: str, ended: int = 2) -> int:
    print(f"ddot: {sentence}", file=sys.stderr)
    return ended


def _sentence(error: BaseException) -> str:
    """What to tell the user; empty for a bug of ours."""
    if isinstance(error, OSError) and error.errno is not None:
        place = f"{error.filename}: " if error.filename is not None else ""
        return f"{place}{(error.strerror or 'it cannot be used').lower()}; choose another place, or make it usable"
    if isinstance(error, ValueError | OSError):
        return told(error, COMMAND_LINE)
    if isinstance(error, MemoryError):
        return "the memory is full; give less at once"
    if type(error).__name__ == "OutOfMemoryError":  # torch's; its import takes a second
        return "the GPU's memory is full; free some, or use --device cpu"
    return ""


def _interrupted(error: BaseException) -> bool:
    """Whether Ctrl-C caused an error, however it was wrapped."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, KeyboardInterrupt):
            return True
        cause = cause.__cause__ or cause.__context__
    return False
