"""Where `ddot evaluate` writes: rows, and the texts beside them. A kill in the middle of either loses no whole line.

Several may fill one file at once: lines are added in one piece, while nobody else adds any.
"""

import json
import os
import sys
from collections.abc import Iterable, Mapping
from contextlib import suppress
from itertools import product
from pathlib import Path
from tempfile import TemporaryFile
from threading import Lock
from typing import Any, BinaryIO

from ddot.evaluation.items import Text
from ddot.evaluation.rows import IDENTITY, Row, identity

if sys.platform != "win32":
    import fcntl

_BEGIN = b'{"model": '  # of every line that is written here
# Threads of one process; other processes are kept out by a lock on the file, where there are such locks.
_WRITING = Lock()
# What rows say of how their model was trained.
_TRAINING = {
    "recipe": "the recipe",
    "position_factor": "a λ of",
    "training_steps": "steps of training:",
    "training_seconds": "seconds of training:",
}


class Ledger:
    """A file of rows and one of texts, of which no more is changed than that lines are added.

    A last line that a kill cut off is taken away. A file that holds anything else is left as it is, and refused.
    """

    def __init__(self, file: Path):
        if file.is_dir():
            raise ValueError(f"{file} is a folder; name a file for the rows, in it or elsewhere")
        if not file.parent.is_dir():
            what = "is no folder" if file.parent.exists() else "is not there; make that folder first"
            raise FileNotFoundError(f"{file} cannot be written, {file.parent} {what}")
        if file.name.endswith(".texts.jsonl"):
            raise ValueError(f"{file} is a name for texts; leave out .texts, they go beside the rows")
        if file.suffix != ".jsonl" or (file.exists() and not file.is_file()):
            raise ValueError(f"{file} is no place for rows; give the name of a file that ends in .jsonl")
        self.file, self.texts = file, file.with_suffix(".texts.jsonl")
        there = {identity(row) for row in self.rows}
        self._unfinished: dict[tuple[Any, ...], dict[tuple[str, Any], str]] = {}
        for text in _read(self.texts, texts=True):
            if (key := identity(text)) not in there:
                self._unfinished.setdefault(key, {})[str(text["id"]), text.get("made")] = text["text"]
        for path in (file, self.texts):
            _refuse_unwritable(path)
            mend(path)

    @property
    def rows(self) -> list[dict[str, Any]]:
        """Those there are now: somebody else may have added some."""
        return _read(self.file, texts=False)

    def __contains__(self, row: Row) -> bool:
        """Whether it was measured already."""
        return identity(row) in map(identity, self.rows)

    def unfinished(self, row: Row, made: Mapping[str, str]) -> dict[str, str]:
        """Texts of a row that is not there yet, by their items: what was filled before an interruption.

        `made` says of an item what its text must be made with; others are not gone on with.
        """
        found = self._unfinished.get(identity(row), {})
        return {name: found[name, mark] for name, mark in made.items() if (name, mark) in found}

    def check_training(self, model: str, training: Mapping[str, Any]) -> None:
        """Refuse a model that was trained otherwise since it filled what is here."""
        for row, (field, what) in product(self.rows, _TRAINING.items()):
            had, has = row.get(field), training.get(field)
            if row["model"] == model and had is not None and had != has:
                raise ValueError(
                    f"{self.file} has rows of {model} with {what} {had}, and it has {'none' if has is None else has} "
                    "now; choose another --output, or take those rows out"
                )

    def add_texts(self, row: Row, texts: Mapping[str, Text], made: Mapping[str, str]) -> None:
        """Texts of a row that is to come, by their items, and what they are made with. A row has all of its texts."""
        about = {name: row[name] for name in IDENTITY}
        said = {name: text if isinstance(text, str) else " ".join(text) for name, text in texts.items()}
        append(self.texts, (about | {"id": name, "text": text, "made": made[name]} for name, text in said.items()))

    def add(self, row: Row) -> None:
        append(self.file, [row])


def append(file: Path, rows: Iterable[Mapping[str, Any]]) -> None:
    """Add lines to rows or texts, none of them to a line that somebody's kill cut off."""
    _mend_and_add(file, "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows).encode())


def mend(file: Path) -> None:
    """Give the last line of rows or texts its end, or take it away where a kill cut it off."""
    if file.is_file() and _mended(whole := file.read_bytes()) != whole:
        _mend_and_add(file, b"")


def _mend_and_add(file: Path, lines: bytes) -> None:
    """In one go: what looked cut off may have been written on since, what looked whole may have been cut off."""
    try:
        with _WRITING, open(file, "a+b") as opened:
            _wait_for_others(opened)
            opened.seek(max(0, opened.seek(0, os.SEEK_END) - 1))
            if opened.read(1) not in (b"", b"\n"):
                opened.seek(0)
                mended = _mended(whole := opened.read())
                if len(mended) < len(whole):
                    opened.truncate(len(mended))
                lines = mended[len(whole) :] + lines
            opened.write(lines)  # at the end, wherever one has read
    except OSError as error:
        raise OSError(f"{file} cannot be written ({error.strerror}); make room, or choose another --output") from error


def _wait_for_others(opened: BinaryIO) -> None:
    """Nobody else changes the file until it is closed."""
    if sys.platform != "win32":
        with suppress(OSError):  # not every file system knows of locks
            fcntl.flock(opened, fcntl.LOCK_EX)


def _mended(whole: bytes) -> bytes:
    last = whole.rpartition(b"\n")[2]
    if not last:
        return whole
    try:
        json.loads(last)
        return whole + b"\n"
    except ValueError:
        return whole[: -len(last)] if last.startswith(_BEGIN[: len(last)]) else whole


def _read(file: Path, texts: bool) -> list[dict[str, Any]]:
    """The lines of a file, as they are once it is mended."""
    found = []
    for number, line in enumerate(_mended(file.read_bytes()).splitlines() if file.is_file() else (), 1):
        try:
            found.append(_line(line, texts))
        except ValueError:
            what = "text" if texts else "row"
            raise ValueError(
                f"{file}, line {number} is no {what} of an evaluation; choose another --output, or mend that line"
            ) from None
    return found


def _line(line: bytes, texts: bool) -> dict[str, Any]:
    row = json.loads(line)
    if not isinstance(row, dict) or ("text" in row) != texts:
        raise ValueError("another kind of line")
    if texts and not (isinstance(row["text"], str) and isinstance(row.get("id"), str | int)):
        raise ValueError("no text of an item")
    identity(row)
    return row


def _refuse_unwritable(file: Path) -> None:
    """Before the work is done, and without making a file that others may begin to write into."""
    try:
        there = file.resolve()
        with open(there, "ab") if there.exists() else TemporaryFile(dir=there.parent):
            pass
    except (OSError, RuntimeError) as error:  # of links that lead to themselves
        why = getattr(error, "strerror", None) or error
        raise ValueError(f"{file} cannot be written ({why}); choose another --output") from None
