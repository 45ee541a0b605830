"""Files of texts: JSON lines in, JSON lines out, in the same order. A run that was stopped can be resumed.

Input: {"id", "text"} or {"id", "free"}, and any `Settings` of its own.
Output: {"id", "text", "fills", "score", "steps", "seed", "seconds"}, with the settings and the model that are not the
default ones, or {"id", "error"} for a bad line.
"""

import json
import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass
from itertools import islice, takewhile, zip_longest
from pathlib import Path
from typing import Any

from ddot.infill.answers import Answers, Request
from ddot.infill.model import EMBEDDED_NAME, Model
from ddot.infill.settings import Settings
from ddot.interrupts import interruptions

_WANTED = 'wanted {"id": …, "text": "… ___ …"}'


@dataclass(frozen=True)
class Summary:
    lines: int
    errors: int
    before: int  # lines that an earlier run had finished
    interrupted: bool


@dataclass(frozen=True)
class Line:
    """A line of input: its id (its number if it has none), and the request it makes or what is wrong with it."""

    id: Any
    request: Request | None = None
    error: str = ""


def read_line(model: Model, number: int, line: bytes, settings: Settings) -> Line:
    """The request of an input line; `settings` are those it does not give itself."""
    known: Any = number
    try:
        try:
            asked = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise ValueError(f"line {number} is not JSON ({error}); {_WANTED}") from None
        if not isinstance(asked, dict):
            raise ValueError(f"line {number} is a {type(asked).__name__}; {_WANTED}")
        known = asked.get("id", number)
        given = [name for name in ("text", "free") if name in asked]
        if len(given) != 1 or not isinstance(asked[given[0]], str):
            has = ", ".join(asked) or "nothing"
            raise ValueError(f'line {number} needs either "text" or "free", a string; it has {has}')
        return Line(known, model.request(asked[given[0]], settings.updated(asked), free=given[0] == "free"))
    except ValueError as error:
        return Line(known, error=str(error))


def answer_lines(model: Model, lines: Iterable[Line]) -> Iterator[dict[str, Any]]:
    """The output for each line, in order."""
    waiting: deque[Line] = deque()

    def requests() -> Iterator[Request]:
        for line in lines:
            waiting.append(line)
            if line.request is not None:
                yield line.request

    def failed() -> Iterator[dict[str, Any]]:
        while waiting and waiting[0].request is None:
            bad = waiting.popleft()
            yield {"id": bad.id, "error": bad.error}

    for found in model.answers(requests()):
        yield from failed()
        line = waiting.popleft()
        assert line.request is not None
        yield {"id": line.id, **_output(model, found, line.request.settings)}
    yield from failed()


def _output(model: Model, found: Answers, settings: Settings) -> dict[str, Any]:
    first, *others = (asdict(each.infill) for each in found.best)
    more = {"alternatives": others} if settings.n > 1 else {}
    about = {"steps": settings.steps, "seed": settings.seed, "seconds": round(found.seconds, 3)}
    return {**first, **more, **about, **_unusual(model, settings)}


def _unusual(model: Model, settings: Settings) -> dict[str, Any]:
    """The settings, and the model, of an answer that are not the default ones."""
    names = ("temperature", "top_p", "terminal")
    usual = {name: getattr(Settings(), name) for name in names} | {"model": EMBEDDED_NAME}
    used = {name: getattr(settings, name) for name in names} | {"model": model.name}
    return {name: used[name] for name, value in usual.items() if used[name] != value}


@dataclass(frozen=True)
class Share:
    """The lines of a file that are filled by one of several processes: every `world`-th, from line `rank` on."""

    source: Path
    rank: int = 0
    world: int = 1

    def __iter__(self) -> Iterator[tuple[int, bytes]]:
        """(number from 1, line) of those that are not empty."""
        with open(self.source, "rb") as lines:
            filled = ((number, line) for number, line in enumerate(lines, 1) if line.strip())
            yield from islice(filled, self.rank, None, self.world)

    def __len__(self) -> int:
        return sum(1 for _ in self)


