"""Texts from files and streams: JSON lines in, JSON lines out, in the same order. An unfinished output is resumed.

Input: {"id", "text"} or {"id", "free"}, with `fills` to lock and any `Settings` of its own; `custom_id` is read as id.
Output: the other fields of the input line and {"id", "text", "fills", "score", "steps", "seed", "seconds"}, with the
settings and the model that are not the default ones, or {"id", "error"} for a bad line.
"""

import errno
import io
import json
import os
import re
import shlex
import stat
import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, field, fields
from itertools import islice, takewhile, zip_longest
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ddot.files import UNPACKING, is_packed, opened, pack_file, write_all, writing
from ddot.infill.mistakes import COMMAND_LINE, JSON, told
from ddot.infill.request import Request, request
from ddot.infill.settings import Settings
from ddot.interrupts import interruptions
from ddot.network.places import EMBEDDED_NAME

if TYPE_CHECKING:  # files are checked before torch is imported
    from ddot.infill.answers import Answers
    from ddot.infill.model import Model

STREAM = Path("-")  # stdin or stdout
_MAX_LINE = 1 << 26  # bytes
_SNIFFED = 20  # if none of the first lines is meant as JSON, the file is not
_CAT = {".gz": "zcat", ".xz": "xzcat"}
NO_ANSWER = "no fill without the words to be avoided was found; avoid fewer"
_WANTED = 'wanted {"id": …, "text": "… ___ …"}'
_RESERVED = {"id", "text", "free", "fills", "score", "seconds", "alternatives", "error", "model"}
_RESERVED |= {setting.name for setting in fields(Settings)}
_UNUSUAL = ("temperature", "top_p", "terminal", "avoid", "model")  # in the output only where not the default


@dataclass(frozen=True)
class Summary:
    lines: int
    errors: int
    before: int  # lines that an earlier run had finished
    interrupted: bool


@dataclass(frozen=True)
class Line:
    """A line of input: its id (else its number), its request or what is wrong with it, its other fields."""

    id: Any
    request: Request | None = None
    error: str = ""
    carried: dict[str, Any] = field(default_factory=dict)


def read_line(number: int, line: bytes, settings: Settings) -> Line:
    """The request of a line of JSON; `settings`: the defaults."""
    try:
        return read_object(number, json.loads(_decoded(number, line)), settings)
    except json.JSONDecodeError as error:
        return Line(number, error=f"line {number} is not JSON ({error}); {_WANTED}")
    except RecursionError:
        return Line(number, error=f"line {number} is nested too deeply; {_WANTED}")
    except ValueError as error:
        return Line(number, error=f"line {number}: {error}; {_WANTED}")


def read_object(number: int, values: Any, settings: Settings) -> Line:
    """The request of a JSON object, or of a row of a table."""
    if not isinstance(values, dict):
        return Line(number, error=f"line {number} is {json.dumps(values)[:40]}; {_WANTED}")
    line_id = values.get("id", values.get("custom_id", number))
    carried = {name: value for name, value in values.items() if name not in _RESERVED}
    try:
        given = [name for name in ("text", "free") if values.get(name) is not None]
        if len(given) != 1:
            has = ", ".join(map(str, values)) or "nothing"
            raise ValueError(f'line {number} needs either "text" or "free", a string; it has {has}')
        text = values[given[0]]
        if not isinstance(text, str):
            raise ValueError(f'line {number} has {JSON.value(text)} as "{given[0]}"; wanted a string')
        made = request(text, settings.updated(values), given[0] == "free", values.get("fills"))
        return Line(line_id, made, carried=carried)
    except ValueError as error:
        return Line(line_id, error=told(error, JSON), carried=carried)


def read_text(number: int, line: bytes, settings: Settings, free: bool = False) -> Line:
    """The request of a line that is a text itself."""
    try:
        text = _decoded(number, line.removesuffix(b"\n"))
        if free and "___" in text:
            raise ValueError("there is a blank, but --free text goes where it fits; leave out ___ or --free")
        return Line(number, request(text, settings, free))
    except ValueError as error:
        return Line(number, error=f"line {number}: {told(error, COMMAND_LINE)}")


def is_object(line: bytes) -> bool:
    """Whether a line is a JSON object."""
    try:
        return isinstance(json.loads(line), dict)
    except (ValueError, RecursionError):
        return False


def _decoded(number: int, line: bytes) -> str:
    try:
        return line.decode("utf-8-sig" if number == 1 else "utf-8")
    except UnicodeDecodeError as error:
        raise ValueError(f"not UTF-8, from byte {error.start + 1} on; convert the text first") from None


