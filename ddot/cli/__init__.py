"""The command line. Every command parses, calls one library function, and prints or saves.

Results go to stdout, everything else to stderr. A user's mistake is one sentence and exit status 2.
"""

import io
import os
import sys

from ddot.cli import infill  # noqa: F401 (each adds its commands; these are what most people come for)

# isort: split
from ddot.cli import evaluation, figures, serve, speed, training  # noqa: F401
from ddot.cli.app import app


def run() -> None:
    """The `ddot` command."""
    sys.exit(status())


def status() -> int:
    """Run the command; its exit status. Whatever goes wrong for a reason that users can mend is told in a sentence."""
    if sys.stderr is None:  # closed: what is said must not end up in the results
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
        if isinstance(error, BrokenPipeError):  # the reader of the output has seen enough, as `head` has
            os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
            return 1
        if sentence := _sentence(error):
            return _told(sentence)
        raise


def _told(sentence: str, ended: int = 2) -> int:
    print(f"ddot: {sentence}", file=sys.stderr)
    return ended


def _sentence(error: BaseException) -> str:
    """What to tell the user; nothing for a mistake of our own."""
    if isinstance(error, OSError) and error.errno is not None:
        place = f"{error.filename}: " if error.filename is not None else ""
        return f"{place}{(error.strerror or 'it cannot be used').lower()}; choose another place, or make it usable"
    if isinstance(error, ValueError | OSError):
        return str(error)
    if isinstance(error, MemoryError):
        return "the memory is full; give less at once"
    if type(error).__name__ == "OutOfMemoryError":  # torch's; its import takes a second
        return "the GPU's memory is full; free some, or use --device cpu"
    return ""


def _interrupted(error: BaseException) -> bool:
    """Whether Ctrl-C is behind an error, whatever was made of it on the way."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, KeyboardInterrupt):
            return True
        cause = cause.__cause__ or cause.__context__
    return False
