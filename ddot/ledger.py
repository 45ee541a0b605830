"""Where `ddot evaluate` writes: rows, and the texts beside them. A kill in the middle of either loses no whole line."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ddot.benchmarks import Text
from ddot.files import write_whole
from ddot.rows import IDENTITY, Row, identity

_BEGIN = b'{"model": '  # of every line that is written here


class Ledger:
    """A file of rows and one of texts, of which no more is changed than that lines are added.

    A last line that a kill cut off is taken away. A file that holds anything else is left as it is, and refused.
    """

    def __init__(self, file: Path):
        if file.is_dir():
            raise ValueError(f"{file} is a folder; name a file for the rows, in it or elsewhere")
        if not file.parent.is_dir():
            raise FileNotFoundError(f"there is no folder {file.parent}; make it first")
        self.file, self.texts = file, file.with_suffix(".texts.jsonl")
        if file.name.endswith(".texts.jsonl"):
            raise ValueError(f"{file} is a name for texts; leave out .texts, they go beside the rows")
        self.rows, rows = _read(file, texts=False)
        _, texts = _read(self.texts, texts=True)
        for path, kept in ((file, rows), (self.texts, texts)):
            _try_to_write(path)
            if kept is not None:
                write_whole(path.resolve(), kept)
        self._there = {identity(row) for row in self.rows}

    def __contains__(self, row: Row) -> bool:
        """Whether it was measured already."""
        return identity(row) in self._there

    def check_training(self, model: str, training: Mapping[str, Any]) -> None:
        """Refuse a model that has learnt more, or less, since it filled what is here."""
        for row in self.rows:
            had, has = row.get("training_steps"), training.get("training_steps")
            if row["model"] == model and had is not None and had != has:
                raise ValueError(
                    f"{self.file} has rows of {model} after {had} steps of training, and it has {has or 'none'} now; "
                    "choose another --output, or take those rows out"
                )

    def add(self, row: Mapping[str, Any], texts: Mapping[str, Text]) -> None:
        """The texts first: a row that is there has all of its texts."""
        about = {name: row[name] for name in IDENTITY}
        with open(self.texts, "a", encoding="utf-8") as file:
            for name, text in texts.items():
                said = about | {"id": name, "text": text if isinstance(text, str) else " ".join(text)}
                file.write(json.dumps(said, ensure_ascii=False) + "\n")
        with open(self.file, "a", encoding="utf-8") as file:
            file.write(json.dumps(row) + "\n")


def _read(file: Path, texts: bool) -> tuple[list[dict[str, Any]], bytes | None]:
    """(the lines of a file, what it must hold instead where its last line has no end)."""
    whole = file.read_bytes() if file.is_file() else b""
    *lines, last = whole.split(b"\n")
    try:
        found = [_line(line, texts) for line in lines if line.strip()]
    except ValueError:
        what = "texts" if texts else "rows"
        raise ValueError(f"{file} exists and holds no {what} of an evaluation; choose another --output") from None
    if not last:
        return found, None
    try:
        return [*found, _line(last, texts)], whole + b"\n"
    except ValueError:
        if not last.startswith(_BEGIN[: len(last)]):
            raise ValueError(f"{file} does not end as rows do; choose another --output") from None
        return found, whole[: -len(last)]


def _line(line: bytes, texts: bool) -> dict[str, Any]:
    row = json.loads(line)
    if not isinstance(row, dict) or ("text" in row) != texts:
        raise ValueError("another kind of line")
    identity(row)
    return row


def _try_to_write(file: Path) -> None:
    """Refuse a file that cannot be written before the work is done, and leave nothing behind."""
    was_there = file.exists()
    try:
        with open(file, "ab"):
            pass
    except OSError as error:
        raise ValueError(f"{file} cannot be written ({error.strerror}); choose another --output") from None
    if not was_there:
        file.unlink()