def fill_file(
    model: Model,
    source: Path,
    output: Path,
    settings: Settings | None = None,
    each: Callable[[int], None] = lambda done: None,
    rank: int = 0,
    world: int = 1,
) -> Summary:
    """Fill every line of `source` (or this process's share) and append it to `output`, skipping lines already there.

    `each` is called with the number of lines done. After an interruption the lines at work are finished.
    """
    settings = settings or Settings()
    _check_files(source, output)
    share = Share(source, rank, world)
    before, errors = _finished(model, share, output, settings)
    done = before
    each(done)
    notice = "" if world > 1 else "ddot: finishing the lines at work; press Ctrl-C again to drop them\n"
    with interruptions(hold_back_all=world > 1, notice=notice) as interrupted, open(output, "ab") as sink:
        lines = takewhile(lambda _: not interrupted(), islice(share, before, None))
        for result in answer_lines(model, (read_line(model, *line, settings) for line in lines)):
            sink.write(json.dumps(result, ensure_ascii=False).encode(errors="backslashreplace") + b"\n")
            sink.flush()
            errors += "error" in result
            done += 1
            each(done)
        return Summary(done, errors, before, interrupted())


def _check_files(source: Path, output: Path) -> None:
    if not source.is_file():
        raise FileNotFoundError(f'no file at {source}; wanted JSON lines with "text"')
    with open(source, "rb") as file:
        if b"\0" in file.read(1 << 16):
            raise ValueError(f'{source} is a binary file; wanted JSON lines with "text"')
    if output.exists() and output.samefile(source):
        raise ValueError(f"{output} is the input itself; choose another --output")
    if output.is_dir() or not output.parent.is_dir():
        wrong = f"{output} is a folder" if output.is_dir() else f"there is no folder {output.parent}"
        raise FileNotFoundError(f"{wrong}; --output must be a file in a folder that exists")


def _finished(model: Model, share: Share, output: Path, settings: Settings) -> tuple[int, int]:
    """(lines done, errors among them) of an output that was begun. A last line that was cut off is removed.

    A file that is not such an output is refused and left untouched.
    """
    if not output.exists():
        return 0, 0
    whole = done = errors = 0
    foreign = ValueError(f"{output} exists and is not an output for {share.source.name}; choose another --output")
    with open(output, "rb") as lines:
        for (number, asked), line in zip(share, lines, strict=False):
            if not line.endswith(b"\n"):
                if not line.startswith(b'{"id": '[: len(line)]):
                    raise foreign
                break
            found = _parsed(line)
            if "id" not in found or not ("text" in found or "error" in found):
                raise foreign
            if other := _difference(model, found, {"id": number, **_parsed(asked)}, settings):
                raise ValueError(
                    f"{output} was made from other lines or settings: line {done + 1} has another {other}; "
                    "choose another --output"
                )
            whole, done, errors = whole + len(line), done + 1, errors + ("error" in found)
        if b"\n" in lines.read():
            raise ValueError(f"{output} has more lines than {share.source.name}; choose another --output")
    os.truncate(output, whole)
    return done, errors


def _difference(model: Model, found: dict[str, Any], asked: dict[str, Any], settings: Settings) -> str | None:
    """What shows that an output line does not answer this input line; None if nothing does."""
    if json.dumps(found["id"]) != json.dumps(asked["id"]):
        return "id"
    if "error" in found:
        return None
    try:
        settings = settings.updated(asked)
        template = model.template(str(asked.get("text", asked.get("free"))), "free" in asked)
        same_text = template.text(found["fills"]) == found["text"]
    except (ValueError, TypeError, KeyError):
        same_text = False
    wanted = {"seed": settings.seed, "steps": settings.steps, **_unusual(model, settings)}
    for name in ("seed", "steps", "temperature", "top_p", "terminal", "model"):
        if found.get(name) != wanted.get(name):
            return name
    if ("alternatives" in found) != (settings.n != 1):
        return "n"
    return None if same_text else "text"


def _parsed(line: bytes) -> dict[str, Any]:
    """The object a line holds; an empty one if it holds none."""
    try:
        found = json.loads(line)
    except (ValueError, RecursionError):  # no JSON, no UTF-8, numbers of thousands of digits
        return {}
    return found if isinstance(found, dict) else {}


def part_of(output: Path, rank: int, world: int) -> Path:
    """The file one of several processes writes."""
    return output if world == 1 else output.with_name(f"{output.name}.part-{rank}-of-{world}")


def merge(output: Path, world: int) -> None:
    """Join the parts of several processes, line by line in turn, into one file, and remove them."""
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
