"""The checkpoints of a run on disk.

A run folder holds step-N/ (a sealed model folder with state/ for resuming) and `latest`, a link to the newest. A step
folder is written under a temporary name, flushed and renamed; `latest` is replaced atomically. Killing the program at
any moment leaves the last complete checkpoint intact. What a checkpoint holds: `loop.describe`, `network.folder`.
"""

import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from ddot.files import AnotherRun, seal
from ddot.network.folder import complete_steps

_KEEP = 2  # complete checkpoints of a run
_UNFINISHED = ".unfinished-"  # folders being written or removed; safe to delete


def open_run(run: Path, resume: bool) -> Path | None:
    """The checkpoint to resume from, or None. Creates the folder."""
    try:
        run.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ValueError(f"{run} cannot be created ({error.strerror}); choose another --output") from None
    steps = complete_steps(run)
    if steps and not resume:
        raise ValueError(f"{run} already holds a run; resume it with --resume, or choose another --output")
    return steps[-1] if steps else None


def check_room(run: Path, bytes_needed: int) -> None:
    """Refuse to start if the disk has too little space."""
    free = shutil.disk_usage(run).free
    if free < bytes_needed * 1.05:
        raise _no_room(run, f"{bytes_needed / 1e6:.1f} MB needed, {free / 1e6:.1f} MB free")


def save_step(run: Path, step: int, write: Callable[[Path], None], bytes_needed: int) -> Path:
    """Write a checkpoint through `write(folder)`, make it the latest, delete all but the last two."""
    run.mkdir(parents=True, exist_ok=True)
    final, draft = run / f"step-{step:08d}", run / f"{_UNFINISHED}{step:08d}"
    for stale in run.glob(f"{_UNFINISHED}*"):
        shutil.rmtree(stale, ignore_errors=True)
    if final.exists():
        raise ValueError(f"{final} exists already; remove it to write it again")
    check_room(run, bytes_needed)
    try:
        draft.mkdir()
        write(draft)
        seal(draft)
        for file in [*draft.rglob("*"), draft]:
            _flush(file)
        draft.rename(final)
        link = run / ".latest"
        link.unlink(missing_ok=True)
        link.symlink_to(final.name)
        os.replace(link, run / "latest")
        _flush(run)
    except OSError as error:
        shutil.rmtree(draft, ignore_errors=True)
        raise _no_room(run, str(error)) from None
    for old in complete_steps(run)[:-_KEEP]:
        # Renamed first: a kill must not leave a partial folder that looks like a checkpoint.
        shutil.rmtree(old.rename(run / f"{_UNFINISHED}{old.name}"))
    return final


@contextmanager
def damaged(folder: Path) -> Iterator[None]:
    """Turns a damaged checkpoint into a sentence that names the previous one."""
    try:
        yield
    except AnotherRun as error:
        raise ValueError(f"{folder} belongs to another run: {error}") from None
    except (ValueError, FileNotFoundError, KeyError) as error:
        what = f"{error} is missing" if isinstance(error, KeyError) else str(error)
        before = [other for other in complete_steps(folder.parent) if other.name < folder.name]
        hint = f"remove {folder} to resume from {before[-1].name}" if before else "there is no earlier one"
        raise ValueError(f"the checkpoint {folder} cannot be read: {what}; {hint}") from None


def _no_room(run: Path, why: str) -> ValueError:
    return ValueError(
        f"no checkpoint could be written to {run}: {why}; free some space and resume with --resume "
        "(the last complete checkpoint is intact)"
    )


def _flush(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
