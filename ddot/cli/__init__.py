"""The command line. A command parses options, calls a library function, and prints or saves the result.

Results go to stdout, everything else to stderr. A user's mistake prints one sentence and exits with status 2.
"""

import io
import os
import re
import shlex
import sys
from itertools import pairwise

from ddot.cli import figures, infill  # noqa: F401 (each adds its commands; the most used come first)

# isort: split
from ddot.cli import evaluation, serve, speed, training  # noqa: F401
from ddot.cli.app import app, say
from ddot.infill.mistakes import COMMAND_LINE, told

_OPTION = re.compile(r"--?[\w-]+")


def run() -> None:
    sys.exit(status())


def status() -> int:
    """Run the command and return its exit status. Errors that users can fix are reported in one sentence."""
    if sys.stderr is None:  # closed: messages must not end up among the results
        sys.stderr = open(os.devnull, "w")  # noqa: SIM115
    if sys.stdout is None:
        say("stdout is closed, and results go there; redirect it instead, for example to /dev/null")
        return 2
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(encoding="utf-8", newline="\n")  # keep every character, whatever the locale
    try:
        try:
            code = app(standalone_mode=False) or 0
            if code == 130:  # Ctrl-C
                raise KeyboardInterrupt
        except SystemExit as end:
            if _interrupted(end):
                raise
            code = end.code if isinstance(end.code, int) else 0 if end.code is None else 1
        sys.stdout.flush()
        return code
    except BaseException as error:
        if _interrupted(error):
            say("interrupted")
            return 130
        if isinstance(error, BrokenPipeError):  # the reader closed the pipe, as `head` does
            os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
            return 1
        if type(error).__name__ == "NoArgsIsHelpError":  # Typer's; it has printed the help
            return 2
        if not (sentence := _sentence(error)):
            raise
        say(sentence)
        return 2


def _sentence(error: BaseException) -> str:
    """What to tell the user; empty if the error is a bug."""
    if hasattr(error, "format_message"):  # Typer's, which has been of more than one class
        message = _wrong_number(error) or " ".join(error.format_message().split()).rstrip(".")
        context = getattr(error, "ctx", None)
        command = " ".join(["ddot", *context.command_path.partition("ddot")[2].split()]) if context else "ddot"
        advice = _hyphen_advice(error, command) or f"`{command} --help` says what there is"
        return f"{message[:1].lower()}{message[1:]}; {advice}"
    if isinstance(error, OSError) and error.errno is not None:
        place = f"{error.filename}: " if error.filename is not None else ""
        return f"{place}{(error.strerror or 'it cannot be used').lower()}; choose another place, or make it usable"
    if isinstance(error, ValueError | OSError):
        return told(error, COMMAND_LINE)
    if isinstance(error, MemoryError):
        return "out of memory; give less at once"
    if type(error).__name__ == "OutOfMemoryError":  # torch's; not imported here, since that takes a second
        return "out of GPU memory; free some, or use --device cpu"
    return ""


def _hyphen_advice(error: BaseException, command: str) -> str:
    """What to do if a text was taken for an option; empty if the mistake is another one."""
    unknown = getattr(error, "option_name", "")
    for argument in sys.argv[1:] if unknown else []:
        if argument.startswith(unknown) and ("___" in argument or not _OPTION.fullmatch(argument.partition("=")[0])):
            return f"put -- before a text that begins with a hyphen: {command} -- {shlex.quote(argument)}"
    return ""


def _wrong_number(error: BaseException) -> str:
    """What came instead of a number, which Typer does not say; empty if the mistake is another one."""
    kinds = {"valid integer": "a whole number", "valid number": "a number"}
    wanted = next((kind for told, kind in kinds.items() if told in str(getattr(error, "message", ""))), "")
    names = getattr(getattr(error, "param", None), "opts", [])
    for argument, following in pairwise([*sys.argv[1:], ""]):
        name, equals, value = argument.partition("=")
        if wanted and name in names:
            return f"{name} is '{value if equals else following}'; wanted {wanted}"
    return ""


def _interrupted(error: BaseException) -> bool:
    """Whether Ctrl-C caused the error, however it was wrapped."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, KeyboardInterrupt):
            return True
        cause = cause.__cause__ or cause.__context__
    return False
