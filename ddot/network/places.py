"""Where models are, and what their meta.json says, without reading weights or importing torch."""

import json
from pathlib import Path
from typing import Any

from ddot.version import install_command

EMBEDDED = Path(__file__).parents[1] / "model"
EMBEDDED_NAME = "ddot"  # the name of the embedded model


def find(name: str | Path | None) -> Path:
    """The folder of a model: the embedded one, a folder, or a repository on the hub (owner/name)."""
    return here(name) or _fetched(str(name))


def here(name: str | Path | None) -> Path | None:
    """The folder of a local model, which must exist; None for a repository on the hub."""
    if name is None:
        if not (EMBEDDED / "config.json").is_file():
            raise FileNotFoundError(f"this copy of ddot has no model ({EMBEDDED} is empty); name one with --model")
        return EMBEDDED
    if Path(name).exists() or str(name).count("/") != 1 or str(name)[0] in "./~":
        return model_folder(Path(name).expanduser())
    return None


def _fetched(name: str) -> Path:
    try:
        from huggingface_hub import snapshot_download
        from huggingface_hub.errors import HfHubHTTPError, LocalEntryNotFoundError
    except ImportError:
        raise FileNotFoundError(
            f"there is no folder {name}; to fetch it from the hub, {install_command('hub')}"
        ) from None
    try:
        return Path(snapshot_download(name, allow_patterns=["*.safetensors", "*.json"]))
    except (HfHubHTTPError, LocalEntryNotFoundError, OSError) as error:
        reason = str(error).splitlines()[0]
        raise FileNotFoundError(f"there is no folder {name}, and fetching it from the hub failed: {reason}") from None


def model_folder(path: Path | str) -> Path:
    """The model folder a path refers to: itself, or the latest checkpoint of a run."""
    path = Path(path)
    for candidate in (path, path / "latest", *reversed(complete_steps(path))):
        if (candidate / "config.json").is_file():
            return candidate
        if candidate != path and candidate.is_dir():
            raise FileNotFoundError(f"the checkpoint {candidate.resolve()} has no config.json; it is damaged")
    raise FileNotFoundError(f"no model at {path}; give a folder with config.json, or a run folder")


def complete_steps(run: Path) -> list[Path]:
    """The checkpoints of a run, oldest first. A folder is renamed to step-N only when it is complete."""
    return sorted(folder for folder in run.glob("step-*") if folder.is_dir())


def read_json(file: Path) -> Any:
    if not file.is_file():
        raise FileNotFoundError(f"{file} is missing")
    try:
        content = json.loads(file.read_text())
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise ValueError(f"{file} is damaged: {error}") from None
    if not isinstance(content, dict):
        raise ValueError(f"{file} is damaged: it holds {json.dumps(content)[:40]}, not an object")
    return content


def is_compressed(folder: Path) -> bool:
    """Whether a model folder's matrices are stored in int8."""
    return read_json(folder / "meta.json").get("stored") == "int8"


def is_untrained(folder: Path) -> bool:
    """Whether a model folder is a converted checkpoint without further training."""
    meta = read_json(folder / "meta.json")
    return "converted_from" in meta and "recipe" not in meta


def training_of(name: str | Path | None) -> dict[str, Any]:
    """A model's training as an evaluation row records it: recipe, λ, steps, seconds; empty if it had none.

    Includes the runs it started from, except those that did not train the trunk; `own_…` are of the last run alone.
    """
    meta = read_json(find(name) / "meta.json")
    if not isinstance(meta.get("training"), dict):
        return {}
    runs = [*(meta.get("before") or []), meta["training"] | meta]
    runs = [run for run in runs if not run.get("only") or any(name.startswith("trunk") for name in run["only"])]
    if not runs:
        return {}
    row = {
        "recipe": runs[-1].get("recipe"),
        "position_factor": runs[-1].get("position_factor"),
        "training_steps": sum(run.get("step") or 0 for run in runs),
        "training_seconds": sum(run.get("seconds") or 0 for run in runs),
        "own_steps": runs[-1].get("step"),
        "own_seconds": runs[-1].get("seconds"),
    }
    return {key: value for key, value in row.items() if value is not None}
