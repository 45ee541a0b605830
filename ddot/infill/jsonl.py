"""Files of texts: JSON lines in, JSON lines out, in the same order. A run that was stopped goes on where it stopped.

Input: {"id", "text"} or {"id", "free"}, with "seed", "steps", "n" and other settings of `Model.infill` if wanted.
Output: {"id", "text", "fills", "score", "steps", "seed", "seconds"}, with what is unusual about the settings and the
model, or {"id", "error"} for a bad line.
"""

import hashlib
import json
import os
import time
from collections.abc import Callable, Generator, Iterator
from dataclasses import asdict, dataclass
from itertools import islice, takewhile, zip_longest
from pathlib import Path
from types import TracebackType
from typing import IO, Any

from ddot.files import write_whole
from ddot.infill.engine import Task
from ddot.infill.model import EMBEDDED_NAME, Model
from ddot.infill.scheduler import in_order
from ddot.interrupts import interruptions

SETTINGS: dict[str, type | tuple[type, ...]] = {
    "n": int,
    "seed": int,
    "steps": int,
    "temperature": (int, float),
    "top_p": (int, float),
    "terminal": str,
}


_FEW = 8192  # lines; a file of more is written anew when most of them are no longer waited for


def fingerprint(line: bytes, defaults: dict[str, Any]) -> str:
    """Tells whether a result belongs to this line, asked in this way."""
    return hashlib.blake2b(line.strip() + json.dumps(defaults).encode(), digest_size=12).hexdigest()


class Ahead:
    """A context that keeps results beside an output, by the number of their line.

    They are those that are finished before earlier ones, kept until these are there: a kill loses none.
    """

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


@dataclass(frozen=True)
class Summary:
    lines: int
    errors: int
    before: int  # lines that an earlier run had finished
    interrupted: bool


def answer(model: Model, number: int, line: bytes, defaults: dict[str, Any]) -> Generator[Task, Any, dict[str, Any]]:
    """The way to the output for one input line. A mistake in it becomes an error; `number` stands in for a missing id.

    The output's "seconds" are from when the line was begun, among others at work, until its answer was there.
    """
    known: Any = number
    try:
        try:
            request = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise ValueError(f'line {number} is no JSON ({error}); wanted {{"id": …, "text": "… ___ …"}}') from None
        if not isinstance(request, dict):
            raise ValueError(f'line {number} is a {type(request).__name__}; wanted {{"id": …, "text": "… ___ …"}}')
        known = request.get("id", number)
        return {"id": known, **(yield from _filled(model, number, request, defaults))}
    except ValueError as error:
        return {"id": known, "error": str(error)}


def _filled(
    model: Model, number: int, request: dict[str, Any], defaults: dict[str, Any]
) -> Generator[Task, Any, dict[str, Any]]:
    given = [name for name in ("text", "free") if name in request]
    if len(given) != 1 or not isinstance(request[given[0]], str):
        has = ", ".join(request) or "nothing"
        raise ValueError(f'line {number} wants either "text" or "free", a string; it has {has}')
    settings = dict(defaults)
    for name, kind in SETTINGS.items():
        if name in request:
            if not isinstance(request[name], kind) or isinstance(request[name], bool):
                raise ValueError(f'line {number}: "{name}" is {request[name]!r}; wanted {_kind_name(kind)}')
            settings[name] = request[name]
    start = time.perf_counter()
    answers = yield from model.way(request[given[0]], free=given[0] == "free", **settings)
    found = [asdict(each) for each in answers]
    more = {"alternatives": found[1:]} if settings["n"] > 1 else {}
    spent = round(time.perf_counter() - start, 3)
    about = {"steps": settings["steps"], "seed": settings["seed"], "seconds": spent}
    return {**found[0], **more, **about, **_unusual(model, settings)}


def _unusual(model: Model, settings: dict[str, Any]) -> dict[str, Any]:
    """What an answer says of how it was made, beside its steps and seed: settings and a model that are unusual."""
    usual = {"temperature": 0.0, "top_p": 1.0, "terminal": None, "model": EMBEDDED_NAME}
    settings = usual | settings | {"model": model.name}
    return {name: settings[name] for name, value in usual.items() if settings[name] != value}


def _kind_name(kind: type | tuple[type, ...]) -> str:
    return "a string" if kind is str else "a whole number" if kind is int else "a number"


def fill_file(
    model: Model,
    source: Path,
    output: Path,
    defaults: dict[str, Any],
    each: Callable[[int], None] = lambda done: None,
    rank: int = 0,
    world: int = 1,
) -> Summary:
    """Fill every line of `source` (of several processes: every world-th, from line `rank`) and append it to `output`.

    Lines that `output` holds already are not filled again. `each` is told how many lines are done. What is finished
    before an earlier line waits in a file beside `output`. After an interruption the lines at work are finished.
    """
    if not source.is_file():
        raise FileNotFoundError(f'no file at {source}; wanted JSON lines with "text"')
    with open(source, "rb") as file:
        if b"\0" in file.read(1 << 16):
            raise ValueError(f'{source} is a binary file; wanted JSON lines with "text"')
    if output.exists() and output.samefile(source):
        raise ValueError(f"{output} is the input itself; choose another --output")
    if output.is_dir() or not output.parent.is_dir():
        wrong = f"{output} is a folder" if output.is_dir() else f"there is no folder {output.parent}"
        raise FileNotFoundError(f"{wrong}; --output wants a file in a folder that exists")
    model.way("___", **defaults).close()  # what is wrong for every line is told at once
    before, errors = _finished(model, source, output, defaults, rank, world)
    done = before
    each(done)
    notice = "" if world > 1 else "ddot: the lines at work are finished first; another Ctrl-C drops them\n"
    with (
        interruptions(hold_back_all=world > 1, notice=notice) as interrupted,
        open(output, "ab") as sink,
        Ahead(output) as ahead,
    ):
        lines = takewhile(lambda _: not interrupted(), islice(_mine(source, rank, world), before, None))

        def kept() -> Iterator[tuple[int, dict[str, Any]]]:
            for index, asked, result in model.finished(_ways(model, lines, before, defaults, ahead)):
                if index > done:
                    ahead.keep(index, asked, result)
                yield index - before, result

        for result in in_order(kept()):
            _write(sink, result)
            ahead.forget(done)
            errors += "error" in result
            done += 1
            each(done)
        return Summary(done, errors, before, interrupted())


