"""Results of lines that are finished before earlier ones, kept in a file until these are there: a kill loses none."""

import hashlib
import json
from pathlib import Path
from types import TracebackType
from typing import IO, Any

from ddot.files import write_whole

_FEW = 8192  # lines; a file of more is written anew when most of them are no longer waited for


def fingerprint(line: bytes, defaults: dict[str, Any]) -> str:
    """Tells whether a result belongs to this line, asked in this way."""
    return hashlib.blake2b(line.strip() + json.dumps(defaults).encode(), digest_size=12).hexdigest()


class Ahead:
    """A context that keeps results beside an output, by the number of their line."""

    def __init__(self, output: Path):
        self.path = output.with_name(f"{output.name}.ahead")
        self.waiting: dict[int, tuple[str, dict[str, Any]]] = {}
        self.lines = 0
        self.file: IO[bytes] | None = None

    def __enter__(self) -> "Ahead":
        if self.path.is_file():
            for line in self.path.read_bytes().split(b"\n")[:-1]:  # what follows the last end of a line was cut off
                try:
                    number, asked, result = json.loads(line)
                except ValueError:
                    continue
                self.waiting[number] = asked, result
            self._write_anew()
        return self

    def known(self, number: int, asked: str) -> dict[str, Any] | None:
        """The result of a line, if it was kept for the same question."""
        kept = self.waiting.get(number)
        return kept[1] if kept is not None and kept[0] == asked else None

    def keep(self, number: int, asked: str, result: dict[str, Any]) -> None:
        """Write a result down, unless it is there already."""
        if self.known(number, asked) is not None:
            return
        self.waiting[number] = asked, result
        if self.file is None:
            self.file = open(self.path, "ab")  # noqa: SIM115
        self.file.write(_line(number, asked, result))
        self.file.flush()
        self.lines += 1

    def forget(self, number: int) -> None:
        """The result has got to where it belongs."""
        if self.waiting.pop(number, None) and self.lines > _FEW + 2 * len(self.waiting):
            self._write_anew()

    def _write_anew(self) -> None:
        if self.file is not None:
            self.file.close()
            self.file = None
        write_whole(self.path, b"".join(_line(number, *kept) for number, kept in self.waiting.items()))
        self.lines = len(self.waiting)

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        if self.file is not None:
            self.file.close()
        if not self.waiting:
            self.path.unlink(missing_ok=True)


def _line(number: int, asked: str, result: dict[str, Any]) -> bytes:
    return json.dumps([number, asked, result]).encode() + b"\n"
