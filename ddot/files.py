"""Files and folders that are written completely or not at all, and checksums that detect later damage."""

import gzip
import hashlib
import io
import json
import lzma
import os
import shutil
import zlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

# What a packed file that is cut short or damaged raises while it is read.
UNPACKING = (lzma.LZMAError, gzip.BadGzipFile, zlib.error, EOFError)


def is_packed(path: Path) -> bool:
    """Whether a file is packed, by its name."""
    return path.suffix in (".gz", ".xz")


def opened(path: Path, mode: str = "rb") -> io.BufferedIOBase:
    """A file opened in binary, unpacked by its name while it is read, packed while it is written."""
    if path.suffix == ".gz":
        return gzip.open(path, mode)  # type: ignore[return-value]
    return lzma.open(path, mode) if path.suffix == ".xz" else open(path, mode)  # type: ignore[return-value]


def pack_file(path: Path, lines: Iterable[bytes]) -> None:
    """Write lines to a file that appears complete or not at all, packed as its name says."""
    draft = path.with_name(f"unfinished.{path.name}")
    try:
        with writing(path):
            with opened(draft, "wb") as sink:
                sink.writelines(lines)
            os.replace(draft, path)
    finally:
        draft.unlink(missing_ok=True)


def write_all(file: io.RawIOBase, content: bytes) -> None:
    """Write everything to an unbuffered file, which may take it in several parts."""
    left = memoryview(content)
    while left:
        left = left[file.write(left) :]


def check_place(path: Path) -> None:
    """Refuse a name under which no file can be written."""
    if path.is_dir():
        raise ValueError(f"{path} is a folder; give the name of a file in it")
    if not path.parent.is_dir():
        raise FileNotFoundError(f"there is no folder {path.parent} to write {path.name} into; create it")


def write_whole(path: Path | str, content: bytes) -> None:
    """Write a file under a temporary name, then rename it, so that it is never partial. Keeps permissions.

    A device or a pipe is written to, not replaced.
    """
    path = Path(path)
    check_place(path)
    draft = path.with_name(f"{path.name}.unfinished")  # a fixed name: leftovers of a kill are overwritten
    try:
        with writing(path):
            if path.exists() and not path.is_file():
                path.write_bytes(content)
                return
            draft.write_bytes(content)
            if path.exists():
                shutil.copymode(path, draft)
            os.replace(draft, path)
    finally:
        draft.unlink(missing_ok=True)


@contextmanager
def whole_folder(folder: Path) -> Iterator[Path]:
    """A folder to write into, renamed to `folder` when the block ends and removed if it fails."""
    if folder.exists():
        raise ValueError(f"{folder} exists already; remove it or choose another name")
    draft = folder.with_name(f"{folder.name}.unfinished")
    shutil.rmtree(draft, ignore_errors=True)
    try:
        with writing(draft):
            draft.mkdir(parents=True)
        yield draft
        with writing(folder):
            draft.rename(folder)
    finally:
        shutil.rmtree(draft, ignore_errors=True)


@contextmanager
def writing(place: Path) -> Iterator[None]:
    """Turns system errors (no space, no permission) into a sentence."""
    try:
        yield
    except (BrokenPipeError, gzip.BadGzipFile):  # a reader that has seen enough; a file that was read
        raise
    except OSError as error:
        why = error.strerror or error
        raise ValueError(f"cannot write to {place}: {why}; free some space or choose another place") from None


class AnotherRun(ValueError):
    """A checkpoint that is intact but belongs to another run."""


_SUMS = "sha256.json"


def seal(folder: Path) -> None:
    """Write the checksums of all files in a folder."""
    (folder / _SUMS).write_text(json.dumps(dict(_sums(folder)), indent=1))


def is_sealed(folder: Path) -> bool:
    return (folder / _SUMS).is_file()


def check_seal(folder: Path, start: str = "") -> None:
    """Refuse a folder whose files changed since it was sealed; reads only those whose names begin with `start`."""
    if not is_sealed(folder):
        raise FileNotFoundError(f"{folder / _SUMS} is missing")
    try:
        wanted = json.loads((folder / _SUMS).read_text())
    except ValueError as error:
        raise ValueError(f"{folder / _SUMS} is damaged: {error}") from None
    sums = dict(_sums(folder, start))
    for name in wanted if isinstance(wanted, dict) else ():
        if name.startswith(start) and sums.get(name) != wanted[name]:
            raise ValueError(f"{folder / name} is damaged: its checksum is not the one in {_SUMS}; restore the file")


def _sums(folder: Path, start: str = "") -> Iterator[tuple[str, str]]:
    for file in sorted(file for file in folder.rglob("*") if file.is_file() and file.name != _SUMS):
        name = file.relative_to(folder).as_posix()
        if name.startswith(start):
            with open(file, "rb") as opened:
                yield name, hashlib.file_digest(opened, "sha256").hexdigest()