def lines_of(readline: Callable[[int], bytes]) -> Iterator[bytes]:
    """The lines of a file; an endless one is refused before it fills the memory."""
    for number, line in enumerate(iter(lambda: readline(_MAX_LINE), b""), 1):
        if len(line) == _MAX_LINE:
            raise ValueError(f"line {number} has more than {_MAX_LINE >> 20} MB; wanted a text a line")
        yield line


def answer_lines(model: "Model", lines: Iterable[Line]) -> "Iterator[tuple[Line, Answers | None]]":
    """Each line, in order, with its answers; None for a bad line."""
    waiting: deque[Line] = deque()

    def requests() -> Iterator[Request]:
        for line in lines:
            waiting.append(line)
            if line.request is not None:
                yield line.request

    def failed() -> Iterator[tuple[Line, None]]:
        while waiting and waiting[0].request is None:
            yield waiting.popleft(), None

    for answers in model.answers(requests()):
        yield from failed()
        yield waiting.popleft(), answers
    yield from failed()


def output_of(model_name: str, line: Line, answers: "Answers | None") -> dict[str, Any]:
    if answers is None or line.request is None:
        return {"id": line.id, **line.carried, "error": line.error}
    settings = line.request.settings
    if not answers.best:
        return {"id": line.id, **line.carried, "error": NO_ANSWER}
    infills = [answer.infill for answer in answers.best]
    first, *others = ({"text": one.text, "fills": one.fills, "score": one.score} for one in infills)
    more = {"alternatives": others} if settings.n > 1 else {}
    about = {"steps": settings.steps, "seed": settings.seed, "seconds": round(answers.seconds, 3)}
    return {"id": line.id, **line.carried, **first, **more, **about, **_unusual(model_name, settings)}


def as_line(output: dict[str, Any]) -> bytes:
    return json.dumps(output, ensure_ascii=False).encode(errors="backslashreplace") + b"\n"


def _unusual(model_name: str, settings: Settings) -> dict[str, Any]:
    """The settings and the model of an answer, where they are not the defaults."""
    default, used = vars(Settings()) | {"model": EMBEDDED_NAME}, vars(settings) | {"model": model_name}
    return {name: used[name] for name in _UNUSUAL if used[name] != default[name]}


@dataclass(frozen=True)
class Share:
    """The lines of a source that one of several processes fills: every `world`-th, from line `rank` on."""

    source: Path
    rank: int = 0
    world: int = 1

    def __iter__(self) -> Iterator[tuple[int, bytes]]:
        """(number from 1, line) of lines that are not empty. A stream can be read once."""
        try:
            with ExitStack() as stack:
                file = sys.stdin.buffer if self.source == STREAM else stack.enter_context(opened(self.source))
                lines = ((number, line) for number, line in enumerate(lines_of(file.readline), 1) if line.strip())
                yield from islice(lines, self.rank, None, self.world)
        except UNPACKING as error:
            raise ValueError(f"{self.source} does not unpack ({error}); fetch it again") from None

    @property
    def is_stream(self) -> bool:
        return self.source == STREAM or not self.source.is_file()

    def __len__(self) -> int:
        return sum(1 for _ in self)


