"""Files that are the old one or the new one at any moment, and folders that still hold what was written."""

import hashlib
import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path


def write_whole(path: Path | str, content: bytes) -> None:
    """Write a file under another name, then give it its own: a stop halfway leaves no half file. The mode stays."""
    path = Path(path)
    if path.is_dir():
        raise ValueError(f"{path} is a folder; give the name of a file in it")
    if not path.parent.is_dir():
        raise FileNotFoundError(f"there is no folder {path.parent} to write {path.name} into; make it first")
    draft = path.with_name(f"{path.name}.unfinished")  # always the same: one left by a kill is written over
    try:
        draft.write_bytes(content)
        if path.exists():
            shutil.copymode(path, draft)
        os.replace(draft, path)
    except OSError as error:
        raise OSError(f"{path} cannot be written ({error.strerror}); choose another place, or make room") from error
    finally:
        draft.unlink(missing_ok=True)


class AnotherRun(ValueError):
    """A folder that is whole, and not of the run that is asked for."""


_SUMS = "sha256.json"


def seal(folder: Path) -> None:
    """Write down the checksum of every file in a folder."""
    (folder / _SUMS).write_text(json.dumps(dict(_sums(folder)), indent=1))


def check_seal(folder: Path) -> None:
    """Refuse a folder whose files are not those that were there when it was sealed."""
    if not (folder / _SUMS).is_file():
        raise FileNotFoundError(f"{folder / _SUMS} is missing")
    try:
        wanted = json.loads((folder / _SUMS).read_text())
    except ValueError as error:
        raise ValueError(f"{folder / _SUMS} is damaged: {error}") from None
    found = dict(_sums(folder))
    for name in wanted if isinstance(wanted, dict) else ():
        if found.get(name) != wanted[name]:
            raise ValueError(f"{folder / name} does not hold what was written into it (its checksum is another)")


def _sums(folder: Path) -> Iterator[tuple[str, str]]:
    for file in sorted(file for file in folder.rglob("*") if file.is_file() and file.name != _SUMS):
        with open(file, "rb") as opened:
            yield file.relative_to(folder).as_posix(), hashlib.file_digest(opened, "sha256").hexdigest()