def _ways(
    model: Model, lines: Iterator[tuple[int, bytes]], first: int, defaults: dict[str, Any], ahead: Ahead
) -> Iterator[Generator[Task, Any, tuple[int, str, dict[str, Any]]]]:
    """The ways to (index of the line, its fingerprint, its output); a short one to what an earlier run has finished."""

    def way(index: int, number: int, line: bytes) -> Generator[Task, Any, tuple[int, str, dict[str, Any]]]:
        asked = fingerprint(line, {**defaults, "model": model.name})
        known = ahead.known(index, asked)
        return index, asked, (yield from answer(model, number, line, defaults)) if known is None else known

    for index, (number, line) in enumerate(lines, first):
        yield way(index, number, line)


def _mine(source: Path, rank: int, world: int) -> Iterator[tuple[int, bytes]]:
    """(line number from 1, line) of the lines of this process that are not empty."""
    with open(source, "rb") as lines:
        filled = ((number, line) for number, line in enumerate(lines, 1) if line.strip())
        yield from islice(filled, rank, None, world)


def count_lines(source: Path) -> int:
    """How many lines there are to fill."""
    with open(source, "rb") as lines:
        return sum(bool(line.strip()) for line in lines)


def _finished(
    model: Model, source: Path, output: Path, defaults: dict[str, Any], rank: int, world: int
) -> tuple[int, int]:
    """(lines done, errors among them) of an output that was begun. A last line that is cut off is taken away.

    A file that is not such an output is refused, not touched.
    """
    if not output.exists():
        return 0, 0
    whole = done = errors = 0
    foreign = ValueError(f"{output} exists and is no output for {source.name}; choose another --output")
    with open(output, "rb") as lines:
        for (number, asked), line in zip(_mine(source, rank, world), lines, strict=False):
            if not line.endswith(b"\n"):
                if not line.startswith(b'{"id": '[: len(line)]):
                    raise foreign
                break
            found = _parsed(line)
            if "id" not in found or not ("text" in found or "error" in found):
                raise foreign
            wanted = {"id": number, **defaults, **_parsed(asked)}
            if other := _other(model, found, wanted):
                raise ValueError(
                    f"{output} was made from other lines or settings: line {done + 1} has another {other}; "
                    "choose another --output"
                )
            whole, done, errors = whole + len(line), done + 1, errors + ("error" in found)
        if b"\n" in lines.read():
            raise ValueError(f"{output} has more lines than {source.name}; choose another --output")
    os.truncate(output, whole)
    return done, errors


def _other(model: Model, found: dict[str, Any], wanted: dict[str, Any]) -> str | None:
    """In what an answer is not the one to a line, as far as it tells."""
    told = ("id", "seed", "steps")
    wants = {name: wanted.get(name) for name in told} | _unusual(model, wanted)
    for name in ("id",) if "error" in found else (*told, "temperature", "top_p", "terminal", "model"):
        if json.dumps(found.get(name)) != json.dumps(wants.get(name)):
            return name
    if "error" in found:
        return None
    if ("alternatives" in found) != (wanted["n"] != 1):
        return "n"
    try:
        template = model.template(str(wanted.get("text", wanted.get("free"))), "free" in wanted)
        return None if template.text(found["fills"]) == found["text"] else "text"
    except (ValueError, TypeError, KeyError, AttributeError):
        return "text"


def _parsed(line: bytes) -> dict[str, Any]:
    """The object a line holds; an empty one if it holds none."""
    try:
        found = json.loads(line)
    except (ValueError, RecursionError):  # no JSON, no UTF-8, numbers of thousands of digits
        return {}
    return found if isinstance(found, dict) else {}


def _write(sink: IO[bytes], result: dict[str, Any]) -> None:
    sink.write(json.dumps(result, ensure_ascii=False).encode(errors="backslashreplace") + b"\n")
    sink.flush()


def part_of(output: Path, rank: int, world: int) -> Path:
    """Where one of several processes writes its lines."""
    return output if world == 1 else output.with_name(f"{output.name}.part-{rank}-of-{world}")


def merge(output: Path, world: int) -> None:
    """The parts of several processes, line by line in turn, as one file; the parts go away."""
    parts = [part_of(output, rank, world) for rank in range(world)]
    draft = output.with_name(f"{output.name}.unfinished")
    files = [open(part, "rb") for part in parts]  # noqa: SIM115
    try:
        with open(draft, "wb") as sink:
            for row in zip_longest(*files):
                sink.writelines(line for line in row if line is not None)
    finally:
        for file in files:
            file.close()
    os.replace(draft, output)
    for part in parts:
        part.unlink()
