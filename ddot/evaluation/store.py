"""Two append-only JSONL files: result rows, and the generated texts beside them.

Lines are added under a lock, so several processes may share a file. A line cut off by a kill is removed; a file that
holds anything else is refused and left as it is.
"""

import json
import os
import sys
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import asdict
from itertools import product
from pathlib import Path
from tempfile import TemporaryFile
from threading import Lock
from typing import Any, BinaryIO

from ddot.evaluation.rows import FilledText, Identity, R, Raw, Row, parse

if sys.platform != "win32":
    import fcntl

_BEGIN = b'{"model": '  # of every line written here
_WRITING = Lock()  # among threads; processes are kept apart by a lock on the file, where the file system has them
_TRAINING = ("recipe", "position_factor", "training_steps", "training_seconds")  # what rows say of their model's


def read_rows(*files: Path) -> list[dict[str, Any]]:
    """The lines of JSONL files, in order; each knows its place."""
    found: list[dict[str, Any]] = []
    for file in files:
        if file.is_dir():
            raise ValueError(f"{file} is a folder; give the files of rows in it")
        if not file.is_file():
            raise FileNotFoundError(f"no rows at {file}; make them with ddot evaluate … --output {file}")
        found += _lines(file, file.read_bytes())
    return found


def _lines(file: Path, data: bytes) -> list[Raw]:
    try:
        lines = data.decode().split("\n")
    except UnicodeDecodeError as error:
        raise ValueError(f"{file} is not UTF-8 text ({error.reason}); wanted rows as JSON lines") from None
    found = []
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except (ValueError, RecursionError) as error:
            why = getattr(error, "msg", "nested too deep, or a number too long")
            cut = "; it was cut off: remove it, or resume what wrote it" * (number == len(lines))
            raise ValueError(f"{file}, line {number}: wanted JSON, got '{line[:40]}' ({why}){cut}") from None
        if not isinstance(row, dict):
            raise ValueError(f"{file}, line {number}: wanted a JSON object, got '{line[:40]}'")
        found.append(Raw(row, place=f"{file}, line {number}"))
    return found


def texts_of(file: Path) -> Path:
    """The file of texts beside a file of rows."""
    return file.with_suffix(".texts.jsonl")


class Store:
    """The rows and texts of `ddot evaluate`."""

    def __init__(self, file: Path):
        if file.suffix != ".jsonl" or file.name.endswith(".texts.jsonl") or file.is_dir():
            raise ValueError(f"{file} cannot hold rows; give a file name that ends in .jsonl, not in .texts.jsonl")
        if not file.parent.is_dir():
            raise FileNotFoundError(f"{file} cannot be written: there is no folder {file.parent}; make it first")
        self.file, self.texts = file, texts_of(file)
        there = {row.key for row in self.rows}
        self._unfinished: dict[Identity, dict[tuple[str, str | None], str]] = {}
        for text in _read(self.texts, FilledText):
            if text.key not in there:
                self._unfinished.setdefault(text.key, {})[text.id, text.made] = text.text
        for path in (file, self.texts):
            _refuse_unwritable(path)
            mend(path)

    @property
    def rows(self) -> list[Row]:
        """The rows in the file now: another process may have added some."""
        return _read(self.file, Row)

    def __contains__(self, row: Row) -> bool:
        return row.key in {each.key for each in self.rows}

    def unfinished(self, row: Row, made: Mapping[str, str]) -> dict[str, str]:
        """Texts of an interrupted row, by item, as far as they were made with what `made` says."""
        found = self._unfinished.get(row.key, {})
        return {name: found[name, mark] for name, mark in made.items() if (name, mark) in found}

    def check_training(self, model: str, training: Mapping[str, Any]) -> None:
        """Refuse a model that has been trained since it made the rows in the file."""
        for row, field in product((row for row in self.rows if row.model == model), _TRAINING):
            had, has = getattr(row, field), training.get(field)
            if had is not None and had != has:
                now = f"{self.file} has rows of {model} with {field} {had}, now it has {has}"
                raise ValueError(f"{now}; choose another --output, or remove those rows")

    def add_texts(self, row: Row, texts: Mapping[str, str], made: Mapping[str, str]) -> None:
        """Texts of a row to come, by item. They are complete before the row is added."""
        about = {"model": row.model, **asdict(row.key)}
        append(self.texts, (about | {"id": name, "text": text, "made": made[name]} for name, text in texts.items()))

    def add(self, row: Row) -> None:
        append(self.file, [row.json()])


def _read(file: Path, record: type[R]) -> list[R]:
    """The records of a file, as they are once it is mended."""
    found: list[R] = []
    try:
        for line in _lines(file, _mended(file.read_bytes())) if file.is_file() else ():
            if ("text" in line) != (record is FilledText):
                raise ValueError(f"{line.place} is another kind of line")
            found.append(parse(record, line))
    except ValueError as error:
        raise ValueError(f"{error}; choose another --output, or mend that line") from None
    return found


def append(file: Path, rows: Iterable[Mapping[str, Any]]) -> None:
    """Add lines in one piece, after removing a line that was cut off."""
    _mend_and_add(file, "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows).encode())


def mend(file: Path) -> None:
    """End the last line of a file, or remove it where a kill cut it off."""
    if file.is_file() and _mended(whole := file.read_bytes()) != whole:
        _mend_and_add(file, b"")


def _mend_and_add(file: Path, lines: bytes) -> None:
    """Both under one lock: what looked cut off may have been completed since."""
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
            opened.write(lines)  # always at the end
    except OSError as error:
        raise OSError(f"{file} cannot be written ({error.strerror}); free space, or choose another --output") from error


def _wait_for_others(opened: BinaryIO) -> None:
    """Lock the file until it is closed."""
    if sys.platform != "win32":
        with suppress(OSError):  # not every file system has locks
            fcntl.flock(opened, fcntl.LOCK_EX)


def _mended(whole: bytes) -> bytes:
    last = whole.rpartition(b"\n")[2]
    if not last:
        return whole
    try:
        json.loads(last)
        return whole + b"\n"
    except (ValueError, RecursionError):
        return whole[: -len(last)] if last.startswith(_BEGIN[: len(last)]) else whole


def _refuse_unwritable(file: Path) -> None:
    """Before any work, and without creating the file."""
    try:
        there = file.resolve()
        with open(there, "ab") if there.exists() else TemporaryFile(dir=there.parent):
            pass
    except (OSError, RuntimeError) as error:  # links that lead to themselves
        why = getattr(error, "strerror", None) or error
        raise ValueError(f"{file} cannot be written ({why}); choose another --output") from None
