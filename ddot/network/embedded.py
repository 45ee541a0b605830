"""Describes a model, and copies one in int8 for shipping."""

from pathlib import Path
from typing import Any

from ddot import __version__
from ddot.data.tokenizer import Tokenizer
from ddot.files import seal, whole_folder, writing
from ddot.network.folder import load_config, load_weights, save_model, without_values
from ddot.network.int8 import compress, decompress
from ddot.network.places import find, model_folder, read_json

# Entries of meta.json that `ddot info` shows.
_SHOWN = ("recipe", "step", "seconds", "start", "before", "converted_from", "figures")


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
