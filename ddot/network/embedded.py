"""Models by name: the embedded one, a folder or a hub id; what is known about one; a copy in int8 to ship."""

from pathlib import Path
from typing import Any

from ddot import __version__
from ddot.data.tokenizer import Tokenizer
from ddot.files import seal, whole_folder, writing
from ddot.network.folder import load_config, load_weights, model_folder, read_json, save_model, without_values
from ddot.network.int8 import compress, decompress
from ddot.version import install_command

EMBEDDED = Path(__file__).parents[1] / "model"
_SHOWN = ("recipe", "step", "seconds", "start", "before", "converted_from", "figures")  # of meta.json, by `ddot info`


def shrink(source: Path, dest: Path, shard_bytes: int = 40_000_000, about: dict[str, Any] | None = None) -> None:
    """Copy a model folder with its matrices in int8. `about` is added to meta.json."""
    folder = model_folder(source)
    with whole_folder(dest) as draft:
        config = load_config(folder)
        weights = decompress(load_weights(folder, without_values(config)))
        meta = read_json(folder / "meta.json") | {"stored": "int8"} | (about or {})
        with writing(dest):
            save_model(compress(weights), config, Tokenizer.load(folder), meta, draft, shard_bytes)
            seal(draft)


def about(name: str | Path | None) -> dict[str, Any]:
    """What `ddot info` shows about a model."""
    folder = find(name)
    config, meta = load_config(folder), read_json(folder / "meta.json")
    size, network = sum(file.stat().st_size for file in folder.glob("model*")), type(config.trunk).__name__
    return {
        "model": "embedded" if name is None else str(name), "network": network.removesuffix("Config"),
        "parameters": sum(parameter.numel() for parameter in without_values(config).parameters()),
        "blocks": config.trunk.blocks, "width": config.trunk.width, "tokens": config.vocabulary.base,
        "megabytes": round(size / 1e6, 1), "stored": meta.get("stored", "float"), "plans_lengths": config.gap_lengths,
        **{key: meta[key] for key in _SHOWN if key in meta}, "ddot": __version__,
    }  # fmt: skip


def training_of(name: str | Path | None) -> dict[str, Any]:
    """A model's training as an evaluation row records it: recipe, λ, steps, seconds; empty if it had none.

    Includes the runs it started from, except those that did not train the trunk; `own_…` are of the last alone.
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


def is_compressed(folder: Path) -> bool:
    """Whether a model folder's matrices are stored in int8."""
    return read_json(folder / "meta.json").get("stored") == "int8"


def is_untrained(folder: Path) -> bool:
    """Whether a model folder is a converted checkpoint as it was."""
    meta = read_json(folder / "meta.json")
    return "converted_from" in meta and "recipe" not in meta


def find(name: str | Path | None) -> Path:
    """The folder of a model: the embedded one, a folder, or a repository on the hub (owner/name)."""
    if name is None:
        if not (EMBEDDED / "config.json").is_file():
            raise FileNotFoundError(f"this copy of ddot has no model ({EMBEDDED} is empty); name one with --model")
        return EMBEDDED
    if Path(name).exists() or str(name).count("/") != 1 or str(name)[0] in "./~":
        return model_folder(Path(name).expanduser())
    try:
        from huggingface_hub import snapshot_download
        from huggingface_hub.errors import HfHubHTTPError, LocalEntryNotFoundError
    except ImportError:
        raise FileNotFoundError(
            f"there is no folder {name}; to fetch it from the hub, {install_command('hub')}"
        ) from None
    try:
        return Path(snapshot_download(str(name), allow_patterns=["*.safetensors", "*.json"]))
    except (HfHubHTTPError, LocalEntryNotFoundError, OSError) as error:
        reason = str(error).splitlines()[0]
        raise FileNotFoundError(f"there is no folder {name}, and fetching it from the hub failed: {reason}") from None
