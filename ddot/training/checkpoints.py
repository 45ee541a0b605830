"""What a checkpoint contains, and how the checkpoints of a run are stored.

A run folder holds step-N/ and `latest`, a link to the newest. A checkpoint step-N/ is a sealed model folder (see
`network.folder`) with state/ for resuming. It is written under a temporary name, flushed and renamed; `latest` is
replaced atomically. If the program is killed at any moment, the last complete checkpoint stays intact.
"""

import dataclasses
import os
import re
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ddot import __version__
from ddot.data.tokenizer import Tokenizer
from ddot.files import AnotherRun, seal
from ddot.network.denoiser import DenoiserConfig
from ddot.network.folder import save_model, save_tensors
from ddot.network.places import complete_steps, model_folder, read_json
from ddot.training.config import Run, Training
from ddot.version import commit

_UNFINISHED = ".unfinished-"  # prefix of folders being written or removed; safe to delete


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


def check_space(run: Path, bytes_needed: int) -> None:
    """Refuse to start if the disk has too little space."""
    free = shutil.disk_usage(run).free
    if free < bytes_needed * 1.05:
        raise _not_written(run, f"{bytes_needed / 1e6:.1f} MB needed, {free / 1e6:.1f} MB free")


def save_step(run: Path, step: int, write: Callable[[Path], None], bytes_needed: int, keep: int) -> Path:
    """Write a checkpoint with `write(folder)`, make it the latest, and delete all but the last `keep`."""
    run.mkdir(parents=True, exist_ok=True)
    final, draft = run / f"step-{step:08d}", run / f"{_UNFINISHED}{step:08d}"
    for stale in run.glob(f"{_UNFINISHED}*"):
        shutil.rmtree(stale, ignore_errors=True)
    if final.exists():
        raise ValueError(f"{final} exists already; remove it to write it again")
    check_space(run, bytes_needed)
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
        raise _not_written(run, str(error)) from None
    for old in complete_steps(run)[:-keep]:
        # Renamed first: if killed, this must not leave a partial folder that looks like a checkpoint.
        shutil.rmtree(old.rename(run / f"{_UNFINISHED}{old.name}"))
    return final


def save_checkpoint(
    output: Path,
    weights: dict[str, Tensor],
    state: dict[str, Tensor],
    config: DenoiserConfig,
    tokenizer: Tokenizer,
    meta: dict[str, Any],
    settings: Training,
) -> None:
    """Save `weights`, the model, and `state`, the raw weights and optimizer state for resuming."""

    def write(folder: Path) -> None:
        (folder / "state").mkdir()
        save_tensors(state, folder / "state", "state", settings.shard_bytes)
        save_model(weights, config, tokenizer, meta, folder, settings.shard_bytes)

    nbytes = sum(tensor.nbytes for tensor in (*weights.values(), *state.values()))
    save_step(output, meta["step"], write, nbytes, settings.keep)


def checkpoint_meta(
    run: Run, earlier: list[dict[str, Any]], step: int, seconds: float, figures: dict[str, Any]
) -> dict[str, Any]:
    """The meta.json of a checkpoint: recipe, settings, data, progress, figures, versions."""
    plans = [re.sub(r" at 0x[0-9a-f]+", "", repr(plan)) for plan in run.plans]
    return {
        "recipe": run.name, "step": step, "seconds": seconds, "training": dataclasses.asdict(run.training),
        "data": dataclasses.asdict(run.data), "start": run.start, "before": earlier, "plans": plans, "figures": figures,
        "versions": {"ddot": __version__, "torch": torch.__version__, "commit": commit()},
        "written": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
    }  # fmt: skip


def earlier_runs(start: str | None, checkpoint: Path | None) -> list[dict[str, Any]]:
    """The runs that led to the model this run starts from, oldest first; a checkpoint stores this list."""
    if start is None and checkpoint is None:
        return []
    try:
        meta = read_json((checkpoint or model_folder(start or "")) / "meta.json")
        earlier = meta.get("before") or []
        if checkpoint or not isinstance(meta.get("training"), dict):
            return earlier
    except (OSError, ValueError, AttributeError):  # a converted model may have no meta.json
        return []
    settings = {key: meta["training"].get(key) for key in ("position_factor", "device", "only")}
    return [*earlier, {key: meta.get(key) for key in ("recipe", "step", "seconds")} | settings]


@contextmanager
def damaged(folder: Path) -> Iterator[None]:
    """Turns errors about a damaged checkpoint into a sentence that names the previous one."""
    try:
        yield
    except AnotherRun as error:
        raise ValueError(f"{folder} belongs to another run: {error}") from None
    except (ValueError, FileNotFoundError, KeyError) as error:
        reason = f"{error} is missing" if isinstance(error, KeyError) else str(error)
        earlier = [other for other in complete_steps(folder.parent) if other.name < folder.name]
        hint = f"remove {folder} to resume from {earlier[-1].name}" if earlier else "there is no earlier one"
        raise ValueError(f"the checkpoint {folder} cannot be read: {reason}; {hint}") from None


def _not_written(run: Path, reason: str) -> ValueError:
    return ValueError(
        f"no checkpoint could be written to {run}: {reason}; free some space and resume with --resume "
        "(the last complete checkpoint is intact)"
    )


def _flush(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