class Job:
    """A source to fill and its output, checked, so that mistakes are reported before a model is loaded.

    A compressed output (.gz, .xz) is written uncompressed under another name, and compressed when it is complete.
    """

    def __init__(
        self,
        source: Path,
        output: Path,
        settings: Settings | None = None,
        model_name: str = EMBEDDED_NAME,
        rank: int = 0,
        world: int = 1,
    ):
        self.share, self.output, self.settings = Share(source, rank, world), output, settings or Settings()
        self.model_name, self.rank, self.world = model_name, rank, world
        self.streams_out = _streams(output)
        check_files(self.share, output)
        self._pipe = _open_pipe(output) if self.streams_out and output != STREAM else None
        self.part = self._part(rank)
        self.lines: Iterator[tuple[int, bytes]] = iter(self.share)
        self.before = self.errors = 0
        if self.streams_out:
            return
        with self._unpacked():
            if self.part.exists():
                self._skip_finished()

    @contextmanager
    def _unpacked(self) -> Iterator[None]:
        """Decompress a complete output to compare it and append to it; a refused one is left as it was."""
        if self.part == self.output or self.world > 1 or self.part.exists() or not self.output.exists():
            yield
            return
        try:
            with opened(self.output) as packed, writing(self.part), open(self.part, "wb") as plain:
                plain.writelines(packed)
            yield
        except UNPACKING:
            self.part.unlink()
            raise ValueError(f"{self.output} exists and does not unpack; choose another --output") from None
        except ValueError:
            self.part.unlink(missing_ok=True)
            raise

    def _part(self, rank: int) -> Path:
        if self.world > 1:
            return self.output.with_name(f"{self.output.name}.part-{rank}-of-{self.world}")
        return self.output.with_name(f"{self.output.name}.part") if is_packed(self.output) else self.output

    def _sink(self) -> io.RawIOBase:
        """Unbuffered: readers see a line as soon as it is written."""
        if self.output == STREAM:
            sys.stdout.flush()
            return open(os.dup(sys.stdout.fileno()), "wb", buffering=0)
        return open(self.part if self._pipe is None else self._pipe, "ab" if self._pipe is None else "wb", buffering=0)

    def run(self, model: "Model", on_progress: Callable[[int], None] = lambda done: None) -> Summary:
        """Fill the lines that are left. `on_progress` is called with the number of lines done.

        After an interruption the lines in progress are finished; a wait for a stream ends at once.
        """
        done, errors = self.before, self.errors
        on_progress(done)
        notice = "" if self.world > 1 else "ddot: finishing the lines at work; press Ctrl-C again to drop them\n"
        with nullcontext(bool) if self.share.is_stream else interruptions(self.world > 1, notice) as interrupted:
            lines = takewhile(lambda _: not interrupted(), self.lines)
            with writing(self.output):
                sink = self._sink()
            with sink:
                for line, answers in answer_lines(model, (read_line(*line, self.settings) for line in lines)):
                    with writing(self.output):
                        write_all(sink, as_line(output_of(self.model_name, line, answers)))
                    errors += answers is None or not answers.best
                    done += 1
                    on_progress(done)
            return Summary(done, errors, self.before, interrupted())

    def finish(self) -> None:
        """Merge the parts, a line of each in turn, once all are complete."""
        parts = [self._part(rank) for rank in range(self.world)]
        if parts == [self.output] or self.streams_out:
            return
        with ExitStack() as stack:
            files = [stack.enter_context(open(part, "rb")) for part in parts]
            pack_file(self.output, (line for row in zip_longest(*files) for line in row if line is not None))
        for part in parts:
            part.unlink()

    def _skip_finished(self) -> None:
        """Skip lines that an earlier run finished. A last line that was cut off is removed.

        A file that is not an output for this source is refused and left untouched.
        """
        name, output = self.share.source.name, self.output
        foreign = ValueError(f"{output} exists and is not an output for {name}; choose another --output")
        whole = 0
        with open(self.part, "rb") as finished:
            for line in finished:
                if not line.endswith(b"\n"):
                    if not line.startswith(b'{"id": '[: len(line)]):
                        raise foreign
                    break
                source_line = next(self.lines, None)
                if source_line is None:
                    raise ValueError(f"{output} has more lines than {name}; choose another --output")
                answer = _parsed(line)
                if "id" not in answer or not ("text" in answer or "error" in answer):
                    raise foreign
                if other := self._difference(answer, read_line(*source_line, self.settings)):
                    raise ValueError(
                        f"{output} was made from other lines or settings: line {self.before + 1} has another {other}; "
                        "choose another --output"
                    )
                whole, self.before, self.errors = whole + len(line), self.before + 1, self.errors + ("error" in answer)
        os.truncate(self.part, whole)

    def _difference(self, answer: dict[str, Any], line: Line) -> str | None:
        """The first field in which an output line does not match this input line; None if it matches."""
        expected: dict[str, Any] = {"id": line.id, **line.carried}
        request = line.request
        if request is not None and "error" not in answer:
            settings = request.settings
            expected |= {"seed": settings.seed, "steps": settings.steps, **dict.fromkeys(_UNUSUAL)}
            expected |= _unusual(self.model_name, settings)
        for name, value in expected.items():
            if json.dumps(answer.get(name)) != json.dumps(value):
                return name
        if request is None or "error" in answer:
            return None if request is None and "error" in answer else "text"
        if ("alternatives" in answer) != (request.settings.n != 1):
            return "n"
        try:
            same_text = request.whole.text(answer["fills"]) == answer["text"]
            kept = all(kept in (None, fill) for kept, fill in zip(request.locked, answer["fills"], strict=True))
        except (ValueError, TypeError, KeyError):
            return "text"
        return "text" if not same_text else None if kept else "fills"


