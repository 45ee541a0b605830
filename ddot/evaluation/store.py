"""Two append-only JSONL files: result rows, and the generated texts beside them.

Lines are appended under a lock, so several processes can share a file. A line cut off by a kill is removed; a file with
anything else in it is refused and left unchanged.
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

_PREFIX = b'{"model": '  # of every line written here
_WRITING = Lock()  # between threads; processes lock the file, if the file system supports it
_TRAINING = ("recipe", "position_factor", "training_steps", "training_seconds")  # fields of a row about training


def read_rows(*files: Path) -> list[dict[str, Any]]:
    """The lines of JSONL files, in order; each knows its file and line number."""
    rows: list[dict[str, Any]] = []
    for file in files:
        if file.is_dir():
            raise ValueError(f"{file} is a folder; give the files of rows in it")
        if not file.is_file():
            raise FileNotFoundError(f"no rows at {file}; make them with ddot evaluate … --output {file}")
        rows += _lines(file, file.read_bytes())
    return rows


def _lines(file: Path, data: bytes) -> list[Raw]:
    try:
        lines = data.decode().split("\n")
    except UnicodeDecodeError as error:
        raise ValueError(f"{file} is not UTF-8 text ({error.reason}); expected rows as JSON lines") from None
    rows = []
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except (ValueError, RecursionError) as error:
            reason = getattr(error, "msg", "nested too deep, or a number too long")
            cut = "; it was cut off: remove it, or resume the command that wrote it" * (number == len(lines))
            raise ValueError(f"{file}, line {number}: expected JSON, got '{line[:40]}' ({reason}){cut}") from None
        if not isinstance(row, dict):
            raise ValueError(f"{file}, line {number}: expected a JSON object, got '{line[:40]}'")
        rows.append(Raw(row, place=f"{file}, line {number}"))
    return rows


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
        finished = {row.key for row in self.rows}
        self._unfinished: dict[Identity, dict[tuple[str, str | None], str]] = {}
        for text in _read(self.texts, FilledText):
            if text.key not in finished:
                self._unfinished.setdefault(text.key, {})[text.id, text.made] = text.text
        for path in (file, self.texts):
            _refuse_unwritable(path)
            mend(path)

    @property
    def rows(self) -> list[Row]:
        """The rows in the file now; other processes may have added some."""
        return _read(self.file, Row)

    def __contains__(self, row: Row) -> bool:
        return row.key in {stored.key for stored in self.rows}

    def unfinished(self, row: Row, made: Mapping[str, str]) -> dict[str, str]:
        """Texts of an interrupted row, by item, if their checksum is the one in `made`."""
        texts = self._unfinished.get(row.key, {})
        return {item: texts[item, mark] for item, mark in made.items() if (item, mark) in texts}

    def check_training(self, model: str, training: Mapping[str, Any]) -> None:
        """Refuse a model that was trained further after it made rows in the file."""
        for row, field in product((row for row in self.rows if row.model == model), _TRAINING):
            before, now = getattr(row, field), training.get(field)
            if before is not None and before != now:
                change = f"{self.file} has rows of {model} with {field} {before}, now it has {now}"
                raise ValueError(f"{change}; choose another --output, or remove those rows")

    def add_texts(self, row: Row, texts: Mapping[str, str], made: Mapping[str, str]) -> None:
        """Store texts by item. All texts of a row are stored before the row itself."""
        identity = {"model": row.model, **asdict(row.key)}
        append(self.texts, (identity | {"id": item, "text": text, "made": made[item]} for item, text in texts.items()))

    def add(self, row: Row) -> None:
        append(self.file, [row.json()])


def _read(file: Path, record: type[R]) -> list[R]:
    """The records of a file, as they will be once it is mended."""
    records: list[R] = []
    try:
        for line in _lines(file, _mended(file.read_bytes())) if file.is_file() else ():
            if ("text" in line) != (record is FilledText):
                raise ValueError(f"{line.place} is another kind of line")
            records.append(parse(record, line))
    except ValueError as error:
        raise ValueError(f"{error}; choose another --output, or fix that line") from None
    return records


def mend(file: Path) -> None:
    """Terminate the last line of a file, or remove it if a kill cut it off."""
    if file.is_file() and _mended(data := file.read_bytes()) != data:
        append(file, ())


def append(file: Path, rows: Iterable[Mapping[str, Any]]) -> None:
    """Mend the file and write the lines at once, under one lock: a line being written looks cut off."""
    lines = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows).encode()
    try:
        with _WRITING, open(file, "a+b") as stream:
            _lock(stream)
            stream.seek(max(0, stream.seek(0, os.SEEK_END) - 1))
            if stream.read(1) not in (b"", b"\n"):
                stream.seek(0)
                mended = _mended(data := stream.read())
                if len(mended) < len(data):
                    stream.truncate(len(mended))
                lines = mended[len(data) :] + lines
            stream.write(lines)  # always at the end
    except OSError as error:
        raise OSError(f"{file} cannot be written ({error.strerror}); free space, or choose another --output") from error


def _lock(stream: BinaryIO) -> None:
    """Lock the file until it is closed."""
    if sys.platform != "win32":
        with suppress(OSError):  # not every file system supports locks
            fcntl.flock(stream, fcntl.LOCK_EX)


def _mended(data: bytes) -> bytes:
    last = data.rpartition(b"\n")[2]
    if not last:
        return data
    try:
        json.loads(last)
        return data + b"\n"
    except (ValueError, RecursionError):
        return data[: -len(last)] if last.startswith(_PREFIX[: len(last)]) else data


def _refuse_unwritable(file: Path) -> None:
    """Checked before any work, without creating the file."""
    try:
        target = file.resolve()
        with open(target, "ab") if target.exists() else TemporaryFile(dir=target.parent):
            pass
    except (OSError, RuntimeError) as error:  # RuntimeError: a link that leads to itself
        reason = getattr(error, "strerror", None) or error
        raise ValueError(f"{file} cannot be written ({reason}); choose another --output") from None
