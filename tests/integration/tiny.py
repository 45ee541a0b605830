"""A run so small that a step takes milliseconds, and the `ddot` command in processes that have torch imported."""

import dataclasses
import multiprocessing
import os
import resource
import runpy
import sys
from pathlib import Path

from ddot.training.config import Run, override
from ddot.training.recipes import toy

HERE = str(Path(__file__).parent)
# On the command line, `toy` with these is `tiny()`.
SETTINGS = (
    "training.steps=12",
    "training.slots=96",
    "training.warmup=3",
    "training.log_every=1",
    "training.save_every=4",
)


def tiny(*settings: str) -> Run:
    """The recipe `toy` in twelve steps of a few rows."""
    return override(toy(), [*SETTINGS, *settings])


def options(*settings: str) -> list[str]:
    """The same for the command line."""
    return [part for setting in (*SETTINGS, *settings) for part in ("--set", setting)]


@dataclasses.dataclass(frozen=True)
class Finished:
    status: int | None
    printed: str
    told: str


class Command:
    """A `ddot` command, or a script, in a process of its own, forked from one that has the imports behind it."""

    def __init__(
        self,
        place: Path,
        arguments: list[str],
        largest_file: int | None = None,
        stdin: str | bytes = "",
        cwd: Path | None = None,
    ):
        self.files = place / "stdout.txt", place / "stderr.txt"
        (place / "stdin.txt").write_bytes(stdin.encode() if isinstance(stdin, str) else stdin)
        files = [str(place / "stdin.txt"), *map(str, self.files)]
        self.process = _server().Process(target=_run, args=(arguments, largest_file, files, cwd and str(cwd)))
        self.process.start()

    def result(self, timeout: float = 300) -> Finished:
        self.process.join(timeout)
        assert self.process.exitcode is not None, "the command did not end: " + self.files[1].read_text()
        return Finished(self.process.exitcode, *(file.read_bytes().decode() for file in self.files))


def ddot(place: Path, *arguments: str, **more) -> Finished:
    """What a command printed, and its exit status."""
    return Command(place, list(arguments), **more).result()


def _server() -> multiprocessing.context.ForkServerContext:
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["warmed", "ddot.cli"])
    if HERE not in os.environ.get("PYTHONPATH", ""):
        os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, (HERE, os.environ.get("PYTHONPATH"))))
    return context


def _run(arguments: list[str], largest_file: int | None, files: list[str], cwd: str | None) -> None:
    from ddot.cli import run

    os.dup2(os.open(files[0], os.O_RDONLY), 0)
    for number, file in ((1, files[1]), (2, files[2])):
        os.dup2(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), number)
    sys.stdin = os.fdopen(0)
    sys.stdout, sys.stderr = os.fdopen(1, "w", buffering=1), os.fdopen(2, "w", buffering=1)
    if largest_file is not None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (largest_file, resource.RLIM_INFINITY))
    if cwd is not None:
        os.chdir(cwd)
    if arguments[0].endswith(".py"):
        runpy.run_path(arguments[0], run_name="__main__")
        return
    sys.argv = ["ddot", *arguments]
    run()