def fill_file(
    model: "Model",
    source: Path | str,
    output: Path | str,
    settings: Settings | None = None,
    on_progress: Callable[[int], None] = lambda done: None,
) -> Summary:
    """Fill every line of `source` and append it to `output`, skipping lines already there. "-": stdin, stdout."""
    job = Job(Path(source), Path(output), settings, model.name)
    summary = job.run(model, on_progress)
    if not summary.interrupted:
        job.finish()
    return summary


def _streams(output: Path) -> bool:
    return output == STREAM or (output.exists() and not output.is_file())


def check_files(share: Share, output: Path) -> None:
    """Refuse a source that cannot be read as JSON lines, and an output that cannot be written."""
    source = share.source
    if source == STREAM and sys.stdin is None:
        raise ValueError("stdin is closed; wanted JSON lines there, or a file as --input")
    if source != STREAM and (source.is_dir() or not source.exists()):
        wrong = f"{source} is a folder" if source.is_dir() else f"no file at {source}"
        raise FileNotFoundError(f'{wrong}; wanted a file of JSON lines with "text"')
    if share.world > 1 and (share.is_stream or _streams(output)):
        raise ValueError("several processes can share a file only, not a stream; give --input and --output a file")
    if not share.is_stream:
        first = [line for _, line in islice(Share(source), _SNIFFED)]
        if first and re.match(rb"\s*\[\s*(\{|$)", first[0]):
            lines = f"jq -c '.[]' {shlex.quote(str(source))}"
            raise ValueError(f"{source} is one JSON array; {_WANTED} a line: {lines} converts it")
        if first and not any(map(_is_meant_as_json, first)):
            if any(b"\0" in line for line in first):
                raise ValueError(f'{source} is a binary file; wanted JSON lines with "text"')
            begins = json.dumps(first[0].decode(errors="replace").strip()[:40], ensure_ascii=False)
            reads = f"{_CAT.get(source.suffix, 'cat')} {shlex.quote(str(source))}"
            raise ValueError(
                f"{source} is not a file of JSON lines, it begins {begins}; {_WANTED} a line, or for plain texts, one "
                f"a line: {reads} | ddot infill"
            )
        if output.exists() and output.samefile(source):
            raise ValueError(f"{output} is the input itself; choose another --output")
    elif source != STREAM and _is_device(source):
        raise ValueError(f"{source} is a device; wanted a file of JSON lines, a pipe, or - for stdin")
    if output == STREAM:
        return
    if output.is_dir() or not output.parent.is_dir():
        wrong = f"{output} is a folder" if output.is_dir() else f"there is no folder {output.parent}"
        raise FileNotFoundError(f"{wrong}; --output must be a file in a folder that exists")
    place = output if output.exists() else output.parent
    if not os.access(place, os.W_OK):
        raise ValueError(f"{place} may not be written to; choose another --output, or change its permissions")


def _is_meant_as_json(line: bytes) -> bool:
    """Whether a line is JSON, or an object that is cut off or malformed."""
    if line.lstrip(b"\xef\xbb\xbf \t").startswith(b"{"):
        return True
    try:
        json.loads(line)
    except (ValueError, RecursionError):
        return False
    return True


def _is_device(path: Path) -> bool:
    """Whether a path is a disk, or an endless device such as /dev/zero."""
    mode = path.stat().st_mode
    return stat.S_ISBLK(mode) or (stat.S_ISCHR(mode) and str(path) in ("/dev/zero", "/dev/full", "/dev/urandom"))


def _open_pipe(output: Path) -> int:
    """A pipe or a device, opened for writing. A pipe without a reader is refused at once."""
    if stat.S_ISBLK(output.stat().st_mode):
        raise ValueError(f"{output} is a disk; --output must be a file, a pipe, or - for stdout")
    try:
        pipe = os.open(output, os.O_WRONLY | os.O_NONBLOCK)
    except OSError as error:
        why = "nobody reads it; start its reader first" if error.errno == errno.ENXIO else error.strerror
        raise ValueError(f"cannot write to {output}: {why}") from None
    os.set_blocking(pipe, True)
    return pipe


def _parsed(line: bytes) -> dict[str, Any]:
    """The object in a line; an empty one if there is none."""
    try:
        value = json.loads(line)
    except (ValueError, RecursionError):  # not JSON, not UTF-8, numbers of thousands of digits
        return {}
    return value if isinstance(value, dict) else {}
