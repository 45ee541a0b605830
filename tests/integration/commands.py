"""The command line as tests use it: in a forked process, or in this one for a mistake."""

import sys
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from tiny import ddot as forked

ROOT = Path(__file__).parents[2]
SENTENCES = ["The small boat leaves the harbour at dawn.", "My sister sings while she waters the garden.", "It rains."]


@dataclass(frozen=True)
class Done:
    returncode: int | None
    stdout: str
    stderr: str


def ddot(*arguments: object, stdin: str | bytes = "", cwd: Path = ROOT) -> Done:
    """What a command says in a process of its own, forked after the imports: they take seconds."""
    with TemporaryDirectory() as place:
        found = forked(Path(place), *map(str, arguments), stdin=stdin, cwd=cwd)
    return Done(found.status, found.printed, found.told)


def mistake(capsys, monkeypatch, *arguments: object) -> str:
    """The sentence a mistake gets, told in this process: status 2, nothing on stdout."""
    from ddot.cli import run

    monkeypatch.setattr(sys, "argv", ["ddot", *map(str, arguments)])
    with pytest.raises(SystemExit) as stopped:
        run()
    said = capsys.readouterr()
    assert stopped.value.code == 2, said.err
    assert said.out == ""
    return said.err
